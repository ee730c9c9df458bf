"""What envdoctor keeps on disk: environments listed, taken back, cleared up and removed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from envdoctor.commands.provisioning import environments_file, log_file
from envdoctor.core.directories import cache_directory, state_directory
from envdoctor.core.errors import BadInput, EnvdoctorError, Refused
from envdoctor.core.paths import expanded, is_folder
from envdoctor.core.records import Record
from envdoctor.core.results import Answer, BenchmarkStatus, VerificationStatus
from envdoctor.environment.managed import (
    EnvironmentPaths,
    InstallRecord,
    environment_paths,
    is_foreign,
    read_install_record,
    size_on_disk,
)
from envdoctor.install.build_cache import try_lock_build, unused_builds
from envdoctor.install.environment_lock import environment_lock, is_running
from envdoctor.install.journal import ROLLBACK, Journal, read_journal, unfinished
from envdoctor.install.swap import recover_swap, remove, swap_back
from envdoctor.profiles.files import user_folder
from envdoctor.verify.status import (
    read_benchmark_status,
    read_driver_and_gpus,
    read_verification_status,
    verification_state,
)


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
    verification: VerificationStatus | None = None  # None: its probes were not run
    benchmark: BenchmarkStatus | None = None


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
    return Answer(Environments(tuple(each for paths in known() for each in _described(paths))))


def known() -> list[EnvironmentPaths]:
    """Environments in the usual place, and those that were made elsewhere."""
    from envdoctor.commands.provisioning import default_venv

    home = default_venv("any").parent
    hidden = (path for path in sorted(home.glob(".*.envdoctor")) if path.is_dir())
    names = [home / path.name.removeprefix(".").removesuffix(".envdoctor") for path in hidden]
    candidates = dict.fromkeys([*sorted(home.glob("[!.]*")), *names, *_elsewhere()])
    return [paths for path in candidates if (paths := _known(path))]


def _elsewhere() -> list[Path]:
    """The list of environments, however damaged it is: a line that is no absolute path is nothing."""
    try:
        lines = environments_file().read_text(errors="replace").splitlines()
    except OSError:
        return []
    return [Path(line) for line in lines if line.startswith("/")]


def _known(path: Path) -> EnvironmentPaths | None:
    with suppress(BadInput, OSError):
        paths = environment_paths(path)
        return paths if read_install_record(path) or paths.folder.is_dir() else None
    return None


def _described(paths: EnvironmentPaths) -> Iterator[Environment]:
    last = unfinished(read_journal(paths.journal).entries)
    if made := read_install_record(paths.venv):
        whole = (paths.venv / "bin/python").exists()
        yield _environment(paths.venv, made, "current" if whole else "broken")
    elif last:
        at_work = is_running(str(last.process))
        note = f"its install ended without a word in '{last.step}': run envdoctor install again"
        yield Environment(
            path=str(paths.venv), profile="", lock="", python="", size=0, created=last.at, state="unfinished",
            verified="no", note=f"process {last.process} is building it" if at_work else note,
        )  # fmt: skip
    elif is_foreign(paths.venv):
        yield _environment(paths.venv, None, "current")
    if paths.previous.is_dir():
        yield _environment(paths.previous, read_install_record(paths.previous), "previous")
    for path in paths.adopted_environments:
        yield _environment(path, None, "previous")


def _environment(
    path: Path, made: InstallRecord | None, state: Literal["current", "previous", "broken"]
) -> Environment:
    if made is None:
        return Environment(
            path=str(path), profile="", lock="", python="", size=size_on_disk(path), created="", state=state,
            verified="no", note="envdoctor did not make it",
        )  # fmt: skip
    note = "; ".join(f"no wheel of {name} fitted: {use} instead" for name, use in made.fallbacks.items())
    now = read_driver_and_gpus()
    verification = read_verification_status(path / "bin/python", *now)
    return Environment(
        path=str(path), profile=made.profile, lock=made.lock, python=made.python, size=made.size,
        created=made.created, state=state, verified=verification_state(verification), verification=verification,
        benchmark=read_benchmark_status(path / "bin/python", *now),
        note=note if state != "broken" else "it has no interpreter: run envdoctor install again",
    )  # fmt: skip


def rollback(venv: str) -> Answer:
    """The environment before the current one takes its place again; a second time, the other way round."""
    paths = environment_paths(environment_meant(venv))
    with _disk_errors(paths):
        if not paths.folder.is_dir():
            raise _nothing_before(paths, paths.folder)
        with environment_lock(paths):
            recover_swap(paths)
            if not paths.previous.is_dir():
                raise _nothing_before(paths, paths.previous)
            if not (paths.previous / "bin/python").exists():
                raise Refused(
                    f"the environment before it has no interpreter ({paths.previous}/bin/python)",
                    expected="a whole environment to go back to",
                    hint="envdoctor install, which builds a new one",
                )
            journal = Journal(paths.journal, ROLLBACK, log_file("rollback", paths.venv.name))
            with suppress(OSError):  # a full disk is a reason to go back, and none against it
                journal.write(ROLLBACK, "start")
            swap_back(paths)
            with suppress(OSError):
                journal.write(ROLLBACK, "end", exit_code=0)
    return Answer(RolledBack(str(paths.venv), _name(paths.venv), _name(paths.previous)))


def _nothing_before(paths: EnvironmentPaths, missing: Path) -> Refused:
    return Refused(
        f"{paths.venv} has no environment before it (no {missing})",
        expected="an environment that replaced another, and that `envdoctor clean` has left",
        hint="envdoctor envs",
    )


@contextmanager
def _disk_errors(paths: EnvironmentPaths) -> Iterator[None]:
    """What the file system refuses, in words."""
    try:
        yield
    except OSError as error:
        raise EnvdoctorError(
            f"{error.filename or paths.folder}: {error.strerror or error}",
            expected=f"leave to change {paths.venv} and what lies beside it",
            hint=f"ls -la {paths.venv.parent}, then run this again",
        ) from error


def _name(path: Path) -> str:
    made = read_install_record(path)
    if made is None:
        return "an environment that envdoctor did not make" if path.is_dir() else "none"
    return f"{made.profile} (lock {made.lock}, made {made.created[:10]})"


def environment_meant(venv: str) -> Path:
    """The environment that was asked for, or the only one there is."""
    if venv:
        return environment_paths(expanded(venv).absolute()).venv
    found = known()
    if len(found) == 1:
        return found[0].venv
    names = ": " + ", ".join(str(paths.venv) for paths in found) if found else ""
    raise BadInput(
        f"{len(found)} environments are known{names}",
        expected="--venv PATH to say which",
        hint="envdoctor envs" if found else "envdoctor install",
    )


def clean(venv: str, *, dry_run: bool, adopted: bool) -> Answer:
    """Remove environments that were replaced, what killed installs left, and compiled packages that are in none.

    Of one environment that is named: what lies beside it. Compiled packages are kept for all of them.
    """
    asked = [environment_paths(expanded(venv).absolute())] if venv else known()
    removed = Removal(dry_run)
    for paths in asked:
        with _disk_errors(paths):
            if not paths.folder.is_dir():
                continue
            if dry_run:
                _clean_one(paths, removed, adopted=adopted)
                continue
            with environment_lock(paths):
                recover_swap(paths)
                _clean_one(paths, removed, adopted=adopted)
    if not venv:
        _clean_builds([paths.venv for paths in asked], removed)
    return Answer(removed.told())


def _clean_builds(environments: Sequence[Path], removed: Removal) -> None:
    for path in unused_builds(cache_directory() / "builds", environments):
        try:
            with try_lock_build(path) as free:
                if free:
                    removed.remove(path)
                else:
                    removed.keep(path, "something is compiled in it now")
        except OSError as error:
            removed.keep(path, f"it cannot be removed: {error.strerror or error}")


def _clean_one(paths: EnvironmentPaths, removed: Removal, *, adopted: bool) -> None:
    for path in (paths.previous, paths.building, *paths.adopted_environments):
        if is_foreign(path) and path != paths.building and not adopted:
            removed.keep(
                path, f"envdoctor did not make it; have it back: {_how_back(paths, path)}; or clean --adopted"
            )
        elif path.is_dir():
            removed.remove(path)


def _how_back(paths: EnvironmentPaths, path: Path) -> str:
    """Its scripts name the place where it was made, so there it goes."""
    if path == paths.previous:
        return f"envdoctor rollback --venv {paths.venv}"
    return f"mv {paths.venv} {paths.venv}.other && mv {path} {paths.venv}"


class Removal:
    """What was removed so far, or would be."""

    def __init__(self, dry_run: bool) -> None:
        self.dry_run = dry_run
        self.paths: list[Path] = []
        self.kept: list[str] = []
        self.size = 0

    def remove(self, path: Path) -> None:
        """Remove a folder, or count it."""
        self.note(path)
        if not self.dry_run:
            remove(path)

    def note(self, path: Path) -> None:
        """Count a folder that is about to be removed."""
        self.paths.append(path)
        self.size += size_on_disk(path)

    def keep(self, path: Path, why: str) -> None:
        """Say why something stays."""
        self.kept.append(f"{path}: {why}")

    def told(self) -> Removed:
        """All of it."""
        return Removed(tuple(map(str, self.paths)), self.size, tuple(self.kept), self.dry_run)


def uninstall(venv: str, *, everything: bool, dry_run: bool) -> Answer:
    """Remove an environment and what lies beside it, or everything that envdoctor keeps.

    Nothing is removed before all of it was looked at; what envdoctor did not make stays.
    """
    if everything and venv:
        raise BadInput("--all and --venv are both given", expected="one of them", hint="envdoctor uninstall --help")
    asked = known() if everything else [environment_paths(environment_meant(venv))]
    removed = Removal(dry_run)
    for paths in [each for each in asked if _may_go(each, removed, everything=everything)]:
        with _disk_errors(paths):
            _uninstall_one(paths, removed)
    for place in own_places() if everything else ():
        if place.exists():
            removed.note(place)
            if not dry_run:
                shutil.rmtree(place, ignore_errors=True)
    return Answer(removed.told())


def _may_go(paths: EnvironmentPaths, removed: Removal, *, everything: bool) -> bool:
    """Whether all of it is ours; where that was asked for by name and is not so, BadInput."""
    with _disk_errors(paths):
        strangers = _strangers(paths)
        if strangers and not everything:
            raise _not_ours(paths, strangers)
        for path in strangers:
            removed.keep(path, "envdoctor did not make it")
        if not paths.venv.exists() and not paths.folder.is_dir():
            raise BadInput(
                f"there is no environment at {paths.venv}", expected="one of `envdoctor envs`", hint="envdoctor envs"
            )
        return not strangers


def _strangers(paths: EnvironmentPaths) -> list[Path]:
    """What envdoctor did not make of an environment, the ones before it, and what is kept."""
    ours = read_install_record(paths.venv) is not None
    other = paths.venv.is_symlink() or (paths.venv.exists() and not ours and not _is_empty(paths.venv))
    return [path for path in (paths.previous, *paths.adopted_environments) if is_foreign(path)] + (
        [paths.venv] if other else []
    )


def _is_empty(folder: Path) -> bool:
    return folder.is_dir() and not any(folder.iterdir())


def _not_ours(paths: EnvironmentPaths, strangers: Sequence[Path]) -> BadInput:
    if paths.venv in strangers:
        return BadInput(
            f"{paths.venv} is nothing that envdoctor made",
            expected="an environment of `envdoctor envs`",
            hint="envdoctor envs",
        )
    return BadInput(
        f"{strangers[0]} is an environment that envdoctor did not make, kept since {paths.venv} took its place",
        expected="leave to remove that one, too, or to have it back first",
        hint=f"envdoctor clean --venv {paths.venv} --adopted; or {_how_back(paths, strangers[0])}",
    )


def _uninstall_one(paths: EnvironmentPaths, removed: Removal) -> None:
    """The environment goes first and by a rename, so that a kill leaves none that looks whole."""
    for path in (paths.venv, paths.folder):
        if path.exists():
            removed.note(path)
    if removed.dry_run:
        return
    with environment_lock(paths):
        if paths.venv.exists():
            paths.venv.rename(paths.folder / f"removing-{os.getpid()}-venv")
        shutil.rmtree(paths.folder, ignore_errors=True)


def own_places() -> tuple[Path, ...]:
    """Folders that hold nothing but what envdoctor writes: logs and verifications, and what can be read again."""
    return (state_directory(), cache_directory())


def list_paths() -> Answer:
    """Everything that envdoctor keeps on this machine."""
    return Answer(Paths(tuple(_places())))


def _places() -> Iterator[Kept]:
    for paths in known():
        yield _kept(paths.venv, "environment", f"envdoctor uninstall --venv {paths.venv}")
        yield _kept(paths.folder, "the one before it, journal and lock", f"envdoctor clean --venv {paths.venv}")
    yield _kept(state_directory(), "logs, verifications, list of environments", "envdoctor uninstall --all")
    yield _kept(cache_directory(), "compiled files as read, direct wheels, builds", "envdoctor uninstall --all")
    yield _kept(user_folder(os.environ), "profiles of yours", "by hand: they are yours")
    yield _kept(_uv_cache(), "uv's cache, which other tools share", "uv cache prune")


def _kept(path: Path, use: str, how: str) -> Kept:
    return Kept(str(path), use, size_on_disk(path) if is_folder(path) else None, how)


def _uv_cache() -> Path:
    from envdoctor.locking.uv import run_uv

    told = run_uv(["cache", "dir"], environment={}, deadline=30)
    return Path(told.output.strip().splitlines()[-1]) if told.ok and told.output.strip() else Path("unknown")
