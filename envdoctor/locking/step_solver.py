"""Solves the install steps of a guide with uv, one after the other, as an installer would do it today.

uv builds nothing and installs nothing. Packages that no reachable index has are placeholders: empty wheels with the
requirements of the built-in tables. They take the place of the packages in an image or from a channel of conda, of
wheels at a URL, of the wheels of the PyTorch index, and of releases that an installer would compile.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Container, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

from envdoctor.download.sources import Sources, uv_arguments, uv_environment
from envdoctor.knowledge.published import find_release, published_releases
from envdoctor.knowledge.releases import normalize_name, parse_requirement, requirements_of_release
from envdoctor.knowledge.versions import is_prerelease, major_minor, newest_patch, public_part
from envdoctor.locking.lock import Target
from envdoctor.locking.placeholders import write_wheel
from envdoctor.locking.source_releases import releases_to_build
from envdoctor.locking.step_conflicts import absent_requirement, conflicting_requirements, describe_conflict
from envdoctor.locking.step_placeholders import newest_source_releases, wheels_of_torch_index
from envdoctor.locking.uv import (
    OWN_PYTHON,
    describe_unreachable,
    is_unreachable,
    lookup_environment,
    run_uv,
)
from envdoctor.resolution.index_facts import IndexFacts
from envdoctor.resolution.requirement import InstallRequirement, is_at_commit, parse_wheel_name
from envdoctor.resolution.resolver import ResolvedPackage, is_for_x86_only
from envdoctor.resolution.step import StepProblem, StepSolution
from envdoctor.resolution.torch_sources import TORCH_FAMILY

STEP_SECONDS = 60.0  # limit of one run of uv
TOTAL_SECONDS = 240.0  # of all steps of a command
_MAX_ATTEMPTS = 40  # one for each release without a wheel, which uv names one by one
_MAX_CONFLICTS = 6  # of one step
_MAX_PASSED_OVER = 4
_MAX_RELEASED = 4  # runs with fewer installed releases each
_GLIBC = "2.35"  # of Ubuntu 22.04
_INSTALLED = "installed"  # local version of a placeholder: uv distinguishes it from the release of an index
_COMMIT = "commit"  # local version of a placeholder whose requirements are not known
_BOUND_TO_TORCH = re.compile(r"torch|triton$|(?:nvidia|cuda)-")  # torch requires exact releases of these
_VALID_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_LINE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?==([^\s;]+)[^#]*(?:# via (.*))?")
_WORD = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


class _Question(NamedTuple):
    """The input of uv for one step. Equal ones have equal solutions."""

    requirements: tuple[str, ...]
    constraints: tuple[str, ...]
    overrides: tuple[str, ...]
    preferences: tuple[str, ...]
    placeholders: tuple[tuple[str, str], ...]
    python: str
    platform: str
    day: str
    with_dependencies: bool


class _Attempt(NamedTuple):
    """The result of one run: the lines of the solution, or uv's output."""

    lines: tuple[str, ...] = ()
    output: str = ""
    timed_out: bool = False


class UvStepSolver:
    """Solves steps with the configured package sources. `reason` states why a step was not solved."""

    def __init__(self, sources: Sources, index: IndexFacts | None = None) -> None:
        self.sources = sources
        self.index = index
        self.reason = ""
        self.solved: dict[_Question, StepSolution | None] = {}
        self.current: set[str] = set()  # pins that this command resolved with the network
        self.built: set[tuple[str, str]] = set()  # releases without a wheel
        self.absent: dict[str, str] = {}  # requirements that no release satisfies, with their conflicts
        self.end = time.monotonic() + TOTAL_SECONDS

    def __call__(self, problem: StepProblem) -> StepSolution | None:
        """Solve one step; None if a source is unreachable, or has other packages than those of PyPI."""
        if self.reason:
            return None
        question = _question(problem)
        if not question.requirements:
            return StepSolution()
        if question not in self.solved:
            solution = self._solve(question)
            if solution and self._find_passed_over(question, solution):
                solution = self._solve(question)
            if solution and self.sources.extra_indexes:
                solution = self._keep_installed(question, solution)
            self.solved[question] = solution
        solution = self.solved[question]
        return None if solution and solution.conflict and problem.has_other_index else solution

    def _solve(self, question: _Question) -> StepSolution | None:
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
                return self._solution(attempt.lines)
            if "No solution found" not in attempt.output:
                return None
            newest = partial(self._newest_releases, question)
            found = releases_to_build(attempt.output, question.requirements, newest) - self.built
            self.built |= found
            if found:
                continue
            conflicts.append(describe_conflict(attempt.output))
            if absent := absent_requirement(conflicts[-1], question.requirements):
                self.absent[absent] = conflicts[-1]
                question = _without(question, (absent,))
            elif named := conflicting_requirements(conflicts[-1], question.requirements):
                question = _without(question, named)
            else:
                break
        return StepSolution(conflict=conflicts[0], further_conflicts=tuple(conflicts[1:])) if conflicts else None

    def _find_passed_over(self, question: _Question, solution: StepSolution) -> bool:
        """Whether uv takes a release of an older major version because a newer one requires what has no wheel.

        hydra-core 1 requires an antlr4 that has only a source archive: uv would take hydra-core 0.11.
        """
        stated = {_name(text): text[len(_name(text)) :] for text in question.requirements if "[" not in text}
        names = {
            name: specifier for name, specifier in stated.items()
            if name in solution.versions and name not in TORCH_FAMILY and not re.search(r"<|==|~=", specifier)
        }  # fmt: skip
        newest = partial(self._newest_releases, question)
        later = [
            f"{name}=={version}" for name, version in sorted(newest(names) if names else ())
            if major_minor(version)[0] > major_minor(solution.versions[name])[0]
        ]  # fmt: skip
        found: set[tuple[str, str]] = set()
        for pin in later[:_MAX_PASSED_OVER]:
            attempt = self._run(question._replace(requirements=(pin,), constraints=(), preferences=()))
            found |= releases_to_build(attempt.output, (pin,), newest) - self.built
        self.built |= found
        return bool(found)

    def _keep_installed(self, question: _Question, solution: StepSolution) -> StepSolution:
        """The solution with the installed releases that its new packages accept.

        Of several indexes, uv takes a preference from the first one that has the release, and discards it if that
        index lacks the wheel for this Python. For a constraint, uv reads all indexes.
        """
        kept = frozenset(
            pin for pin in question.preferences
            if pin not in _pins(solution) and _name(pin) in solution.versions
        )  # fmt: skip
        named = {_name(text) for text in question.requirements}
        known = {_name(pin) for pin in question.preferences}
        chosen = [
            pin for pin in _pins(solution)
            if _name(pin) not in known and (_name(pin) in named or not _BOUND_TO_TORCH.match(pin))
        ]  # fmt: skip
        for _ in range(_MAX_RELEASED):
            if not kept:
                break
            preferences = tuple(pin for pin in question.preferences if pin not in kept)
            constraints = (*question.constraints, *chosen, *sorted(kept))
            attempt = self._run(question._replace(preferences=preferences, constraints=constraints))
            if attempt.lines:
                return self._solution(attempt.lines)
            kept = _without_excluded(kept, attempt.output)
        return solution

    def _solution(self, lines: Iterable[str]) -> StepSolution:
        versions: dict[str, str] = {}
        required_by: dict[str, tuple[str, ...]] = {}
        for line in lines:
            if match := _LINE.match(line):
                name = normalize_name(match[1])
                versions[name] = match[2]
                via = (part.strip() for part in (match[3] or "").split(","))
                required_by[name] = tuple(normalize_name(part) for part in via if part and not part.startswith("-"))
        built = frozenset(name for name, version in versions.items() if (name, version) in self.built)
        return StepSolution(versions, required_by, built)

    def _run(self, question: _Question) -> _Attempt:
        """Run uv, without the network where that gives releases that this command has resolved already.

        Without the network, uv takes older releases in place of those whose metadata it has not read.
        """
        named = {_name(text) for text in question.requirements}
        if named <= {_name(pin) for pin in self.current}:
            attempt = self._compile(question, "--offline")
            if attempt.lines and {_pin(line) for line in attempt.lines} <= self.current:
                return attempt
        attempt = self._compile(question)
        self.current |= {_pin(line) for line in attempt.lines}
        return attempt

    def _compile(self, question: _Question, *options: str) -> _Attempt:
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
            return self._call(
                source, output, "--constraints", limits, "--overrides", overrides, "--output-file", output,
                "--python-version", newest_patch(question.python),
                "--python-platform", question.platform, "--only-binary", ":all:", "--no-header",
                "--annotation-style", "line", *links, *uv_arguments(self.sources), *options,
                *(["--exclude-newer", question.day] if question.day else []),
                *([] if question.with_dependencies else ["--no-deps"]),
            )  # fmt: skip

    def _requires(self, name: str, version: str, question: _Question) -> list[str]:
        """The requirements of a placeholder that apply on the platform; those of a commit are not known."""
        if version.endswith(f"+{_COMMIT}"):
            return []
        platform = question.platform.partition("-")[0]
        texts: Iterable[str] = requirements_of_release(name, public_part(version))
        if not texts and self.index and (name, version) in self.built:
            texts = self.index.requires(name, version)
        parsed = [(text, parse_requirement(text)) for text in texts]
        return [text for text, found in parsed if found and not is_for_x86_only(found, platform)]

    def _call(self, source: Path, output: Path, *options: str | Path) -> _Attempt:
        limit = min(STEP_SECONDS, self.end - time.monotonic())
        if limit <= 0:
            return _Attempt(timed_out=True)
        environment = lookup_environment() | uv_environment(self.sources)
        result = run_uv(["pip", "compile", source, *OWN_PYTHON, *options], environment=environment, timeout=limit)
        if not result.ok:
            return _Attempt(output=result.output, timed_out=result.timed_out)
        return _Attempt(tuple(output.read_text().splitlines()))

    def _newest_releases(self, question: _Question, names: Mapping[str, str]) -> set[tuple[str, str]]:
        """The newest releases in these ranges, with or without a wheel."""
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
        return {(normalize_name(match[1]), match[2]) for match in found if match}


def _question(problem: StepProblem) -> _Question:
    """The input of uv for a step."""
    target = problem.target
    placeholders: dict[tuple[str, str], None] = {}
    lines: list[str] = []
    limits = [f"{each.name}{each.specifier}" for each in problem.constraints if each.specifier and not each.url]
    for requirement in problem.requirements:
        version = _version_of_placeholder(requirement)
        if version:
            placeholders[requirement.name, version] = None
            lines.append(f"{requirement.name}=={version}")
        elif requirement.name and not requirement.url:
            lines.append(_text(requirement, _yanked_pin(requirement, problem)))
    overrides = tuple(_text(each) for each in problem.overrides if each.name and not each.url)
    preferences: list[str] = []
    for package in problem.installed.values():
        if not (version := _version_of_installed(package)) or not _VALID_NAME.fullmatch(package.name):
            continue
        if "+" in version:
            placeholders[package.name, version] = None
        if package.name not in problem.upgraded:
            preferences.append(f"{package.name}=={version}")
    placeholders |= dict.fromkeys(newest_source_releases(target.exclude_newer))
    wheels, newest = wheels_of_torch_index(problem)
    placeholders |= dict.fromkeys(wheels)
    limits += [f"{name}<={version}" for name, version in newest.items()]
    platform = Target(target.platform, target.glibc if re.fullmatch(r"2\.\d+", target.glibc) else _GLIBC, ()).platform
    return _Question(
        tuple(dict.fromkeys(lines)), tuple(dict.fromkeys(limits)), overrides, tuple(sorted(preferences)),
        tuple(placeholders), target.python, platform,
        "" if target.exclude_newer.startswith("9") else target.exclude_newer, problem.with_dependencies,
    )  # fmt: skip


def _without(question: _Question, excluded: Container[str]) -> _Question:
    return question._replace(requirements=tuple(each for each in question.requirements if each not in excluded))


def _pins(solution: StepSolution) -> list[str]:
    return [f"{name}=={version}" for name, version in solution.versions.items()]


def _without_excluded(kept: frozenset[str], output: str) -> frozenset[str]:
    """The installed releases without those of the conflict; none if the conflict names none of them."""
    named = {normalize_name(word) for word in _WORD.findall(output)}
    excluded = {pin for pin in kept if _name(pin) in named}
    if any(_name(pin) == "torch" for pin in excluded):
        excluded |= {pin for pin in kept if _BOUND_TO_TORCH.match(pin)}
    return kept - excluded if excluded else frozenset()


def _text(requirement: InstallRequirement, specifier: str = "") -> str:
    """A requirement in the notation of a requirements file."""
    extras = f"[{','.join(requirement.extras)}]" if requirement.extras else ""
    return f"{requirement.name}{extras}{requirement.specifier or specifier}"


def _yanked_pin(requirement: InstallRequirement, problem: StepProblem) -> str:
    """The pin of an installed release that was yanked: installers keep it, but uv prefers others to it."""
    installed = problem.installed.get(requirement.name)
    release = find_release(requirement.name, installed.version) if installed else None
    return f"=={release.version}" if release and release.yanked and requirement.name not in problem.upgraded else ""


def _version_of_placeholder(requirement: InstallRequirement) -> str:
    """The version of a requirement that PyPI does not have: a wheel, a tag of a repository, a local version."""
    if requirement.wheel:
        wheel = parse_wheel_name(requirement.wheel)
        return _valid(wheel.version) if wheel else ""
    if requirement.url:
        tag = re.search(r"@v?(\d+(?:\.\d+)+)(?:#|$)", requirement.url)
        release = find_release(requirement.name, tag[1]) if tag else None
        newest = _newest(requirement.name)
        if is_at_commit(requirement.url):
            return f"{newest}+{_COMMIT}" if newest else ""
        return release.version if release else newest
    is_unpublished = "+" in requirement.pin or ("dev" in requirement.pin and requirement.name in TORCH_FAMILY)
    return _valid(requirement.pin) if is_unpublished else ""


def _version_of_installed(package: ResolvedPackage) -> str:
    """The version that uv keeps; with a local part if the package does not come from an index."""
    version = _valid(package.version) or _newest(package.name)
    is_of_index = package.origin == "PyPI" and not package.wheel and package.version
    return version if is_of_index or not version or "+" in version else f"{version}+{_INSTALLED}"


def _valid(version: str) -> str:
    try:
        return str(Version(version))
    except InvalidVersion:
        return ""


def _newest(name: str) -> str:
    """The newest release of the tables, for a package from a repository."""
    return next((row.version for row in published_releases(name) if not is_prerelease(row.version)), "")


def _name(text: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", text)
    return normalize_name(match[0]) if match else ""


def _pin(line: str) -> str:
    return line.partition("#")[0].strip()
