"""Checks of wheel archives: path traversal, hidden members, RECORD, damaged files."""

from __future__ import annotations

import stat
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from support.local_packages import write_wheel

from envdoctor.download.wheel_archive import find_wheel_problems, parse_record

RECORD = "alpha-1.0.dist-info/RECORD"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return write_wheel(tmp_path, "alpha", "1.0", files={
        "alpha-1.0.data/scripts/run": b"#!python\n", "alpha/Ünï.py": b"1"})  # fmt: skip


def rewrite(wheel: Path, change: Callable[[dict[str, bytes]], None]) -> None:
    """Rewrite a wheel with changed members."""
    with zipfile.ZipFile(wheel) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def add(wheel: Path, name: str, *, mode: int = 0, listed: bool = True) -> None:
    """Add a member to a wheel, and to its RECORD if `listed`."""

    def change(members: dict[str, bytes]) -> None:
        members[RECORD] += f'"{name}",,\n'.encode() if listed else b""

    rewrite(wheel, change)
    with warnings.catch_warnings(), zipfile.ZipFile(wheel, "a") as archive:
        warnings.simplefilter("ignore")  # about duplicate names
        member = zipfile.ZipInfo(name)
        member.external_attr = mode << 16
        archive.writestr(member, b"target")


def test_valid_wheel_has_no_problems(wheel: Path) -> None:
    assert list(find_wheel_problems(wheel)) == []


@pytest.mark.parametrize(
    ("name", "mode", "message"),
    [
        ("../evil.py", 0, "leaves its directory"),
        ("alpha/../../evil.py", 0, "leaves its directory"),
        ("alpha-1.0.data/scripts/../../../evil", 0, "leaves its directory"),
        ("/etc/cron.d/evil", 0, "absolute"),
        ("C:/evil", 0, "absolute"),
        ("alpha\\..\\evil", 0, "backslash"),
        ("alpha//evil", 0, "not a plain path"),
        ("alpha/./evil", 0, "not a plain path"),
        ("alpha/ev\x1b[2Jil", 0, "not a plain path"),
        ("alpha/link", stat.S_IFLNK | 0o777, "symbolic link"),
        ("alpha/pipe", stat.S_IFIFO | 0o666, "special file"),
        ("alpha/__init__.py", 0, "occurs 2 times"),
        ("alpha-1.0.data/etc/passwd", 0, "expected one .data with purelib"),
        ("beta-1.0.dist-info/METADATA", 0, "expected one .dist-info"),
    ],
)
def test_invalid_members(wheel: Path, name: str, mode: int, message: str) -> None:
    add(wheel, name, mode=mode)
    assert message in " ".join(find_wheel_problems(wheel))


def test_file_that_record_does_not_list(wheel: Path) -> None:
    add(wheel, "alpha/more.pth", listed=False)
    assert list(find_wheel_problems(wheel)) == ["'alpha/more.pth' is not in RECORD"]


def test_file_that_only_record_lists(wheel: Path) -> None:
    rewrite(wheel, lambda members: members.update({RECORD: members[RECORD] + b"alpha/gone.py,,\n"}))
    assert list(find_wheel_problems(wheel)) == ["'alpha/gone.py' is in RECORD and not in the wheel"]


def test_wheel_without_record(wheel: Path) -> None:
    rewrite(wheel, lambda members: members.pop(RECORD) and None)
    assert list(find_wheel_problems(wheel)) == ["it has no RECORD"]


def test_many_problems_are_counted(wheel: Path) -> None:
    rewrite(wheel, lambda members: members.update({f"alpha/{n}.py": b"" for n in range(50)}))
    problems = list(find_wheel_problems(wheel))
    assert len(problems) == 6
    assert problems[-1] == "and 45 more not in RECORD"


def test_wheel_of_another_package(wheel: Path) -> None:
    renamed = wheel.rename(wheel.with_name("beta-1.0-py3-none-any.whl"))
    assert "expected one .dist-info of beta" in " ".join(find_wheel_problems(renamed))


def test_member_with_two_names(wheel: Path) -> None:
    # The central directory has a harmless name, the local header another one.
    data = wheel.read_bytes()
    wheel.write_bytes(data.replace(b"alpha/__init__.py", b"alpha/../../a.pth", 1))
    assert "'alpha/../../a.pth' in its local header" in " ".join(find_wheel_problems(wheel))


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"no zip at all", bytes(1000)])
def test_file_that_is_not_an_archive(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "alpha-1.0-py3-none-any.whl"
    path.write_bytes(data)
    assert next(find_wheel_problems(path)).startswith("it is not a readable wheel")
    assert "No such file" in next(find_wheel_problems(tmp_path / "none.whl"))


def test_damaged_wheels_are_reported_without_a_crash(wheel: Path) -> None:
    data = wheel.read_bytes()
    for offset in range(0, len(data), 3):
        wheel.write_bytes(data[:offset] + bytes([data[offset] ^ 0xFF]) + data[offset + 1 :])
        list(find_wheel_problems(wheel))
        wheel.write_bytes(data[:offset])
        assert list(find_wheel_problems(wheel))


def test_parse_record_with_commas_in_names() -> None:
    assert parse_record('"a, b.py",sha256=x,1\nc.py,,\n\n') == {"a, b.py", "c.py"}
