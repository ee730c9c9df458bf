"""Compiled packages that are kept for the next install: which of them no environment has."""

from __future__ import annotations

import fcntl
import filecmp
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TextIO

# As build_step.py names them: a package, and a digest of all that the build is made of. One that a killed
# `clean` was removing has a longer name.
NAME = re.compile(r"(?P<package>[a-z0-9.-]+)-[0-9a-f]{16}")


def unused_builds(folder: Path, environments: Sequence[Path]) -> list[Path]:
    """Builds that none of the environments has; of several that one has, all but the newest.

    An environment has a build if the files of the package in it are the build's.
    """
    packages = _newest_first(folder)
    used = {
        next((build for build in builds if _is_in(build, venv)), None)
        for venv in environments
        for builds in packages.values()
    }
    return sorted(build for builds in packages.values() for build in builds if build not in used)


def _newest_first(folder: Path) -> dict[str, list[Path]]:
    """The builds of each package."""
    found: dict[str, list[tuple[float, Path]]] = {}
    with suppress(OSError):  # there is none, or it goes meanwhile
        for path in folder.iterdir():
            if (named := NAME.fullmatch(path.name)) and path.is_dir() and not path.is_symlink():
                found.setdefault(named["package"], []).append((path.stat().st_mtime, path))
    return {package: [path for _, path in sorted(builds, reverse=True)] for package, builds in found.items()}


def _is_in(build: Path, venv: Path) -> bool:
    """Whether a package of the build is what the environment has: uv keeps one unpacked, and links or copies it."""
    sites = list(venv.glob("lib/python*/site-packages"))
    packages = {info.parent for info in build.glob("archive-*/*/*.dist-info")}
    return any(_is_installed(package, site) for package in packages for site in sites)


def _is_installed(package: Path, site: Path) -> bool:
    """Whether every file of an unpacked wheel lies in site-packages as it is, but for its scripts and records."""
    if not all((site / info.name).is_dir() for info in package.glob("*.dist-info")):
        return False
    files = (path for path in package.rglob("*") if path.is_file())
    inner = (path.relative_to(package) for path in files)
    return all(_is_same(package / path, site / path) for path in inner if _stays(path.parts[0]))


def _stays(top: str) -> bool:
    return not top.endswith((".dist-info", ".data"))


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other) or filecmp.cmp(one, other, shallow=False)
    except OSError:
        return False


@contextmanager
def try_lock_build(build: Path) -> Iterator[bool]:
    """Whether nothing is compiled in a build. OSError where it cannot be told.

    uv 0.13.8 locks the cache as a whole and each package in it (seen); the second counts where the first is missing.
    """
    whole = build / ".lock"
    locks = [whole] if whole.exists() else list(build.glob("sdists-*/**/.lock"))
    with ExitStack() as opened:
        yield all(_is_taken(opened.enter_context(path.open("r+"))) for path in locks)


def _is_taken(file: TextIO) -> bool:
    """Whether the lock of an open file is ours now."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
