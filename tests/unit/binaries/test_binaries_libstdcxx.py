"""The libstdc++ that an environment's Python loads, and its version."""

from __future__ import annotations

from pathlib import Path

from envdoctor.binaries.libraries import read_libstdcxx


def write_library(folder: Path, *versions: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "libstdc++.so.6").write_bytes(b"\x7fELF" + b"".join(b"\0GLIBCXX_%b\0" % v.encode() for v in versions))
    return folder


def test_conda_environment_uses_its_own_copy(tmp_path: Path) -> None:
    write_library(tmp_path / "lib", "3.4", "3.4.9", "3.4.21")
    assert read_libstdcxx(tmp_path, "conda", {}).value == "3.4.21"


def test_venv_uses_the_system_copy(tmp_path: Path) -> None:
    write_library(tmp_path / "lib", "3.4.21")
    fact = read_libstdcxx(tmp_path, "venv", {})
    assert not fact.source.startswith(str(tmp_path))


def test_ld_library_path_takes_precedence(tmp_path: Path) -> None:
    old = write_library(tmp_path / "old", "3.4.18")
    write_library(tmp_path / "lib", "3.4.30")
    fact = read_libstdcxx(tmp_path, "conda", {"LD_LIBRARY_PATH": f"/nowhere:{old}"})
    assert (fact.value, fact.source) == ("3.4.18", str(old / "libstdc++.so.6"))


def test_library_without_versions_is_unreadable(tmp_path: Path) -> None:
    write_library(tmp_path / "lib")
    assert read_libstdcxx(tmp_path, "conda", {}).state == "unreadable"
