"""Sample environments for tests: folders, metadata, and libraries compiled with the C compiler."""

from __future__ import annotations

import struct
import tempfile
from functools import cache
from pathlib import Path

from support.compiler import compile_c

# The symbols that differ between torch's two C++ ABIs (the function of TORCH_CHECK).
NEW_ABI = "_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
OLD_ABI = "_ZN3c106detail14torchCheckFailEPKcS2_jRKSs"
SYM_NE = "_ZNK3c106SymInt6sym_neERKS0_"


def compile_library(path: Path, code: str, *options: str) -> Path:
    """Compile C into a shared library."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    names_files = any("/" in text for text in (code, *options))  # whose content may change
    path.write_bytes(_library.__wrapped__(code, options) if names_files else _library(code, options))
    path.chmod(0o755)
    return path


@cache
def _library(code: str, options: tuple[str, ...]) -> bytes:
    """The library of this code, compiled once in this process."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "library.c")
        source.write_text(code)
        return compile_c(source, source.with_suffix(".so"), "-shared", "-fPIC", "-w", *options).read_bytes()


def make_venv(prefix: Path, *, version: str = "3.11.7", settings: str = "") -> Path:
    """Create a virtual environment like `uv venv`; returns its site-packages."""
    site = prefix / f"lib/python{version.rpartition('.')[0]}/site-packages"
    site.mkdir(parents=True)
    (prefix / "bin").mkdir()
    (prefix / "pyvenv.cfg").write_text(f"home = /usr/bin\nversion_info = {version}\n{settings}")
    (prefix / "bin/python").symlink_to("/usr/bin/python3")
    return site


def add_distribution(site: Path, name: str, version: str, *, headers: str = "", files: tuple[str, ...] = ()) -> Path:
    """Add a .dist-info with METADATA, INSTALLER and RECORD."""
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(
        f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n{headers}\n# {name}\nName: of the body\n"
    )
    (folder / "INSTALLER").write_text("uv\n")
    (folder / "RECORD").write_text("".join(f"{file},sha256=abc,123\n" for file in files))
    return folder


def add_torch(site: Path, *, defines: tuple[str, ...] = (NEW_ABI, SYM_NE), cuda: str = "'12.8'") -> None:
    """Add a torch whose libc10.so defines these symbols."""
    compile_library(site / "torch/lib/libc10.so", "".join(f"void {name}(void) {{}}\n" for name in defines))
    (site / "torch/version.py").write_text(
        "from typing import Optional\n__version__ = '2.8.0+cu128'\n"
        f"cuda: Optional[str] = {cuda}\nhip: Optional[str] = None\n"
    )
    add_distribution(site, "torch", "2.8.0", files=("torch/version.py", "torch/lib/libc10.so"))


def fatbin_entry(kind: int, architecture: int, *, flags: int = 0x11, isa: tuple[int, int] = (0, 0)) -> bytes:
    """One entry of a fatbin container, 64 bytes of header and 8 of payload."""
    header = bytearray(64)
    struct.pack_into("<HHIQ", header, 0, kind, 0x101, 64, 8)
    struct.pack_into("<HHI", header, 0x18, isa[1], isa[0], architecture)
    struct.pack_into("<Q", header, 0x28, flags)
    return bytes(header) + b"payload!"


def fatbin_container(*entries: bytes) -> bytes:
    """A fatbin container with these entries."""
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, sum(map(len, entries))) + b"".join(entries)


def compile_with_fatbin(path: Path, section: bytes) -> Path:
    """Compile a shared library with these bytes in its section .nv_fatbin."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(_library_with_fatbin(section))
    path.chmod(0o755)
    return path


@cache
def _library_with_fatbin(section: bytes) -> bytes:
    """The library with this section, compiled once in this process."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "section.bin")
        data.write_bytes(section)
        code = f'__asm__(".section .nv_fatbin,\\"a\\"\\n.incbin \\"{data}\\"\\n.previous\\n");'
        return compile_library(Path(folder, "library.so"), code).read_bytes()
