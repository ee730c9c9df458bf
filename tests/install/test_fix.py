"""`envdoctor fix`: remedies applied to a copy of an environment, with real uv and generated wheels."""

from __future__ import annotations

import base64
import hashlib
import signal
import socket
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from support.command import COMMAND, envdoctor, envelope, environment
from support.environment_commands import file_tree
from support.install_place import FIRST, Place
from support.json_schema import validate
from support.local_packages import PYTHON, write_wheel

from envdoctor.environment.managed import EnvironmentPaths
from envdoctor.install.environment_copy import copy_environment, with_valid_shebang
from envdoctor.locking.uv import find_uv
from envdoctor.output.schema import schema_of

# depyf and optimum are packages whose violated requirements `check` reports.
BROKEN = {"depyf": "1.0", "gguf": "1.0", "optimum": "1.0"}
REPAIRED = BROKEN | {"gguf": "2.0", "einops": "1.0"}


def script_files(name: str, version: str) -> dict[str, bytes]:
    """A module whose console script prints the environment that it runs in."""
    return {
        f"{name}/__init__.py": f"import sys\ndef main(): print('{name} of', sys.prefix)\n".encode(),
        f"{name}-{version}.dist-info/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n".encode(),
    }


@pytest.fixture
def broken(place: Place) -> Place:
    """An environment of another tool with two faults: gguf is too old for depyf, and optimum's einops is missing."""
    write_wheel(place.wheels, "depyf", "1.0", requires=["gguf>=2"], files=script_files("depyf", "1.0"))
    write_wheel(place.wheels, "optimum", "1.0", requires=["einops"])
    write_wheel(place.wheels, "einops", "1.0", files=script_files("einops", "1.0"))
    for version in ("1.0", "2.0"):
        write_wheel(place.wheels, "gguf", version, files=script_files("gguf", version))
    place.venv.parent.mkdir(exist_ok=True)
    uv("venv", "--no-project", "--python", PYTHON, place.venv)
    plant(place)
    return place


def uv(*arguments: str | Path) -> None:
    subprocess.run([find_uv(), *arguments], check=True, capture_output=True, cwd="/")


def plant(place: Place, *names: str) -> None:
    """Install packages without their requirements."""
    names = names or tuple(f"{name}=={version}" for name, version in BROKEN.items())
    uv("pip", "install", "--python", place.venv / "bin/python", "--no-index", "--find-links", place.wheels,
       "--no-deps", *names)  # fmt: skip


def fix(place: Place, *arguments: str | Path, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run `envdoctor fix` for a machine without a GPU."""
    words = ["fix", place.venv, "--machine", "cpu-2core", "--format", "json", *arguments]
    return envdoctor(*words, home=place.home, **(place.settings | extra))


def fixed(place: Place, *arguments: str | Path, code: int = 0) -> dict[str, Any]:
    """The data of `envdoctor fix`, validated against its schema."""
    done = fix(place, *arguments)
    assert done.returncode == code, done.stdout + done.stderr
    found = envelope(done)
    schema = schema_of("fix")
    assert validate(found, schema, schema) == []
    data = found["data"]
    assert isinstance(data, dict)
    return data


def states(data: dict[str, Any]) -> dict[str, str]:
    return {each["finding"]: each["state"] for each in data["findings"]}


def new_place(place: Place) -> Place:
    """The place with the repaired copy as its environment."""

    class Copy(Place):
        @property
        def venv(self) -> Path:
            return self.home / "envs/mine-fixed"

    return Copy(place.home)


def assert_recorded(venv: Path) -> None:
    """Each file has the hash and the size of its row in RECORD, and no row names a file that does not exist."""
    (site,) = venv.glob("lib/python*/site-packages")
    rows = [(file, each.name) for each in metadata.distributions(path=[str(site)]) for file in each.files or ()]
    assert len(rows) > 10
    for file, name in rows:
        data = file.locate().read_bytes()  # type: ignore[no-untyped-call]
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        assert (file.hash is None or file.hash.value == digest, file.size in (None, len(data))) == (True, True), (
            name, file,
        )  # fmt: skip


def assert_unchanged(place: Place, before: dict[str, tuple[str, bytes]]) -> None:
    """The environment is as before, and nothing was left next to it."""
    assert file_tree(place.venv) == before
    assert [path.name for path in place.venv.parent.iterdir()] == ["mine"]


def test_the_repaired_copy_of_a_foreign_environment_is_a_new_one(broken: Place) -> None:
    compiled = [broken.venv / "bin/python", "-c", "import depyf; print(depyf.main.__code__.co_filename)"]
    subprocess.run(compiled, check=True, capture_output=True)
    assert_recorded(broken.venv)
    before = file_tree(broken.venv)
    data = fixed(broken, "--yes", "--", "einops")
    assert states(data) == {"PKG001": "fixed", "PKG007": "fixed"}
    assert data["changes"] == ["einops new -> 1.0", "gguf 1.0 -> 2.0"]
    assert data["command"]["last_line"].startswith("einops of ")  # of the copy, before it is moved
    assert (data["previous"], data["remaining"], data["failure"]) == ("", [], "")
    assert any("the probes were not run" in note for note in data["notes"])
    assert file_tree(broken.venv) == before

    repaired = new_place(broken)
    assert data["target"] == str(repaired.venv)
    assert repaired.packages() == REPAIRED
    for name in ("depyf", "einops"):  # one is from the original, the other was installed by the fix
        done = subprocess.run([repaired.venv / "bin" / name], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == f"{name} of {repaired.venv}"
    assert_recorded(repaired.venv)
    done = subprocess.run([repaired.venv / "bin/python", *compiled[1:]], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"{repaired.venv}/lib/")
    shown = subprocess.run(
        ["bash", "-c", f". {repaired.venv}/bin/activate; command -v python; einops"], capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert shown.stdout.splitlines() == [f"{repaired.venv}/bin/python", f"einops of {repaired.venv}"]
    inodes = {path.stat().st_ino for path in broken.venv.rglob("*") if path.is_file() and not path.is_symlink()}
    copied = {path.stat().st_ino for path in repaired.venv.rglob("*") if path.is_file() and not path.is_symlink()}
    assert not inodes & copied
    assert states(fixed(repaired)) == {}
    assert "exists already" in envelope(fix(broken, "--yes"))["error"]["message"]


def test_a_managed_environment_is_replaced_and_rolled_back(broken: Place) -> None:
    uv("venv", "--clear", "--no-project", "--python", PYTHON, broken.venv)
    broken.venv.rename(broken.venv.with_name("unused"))
    broken.copy_installed()
    plant(broken)
    before = file_tree(broken.venv)
    data = fixed(broken, "--yes", "PKG001")
    assert states(data) == {"PKG001": "fixed"}
    assert [each["id"] for each in data["remaining"]] == ["PKG007"]
    assert broken.packages() == FIRST | BROKEN | {"gguf": "2.0"}
    assert file_tree(EnvironmentPaths(broken.venv).previous) == before
    assert envdoctor("rollback", "--venv", broken.venv, home=broken.home).returncode == 0
    assert file_tree(broken.venv) == before


def test_a_foreign_environment_is_replaced_with_adopt(broken: Place) -> None:
    before = file_tree(broken.venv)
    data = fixed(broken, "--yes", "--adopt")
    assert data["target"] == str(broken.venv)
    assert broken.packages() == REPAIRED
    done = subprocess.run([broken.venv / "bin/einops"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"einops of {broken.venv}"
    assert envdoctor("rollback", "--venv", broken.venv, home=broken.home).returncode == 0
    assert file_tree(broken.venv) == before


def test_a_dry_run_and_a_pipe_without_yes_change_nothing(broken: Place) -> None:
    before = file_tree(broken.venv)
    data = fixed(broken, "--dry-run")
    assert states(data) == {"PKG001": "planned", "PKG007": "planned"}
    assert data["changes"] == ["einops new -> 1.0", "gguf 1.0 -> 2.0"]
    assert len(data["commands"]) == 1
    assert_unchanged(broken, before)
    done = fix(broken)
    assert done.returncode == 2
    assert envelope(done)["error"]["hint"].endswith(f"envdoctor fix {broken.venv} --machine cpu-2core --yes")
    assert_unchanged(broken, before)


def test_an_unreachable_source_is_no_fault_of_the_remedies(broken: Place) -> None:
    before = file_tree(broken.venv)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # and does not listen
        index = {"PIP_NO_INDEX": "0", "PIP_INDEX_URL": f"http://127.0.0.1:{unused.getsockname()[1]}/simple"}
        planned = fix(broken, "--dry-run", "--format", "human", **index)
        refused = fix(broken, "--yes", "--format", "human", **index)
    assert planned.returncode == 1
    assert "the changes of the other packages are not known: http://127.0.0.1" in planned.stdout
    assert refused.returncode == 3
    assert refused.stderr.startswith("error: nothing was changed: http://127.0.0.1")
    assert "name a mirror" in refused.stderr
    assert_unchanged(broken, before)


def test_remedies_that_fail_are_named_and_change_nothing(broken: Place) -> None:
    """gguf 2.0 is missing: uv cannot resolve all remedies together. The other one would work."""
    (broken.wheels / "gguf-2.0-py3-none-any.whl").unlink()
    before = file_tree(broken.venv)
    data = fixed(broken, "--yes", code=1)
    reasons = {each["finding"]: each["reason"] for each in data["findings"]}
    assert "gguf" in reasons["PKG001"]
    assert reasons["PKG007"] == "it works without the others that failed"
    assert (data["applied"], data["possible"]) == (False, ["PKG007"])
    assert_unchanged(broken, before)


def test_a_copy_with_a_new_problem_is_not_used(broken: Place) -> None:
    """einops 1.1 requires another version of lark than llguidance does. uv chooses einops 1.0 as long as it can."""
    write_wheel(broken.wheels, "einops", "1.1", requires=["lark==2"])
    write_wheel(broken.wheels, "llguidance", "1.0", requires=["lark==1"])
    write_wheel(broken.wheels, "lark", "1")
    write_wheel(broken.wheels, "lark", "2")
    plant(broken, "llguidance==1.0", "lark==1")
    before = file_tree(broken.venv)
    assert "einops new -> 1.0" in fixed(broken, "--dry-run")["changes"]
    (broken.wheels / "einops-1.0-py3-none-any.whl").unlink()
    data = fixed(broken, "--yes", code=1)
    problem = "PKG001 llguidance 1.0 requires lark==1, but 2 is installed"
    assert data["failure"] == f"the copy still has problems: {problem}"
    assert data["possible"] == ["PKG001"]
    assert_unchanged(broken, before)


def test_remedies_that_exclude_each_other_are_not_all_needed(broken: Place) -> None:
    """The requirement of the package at fault looks violated as well: its remedy contradicts the one that helps."""
    write_wheel(broken.wheels, "llguidance", "1.0", requires=["depyf<1"])
    write_wheel(broken.wheels, "depyf", "0.9", requires=["gguf<1.5"], files=script_files("depyf", "0.9"))
    plant(broken, "llguidance==1.0", "einops==1.0")
    data = fixed(broken, "--yes")
    assert set(states(data).values()) == {"fixed"}
    assert len(data["findings"]) == 2
    assert [each["reason"] for each in data["findings"] if not each["commands"]] == ["gone with the other remedies"]
    assert new_place(broken).packages()["depyf"] == "0.9"


def test_a_failing_command_changes_nothing(broken: Place) -> None:
    before = file_tree(broken.venv)
    code = "import einops, sys; sys.exit('no luck')"
    data = fixed(broken, "--yes", "PKG007", "--", "python", "-c", code, code=1)
    assert data["command"]["exit_code"] == 1
    assert data["failure"].endswith("ended with exit code 1: no luck")
    assert_unchanged(broken, before)
    done = fix(broken, "--yes", "--", "no-such-program")
    assert done.returncode == 3
    assert_unchanged(broken, before)


@pytest.mark.parametrize("adopt", [False, True])
def test_a_killed_fix_changes_nothing_and_the_next_one_succeeds(broken: Place, *, adopt: bool) -> None:
    before = file_tree(broken.venv)
    mark = broken.home / "started"
    words = ["fix", broken.venv, "--machine", "cpu-2core", "--yes", *(["--adopt"] if adopt else [])]
    process = subprocess.Popen(
        [*COMMAND, *words, "--", "sh", "-c", f"touch {mark}; exec sleep 3"], cwd=broken.home,
        env=environment(broken.home, **broken.settings), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    while not mark.exists():
        assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert file_tree(broken.venv) == before
    assert not new_place(broken).venv.exists()
    data = fixed(broken, "--yes", *(["--adopt"] if adopt else []))
    assert data["applied"]
    repaired = broken if adopt else new_place(broken)
    assert repaired.packages() == REPAIRED
    assert not EnvironmentPaths(repaired.venv).building.exists()


def test_nothing_to_fix(broken: Place) -> None:
    plant(broken, "gguf==2.0", "einops==1.0")
    data = fixed(broken)
    assert (data["findings"], data["applied"]) == ([], False)
    assert fixed(broken, "PKG001")["findings"] == []


def test_a_remedy_for_the_user_is_only_printed(broken: Place) -> None:
    """A problem of the driver needs root."""
    plant(broken, "gguf==2.0", "einops==1.0")
    done = envdoctor(
        "fix", broken.venv, "--machine", "h200", "--fact", "driver.version=470.10", "--format", "json", "--yes",
        home=broken.home, **broken.settings,
    )  # fmt: skip
    found = envelope(done)["data"]
    assert found["findings"], done.stdout
    assert {each["state"] for each in found["findings"]} == {"manual"}
    assert not found["applied"]


def test_arguments(broken: Place) -> None:
    for words, message in (
        (["PKG999"], "unknown rule 'PKG999'"),
        ([broken.home], "several environments"),
        (["TRL999"], "did you mean 'TRL00"),
    ):
        done = fix(broken, *words)
        assert done.returncode == 2
        error = envelope(done)["error"]
        assert message in error["message"]
        assert len(error["expected"]) < 120


def test_a_package_in_the_environment_that_is_editable_moves_with_it(tmp_path: Path) -> None:
    """The finder of setuptools names the directory of the package, and a compiled finder must not be used again."""
    old, new = tmp_path / "old env", tmp_path / "new env"
    site = old / "lib/python3.12/site-packages"
    (old / "src/mine").mkdir(parents=True)
    (site / "mine-1.0.dist-info").mkdir(parents=True)
    (site / "__pycache__").mkdir()
    finder, direct = site / "__editable___mine_1_0_finder.py", site / "mine-1.0.dist-info/direct_url.json"
    finder.write_text(f"MAPPING = {{'mine': '{old}/src/mine'}}\n")
    direct.write_text(f'{{"url": "{(old / "src").as_uri()}"}}')
    (site / "__pycache__/__editable___mine_1_0_finder.cpython-312.pyc").write_text("old")
    (site / "mine-1.0.dist-info/RECORD").write_text(f"{finder.name},sha256=a,1\nmine,,\n")
    copy_environment(old, new)
    moved = new / finder.relative_to(old)
    assert moved.read_text() == f"MAPPING = {{'mine': '{new}/src/mine'}}\n"
    assert f'"{(new / "src").as_uri()}"' in (new / direct.relative_to(old)).read_text()
    assert list((moved.parent / "__pycache__").iterdir()) == []
    rows = (moved.parent / "mine-1.0.dist-info/RECORD").read_text().splitlines()
    assert rows[0].endswith(f",{moved.stat().st_size}")
    assert rows[1] == "mine,,"
    assert finder.read_text() == f"MAPPING = {{'mine': '{old}/src/mine'}}\n"


def test_a_long_shebang_is_a_shell_script(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 150)
    folder.mkdir()
    python = folder / "bin/python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    script = tmp_path / "script"
    script.write_bytes(with_valid_shebang(f"#!{python}\nprint('hello')\n".encode()))
    script.chmod(0o755)
    assert subprocess.run([script], capture_output=True, text=True, check=True).stdout == "hello\n"
    short = b"#!/usr/bin/python3\nprint()\n"
    assert with_valid_shebang(short) == short
