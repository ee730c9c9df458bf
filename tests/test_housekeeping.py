"""envs, rollback, clean, uninstall, paths: what they say, what they remove, and what they leave alone."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command import envdoctor, envelope, snapshot
from install_place import FIRST, SECOND, Place, make_place, offer_a_newer_one
from test_schema import faults

from envdoctor.environment.managed import EnvironmentPaths
from envdoctor.output.schema import schema_of


def run(place: Place, *arguments: str | Path, **extra: str) -> subprocess.CompletedProcess[str]:
    return envdoctor(*arguments, home=place.home, **extra)


def told(place: Place, *arguments: str | Path) -> dict[str, Any]:
    """A command's data, which meets its schema."""
    done = run(place, *arguments, "--format", "json")
    found = envelope(done)
    for name in ("envelope", found["command"]):
        schema = schema_of(name)
        assert faults(found, schema, schema) == []
    assert found["data"] is not None, found["error"]
    data = found["data"]
    assert isinstance(data, dict)
    return data


def refused(place: Place, *arguments: str | Path) -> dict[str, Any]:
    """A command's error, which meets its schema."""
    done = run(place, *arguments, "--format", "json")
    found = envelope(done)
    schema = schema_of("envelope")
    assert faults(found, schema, schema) == []
    assert done.returncode in (1, 2), done.stdout
    error = found["error"]
    assert isinstance(error, dict)
    assert "itself failed" not in error["message"]
    return error


def tree(folder: Path) -> dict[str, tuple[str, bytes]]:
    """Everything below a folder: kind and content, folders and links, too."""
    return {
        str(path.relative_to(folder)): (
            oct(path.lstat().st_mode),
            str(path.readlink()).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b"",
        )
        for path in sorted(folder.rglob("*"))
        if "__pycache__" not in path.parts
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Environments to copy: one, and the one before it."""
    home = tmp_path_factory.mktemp("two")
    with pytest.MonkeyPatch.context() as patch:
        place = make_place(home, patch)
        assert place.install().returncode == 0
        offer_a_newer_one(place)
        assert place.install().returncode == 0
        assert place.packages() == SECOND
    return place.venv.parent


@pytest.fixture
def two(made: Path, place: Place) -> Place:
    """An environment and the one before it."""
    shutil.copytree(made, place.venv.parent, symlinks=True)
    offer_a_newer_one(place)
    listed = place.home / ".local/state/envdoctor/environments"
    listed.parent.mkdir(parents=True)
    listed.write_text(f"{place.venv}\n")
    return place


def test_rollback_goes_there_and_forth(two: Place) -> None:
    before = tree(two.venv)
    assert "is mine" in run(two, "rollback", "--venv", two.venv).stdout
    assert two.packages() == FIRST
    data = told(two, "rollback", "--venv", two.venv)
    assert data["now"].startswith("mine (lock ")
    assert two.packages() == SECOND
    assert tree(two.venv) == before
    assert two.left() == ["+previous", "mine"]
    assert two.install().returncode == 0


def test_without_a_path_the_only_environment_is_meant(two: Place) -> None:
    told(two, "rollback")
    assert two.packages() == FIRST


def test_rollback_without_an_environment_before(place: Place) -> None:
    error = refused(place, "rollback", "--venv", place.venv)
    assert "has no previous environment" in error["message"]
    assert "0 environments are known" in refused(place, "rollback")["message"]
    place.install()
    before = snapshot(place.venv)
    assert "has no previous environment" in refused(place, "rollback")["message"]
    assert snapshot(place.venv) == before


def test_rollback_of_an_environment_that_was_deleted_underneath(two: Place) -> None:
    shutil.rmtree(two.venv)
    data = told(two, "rollback", "--venv", two.venv)
    assert data["before"] == "none"
    assert two.packages() == FIRST
    assert two.left() == ["mine"]


def test_rollback_to_one_that_has_no_interpreter_is_refused(two: Place) -> None:
    for path in (EnvironmentPaths(two.venv).previous / "bin").glob("python*"):
        path.unlink()
    assert "has no interpreter" in refused(two, "rollback")["message"]
    assert two.packages() == SECOND


def test_rollback_without_an_atomic_exchange(two: Place) -> None:
    code = "import envdoctor.install.swap as s\ns.exchange = lambda *a: False\nfrom envdoctor.cli import main\nmain()"
    from command import environment

    arguments = [sys.executable, "-c", code, "rollback", "--venv", str(two.venv)]
    for expected in (FIRST, SECOND):
        subprocess.run(arguments, check=True, env=environment(two.home), capture_output=True)
        assert two.packages() == expected
    assert two.left() == ["+previous", "mine"]


def test_envs_lists_both_with_what_they_hold(two: Place) -> None:
    current, previous = told(two, "envs")["environments"]
    assert (current["path"], current["state"], current["profile"]) == (str(two.venv), "current", "mine")
    assert (previous["path"], previous["state"]) == (str(EnvironmentPaths(two.venv).previous), "previous")
    assert current["lock"] != previous["lock"]
    assert current["size"] > 0
    assert {current["verified"], previous["verified"]} == {"no"}


def test_envs_tells_broken_unfinished_and_at_work(place: Place) -> None:
    assert told(place, "envs") == {"environments": []}
    place.install()
    for path in (place.venv / "bin").glob("python*"):
        path.unlink()
    (broken,) = told(place, "envs")["environments"]
    assert broken["state"] == "broken"
    assert "no interpreter" in broken["note"]
    shutil.rmtree(place.venv)
    paths = EnvironmentPaths(place.venv)
    entry = {"install": "a", "step": "sync", "event": "start", "at": "2026-11-21T15:30:12+00:00", "process": 4194999}
    paths.journal.write_text(json.dumps(entry) + "\n")
    (unfinished,) = told(place, "envs")["environments"]
    assert unfinished["state"] == "unfinished"
    assert "ended in 'sync' without an exit code" in unfinished["note"]
    paths.journal.write_text(json.dumps(entry | {"process": os.getpid()}) + "\n")
    (at_work,) = told(place, "envs")["environments"]
    assert at_work["note"] == f"process {os.getpid()} is building it"


def test_envs_says_whether_it_is_verified(place: Place) -> None:
    place.install()
    (place.venv / "envdoctor-verification.json").write_text("{")
    (found,) = told(place, "envs")["environments"]
    assert found["verified"] in ("no", "stale")


DAMAGED = (
    b"",
    b"\n\n",
    b"/\n",
    b"\0\n",
    b"relative\n",
    b"\xff\xfe\n",
    b"/y" * 3000,
    b"/etc/passwd/x",
    b"/" + b"n" * 250,
)


@pytest.mark.parametrize("data", DAMAGED)
def test_a_damaged_list_of_environments_is_no_traceback(data: bytes, place: Place) -> None:
    state = place.home / ".local/state/envdoctor"
    state.mkdir(parents=True)
    (state / "environments").write_bytes(data)
    assert told(place, "envs") == {"environments": []}


def test_a_folder_in_the_place_of_the_list(place: Place) -> None:
    (place.home / ".local/state/envdoctor/environments").mkdir(parents=True)
    assert told(place, "envs") == {"environments": []}
    assert place.install().returncode == 0


@pytest.mark.parametrize("path", ["/", "x" * 250, "x" * 5000])
@pytest.mark.parametrize("command", ["rollback", "clean", "uninstall", "install"])
def test_paths_that_can_be_no_environment(command: str, path: str, place: Place) -> None:
    profile = ("--profile", place.profile) if command == "install" else ()
    error = refused(place, command, *profile, "--venv", path)
    assert "is not a valid path for an environment" in error["message"]


def test_paths_lists_what_is_kept_and_every_command_in_it_works(two: Place) -> None:
    rows = {row["path"]: row for row in told(two, "paths")["paths"]}
    assert rows[str(two.venv)]["size"] > 0
    assert rows[str(EnvironmentPaths(two.venv).folder)]["size"] > 0
    assert str(two.home / ".local/state/envdoctor") in rows
    commands = [row["remove"] for row in rows.values() if row["remove"].startswith("envdoctor ")]
    for command in commands:
        done = run(two, *command.split()[1:])
        assert done.returncode == 0, (command, done.stderr)
    assert not two.venv.exists()
    assert not list(two.venv.parent.iterdir())


def test_clean_removes_the_one_before_and_what_kills_left(two: Place) -> None:
    paths = EnvironmentPaths(two.venv)
    (paths.building / "lib").mkdir(parents=True)
    (paths.folder / "removing-1-old").mkdir()
    data = told(two, "clean")
    assert data["paths"] == [str(paths.previous), str(paths.building)]
    assert data["size"] > 0
    assert two.left() == ["mine"]
    assert two.packages() == SECOND
    assert "has no previous environment" in refused(two, "rollback")["message"]
    assert told(two, "clean")["paths"] == []
    assert run(two, "clean").stdout == "nothing to remove\n"


@pytest.mark.parametrize("arguments", [("clean",), ("uninstall",), ("uninstall", "--all"), ("clean", "--adopted")])
def test_dry_runs_change_nothing_and_tell_what_the_real_ones_do(arguments: tuple[str, ...], two: Place) -> None:
    paths = EnvironmentPaths(two.venv)
    (paths.building / "lib").mkdir(parents=True)
    (paths.folder / "removing-1-old").mkdir()
    told(two, "envs")  # which reads and caches
    before = tree(two.home)
    data = told(two, *arguments, "--dry-run")
    assert tree(two.home) == before
    assert data["dry_run"] is True
    assert told(two, *arguments)["paths"] == data["paths"]
    assert not any(Path(path).exists() for path in data["paths"])


def test_uninstall_removes_it_with_what_lies_beside(two: Place) -> None:
    other = two.home / "envs/other"
    two.install("--venv", str(other))
    assert "2 environments are known" in refused(two, "uninstall")["message"]
    data = told(two, "uninstall", "--venv", two.venv)
    assert data["paths"] == [str(two.venv), str(EnvironmentPaths(two.venv).folder)]
    assert sorted(path.name for path in two.venv.parent.iterdir()) == [".other.envdoctor", "other"]
    (left,) = told(two, "envs")["environments"]
    assert left["path"] == str(other)
    assert "there is no environment at" in refused(two, "uninstall", "--venv", two.venv)["message"]


def test_uninstall_all_removes_everything_but_profiles(two: Place) -> None:
    mine = two.home / ".config/envdoctor/profiles/own.toml"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    told(two, "uninstall", "--all")
    assert list(two.venv.parent.iterdir()) == []
    assert not (two.home / ".local/state/envdoctor").exists()
    assert mine.exists()
    assert two.profile.exists()
    assert told(two, "envs") == {"environments": []}
    assert told(two, "uninstall", "--all")["paths"] in ([], [str(two.home / ".cache/envdoctor")])
    assert "are both given" in refused(two, "uninstall", "--all", "--venv", two.venv)["message"]


def test_uninstall_refuses_what_is_not_ours(place: Place) -> None:
    (place.venv / "bin").mkdir(parents=True)
    (place.venv / "thesis.txt").write_text("mine")
    linked = place.venv.with_name("linked")
    place.install("--venv", str(place.home / "envs/real"))
    linked.symlink_to("real")
    file = place.venv.with_name("file")
    file.write_text("mine")
    before = tree(place.venv.parent)
    for path in (place.venv, linked, file, place.home, Path("/usr")):
        assert "was not created by envdoctor" in refused(place, "uninstall", "--venv", path)["message"]
    assert "there is no environment" in refused(place, "uninstall", "--venv", place.home / "nowhere")["message"]
    assert tree(place.venv.parent) == before


def test_an_environment_that_is_being_built_is_not_removed(place: Place) -> None:
    """Whoever holds the lock is at work."""
    from envdoctor.install.environment_lock import environment_lock

    place.install()
    with environment_lock(EnvironmentPaths(place.venv)):
        for command in ("rollback", "clean", "uninstall"):
            done = run(place, command, "--venv", place.venv)
            assert done.returncode == 3
            assert f"is in progress: process {os.getpid()}, which is running" in done.stderr
    assert place.packages() == FIRST


def test_on_a_full_disk_it_cleans_and_rolls_back(two: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be written: the lock is held unsigned, the journal has no line, and room is made."""
    import errno

    from envdoctor.commands import clean, rollback

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    monkeypatch.setenv("HOME", str(two.home))
    rollback.run(str(two.venv))
    clean.run(str(two.venv), dry_run=False, adopted=False)
    monkeypatch.undo()
    assert two.packages() == FIRST
    assert two.left() == ["mine"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_of_somebody_else_is_a_clear_error(two: Place) -> None:
    two.venv.parent.chmod(0o500)
    try:
        done = run(two, "rollback", "--venv", two.venv)
    finally:
        two.venv.parent.chmod(0o700)
    assert done.returncode == 3
    assert "itself failed" not in done.stderr


def test_a_lock_that_is_a_folder_is_a_clear_error(two: Place) -> None:
    lock = EnvironmentPaths(two.venv).lock_file
    lock.unlink()
    lock.mkdir()
    for command in ("rollback", "clean", "uninstall", "install"):
        profile = ("--profile", two.profile) if command == "install" else ()
        done = run(two, command, "--venv", two.venv, *profile, **(two.settings if command == "install" else {}))
        if command == "install" and done.returncode == 0:
            continue
        assert done.returncode == 3, done.stderr
        assert str(lock) in done.stderr
        assert "itself failed" not in done.stderr
    assert two.packages() == SECOND


@pytest.mark.parametrize("columns", ["40", "80", ""])
def test_people_read_it_at_any_width_and_in_a_pipe(columns: str, two: Place) -> None:
    extra = {"COLUMNS": columns} if columns else {}
    for line in ("envs", "paths", "clean --dry-run", "uninstall --dry-run", "rollback", "clean", "rollback",
                 "uninstall --venv /usr", "uninstall"):  # fmt: skip
        arguments = line.split()
        done = run(two, *arguments, **extra)
        text = done.stdout + done.stderr
        assert text.strip()
        assert not re.search(r"Traceback|itself failed|\x1b\[", text)
        if columns and arguments == ["paths"]:
            assert max(map(len, done.stdout.splitlines())) <= int(columns)
