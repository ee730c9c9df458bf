"""Solves the corrected requirements of a guide with uv, for the platform, Python and CUDA build of the guide."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from msgspec.structs import replace
from packaging.requirements import Requirement

from envdoctor.core.record import Record
from envdoctor.download.sources import Sources, uv_arguments, uv_environment
from envdoctor.knowledge.guides import cuda_on_pypi
from envdoctor.knowledge.published import find_release
from envdoctor.knowledge.releases import normalize_name, requirements_of_release
from envdoctor.knowledge.torch_builds import published_wheels, torch_releases
from envdoctor.knowledge.versions import minor_of
from envdoctor.locking.lock import Target
from envdoctor.locking.placeholders import write_wheel
from envdoctor.locking.source_releases import Release, releases_to_build
from envdoctor.locking.step_solver import describe_conflict, newest_source_releases
from envdoctor.locking.torch_index import write_placeholder
from envdoctor.locking.uv import OWN_PYTHON, describe_unreachable, is_unreachable, lookup_environment, run_uv
from envdoctor.manifests import CorrectedSet, DroppedPackage
from envdoctor.manifests.set_repairs import broken_rules, limits_without
from envdoctor.resolution.torch_sources import may_provide

SOLVE_SECONDS = 120.0
DEFAULT_PYTHON = "3.12"
_MAX_DROPPED = 4
_MAX_ATTEMPTS = 6
_MAX_REPAIRS = 5
_MAX_RELAXED = 12
_DEPENDENCY = re.compile(r"depends? on ([A-Za-z0-9][A-Za-z0-9._-]*)")
_NO_RELEASE = re.compile(r"no version of ([A-Za-z0-9][A-Za-z0-9._-]*)")
_PYTHONS = (DEFAULT_PYTHON, "3.11", "3.10", "3.13", "3.9", "3.8")  # the first one that all pins support
_CORE = frozenset({"torch", "vllm", "sglang", "lmdeploy", "transformers", "trl", "verl", "deepspeed"})


class SolvedSet(Record, frozen=True, kw_only=True):
    """A corrected set after a run of uv. `note` states what could not be verified."""

    corrected: CorrectedSet  # with the solved requirements
    state: Literal["solved", "conflict", "not-verified"]
    target: str  # "x86_64-manylinux_2_28, Python 3.12, CUDA 12.8"
    packages: int = 0  # number of packages of the solution
    options: tuple[str, ...] = ()  # of `uv pip install`, in addition to the requirements
    note: str = ""


class _Attempt(Record, frozen=True):
    """The result of one run: the versions by name, or uv's output."""

    versions: dict[str, str]
    output: str = ""


def solve_set(corrected: CorrectedSet, sources: Sources) -> SolvedSet:
    """Solve a set: the requirements of the guide as far as no rule changes them, near to the proposed pins.

    A package without a wheel is resolved with the requirements of the built-in tables. Where the PyTorch index does
    not answer, its published wheels take its place, otherwise torch's build on PyPI; `note` states that.
    """
    if not corrected.requirements:
        return _result(corrected, "not-verified", note="there is nothing to solve")
    if corrected.unfit:
        return _result(corrected, "conflict", note=corrected.unfit)
    solver = _Solver(corrected, sources)
    backend = _backend(corrected)
    # The guide's own ranges first, with releases of its time where they permit these.
    for requirements, preferences in (
        (corrected.wanted, corrected.requirements), (corrected.wanted, ()),
    ):  # fmt: skip
        found = _solve_within_rules(solver, backend, requirements, preferences)
        if isinstance(found, SolvedSet):
            return found
        if is_unreachable(found):
            return _result(corrected, "not-verified", backend, f"not solved: {describe_unreachable(found)}")
    conflict = describe_conflict(solver.first_output) if solver.first_output else solver.broken
    return (
        _relaxed(corrected, solver, backend)
        or _as_proposed(corrected, solver, backend)
        or _without_conflicting(corrected, solver, conflict)
        or _without_image(corrected, sources, conflict)
        or _result(corrected, "conflict", backend, conflict)
    )


def _solve_within_rules(
    solver: _Solver,
    backend: str,
    requirements: Sequence[str],
    preferences: Sequence[str],
    dropped: Sequence[DroppedPackage] = (),
) -> SolvedSet | str:
    """The requirements with limits of open packages, until no rule reports an error; uv's output if none solves."""
    corrected = solver.corrected
    limits: list[str] = []
    fixed = {normalize_name(Requirement(text).name) for text in requirements if "==" in text}
    for _ in range(_MAX_REPAIRS):
        attempt, note = solver.run((*requirements, *limits), backend, preferences=preferences)
        if not attempt.versions:
            return attempt.output
        violations = broken_rules(attempt.versions, corrected)
        if not violations:
            note = "; ".join(filter(None, (note, solver.note_on_sources(attempt.versions))))
            solved = _with_requirements(corrected, _pinned((*requirements, *limits), attempt.versions))
            solved = replace(solved, dropped=(*corrected.dropped, *dropped))
            return _result(solved, "solved", backend, note, len(attempt.versions))
        more = limits_without(violations, attempt.versions, corrected, fixed)
        solver.broken = solver.broken or "; ".join(violation.problem.message for violation in violations)
        if not set(more) - set(limits):
            return ""
        limits = [*limits, *more]
    return ""


def _relaxed(corrected: CorrectedSet, solver: _Solver, backend: str) -> SolvedSet | None:
    """The set without the versions that other requirements exclude, as near to them as possible.

    Of two requirements that exclude each other, the one on a dependency of the other package gives way.
    """
    requirements, dropped = list(corrected.wanted), list[DroppedPackage]()
    output = solver.first_output
    for _ in range(_MAX_RELAXED):
        conflict = describe_conflict(output)
        text = _excluded_requirement(conflict, requirements)
        if not text:
            return None
        requirements[requirements.index(text)] = Requirement(text).name
        dropped.append(DroppedPackage(text, f"another version, because {conflict}"))
        preferences = (*corrected.requirements, *(each.name for each in dropped if "==" in each.name))
        found = _solve_within_rules(solver, backend, requirements, preferences, dropped)
        if isinstance(found, SolvedSet):
            return found
        output = found
    return None


def _as_proposed(corrected: CorrectedSet, solver: _Solver, backend: str) -> SolvedSet | None:
    """The exact pins that the tables propose; None if they have no solution."""
    found = _solve_within_rules(solver, backend, corrected.requirements, ())
    return found if isinstance(found, SolvedSet) else None


def _excluded_requirement(conflict: str, requirements: Sequence[str]) -> str:
    """The requirement on a package that another package of the conflict depends on, or that has no such release."""
    versioned = {normalize_name(Requirement(text).name): text for text in requirements if Requirement(text).specifier}
    names = [*_DEPENDENCY.findall(conflict), *_NO_RELEASE.findall(conflict)]
    return next((versioned[name] for name in map(normalize_name, names) if name in versioned), "")


def _without_conflicting(corrected: CorrectedSet, solver: _Solver, conflict: str) -> SolvedSet | None:
    """The set of an image without a package that contradicts the image's own ones; None if none solves it."""
    named = [text for text in corrected.requirements if corrected.contained and _is_named(text, conflict)]
    named = [text for text in named if Requirement(text).name not in _CORE]  # what the image is for
    for text in named[:_MAX_DROPPED]:
        requirements = tuple(other for other in corrected.requirements if other != text)
        attempt, note = solver.run(requirements, "")
        if attempt.versions:
            dropped = DroppedPackage(Requirement(text).name, f"{text} conflicts with {corrected.image}: {conflict}")
            solved = _with_requirements(corrected, _pinned(requirements, attempt.versions))
            solved = replace(solved, dropped=(*corrected.dropped, dropped))
            return _result(solved, "solved", "", note, len(attempt.versions))
    return None


def _without_image(corrected: CorrectedSet, sources: Sources, conflict: str) -> SolvedSet | None:
    """The set that replaces packages of the image, which pins of the guide exclude; None if none solves it."""
    replaced = [f"{name}=={version}" for name, version in corrected.contained.items() if name in conflict]
    if not replaced:
        return None
    solved = solve_set(replace(corrected, contained={}), sources)
    dropped = tuple(
        DroppedPackage(text, f"of {corrected.image}, which the guide replaces: {conflict}") for text in replaced
    )
    changed = replace(solved.corrected, dropped=(*solved.corrected.dropped, *dropped))
    return replace(solved, corrected=changed) if solved.state == "solved" else None


def _is_named(text: str, conflict: str) -> bool:
    return re.search(rf"\b{re.escape(Requirement(text).name)}\b", conflict) is not None


class _Solver:
    """Runs uv for one set, in a directory with placeholders of the wheels that no reachable source has."""

    def __init__(self, corrected: CorrectedSet, sources: Sources) -> None:
        self.corrected = corrected
        self.sources = sources
        self.target = _target(corrected)
        self.first_output = ""
        self.broken = ""  # what rules report about a solution
        self.index_is_unreachable = False
        self.preferences: tuple[str, ...] = ()
        self.source_only: set[Release] = set()  # releases that have only a source archive

    def run(
        self, requirements: Sequence[str], backend: str, *, preferences: Sequence[str] = ()
    ) -> tuple[_Attempt, str]:
        """One attempt, and what it does not verify. `preferences` are pins that uv keeps where it can."""
        self.preferences = (*self.corrected.preferences, *preferences)
        attempt, note = self._attempt(requirements, backend)
        versions = {name: version.partition("+")[0] for name, version in attempt.versions.items()}
        pins = {pin: versions.get(normalize_name(Requirement(pin).name), "") for pin in self.preferences}
        lost = [pin for pin, version in pins.items() if version not in ("", pin.partition("==")[2])]
        if not lost or not self.sources.extra_indexes:
            return attempt, note
        # Of several indexes, uv reads a preference from the first that has the release, and discards the release if
        # that index lacks its wheel. For a requirement, uv reads all of them.
        self.preferences = tuple(pin for pin in self.preferences if pin not in lost)
        for requested in ((*requirements, *lost), requirements):
            again, _ = self._attempt(requested, backend)
            if again.versions:
                return again, note
        return attempt, note

    def _attempt(self, requirements: Sequence[str], backend: str) -> tuple[_Attempt, str]:
        note = ""
        if backend and not self.index_is_unreachable:
            attempt = self._compile(requirements, ["--torch-backend", backend], ())
            if attempt.versions or not is_unreachable(attempt.output):
                return attempt, note
            self.index_is_unreachable = True
        with tempfile.TemporaryDirectory(prefix="envdoctor-torch-index-") as folder:
            if self.index_is_unreachable:
                note = self._write_torch(Path(folder), backend)
                requirements = (*requirements, *self._limits_of_index())
            return self._compile(requirements, (), (folder,)), note

    def _limits_of_index(self) -> list[str]:
        """The release lines of torch that the PyTorch index does not have for the CUDA version: PyPI has them all."""
        cuda, platform = self.corrected.cuda, self.corrected.architecture
        pinned = {minor_of(text.partition("==")[2]) for text in self.corrected.wanted if text.startswith("torch==")}
        lines = [line for line in torch_releases() if not may_provide(line, cuda, platform, is_pinned=line in pinned)]
        return [f"torch{','.join(f'!={line}.*' for line in lines)}"] if lines else []

    def note_on_sources(self, versions: Mapping[str, str]) -> str:
        """The releases that uv builds from source, of which the requirements are those of the tables."""
        built = {*self.source_only, *newest_source_releases("9")} & set(versions.items())
        names = ", ".join(sorted(f"{name}=={version}" for name, version in built))
        return f"built from source, requirements not verified: {names}" if names else ""

    def _write_torch(self, folder: Path, backend: str) -> str:
        """Placeholders of the PyTorch index, and what they leave open."""
        wheels = published_wheels(backend, self.target.pythons[0], self.corrected.architecture)
        pins = {Requirement(text).name: text.partition("==")[2] for text in self.corrected.requirements}
        if any(wheel.name == "torch" and wheel.version.partition("+")[0] == pins.get("torch") for wheel in wheels):
            for wheel in wheels:
                write_placeholder(folder, wheel)
            return f"the PyTorch index was not reachable; its wheels for {backend} are those of the built-in table"
        return f"the PyTorch index was not reachable: solved with PyPI's build of torch, not verified with {backend}"

    def _compile(self, requirements: Sequence[str], options: Sequence[str], links: Sequence[str]) -> _Attempt:
        """Run `uv pip compile`. A package without a wheel becomes a placeholder with its known requirements."""
        with tempfile.TemporaryDirectory(prefix="envdoctor-solve-") as name:
            folder = Path(name)
            for package, version in self.corrected.contained.items():
                _write_wheel(folder, package, version)
            for text in requirements:
                self._write_source_only(folder, text)
            for package, version in newest_source_releases("9"):  # in place of an older one that has a wheel
                _write_wheel(folder, package, version)
            for package, version in self.source_only:
                _write_wheel(folder, package, version)
            attempt = self._run(folder, requirements, options, (*links, name))
            for _ in range(_MAX_ATTEMPTS):
                newest = partial(self._newest_releases, folder)
                found = set() if attempt.versions else releases_to_build(attempt.output, requirements, newest)
                if not found - self.source_only:
                    break
                self.source_only |= found
                for package, version in found:
                    _write_wheel(folder, package, version)
                attempt = self._run(folder, requirements, options, (*links, name))
        if not attempt.versions and not is_unreachable(attempt.output):
            self.first_output = self.first_output or attempt.output
        return attempt

    def _write_source_only(self, folder: Path, text: str) -> None:
        requirement = Requirement(text)
        version = text.partition("==")[2]
        release = find_release(requirement.name, version) if version else None
        if release and release.kind == "source":
            _write_wheel(folder, requirement.name, version)

    def _run(
        self, folder: Path, requirements: Sequence[str], options: Sequence[str], links: Sequence[str]
    ) -> _Attempt:
        source, output = folder / "requirements.in", folder / "solved.txt"
        contained = [f"{name}=={version}" for name, version in self.corrected.contained.items()]
        source.write_text("".join(f"{text}\n" for text in (*requirements, *contained)))
        # Of a preference, uv reads only the first index that has the release: it would hide other wheels of a pin.
        output.write_text("".join(f"{text}\n" for text in self.preferences if text not in requirements))
        links = [*links, *self.sources.find_links]  # an argument replaces UV_FIND_LINKS
        return self._call(
            source, output, "--only-binary", ":all:", *options, *(f"--find-links={link}" for link in links)
        )

    def _newest_releases(self, folder: Path, names: Mapping[str, str]) -> set[Release]:
        """The newest releases in these ranges, with or without a wheel."""
        source, output = folder / "newest.in", folder / "newest.txt"
        source.write_text("".join(f"{name}{specifier}\n" for name, specifier in names.items()))
        return set(self._call(source, output, "--no-deps").versions.items())

    def _call(self, source: Path, output: Path, *options: str) -> _Attempt:
        command: list[str | Path] = [
            "pip", "compile", source, "--output-file", output, *OWN_PYTHON,
            "--python-version", self.target.pythons[0], "--python-platform", self.target.platform,
            "--no-header", "--no-annotate", *options, *uv_arguments(self.sources),
        ]  # fmt: skip
        result = run_uv(
            command, environment=lookup_environment() | uv_environment(self.sources), timeout=SOLVE_SECONDS
        )
        if not result.ok:
            return _Attempt({}, "operation timed out" if result.timed_out else result.output)
        pins = (line.partition(";")[0].strip().partition("==") for line in output.read_text().splitlines())
        return _Attempt({normalize_name(name): version for name, equals, version in pins if equals})


def _write_wheel(folder: Path, name: str, version: str) -> None:
    """An empty wheel for every platform, with the requirements that the tables have for the release."""
    write_wheel(folder, name, version, requirements_of_release(name, version))


def _target(corrected: CorrectedSet) -> Target:
    return Target(corrected.architecture, corrected.glibc, (corrected.python or _python_of(corrected),))


def _python_of(corrected: CorrectedSet) -> str:
    """The usual Python, or the nearest one for which all pins have wheels: a guide of 2023 is for 3.10 or 3.11."""
    pins = [(Requirement(text).name, text.partition("==")[2]) for text in corrected.requirements if "==" in text]
    releases = [release for name, version in pins if (release := find_release(name, version))]
    compiled = [release for release in releases if release.kind == "wheels"]
    fitting = (each for each in _PYTHONS if all(release.has_wheel("", each) for release in compiled))
    return next(fitting, DEFAULT_PYTHON)


def _backend(corrected: CorrectedSet) -> str:
    """The backend of the PyTorch index that has torch's build; empty if PyPI has it, or an image contains torch."""
    pins = {Requirement(text).name: text.partition("==")[2] for text in corrected.requirements}
    if not corrected.cuda or not pins.get("torch"):
        return ""
    on_pypi = cuda_on_pypi(pins["torch"], corrected.architecture)
    return "" if on_pypi == corrected.cuda else f"cu{corrected.cuda.replace('.', '')}"


def _pinned(requirements: Sequence[str], versions: dict[str, str]) -> tuple[str, ...]:
    """The requirements with the solved versions; local versions of a build are left to the backend."""
    names = dict.fromkeys(Requirement(text).name for text in requirements)
    return tuple(
        f"{name}=={versions[normalize_name(name)].partition('+')[0]}"
        for name in names
        if normalize_name(name) in versions
    )


def _with_requirements(corrected: CorrectedSet, requirements: tuple[str, ...]) -> CorrectedSet:
    """The set and its profile with the solved requirements."""
    pins = {Requirement(text).name: text for text in requirements}
    profile = corrected.profile_toml
    added = [
        text for name, text in pins.items() if name not in {Requirement(old).name for old in corrected.requirements}
    ]
    entries = "".join(f'[[requirements]]\nspec = "{text}"\n\n' for text in added)
    profile = profile.replace("[[sources]]\n", f"{entries}[[sources]]\n", 1)
    for old in corrected.requirements:
        entry = f'[[requirements]]\nspec = "{old}"\n'
        new = pins.get(Requirement(old).name)
        profile = profile.replace(
            entry, entry.replace(old, new) if new else "# omitted: " + entry.replace("\n", " ") + "\n"
        )
    return replace(corrected, requirements=requirements, profile_toml=profile)


def _result(
    corrected: CorrectedSet,
    state: Literal["solved", "conflict", "not-verified"],
    backend: str = "",
    note: str = "",
    packages: int = 0,
) -> SolvedSet:
    target = _target(corrected)
    cuda = f", CUDA {corrected.cuda}" if corrected.cuda else ""
    return SolvedSet(
        corrected=corrected,
        state=state,
        target=f"{target.platform}, Python {target.pythons[0]}{cuda}",
        packages=packages,
        options=(f"--torch-backend={backend}",) if backend else (),
        note=note,
    )
