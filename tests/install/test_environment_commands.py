"""The commands envs, rollback, clean, uninstall and paths: their output, and the files that they remove or keep."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support.command import envdoctor, environment, interpreter, snapshot
from support.environment_commands import command_data, command_error, file_tree, run
from support.install_place import FIRST, SECOND, Place, make_place, offer_newer_version
from support.terminal import in_terminal

from envdoctor.environment.managed import EnvironmentPaths
from envdoctor.output.reporter import LazyReporter


@pytest.fixture(scope="module")
def updated_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an updated environment, to be copied: current and previous."""
    home = tmp_path_factory.mktemp("updated")
    with pytest.MonkeyPatch.context() as patch:
        place = make_place(home, patch)
        place.copy_installed()
        offer_newer_version(place)
        assert place.install().returncode == 0
        assert place.packages() == SECOND
    return place.venv.parent


@pytest.fixture
def updated(updated_environment: Path, place: Place) -> Place:
    """A current and a previous environment."""
    shutil.copytree(updated_environment, place.venv.parent, symlinks=True)
    offer_newer_version(place)
    listed = place.home / ".local/state/envdoctor/environments"
    listed.parent.mkdir(parents=True)
    listed.write_text(f"{place.venv}\n")
    return place


def test_rollback_and_a_second_rollback(updated: Place) -> None:
    before = file_tree(updated.venv)
    assert "is mine" in run(updated, "rollback", "--venv", updated.venv).stdout
    assert updated.packages() == FIRST
    data = command_data(updated, "rollback", "--venv", updated.venv)
    assert data["now"].startswith("mine (lock ")
    assert updated.packages() == SECOND
    assert file_tree(updated.venv) == before
    assert updated.remaining_files() == ["+previous", "mine"]
    assert updated.install().returncode == 0


def test_check_examines_the_installed_environment(updated: Place) -> None:
    """Without a named, active or project environment."""
    data = json.loads(run(updated, "check", "--format", "json", VIRTUAL_ENV="").stdout)["data"]
    assert data["environment"] == {
        "path": str(updated.venv),
        "reason": "installed by envdoctor",
        "others": [],
        "notebook": "",
    }
    assert data["made"]["profile"] == "mine"


def test_the_only_environment_is_the_default(updated: Place) -> None:
    command_data(updated, "rollback")
    assert updated.packages() == FIRST


def test_rollback_without_a_previous_environment(place: Place) -> None:
    error = command_error(place, "rollback", "--venv", place.venv)
    assert "has no previous environment" in error["message"]
    assert "no environments are known" in command_error(place, "rollback")["message"]
    place.copy_installed()
    before = snapshot(place.venv)
    assert "has no previous environment" in command_error(place, "rollback")["message"]
    assert snapshot(place.venv) == before


def test_rollback_of_a_deleted_environment(updated: Place) -> None:
    shutil.rmtree(updated.venv)
    data = command_data(updated, "rollback", "--venv", updated.venv)
    assert data["before"] == "none"
    assert updated.packages() == FIRST
    assert updated.remaining_files() == ["mine"]


def test_rollback_to_an_environment_without_an_interpreter_is_refused(updated: Place) -> None:
    for path in (EnvironmentPaths(updated.venv).previous / "bin").glob("python*"):
        path.unlink()
    assert "has no interpreter" in command_error(updated, "rollback")["message"]
    assert updated.packages() == SECOND


def test_rollback_without_an_atomic_exchange(updated: Place) -> None:
    code = "import envdoctor.install.swap as s\ns.exchange = lambda *a: False\nfrom envdoctor.cli import main\nmain()"
    arguments = [interpreter(), "-c", code, "rollback", "--venv", str(updated.venv)]
    for expected in (FIRST, SECOND):
        subprocess.run(arguments, check=True, env=environment(updated.home), capture_output=True)
        assert updated.packages() == expected
    assert updated.remaining_files() == ["+previous", "mine"]


def test_envs_lists_both_environments(updated: Place) -> None:
    current, previous = command_data(updated, "envs")["environments"]
    assert (current["path"], current["state"], current["profile"]) == (str(updated.venv), "current", "mine")
    assert (previous["path"], previous["state"]) == (str(EnvironmentPaths(updated.venv).previous), "previous")
    assert current["lock"] != previous["lock"]
    assert current["size"] > 0
    assert {current["verified"], previous["verified"]} == {"no"}


def test_envs_shows_broken_unfinished_and_running_installs(place: Place) -> None:
    assert command_data(place, "envs") == {"environments": []}
    place.copy_installed()
    for path in (place.venv / "bin").glob("python*"):
        path.unlink()
    (broken,) = command_data(place, "envs")["environments"]
    assert broken["state"] == "broken"
    assert "no interpreter" in broken["note"]
    shutil.rmtree(place.venv)
    paths = EnvironmentPaths(place.venv)
    entry = {"install": "a", "step": "sync", "event": "start", "at": "2026-11-21T15:30:12+00:00", "process": 4194999}
    paths.journal.write_text(json.dumps(entry) + "\n")
    (unfinished,) = command_data(place, "envs")["environments"]
    assert unfinished["state"] == "unfinished"
    assert "ended in 'sync' without an exit code" in unfinished["note"]
    paths.journal.write_text(json.dumps(entry | {"process": os.getpid()}) + "\n")
    (at_work,) = command_data(place, "envs")["environments"]
    assert at_work["note"] == f"process {os.getpid()} is building it"


def test_envs_shows_the_verification(place: Place) -> None:
    place.copy_installed()
    (place.venv / "envdoctor-verification.json").write_text("{")
    (found,) = command_data(place, "envs")["environments"]
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
def test_a_damaged_list_of_environments_is_ignored(data: bytes, place: Place) -> None:
    state = place.home / ".local/state/envdoctor"
    state.mkdir(parents=True)
    (state / "environments").write_bytes(data)
    assert command_data(place, "envs") == {"environments": []}


def test_a_folder_instead_of_the_list_is_ignored(place: Place) -> None:
    (place.home / ".local/state/envdoctor/environments").mkdir(parents=True)
    assert command_data(place, "envs") == {"environments": []}
    assert place.install().returncode == 0


@pytest.mark.parametrize("path", ["/", "x" * 250, "x" * 5000])
@pytest.mark.parametrize("command", ["rollback", "clean", "uninstall", "install"])
def test_invalid_environment_paths_are_rejected(command: str, path: str, place: Place) -> None:
    profile = ("--profile", place.profile) if command == "install" else ()
    error = command_error(place, command, *profile, "--venv", path)
    assert "is not a valid path for an environment" in error["message"]


def test_every_removal_command_of_paths_works(updated: Place) -> None:
    rows = {row["path"]: row for row in command_data(updated, "paths")["paths"]}
    assert rows[str(updated.venv)]["size"] > 0
    assert rows[str(EnvironmentPaths(updated.venv).folder)]["size"] > 0
    assert str(updated.home / ".local/state/envdoctor") in rows
    commands = [row["remove"] for row in rows.values() if row["remove"].startswith("envdoctor ")]
    for command in commands:
        done = run(updated, *command.split()[1:])
        assert done.returncode == 0, (command, done.stderr)
    assert not updated.venv.exists()
    assert not list(updated.venv.parent.iterdir())


def test_clean_removes_the_previous_environment_and_leftovers(updated: Place) -> None:
    paths = EnvironmentPaths(updated.venv)
    (paths.building / "lib").mkdir(parents=True)
    (paths.folder / "removing-1-old").mkdir()
    data = command_data(updated, "clean")
    assert data["paths"] == [str(paths.previous), str(paths.building)]
    assert data["size"] > 0
    assert updated.remaining_files() == ["mine"]
    assert updated.packages() == SECOND
    assert "has no previous environment" in command_error(updated, "rollback")["message"]
    assert command_data(updated, "clean")["paths"] == []
    assert run(updated, "clean").stdout == "nothing to remove\n"


@pytest.mark.parametrize("arguments", [("clean",), ("uninstall",), ("uninstall", "--all"), ("clean", "--adopted")])
def test_dry_runs_list_the_paths_of_the_real_runs(arguments: tuple[str, ...], updated: Place) -> None:
    paths = EnvironmentPaths(updated.venv)
    (paths.building / "lib").mkdir(parents=True)
    (paths.folder / "removing-1-old").mkdir()
    command_data(updated, "envs")  # which fills caches
    before = file_tree(updated.home)
    data = command_data(updated, *arguments, "--dry-run")
    assert file_tree(updated.home) == before
    assert data["dry_run"] is True
    assert command_data(updated, *arguments)["paths"] == data["paths"]
    assert not any(Path(path).exists() for path in data["paths"])


def test_uninstall_removes_the_environment_and_its_folder(updated: Place) -> None:
    other = updated.home / "envs/other"
    updated.install("--venv", str(other))
    assert "2 environments are known" in command_error(updated, "uninstall")["message"]
    data = command_data(updated, "uninstall", "--venv", updated.venv)
    assert data["paths"] == [str(updated.venv), str(EnvironmentPaths(updated.venv).folder)]
    assert sorted(path.name for path in updated.venv.parent.iterdir()) == [".other.envdoctor", "other"]
    (left,) = command_data(updated, "envs")["environments"]
    assert left["path"] == str(other)
    assert "there is no environment at" in command_error(updated, "uninstall", "--venv", updated.venv)["message"]


def test_uninstall_all_removes_everything_but_profiles(updated: Place) -> None:
    mine = updated.home / ".config/envdoctor/profiles/own.toml"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    command_data(updated, "uninstall", "--all")
    assert list(updated.venv.parent.iterdir()) == []
    assert not (updated.home / ".local/state/envdoctor").exists()
    assert mine.exists()
    assert updated.profile.exists()
    assert command_data(updated, "envs") == {"environments": []}
    assert command_data(updated, "uninstall", "--all")["paths"] in ([], [str(updated.home / ".cache/envdoctor")])
    assert (
        "cannot be combined with" in command_error(updated, "uninstall", "--all", "--venv", updated.venv)["message"]
    )


def test_uninstall_rejects_foreign_paths(place: Place) -> None:
    (place.venv / "bin").mkdir(parents=True)
    (place.venv / "thesis.txt").write_text("mine")
    linked = place.venv.with_name("linked")
    place.install("--venv", str(place.home / "envs/real"))
    linked.symlink_to("real")
    file = place.venv.with_name("file")
    file.write_text("mine")
    before = file_tree(place.venv.parent)
    for path in (place.venv, linked, file, place.home, Path("/usr")):
        assert "was not created by envdoctor" in command_error(place, "uninstall", "--venv", path)["message"]
    assert "there is no environment" in command_error(place, "uninstall", "--venv", place.home / "nowhere")["message"]
    assert file_tree(place.venv.parent) == before


# The commands wait 1.5 s for a running process.
SHORT_WAIT = (
    "import envdoctor.install.environment_lock as e\ne.RUNNING_SECONDS = 0.1\nfrom envdoctor.cli import main\nmain()"
)


def test_an_environment_that_is_being_built_is_not_removed(place: Place) -> None:
    from envdoctor.install.environment_lock import environment_lock

    place.copy_installed()
    with environment_lock(EnvironmentPaths(place.venv)):
        for command in ("rollback", "clean", "uninstall"):
            confirmed = ["--yes"] if command != "rollback" else []
            done = subprocess.run(
                [interpreter(), "-c", SHORT_WAIT, command, "--venv", place.venv, *confirmed],
                env=environment(place.home), capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert done.returncode == 3
            assert f"is in progress: process {os.getpid()}, which is running" in done.stderr
    assert place.packages() == FIRST


def test_clean_and_rollback_work_on_a_full_disk(updated: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the lock nor the journal can be written."""
    import errno

    from envdoctor.commands import clean, rollback

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    monkeypatch.setenv("HOME", str(updated.home))
    rollback.run(rollback.RollbackRequest(venv=str(updated.venv)))
    clean.run(clean.CleanRequest(venv=str(updated.venv), yes=True), LazyReporter())
    monkeypatch.undo()
    assert updated.packages() == FIRST
    assert updated.remaining_files() == ["mine"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_an_error(updated: Place) -> None:
    updated.venv.parent.chmod(0o500)
    try:
        done = run(updated, "rollback", "--venv", updated.venv)
    finally:
        updated.venv.parent.chmod(0o700)
    assert done.returncode == 3
    assert "internal error" not in done.stderr


def test_a_lock_that_is_a_folder_is_an_error(updated: Place) -> None:
    lock = EnvironmentPaths(updated.venv).lock_file
    lock.unlink()
    lock.mkdir()
    for command in ("rollback", "clean", "uninstall", "install"):
        profile = ("--profile", updated.profile) if command == "install" else ()
        done = run(
            updated, command, "--venv", updated.venv, *profile, **(updated.settings if command == "install" else {})
        )
        if command == "install" and done.returncode == 0:
            continue
        assert done.returncode == 3, done.stderr
        assert str(lock) in done.stderr
        assert "internal error" not in done.stderr
    assert updated.packages() == SECOND


@pytest.mark.parametrize("words", [["uninstall"], ["uninstall", "--all"], ["clean"]])
def test_a_pipe_needs_a_confirmation(updated: Place, words: list[str]) -> None:
    before = file_tree(updated.home)
    planned = command_data(updated, *words, "--dry-run")["paths"]
    done = envdoctor(*words, home=updated.home)
    assert (done.returncode, done.stdout) == (2, "")
    assert "would be removed: " + ", ".join(planned) in done.stderr
    assert f"hint: envdoctor {' '.join(words)} --yes" in done.stderr
    assert file_tree(updated.home) == before


@pytest.mark.parametrize("answer", ["y", "n", ""])
def test_a_terminal_is_asked(updated: Place, answer: str) -> None:
    paths = [str(updated.venv), str(EnvironmentPaths(updated.venv).folder)]
    screen = in_terminal("uninstall", "--quiet", width=400, home=updated.home, typed=f"{answer}\n")
    listed, _, rest = screen.partition("Remove 2 directories? [y/N]")
    assert all(f"would be removed: {path}" in listed for path in paths)
    assert ("removed: " if answer == "y" else "error: not confirmed: nothing was removed") in rest
    assert updated.venv.exists() == (answer != "y")


def test_output_has_no_colours_in_a_pipe(updated: Place) -> None:
    for line in ("envs", "paths", "clean --dry-run", "uninstall --dry-run", "rollback", "clean", "rollback",
                 "uninstall --venv /usr", "uninstall"):  # fmt: skip
        arguments = line.split()
        done = run(updated, *arguments)
        text = done.stdout + done.stderr
        assert text.strip()
        assert not re.search(r"Traceback|internal error|\x1b\[", text)
