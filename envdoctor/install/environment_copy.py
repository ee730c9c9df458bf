"""A copy of an environment that shares no file with it, and the paths inside of it."""

from __future__ import annotations

import base64
import fcntl
import glob
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import quote

from envdoctor.environment.managed import MARKER, VERIFICATION

CLONE = 0x40049409  # FICLONE of ioctl_ficlone(2): both files share their blocks until one is written
RESULTS = (MARKER, VERIFICATION, str(Path(VERIFICATION).with_suffix(".bench.json")))  # of the original only
SITE = "lib/python*/site-packages"
FILES_WITH_PATHS = (
    "pyvenv.cfg", "bin/*", f"{SITE}/*.pth", f"{SITE}/*.egg-link", f"{SITE}/__editable__*.py",
    f"{SITE}/*.dist-info/direct_url.json", "share/jupyter/kernels/*/kernel.json",
)  # fmt: skip
LARGEST_TEXT = 1 << 20  # bytes of a file that may contain the path as text
LONGEST_SHEBANG = 127  # bytes of the first line that Linux reads
METADATA_SUFFIXES = (".dist-info", ".egg-info")


def copy_environment(source: Path, target: Path) -> None:
    """Copy an environment, without the results that envdoctor stored in it. Symlinks stay symlinks.

    The directories of the copy are writable for the user. Raises OSError for the first file that cannot be copied.
    """

    def ignored(folder: str, names: list[str]) -> Iterable[str]:
        return [name for name in names if folder == str(source) and name in RESULTS]

    shutil.copytree(source, target, symlinks=True, copy_function=_copy, ignore=ignored)
    for folder, _, _ in os.walk(target):
        mode = stat.S_IMODE(os.stat(folder).st_mode)  # noqa: PTH116
        if mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(folder, mode | stat.S_IRWXU)  # noqa: PTH101
    retarget(target, source, target)


def copy_metadata(source: Path, target: Path) -> None:
    """Copy the interpreter and the metadata of an environment: what uv reads to plan an install."""
    (target / "bin").mkdir(parents=True)
    shutil.copyfile(source / "pyvenv.cfg", target / "pyvenv.cfg")
    for python in source.glob("bin/python*"):
        (target / "bin" / python.name).symlink_to(python.resolve())
    for folder in source.glob(SITE):
        site = target / folder.relative_to(source)
        site.mkdir(parents=True)
        for metadata in folder.iterdir():
            if metadata.suffix in METADATA_SUFFIXES and metadata.is_dir():
                shutil.copytree(metadata, site / metadata.name, symlinks=True)


def retarget(folder: Path, old: Path, new: Path) -> None:
    """Replace the path of an environment by another one in its scripts, its settings and its symlinks.

    The rows of changed files in RECORD change with them. Compiled Python files stay: Python sets their path when it
    loads them, except for those of a changed file, which are removed.
    """
    paths = {
        quote(os.fsencode(each)).encode(): quote(os.fsencode(new)).encode() for each in (old, old.resolve())
    }  # of file:// URLs
    paths |= {os.fsencode(each): os.fsencode(new) for each in (old, old.resolve())}
    pattern = re.compile(rb"(?<![\w.-])(" + b"|".join(map(re.escape, paths)) + rb")(?![\w.-])")
    written = []
    for path in _files_with_paths(folder):
        if path.is_symlink():
            link = os.fsencode(path.readlink())
            if pattern.match(link):
                path.unlink()
                path.symlink_to(os.fsdecode(pattern.sub(lambda found: paths[found[1]], link, count=1)))
        elif path.is_file() and path.stat().st_size <= LARGEST_TEXT:
            data = path.read_bytes()
            changed = pattern.sub(lambda found: paths[found[1]], data)
            if changed != data and not data.startswith(b"\x7fELF"):
                _write(path, with_valid_shebang(changed))
                written.append(path)
    for path in written:
        for compiled in (path.parent / "__pycache__").glob(f"{glob.escape(path.stem)}.*.pyc"):
            compiled.unlink()
    for site in folder.glob(SITE):
        _update_records(site, {os.path.relpath(path, site): path for path in written})


def _update_records(site: Path, files: dict[str, Path]) -> None:
    """Write the hash and the size of files, named as in RECORD, into the rows that have them."""
    names = re.compile("^(" + "|".join(map(re.escape, files)) + r"),sha256=[^,\n]*,\d*", re.MULTILINE)
    for record in site.glob("*.dist-info/RECORD") if files else ():
        text = os.fsdecode(record.read_bytes())
        changed = names.sub(lambda found: _row(found[1], files[found[1]]), text)
        if changed != text:
            _write(record, os.fsencode(changed))


def _row(name: str, path: Path) -> str:
    data = path.read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}"


def _files_with_paths(folder: Path) -> Iterator[Path]:
    for pattern in FILES_WITH_PATHS:
        yield from sorted(folder.glob(pattern))


def with_valid_shebang(script: bytes) -> bytes:
    """The script, started by the shell if the path of its interpreter is too long or has a space."""
    line, _, rest = script.partition(b"\n")
    match = re.fullmatch(rb"#!(/.*/bin/python[\w.]*)", line)
    if not match or (len(line) <= LONGEST_SHEBANG and b" " not in line):
        return script
    return b"#!/bin/sh\n'''exec' '" + match[1] + b"' \"$0\" \"$@\"\n' '''\n" + rest


def _copy(source: str, target: str) -> None:
    """Copy a file. Btrfs and XFS share the blocks of both until one is written."""
    with open(source, "rb") as original, open(target, "wb") as copy:  # noqa: PTH123
        try:
            fcntl.ioctl(copy, CLONE, original.fileno())
        except OSError:
            shutil.copyfileobj(original, copy, 1 << 20)
    shutil.copystat(source, target)


def _write(path: Path, data: bytes) -> None:
    """Replace a file, which may be read-only, and keep its mode."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_bytes(data)
    shutil.copymode(path, temporary)
    temporary.rename(path)
