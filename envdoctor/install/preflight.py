"""What an install needs of the machine, asked before anything is written: wheels, room, links, a Python."""

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
from envdoctor.core.processes import Finished
from envdoctor.core.records import Record
from envdoctor.install.build_checks import survey_builds
from envdoctor.install.plan import Plan
from envdoctor.install.system_packages import (
    MissingNeed,
    command_for,
    install_needs,
    missing_needs,
    note,
    package_manager,
)
from envdoctor.locking.resolve import Lock
from envdoctor.locking.uv import find_uv, is_unreachable, looks_up, reason, run_uv, unreachable
from envdoctor.machine.storage import read_filesystem

GIB = 1 << 30
ASK_SECONDS = 300.0
# Bytes on disk for each byte of a wheel: 2.04 for x86-cu128-vllm (4.7 GB of wheels, 9.6 GB), 1.87 for x86-cu124-hf
# (3.0 and 5.6), measured 2026-11-21. uv unpacks while it downloads and keeps no wheel.
UNPACKED = 2.1
SPARE = 256 << 20  # for metadata, logs and bytecode


class Survey(Record, frozen=True, kw_only=True):
    """What was found; `missing` are the packages that must be downloaded."""

    cached: bool
    missing: tuple[str, ...]
    download: int | None  # bytes, None where the lock does not tell sizes
    cache: str
    links: Literal["hard links", "copies"]
    rooms: tuple[Room, ...]
    python: str  # an interpreter, or where uv would get one
    needs: tuple[MissingNeed, ...] = ()  # of the system
    notes: tuple[str, ...] = ()


class Room(Record, frozen=True):
    """What one place needs and has, in bytes."""

    path: str
    use: str
    needed: int
    free: int


class Availability(Record, frozen=True):
    """Whether the wheels of a lock can be had. `problem` is why not, empty where they can."""

    cached: bool  # uv has them all: no source is needed
    missing: tuple[str, ...]  # packages that must be downloaded
    problem: str = ""
    unreachable: bool = False
    python: str = ""  # the interpreter for them, looked for meanwhile; empty: there is none


def survey(plan: Plan, wheels: Availability | None = None, environ: Mapping[str, str] = os.environ) -> Survey:
    """Ask for wheels, room and Python; raises what stands in the way, before anything is written."""
    venv = Path(plan.venv)
    parent = next(place for place in venv.parents if place.exists())
    if not os.access(parent, os.W_OK | os.X_OK):
        raise BadInput(
            f"{parent} cannot be written to", expected="a folder of yours", hint="envdoctor install --venv PATH"
        )
    cache = cache_folder(plan)
    links = link_mode(cache, parent, environ)
    wheels = wheels or ask_for_wheels(plan.lock, plan.arguments, plan.environment)
    python = wheels.python or find_python(plan)
    if wheels.problem:
        raise _not_to_be_had(wheels, plan)
    download = _bytes(plan, wheels.missing)
    rooms = tuple(_rooms(plan, wheels.missing, download, cache, links))
    refuse_too_small(rooms, plan)
    manager = package_manager(environ)
    interpreter = Path(python) if python.startswith("/") else None
    needs = tuple(missing_needs(plan.system, plan.lock.python, interpreter, manager, environ))
    builds = survey_builds(plan, interpreter, manager, environ)
    needs += tuple(need for need in builds.needs if need not in needs)
    copies = "" if links == "hard links" else _copies_note(cache, parent, rooms)
    notes = (*filter(None, (copies, note(needs, manager) if needs else "")), *builds.notes)
    return Survey(
        cached=wheels.cached, missing=wheels.missing, download=download, cache=str(cache), links=links, rooms=rooms,
        python=python, needs=needs, notes=notes,
    )  # fmt: skip


def meet_needs(asked: Survey, plan: Plan, log: Path, environ: Mapping[str, str] = os.environ) -> Survey:
    """Install what the system lacks and look again; only ever called when it was asked for."""
    manager = package_manager(environ)
    install_needs(asked.needs, manager, log)
    interpreter = Path(asked.python) if asked.python.startswith("/") else None
    names = [need.name for need in asked.needs]
    if still := tuple(missing_needs(names, plan.lock.python, interpreter, manager, environ)):
        raise EnvdoctorError(
            f"after {' '.join(command_for(asked.needs, manager))}: {note(still, manager)}",
            expected="what was installed to be found",
            hint=f"read the log {log}",
        )
    told = note(asked.needs, manager)
    notes = (*(each for each in asked.notes if each != told), f"installed on the system: {', '.join(names)}")
    return msgspec.structs.replace(asked, needs=(), notes=notes)


def cache_folder(plan: Plan) -> Path:
    """uv's cache, as uv itself finds it (variables, uv.toml); refused where it cannot be written to."""
    told = run_uv(["cache", "dir"], environment=plan.environment, deadline=30)
    if not told.ok:
        raise EnvdoctorError(f"uv cache dir: {reason(told.output)}", expected="the folder of uv's cache")
    folder = Path(told.output.strip().splitlines()[-1])
    existing = next(place for place in (folder, *folder.parents) if place.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise EnvdoctorError(
            f"uv's cache {folder} cannot be written to" + (f" ({existing})" if existing != folder else ""),
            expected="a folder of yours: uv unpacks what it downloads there",
            hint="export UV_CACHE_DIR=/a/folder/of/yours, then run this again",
        )
    return folder


def link_mode(cache: Path, target: Path, environ: Mapping[str, str]) -> Literal["hard links", "copies"]:
    """Whether files of the cache can be linked into the environment, by trying it."""
    if environ.get("UV_LINK_MODE", "hardlink") not in ("hardlink", "clone"):
        return "copies"
    source = next(place for place in (cache, *cache.parents) if place.exists())
    if source.stat().st_dev != target.stat().st_dev:
        return "copies"
    try:
        with tempfile.NamedTemporaryFile(dir=source, prefix=".envdoctor-link-") as file:
            linked = target / f"{Path(file.name).name}.linked"  # a name of its own: both may be one folder
            os.link(file.name, linked)
            linked.unlink()
    except OSError:
        return "copies"
    return "hard links"


def find_python(plan: Plan) -> str:
    """The interpreter that uv would take, or where it would get one."""
    found = _look_for_python(plan.lock.python, plan.environment)
    if found.ok:
        return _path_in(found)
    if re.search(r"^never$|^manual$", os.environ.get("UV_PYTHON_DOWNLOADS", "")) or "--no-index" in plan.arguments:
        raise BadInput(
            f"there is no Python {plan.lock.python} on this machine: {reason(found.output)}",
            expected="an interpreter of that version, or leave to download one",
            hint=f"uv python install {plan.lock.python}, or envdoctor install --python X.Y with one that is here",
        )
    mirror = os.environ.get("UV_PYTHON_INSTALL_MIRROR", "")
    source = mirror or "the python-build-standalone releases on GitHub"
    return f"none here: uv downloads Python {plan.lock.python} from {source}"


def _look_for_python(version: str, environment: Mapping[str, str]) -> Finished:
    return run_uv(["python", "find", version], environment=environment, deadline=60)


def _path_in(found: Finished) -> str:
    """The interpreter's path, which comes after whatever uv warns of."""
    return found.output.strip().splitlines()[-1]


def ask_for_wheels(lock: Lock, arguments: Sequence[str], environment: Mapping[str, str]) -> Availability:
    """uv's dry run of a lock, while another uv looks for the interpreter: both take a tenth of a second or more."""
    find_uv()  # once, before there are two: sysconfig, which it asks, fills its table in no thread-safe way
    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(_look_for_python, lock.python, environment)
        wheels = _ask_for_wheels(lock, arguments, environment)
        found = looking.result()
    return msgspec.structs.replace(wheels, python=_path_in(found) if found.ok else "")


def _ask_for_wheels(lock: Lock, arguments: Sequence[str], environment: Mapping[str, str]) -> Availability:
    """From uv's cache alone, and if that has not all of them, from the sources."""
    offline = _dry_run(lock, (*arguments, "--offline"), environment)
    missing = parse_missing(offline.output)
    if offline.ok and not missing:
        return Availability(cached=True, missing=())
    online = _dry_run(lock, arguments, looks_up() | dict(environment))
    if online.ok:
        missing = parse_missing(online.output)
        return Availability(cached=not missing, missing=missing)
    if online.timed_out or is_unreachable(online.output):
        told = online.ending if online.timed_out else unreachable(online.output)
        return Availability(cached=False, missing=missing, problem=told, unreachable=True)
    return Availability(cached=False, missing=missing, problem=reason(online.output))


def _dry_run(lock: Lock, arguments: Sequence[str], environment: Mapping[str, str]) -> Finished:
    with tempfile.TemporaryDirectory(prefix="envdoctor-ask-") as folder:
        file = Path(folder, "lock.txt")
        file.write_text(lock.text)
        return run_uv(
            ["pip", "sync", "--dry-run", "--verbose", "--target", Path(folder, "nowhere"),
             "--python-version", lock.python, *arguments, file],
            environment=environment, deadline=ASK_SECONDS,
        )  # fmt: skip


def parse_missing(output: str) -> tuple[str, ...]:
    """Packages that uv would download, or "?" for each where it only says how many.

    DEBUG Identified uncached distribution: torch==2.8.0
    Would download 4 packages
    """
    named = re.findall(r"Identified uncached distribution: (\S+?)==", output)
    counted = re.search(r"Would download (\d+) package", output)
    return tuple(named) or ("?",) * (int(counted[1]) if counted else 0)


def _not_to_be_had(wheels: Availability, plan: Plan) -> EnvdoctorError:
    if wheels.unreachable:
        return EnvdoctorError(
            f"the packages cannot be had: {wheels.problem}",
            expected="the sources that the profile was resolved from",
            hint="check the network; or bring the wheels: envdoctor fetch, then envdoctor install --from DIR",
        )
    return EnvdoctorError(
        f"the packages cannot be had: {wheels.problem}",
        expected="every wheel of the lock in the sources",
        hint=f"envdoctor install --profile {plan.profile} --upgrade, which resolves anew",
    )


def _bytes(plan: Plan, missing: Sequence[str]) -> int | None:
    """Bytes of the wheels that are missing; None where one's size is not in the lock."""
    sizes = {package.name: package.size for package in plan.lock.packages}
    wanted = [sizes.get(name, 0) for name in missing]
    return sum(wanted) if all(wanted) else None


def _rooms(plan: Plan, missing: Sequence[str], download: int | None, cache: Path, links: str) -> list[Room]:
    """What the cache and the environment need, together where they share a file system.

    Where the lock tells no sizes, the profile's word for both together stands in: half of it for each.
    """
    venv = Path(plan.venv)
    sizes = [package.size for package in plan.lock.packages]
    half = plan.disk_gb * GIB / 2
    into_cache = 0.0
    if missing:
        into_cache = download * UNPACKED if download is not None else half if links == "copies" else 2 * half
    into_venv = 0.0 if links == "hard links" else sum(sizes) * UNPACKED if all(sizes) else half
    if _device(cache) == _device(venv):
        return [_room(venv, "the environment and uv's cache", into_cache + into_venv)]
    return [_room(cache, "uv's cache", into_cache), _room(venv, "the environment", into_venv)]


def _room(path: Path, use: str, needed: float) -> Room:
    return Room(str(path), use, int(needed) + (SPARE if needed else 0), _free(path))


def refuse_too_small(rooms: Sequence[Room], plan: Plan) -> None:
    """Refuse a disk on which the install would end in the middle."""
    for room in rooms:
        if room.free >= 0 and room.free < room.needed:
            other = "export UV_CACHE_DIR=/a/larger/disk/uv" if room.use == "uv's cache" else ""
            raise BadInput(
                f"{room.free / GIB:.1f} GiB are free where {room.path} ({room.use}) would be",
                expected=f"at least {room.needed / GIB:.1f} GiB for profile '{plan.profile}'",
                hint=other or "envdoctor install --venv /a/larger/disk/NAME, or free some room (envdoctor clean)",
            )


def _copies_note(cache: Path, target: Path, rooms: Sequence[Room]) -> str:
    needed = max(room.needed for room in rooms)
    return (
        f"uv's cache {cache} and {target} cannot share files by hard links: every file is copied, "
        f"which takes {needed / GIB:.1f} GiB and the time to write them; "
        "a cache on the same file system (UV_CACHE_DIR) would save both"
    )


def _free(path: Path) -> int:
    """Bytes free where a path is or would be; -1 where that cannot be read."""
    place = read_filesystem(path, {}).value
    return place.free if place else -1


def _device(path: Path) -> int:
    return next(place for place in (path, *path.parents) if place.exists()).stat().st_dev
