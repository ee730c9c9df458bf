"""What envdoctor keeps on disk: environments listed, taken back, cleared up and removed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from envdoctor.diagnosis import cache_folder
from envdoctor.environments import Beside, Installed, is_foreign, read_installed
from envdoctor.errors import BadInput, Refused
from envdoctor.holding import hold
from envdoctor.install import size_on_disk
from envdoctor.journal import Journal, read_journal, unfinished
from envdoctor.model import Record
from envdoctor.profile_files import user_folder
from envdoctor.proof import driver_and_gpus, verified_state
from envdoctor.provisioning import environments_list, log_file, state_folder
from envdoctor.results import Answer
from envdoctor.swap import go_back, remove, settle


class Environment(Record, frozen=True, kw_only=True):
    """One environment, or the one before it."""

    path: str
    profile: str
    lock: str  # digest; empty for one that envdoctor did not make
    python: str
    size: int
    created: str
    state: Literal["current", "previous", "unfinished", "broken"]
    verified: Literal["passed", "failed", "stale", "no"]
    note: str = ""


class Environments(Record, frozen=True):
    """Every environment that envdoctor made and still finds."""

    environments: tuple[Environment, ...]


class RolledBack(Record, frozen=True):
    """The two environments that changed places."""

    venv: str
    now: str  # profile and lock
    before: str


class Removed(Record, frozen=True):
    """What was removed, or would be."""

    paths: tuple[str, ...]
    size: int  # bytes that were freed, at most: hard links into uv's cache free nothing until the cache goes, too
    kept: tuple[str, ...] = ()  # and why
    dry_run: bool = False


class Kept(Record, frozen=True):
    """One place on disk, what lies there, and how to be rid of it."""

    path: str
    use: str
    size: int | None  # None: it is not there
    remove: str


class Paths(Record, frozen=True):
    """Everything that envdoctor keeps."""

    paths: tuple[Kept, ...]


def list_environments() -> Answer:
    """Every environment that was made, with what it holds and whether it was proven on the driver of today."""
    return Answer(Environments(tuple(each for beside in known() for each in _described(beside))))


def known() -> list[Beside]:
    """Environments in the usual place, and those that were made elsewhere."""
    from envdoctor.provisioning import default_venv

    home = default_venv("any").parent
    listed = environments_list()
    elsewhere = listed.read_text(errors="replace").splitlines() if listed.exists() else []
    hidden = (path for path in sorted(home.glob(".*.envdoctor")) if path.is_dir())
    names = [home / path.name.removeprefix(".").removesuffix(".envdoctor") for path in hidden]
    paths = dict.fromkeys([*sorted(home.glob("[!.]*")), *names, *map(Path, elsewhere)])
    return [Beside(path) for path in paths if read_installed(path) or Beside(path).folder.is_dir()]


def _described(beside: Beside) -> Iterator[Environment]:
    last = unfinished(read_journal(beside.journal).entries)
    if made := read_installed(beside.venv):
        whole = (beside.venv / "bin/python").exists()
        yield _environment(beside.venv, made, "current" if whole else "broken")
    elif last:
        yield Environment(
            path=str(beside.venv), profile="", lock="", python="", size=0, created=last.at, state="unfinished",
            verified="no", note=f"its install ended without a word in '{last.step}': run envdoctor install again",
        )  # fmt: skip
    if beside.previous.is_dir():
        yield _environment(beside.previous, read_installed(beside.previous), "previous")


def _environment(path: Path, made: Installed | None, state: Literal["current", "previous", "broken"]) -> Environment:
    if made is None:
        return Environment(
            path=str(path), profile="", lock="", python="", size=size_on_disk(path), created="", state=state,
            verified="no", note="envdoctor did not make it; its packages are in adopted.txt beside it",
        )  # fmt: skip
    note = "; ".join(f"no wheel of {name} fitted: {use} instead" for name, use in made.fallbacks.items())
    return Environment(
        path=str(path), profile=made.profile, lock=made.lock, python=made.python, size=made.size,
        created=made.created, state=state, verified=verified_state(path, made, *driver_and_gpus()),
        note=note if state != "broken" else "it has no interpreter: run envdoctor install again",
    )  # fmt: skip


def rollback(venv: str) -> Answer:
    """The environment before the current one takes its place again; a second time, the other way round."""
    beside = Beside(environment_meant(venv))
    if not beside.folder.is_dir():
        raise Refused(
            f"{beside.venv} has no environment before it (no {beside.folder})",
            expected="an environment that replaced another",
            hint="envdoctor envs",
        )
    with hold(beside):
        settle(beside)
        if not beside.previous.is_dir():
            raise Refused(
                f"{beside.venv} has no environment before it (no {beside.previous})",
                expected="one that `envdoctor clean` has not removed",
                hint="envdoctor envs",
            )
        journal = Journal(beside.journal, "rollback", log_file("rollback", beside.venv.name))
        with journal.step("rollback"):
            go_back(beside)
    return Answer(RolledBack(str(beside.venv), _name(beside.venv), _name(beside.previous)))


def _name(path: Path) -> str:
    made = read_installed(path)
    if made is None:
        return "an environment that envdoctor did not make" if path.is_dir() else "none"
    return f"{made.profile} (lock {made.lock}, made {made.created[:10]})"


def environment_meant(venv: str) -> Path:
    """The environment that was asked for, or the only one there is."""
    if venv:
        return Path(venv).absolute()
    found = known()
    if len(found) == 1:
        return found[0].venv
    names = ": " + ", ".join(str(beside.venv) for beside in found) if found else ""
    raise BadInput(
        f"{len(found)} environments are known{names}",
        expected="--venv PATH to say which",
        hint="envdoctor envs" if found else "envdoctor install",
    )


def clean(venv: str, *, dry_run: bool, adopted: bool) -> Answer:
    """Remove environments that were replaced, and what killed installs left."""
    asked = [Beside(Path(venv).absolute())] if venv else known()
    paths: list[Path] = []
    kept: list[str] = []
    size = 0
    for beside in asked:
        if not beside.folder.is_dir():
            continue
        with hold(beside):
            settle(beside)
            for path in (beside.previous, beside.building):
                if path == beside.previous and is_foreign(path) and not adopted:
                    kept.append(f"{path}: envdoctor did not make it; --adopted removes it, too")
                elif path.is_dir():
                    paths.append(path)
                    size += size_on_disk(path)
                    if not dry_run:
                        remove(path)
    return Answer(Removed(tuple(map(str, paths)), size, tuple(kept), dry_run))


def uninstall(venv: str, *, everything: bool, dry_run: bool) -> Answer:
    """Remove an environment and what lies beside it, or everything that envdoctor keeps."""
    if everything and venv:
        raise BadInput("--all and --venv are both given", expected="one of them", hint="envdoctor uninstall --help")
    asked = known() if everything else [Beside(environment_meant(venv))]
    paths: list[Path] = []
    size = 0
    for beside in asked:
        if beside.venv.exists() and read_installed(beside.venv) is None:
            raise BadInput(
                f"{beside.venv} is nothing that envdoctor made",
                expected="an environment of `envdoctor envs`",
                hint="envdoctor envs",
            )
        if not beside.venv.exists() and not beside.folder.is_dir():
            raise BadInput(
                f"there is no environment at {beside.venv}", expected="one of `envdoctor envs`", hint="envdoctor envs"
            )
        found = [path for path in (beside.venv, beside.folder) if path.exists()]
        paths += found
        size += sum(size_on_disk(path) for path in found)
        if not dry_run:
            _uninstall_one(beside)
    for place in own_places() if everything else ():
        if place.exists():
            paths.append(place)
            size += size_on_disk(place)
            if not dry_run:
                shutil.rmtree(place, ignore_errors=True)
    return Answer(Removed(tuple(map(str, paths)), size, dry_run=dry_run))


def _uninstall_one(beside: Beside) -> None:
    """The environment goes first and by a rename, so that a kill leaves none that looks whole."""
    with hold(beside):
        if beside.venv.exists():
            beside.venv.rename(beside.folder / "removing-venv")
        shutil.rmtree(beside.folder, ignore_errors=True)


def own_places() -> tuple[Path, ...]:
    """Folders that hold nothing but what envdoctor writes: logs and verifications, and what can be read again."""
    return (state_folder(), cache_folder())


def list_paths() -> Answer:
    """Everything that envdoctor keeps on this machine."""
    return Answer(Paths(tuple(_places())))


def _places() -> Iterator[Kept]:
    for beside in known():
        yield _kept(beside.venv, "environment", f"envdoctor uninstall --venv {beside.venv}")
        yield _kept(beside.folder, "the one before it, journal and lock", f"envdoctor clean --venv {beside.venv}")
    yield _kept(state_folder(), "logs, verifications, list of environments", "envdoctor uninstall --all")
    yield _kept(cache_folder(), "compiled files as read, wheels that no index has", "envdoctor uninstall --all")
    yield _kept(user_folder(os.environ), "profiles of yours", "by hand: they are yours")
    yield _kept(_uv_cache(), "uv's cache, which other tools share", "uv cache prune")


def _kept(path: Path, use: str, how: str) -> Kept:
    return Kept(str(path), use, size_on_disk(path) if path.is_dir() else None, how)


def _uv_cache() -> Path:
    from envdoctor.uv import run_uv

    told = run_uv(["cache", "dir"], environment={}, deadline=30)
    return Path(told.output.strip().splitlines()[-1]) if told.ok else Path("unknown")
