"""`envdoctor fix --write FILE`: variables in a shell file, and versions in a requirements file."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.cases import each_case
from support.command import envdoctor, envelope
from support.install_place import Place
from support.json_schema import validate
from test_fix import broken, new_place

from envdoctor.core.errors import BadInput
from envdoctor.core.remedies import Setting, SetVariable, UnsetVariable, parse_step
from envdoctor.install.fix_files import NOT_WRITTEN, Files, with_planned_files
from envdoctor.install.fix_records import FixResult
from envdoctor.install.fix_variables import after_settings, with_variables
from envdoctor.install.remedy_plan import FixedFinding
from envdoctor.install.requirement_pins import Pins, VersionChange
from envdoctor.install.shell_block import block_notes, with_block
from envdoctor.install.written_files import kind_of, resolve_files
from envdoctor.locking.uv import find_uv
from envdoctor.output.schema import schema_of

__all__ = ["broken"]  # a fixture

# A driver that would need no GPU of this machine, and a variable that selects the wrong build for it.
CPU_BACKEND = ("--machine", "h200", "--fact", 'environment={"UV_TORCH_BACKEND": "cpu"}')
REQUIREMENTS = "# tools\ngguf==1.0  # old\ndepyf[all] == 1.0 ; python_version > '3'\noptimum\n"


def written(place: Place, *words: str | Path, code: int = 0) -> dict[str, Any]:
    """The data of `envdoctor fix` for a machine with the wrong UV_TORCH_BACKEND."""
    done = envdoctor("fix", place.venv, *CPU_BACKEND, "--format", "json", *words, home=place.home, **place.settings)
    assert done.returncode == code, done.stdout + done.stderr
    schema = schema_of("fix")
    assert validate(envelope(done), schema, schema) == []
    data = envelope(done)["data"]
    assert isinstance(data, dict)
    return data


def backups(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if ".bak-" in path.name)


def test_variables_and_versions_are_written(broken: Place) -> None:
    """Both files change after the fix, with a backup; a symlink stays one, and permissions stay."""
    folder = broken.home / "work dir"
    folder.mkdir()
    profile, requirements = folder / "real_bashrc.sh", folder / "requirements.txt"
    profile.write_text("export UV_TORCH_BACKEND=cpu\nalias x=y")
    profile.chmod(0o600)
    link = broken.home / ".bashrc"
    link.symlink_to(profile)
    requirements.write_text(REQUIREMENTS)
    words = ("PKG001", "PKG007", "ENV013", "--write", link, "--write", requirements, "--write", profile)
    before = {path: path.read_bytes() for path in (profile, requirements)}

    planned = written(broken, *words, "--dry-run")
    assert [each["path"] for each in planned["files"]] == [str(profile), str(requirements)]
    assert planned["files"][1]["lines"] == ["- gguf==1.0  # old", "+ gguf==2.0  # old", "+ einops==1.0"]
    assert {path: path.read_bytes() for path in before} == before
    assert backups(folder) == []

    data = written(broken, *words, "--yes", "--", "sh", "-c", 'test -z "$UV_TORCH_BACKEND" && einops')
    assert {each["finding"]: each["state"] for each in data["findings"]} == {
        "PKG001": "fixed", "PKG007": "fixed", "ENV013": "written",
    }  # fmt: skip
    assert "ENV013" not in {each["id"] for each in data["remaining"]}
    assert [each["lines"] for each in data["files"]] == [each["lines"] for each in planned["files"]]
    assert requirements.read_text() == REQUIREMENTS.replace("gguf==1.0", "gguf==2.0") + "einops==1.0\n"
    python = new_place(broken).venv / "bin/python"
    options = ("--dry-run", "--no-index", "--find-links", broken.wheels, "--requirement", requirements)
    command = [find_uv(), "pip", "install", "--python", python, *options]
    assert "no changes" in subprocess.run(command, capture_output=True, text=True, check=True, cwd="/").stderr
    assert link.is_symlink()
    assert profile.stat().st_mode & 0o777 == 0o600
    shown = subprocess.run(
        ["bash", "-c", f". {link}; echo [$UV_TORCH_BACKEND]"], capture_output=True, text=True, check=True
    )
    assert shown.stdout == "[]\n"
    assert [Path(each["backup"]).read_bytes() for each in data["files"]] == list(before.values())
    assert backups(folder) == sorted(Path(each["backup"]).name for each in data["files"])
    assert Path(data["files"][0]["backup"]).stat().st_mode & 0o777 == 0o600

    again = written(new_place(broken), *words)
    assert [each["lines"] for each in again["files"]] == [[], []]
    assert len(backups(folder)) == 2


def test_nothing_is_written_if_the_fix_is_not_applied(broken: Place) -> None:
    profile = broken.home / ".profile"
    profile.write_text("")
    words = ("PKG001", "ENV013", "--write", profile, "--yes", "--", "false")
    data = written(broken, *words, code=1)
    assert (data["applied"], data["files"]) == (False, [])
    data = written(broken, "ENV013", *words[2:], code=1)
    assert data["failure"].endswith("it printed nothing")
    assert profile.read_text() == ""
    assert backups(broken.home) == []
    data = written(broken, "ENV013", *words[2:5])
    assert [each["state"] for each in data["findings"]] == ["written"]
    assert not data["applied"]
    assert "unset UV_TORCH_BACKEND" in profile.read_text().splitlines()


def test_files_that_cannot_be_changed_are_refused_first(broken: Place) -> None:
    folder = broken.home / "files"
    folder.mkdir()
    for name, text, message in (
        ("requirements.txt", "-r base.txt\n", "line 1: -r base.txt"),
        ("hashes.txt", "gguf==1.0 \\\n  --hash=sha256:00\n", "line 1: gguf==1.0"),
        ("url.txt", "\ngguf @ https://example.org/gguf-1.0-py3-none-any.whl\n", "line 2: gguf @"),
        ("pyproject.toml", "[project]\n", "lock file"),
        ("config.fish", "", "its shell has other commands"),
        ("notes.md", "", "do not show what it is"),
        ("data.txt", "\0", "no text file"),
        ("broken.sh", "# >>> envdoctor fix >>>\n", "line 1 begins a block"),
    ):
        path = folder / name
        path.write_text(text)
        words = (*CPU_BACKEND, "--format", "json", "--yes", "PKG001", "ENV013", "--write", path)
        done = envdoctor("fix", broken.venv, *words, home=broken.home, **broken.settings)
        assert done.returncode == 2, done.stdout
        assert message in envelope(done)["error"]["message"]
        assert path.read_text() == text
    assert not new_place(broken).venv.exists()
    inside = broken.venv / "x.sh"
    inside.write_text("")
    with pytest.raises(BadInput, match="in the environment"):
        resolve_files([str(inside)], broken.venv)
    for path, reason in (
        (folder, "no regular file"),
        (folder / "x.sh", "not exist"),
        (Path("/dev/null"), "no regular"),
    ):
        with pytest.raises(BadInput, match=reason):
            kind_of(path)


def test_the_hint_repeats_the_whole_command(broken: Place) -> None:
    profile = broken.home / ".profile"
    profile.write_text("")
    words = ["PKG001", "--write", str(profile), "--adopt", "--no-verify"]
    done = envdoctor("fix", broken.venv, "--machine", "cpu-2core", *words, "--format", "json", "--", "true",
                     home=broken.home, **broken.settings)  # fmt: skip
    options = f"--machine cpu-2core --write {profile} --adopt --no-verify --yes -- true"
    assert envelope(done)["error"]["hint"] == f"envdoctor fix {broken.venv} PKG001 {options}"


def settings(*lines: str) -> list[Setting]:
    steps = [parse_step(line) for line in lines]
    return [step for step in steps if isinstance(step, SetVariable | UnsetVariable)]


BLOCK = "# >>> envdoctor fix >>>\n# Written by `envdoctor fix --write`. Remove the block to undo it.\n"
END = "# <<< envdoctor fix <<<\n"


@each_case(
    ("text", "is_script", "lines", "expected"),
    [
        ("", False, ["export A=b"], f"{BLOCK}export A=b\n{END}"),
        ("x=1", False, ["unset A"], f"x=1\n{BLOCK}unset A\n{END}"),
        # The block keeps the lines of other variables, and its place.
        (f"x\n{BLOCK}export A=b\nunset B\n{END}y\n", False, ["unset A", "export C=d"],
         f"x\n{BLOCK}unset A\nunset B\nexport C=d\n{END}y\n"),
        (f"x\n{BLOCK}export A=b\n{END}", False, ["export A=b"], f"x\n{BLOCK}export A=b\n{END}"),
        (f"x\n{BLOCK}export A=b\n{END}", False, [], f"x\n{BLOCK}export A=b\n{END}"),
        # The options of a scheduler remain before the first command.
        ("#!/bin/bash\n#SBATCH -N 1\n\n#SBATCH -t 1\n# train\npython x.py\n", True, ["export A='b c'"],
         f"#!/bin/bash\n#SBATCH -N 1\n\n#SBATCH -t 1\n{BLOCK}export A='b c'\n{END}# train\npython x.py\n"),
    ],
)  # fmt: skip
def test_block(text: str, is_script: bool, lines: list[str], expected: str) -> None:
    found = with_block(text, settings(*lines), Path("x.sh"), is_script=is_script)
    assert found == expected
    assert with_block(found, settings(*lines), Path("x.sh"), is_script=is_script) == expected


def test_lines_that_limit_a_block_are_named() -> None:
    start = "case $- in\n    *i*) ;;\n      *) return;;\nesac\n"
    text = f"{start}{BLOCK}export A=b\n{END}export A=c\nunset B\n"
    found = block_notes(text, settings("export A=b"))
    assert [note.partition(":")[0] for note in found] == [
        "line 3 returns in a shell that is not interactive, as that of `ssh HOST COMMAND`",
        "line 9 changes A after the block",
    ]
    for first in ('[ -z "$PS1" ] && return\n', "[[ $- != *i* ]] && return\n", '[[ "$-" == *i* ]] || return\n'):
        assert len(block_notes(f"{first}{BLOCK}export A=b\n{END}", settings("export A=b"))) == 1
    assert block_notes("f() { return 1; }\n" + BLOCK + END, settings("export A=b")) == ()


def test_variables_of_a_new_shell() -> None:
    """As bash expands them."""
    lines = ["export A='b c'", "export P=/x${P:+:$P}", "export Q=/x${Q:+:$Q}", "unset B", "export D=$A"]
    before = {"P": "/p", "B": "1", "PATH": os.environ["PATH"]}
    script = "; ".join([*lines, "env"])
    done = subprocess.run(["bash", "-c", script], env=before, capture_output=True, text=True, check=True)
    shell = dict(line.partition("=")[::2] for line in done.stdout.splitlines())
    found = after_settings(before, settings(*lines))
    assert {name: shell.get(name) for name in ("A", "P", "Q", "B", "D")} == {
        name: found.get(name) for name in ("A", "P", "Q", "B", "D")
    }
    words = with_variables(["sh", "-c", "echo $A[$B]"], settings("export A='b c'", "unset B"))
    done = subprocess.run(words, env=os.environ | {"B": "1"}, capture_output=True, text=True, check=True)
    assert done.stdout == "b c[]\n"


def test_a_compiled_file_is_named() -> None:
    text = "# This file was autogenerated by uv via the following command:\n#    uv\na==1.0\n    # via x\n"
    changed, (note,) = pinned(text, ("a", "1.0", "2.0"))
    assert changed == text.replace("1.0", "2.0")
    assert note.startswith("the file is compiled from another one")


OLD_TORCH, NEW_TORCH = "2.9.0+cpu", "2.9.0+cu128"
INDEX = "--extra-index-url https://download.pytorch.org/whl/"


def pinned(text: str, *changes: tuple[str, str, str], named: tuple[str, ...] = ()) -> tuple[str, list[str]]:
    pins = Pins(Path("requirements.txt"), [VersionChange(*each) for each in changes], "3.12.3")
    return pins.update(text, named), pins.notes


@each_case(
    ("text", "expected"),
    [
        ("a==1.0\n", "a==2.0\n"),
        ("A === 1.0  # c\r\nb==1\r\n", "A ==2.0  # c\r\nb==1\r\n"),
        ("a[x, y]==1.0;python_version>'3.8' # c", "a[x, y]==2.0;python_version>'3.8' # c"),
        ("a == 1.0 --config-settings=x=y\n", "a ==2.0 --config-settings=x=y\n"),
        ("a>=0.5,<3\n", "a==2.0\n"),  # permits the previous version
        ("a>=0.5, <3 # c\n", "a==2.0 # c\n"),
        ("a (>=0.5)\n", "a ==2.0\n"),
        ("a\n", "a==2.0\n"),
        ("a # c\n", "a==2.0 # c\n"),
        ("a ; python_version > '3'\n", "a==2.0 ; python_version > '3'\n"),
        ("a<0.5\n", "a==2.0\n"),  # excludes both
        ("a>=2\n", "a>=2\n"),  # excludes the previous version
        ("a==1.0; python_version<'3.8'\n", "a==1.0; python_version<'3.8'\n"),
        ("a-b==1.0\n# a==1.0\n--pre\n", "a-b==1.0\n# a==1.0\n--pre\n"),
    ],
)  # fmt: skip
def test_pins(text: str, expected: str) -> None:
    assert pinned(text, ("a", "1.0", "2.0"))[0] == expected
    assert pinned(expected, ("a", "1.0", "2.0"))[0] == expected


def test_removed_and_added_packages() -> None:
    removed, added = ("pynvml", "12.0.0", ""), ("nvidia-ml-py", "", "13.1")
    assert pinned("x\npynvml\ny", removed, added, named=("nvidia-ml-py",))[0] == "x\ny\nnvidia-ml-py==13.1\n"
    text, notes = pinned("x\n", ("hub", "1", "2"))
    assert text == "x\n"
    assert notes == ["not in the file, and changed as requirements of other packages: hub 2"]


@each_case(
    ("text", "expected"),
    [
        (f"{INDEX}cpu\ntorch==2.9.0+cpu\n", f"{INDEX}cu128\ntorch==2.9.0+cu128\n"),
        (f"{INDEX}cpu\ntorch==2.9.0\n", f"{INDEX}cu128\ntorch==2.9.0\n"),
        ("torch==2.9.0+cpu\n", "torch==2.9.0+cu128\n"),
        ("torch==2.9.0\n", "torch==2.9.0\n"),
        ("torch\n", "torch==2.9.0\n"),
    ],
)
def test_builds_of_torch(text: str, expected: str) -> None:
    found, notes = pinned(text, ("torch", OLD_TORCH, NEW_TORCH), named=("torch",))
    assert found == expected
    assert notes == (
        [] if "index" in text else [f"torch {NEW_TORCH} is not on PyPI: install the file with --torch-backend=cu128"]
    )


@each_case(
    ("text", "change", "message"),
    [
        (f"{INDEX}cu126\ntorch\n", ("torch", OLD_TORCH, NEW_TORCH), "line 1: --extra-index-url"),
        (f"torch\n{INDEX}cpu\n", ("torch", OLD_TORCH, "2.9.0"), "line 2: --extra-index-url"),
        ("-c limits.txt\n", ("a", "1", "2"), "line 1: -c limits.txt"),
        ("b==1 --hash=sha256:00\n", ("a", "1", "2"), "line 1: b==1"),
        ("a==${VERSION}\n", ("a", "1", "2"), "line 1: a=="),
        ("a==1 \\\n  ; python_version>'3'\n", ("a", "1", "2"), "line 1: a==1"),
    ],
)
def test_lines_that_are_refused(text: str, change: tuple[str, str, str], message: str) -> None:
    with pytest.raises(BadInput, match=re.escape(message)):
        pinned(text, change)
    assert pinned(text)[0] == text


def test_variables_that_are_not_written_have_a_reason(tmp_path: Path) -> None:
    """The rules read the libraries of this process: they cannot tell what a variable changes in a new one."""
    entry = FixedFinding(
        finding="DRV011", cause="compat-library", status="error", problem="x", state="manual",
        manual=("export LD_LIBRARY_PATH=/x",),
    )  # fmt: skip
    plan = FixResult(venv="v", target="v", applied=False, findings=(entry,))
    profile = tmp_path / ".profile"
    profile.touch()
    (found,) = with_planned_files(plan, Files([profile], has_shell=True, curing={}, python_version="3.12")).findings
    assert (found.state, found.reason, found.manual) == ("manual", NOT_WRITTEN, entry.manual)
    curing = {"x": settings(*entry.manual)}
    (found,) = with_planned_files(
        plan, Files([profile], has_shell=True, curing=curing, python_version="3.12")
    ).findings
    assert (found.state, found.reason, found.variables, found.manual) == ("planned", "", entry.manual, ())
