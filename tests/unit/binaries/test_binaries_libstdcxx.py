"""The libstdc++ that an environment's Python loads, and its version."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.compiler import compile_c

from envdoctor.binaries.libraries import read_libstdcxx


def write_library(folder: Path, *versions: str) -> Path:
    """Compile a library that defines symbol versions."""
    folder.mkdir(parents=True, exist_ok=True)
    functions = [(f"f{number}", version) for number, version in enumerate(versions)]
    (folder / "code.c").write_text("".join(f"void {name}(void) {{}}\n" for name, _ in functions) or "int unused;")
    script = "".join(f"GLIBCXX_{version} {{ global: {name}; }};\n" for name, version in functions)
    (folder / "map").write_text(script)
    options = [f"-Wl,--version-script={folder / 'map'}"] if versions else []
    compile_c(folder / "code.c", folder / "libstdc++.so.6", "-shared", "-fPIC", "-nostdlib", *options)
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


@pytest.mark.parametrize("content", [None, b"", b"\0GLIBCXX_3.4.30\0"])
def test_library_without_versions_is_unreadable(tmp_path: Path, content: bytes | None) -> None:
    folder = write_library(tmp_path / "lib")
    if content is not None:
        (folder / "libstdc++.so.6").write_bytes(content)
    fact = read_libstdcxx(tmp_path, "conda", {})
    assert fact.state == "unreadable"
    assert fact.note
