"""`install --adopt` over an environment that envdoctor did not create, and its restoration."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.command import envelope
from support.environment_commands import command_data, command_error, file_tree, run
from support.install_place import FIRST, SECOND, Place, offer_newer_version
from support.local_packages import write_wheel

from envdoctor.environment.managed import EnvironmentPaths, is_foreign
from envdoctor.locking.uv import find_uv


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment of `python -m venv` with a package that has a console script."""
    home = tmp_path_factory.mktemp("foreign")
    wheel = write_wheel(home / "own", "gamma", "3.1", files={
        "gamma/__init__.py": b"import sys\ndef main(): print('gamma of', sys.prefix)\n",
        "gamma-3.1.dist-info/entry_points.txt": b"[console_scripts]\ngamma = gamma:main\n",
    })  # fmt: skip
    venv = home / "mine"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    pip = [find_uv(), "pip", "install", "--python", venv / "bin/python", "--no-index", "--no-cache", wheel]
    subprocess.run(pip, check=True, capture_output=True)
    return venv


@pytest.fixture
def foreign(original: Path, place: Place) -> Place:
    """A home with a copy of the foreign environment, with adapted paths in its scripts."""
    place.venv.parent.mkdir()
    shutil.copytree(original, place.venv, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for path in place.venv.rglob("*"):
        if path.is_file() and not path.is_symlink() and bytes(original) in (data := path.read_bytes()):
            path.write_bytes(data.replace(bytes(original), bytes(place.venv)))
    assert run_gamma(place) == f"gamma of {place.venv}"
    return place


def run_gamma(place: Place) -> str:
    """The output of the console script of the foreign environment."""
    return subprocess.run([place.venv / "bin/gamma"], capture_output=True, text=True, check=True).stdout.strip()


def test_foreign_environment_is_retained_with_adopt_and_an_error_without(foreign: Place) -> None:
    before = file_tree(foreign.venv)
    done = foreign.install()
    assert done.returncode == 2
    error = envelope(done)["error"]
    assert "is a virtual environment that envdoctor did not create" in error["message"]
    assert f"envdoctor install --venv {foreign.venv} --adopt" in error["hint"]
    assert file_tree(foreign.venv) == before
    assert not EnvironmentPaths(foreign.venv).folder.exists()

    done = foreign.install("--adopt")
    assert done.returncode == 0, done.stdout
    paths = EnvironmentPaths(foreign.venv)
    assert envelope(done)["data"]["previous"] == str(paths.previous)
    assert foreign.packages() == FIRST
    assert "gamma==3.1" in paths.adopted_packages.read_text().splitlines()
    assert not paths.adoption_marker.exists()
    assert file_tree(paths.previous) == before

    command_data(foreign, "rollback")
    assert file_tree(foreign.venv) == before
    assert run_gamma(foreign) == f"gamma of {foreign.venv}"
    states = {row["path"]: (row["state"], row["profile"]) for row in command_data(foreign, "envs")["environments"]}
    assert states == {str(foreign.venv): ("current", ""), str(paths.previous): ("previous", "mine")}
    assert foreign.install().returncode == 2  # the current environment is foreign again
    command_data(foreign, "rollback")
    assert foreign.packages() == FIRST


def test_a_foreign_environment_is_replaced_from_a_directory_of_wheels(foreign: Place) -> None:
    """The same consent is needed without a network."""
    run(foreign, "lock", foreign.profile, **foreign.settings)
    house = foreign.home / "house"
    done = run(foreign, "fetch", foreign.profile, "--dest", house, **foreign.settings)
    assert done.returncode == 0, done.stderr
    assert "--adopt" in envelope(foreign.install("--from", str(house)))["error"]["hint"]
    done = foreign.install("--from", str(house), "--adopt")
    assert done.returncode == 0, done.stdout
    assert foreign.packages() == FIRST
    again = envelope(foreign.install())["data"]
    assert again["unchanged"], "the lock next to the profile is installed"
    assert (
        again["installed"]["request"]
        == envelope(foreign.install("--from", str(house)))["data"]["installed"]["request"]
    )


def test_clean_and_uninstall_keep_the_adopted_environment_without_the_option(foreign: Place) -> None:
    foreign.install("--adopt")
    paths = EnvironmentPaths(foreign.venv)
    before = file_tree(paths.folder / "previous")
    data = command_data(foreign, "clean")
    assert data["paths"] == []
    assert "envdoctor rollback" in data["kept"][0]
    error = command_error(foreign, "uninstall", "--venv", foreign.venv)
    assert f"envdoctor clean --venv {foreign.venv} --adopted" in error["hint"]
    everything = command_data(foreign, "uninstall", "--all")
    assert [line.partition(":")[0] for line in everything["kept"]] == [str(paths.previous)]
    assert str(foreign.venv) not in everything["paths"]
    assert file_tree(paths.previous) == before
    assert foreign.packages() == FIRST
    assert command_data(foreign, "clean", "--venv", foreign.venv, "--adopted", "--dry-run")["paths"] == [
        str(paths.previous)
    ]
    assert file_tree(paths.previous) == before
    assert command_data(foreign, "clean", "--venv", foreign.venv, "--adopted")["paths"] == [str(paths.previous)]
    assert run(foreign, "uninstall", "--venv", foreign.venv).returncode == 0
    assert list(foreign.venv.parent.iterdir()) == []


def test_later_installs_keep_the_adopted_environment(foreign: Place) -> None:
    before = file_tree(foreign.venv)
    foreign.install("--adopt")
    offer_newer_version(foreign)
    assert foreign.install().returncode == 0
    assert foreign.packages() == SECOND
    paths = EnvironmentPaths(foreign.venv)
    assert file_tree(paths.folder / "kept-1") == before
    command_data(foreign, "rollback")
    assert foreign.packages() == FIRST
    (kept,) = command_data(foreign, "clean")["kept"]
    assert f"mv {paths.folder / 'kept-1'} {foreign.venv}" in kept
    assert command_error(foreign, "uninstall", "--venv", foreign.venv)
    assert file_tree(paths.folder / "kept-1") == before
    command_data(foreign, "clean", "--adopted")
    assert foreign.remaining_files() == ["+adopted.txt", "mine"]


def test_other_folders_are_not_adopted(place: Place) -> None:
    place.venv.mkdir(parents=True)
    (place.venv / "thesis.txt").write_text("mine")
    before = file_tree(place.venv.parent)
    done = place.install("--adopt")
    assert done.returncode == 2
    assert "is a directory that envdoctor did not create" in envelope(done)["error"]["message"]
    assert file_tree(place.venv.parent) == before


KILLS = {
    "before the swap": "s.swap_in = lambda *a: os.kill(os.getpid(), 9)",
    "after the swap": "s.retain_previous = lambda *a: os.kill(os.getpid(), 9)",
    "between the renames": (
        "s.exchange = lambda *a: False\nrename = pathlib.Path.rename\n"
        "def kill(self, to): rename(self, to); str(to).endswith('outgoing') and os.kill(os.getpid(), 9)\n"
        "pathlib.Path.rename = kill"
    ),
}


def kill_install(place: Place, code: str, *options: str) -> None:
    """Run an install that is killed by `code`."""
    imports = "import os, pathlib, envdoctor.install.install as i, envdoctor.install.swap as s"
    assert place.install_after(f"{imports}\n{code}", *options) == -signal.SIGKILL


@pytest.mark.parametrize(
    "when",
    [
        "between the renames",
        pytest.param("before the swap", marks=pytest.mark.long),  # also tested in test_install_killed.py
        pytest.param("after the swap", marks=pytest.mark.long),
    ],
)
def test_adoption_continues_after_a_kill(when: str, foreign: Place) -> None:
    before = file_tree(foreign.venv)
    kill_install(foreign, KILLS[when], "--adopt")
    if when != "after the swap":  # each install needs the option
        assert foreign.install().returncode == 2
        assert file_tree(foreign.venv) == before
    done = foreign.install("--adopt")
    assert done.returncode == 0, done.stdout
    assert foreign.packages() == FIRST
    paths = EnvironmentPaths(foreign.venv)
    assert is_foreign(paths.previous)
    assert file_tree(paths.previous) == before
    command_data(foreign, "rollback")
    assert run_gamma(foreign) == f"gamma of {foreign.venv}"


def test_finished_build_of_a_killed_install_is_not_used_for_another_lock(place: Place) -> None:
    place.copy_installed()
    write_wheel(place.wheels, "beta", "2.0")
    kill_install(place, KILLS["before the swap"], "--upgrade")
    write_wheel(place.wheels, "beta", "3.0")
    done = place.install("--upgrade")
    assert done.returncode == 0, done.stdout
    assert place.packages() == FIRST | {"beta": "3.0"}


def test_rollback_between_two_killed_installs(place: Place) -> None:
    """Of three environments, the one that was current at the killed swap becomes the previous one."""
    place.copy_installed()
    offer_newer_version(place)
    place.install()
    write_wheel(place.wheels, "beta", "3.0")
    text = place.profile.read_text()
    place.profile.write_text(text.replace("beta==2.0", "beta==3.0"))
    kill_install(place, KILLS["before the swap"])
    command_data(place, "rollback")
    assert place.packages() == FIRST
    kill_install(place, KILLS["after the swap"])
    done = place.install()
    assert done.returncode == 0
    assert place.packages() == FIRST | {"beta": "3.0"}
    command_data(place, "rollback")
    assert place.packages() == FIRST
