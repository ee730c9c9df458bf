"""`envdoctor fix` as users call it: names, environments and commands that are not what they expect."""

from __future__ import annotations

import shlex
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from support.command import envelope
from support.install_place import Place
from support.local_packages import PYTHON
from test_fix import broken, fix, fixed, new_place, states, uv

from envdoctor.commands.fix import _exit_code
from envdoctor.core.records import ProbeResult
from envdoctor.install.environment_copy import copy_environment
from envdoctor.install.fix import _copy_error
from envdoctor.install.fix_records import FixResult
from envdoctor.install.fix_trial import notes_on_failures, run_command
from envdoctor.install.remedy_plan import FixedFinding
from envdoctor.install.running_processes import processes_in
from envdoctor.locking.uv import find_uv
from envdoctor.output.fix import render_fix
from envdoctor.output.text import Text

__all__ = ["broken"]  # a fixture


def refused(place: Place, *arguments: str | Path, code: int = 2) -> str:
    """The text of the error."""
    done = fix(place, *arguments)
    assert done.returncode == code, done.stdout
    error = envelope(done)["error"]
    assert not new_place(place).venv.exists()
    return f"{error['message']}\n{error['expected']}\n{error['hint']}"


def test_rule_ids_that_are_not_reported(broken: Place) -> None:
    """They are named, together with the problems that are: no other id is an all-clear."""
    data = fixed(broken, "trl002")
    assert data["findings"] == []
    assert data["notes"] == [f"TRL002: not reported for {broken.venv}"]
    assert {each["id"] for each in data["remaining"]} == {"PKG001", "PKG007"}
    data = fixed(broken, "pkg001", "TRL002", "--dry-run")
    assert states(data) == {"PKG001": "planned"}
    assert [each["id"] for each in data["remaining"]] == ["PKG007"]


def test_names_and_commands_that_are_refused(broken: Place) -> None:
    link = broken.home / "link"
    link.symlink_to(broken.venv)
    adopted = envelope(fix(Link(broken.home), "--yes", "--adopt"))["error"]
    assert adopted["hint"] == f"envdoctor fix {broken.venv} --adopt"
    text = refused(broken, "PKG01", "--yes")
    assert "several environments" in text
    text = refused(broken, "PKG999", "--yes")
    assert len(text) < 200
    text = refused(broken, "--yes", "--", "depyf && einops")
    assert text.endswith("-- sh -c 'depyf && einops'")


class Link(Place):
    """The place with a symlink as its environment."""

    @property
    def venv(self) -> Path:
        return self.home / "link"


def test_the_commands_of_the_result_name_the_repaired_environment(broken: Place) -> None:
    data = fixed(broken, "--yes", "PKG007")
    (command,) = data["findings"][0]["commands"]
    assert f" --python {new_place(broken).venv}/bin/python " in command


@contextmanager
def sleeping(*command: str | Path, **options: object) -> Iterator[int]:
    process = subprocess.Popen([*command, "-c", "print(1, flush=True); import time; time.sleep(60)"],
                               stdout=subprocess.PIPE, **options)  # type: ignore[call-overload]  # fmt: skip
    try:
        process.stdout.readline()
        yield process.pid
    finally:
        process.kill()
        process.communicate()


def test_processes_that_use_the_environment_are_named(broken: Place) -> None:
    python = Path("bin/python")
    path = {"PATH": f"{broken.venv}/bin"}
    with sleeping(broken.venv / python) as absolute, sleeping(python, cwd=broken.venv) as relative:
        with sleeping(shutil.which("env") or "env", "python", env=path) as by_name:
            found = [int(each.split()[0]) for each in processes_in(broken.venv)]
        notes = fixed(broken, "--dry-run", "--adopt")["notes"]
    assert sorted(found) == sorted((absolute, relative, by_name))
    assert {int(note.split()[1]) for note in notes} == {absolute, relative}
    assert fixed(broken, "--dry-run")["notes"] == []


def test_the_command_is_never_run_in_the_original(broken: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path in the original environment is one in the copy, and `uv run` uses the copy without the lock."""
    project = broken.home / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text('[project]\nname = "p"\nversion = "1"\nrequires-python = ">=3.11"\n')
    monkeypatch.chdir(project)
    code = "import sys, os; print(sys.prefix, os.environ.get('PYTHONPATH'))"
    copy, log = broken.home / "envs/copy", broken.home / "log"
    uv("venv", "--no-project", "--python", PYTHON, copy)
    monkeypatch.setenv("PYTHONPATH", "/of/the/user")
    for words in (
        ["../envs/mine/bin/python"], [str(broken.venv / "bin/python")], [find_uv(), "run", "python"],
        ["env", "-u", "X", "../envs/mine/bin/python"],
    ):  # fmt: skip
        done = run_command([*words, "-c", code], copy, log, broken.venv)
        assert done.last_line == f"{copy} /of/the/user", log.read_text()
        assert done.command.startswith(words[0])
    assert not (project / ".venv").exists()


def test_the_command_for_a_project_changes_its_versions(broken: Place) -> None:
    """The lock of a project would undo the fix."""
    project = broken.venv.parent
    (project / "pyproject.toml").write_text(
        f'[project]\nname = "p"\nversion = "1"\nrequires-python = "=={PYTHON}.*"\n'
        f'dependencies = ["gguf==1.0"]\n[tool.uv]\nno-index = true\nfind-links = ["{broken.wheels}"]\n'
    )
    uv("lock", "--project", project, "--offline")
    (note,) = fixed(broken, "--dry-run")["notes"]
    start, _, command = note.partition("; to change them: ")
    assert start == f"{project}/uv.lock stays as it is: its tool installs the previous versions again"
    words = shlex.split(command)
    assert words[:2] == ["uv", "add"]
    uv(*words[1:], "--offline")
    subprocess.run([project / ".venv/bin/python", "-c", "import einops, gguf; assert gguf.__name__"], check=True)
    found = sorted(path.name for path in project.glob(".venv/lib/python*/site-packages/*.dist-info"))
    assert found == ["einops-1.0.dist-info", "gguf-2.0.dist-info"]


def test_an_environment_without_its_python_is_refused(broken: Place) -> None:
    python, packages = broken.venv / "bin/python", broken.venv / f"lib/python{PYTHON}"
    packages.rename(packages.with_name("python3.99"))
    assert f"{python} is Python {PYTHON}, and the packages are in lib/python3.99" in refused(broken, "--yes", code=1)
    python.unlink()
    assert f"there is no {python}" in refused(broken, "--dry-run", code=1)
    python.symlink_to("/removed/python3")
    assert "a link to /removed/python3" in refused(broken, "--yes", code=1)


def test_a_plan_is_printed_although_the_target_exists(broken: Place) -> None:
    new_place(broken).venv.mkdir()
    data = fixed(broken, "--dry-run")
    assert states(data) == {"PKG001": "planned", "PKG007": "planned"}
    assert data["notes"] == [f"{new_place(broken).venv} exists already: remove it first, or use --adopt"]


def test_the_copy_of_a_read_only_environment_can_be_changed(tmp_path: Path) -> None:
    source = tmp_path / "source/lib"
    source.mkdir(parents=True)
    (source / "x").touch()
    source.chmod(0o555)
    copy_environment(source.parent, tmp_path / "copy")
    assert stat.S_IMODE((tmp_path / "copy/lib").stat().st_mode) == 0o755
    assert stat.S_IMODE(source.stat().st_mode) == 0o555


def test_a_file_that_cannot_be_copied_is_named() -> None:
    errors = [("/a/b", "/c/b", "[Errno 13] Permission denied: '/a/b'"), ("/a/c", "/c/c", "x")]
    assert _copy_error(shutil.Error(errors)) == "/a/b: Permission denied, and 1 more"
    assert _copy_error(OSError(13, "Permission denied")) == ""


def title_of(result: FixResult) -> str:
    """The first line of the human output."""
    first = render_fix(result)[0]
    assert isinstance(first, Text)
    return first.plain


def test_a_probe_that_still_fails_is_named() -> None:
    """In a note and in the first line, which has no check mark then; the exit code is 1."""
    results = (
        ProbeResult("torch_matmul", "passed", "right", 1.0),
        ProbeResult("cuda_matmul", "unavailable", "no GPU", 1.0),
        ProbeResult("trl_grpo", "error", "No module named 'weave'", 1.0),
    )
    (note,) = notes_on_failures(results)
    assert note.startswith(
        "trl_grpo did not pass in the original environment and does not pass now: error, No module"
    )
    finding = FixedFinding(finding="HF001", cause="c", status="error", problem="p", state="fixed")
    result = FixResult(venv="/v", target="/v", applied=True, findings=(finding,), probes=results, notes=(note,))
    title = title_of(result)
    assert title == "! /v  1 problem fixed in 0.0 s, but a probe does not pass: trl_grpo"
    assert _exit_code(result) == 1
    sound = msgspec.structs.replace(result, probes=results[:2])
    assert title_of(sound) == "✓ /v  1 problem fixed in 0.0 s"
    assert _exit_code(sound) == 0
