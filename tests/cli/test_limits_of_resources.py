"""Endless servers, circular links, huge numbers and a machine without a temporary folder."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.command import envdoctor, environment
from support.install_place import Place
from support.sample_environments import add_distribution, make_venv

from envdoctor.core.errors import EnvdoctorError
from envdoctor.core.processes import CompletedProcess
from envdoctor.download import files
from envdoctor.knowledge.versions import dotted_numbers
from envdoctor.locking import resolve
from envdoctor.profiles.hashes import find_wheel_hashes


def test_a_version_of_5000_digits(tmp_path: Path) -> None:
    site = make_venv(tmp_path / "venv")
    folder = add_distribution(site, "alpha", "1.0")
    for name in ("alpha", "torch", "vllm"):
        text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {'9' * 5000}.1\nRequires-Dist: torch=={'9' * 5000}\n"
        (folder / "METADATA").write_text(text)
        for command in ("check", "profiles new", "audit", "archs"):
            done = envdoctor(*command.split(), tmp_path / "venv", home=tmp_path)
            assert done.returncode in (0, 1, 2, 3), (command, done.stderr)


def test_a_circular_link_in_a_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text('{"schema": 1, "recipe": "sort", "settings": {}}')
    (run / "one").symlink_to("two")
    (run / "two").symlink_to("one")
    done = envdoctor("pack", run, home=tmp_path)
    assert done.returncode in (0, 1, 2), done.stderr


def test_no_folder_for_temporary_files(tmp_path: Path) -> None:
    code = (
        "import tempfile\n"
        "def missing(): raise FileNotFoundError(2, 'No usable temporary directory found in x')\n"
        "tempfile._get_default_tempdir = missing\n"
        "from envdoctor.cli import main; main()"
    )
    for command in (("resolve", "cpu"), ("check",), ("verify", "--python", sys.executable)):
        done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, cwd=tmp_path,
                              env=environment(tmp_path, PIP_NO_INDEX="1"), check=False)  # fmt: skip
        assert "internal error" not in done.stderr, done.stderr


def test_a_server_without_a_length_leaves_disk_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partial = files.PartialFile(tmp_path / "x.whl", "", None)
    try:
        assert files._unknown_limit(partial) <= files.MAX_BYTES
        monkeypatch.setattr(files, "RESERVE_BYTES", 1 << 60)
        assert files._unknown_limit(partial) == 0
    finally:
        partial.close()


def test_clean_lists_the_part_of_a_direct_wheel(place: Place) -> None:
    folder = place.home / ".cache/envdoctor/wheels/0123"
    folder.mkdir(parents=True)
    (folder / "x.whl.part").write_bytes(b"x" * 1000)
    listed = envdoctor("clean", "--dry-run", home=place.home)
    assert str(folder) in listed.stdout
    assert envdoctor("clean", "--yes", home=place.home).returncode == 0
    assert not folder.exists()


@pytest.mark.parametrize(
    ("returncode", "output"),
    [(-9, ""), (-6, "memory allocation of 123 bytes failed"), (2, "error: x\n  cause: No space left (os error 28)"),
     (2, "error: failed to spawn\n  cause: Cannot allocate memory (os error 12)")],
)  # fmt: skip
def test_a_killed_or_starved_uv_is_no_answer(returncode: int, output: str) -> None:
    ended = CompletedProcess(("uv",), returncode, max(0, -returncode), False, 1.0, output)
    with pytest.raises(EnvdoctorError, match="has no result"):
        resolve._require_answer(ended)
    resolve._require_answer(CompletedProcess(("uv",), 1, 0, False, 1.0, "error: No solution found"))


def test_a_version_of_thousands_of_digits_is_no_number() -> None:
    assert dotted_numbers("570." + "9" * 5000 + ".6") == (570, 6)
    assert dotted_numbers("1.²") == (1,)


def test_a_notebook_with_a_number_in_its_source_is_read(tmp_path: Path) -> None:
    cells = [{"cell_type": "code", "source": ["!pip install torch==2.4.0\n", 7]}]
    (tmp_path / "x.ipynb").write_text(json.dumps({"cells": cells}))
    done = envdoctor("audit", "x.ipynb", home=tmp_path)
    assert "internal error" not in done.stderr
    assert "1 package" in done.stdout


def test_metadata_without_a_version_has_no_wheel_hash(tmp_path: Path) -> None:
    (tmp_path / "lib/python3.11/site-packages/etc.dist-info").mkdir(parents=True)
    assert find_wheel_hashes(tmp_path, {"HOME": str(tmp_path)}) == {}


def test_a_driver_version_of_thousands_of_digits_is_no_version(tmp_path: Path) -> None:
    done = envdoctor("check", "--machine", "h200", "--fact", f"driver.version={'9' * 5000}", home=tmp_path)
    assert "internal error" not in done.stderr
    assert done.returncode in (0, 1, 2)
