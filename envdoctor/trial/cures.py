"""Remedies of failed imports. Each is tried: only one after which the modules import is reported."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from packaging.requirements import InvalidRequirement, Requirement

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.remedies import Install, remedy_of
from envdoctor.knowledge.published import published_packages
from envdoctor.knowledge.releases import normalize_name, parse_requirement
from envdoctor.knowledge.versions import dotted_numbers, public_part
from envdoctor.manifests.trial_records import Cure
from envdoctor.trial.causes import explained
from envdoctor.trial.contents import Contents, Installed
from envdoctor.trial.environment import TrialEnvironment
from envdoctor.trial.imports import ImportResult
from envdoctor.trial.plan import PlannedImport

MAX_CANDIDATES = 8  # for one failure
MAX_ROUNDS = 3  # a remedy may lead to the next failure
CURE_SECONDS = 900.0  # for all remedies of an environment
_MAX_USERS = 12  # packages of whose time a dependency may be

_NUMPY_2 = lazy_pattern(
    r"numpy\.dtype size changed|numpy\.(?:_?core)\.(?:multiarray|umath) failed to import|_ARRAY_API not found"
    r"|NumPy 2|compiled (?:using|for) NumPy 1|removed in the NumPy 2|np\.\w+` was removed"
)
_NUMPY_ALIAS = lazy_pattern(
    r"module 'numpy' has no attribute '(?:float|int|bool|object|complex|str|long|unicode|typeDict)'"
)
_NAME = lazy_pattern(r"cannot import name '[\w.]+' from (?:partially initialized module )?'([\w.]+)'")
_ATTRIBUTE = lazy_pattern(r"module '([\w.]+)' has no attribute '\w+'")
_STATED = lazy_pattern(r"([A-Za-z][\w.-]*) ?((?:[<>=!~]=?=? ?[\d][\w.*]*)(?:, ?[<>=!~]=?=? ?[\d][\w.*]*)*)")

_CHANGED = lazy_pattern(r"^ [+-] ([A-Za-z0-9][\w.-]*)==", re.MULTILINE)
_LARGE = frozenset({"torch", "tensorflow", "jax"})  # a remedy for another package does not replace gigabytes

Days = Callable[[str, str], str]  # the day of the upload of a release; empty if it is unknown
Importer = Callable[[Sequence[PlannedImport]], list[ImportResult]]


class Stage(NamedTuple):
    """A failure, and the results that have it."""

    results: tuple[ImportResult, ...]
    cure: Cure | None


class _Trial(NamedTuple):
    """A requirement, and what still fails with it."""

    packages: str
    remaining: list[ImportResult]


class Curer:
    """Searches remedies in one environment, which keeps those that succeed."""

    def __init__(self, environment: TrialEnvironment, importer: Importer, day_of: Days) -> None:
        self.environment = environment
        self.importer = importer
        self.day_of = day_of
        self.end = time.monotonic() + CURE_SECONDS

    def cure(self, results: Sequence[ImportResult]) -> tuple[list[Stage], Contents]:
        """The failures behind one another, each with the remedy after which all modules import.

        Without a remedy, the environment is restored. A failure in a release that a remedy chose is none of the file.
        """
        before = self.environment.contents()
        stages: list[tuple[ImportResult, ...]] = [tuple(results)]
        chosen: list[str] = []
        for _ in range(MAX_ROUNDS):
            found = self._round(stages[-1], chosen)
            if found is None:
                break
            chosen.append(found.packages)
            if not found.remaining:
                after = self.environment.contents()
                changes = tuple(_changes(before, after))
                cure = Cure(remedy=remedy_of([Install(packages=tuple(chosen))]), changes=changes)
                own = [each for each in stages[1:] if not _is_changed(each[0], before, after)]
                return [Stage(each, cure) for each in (stages[0], *own)], after
            stages.append(tuple(found.remaining))
        if chosen:
            self.environment.restore(before.versions)
        return [Stage(stages[0], None)], before

    def _round(self, results: Sequence[ImportResult], chosen: Sequence[str]) -> _Trial | None:
        """A requirement after which the modules import; without one, the first after which they fail differently."""
        contents = self.environment.contents()
        other: _Trial | None = None
        for candidate in list(dict.fromkeys(self._candidates(results[0], contents)))[:MAX_CANDIDATES]:
            if candidate in chosen or time.monotonic() > self.end:
                continue
            found = self._try(candidate, results, chosen)
            if found and not found.remaining:
                return found
            other = other or found
            self.environment.restore(contents.versions)
        if other:
            self.environment.install([*chosen, other.packages])
        return other

    def _try(self, candidate: str, results: Sequence[ImportResult], chosen: Sequence[str]) -> _Trial | None:
        """What fails with a requirement; None if it is the same, or if other packages then have a new conflict."""
        wanted = [*chosen, candidate]
        planned = self.environment.install(wanted, ["--dry-run"])
        changed = {normalize_name(name) for name in _CHANGED.findall(planned.output)} if planned.ok else set()
        if not changed or (_LARGE & changed and Requirement(candidate).name not in _LARGE):
            return None
        problems = self.environment.problems()
        if not self.environment.install(wanted).ok:
            return None
        if self.environment.problems() - problems:
            return None
        remaining = [each for each in self.importer([r.target for r in results]) if each.state != "imported"]
        keys = {each.key for each in results}
        return None if any(each.key in keys for each in remaining) else _Trial(candidate, remaining)

    def _candidates(self, result: ImportResult, contents: Contents) -> Iterator[str]:
        """Requirements that may remove a failure, the most likely first."""
        reason, versions = result.reason, contents.versions
        if "No module named 'pkg_resources" in reason:
            yield "setuptools<82"
        if "No module named 'distutils" in reason:
            yield "setuptools"
        if _NUMPY_ALIAS.search(reason):
            yield "numpy<1.24"
        if _NUMPY_2.search(f"{reason}\n{result.output}") and not versions.get("numpy", "1").startswith("1."):
            yield "numpy<2"
        yield from _stated(reason, versions)
        if dependency := _blamed(result, contents):
            yield from self._older(dependency, contents.owner(result.path), contents)
        if result.missing and not contents.provider(result.missing):
            yield from _declared(result, contents)
        if cause := explained(result.output):
            for remedy in cause.remedies:
                for step in remedy.steps:
                    yield from _of_installed(step.packages if isinstance(step, Install) else (), versions)

    def _older(self, name: str, user: Installed | None, contents: Contents) -> Iterator[str]:
        """Releases of a dependency from the time of the releases that use it, then older minor releases."""
        version = public_part(contents.versions.get(name, ""))
        users = [user] if user and user.name != name else []
        users += [
            each for each in contents.distributions.values() if each not in users and each.requires_package(name)
        ]
        days = [self.day_of(each.name, each.version) for each in users[:_MAX_USERS]]
        for day in dict.fromkeys(filter(None, [*days[:1], *sorted(days[1:])])):
            dated = self._release_until(name, day)
            if dated and dated != version:
                yield f"{name}=={dated}"
        numbers = dotted_numbers(version)
        if len(numbers) > 1 and numbers[1]:
            parts = (numbers[1], numbers[1] * 3 // 4, numbers[1] // 2)
            yield from (f"{name}<{numbers[0]}.{part}" for part in parts if part)
        if numbers and numbers[0] > 0:
            yield f"{name}<{numbers[0]}"

    def _release_until(self, name: str, day: str) -> str:
        """The newest release of a package up to a day, as uv selects it."""
        done = self.environment.install(
            [name], ["--dry-run", "--reinstall-package", name, "--no-deps", f"--exclude-newer-package={name}={day}"]
        )
        match = re.search(rf"^ \+ {re.escape(name)}==(\S+)", done.output, re.MULTILINE) if done.ok else None
        return public_part(match[1]) if match else ""


def _blamed(result: ImportResult, contents: Contents) -> str:
    """The package that lacks a name or a module, if it is installed."""
    match = _NAME.search(result.reason) or _ATTRIBUTE.search(result.reason)
    module = match[1] if match else result.missing if "." in result.missing else ""
    provider = contents.provider(module) if module else None
    owner = contents.owner(result.path)
    if provider is None:
        return ""
    return provider.name if owner is None or owner.name != provider.name else ""


def _stated(reason: str, versions: dict[str, str]) -> Iterator[str]:
    """A range of an installed package that the message itself states."""
    for name, specifier in _STATED.findall(reason):
        normal = normalize_name(name)
        text = f"{normal}{specifier.replace(' ', '')}"
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        if normal in versions and not requirement.specifier.contains(public_part(versions[normal]), prereleases=True):
            yield text


def _declared(result: ImportResult, contents: Contents) -> Iterator[str]:
    """A missing package that the metadata of an installed one names, or that the tables have."""
    wanted = normalize_name(result.missing.partition(".")[0])
    declared = (parse_requirement(text) for each in contents.distributions.values() for text in each.requires)
    names = {each.name for each in declared if each} | set(published_packages())
    if wanted in names:
        yield wanted


def _of_installed(packages: Iterable[str], versions: dict[str, str]) -> Iterator[str]:
    """Requirements with a version on packages that are installed."""
    for text in packages:
        found = parse_requirement(text)
        if found and found.specifier and found.name in versions:
            yield text


def _is_changed(result: ImportResult, before: Contents, after: Contents) -> bool:
    """Whether a failure is in a package that a remedy changed."""
    owner = after.owner(result.path) if result.path else after.provider(result.target.module)
    return owner is not None and before.versions.get(owner.name) != owner.version


def _changes(before: Contents, after: Contents) -> Iterator[str]:
    old, new = before.versions, after.versions
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            yield f"{name} {old.get(name, 'not installed')} -> {new.get(name, 'removed')}"
