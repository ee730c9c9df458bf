"""Checks before an install writes anything: wheels, disk space, hard links, a Python interpreter, system packages."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import msgspec

from envdoctor.core.errors import BadInput, EnvdoctorError
from envdoctor.core.processes import CompletedProcess
from envdoctor.core.record import Record
from envdoctor.core.shell_commands import shell_command
from envdoctor.install.build_checks import survey_builds
from envdoctor.install.plan import Plan
from envdoctor.install.system_packages import (
    MissingNeed,
    describe_needs,
    install_command,
    install_needs,
    missing_needs,
    package_manager,
)
from envdoctor.locking.lock import Lock
from envdoctor.locking.uv import (
    describe_unreachable,
    find_uv,
    is_unreachable,
    lookup_environment,
    run_uv,
    summarize_error,
)
from envdoctor.machine.storage import read_filesystem

GIB = 1 << 30
QUERY_SECONDS = 300.0
# Bytes on disk for each byte of a wheel: 2.04 for x86-cu128-vllm (4.7 GB of wheels, 9.6 GB), 1.87 for x86-cu124-hf
# (3.0 and 5.6), measured 2026-11-21. uv unpacks while it downloads and keeps no wheel.
UNPACKED = 2.1
SPARE = 256 << 20  # for metadata, logs and bytecode


class Survey(Record, frozen=True, kw_only=True):
    """The result of the checks. `missing` lists the packages that must be downloaded."""

    cached: bool
    missing: tuple[str, ...]
    download: int | None  # bytes, None if the lock has no sizes
    cache: str
    links: Literal["hard links", "copies"]
    disk_space: tuple[DiskSpace, ...]
    python: str  # the path of an interpreter, or the source from which uv would download one
    needs: tuple[MissingNeed, ...] = ()  # of the system
    notes: tuple[str, ...] = ()


class DiskSpace(Record, frozen=True):
    """The needed and the free space of one directory, in bytes."""

    path: str
    use: str
    needed: int
    free: int


class Availability(Record, frozen=True):
    """Whether the wheels of a lock are available. `problem` is the reason if they are not, otherwise empty."""

    cached: bool  # uv's cache has all of them: no source is needed
    missing: tuple[str, ...]  # packages that must be downloaded
    problem: str = ""
    unreachable: bool = False
    python: str = ""  # the interpreter for them; empty if there is none


def survey(plan: Plan, wheels: Availability | None = None, environ: Mapping[str, str] = os.environ) -> Survey:
    """Check everything that the plan needs. Raises an error for anything that would make the install fail."""
    venv = Path(plan.venv)
    parent = next(folder for folder in venv.parents if folder.exists())
    if not os.access(parent, os.W_OK | os.X_OK):
        raise BadInput(
            f"{parent} cannot be written to", expected="a writable directory", hint="envdoctor install --venv PATH"
        )
    cache = cache_folder(plan)
    links = link_mode(cache, parent, environ)
    wheels = wheels or check_wheels(plan.lock, plan.arguments, plan.environment)
    python = wheels.python or find_python(plan)
    if wheels.problem:
        raise _unavailable(wheels, plan)
    download = download_size(plan, wheels.missing)
    disk_space = tuple(_disk_space(plan, wheels.missing, download, cache, links))
    check_disk_space(disk_space, plan)
    manager = package_manager(environ)
    interpreter = Path(python) if python.startswith("/") else None
    needs = tuple(missing_needs(plan.system, plan.lock.python, interpreter, manager, environ))
    builds = survey_builds(plan, interpreter, manager, environ)
    needs += tuple(need for need in builds.needs if need not in needs)
    copies = "" if links == "hard links" else _copies_note(cache, parent, disk_space)
    notes = (*filter(None, (copies, describe_needs(needs, manager) if needs else "")), *builds.notes)
    return Survey(
        cached=wheels.cached, missing=wheels.missing, download=download, cache=str(cache), links=links,
        disk_space=disk_space, python=python, needs=needs, notes=notes,
    )  # fmt: skip


def install_missing_needs(found: Survey, plan: Plan, log: Path, environ: Mapping[str, str] = os.environ) -> Survey:
    """Install the missing system packages and check again. Only called if the user requested it with --system."""
    manager = package_manager(environ)
    install_needs(found.needs, manager, log)
    interpreter = Path(found.python) if found.python.startswith("/") else None
    names = [need.name for need in found.needs]
    if still_missing := tuple(missing_needs(names, plan.lock.python, interpreter, manager, environ)):
        raise EnvdoctorError(
            f"after {' '.join(install_command(found.needs, manager))}: {describe_needs(still_missing, manager)}",
            expected="the needs to be met by the installed packages",
            hint=f"read the log {log}",
        )
    resolved = describe_needs(found.needs, manager)
    notes = (*(note for note in found.notes if note != resolved), f"installed on the system: {', '.join(names)}")
    return msgspec.structs.replace(found, needs=(), notes=notes)


def cache_folder(plan: Plan) -> Path:
    """uv's cache according to uv itself (variables, uv.toml). An error if it is not writable."""
    result = run_uv(["cache", "dir"], environment=plan.environment, timeout=30)
    if not result.ok:
        raise EnvdoctorError(
            f"uv cache dir: {summarize_error(result.output)}",
            expected="uv's cache directory",
            hint="uv cache dir",
        )
    folder = Path(result.output.strip().splitlines()[-1])
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise EnvdoctorError(
            f"uv's cache {folder} cannot be written to" + (f" ({existing})" if existing != folder else ""),
            expected="a writable directory: uv unpacks downloads there",
            hint="export UV_CACHE_DIR=/path/to/a/writable/directory, then run the command again",
        )
    return folder


def link_mode(cache: Path, target: Path, environ: Mapping[str, str]) -> Literal["hard links", "copies"]:
    """Whether files of the cache can be hard-linked into the environment. Tries it with a temporary file."""
    if environ.get("UV_LINK_MODE", "hardlink") not in ("hardlink", "clone"):
        return "copies"
    source = next(path for path in (cache, *cache.parents) if path.exists())
    if source.stat().st_dev != target.stat().st_dev:
        return "copies"
    try:
        with tempfile.NamedTemporaryFile(dir=source, prefix=".envdoctor-link-") as file:
            linked = target / f"{Path(file.name).name}.linked"  # another name, since both may be the same directory
            os.link(file.name, linked)
            linked.unlink()
    except OSError:
        return "copies"
    return "hard links"


def find_python(plan: Plan) -> str:
    """The interpreter that uv would use, or the source from which it would download one."""
    found = _find_interpreter(plan.lock.python, plan.environment)
    if found.ok:
        return _last_line(found)
    if re.search(r"^never$|^manual$", os.environ.get("UV_PYTHON_DOWNLOADS", "")) or "--no-index" in plan.arguments:
        raise BadInput(
            f"there is no Python {plan.lock.python} on this machine: {summarize_error(found.output)}",
            expected="an interpreter of that version, or permission to download one",
            hint=shell_command(
                "uv python install {}, or envdoctor install --python X.Y with an installed version", plan.lock.python
            ),
        )
    mirror = os.environ.get("UV_PYTHON_INSTALL_MIRROR", "")
    source = mirror or "the python-build-standalone releases on GitHub"
    return f"not installed: uv downloads Python {plan.lock.python} from {source}"


def _find_interpreter(version: str, environment: Mapping[str, str]) -> CompletedProcess:
    return run_uv(["python", "find", version], environment=environment, timeout=60)


def _last_line(found: CompletedProcess) -> str:
    """The last line of uv's output, which is the path: warnings come before it."""
    return found.output.strip().splitlines()[-1]


def check_wheels(lock: Lock, arguments: Sequence[str], environment: Mapping[str, str]) -> Availability:
    """Check with dry runs of uv whether the wheels of a lock are available. Finds the interpreter in parallel."""
    find_uv()  # before the threads start: sysconfig, which it uses, does not fill its table in a thread-safe way
    with ThreadPoolExecutor(1) as pool:
        search = pool.submit(_find_interpreter, lock.python, environment)
        wheels = _query_wheels(lock, arguments, environment)
        found = search.result()
    return msgspec.structs.replace(wheels, python=_last_line(found) if found.ok else "")


def _query_wheels(lock: Lock, arguments: Sequence[str], environment: Mapping[str, str]) -> Availability:
    """Query uv's cache, and the package sources only if the cache does not have all wheels."""
    offline = _dry_run(lock, (*arguments, "--offline"), environment)
    missing = parse_missing(offline.output)
    if offline.ok and not missing:
        return Availability(cached=True, missing=())
    online = _dry_run(lock, arguments, lookup_environment() | dict(environment))
    if online.ok:
        missing = parse_missing(online.output)
        return Availability(cached=not missing, missing=missing)
    if online.timed_out or is_unreachable(online.output):
        problem = online.ending if online.timed_out else describe_unreachable(online.output)
        return Availability(cached=False, missing=missing, problem=problem, unreachable=True)
    return Availability(cached=False, missing=missing, problem=summarize_error(online.output))


def _dry_run(lock: Lock, arguments: Sequence[str], environment: Mapping[str, str]) -> CompletedProcess:
    with tempfile.TemporaryDirectory(prefix="envdoctor-check-") as folder:
        file = Path(folder, "lock.txt")
        file.write_text(lock.text)
        return run_uv(
            ["pip", "sync", "--dry-run", "--verbose", "--target", Path(folder, "nowhere"),
             "--python-version", lock.python, *arguments, file],
            environment=environment, timeout=QUERY_SECONDS,
        )  # fmt: skip


def parse_missing(output: str) -> tuple[str, ...]:
    """The packages that uv would download, or "?" for each if it only prints their number.

    DEBUG Identified uncached distribution: torch==2.8.0
    Would download 4 packages
    """
    names = re.findall(r"Identified uncached distribution: (\S+?)==", output)
    count = re.search(r"Would download (\d+) package", output)
    return tuple(names) or ("?",) * (int(count[1]) if count else 0)


def _unavailable(wheels: Availability, plan: Plan) -> EnvdoctorError:
    if wheels.unreachable:
        return EnvdoctorError(
            f"the packages are not available: {wheels.problem}",
            expected="the sources that the profile was resolved from",
            hint="check the network; or install without one: envdoctor fetch, then envdoctor install --from DIR",
        )
    return EnvdoctorError(
        f"the packages are not available: {wheels.problem}",
        expected="every wheel of the lock in the sources",
        hint=shell_command("envdoctor install {} --upgrade, which resolves again", plan.profile),
    )


def download_size(plan: Plan, missing: Sequence[str]) -> int | None:
    """Bytes of the missing wheels; None if the lock does not have all sizes."""
    by_name = {package.name: package.size for package in plan.lock.packages}
    sizes = [by_name.get(name, 0) for name in missing]
    return sum(sizes) if all(sizes) else None


def _disk_space(plan: Plan, missing: Sequence[str], download: int | None, cache: Path, links: str) -> list[DiskSpace]:
    """The space that uv's cache and the environment need, as one sum if they are on the same file system.

    Without sizes in the lock, the cache and the environment are each assumed to need half of the profile's disk_gb.
    """
    venv = Path(plan.venv)
    sizes = [package.size for package in plan.lock.packages]
    half = plan.disk_gb * GIB / 2
    into_cache = 0.0
    if missing:
        into_cache = download * UNPACKED if download is not None else half if links == "copies" else 2 * half
    into_venv = 0.0 if links == "hard links" else sum(sizes) * UNPACKED if all(sizes) else half
    if _device(cache) == _device(venv):
        return [_space(venv, "the environment and uv's cache", into_cache + into_venv)]
    return [_space(cache, "uv's cache", into_cache), _space(venv, "the environment", into_venv)]


def _space(path: Path, use: str, needed: float) -> DiskSpace:
    filesystem = read_filesystem(path, {}).value
    return DiskSpace(str(path), use, int(needed) + (SPARE if needed else 0), filesystem.free if filesystem else -1)


def check_disk_space(disk_space: Sequence[DiskSpace], plan: Plan) -> None:
    """Refuse an install that would fill the disk."""
    for space in disk_space:
        if 0 <= space.free < space.needed:
            other_cache = "export UV_CACHE_DIR=/a/larger/disk/uv" if space.use == "uv's cache" else ""
            raise BadInput(
                f"{space.free / GIB:.1f} GiB are free for {space.path} ({space.use})",
                expected=f"at least {space.needed / GIB:.1f} GiB for profile '{plan.profile}'",
                hint=other_cache
                or "envdoctor install --venv /a/larger/disk/NAME, or free disk space (envdoctor clean)",
            )


def _copies_note(cache: Path, target: Path, disk_space: Sequence[DiskSpace]) -> str:
    needed = max(space.needed for space in disk_space)
    return (
        f"uv's cache {cache} and {target} cannot share files by hard links: every file is copied, "
        f"which takes {needed / GIB:.1f} GiB and more time; "
        "a cache on the same file system (UV_CACHE_DIR) avoids both"
    )


def _device(path: Path) -> int:
    return next(folder for folder in (path, *path.parents) if folder.exists()).stat().st_dev
