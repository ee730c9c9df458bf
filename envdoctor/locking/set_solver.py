"""Runs uv for a corrected set of requirements, with placeholders of the wheels that no reachable source has."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace
from packaging.requirements import Requirement

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record
from envdoctor.download.sources import Sources, uv_arguments, uv_environment
from envdoctor.knowledge.published import find_release, is_older_than_table
from envdoctor.knowledge.releases import normalize_name, parse_requirement, requirements_of_release
from envdoctor.knowledge.torch_builds import published_wheels, torch_releases
from envdoctor.knowledge.versions import minor_of, newest_patch
from envdoctor.locking.lock import Target
from envdoctor.locking.placeholders import write_wheel
from envdoctor.locking.source_releases import Release, needs_newer_python, releases_to_build
from envdoctor.locking.step_placeholders import newest_source_releases
from envdoctor.locking.torch_index import write_placeholder
from envdoctor.locking.uv import OWN_PYTHON, is_unreachable, lookup_environment, run_uv
from envdoctor.manifests import CorrectedSet
from envdoctor.manifests.stated_python import permits
from envdoctor.resolution.index_facts import IndexFacts
from envdoctor.resolution.torch_sources import may_provide

SOLVE_SECONDS = 60.0  # limit of one run of uv
TOTAL_SECONDS = 90.0  # of all runs for the sets of a file
DEFAULT_PYTHON = "3.12"
_MAX_ATTEMPTS = 12  # one for each release without a wheel, which uv names one by one
_LINE = lazy_pattern(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;]+)[^#]*(?:# via (.*))?")
_TRIED = ("3.11", "3.10", "3.9")  # in addition to an assumed Python
_PYTHONS = (DEFAULT_PYTHON, "3.11", "3.10", "3.13", "3.9", "3.8")  # the first one that all pins support


class Attempt(Record, frozen=True):
    """The result of one run: the versions by name, or uv's output."""

    versions: dict[str, str]
    output: str = ""
    required_by: Mapping[str, tuple[str, ...]] = {}  # packages of the solution, and those that require them


class SetSolver:
    """Runs uv for one set, in a directory with placeholders of the wheels that no reachable source has.

    With an index, the placeholder of a source archive has the requirements of that archive.
    """

    def __init__(
        self, corrected: CorrectedSet, sources: Sources, end: float, index: IndexFacts | None = None
    ) -> None:
        self.corrected = corrected
        self.sources = sources
        self.index = index
        self.target = target_of(corrected)
        self.broken = ""  # what rules report about a solution
        self.end = end
        self.timed_out = False
        self.index_is_unreachable = False
        self.preferences: tuple[str, ...] = ()
        pins = (pin.partition("==") for pin in corrected.source_only)
        self.source_only: set[Release] = {(name, version) for name, _, version in pins}  # without a wheel
        self.day = ""  # the last day of releases to take; empty for all

    def run(
        self, requirements: Sequence[str], backend: str, *, preferences: Sequence[str] = ()
    ) -> tuple[Attempt, str]:
        """One attempt, and what it does not verify. `preferences` are pins that uv keeps where it can."""
        self.preferences = (*self.corrected.preferences, *preferences)
        attempt, note = self._attempt(requirements, backend)
        versions = {name: version.partition("+")[0] for name, version in attempt.versions.items()}
        exact = [pin for pin in self.preferences if "==" in pin]
        pins = {pin: versions.get(normalize_name(Requirement(pin).name), "") for pin in exact}
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

    def as_printed(self, requirements: Sequence[str], backend: str) -> Attempt:
        """What these requirements alone bring today, as a user installs them."""
        day, self.day, self.preferences = self.day, "", ()
        attempt, _ = self._attempt(requirements, backend)
        self.day = day
        return attempt

    def _attempt(self, requirements: Sequence[str], backend: str) -> tuple[Attempt, str]:
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

    def built(self, versions: Mapping[str, str]) -> list[str]:
        """The pins of the releases that have only a source archive."""
        known = {*self.source_only, *newest_source_releases("9")}
        return sorted(
            f"{name}=={version}"
            for name, version in versions.items()
            if name not in self.corrected.contained
            and ((name, version) in known or ((row := find_release(name, version)) and row.kind == "source"))
        )

    def _write_torch(self, folder: Path, backend: str) -> str:
        """Placeholders of the PyTorch index, and what they leave open."""
        wheels = published_wheels(backend, self.target.pythons[0], self.corrected.architecture)
        pins = {Requirement(text).name: text.partition("==")[2] for text in self.corrected.requirements}
        if any(wheel.name == "torch" and wheel.version.partition("+")[0] == pins.get("torch") for wheel in wheels):
            for wheel in wheels:
                write_placeholder(folder, wheel)
            return f"the PyTorch index was not reachable; its wheels for {backend} are those of the built-in table"
        return f"the PyTorch index was not reachable: solved with PyPI's build of torch, not verified with {backend}"

    def _compile(self, requirements: Sequence[str], options: Sequence[str], links: Sequence[str]) -> Attempt:
        """Run `uv pip compile`. A package without a wheel becomes a placeholder with its known requirements."""
        with tempfile.TemporaryDirectory(prefix="envdoctor-solve-") as name:
            folder = Path(name)
            for package, version in self.corrected.contained.items():
                write_wheel(folder, package, version, requirements_of_release(package, version))
            for text in requirements:
                self._write_source_only(folder, text)
            named = {normalize_name(Requirement(text).name) for text in requirements}
            for package, version in newest_source_releases(self.day or "9"):  # in place of an older one with a wheel
                self._write_wheel(folder, package, version, is_read=package in named)
            for package, version in self.source_only:
                self._write_wheel(folder, package, version)
            attempt = self._run(folder, requirements, options, (*links, name))
            for _ in range(_MAX_ATTEMPTS):
                newest = partial(self._newest_releases, folder)
                found = set() if attempt.versions else releases_to_build(attempt.output, requirements, newest)
                found = {each for each in found if not needs_newer_python(*each, self.target.pythons[0])}
                if not found - self.source_only:
                    break
                self.source_only |= found
                for package, version in found:
                    self._write_wheel(folder, package, version)
                attempt = self._run(folder, requirements, options, (*links, name))
        return attempt

    def _write_source_only(self, folder: Path, text: str) -> None:
        requirement = Requirement(text)
        version = text.partition("==")[2]
        release = find_release(requirement.name, version) if version else None
        if release and release.kind == "source":
            self._write_wheel(folder, requirement.name, version)

    def _write_wheel(self, folder: Path, name: str, version: str, *, is_read: bool = True) -> None:
        """An empty wheel for every platform, with the requirements that the tables or the index have for it."""
        texts = requirements_of_release(name, version)
        if not texts and self.index and is_read:
            texts = tuple(text for text in self.index.requires(name, version) if parse_requirement(text))
        write_wheel(folder, name, version, texts)

    def _run(
        self, folder: Path, requirements: Sequence[str], options: Sequence[str], links: Sequence[str]
    ) -> Attempt:
        source, output = folder / "requirements.in", folder / "solved.txt"
        contained = [f"{name}=={version}" for name, version in self.corrected.contained.items()]
        named = [with_extras(text, self.corrected.extras) for text in requirements]
        source.write_text("".join(f"{text}\n" for text in (*named, *contained)))
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

    def _call(self, source: Path, output: Path, *options: str) -> Attempt:
        command: list[str | Path] = [
            "pip", "compile", source, "--output-file", output, *OWN_PYTHON,
            "--python-version", newest_patch(self.target.pythons[0]), "--python-platform", self.target.platform,
            "--no-header", "--annotation-style", "line", *options, *uv_arguments(self.sources),
            *(["--exclude-newer", self.day] if self.day else []),
        ]  # fmt: skip
        limit = min(SOLVE_SECONDS, self.end - time.monotonic())
        if limit <= 0:
            self.timed_out = True
            return Attempt({}, "operation timed out")
        result = run_uv(command, environment=lookup_environment() | uv_environment(self.sources), timeout=limit)
        if not result.ok:
            self.timed_out = self.timed_out or result.timed_out
            return Attempt({}, "operation timed out" if result.timed_out else result.output)
        found = [match for line in output.read_text().splitlines() if (match := _LINE.match(line))]
        return Attempt(
            {normalize_name(match[1]): match[2] for match in found},
            required_by={normalize_name(match[1]): _requiring(match[3] or "") for match in found},
        )


def _requiring(via: str) -> tuple[str, ...]:
    """The packages in the annotation of a line, without the file of the requirements."""
    parts = (part.strip() for part in via.split(","))
    return tuple(normalize_name(part) for part in parts if part and not part.startswith("-"))


def with_extras(text: str, extras: Mapping[str, str]) -> str:
    """A requirement with the extras of its package."""
    name = Requirement(text).name
    return f"{name}[{extras[name]}]{text[len(name) :]}" if name in extras and "[" not in text else text


def target_of(corrected: CorrectedSet) -> Target:
    """The platform and the Python that a set is solved for."""
    return Target(corrected.architecture, corrected.glibc, (corrected.python or _python_of(corrected),))


def likely_pythons(corrected: CorrectedSet) -> list[str]:
    """The Pythons to solve a set for: that of the guide; if it names none, one that all pins support, and others."""
    if not corrected.is_python_assumed:
        return [corrected.python or _python_of(corrected)]
    tried = [each for each in _TRIED if permits(corrected.permitted_python, each)]
    likely = [_python_of(corrected), *filter(None, [corrected.python])]
    # The tables do not have the oldest releases. The audit reads their wheels from the index.
    likely = likely[::-1] if any(is_older_than_table(*pin) for pin in _pins_of(corrected.requirements)) else likely
    return list(dict.fromkeys([*likely, *tried]))


def for_stated_cuda(corrected: CorrectedSet) -> list[CorrectedSet]:
    """The set for the CUDA version that the guide or its project states, for each likely Python."""
    old, cuda = corrected.cuda, corrected.stated_cuda.version
    if not cuda:
        return []
    profile = corrected.profile_toml.replace(f'build = "{old}"', f'build = "{cuda}"')
    profile = profile.replace(f'"cu{old.replace(".", "")}"', f'"cu{cuda.replace(".", "")}"')
    stated = replace(corrected, cuda=cuda, profile_toml=profile)
    return [replace(stated, python=python) for python in likely_pythons(corrected)]


def _pins_of(requirements: Sequence[str]) -> list[tuple[str, str]]:
    return [(Requirement(text).name, text.partition("==")[2]) for text in requirements if "==" in text]


def _python_of(corrected: CorrectedSet) -> str:
    """The usual Python, or the nearest one for which all pins have wheels: a guide of 2023 is for 3.10 or 3.11.

    Those of the guide come before the releases that a later step or a correction replaces them with.
    """
    permitted = [each for each in _PYTHONS if permits(corrected.permitted_python, each)]
    for requirements in (corrected.own, corrected.requirements):
        releases = [release for pin in _pins_of(requirements) if (release := find_release(*pin))]
        compiled = [release for release in releases if release.kind == "wheels"]
        fitting = [each for each in permitted if all(release.has_wheel("", each) for release in compiled)]
        if fitting and requirements:
            return fitting[0]
    return next(iter(permitted), DEFAULT_PYTHON)
