"""Missing system packages: the install command, and installation with --system."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from support.command import envelope
from support.install_place import Place
from support.local_packages import write_profile

from envdoctor.core.errors import EnvdoctorError, Refused
from envdoctor.environment.managed import EnvironmentPaths
from envdoctor.install.journal import read_journal
from envdoctor.install.system_packages import (
    describe_needs,
    install_command,
    install_needs,
    missing_needs,
    package_manager,
)
from envdoctor.knowledge.system_packages import system_packages


def program(folder: Path, name: str, body: str = "exit 0") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def test_a_compiler_on_the_path_is_enough(tmp_path: Path) -> None:
    environ = {"PATH": str(tmp_path)}
    (missing,) = missing_needs(["c-compiler"], "3.12", None, "apt", environ)
    assert missing.packages == ("gcc", "libc6-dev")
    program(tmp_path, "clang")
    assert list(missing_needs(["c-compiler"], "3.12", None, "apt", environ)) == []


def test_headers_are_found_below_the_prefix_of_the_interpreter(tmp_path: Path) -> None:
    interpreter = program(tmp_path / "bin", "python3.12")
    (missing,) = missing_needs(["python-headers"], "3.12", interpreter, "dnf")
    assert missing.packages == ("python3.12-devel",)
    header = tmp_path / "include/python3.12/Python.h"
    header.parent.mkdir(parents=True)
    header.touch()
    assert list(missing_needs(["python-headers"], "3.12", interpreter, "dnf")) == []
    assert list(missing_needs(["python-headers"], "3.12", None, "dnf")) == []  # uv's own Pythons bring theirs


def test_headers_of_this_python_are_found() -> None:
    """Compared with sysconfig of the interpreter that runs the tests."""
    import sysconfig

    version = "{}.{}".format(*sys.version_info)
    there = Path(sysconfig.get_path("include"), "Python.h").exists()
    found = not list(missing_needs(["python-headers"], version, Path(sys.executable).resolve(), "apt"))
    assert found == there


@pytest.mark.parametrize("name", sorted(system_packages()))
def test_every_need_names_its_packages(name: str) -> None:
    need = system_packages()[name]
    assert need.why
    assert need.source
    assert any(need.packages(manager, "3.12") for manager in ("apt", "dnf", "apk", "conda"))


def test_the_installed_package_manager_is_used(tmp_path: Path) -> None:
    assert package_manager({"PATH": str(tmp_path)}) == ""
    program(tmp_path, "dnf")
    assert package_manager({"PATH": str(tmp_path)}) == "dnf"


def test_without_a_package_manager_there_is_no_command(tmp_path: Path) -> None:
    needs = list(missing_needs(["c-compiler"], "3.12", None, "", {"PATH": str(tmp_path)}))
    assert install_command(needs, "") == ()
    assert "no package is known" in describe_needs(needs, "")
    with pytest.raises(Refused, match="c-compiler is missing"):
        install_needs(needs, "", tmp_path / "log")


def test_only_root_installs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needs = list(missing_needs(["c-compiler"], "3.12", None, "apt", {"PATH": str(tmp_path)}))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Refused, match="--system as user 1000") as caught:
        install_needs(needs, "apt", tmp_path / "log")
    assert caught.value.hint.startswith("sudo apt-get install -y --no-install-recommends gcc libc6-dev")


def test_root_runs_the_package_manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = tmp_path / "calls"
    program(tmp_path / "bin", "apt-get", f'echo "$@" >> {calls}; [ "$1" = update ] || exit ${{FAILS:-0}}')
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    needs = list(missing_needs(["c-compiler"], "3.12", None, "apt", {"PATH": "/nowhere"}))
    install_needs(needs, "apt", tmp_path / "log")
    assert calls.read_text().splitlines() == ["update", "install -y --no-install-recommends gcc libc6-dev"]
    monkeypatch.setenv("FAILS", "100")
    with pytest.raises(EnvdoctorError, match=r"apt-get install .* ended with exit code 100") as caught:
        install_needs(needs, "apt", tmp_path / "log")
    assert str(tmp_path / "log") in caught.value.hint


def test_install_reports_missing_packages_and_installs_them_with_system(place: Place) -> None:
    write_profile(place.profile, "alpha", "torch==9.9.0+cpu")
    place.profile.write_text(place.profile.read_text().replace('id = "mine"', 'id = "mine"\nsystem = ["c-compiler"]'))
    calls = place.home / "calls"
    tools = place.home / "tools"
    program(tools, "apt-get", f'echo "$@" >> {calls}')
    for name in ("sh", "env"):
        (tools / name).symlink_to(f"/bin/{name}" if Path(f"/bin/{name}").exists() else f"/usr/bin/{name}")
    uv = Path(sys.executable).parent
    path = {"PATH": f"{tools}:{uv}"} if not (uv / "gcc").exists() else {}
    done = place.install(**path)
    assert done.returncode == 0, done.stderr
    notes = envelope(done)["data"]["survey"]["notes"]
    assert any("c-compiler is missing" in line and "apt-get install" in line for line in notes), notes
    assert not calls.exists()
    if os.geteuid() != 0:
        return
    empty = place.install("--venv", str(place.home / "envs/other"), "--system", **path)
    assert empty.returncode == 3
    assert "after apt-get install" in envelope(empty)["error"]["message"]
    assert "c-compiler is missing" in envelope(empty)["error"]["message"]
    program(tools, "apt-get", f'echo "$@" >> {calls}; printf "#!/bin/sh\\n" > {tools}/gcc; /bin/chmod +x {tools}/gcc')
    done = place.install("--venv", str(place.home / "envs/other"), "--system", **path)
    assert done.returncode == 0, done.stdout
    assert envelope(done)["data"]["survey"]["notes"] == ["installed on the system: c-compiler"]
    assert "install -y --no-install-recommends gcc libc6-dev" in calls.read_text()
    steps = [entry.step for entry in read_journal(EnvironmentPaths(place.home / "envs/other").journal).entries]
    assert steps.count("system") == 4, "start and end, of the one that failed and of this one"
