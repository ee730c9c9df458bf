"""Killed, interrupted and concurrent installs: the current environment is kept, and the next install completes."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from support.command import envelope
from support.install_place import FIRST, SECOND, Place, offer_newer_version
from support.local_packages import Index, serve

from envdoctor.core.errors import EnvdoctorError
from envdoctor.environment.managed import EnvironmentPaths
from envdoctor.install.swap import exchange


@contextlib.contextmanager
def stalled_install(place: Place, python: str | None = None) -> Iterator[tuple[subprocess.Popen[str], Index]]:
    """An install that waits for a wheel from an index on loopback, until `index.stalled` is false."""
    with serve(Index({"main": place.wheels}, stalled=EnvironmentPaths(place.venv).building)) as index:
        pip = {"PIP_FIND_LINKS": "", "PIP_NO_INDEX": "", "PIP_INDEX_URL": index.url()}
        process = place.start(python, **pip)
        assert process.stdout
        try:
            assert index.waiting.wait(60), "uv requested no wheel"
            yield process, index
        finally:
            index.stalled = False
            process.kill()
            process.stdout.close()
            process.wait()


def test_a_concurrent_install_reports_the_running_process(place: Place) -> None:
    place.copy_installed()
    offer_newer_version(place)
    with stalled_install(place, sys.executable) as (first, index):
        second = place.install()
        assert second.returncode == 3
        assert f"is in progress: process {first.pid}, which is running" in envelope(second)["error"]["message"]
        assert place.packages() == FIRST
        index.stalled = False
        assert first.stdout
        assert first.wait(60) == 0, first.stdout.read()
    assert place.packages() == SECOND
    assert place.remaining_files() == ["+previous", "mine"]


def test_after_a_kill_the_next_install_waits_for_uv(place: Place) -> None:
    """The uv of a killed install continues in its own session and still writes to the folder."""
    place.copy_installed()
    offer_newer_version(place)
    with stalled_install(place) as (first, index):
        place.kill(first)
        assert place.packages() == FIRST
        index.stalled = False
        done = place.install()
    assert done.returncode == 0, done.stdout
    assert place.packages() == SECOND
    assert place.remaining_files() == ["+previous", "mine"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_install_keeps_only_the_current_environment(number: int, place: Place) -> None:
    place.copy_installed()
    offer_newer_version(place)
    with stalled_install(place) as (first, _):
        first.send_signal(number)
        assert first.wait(60) == 130
        assert first.stdout
        assert "Traceback" not in first.stdout.read()
        assert place.remaining_files() == ["mine"]
    assert place.packages() == FIRST


@pytest.mark.parametrize("step", [1, 2, 3])
def test_after_a_kill_in_any_step_the_next_install_completes(step: int, place: Place) -> None:
    place.copy_installed()
    offer_newer_version(place)
    process = place.start()
    assert process.stdout
    for line in process.stdout:
        if line.startswith(f"• [{step}/3]"):
            place.kill(process)
            break
    process.stdout.close()
    assert place.packages() == FIRST
    done = place.install()
    assert done.returncode == 0, done.stdout
    assert place.packages() == SECOND
    assert place.remaining_files() == ["+previous", "mine"]


# A kill before the swap, between the two renames without an atomic exchange, and after the swap.
KILLED = {
    "before": "s.swap_in = lambda *a: os.kill(os.getpid(), 9)",
    "after": "s.retain_previous = lambda *a: os.kill(os.getpid(), 9)",
    "between": (
        "s.exchange = lambda *a: False\nrename = pathlib.Path.rename\n"
        "def kill(self, to): rename(self, to); str(to).endswith('outgoing') and os.kill(os.getpid(), 9)\n"
        "pathlib.Path.rename = kill"
    ),
}


@pytest.mark.parametrize("when", KILLED)
def test_after_a_kill_in_the_swap_the_next_install_completes(when: str, place: Place) -> None:
    place.copy_installed()
    offer_newer_version(place)
    modules = "import os, pathlib, sys, envdoctor.install.install as i, envdoctor.install.swap as s"
    assert place.install_after(f"{modules}\n{KILLED[when]}") == -signal.SIGKILL
    if when != "between":
        assert place.packages() == (FIRST if when == "before" else SECOND)
    done = place.install()
    assert done.returncode == 0, done.stdout
    assert place.packages() == SECOND
    assert place.remaining_files() == ["+previous", "mine"]


def test_a_failing_install_restores_the_environment_of_a_killed_swap(place: Place) -> None:
    place.copy_installed()
    plan = place.plan()
    place.venv.rename(EnvironmentPaths(place.venv).outgoing)
    for wheel in place.wheels.iterdir():
        wheel.unlink()
    offer_newer_version(place)
    broken = msgspec.structs.replace(plan, lock=msgspec.structs.replace(plan.lock, packages=plan.lock.packages[:1]))
    with pytest.raises(EnvdoctorError):
        place.install_plan(broken)
    assert place.packages() == FIRST
    assert place.remaining_files() == ["mine"]


def test_without_an_atomic_exchange_two_renames_are_used(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.copy_installed()
    offer_newer_version(place)
    monkeypatch.setattr("envdoctor.install.swap.exchange", lambda *_: False)
    place.install_plan(place.plan())
    assert place.packages() == SECOND
    assert place.remaining_files() == ["+previous", "mine"]


def test_two_folders_are_exchanged_atomically(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a/mine").touch()
    assert exchange(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b/mine").exists()
    assert not exchange(tmp_path / "a", tmp_path / "nowhere")


def test_the_lock_file_of_a_dead_process_is_ignored(place: Place) -> None:
    EnvironmentPaths(place.venv).make_folder()
    EnvironmentPaths(place.venv).lock_file.write_text("4194999")
    assert place.install().returncode == 0
    assert place.remaining_files() == ["mine"]
