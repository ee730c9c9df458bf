"""Checks before an install: disk space, hard links, interpreter, cache, sources; and the waiting for processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from command import envelope, snapshot
from install_place import FIRST, Place
from local_packages import Index, serve, write_profile, write_wheel

from envdoctor.core.errors import BadInput, EnvdoctorError
from envdoctor.core.processes import run
from envdoctor.environment.managed import EnvironmentPaths, read_install_record, size_on_disk
from envdoctor.install import preflight
from envdoctor.install.install import installed_size
from envdoctor.install.plan import Plan
from envdoctor.install.preflight import (
    GIB,
    SPARE,
    UNPACKED,
    Availability,
    DiskSpace,
    link_mode,
    parse_missing,
    survey,
)
from envdoctor.locking.uv import describe_unreachable, is_unreachable

ALL = Availability(cached=True, missing=())


def test_with_hard_links_and_a_warm_cache_no_space_is_needed(place: Place) -> None:
    place.install()
    found = survey(place.plan(), ALL)
    assert (found.links, found.cached, found.download, found.notes) == ("hard links", True, 0, ())
    (room,) = found.disk_space
    assert (room.use, room.needed) == ("the environment and uv's cache", 0)
    assert room.free > 0
    assert found.python.startswith("/")
    assert found.cache == str(place.home / "cache")


def sized(plan: Plan, size: int) -> Plan:
    """The plan with wheels of the given size."""
    packages = tuple(msgspec.structs.replace(package, size=size) for package in plan.lock.packages)
    return msgspec.structs.replace(plan, lock=msgspec.structs.replace(plan.lock, packages=packages), disk_gb=3)


def test_downloads_need_space_in_the_cache(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = sized(place.plan(), 1000)
    monkeypatch.setenv("UV_CACHE_DIR", str(place.home / "empty"))
    asked = survey(plan)
    assert set(asked.missing) == {"alpha", "beta", "torch"}
    assert asked.download == 3000
    (room,) = asked.disk_space
    assert room.needed == int(3000 * UNPACKED) + SPARE


def test_copies_need_twice_the_space_and_are_noted(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = sized(place.plan(), 1000)
    monkeypatch.setenv("UV_CACHE_DIR", str(place.home / "empty"))
    one = survey(plan, environ={"UV_LINK_MODE": "copy"})
    (room,) = one.disk_space
    assert one.links == "copies"
    assert room.needed == int(2 * 3000 * UNPACKED) + SPARE
    (note,) = one.notes
    assert "cannot share files by hard links" in note


def test_without_sizes_the_disk_space_of_the_profile_is_used(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = sized(place.plan(), 0)
    assert survey(unknown, ALL, {"UV_LINK_MODE": "copy"}).disk_space[0].needed == 1.5 * GIB + SPARE
    monkeypatch.setenv("UV_CACHE_DIR", str(place.home / "empty"))
    asked = survey(unknown)
    assert asked.download is None
    assert asked.disk_space[0].needed == 3 * GIB + SPARE


def test_a_small_disk_is_refused_with_the_needed_space(place: Place) -> None:
    plan = place.plan()
    preflight.check_disk_space(
        [DiskSpace("/a", "the environment", 10, 10), DiskSpace("/a", "uv's cache", 10, -1)], plan
    )
    with pytest.raises(BadInput, match=r"1\.0 GiB are free for /big") as caught:
        preflight.check_disk_space([DiskSpace("/big", "uv's cache", 3 * GIB, GIB)], plan)
    assert "at least 3.0 GiB for profile 'mine'" in caught.value.expected
    assert "UV_CACHE_DIR" in caught.value.hint


@pytest.fixture
def other_disk(place: Place) -> Iterator[Path]:
    """A folder on another file system than that of the environment."""
    shared = Path("/dev/shm")
    if not shared.is_dir() or shared.stat().st_dev == place.home.stat().st_dev:
        pytest.skip("no other file system at /dev/shm")
    folder = Path(tempfile.mkdtemp(dir=shared))
    yield folder
    shutil.rmtree(folder)


def test_a_cache_on_another_disk_means_copies_and_two_checks(place: Place, other_disk: Path) -> None:
    done = place.install(UV_CACHE_DIR=str(other_disk))
    assert done.returncode == 0, done.stdout
    asked = envelope(done)["data"]["survey"]
    assert asked["links"] == "copies"
    assert [room["use"] for room in asked["disk_space"]] == ["uv's cache", "the environment"]
    assert f"uv's cache {other_disk} and {place.home}" in asked["notes"][0]
    assert place.packages() == FIRST
    again = place.install("--venv", str(place.home / "envs/other"), "--format", "human", UV_CACHE_DIR=str(other_disk))
    assert "cannot share files by hard links" in " ".join(again.stdout.split())


def test_the_hard_link_test_removes_its_files(tmp_path: Path, other_disk: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    assert link_mode(tmp_path / "not/there/yet", target, {}) == "hard links"
    assert link_mode(target / "not/there/yet", target, {}) == "hard links"  # both begin in one folder: a new home
    assert link_mode(tmp_path, target, {"UV_LINK_MODE": "symlink"}) == "copies"
    assert link_mode(other_disk, target, {}) == "copies"
    assert list(target.iterdir()) == []


def test_a_file_at_the_path_of_the_cache_is_refused_first(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = place.plan()
    (place.home / "file").write_text("mine")
    monkeypatch.setenv("UV_CACHE_DIR", str(place.home / "file/below"))
    with pytest.raises(EnvdoctorError, match=r"uv's cache .* cannot be written to") as caught:
        survey(plan, ALL)
    assert "UV_CACHE_DIR" in caught.value.hint
    done = place.install(UV_CACHE_DIR=str(place.home / "file"))
    assert done.returncode in (1, 2, 3)
    assert "cache" in envelope(done)["error"]["message"]
    assert not place.venv.parent.exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_unwritable_cache_is_refused(place: Place) -> None:
    (place.home / "cache").mkdir(mode=0o500)
    with pytest.raises(EnvdoctorError, match="cannot be written to"):
        survey(place.plan(), ALL)


def test_a_missing_python_without_permission_to_download(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = place.plan()
    plan = msgspec.structs.replace(plan, lock=msgspec.structs.replace(plan.lock, python="3.99"))
    write_profile(place.profile, "alpha", "torch==9.9.0+cpu", pythons=["3.99"])
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")
    with pytest.raises(BadInput, match=r"there is no Python 3\.99 on this machine") as caught:
        survey(plan, ALL)
    assert "uv python install 3.99" in caught.value.hint
    monkeypatch.delenv("UV_PYTHON_DOWNLOADS")
    online = msgspec.structs.replace(plan, arguments=())
    assert "uv downloads Python 3.99 from the python-build-standalone" in survey(online, ALL).python
    monkeypatch.setenv("UV_PYTHON_INSTALL_MIRROR", "https://mirror.example/python")
    assert "from https://mirror.example/python" in survey(online, ALL).python
    done = place.install(UV_PYTHON_DOWNLOADS="never")
    assert done.returncode in (1, 2, 3)
    assert "internal error" not in done.stderr
    assert not place.venv.parent.exists()


def test_the_found_interpreter_is_used(place: Place) -> None:
    done = place.install()
    asked = envelope(done)["data"]["survey"]["python"]
    home = next(line for line in (place.venv / "pyvenv.cfg").read_text().splitlines() if line.startswith("home"))
    assert home.partition("= ")[2] == str(Path(asked).parent)


def test_unreachable_sources_are_reported_first(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    with serve(Index({"main": place.wheels})) as web:
        pip = {"PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": web.url(), "PIP_TIMEOUT": "1"}
        plan = place.plan(**pip)
    before = snapshot(place.home)
    with pytest.raises(EnvdoctorError, match=r"are not available: http://127\.0\.0\.1.*Connection refused") as caught:
        survey(plan)
    assert "envdoctor fetch" in caught.value.hint
    after = {name: data for name, data in snapshot(place.home).items() if not name.startswith("cache/")}
    assert after == {name: data for name, data in before.items() if not name.startswith("cache/")}


def test_a_wheel_that_the_sources_do_not_have(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = place.plan()
    for wheel in place.wheels.glob("beta*"):
        wheel.unlink()
    monkeypatch.setenv("UV_CACHE_DIR", str(place.home / "empty"))
    with pytest.raises(EnvdoctorError, match="beta") as caught:
        survey(plan)
    assert "--upgrade" in caught.value.hint


def test_parsing_the_packages_that_uv_would_download() -> None:
    assert parse_missing("DEBUG Identified uncached distribution: torch==2.8.0\nWould download 1 package") == (
        "torch",
    )
    assert parse_missing("Would download 2 packages\n") == ("?", "?")
    assert parse_missing("Would make no changes") == ()


# As uv 0.13 says it: a server that ends in the middle of a file, and one that says no more.
TRUNCATED = """\
error: Failed to download `beta==2.0`
  cause: Failed to write to the distribution cache
  cause: error decoding response body
  cause: request or response body error
  cause: error reading a body from connection
  cause: end of file before message length reached
"""
STALLED = """\
error: Failed to download `alpha==1.0`
  cause: Failed to extract archive: alpha-1.0-py3-none-any.whl
  cause: I/O operation failed during extraction
  cause: Failed to download distribution due to network timeout. Try increasing UV_HTTP_TIMEOUT (current value: 1s).
"""


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (TRUNCATED, "the source of beta==2.0 is unreachable (end of file before message length reached)"),
        (STALLED, "the source of alpha==1.0 is unreachable (Failed to download distribution due to network timeout"),
    ],
)
def test_interrupted_downloads_count_as_unreachable_and_name_the_package(output: str, message: str) -> None:
    assert is_unreachable(output)
    assert describe_unreachable(output).startswith(message)


def test_the_end_of_a_short_process_is_noticed_immediately() -> None:
    """With a timeout, Popen polls every 50 ms; an install starts eight short processes."""

    def late() -> float:
        started = time.monotonic()
        done = run(
            [sys.executable, "-S", "-c", "import time; time.sleep(0.12)"], timeout=30, on_output=lambda _: None
        )
        assert done.ok
        bare = time.monotonic()
        subprocess.run([sys.executable, "-S", "-c", "import time; time.sleep(0.12)"], check=True)
        return (bare - started) - (time.monotonic() - bare)

    assert min(late() for _ in range(6)) < 0.02


def test_waiting_without_pidfd(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: int) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "pidfd_open", refused)
    assert run([sys.executable, "-c", "print('x')"], timeout=30).ok
    assert run([sys.executable, "-c", "import time; time.sleep(9)"], timeout=0.2).timed_out


def test_the_size_of_an_environment_is_from_its_record_files(place: Place) -> None:
    write_wheel(place.wheels, "alpha", "1.0", requires=["beta"], files={"alpha/data.bin": os.urandom(3 << 20)})
    place.install()
    measured = size_on_disk(place.venv)
    assert installed_size(place.venv) == pytest.approx(measured, rel=0.02)
    made = read_install_record(place.venv)
    assert made
    assert made.size == pytest.approx(measured, rel=0.02)
    assert size_on_disk(EnvironmentPaths(place.venv).folder / "nowhere") == 0
