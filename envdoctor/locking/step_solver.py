"""Solves the install steps of a guide with uv, one after the other, as an installer would do it today.

uv builds nothing and installs nothing. Packages that no reachable index has are placeholders: empty wheels with the
requirements of the built-in tables. They take the place of the packages in an image or from a channel of conda, of
wheels at a URL, of the wheels of the PyTorch index, and of releases that an installer would compile.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from pathlib import Path
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.download.sources import Sources, index_url, uv_arguments, uv_environment
from envdoctor.knowledge.releases import leading_name, normalize_name, parse_requirement
from envdoctor.knowledge.versions import newest_patch
from envdoctor.locking.placeholders import write_wheel
from envdoctor.locking.source_releases import builds_that_exclude, name_and_specifier, newer_source, releases_to_build
from envdoctor.locking.step_conflicts import (
    absent_builds,
    absent_extras,
    absent_requirement,
    among_pins,
    describe_conflict,
    is_of_upper_limit,
    requiring_requirements,
    without_wheels,
)
from envdoctor.locking.step_placeholders import newest_source_releases, placeholder_requirements
from envdoctor.locking.step_question import COMMIT, INSTALLED, StepQuestion, step_question, with_unknown_branches
from envdoctor.locking.step_selection import companion_first, dependencies_first, keep_installed
from envdoctor.locking.step_series import is_older, names_of_pip, pin_of, series, takes_prerelease
from envdoctor.locking.uv import OWN_PYTHON, describe_unreachable, is_unreachable, lookup_environment, run_uv
from envdoctor.resolution.index_facts import IndexFacts
from envdoctor.resolution.resolver import is_for_x86_only
from envdoctor.resolution.step import StepProblem, StepSolution, apart
from envdoctor.resolution.torch_sources import TORCH_FAMILY

STEP_SECONDS = 60.0  # limit of one run of uv
TOTAL_SECONDS = 240.0  # of all runs of a command; what else the command does takes no time from them
_MAX_ATTEMPTS = 40  # one for each release without a wheel, which uv names one by one
_MAX_CONFLICTS = 6  # of one step
_MAX_BUILDS_OF_PAGE = 3
_MAX_PASSED_OVER = 4
_MAX_OLDER_BUILDS = 4
_MAX_HELD_BACK = 8
_MAX_REFUSED = 4  # packages whose older releases pip refuses as well
_LINE = lazy_pattern(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==([^\s;]+)[^#]*(?:# via (.*))?")
# Of a long explanation, only the end is kept.
_NO_SOLUTION = lazy_pattern(r"No solution found|conclude\s+that\s+your\s+requirements\s+are\s+unsatisfiable")
_REQUIREMENT = lazy_pattern(r"[^\[<>=!~]*(\[[^\]]*\])?([<>=!~].*)?$")  # extras, specifier


class _Attempt(NamedTuple):
    """The result of one run: the lines of the solution with the extras that it lacks, or uv's output."""

    lines: tuple[str, ...] = ()
    absent_extras: frozenset[tuple[str, str]] = frozenset()
    output: str = ""
    timed_out: bool = False


class UvStepSolver:
    """Solves steps with the configured package sources. `reason` states why a step was not solved."""

    def __init__(self, sources: Sources, index: IndexFacts | None = None) -> None:
        self.sources = sources
        self.index = index
        self.reason = ""
        self.solved: dict[StepQuestion, StepSolution | None] = {}
        self.current: set[str] = set()  # pins that this command resolved with the network
        self.python = ""  # for which `built` and `older` are known
        self.built: set[tuple[str, str]] = set()  # releases without a wheel
        self.older: set[tuple[str, str]] = set()  # further ones, of which uv selects one
        self.absent: dict[str, str] = {}  # requirements that no release satisfies, with their conflicts
        self.newest: dict[tuple[object, ...], set[tuple[str, str]]] = {}
        indexes = map(index_url, (sources.index, *sources.extra_indexes))
        self.requests_again = any(each.startswith("http") for each in indexes)  # uv keeps the pages of PyPI alone
        self.left = TOTAL_SECONDS
        self.other: UvStepSolver | None = None

    def apart(self) -> UvStepSolver:
        """A solver that has what this one solved and read. If it runs out of time, this one has its own left."""
        if self.other is None:
            self.other = UvStepSolver(self.sources, apart(self.index))
        other = self.other
        other.solved |= self.solved
        other.current |= self.current
        other.python, other.built, other.older = self.python, {*self.built}, {*self.older}
        other.absent |= self.absent
        other.newest |= self.newest
        return other

    def __call__(self, problem: StepProblem) -> StepSolution | None:
        """Solve one step; None if a source is unreachable, or has other packages than those of PyPI."""
        if self.reason:
            return None
        question = step_question(problem, self.index)
        if not question.requirements:
            return StepSolution()
        solution = self._solved(question)
        for _ in range(_MAX_BUILDS_OF_PAGE):
            builds = absent_builds(solution) if solution and problem.has_other_index else frozenset()
            if builds <= {*question.placeholders}:
                break
            question = question._replace(placeholders=(*question.placeholders, *sorted(builds)))
            solution = self._solved(question)
        other = with_unknown_branches(problem)
        if solution and other != problem and is_of_upper_limit(solution.conflict, problem.requirements):
            unknown = self(other)
            solution = unknown if unknown and not unknown.conflict else solution
        if solution and solution.conflict and problem.has_other_index:
            found = self._without_absent(problem, question, without_wheels(solution.conflict))
            return among_pins(solution, question.requirements) or found
        return solution

    def _solved(self, question: StepQuestion) -> StepSolution | None:
        if question not in self.solved:
            solution = self._solve(question)
            for _ in range(_MAX_PASSED_OVER):  # what has no wheel can require another one without
                if not solution or not self._find_passed_over(question, solution):
                    break
                solution = self._solve(question)
            if solution and not question.is_of_uv:
                solution = self._named_first(question, solution)
                solution = dependencies_first(self.solve, self.index, question, solution)
                solution = companion_first(self.solve, question, solution)
                solution = self._with_refused(question, solution)
            if solution and question.is_of_uv:
                solution = self._with_older_builds(question, solution)
            if solution and self.sources.extra_indexes:
                solution = keep_installed(self.solve, self.index, question, solution)
            self.solved[question] = solution
        return self.solved[question]

    def _without_absent(
        self, problem: StepProblem, question: StepQuestion, without_wheel: AbstractSet[str]
    ) -> StepSolution | None:
        """The solution without the packages that only another index of the step can have; None if there is none."""
        absent = without_wheel | {leading_name(text) for text in question.requirements if text in self.absent}
        rest = tuple(each for each in problem.requirements if each.name not in absent)
        return self(problem._replace(requirements=rest)) if len(rest) < len(problem.requirements) else None

    def _solve(self, question: StepQuestion) -> StepSolution | None:
        conflicts = [self.absent[text] for text in question.requirements if text in self.absent]
        question = question._replace(
            requirements=tuple(each for each in question.requirements if each not in self.absent)
        )
        for _ in range(_MAX_ATTEMPTS):
            if conflicts and (not question.requirements or len(conflicts) >= _MAX_CONFLICTS):
                break
            attempt = self._run(question)
            if attempt.timed_out or is_unreachable(attempt.output):
                self.reason = "no response in time" if attempt.timed_out else describe_unreachable(attempt.output)
                return None
            if attempt.lines or not attempt.output:
                if conflicts:
                    break
                return self._solution(attempt)
            if not _NO_SOLUTION.search(attempt.output):
                return None
            newest = partial(self._newest_releases, question)
            found = releases_to_build(attempt.output, question.requirements, newest) - self.built
            self.built |= found
            if found:
                continue
            conflicts.append(describe_conflict(attempt.output))
            if absent := absent_requirement(conflicts[-1], question.requirements):
                self.absent[absent] = conflicts[-1]
                question = question.without((absent,))
            elif named := requiring_requirements(conflicts[-1], question.requirements):
                question = question.without(named)
            else:
                break
        return StepSolution(conflict=conflicts[0], further_conflicts=tuple(conflicts[1:])) if conflicts else None

    def _find_passed_over(self, question: StepQuestion, solution: StepSolution) -> bool:
        """Whether uv takes an older release because a newer one has no wheel, or requires what has none.

        hydra-core 1 requires an antlr4 that has only a source archive: uv would take hydra-core 0.11. lm-eval 0.4.13
        requires sqlitedict, which has only a source archive: uv would take 0.4.1. theseus-ai 0.2 has only source
        archives: uv would take 0.1, and an old torch for it. Those of an older series are tried first.
        """
        newest = partial(self._newest_releases, question)
        found: set[tuple[str, str]] = set()
        for pin in self._later_releases(question, solution)[:_MAX_PASSED_OVER]:
            attempt = self._run(question._replace(requirements=(pin,), constraints=(), preferences=()))
            found |= releases_to_build(attempt.output, (pin,), newest)
            found |= newer_source(self.index, pin, solution, question.python)
        is_new = not found <= self.built
        self.built |= found
        return is_new

    def _later_releases(self, question: StepQuestion, solution: StepSolution) -> list[str]:
        """The newest releases of the open requirements whose solution is older."""
        parts = {leading_name(text): _REQUIREMENT.match(text) for text in question.requirements}
        extras = {name: match[1] or "" for name, match in parts.items() if match}
        stated = {name: match[2] or "" for name, match in parts.items() if match}
        names = {
            name: specifier for name, specifier in stated.items()
            if name in solution.versions and name not in TORCH_FAMILY and not re.search(r"<|==|~=", specifier)
        }  # fmt: skip
        newest = sorted(self._newest_releases(question, names)) if names else []
        passed = [(name, version) for name, version in newest if is_older(solution.versions[name], version)]
        passed.sort(key=lambda each: series(each[1]) == series(solution.versions[each[0]]))
        return [f"{name}{extras[name]}=={version}" for name, version in passed]

    def _named_first(self, question: StepQuestion, solution: StepSolution) -> StepSolution:
        """The solution with newer releases of the named packages that uv holds back for a newer dependency.

        pip selects the named packages first, in their order: for datasets 5, which limits fsspec, it takes an older
        fsspec, where uv takes the newest fsspec and datasets 2.14.4, the last release without a limit. An installed
        release stays only if the newest ones accept it: x_transformers 2.31 replaces torch 2.4, named or not
        (pip 26.3, tried on 2026-11-27).
        """
        for pin in self._later_releases(question, solution)[:_MAX_HELD_BACK]:
            name, version = leading_name(pin), pin.rpartition("=")[2]
            current = solution.versions[name]
            if f"{name}=={current}" in question.preferences or series(current) == series(version):
                continue
            attempt = self._run(question._replace(constraints=(*question.constraints, f"{name}>{current}")))
            newer = self._solution(attempt)
            first = names_of_pip(question.requirements)
            before = [each for each in first[: first.index(name)] if each in solution.versions]
            is_worse = takes_prerelease(newer, solution) or any(
                is_older(newer.versions.get(each, "0"), solution.versions[each]) for each in before
            )
            if newer.versions and not is_worse:
                solution = newer
        return solution

    def _with_refused(self, question: StepQuestion, solution: StepSolution) -> StepSolution:
        """The solution with the packages of which pip accepts no release that the others permit.

        pip 24.1 and newer skip releases whose metadata are not valid, which uv reads: omegaconf below 2.1, which
        fairseq 0.12.2 requires.
        """
        limits: list[str] = []
        first: Mapping[str, Mapping[str, str]] = {}
        versions = solution.versions
        for _ in range(_MAX_REFUSED):
            refused = self.index.refused_versions(versions) if self.index and versions else {}
            if not refused:
                break
            first = first or refused
            limits += [f"{name}!={version}" for name, texts in refused.items() for version in texts]
            attempt = self._run(question._replace(constraints=(*question.constraints, *limits)))
            if not attempt.lines:
                newest = partial(self._newest_releases, question)
                is_proven = _NO_SOLUTION.search(attempt.output) and not (
                    releases_to_build(attempt.output, question.requirements, newest) - self.built
                )
                texts = {name: texts[versions[name]] for name, texts in first.items() if versions[name] in texts}
                return solution._replace(refused=texts) if is_proven else solution
            versions = self._solution(attempt).versions
        return solution

    def _with_older_builds(self, question: StepQuestion, solution: StepSolution) -> StepSolution:
        """The solution with older releases to build that accept what is installed, as uv selects them.

        uv reads the requirements of each source archive: mamba-ssm 2.3.1 accepts the torch that 2.3.2 would replace.
        """
        installed = {leading_name(pin): pin.partition("==")[2] for pin in question.preferences}
        stated = dict(name_and_specifier(text) for text in question.requirements)
        excluding = builds_that_exclude(installed, solution, partial(self._requires, question=question))
        for _ in range(_MAX_OLDER_BUILDS):
            ranges = {name: f"{stated.get(name, '')},<{version}".strip(",") for name, version in excluding.items()}
            if not ranges or not (older := self._newest_releases(question, ranges)):
                break
            self.older |= older
            question = question._replace(placeholders=(*question.placeholders, *sorted(older)))
            found, excluding = self._solution(self._run(question)), dict(older)
            if any(
                solution.versions.get(each, "") != installed[each] == found.versions.get(each) for each in installed
            ):
                return found
        return solution

    def solve(self, question: StepQuestion) -> tuple[StepSolution, str]:
        """The solution of one run, without packages if there is none, and what uv prints then."""
        attempt = self._run(question)
        return self._solution(attempt), attempt.output

    def _solution(self, attempt: _Attempt) -> StepSolution:
        versions: dict[str, str] = {}
        required_by: dict[str, tuple[str, ...]] = {}
        for line in attempt.lines:
            if match := _LINE.match(line):
                name = normalize_name(match[1])
                versions[name] = match[2]
                via = (part.strip() for part in (match[3] or "").split(","))
                required_by[name] = tuple(normalize_name(part) for part in via if part and not part.startswith("-"))
        built = frozenset(name for name, version in versions.items() if (name, version) in self.built | self.older)
        return StepSolution(versions, required_by, built, absent_extras=attempt.absent_extras)

    def _run(self, question: StepQuestion) -> _Attempt:
        """Run uv, without the network where that gives releases that this command has resolved already.

        Without the network, uv takes older releases in place of those whose metadata it has not read. It keeps
        what it reads from PyPI, see CACHE_SETTINGS, so that a run with the network takes no longer.
        """
        if question.python != self.python:  # other releases have wheels for it
            self.python, self.built, self.older = question.python, set(), set()
        if self.requests_again and question.names <= {leading_name(pin) for pin in self.current}:
            attempt = self._compile(question, "--offline")
            if attempt.lines and {pin_of(line) for line in attempt.lines} <= self.current:
                return attempt
        attempt = self._compile(question)
        self.current |= {pin_of(line) for line in attempt.lines}
        return attempt

    def _compile(self, question: StepQuestion, *options: str) -> _Attempt:
        with tempfile.TemporaryDirectory(prefix="envdoctor-step-") as name:
            folder = Path(name)
            for package, version in sorted({*question.placeholders, *self.built}):
                write_wheel(folder, package, version, self._requires(package, version, question))
            source, limits, output = folder / "step.in", folder / "limits.txt", folder / "solved.txt"
            source.write_text("".join(f"{line}\n" for line in question.requirements))
            limits.write_text("".join(f"{line}\n" for line in question.constraints))
            overrides = folder / "overrides.txt"
            overrides.write_text("".join(f"{line}\n" for line in question.overrides))
            output.write_text("".join(f"{line}\n" for line in question.preferences))
            # An argument replaces UV_FIND_LINKS.
            links = [f"--find-links={link}" for link in (folder, *self.sources.find_links)]
            attempt = self._call(
                source, output, "--constraints", limits, "--overrides", overrides, "--output-file", output,
                "--python-version", newest_patch(question.python),
                "--python-platform", question.platform, "--only-binary", ":all:", "--no-header",
                "--annotation-style", "line", *links, *uv_arguments(self.sources), *options,
                *(["--exclude-newer", question.day] if question.day else []),
                *([] if question.with_dependencies else ["--no-deps"]),
            )  # fmt: skip
        replaced = {
            package for package, _ in (*question.placeholders, *self.built)
        }  # without the extras of the release
        absent = frozenset(each for each in attempt.absent_extras if each[0] not in replaced)
        return attempt._replace(absent_extras=absent)

    def _requires(self, name: str, version: str, question: StepQuestion) -> list[str]:
        """The requirements of a placeholder that apply on the platform; those of a commit are not known."""
        if version.endswith(f"+{COMMIT}"):
            return []
        platform = question.platform.partition("-")[0]
        texts: Iterable[str] = placeholder_requirements(name, version)
        is_named = name in question.names and (name, version) in newest_source_releases(question.day or "9")
        if not texts and self.index and (is_named or (name, version) in self.built | self.older):
            texts = self.index.requires(name, version)
        parsed = [(text, parse_requirement(text)) for text in texts]
        own_torch = "torch" if version.endswith(f"+{INSTALLED}") and question.has_own_torch else ""
        return [
            text for text, found in parsed
            if found and found.name != own_torch and not is_for_x86_only(found, platform)
        ]  # fmt: skip

    def _call(self, source: Path, output: Path, *options: str | Path) -> _Attempt:
        limit, started = min(STEP_SECONDS, self.left), time.monotonic()
        if limit <= 0:
            return _Attempt(timed_out=True)
        environment = lookup_environment() | uv_environment(self.sources)
        result = run_uv(["pip", "compile", source, *OWN_PYTHON, *options], environment=environment, timeout=limit)
        self.left -= time.monotonic() - started
        if not result.ok:
            return _Attempt(output=result.output, timed_out=result.timed_out)
        return _Attempt(tuple(output.read_text().splitlines()), absent_extras(result.output))

    def _newest_releases(self, question: StepQuestion, names: Mapping[str, str]) -> set[tuple[str, str]]:
        """The newest releases in these ranges, with or without a wheel."""
        key = (tuple(sorted(names.items())), question.python, question.day)
        if key in self.newest:
            return self.newest[key]
        with tempfile.TemporaryDirectory(prefix="envdoctor-step-") as name:
            source, output = Path(name, "step.in"), Path(name, "solved.txt")
            source.write_text("".join(f"{package}{specifier}\n" for package, specifier in names.items()))
            attempt = self._call(
                source, output, "--output-file", output, "--python-version", newest_patch(question.python),
                "--python-platform", question.platform, "--no-deps", "--no-header", "--no-annotate",
                *uv_arguments(self.sources),
                *(["--exclude-newer", question.day] if question.day else []),
            )  # fmt: skip
        found = (_LINE.match(line) for line in attempt.lines)
        self.newest[key] = {(normalize_name(match[1]), match[2]) for match in found if match}
        return self.newest[key]
