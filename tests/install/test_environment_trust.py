"""The data directory of an environment: whose it is, who uses the environment, and what lies inside of another."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.command import COMMAND, envdoctor, environment
from support.install_place import Place, offer_newer_version

from envdoctor.core.errors import BadInput, Refused
from envdoctor.environment.managed import EnvironmentPaths, check_replaceable
from envdoctor.install.environment_use import environment_in_use, require_unused, users_of


def test_a_link_of_another_user_is_not_followed(place: Place, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    (victim / "building").mkdir(parents=True)
    (victim / "building/file").write_text("x")
    paths = EnvironmentPaths(place.venv)
    paths.folder.parent.mkdir(parents=True)
    paths.folder.symlink_to(victim)
    done = place.install()
    assert done.returncode == 2
    assert "is a link" in done.stdout
    assert sorted(str(each.relative_to(victim)) for each in victim.rglob("*")) == ["building", "building/file"]


def test_a_folder_that_others_own_or_may_write_is_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = EnvironmentPaths(place.venv)
    paths.make_folder()
    paths.make_folder()
    paths.folder.chmod(0o777)
    with pytest.raises(BadInput, match="can be written by every user"):
        paths.make_folder()
    paths.folder.chmod(0o755)
    monkeypatch.setattr(os, "geteuid", lambda: paths.folder.stat().st_uid + 1)
    with pytest.raises(BadInput, match="belongs to the user"):
        paths.make_folder()


@pytest.mark.parametrize("name", ["lock", "journal.jsonl", ".gitignore"])
def test_a_link_inside_of_the_folder_is_not_followed(name: str, place: Place, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    paths = EnvironmentPaths(place.venv)
    paths.folder.mkdir(parents=True)
    (paths.folder / name).symlink_to(victim)
    place.install()
    assert victim.read_text() == "precious"


def test_an_environment_in_use_is_not_replaced(place: Place) -> None:
    place.copy_installed()
    offer_newer_version(place)
    before = place.packages()
    python = place.venv / "bin/python"
    with environment_in_use(python, "envdoctor train in runs/x"):
        for command in ("install --profile mine.toml", "rollback", "uninstall --yes"):
            done = envdoctor(*command.split(), "--venv", place.venv, home=place.home, **place.settings)
            assert done.returncode in (1, 3), (command, done.stderr)
            assert (
                f"used by envdoctor train in runs/x (process {os.getpid()})" in done.stderr or command == "rollback"
            )
        assert place.packages() == before
        assert place.install("--force").returncode == 0
    assert users_of(EnvironmentPaths(place.venv)) == []


def test_a_killed_user_does_not_lock_the_environment(place: Place) -> None:
    place.copy_installed()
    paths = EnvironmentPaths(place.venv)
    code = (
        "import sys, time; from pathlib import Path\n"
        "from envdoctor.install.environment_use import environment_in_use\n"
        "with environment_in_use(Path(sys.argv[1]), 'x'): print('ready', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code, place.venv / "bin/python"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment(place.home), text=True) as user:
        assert user.stdout
        assert user.stdout.readline() == "ready\n"
        assert len(users_of(paths)) == 1
        with pytest.raises(Refused, match=f"process {user.pid}"):
            require_unused(paths, force=False, command="x")
        user.kill()
    require_unused(paths, force=False, command="x")


def test_a_verification_marks_the_environment(place: Place) -> None:
    place.copy_installed()
    users = EnvironmentPaths(place.venv).folder / "users"
    arguments = ["verify", "--venv", place.venv, "--only", "torch_matmul"]
    with subprocess.Popen([*COMMAND, *map(str, arguments)], env=environment(place.home), stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, cwd=place.home) as verify:  # fmt: skip
        seen = False
        while verify.poll() is None:
            seen = seen or any(users.glob("*"))  # users_of needs the environment's lock: it removes unlocked files
            time.sleep(0.01)
    assert seen
    assert list(users.iterdir()) == []


@pytest.mark.parametrize("inner", ["lib/inner", "inner", "../.mine.envdoctor/inner", "a/b/c"])
def test_an_environment_inside_of_another_is_refused(inner: str, place: Place) -> None:
    place.copy_installed()
    with pytest.raises(BadInput, match="lies inside of the environment"):
        check_replaceable(place.venv / inner)
    link = place.home / "link"
    link.symlink_to(place.venv)
    with pytest.raises(BadInput, match="lies inside of the environment"):
        check_replaceable(link / "inner")


def test_two_spellings_of_a_path_are_one_environment(place: Place) -> None:
    place.copy_installed()
    other = place.venv.parent / "x/.." / place.venv.name
    (place.venv.parent / "x").mkdir()
    list_file = place.home / ".local/state/envdoctor/environments"
    list_file.write_text(f"{place.venv}\n{other}\n")
    done = envdoctor("envs", home=place.home)
    assert done.stdout.count("made ") == 1, done.stdout


def test_a_path_with_a_newline_is_refused(place: Place) -> None:
    done = envdoctor("install", place.profile, "--venv", "a\nb", home=place.home, **place.settings)
    assert done.returncode == 2
    assert "one line" in done.stderr


def test_uninstall_reports_files_that_remain(place: Place) -> None:
    place.copy_installed()
    code = "import shutil; shutil.rmtree = lambda *a, **k: None"  # as of a file that is immutable
    command = ["uninstall", "--venv", str(place.venv), "--yes"]
    start = f"{code}\nfrom envdoctor.cli import main\nmain()"
    done = subprocess.run([sys.executable, "-c", start, *command], capture_output=True, text=True,
                          env=environment(place.home, **place.settings), cwd=place.home, check=False)  # fmt: skip
    assert done.returncode == 3
    assert "could not be removed" in done.stderr


def test_a_path_that_ascii_lacks_is_listed(place: Place) -> None:
    place.copy_installed()
    other = place.home / "umlaut-é"
    (place.home / ".local/state/envdoctor/environments").write_text(f"{place.venv}\n{other}\n", encoding="utf-8")
    (place.home / ".umlaut-é.envdoctor").mkdir()
    done = envdoctor("envs", home=place.home, LC_ALL="POSIX", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert done.returncode == 0, done.stderr
    assert str(place.venv) in done.stdout
