"""The install journal: append, flush, damaged files, and redaction."""

from __future__ import annotations

import errno
import json
import os
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.command import envdoctor, envelope
from support.install_place import FIRST, SECOND, Place, offer_newer_version
from support.local_packages import Index, serve

from envdoctor.environment.managed import EnvironmentPaths
from envdoctor.install.install import read_matching_record
from envdoctor.install.journal import INSTALL, Journal, JournalEntry, read_journal, unfinished_install
from envdoctor.install.lock_check import drift


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.jsonl", "20261121-153012-1", tmp_path / "log")


def entry(step: str, event: str, install: str = "a") -> JournalEntry:
    return JournalEntry(install=install, step=step, event=event, at="2026-11-21T15:30:12+00:00", process=1)  # type: ignore[arg-type]


def test_a_step_writes_its_start_and_end(journal: Journal) -> None:
    journal.log.write_bytes(b"x" * 812)
    with journal.step("sync", command=("uv", "pip", "sync"), detail="three packages"):
        journal.log.write_bytes(b"x" * 900)
        start, *more = read_journal(journal.path).entries
        assert not more
        assert (start.step, start.event, start.command) == ("sync", "start", ("uv", "pip", "sync"))
        assert (start.log, start.offset, start.process) == (str(journal.log), 812, os.getpid())
    _, end = read_journal(journal.path).entries
    assert (end.event, end.exit_code) == ("end", 0)
    assert end.seconds is not None
    assert 0 <= end.seconds < 5
    assert read_journal(journal.path).damaged == 0


def test_an_offset_of_zero_is_written(journal: Journal) -> None:
    journal.write("venv", "start", offset=0)
    (found,) = read_journal(journal.path).entries
    assert (found.log, found.offset) == (str(journal.log), 0)


def test_a_failed_step_records_its_error(journal: Journal) -> None:
    with pytest.raises(ValueError, match="no"), journal.step("sync"):
        raise ValueError("no")
    end = read_journal(journal.path).entries[-1]
    assert (end.event, end.exit_code, end.detail) == ("end", 1, "ValueError")


def test_an_unwritable_journal_does_not_hide_the_error(journal: Journal, tmp_path: Path) -> None:
    """On a full disk the error of uv is raised, not the error of the journal."""

    def fail() -> None:
        with journal.step("sync"):
            journal.path = tmp_path / "gone" / "journal.jsonl"
            raise ValueError("the cause")

    with pytest.raises(ValueError, match="the cause"):
        fail()


def test_lines_are_appended_and_flushed(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(os, "fdatasync", lambda handle: flushed.append(os.fstat(handle).st_size))
    before = b""
    for number in range(3):
        journal.write(f"step {number}", "start")
        data = journal.path.read_bytes()
        assert data.startswith(before)
        assert flushed[-1] == len(data)
        before = data
    assert len(flushed) == 3


def test_an_incomplete_line_does_not_merge_with_the_next(journal: Journal) -> None:
    journal.write("venv", "start")
    with journal.path.open("ab") as file:
        file.write(b'{"install": "a", "st')
    journal.write("sync", "start")
    found = read_journal(journal.path)
    assert [each.step for each in found.entries] == ["venv", "sync"]
    assert found.damaged == 1


def test_a_partial_write_is_an_error(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a disk that becomes full, write(2) returns the written part; the rest fails."""
    real, left = os.write, [40]

    def write(handle: int, data: bytes) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = real(handle, data[: left[0]])
        left[0] -= taken
        return taken

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(OSError, match="No space left"):
        journal.write("venv", "start")
    monkeypatch.undo()
    journal.write("venv", "start")
    assert len(read_journal(journal.path).entries) == 1


GARBAGE = b"\xff\xfe\x00\n{}\n[1]\nnull\n" + b"[" * 5000 + b'\n{"install": 1}\n' + b'{"a":' * 5000 + b"\n"


def test_invalid_lines_are_counted_and_skipped(journal: Journal) -> None:
    journal.write("venv", "start")
    with journal.path.open("ab") as file:
        file.write(GARBAGE)
    journal.write("sync", "start")
    found = read_journal(journal.path)
    assert [each.step for each in found.entries] == ["venv", "sync"]
    assert found.damaged == 7


@given(st.binary(max_size=300))
def test_any_bytes_are_accepted(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.jsonl"
    path.write_bytes(data)
    found = read_journal(path)
    unfinished_install(found.entries)
    Journal(path, "x", path).write(INSTALL, "start")
    assert read_journal(path).entries[-1].step == INSTALL


def test_an_unreadable_journal_has_no_entries(tmp_path: Path) -> None:
    assert read_journal(tmp_path / "nowhere").entries == ()
    (tmp_path / "file").touch()
    assert read_journal(tmp_path / "file/below").entries == ()
    assert read_journal(tmp_path).entries == ()
    (tmp_path / "loop").symlink_to("loop")
    assert read_journal(tmp_path / "loop").entries == ()


@pytest.mark.parametrize("kind", ["folder", "loop"])
def test_another_file_at_its_path_is_renamed(kind: str, journal: Journal) -> None:
    """An unusable journal must not prevent installs."""
    if kind == "folder":
        journal.path.mkdir()
        (journal.path / "note.txt").write_text("mine")
    else:
        journal.path.symlink_to(journal.path.name)
    journal.write("venv", "start")
    journal.write("venv", "end")
    assert len(read_journal(journal.path).entries) == 2
    (aside,) = [path for path in journal.path.parent.iterdir() if path != journal.path]
    assert aside.name.startswith("journal.jsonl.damaged-")
    if kind == "folder":
        assert (aside / "note.txt").read_text() == "mine"


def test_only_the_end_of_a_large_journal_is_read(journal: Journal) -> None:
    line = json.dumps({"install": "a", "step": "x" * 200, "event": "start", "at": "", "process": 1}) + "\n"
    with journal.path.open("w") as file:
        for _ in range(30_000):
            file.write(line)
    journal.write("sync", "start")
    found = read_journal(journal.path)
    assert found.entries[-1].step == "sync"
    assert 10_000 < len(found.entries) < 20_000
    assert found.damaged == 0


def test_unfinished_installs() -> None:
    assert unfinished_install([]) is None
    begun = [entry(INSTALL, "start"), entry("venv", "start")]
    last = unfinished_install(begun)
    assert last
    assert (last.step, last.event) == ("venv", "start")
    assert unfinished_install([*begun, entry("venv", "end"), entry(INSTALL, "end")]) is None
    assert unfinished_install([entry("rollback", "start"), entry("rollback", "end")]) is None
    assert unfinished_install([*begun, entry("rollback", "start", "b")]) is not None


def test_offsets_point_to_the_steps_in_the_log(place: Place) -> None:
    assert place.install().returncode == 0
    entries = read_journal(EnvironmentPaths(place.venv).journal).entries
    starts = {each.step: each for each in entries if each.event == "start"}
    assert list(starts) == [INSTALL, "venv", "sync", "check", "guard", "mark", "swap"]
    log = Path(starts["sync"].log).read_bytes()
    part = log[starts["sync"].offset : starts["check"].offset].decode()
    assert "+ alpha==1.0" in part
    assert "Creating virtual environment" not in part
    assert [each.exit_code for each in entries if each.event == "end"] == [0] * 7


def test_index_credentials_are_not_written(place: Place) -> None:
    """Credentials in the URL of the index, in a find-links URL, and in the output of a failing uv."""
    with serve(Index({"main": place.wheels}, user="robot:s3cr3t-token")) as web:
        address = web.url(user="robot:s3cr3t-token")
        pip = {"PIP_NO_INDEX": "", "PIP_FIND_LINKS": "", "PIP_INDEX_URL": address}
        done = place.install(**pip)
        assert done.returncode == 0, done.stderr
        offer_newer_version(place)
        web.user = "robot:changed"
        failed = place.install("--upgrade", **pip)
        assert failed.returncode
        human = place.install("--upgrade", "--format", "human", **pip)
    for text in (done.stdout, done.stderr, failed.stdout, failed.stderr, human.stdout, human.stderr):
        assert "s3cr3t" not in text
    written = [path for path in place.home.rglob("*") if path.is_file() and "cache" not in path.parts[:-1]]
    assert any(path.name == "journal.jsonl" for path in written)
    assert any(path.suffix == ".log" for path in written)
    assert [path for path in written if b"s3cr3t" in path.read_bytes()] == []


KILL = "import os, envdoctor.install.swap as s\ns.retain_previous = lambda *a: os.kill(os.getpid(), 9)"


def test_a_killed_install_is_reported_once(place: Place) -> None:
    """The install was killed after the swap: nothing is left to do, which is reported once."""
    place.copy_installed()
    offer_newer_version(place)
    assert place.install_after(KILL) == -signal.SIGKILL
    first, second = (envelope(place.install())["data"] for _ in range(2))
    assert "did not complete: its last record is the start of 'swap'" in first["resumed"]
    assert (first["unchanged"], second["unchanged"], second["resumed"]) == (True, True, "")
    assert place.packages() == SECOND


def test_a_rollback_is_not_a_killed_install(place: Place) -> None:
    place.copy_installed()
    offer_newer_version(place)
    place.install()
    assert envdoctor("rollback", "--venv", place.venv, home=place.home).returncode == 0
    assert place.packages() == FIRST
    assert "did not complete" not in place.install().stdout


def test_a_metadata_folder_without_a_version_is_drift(place: Place) -> None:
    place.copy_installed()
    plan = place.plan()
    (site,) = place.venv.glob("lib/python*/site-packages")
    folder = site / "beta-1.0.dist-info"
    for name in ("beta-.dist-info", "beta-one.dist-info", "-.dist-info", "beta.dist-info"):
        folder = folder.rename(site / name)
        assert any(line.startswith("beta: ") for line in drift(place.venv, plan.lock)), name
        assert read_matching_record(plan) is None, name
    data = envelope(place.install())["data"]
    assert data["unchanged"] is False
    assert place.packages() == FIRST


def test_files_are_flushed_before_the_install_record_is_written(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    from envdoctor.install import install

    seen: list[tuple[Path, bool]] = []
    real = install.flush_file_system

    def record_flush(folder: Path) -> None:
        seen.append((folder, (folder / "envdoctor.json").exists()))
        real(folder)

    monkeypatch.setattr(install, "flush_file_system", record_flush)
    place.install_plan(place.plan())
    assert seen == [(EnvironmentPaths(place.venv).building, False)]
    assert (place.venv / "envdoctor.json").exists()


def test_the_file_is_readable_by_others_and_not_executable(journal: Journal) -> None:
    """As the user's umask permits, also for a file that replaces a damaged one."""
    old = os.umask(0o022)
    try:
        journal.write("venv", "start")
        assert journal.path.stat().st_mode & 0o777 == 0o644
        journal.path.unlink()
        journal.path.mkdir()
        journal.write("venv", "start")
        assert journal.path.stat().st_mode & 0o777 == 0o644
    finally:
        os.umask(old)
