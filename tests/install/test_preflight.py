"""Checks before an install: disk space, hard links, interpreter, cache and sources. Also `processes.run`."""

from __future__ import annotations

import contextlib
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
from support.command import envelope, snapshot
from support.install_place import FIRST, Place
from support.local_packages import Index, serve, write_profile, write_wheel

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


def test_hard_links_and_a_warm_cache_need_no_space(place: Place) -> None:
    place.install()
    result = survey(place.plan(), ALL)
    assert (result.links, result.cached, result.download, result.notes) == ("hard links", True, 0, ())
    (space,) = result.disk_space
    assert (space.use, space.needed) == ("the environment and uv's cache", 0)
    assert space.free > 0
    assert result.python.startswith("/")
    assert result.cache == str(place.home / "cache")


def with_wheel_sizes(plan: Plan, size: int) -> Plan:
    """The plan with this size for each wheel, in bytes, and 3 GB for the whole profile."""
    packages = tuple(msgspec.structs.replace(package, size=size) for package in plan.lock.packages)
    return msgspec.structs.replace(plan, lock=msgspec.structs.replace(plan.lock, packages=packages), disk_gb=3)


def test_downloads_need_space_in_the_cache(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = with_wheel_sizes(place.plan(), 1000)
    monkeypatch.setenv("UV_CACHE_DIR", str(place.home / "empty"))
    result = survey(plan)
    assert set(result.missing) == {"alpha", "beta", "torch"}
    assert result.download == 3000
    (space,) = result.disk_space
    assert space.needed == int(3000 * UNPACKED) + SPARE


def test_copies_need_twice_the_space_and_are_noted(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = with_wheel_sizes(place.plan(), 1000)
    monkeypatch.setenv("UV_CACHE_DIR", str(place.home / "empty"))
    result = survey(plan, environ={"UV_LINK_MODE": "copy"})
    (space,) = result.disk_space
    assert result.links == "copies"
    assert space.needed == int(2 * 3000 * UNPACKED) + SPARE
    (note,) = result.notes
    assert "cannot share files by hard links" in note


def test_without_sizes_the_disk_space_of_the_profile_is_used(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = with_wheel_sizes(place.plan(), 0)
    assert survey(plan, ALL, {"UV_LINK_MODE": "copy"}).disk_space[0].needed == 1.5 * GIB + SPARE
    monkeypatch.setenv("UV_CACHE_DIR", str(place.home / "empty"))
    result = survey(plan)
    assert result.download is None
    assert result.disk_space[0].needed == 3 * GIB + SPARE


def test_error_for_a_small_disk_contains_the_needed_space(place: Place) -> None:
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


def test_cache_on_another_disk_means_copies_and_two_checks(place: Place, other_disk: Path) -> None:
    done = place.install(UV_CACHE_DIR=str(other_disk))
    assert done.returncode == 0, done.stdout
    result = envelope(done)["data"]["survey"]
    assert result["links"] == "copies"
    assert [space["use"] for space in result["disk_space"]] == ["uv's cache", "the environment"]
    assert f"uv's cache {other_disk} and {place.home}" in result["notes"][0]
    assert place.packages() == FIRST
    human = place.install("--venv", str(place.home / "envs/other"), "--format", "human", UV_CACHE_DIR=str(other_disk))
    assert "cannot share files by hard links" in " ".join(human.stdout.split())


def test_link_mode_removes_its_test_files(tmp_path: Path, other_disk: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    assert link_mode(tmp_path / "not/there/yet", target, {}) == "hard links"
    assert link_mode(target / "not/there/yet", target, {}) == "hard links"  # as in a new home
    assert link_mode(tmp_path, target, {"UV_LINK_MODE": "symlink"}) == "copies"
    assert link_mode(other_disk, target, {}) == "copies"
    assert list(target.iterdir()) == []


def test_file_at_the_path_of_the_cache_is_an_error(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.skipif(os.geteuid() == 0, reason="root can write everywhere")
def test_unwritable_cache_is_an_error(place: Place) -> None:
    (place.home / "cache").mkdir(mode=0o500)
    with pytest.raises(EnvdoctorError, match="cannot be written to"):
        survey(place.plan(), ALL)


def test_missing_python_with_downloads_disabled(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_interpreter_of_the_survey_is_used(place: Place) -> None:
    done = place.install()
    python = envelope(done)["data"]["survey"]["python"]
    home = next(line for line in (place.venv / "pyvenv.cfg").read_text().splitlines() if line.startswith("home"))
    assert home.partition("= ")[2] == str(Path(python).parent)


def test_unreachable_sources_are_reported_first(place: Place) -> None:
    with serve(Index({"main": place.wheels})) as index:
        pip = {"PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": index.url(), "PIP_TIMEOUT": "1"}
        plan = place.plan(**pip)
    before = snapshot(place.home)
    with pytest.raises(EnvdoctorError, match=r"are not available: http://127\.0\.0\.1.*Connection refused") as caught:
        survey(plan)
    assert "envdoctor fetch" in caught.value.hint
    after = {name: data for name, data in snapshot(place.home).items() if not name.startswith("cache/")}
    assert after == {name: data for name, data in before.items() if not name.startswith("cache/")}


def test_wheel_missing_from_the_sources(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = place.plan()
    for wheel in place.wheels.glob("beta*"):
        wheel.unlink()
    monkeypatch.setenv("UV_CACHE_DIR", str(place.home / "empty"))
    with pytest.raises(EnvdoctorError, match="beta") as caught:
        survey(plan)
    assert "--upgrade" in caught.value.hint


def test_parse_missing() -> None:
    assert parse_missing("DEBUG Identified uncached distribution: torch==2.8.0\nWould download 1 package") == (
        "torch",
    )
    assert parse_missing("Would download 2 packages\n") == ("?", "?")
    assert parse_missing("Would make no changes") == ()


# Output of uv 0.13 for a truncated file and for a server that stalls.
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
def test_interrupted_downloads_count_as_unreachable(output: str, message: str) -> None:
    assert is_unreachable(output)
    assert describe_unreachable(output).startswith(message)


def test_run_returns_immediately_after_a_short_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a timeout, Popen sleeps up to 50 ms between polls, and an install starts eight short processes."""
    sleeps: list[float] = []
    monkeypatch.setattr(time, "sleep", sleeps.append)
    with subprocess.Popen(["sleep", "0.3"]) as child, contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(0.2)
    assert sleeps, "the polling of Popen is not noticed"
    sleeps.clear()
    assert run(["sleep", "0.1"], timeout=60, on_output=lambda _: None).ok
    assert run(["sleep", "0.1"], timeout=60).ok
    assert sleeps == []


def test_run_without_pidfd(monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_permission_error(_: int) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "pidfd_open", raise_permission_error)
    assert run([sys.executable, "-c", "print('x')"], timeout=30).ok
    assert run([sys.executable, "-c", "import time; time.sleep(9)"], timeout=0.2).timed_out


def test_size_of_an_environment_from_its_record_files(place: Place) -> None:
    write_wheel(place.wheels, "alpha", "1.0", requires=["beta"], files={"alpha/data.bin": os.urandom(3 << 20)})
    place.install()
    measured = size_on_disk(place.venv)
    assert installed_size(place.venv) == pytest.approx(measured, rel=0.02)
    record = read_install_record(place.venv)
    assert record
    assert record.size == pytest.approx(measured, rel=0.02)
    assert size_on_disk(EnvironmentPaths(place.venv).folder / "nowhere") == 0
