"""Installs of generated wheels with uv: errors, drift, progress."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from support.command import envelope, snapshot
from support.environment_commands import run_lines
from support.install_place import FIRST, SECOND, Place, offer_newer_version
from support.local_packages import Index, serve, write_profile, write_wheel
from support.paths import ROOT

from envdoctor.core.errors import EnvdoctorError, Refused
from envdoctor.core.reporter import InstallProgress
from envdoctor.environment.managed import EnvironmentPaths
from envdoctor.install.lock_check import check_versions, drift
from envdoctor.install.progress import WINDOW_SECONDS, DownloadTracker


def test_install_then_unchanged_install_then_newer_lock(place: Place) -> None:
    done = place.install()
    assert done.returncode == 0, done.stderr
    data = envelope(done)["data"]
    assert (data["unchanged"], data["installed"]["torch_build"]) == (False, "cpu")
    assert data["installed"]["torch_source"] == f"find-links {place.wheels}"
    assert [step["name"] for step in data["steps"]] == ["venv", "sync", "check"]
    assert "+ alpha==1.0" in Path(data["log"]).read_text()
    assert place.packages() == FIRST
    assert place.remaining_files() == ["mine"]

    before = place.venv.stat()
    repeated = envelope(place.install())["data"]
    assert repeated["unchanged"] is True
    assert repeated["installed"] == data["installed"]
    assert place.venv.stat().st_ino == before.st_ino

    write_wheel(place.wheels, "beta", "2.0")
    assert envelope(place.install())["data"]["unchanged"] is True  # --upgrade resolves again
    newer = envelope(place.install("--upgrade"))["data"]
    assert newer["unchanged"] is False
    assert place.packages() == SECOND
    assert place.remaining_files() == ["+previous", "mine"]
    assert newer["previous"] == str(EnvironmentPaths(place.venv).previous)


def test_scripts_work_at_the_final_path(place: Place) -> None:
    write_wheel(place.wheels, "gamma", "1.0", files={
        "gamma/__init__.py": b"import sys\ndef main(): print(sys.prefix)\n",
        "gamma-1.0.dist-info/entry_points.txt": b"[console_scripts]\ngamma = gamma:main\n",
    })  # fmt: skip
    write_profile(place.profile, "gamma")
    assert place.install().returncode == 0
    done = subprocess.run([place.venv / "bin/gamma"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(place.venv)


@pytest.mark.parametrize("name", ["it's größe.ted", "-dash with space"])
def test_folder_names(name: str, place: Place) -> None:
    venv = place.home / "envs" / name
    done = place.install("--venv", str(venv))
    assert done.returncode == 0, done.stderr
    assert (venv / "envdoctor.json").exists()
    lines = envelope(place.install("--venv", f"{venv}2", "--dry-run"))["data"]["commands"]
    run_lines(lines, place)
    assert (Path(f"{venv}2") / "bin/python").exists()


def test_unchanged_packages_with_other_variables_and_probes(place: Place) -> None:
    """The packages are kept; the variables and probes of the current profile are used."""
    place.copy_installed()
    text = place.profile.read_text()
    place.profile.write_text(
        text.replace('OMP_NUM_THREADS = "1"', 'OMP_NUM_THREADS = "2"').replace("required = []", 'required = ["sdpa"]')
    )
    data = envelope(place.install())["data"]
    assert data["unchanged"] is True
    marker = json.loads((place.venv / "envdoctor.json").read_text())
    assert (marker["environment"], marker["required"]) == ({"OMP_NUM_THREADS": "2"}, ["sdpa"])
    assert marker["lock"] == data["installed"]["lock"]


def test_an_environment_that_drifted_is_built_again(place: Place) -> None:
    place.copy_installed()
    (site,) = place.venv.glob("lib/python*/site-packages")
    (site / "beta-1.0.dist-info").rename(site / "beta-0.5.dist-info")
    assert envelope(place.install())["data"]["unchanged"] is False
    assert place.packages() == FIRST


def test_an_environment_without_its_interpreter_is_built_again(place: Place) -> None:
    place.copy_installed()
    for path in (place.venv / "bin").glob("python*"):
        path.unlink()
    assert envelope(place.install())["data"]["unchanged"] is False
    assert place.packages() == FIRST


def make_file(venv: Path) -> None:
    venv.write_text("mine")


def make_link(venv: Path) -> None:
    venv.with_name("real").mkdir()
    venv.symlink_to("real")


def make_dangling_link(venv: Path) -> None:
    venv.symlink_to("nowhere")


def make_foreign_environment(venv: Path) -> None:
    (venv / "bin").mkdir(parents=True)
    (venv / "pyvenv.cfg").write_text("home = /usr")


def make_full_folder(venv: Path) -> None:
    venv.mkdir()
    (venv / "thesis.txt").write_text("mine")


def make_broken_marker(venv: Path) -> None:
    venv.mkdir()
    (venv / "envdoctor.json").write_text("{")


def make_parent_file(venv: Path) -> None:
    venv.parent.rmdir()
    venv.parent.write_text("mine")


FOREIGN = {
    make_file: "is a file",
    make_link: "is a link",
    make_dangling_link: "is a link",
    make_foreign_environment: "is a virtual environment that envdoctor did not create (no envdoctor.json in it)",
    make_full_folder: "is a directory that envdoctor did not create",
    make_broken_marker: "its envdoctor.json cannot be read",
    make_parent_file: "envs is a file, and",
}


@pytest.mark.parametrize("make", FOREIGN)
def test_a_foreign_folder_is_refused_and_unchanged(make, place: Place) -> None:  # type: ignore[no-untyped-def]
    place.venv.parent.mkdir()
    make(place.venv)
    before = snapshot(place.home)
    done = place.install()
    assert done.returncode == 2, done.stderr
    assert FOREIGN[make] in envelope(done)["error"]["message"]
    assert snapshot(place.home) == before


@pytest.mark.parametrize("venv", ["/proc/mine", "/proc/self/mine/deeper", "/sys/mine", "/dev/null/mine"])
def test_an_invalid_path_is_a_clear_error(venv: str, place: Place) -> None:
    write_profile(place.profile, "alpha", disk=0)
    done = place.install("--venv", venv)
    assert done.returncode in (2, 3)
    error = envelope(done)["error"]
    assert error["message"].startswith(str(Path(venv).parts[0] + Path(venv).parts[1]))
    assert "--venv" in error["hint"]
    assert "Traceback" not in done.stderr


def test_a_small_disk_is_refused_unless_the_lock_is_installed(place: Place) -> None:
    write_profile(place.profile, "alpha", "torch==9.9.0+cpu", disk=10**6)
    done = place.install(UV_LINK_MODE="copy")  # hard links to uv's cache need no space
    assert done.returncode == 2
    assert "GiB are free" in envelope(done)["error"]["message"]
    assert not place.venv.parent.exists()
    write_profile(place.profile, "alpha", "torch==9.9.0+cpu")
    place.copy_installed()
    write_profile(place.profile, "alpha", "torch==9.9.0+cpu", disk=10**6)
    assert envelope(place.install())["data"]["unchanged"] is True


def test_a_log_that_cannot_be_written_is_a_clear_error(place: Place) -> None:
    (place.home / "state").write_text("a file")
    done = place.install(XDG_STATE_HOME=str(place.home / "state"))
    assert done.returncode == 3
    assert "cannot write the log" in envelope(done)["error"]["message"]
    assert place.remaining_files() == []


def test_a_modified_wheel_keeps_the_current_environment(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.copy_installed()
    offer_newer_version(place)
    plan = place.plan()
    write_wheel(place.wheels, "beta", "2.0", files={"beta/more.py": b"print('not the locked file')"})
    monkeypatch.setenv("UV_CACHE_DIR", str(place.home / "empty cache"))  # uv prefers a cached wheel
    with pytest.raises(EnvdoctorError, match="beta") as caught:
        place.install_plan(plan)
    assert "ash" in caught.value.message  # "hash" or "Hash" in the message of uv
    assert str(place.home / "log") in caught.value.hint
    assert place.packages() == FIRST
    assert place.remaining_files() == ["mine"]
    assert place.install().returncode == 0
    assert place.packages() == SECOND


def test_an_unavailable_source_keeps_the_current_environment(place: Place) -> None:
    place.copy_installed()
    offer_newer_version(place)
    with serve(Index({"main": place.wheels}, user="user:secret")) as index:
        pip = {"PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": index.url(user="user:secret"), "PIP_TIMEOUT": "2"}
        plan = place.plan(**pip)
        index.user = "user:changed"
        with pytest.raises(EnvdoctorError, match="returned 401 Unauthorized"):
            place.install_plan(plan)
    with pytest.raises(EnvdoctorError, match=r"127\.0\.0\.1.*Connection refused") as caught:
        place.install_plan(plan)
    assert caught.value.exit_code == 3
    assert "secret" not in caught.value.message
    files = (path for path in place.venv.parent.rglob("*") if path.is_file() and not path.is_symlink())
    written = (path for path in files if "site-packages" not in path.parts)
    assert not [path for path in written if b"secret" in path.read_bytes()]
    assert place.packages() == FIRST
    assert place.remaining_files() == ["mine"]


def test_unmet_requirement_is_an_error_before_the_swap(place: Place) -> None:
    place.copy_installed()
    plan = place.plan()
    without = tuple(package for package in plan.lock.packages if package.name != "beta")
    broken = msgspec.structs.replace(plan, lock=msgspec.structs.replace(plan.lock, packages=without))
    with pytest.raises(EnvdoctorError, match=r"Check that every requirement is met.*beta"):
        place.install_plan(broken)
    assert place.packages() == FIRST
    assert place.remaining_files() == ["mine"]


def test_check_versions_refuses_missing_other_and_additional_packages(place: Place) -> None:
    place.copy_installed()
    lock = place.plan().lock
    check_versions(place.venv, lock)
    (site,) = place.venv.glob("lib/python*/site-packages")
    (site / "beta-1.0.dist-info").rename(site / "beta-1.0.0.dist-info")  # another spelling of the same version
    assert drift(place.venv, lock) == []
    (site / "beta-1.0.0.dist-info").rename(site / "Del.ta-1.0.dist-info")
    (site / "alpha-1.0.dist-info").rename(site / "alpha-1.1.dist-info")
    assert drift(place.venv, lock) == [
        "alpha: 1.1, locked 1.0",
        "beta: missing, locked 1.0",
        "del-ta 1.0: not in the lock",
    ]
    with pytest.raises(Refused, match=r"alpha: 1\.1, locked 1\.0"):
        check_versions(place.venv, lock)


def test_the_printed_commands_install_the_same(place: Place) -> None:
    dry = place.install("--dry-run")
    assert not place.venv.exists()
    lines = envelope(dry)["data"]["commands"]
    run_lines(lines, place)
    assert place.packages() == FIRST
    run_lines(lines, place)  # renames the existing environment
    assert place.remaining_files() == ["mine", "mine.~1~"]
    other = place.home / "envs/other"
    assert place.install("--venv", str(other)).returncode == 0
    files = {
        str(path.relative_to(other))
        for path in other.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.name not in ("envdoctor.json", ".lock")
    }
    assert files == {
        str(path.relative_to(place.venv))
        for path in place.venv.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.name != ".lock"
    }


def test_the_human_dry_run_prints_the_same_commands(place: Place) -> None:
    lines = envelope(place.install("--dry-run"))["data"]["commands"]
    shown = place.install("--dry-run", "--format", "human", COLUMNS="40").stdout.splitlines()
    assert [line for line in shown if not line.startswith("#")] == lines
    assert shlex.split(lines[-1])[-1] == str(place.venv)
    assert not any("--hash" in line for line in shown)


def test_a_dry_run_summarizes_the_install(place: Place) -> None:
    data = envelope(place.install("--dry-run"))["data"]
    assert (data["replaced"], data["changes"]) == ("", [])
    file = Path(data["lock_file"])
    assert file.is_relative_to(place.home / ".cache/envdoctor")
    assert [line.split()[0] for line in file.read_text().splitlines()] == [
        f"{name}=={version}" for name, version in FIRST.items()
    ]
    assert all("--hash=sha256:" in line for line in file.read_text().splitlines())
    place.copy_installed()
    offer_newer_version(place)
    data = envelope(place.install("--dry-run", "--upgrade"))["data"]
    assert data["replaced"].startswith("mine, lock ")
    changes = [f"{name} {FIRST[name]} -> {SECOND[name]}" for name in FIRST if FIRST[name] != SECOND[name]]
    assert data["changes"] == changes
    shown = place.install("--dry-run", "--upgrade", "--format", "human").stdout.splitlines()
    assert re.fullmatch(r"# mine into .*/mine: Python 3\.\d+, 3 packages, torch 9\.9\.0\+cpu.*", shown[0])
    assert shown[1:3] == [
        f"# replaces the environment there ({data['replaced']}); {len(changes)} changed packages:",
        f"#   {changes[0]}",
    ]


def test_downloaded_bytes_are_reported(place: Place) -> None:
    """uv reports wheels from 1 MiB on: two of them, the larger one of 12 MiB."""
    write_wheel(place.wheels, "alpha", "2.0", files={"alpha/data.bin": os.urandom(12 << 20)})
    write_wheel(place.wheels, "beta", "2.0", files={"beta/data.bin": os.urandom(3 << 20)})
    write_profile(place.profile, "alpha", "beta")
    output: list[InstallProgress] = []
    progress = {mib: threading.Event() for mib in (0, 3)}  # with this much downloaded, of 15 MiB

    def record(each: InstallProgress) -> None:
        output.append(each)
        if each.to_download >> 20 == 15 and each.downloaded >> 20 in progress:
            progress[each.downloaded >> 20].set()

    with serve(Index({"main": place.wheels})) as index:
        plan = place.plan(PIP_CONFIG_FILE="/dev/null", PIP_INDEX_URL=index.url())
        index.before_body = lambda path: "/files/" not in path or progress[3 if "alpha-" in path else 0].wait(60)
        place.install_plan(plan, record)
    sync = [each for each in output if each.step == 2]
    steps = sorted({(each.downloaded >> 20, each.to_download >> 20) for each in sync})
    assert (0, 15) in steps
    assert (3, 15) in steps
    assert steps[-1] == (15, 15)
    log = (place.home / "log").read_text()
    assert "\r" not in log
    assert "\x1b" not in log


def test_a_line_in_two_reads_counts_once() -> None:
    tracker = DownloadTracker()
    for text in ("Downloading tor", "ch (182.9MiB)\nDown", "loading numpy (1.5GiB)\n Downl", "oaded torch\n", "Prep"):
        tracker.read(text)
    assert tracker.total == int(182.9 * 2**20) + int(1.5 * 2**30)
    assert tracker.done == int(182.9 * 2**20)
    assert tracker.current_line == "Downloaded torch"


def test_the_rate_is_that_of_the_last_window(monkeypatch: pytest.MonkeyPatch) -> None:
    received, now = iter([1_000, 9_000, 4_000]), [100.0]
    monkeypatch.setattr("envdoctor.install.progress.received_bytes", lambda: next(received))
    monkeypatch.setattr("envdoctor.install.progress.time", SimpleNamespace(monotonic=lambda: now[0]))
    tracker = DownloadTracker()
    assert tracker.rate() is None  # no download
    tracker.read("Downloading torch (182.9MiB)\n")
    assert tracker.rate() is None  # nothing measured yet
    now[0] += 4
    assert tracker.rate() == 2_000
    now[0] += WINDOW_SECONDS / 2
    assert tracker.rate() == 2_000
    now[0] += WINDOW_SECONDS
    assert tracker.rate() == 0  # a counter that was reset
    tracker.read("Downloaded torch\n")
    assert tracker.rate() is None


def test_temporary_files_are_removed(place: Place) -> None:
    temporary = place.home / "temporary"
    temporary.mkdir()
    place.install(TMPDIR=str(temporary))
    write_profile(place.profile, "nowhere-to-be-found")
    assert place.install(TMPDIR=str(temporary)).returncode == 1
    assert list(temporary.iterdir()) == []


def test_python_path_is_not_passed_to_uv(place: Place) -> None:
    """PYTHONPATH and an active environment of the user do not affect the new environment."""
    done = place.install(VIRTUAL_ENV="/nowhere", UV_PYTHON="/nowhere/python", PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stdout
    assert place.packages() == FIRST


def test_the_locked_wheel_is_installed_from_the_cache(place: Place) -> None:
    """With the locked wheel in uv's cache, the modified wheel in the folder is not read."""
    plan = place.plan()
    write_wheel(place.wheels, "beta", "1.0", files={"beta/more.py": b"print('not the locked file')"})
    place.install_plan(plan)
    assert list(place.venv.glob("lib/python*/site-packages/beta/more.py")) == []
