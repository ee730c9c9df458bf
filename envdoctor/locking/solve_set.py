"""Solves the corrected requirements of a guide with uv, for the platform, Python and CUDA build of the guide.

A set is a set only if uv solved exactly its requirements, and if nothing is reported about them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from msgspec.structs import replace
from packaging.requirements import Requirement

from envdoctor.core.patterns import lazy_pattern
from envdoctor.download.sources import Sources
from envdoctor.knowledge.guides import cuda_on_pypi
from envdoctor.knowledge.releases import normalize_name
from envdoctor.locking import set_pins
from envdoctor.locking.set_pins import (
    backend_of,
    limits_of_pins,
    pinned,
    unknown_requirement,
    way_to_build,
    without_lower_bounds,
)
from envdoctor.locking.set_priorities import CORE, least_important
from envdoctor.locking.set_solver import (
    TOTAL_SECONDS,
    Attempt,
    SetSolver,
    for_stated_cuda,
    likely_pythons,
    target_of,
)
from envdoctor.locking.solved_profile import with_cuda, with_requirements, with_solved_target
from envdoctor.locking.solved_set import Check, SetProblems, SolvedSet, SolvedState, accept, requirement_lines
from envdoctor.locking.step_conflicts import describe_conflict
from envdoctor.locking.uv import describe_unreachable, is_unreachable
from envdoctor.manifests import CorrectedSet, DroppedPackage
from envdoctor.manifests.set_repairs import broken_rules, limits_without, outdated_limits
from envdoctor.resolution.index_facts import IndexFacts
from envdoctor.resolution.torch_sources import TORCH_FAMILY

_MAX_DROPPED = 4
_MAX_REPAIRS = 5
GAVE_WAY = "another version, because "
NOT_ON_INDEX = "the package index has no such package: name the index or the repository that has it"
_MAX_RELAXED = 8
_OF_TORCH = ("nvidia-", "cuda-")  # its build requires exact releases
_OF_PYPI_TORCH = lazy_pattern(r"\btorch\S* depends on nvidia-")  # its build for one CUDA version


def solve_set(
    corrected: CorrectedSet,
    sources: Sources,
    check: Check = accept,
    end: float | None = None,
    *,
    gives_way: bool = True,
    index: IndexFacts | None = None,
) -> SolvedSet:
    """Solve a set: the requirements of the guide as far as no rule changes them, near to the proposed pins.

    `check` audits a solution. Where the guide names no Python, further ones are tried. `end` is the time at which the
    search stops. Without `gives_way`, each requirement keeps its version. `index` has the requirements of source
    archives.
    """
    if not corrected.requirements:
        return _result(corrected, "not-verified", note="there is nothing to solve")
    if corrected.unfit and "torch" not in corrected.contained:
        return _result(corrected, "conflict", note=corrected.unfit)
    end = end or time.monotonic() + TOTAL_SECONDS
    for stated in for_stated_cuda(corrected):
        solver = SetSolver(stated, sources, (time.monotonic() + end) / 2, index)
        found = SetSearch(stated, solver, check).as_stated()
        if found and found.state == "solved":
            return _for_other_python(found, corrected.python)
    searches = []
    for python in likely_pythons(corrected):
        is_audited = python == corrected.python  # for which the audit found releases without a wheel
        for_python = replace(corrected, python=python, source_only=corrected.source_only if is_audited else ())
        search = SetSearch(for_python, SetSolver(for_python, sources, end, index), check)
        found = search.as_stated()
        if found and found.state == "solved":
            return _for_other_python(found, corrected.python)
        searches.append((search, found))
        if found:
            break
    search, found = searches[0]
    if gives_way:
        found = found or search.relaxed() or search.as_proposed() or search.without_conflicting()
        found = found or _without_image(search, sources, check, index)
    found = found or search.conflicting()
    if found.state != "solved" and corrected.is_python_assumed and _depends_on_python(found.note):
        note = f"could not be solved here, state the Python with --python: {found.note}"
        return replace(found, state="not-verified", note=note)
    return _for_other_python(found, corrected.python) if found.state == "solved" else found


def _for_other_python(found: SolvedSet, audited: str) -> SolvedSet:
    """The set with a note if the findings of the audit are for another Python."""
    if found.corrected.python in ("", audited) or not audited:
        return found
    return replace(found, note="; ".join(filter(None, (f"the findings are for Python {audited}", found.note))))


def _depends_on_python(conflict: str) -> bool:
    return bool(re.search(r"Python|\bABI\b|\bcp3\d+\b|no (?:usable )?wheels", conflict))


class SetSearch:
    """The ways to a solution for one Python that nothing is reported about."""

    def __init__(self, corrected: CorrectedSet, solver: SetSolver, check: Check) -> None:
        self.corrected = corrected
        self.solver = solver
        self.backend = backend_of(corrected)
        self.check = check
        self.output = ""  # uv's reason for which the guide's own requirements have no solution

    @property
    def conflict(self) -> str:
        """The reason for which there is no solution."""
        return describe_conflict(self.output) if self.output else self.solver.broken

    def conflicting(self) -> SolvedSet:
        """The result without a solution: uv's reason, or what is reported about each one that uv finds."""
        if self.output and self.solver.index_is_unreachable and _OF_PYPI_TORCH.search(self.conflict):
            note = f"the PyTorch index was not read; with the torch of PyPI: {self.conflict}"
            return _result(self.corrected, "not-verified", self.backend, note)
        if self.output:
            return _result(self.corrected, "conflict", self.backend, self.conflict)
        broken = self.solver.broken
        note = f"each solution of uv has an error: {broken}" if broken else "uv found no solution within its limits"
        return _result(self.corrected, "not-verified", self.backend, note)

    def as_stated(self) -> SolvedSet | None:
        """The guide's own pins and ranges, then those that the tables change; None if neither has a solution.

        Releases of the guide's time come first, where its ranges permit these.
        """
        corrected, backend = self.corrected, self.backend
        own = corrected.own or corrected.wanted
        day = corrected.exclude_newer
        for requirements, preferences, last_day in dict.fromkeys([
            *([(own, corrected.requirements, day)] if day else []),
            (own, corrected.requirements, ""), (own, (), ""), (corrected.wanted, corrected.requirements, ""),
            (corrected.wanted, (), ""),
        ]):  # fmt: skip
            self.solver.day = last_day
            found = self.within_rules(requirements, preferences)
            if isinstance(found, SolvedSet):
                return found
            if self.solver.timed_out:
                note = f"no solution within {TOTAL_SECONDS:.0f} s, the limit for all sets of a file"
                return _result(corrected, "not-verified", backend, note)
            if is_unreachable(found):
                return _result(corrected, "not-verified", backend, f"not solved: {describe_unreachable(found)}")
            if not preferences:  # which are no reason
                self.output = self.output or found
        return None

    def within_rules(
        self,
        requirements: Sequence[str],
        preferences: Sequence[str],
        dropped: Sequence[DroppedPackage] = (),
    ) -> SolvedSet | str:
        """The requirements with limits of open packages, until nothing is reported; uv's output if none solves.

        A set with a warning that no limit cures is one as well, with the warning in its note. Lower bounds, of newer
        releases that the requirements can exclude, are left out where they have no solution with the other limits.
        """
        solver = self.solver
        with_warning: SolvedSet | None = None
        limits: list[str] = []
        new: list[str] = []  # the last ones of the limits
        fixed = {normalize_name(Requirement(text).name) for text in requirements if "==" in text}
        for _ in range(_MAX_REPAIRS):
            attempt, note = solver.run((*requirements, *limits), self.backend, preferences=preferences)
            if not attempt.versions and (upper := without_lower_bounds(new)):
                limits = [*limits[: -len(new)], *upper]
                new = upper
                continue
            if not attempt.versions:
                is_reason = not limits or is_unreachable(attempt.output)  # a limit is no requirement of the guide
                return with_warning or (attempt.output if is_reason else "")
            violations = broken_rules(attempt.versions, self.corrected)
            more = limits_without(violations, attempt.versions, self.corrected, fixed)
            more += outdated_limits(attempt.versions, self.corrected, fixed, (*limits, *more))
            if self.corrected.cuda and attempt.versions.get("torch", "").endswith("+cpu"):
                more.append(f"torch!={attempt.versions['torch']}")  # of a folder of wheels
            if not violations and not more:
                solved = self._as_printed(self._solved((*requirements, *limits), attempt, dropped, note), attempt)
                violations = broken_rules(solved.versions, self.corrected)
                more = limits_without(violations, solved.versions, self.corrected, fixed)
                if not violations:
                    started = time.monotonic()
                    problems = self.check(solved)
                    solver.end += time.monotonic() - started  # the limit is that of the search
                    if problems.is_free:
                        texts = (*requirements, *limits)
                        cures = limits_of_pins(problems.optional, solved.versions, fixed)
                        better = self._with_fewer_notes(texts, cures, preferences, dropped, problems)
                        return better or self._with_dependencies(solved, attempt, problems)
                    if not problems.errors:
                        with_warning = _noted(solved, problems)
                    more = limits_of_pins(problems.pins, solved.versions, fixed)
                    solver.broken = "; ".join(problems.errors) or solver.broken
            solver.broken = "; ".join(violation.problem.message for violation in violations) or solver.broken
            if not set(more) - set(limits):
                break
            new = [limit for limit in more if limit not in limits]
            limits += new
        return with_warning or ""

    def _with_fewer_notes(
        self, requirements: Sequence[str], cures: Sequence[str], preferences: Sequence[str],
        dropped: Sequence[DroppedPackage], problems: SetProblems,
    ) -> SolvedSet | None:  # fmt: skip
        """The set with limits that cure some of its notes; None if they have no solution, or other problems."""
        if not cures:
            return None
        attempt, note = self.solver.run((*requirements, *cures), self.backend, preferences=preferences)
        if not attempt.versions or broken_rules(attempt.versions, self.corrected):
            return None
        solved = self._as_printed(self._solved((*requirements, *cures), attempt, dropped, note), attempt)
        after = self.check(solved)
        is_better = after.is_free and len(after.optional) < len(problems.optional)
        return self._with_dependencies(solved, attempt, after) if is_better else None

    def relaxed(self) -> SolvedSet | None:
        """The set without the versions that other requirements exclude, as near to them as possible.

        The least important of the requirements that exclude each other gives way: torch never does for others than
        an inference engine.
        """
        requirements, dropped = list(self.corrected.own or self.corrected.wanted), list[DroppedPackage]()
        output = self.output
        for _ in range(_MAX_RELAXED):
            conflict = describe_conflict(output) if output else self.solver.broken
            if unknown := unknown_requirement(conflict, requirements):
                text = unknown
                requirements.remove(text)
                dropped.append(DroppedPackage(Requirement(text).name, NOT_ON_INDEX))
            elif text := least_important(conflict, requirements):
                requirements[requirements.index(text)] = Requirement(text).name
                dropped.append(DroppedPackage(text, f"{GAVE_WAY}{conflict}"))
            else:
                return None
            near = (*self.corrected.requirements, *(each.name for each in dropped if "==" in each.name))
            preferences = [each for each in near if output or each != text]  # not the version that is reported
            for day in dict.fromkeys((self.corrected.exclude_newer, "")):
                self.solver.day = day
                found = self.within_rules(requirements, preferences, dropped)
                if isinstance(found, SolvedSet):
                    return found
                output = found
        return None

    def as_proposed(self) -> SolvedSet | None:
        """The exact pins that the tables propose; None if they have no solution."""
        found = self.within_rules(self.corrected.requirements, ())
        return found if isinstance(found, SolvedSet) else None

    def without_conflicting(self) -> SolvedSet | None:
        """The set of an image without a package that contradicts the image's own ones; None if none solves it."""
        corrected, conflict = self.corrected, self.conflict
        named = [text for text in corrected.requirements if corrected.contained and _is_named(text, conflict)]
        named = [text for text in named if Requirement(text).name not in CORE]  # what the image is for
        for text in named[:_MAX_DROPPED]:
            requirements = tuple(other for other in corrected.requirements if other != text)
            reason = f"{text} conflicts with {corrected.image}: {conflict}"
            found = self.within_rules(requirements, (), [DroppedPackage(Requirement(text).name, reason)])
            if isinstance(found, SolvedSet):
                return found
        return None

    def _as_printed(self, solved: SolvedSet, attempt: Attempt) -> SolvedSet:
        """The set with all packages that its lines install today: another day or order can bring other ones.

        What is built after the set brings its own requirements, which can break it.
        """
        pins = (*requirement_lines(solved), *solved.built, *solved.corrected.built_later)
        again = self.solver.as_printed(pins, self.backend)
        found = again if again.versions else attempt
        return replace(solved, versions=found.versions, required_by=found.required_by)

    def _with_dependencies(self, solved: SolvedSet, attempt: Attempt, today: SetProblems) -> SolvedSet:
        """The set with the dependencies of its day, where these have no problem either: they fit best.

        What an audit reports only with the dependencies of today is named as such then.
        """
        named = {text.partition("==")[0].partition("[")[0] for text in (*requirement_lines(solved), *solved.built)}
        named |= {*solved.corrected.contained, *(each.name for each in solved.corrected.dropped), *TORCH_FAMILY}
        dependencies = tuple(
            f"{name}=={version}" for name, version in attempt.versions.items()
            if name not in named and not name.startswith(_OF_TORCH)
        )  # fmt: skip
        problems = self.check(replace(solved, versions=attempt.versions)) if self.solver.day else SetProblems()
        if not self.solver.day or problems.errors or problems.pins or problems.warnings:
            return _noted(solved, today)
        older = _noted(replace(solved, day=self.solver.day, dependencies=dependencies), problems)
        newer = "; ".join(each for each in today.notes if each not in problems.notes)
        remaining = newer and f"remaining without the pinned dependencies: {newer}"
        return replace(older, note="; ".join(filter(None, (older.note, remaining))))

    def _solved(
        self, requirements: Sequence[str], attempt: Attempt, dropped: Sequence[DroppedPackage], note: str
    ) -> SolvedSet:
        """The set of a solution: wheels, and source archives that its wheels require. Others are built afterwards."""
        corrected, versions = self.corrected, attempt.versions
        built = self.solver.built(versions)
        pins = pinned(requirements, versions)
        torch = versions.get("torch", "").partition("+")[0] if "torch" not in corrected.contained else ""
        implied = (f"torch=={torch}",) if torch and f"torch=={torch}" not in pins else ()
        if self.solver.day:  # today the same requirements bring another torch
            pins, implied = (*pins, *implied), ()
        if torch and corrected.cuda and not self.backend:
            corrected = with_cuda(corrected, cuda_on_pypi(torch, corrected.architecture))
        own = [pin for pin in built if pin in pins and not attempt.required_by.get(pin.partition("==")[0])]
        sources = [DroppedPackage(pin.partition("==")[0], way_to_build(pin, corrected, versions)) for pin in own]
        names = {pin.partition("==")[0] for pin in built}
        corrected = with_requirements(corrected, tuple(pin for pin in pins if pin.partition("==")[0] not in names))
        corrected = with_solved_target(corrected, self.solver.day)
        solved = replace(corrected, built_later=tuple(own), dropped=(*corrected.dropped, *sources, *dropped))
        dependencies = tuple(pin for pin in built if pin not in own)
        note = "; ".join(filter(None, (note, set_pins.note_on_pages(pins, corrected))))
        result = _result(solved, "solved", self.backend, note, len(versions) - len(sources))
        return replace(result, implied=implied, built=dependencies)


def _without_image(search: SetSearch, sources: Sources, check: Check, index: IndexFacts | None) -> SolvedSet | None:
    """The set that replaces packages of the image, which pins of the guide exclude; None if none solves it."""
    corrected, conflict = search.corrected, search.conflict
    replaced = [f"{name}=={version}" for name, version in corrected.contained.items() if name in conflict]
    if not replaced:
        return None
    solved = solve_set(replace(corrected, contained={}, is_python_assumed=False), sources, check, index=index)
    dropped = tuple(
        DroppedPackage(text, f"of {corrected.image}, which the guide replaces: {conflict}") for text in replaced
    )
    changed = replace(solved.corrected, dropped=(*solved.corrected.dropped, *dropped))
    return replace(solved, corrected=changed) if solved.state == "solved" else None


def _is_named(text: str, conflict: str) -> bool:
    return re.search(rf"\b{re.escape(Requirement(text).name)}\b", conflict) is not None


def _noted(solved: SolvedSet, problems: SetProblems) -> SolvedSet:
    """The set with what an audit of it still reports."""
    remaining = "; ".join((*problems.warnings, *problems.notes))
    return replace(solved, note="; ".join(filter(None, (solved.note, remaining and f"remaining: {remaining}"))))


def _result(
    corrected: CorrectedSet,
    state: SolvedState,
    backend: str = "",
    note: str = "",
    packages: int = 0,
) -> SolvedSet:
    target = target_of(corrected)
    cuda = f", CUDA {corrected.cuda}" if corrected.cuda else ""
    return SolvedSet(
        corrected=corrected,
        state=state,
        target=f"{target.platform}, Python {target.pythons[0]}{cuda}",
        packages=packages,
        options=(f"--torch-backend={backend}",) if backend else (),
        note=note,
    )
