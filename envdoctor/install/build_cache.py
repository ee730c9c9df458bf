"""The cache of compiled packages: which builds are not used by any environment."""

from __future__ import annotations

import fcntl
import filecmp
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TextIO

from envdoctor.core.patterns import lazy_pattern

# The directory names of build_step.py: a package and a digest of its build inputs. A directory that a killed `clean`
# left half removed has a longer name.
BUILD_FOLDER = lazy_pattern(r"(?P<package>[a-z0-9.-]+)-[0-9a-f]{16}")


def unused_builds(folder: Path, environments: Sequence[Path]) -> list[Path]:
    """Builds that are not installed in any environment. Of several identical builds, only the newest counts as used.

    An environment uses a build if it contains the same files of the package.
    """
    found: dict[str, list[tuple[float, Path]]] = {}
    with suppress(OSError):  # the directory does not exist, or is removed meanwhile
        for path in folder.iterdir():
            if (match := BUILD_FOLDER.fullmatch(path.name)) and path.is_dir() and not path.is_symlink():
                found.setdefault(match["package"], []).append((path.stat().st_mtime, path))
    packages = {package: [path for _, path in sorted(builds, reverse=True)] for package, builds in found.items()}
    used = {
        next((build for build in builds if _is_used(build, venv)), None)
        for venv in environments
        for builds in packages.values()
    }
    return sorted(build for builds in packages.values() for build in builds if build not in used)


def _is_used(build: Path, venv: Path) -> bool:
    """Whether an environment contains a package of the build. uv links or copies it from its unpacked wheel."""
    sites = list(venv.glob("lib/python*/site-packages"))
    packages = {info.parent for info in build.glob("archive-*/*/*.dist-info")}
    return any(_is_installed(package, site) for package in packages for site in sites)


def _is_installed(package: Path, site: Path) -> bool:
    """Whether site-packages contains all files of an unpacked wheel, except its scripts and metadata."""
    if not all((site / info.name).is_dir() for info in package.glob("*.dist-info")):
        return False
    files = (path.relative_to(package) for path in package.rglob("*") if path.is_file())
    return all(
        _is_same_file(package / path, site / path)
        for path in files
        if not path.parts[0].endswith((".dist-info", ".data"))
    )


def _is_same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other) or filecmp.cmp(one, other, shallow=False)
    except OSError:
        return False


@contextmanager
def try_lock_build(build: Path) -> Iterator[bool]:
    """Lock a build; yields False if a package is being compiled in it. OSError if a lock file cannot be opened.

    uv 0.13.8 locks the cache and each package in it. The lock of a package is used if the cache has none.
    """
    cache_lock = build / ".lock"
    locks = [cache_lock] if cache_lock.exists() else list(build.glob("sdists-*/**/.lock"))
    with ExitStack() as opened:
        yield all(_try_lock(opened.enter_context(path.open("r+"))) for path in locks)


def _try_lock(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
