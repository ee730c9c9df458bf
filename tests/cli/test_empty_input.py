"""Files without content to check are an error, and never a clean result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.command import envdoctor, snapshot
from support.local_packages import PYTHON, write_wheel

LETTER = "Hello, dear reader, this is a novel.\nIt was a dark night.\n"
LOCK_HEAD = "# profile: mine\n# platform: x86_64-manylinux_2_31\n# python: 3.12\n# torch: 12.8\n# made: 2026-11-21\n"

AUDITED = {
    "requirements.txt": ("", "there is no requirement or install step in requirements.txt"),
    "comments.txt": ("\n# nothing yet\n--no-index\n", "comments.txt has no known format (3 lines)"),
    "letter.txt": (LETTER, "letter.txt has no known format (2 lines)"),
    "SETUP.md": ("", "there is no requirement or install step in SETUP.md"),
    "prose.md": (
        "# Title\n\nNo command.\n\n```bash\necho hi\n```\n",
        "there is no requirement or install step in prose.md (7 lines)",
    ),
    "lock.txt": (LOCK_HEAD, "there is no package in lock.txt (5 lines)"),
}


@pytest.mark.parametrize("name", AUDITED)
def test_a_file_without_pins_or_steps_is_not_audited(name: str, tmp_path: Path) -> None:
    text, message = AUDITED[name]
    (tmp_path / name).write_text(text)
    before = snapshot(tmp_path)
    for fix in ([], ["--fix", "."]):
        done = envdoctor("audit", name, *fix, home=tmp_path)
        assert done.returncode == 2, done.stdout
        if not fix or name != "lock.txt":
            assert done.stderr.splitlines()[0] == f"error: {message}"
    assert snapshot(tmp_path) == before


def test_an_environment_without_packages_is_not_audited(tmp_path: Path) -> None:
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv/pyvenv.cfg").write_text("")
    done = envdoctor("audit", "venv", home=tmp_path)
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, "error: there is no package in venv")


def test_code_without_packages_is_nothing_to_audit(tmp_path: Path) -> None:
    (tmp_path / "CARD.md").write_text("```python\nimport torch\n```\n")
    assert envdoctor("audit", "CARD.md", home=tmp_path).returncode == 2


def test_requirements_with_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_bytes(b"\xef\xbb\xbfvllm==0.10.2\r\ntransformers==5.23.0\r\n")
    done = envdoctor("audit", "requirements.txt", home=tmp_path, COLUMNS="300")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "vllm" in done.stdout.lower()


@pytest.mark.parametrize("text", ["", "\n\n", LETTER])
def test_a_text_without_facts_is_no_report(text: str, tmp_path: Path) -> None:
    (tmp_path / "colleague.txt").write_text(text)
    done = envdoctor("check", "--from-report", "colleague.txt", home=tmp_path)
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        2,
        "error: no environment report found in colleague.txt",
    )
    done = envdoctor("check", "--from-report", "colleague.txt", "--format", "json", home=tmp_path)
    assert json.loads(done.stdout)["data"]["findings"] == []


def test_an_error_line_alone_is_diagnosed(tmp_path: Path) -> None:
    (tmp_path / "colleague.txt").write_text(
        "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
    )
    done = envdoctor("check", "--from-report", "colleague.txt", home=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr


PROFILE = """
id = "mine"
title = "Mine"
summary = "Without torch"
preference = 1
requirements = [{ spec = "six" }]
sources = [{ kind = "configured" }]
[when]
architectures = ["x86_64", "aarch64"]
glibc = "2.17"
disk_gb = 0.1
[python]
versions = ["PYTHON"]
[verify]
required = []
[train]
recipe = "sort"
"""


def test_a_profile_without_torch_has_no_torch_build(tmp_path: Path) -> None:
    write_wheel(tmp_path / "wheels", "six", "1.17.0")
    (tmp_path / "mine.toml").write_text(PROFILE.replace("PYTHON", PYTHON))
    sources = {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "wheels")}
    resolved = envdoctor("resolve", "--profile", "./mine.toml", home=tmp_path, **sources)
    assert "1 packages, no torch, lock" in resolved.stdout, resolved.stdout + resolved.stderr
    installed = envdoctor("install", "--profile", "./mine.toml", "--venv", "venv", home=tmp_path, **sources)
    assert installed.returncode == 0, installed.stderr
    assert "torch is" not in installed.stdout


def test_packages_outside_the_tables_are_counted(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("requests==2.32.5\nflask==3.0.0\n")
    done = envdoctor("audit", "requirements.txt", home=tmp_path)
    assert "2 packages read, 1 in the tables" in done.stdout
