"""`envdoctor audit --fix` for locks and lists: corrects the manifest, and names the command that writes the lock."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from envdoctor.commands.audit_draft import problems_of
from envdoctor.commands.audit_fix import (
    Corrections,
    Outcome,
    fixed_set,
    nothing_to_correct,
    requirements_text,
)
from envdoctor.core.errors import BadInput
from envdoctor.core.records import Finding, Machine
from envdoctor.download.sources import read_sources
from envdoctor.environment.markers import Markers
from envdoctor.knowledge.versions import public_part, satisfies
from envdoctor.locking.solve_set import solve_set
from envdoctor.locking.solved_set import SolvedSet, accept
from envdoctor.manifests import CorrectedSet, DroppedPackage, audit_paths
from envdoctor.manifests.actions import Install
from envdoctor.manifests.assumed_python import USUAL_PYTHON
from envdoctor.manifests.dropped_packages import OF_ADDRESSES
from envdoctor.manifests.files import Files
from envdoctor.manifests.guide import PLATFORMS
from envdoctor.manifests.inputs.lock_sources import has_hashes, lock_source
from envdoctor.manifests.inputs.locked_sets import CorrectedLock, correct_sets, set_of_stack
from envdoctor.manifests.inputs.recognition import read_input
from envdoctor.manifests.inputs.records import Document, LockedPackage, PackageSet
from envdoctor.manifests.places import Place
from envdoctor.manifests.write_back import write_back
from envdoctor.resolution.requirement import InstallRequirement

_LISTS = frozenset({"package list", "conda list"})


class LockedInput(NamedTuple):
    """A lock file, a compiled requirements file, or a list of installed packages, with its findings."""

    path: Path
    text: str
    document: Document
    findings: Sequence[Finding]


def fix_locked(locked: LockedInput, machine: Machine | None, fix: Corrections) -> Outcome:
    """Correct the manifest that a lock comes from, or the list itself."""
    return _LockFix(locked, machine, fix).run()


class _LockFix:
    """The correction of one lock or list."""

    def __init__(self, locked: LockedInput, machine: Machine | None, fix: Corrections) -> None:
        self.path, self.text, self.document, self.findings = locked
        self.machine = machine
        self.fix = fix
        self.sets = self.document.sets or _sets_of(self.document)
        self.source = lock_source(self.document.kind, self.path, self.text)
        self.manifest = self._read_manifest()
        self.direct = _direct_names(self.manifest) if self.manifest else frozenset()

    def run(self) -> Outcome:
        """Solve other versions of the packages that findings name, and write them."""
        if not problems_of(self.findings):
            return Outcome(notes=(nothing_to_correct(self.path.name, self.document.unread),))
        named = {item.fact for finding in self.findings for item in finding.evidence}
        locks = list(correct_sets(self.sets, self.path.name, named, self.direct, self.machine))
        if not locks:
            advice = "no other versions solve its problems, see the fix of each finding"
            return Outcome(notes=(f"{self.path.name} was not corrected: {advice}",))
        if done := self._corrected_before(locks):
            return done
        sources, check = read_sources(), self.fix.check(accept)
        left = _left_addresses(self.document, self.machine)
        with_left = [replace(each.corrected, dropped=(*each.corrected.dropped, *left)) for each in locks]
        solved = [(lock, solve_set(each, sources, check)) for lock, each in zip(locks, with_left, strict=True)]
        usable = [(lock, each) for lock, each in solved if each.state == "solved"]
        outcome = Outcome(sets=tuple(fixed_set(each, trial=self.fix.trial_command(self.path)) for _, each in solved))
        if any(package.origin == "conda" for each in self.sets for package in each.packages):
            outcome = outcome.with_notes("packages from channels of conda were not solved")
        if not usable:
            return outcome.with_notes(f"{self.path.name} was not corrected: nothing solves it")
        if self.manifest and self.source.manifest:
            return self._with_manifest(self.manifest, self.source.manifest, usable, outcome)
        return self._with_list([each for _, each in usable], outcome)

    def _corrected_before(self, locks: Sequence[CorrectedLock]) -> Outcome | None:
        """The commands, if this run corrected the manifest already, and it excludes the locked versions."""
        path = self.source.manifest
        written = self.fix.paths.get(path.resolve()) if path else None
        if path is None or written is None or self.manifest is None:
            return None
        locked = {package.name: package.version for each in self.sets for package in each.packages}
        specifiers = {each.name: each.specifier for each in _requirements(self.manifest)}
        names = {name for lock in locks for name in lock.changed}
        if not all(satisfies(public_part(locked.get(name, "")), specifiers.get(name, "")) is False for name in names):
            return None
        note = f"the corrected {path.name} excludes the versions of {self.path.name}"
        return Outcome(notes=(note,)).with_commands(shlex.join(["cp", str(written), str(path)]), self.source.command)

    def _read_manifest(self) -> Document | None:
        """The manifest of the lock, as this run corrected it already; None if it cannot be read."""
        path = self.source.manifest
        return _read(self.fix.text_of(path), path) if path else None

    def _with_manifest(
        self, manifest: Document, path: Path, solved: Sequence[tuple[CorrectedLock, SolvedSet]], outcome: Outcome
    ) -> Outcome:
        """Pin the changed packages in the manifest. Dependencies that it does not name are added by its tool."""
        before = self.fix.text_of(path)
        audited = audit_paths(manifest.paths[0], manifest.paths, self.machine)
        places = tuple(place for corrected in audited.sets for place in corrected.places)
        sets = []
        added: list[str] = []
        for lock, each in solved:
            pins = {name: f"{name}=={version}" for name, version in lock.changed.items()}
            own = tuple(pin for name, pin in pins.items() if name in self.direct)
            sets.append((replace(each.corrected, places=places, requirements=own), _backend(each)))
            added += [pin for name, pin in pins.items() if not self._follows(name, lock.corrected)]
        written = write_back(before, sets, manifest.kind)
        if written.text != before and _read(written.text, path):
            target = self.fix.write(path, written.text)
            outcome = outcome.with_written(target)
            outcome = outcome.with_commands(shlex.join(["cp", str(target), str(path)]))
        outcome = outcome.with_notes(*(f"{text} has no place in {path.name}: add it" for text in written.missing))
        if added and self.source.add:
            outcome = outcome.with_commands(f"{self.source.add} {shlex.join(dict.fromkeys(added))}")
        elif added:
            outcome = outcome.with_notes(*(f"{pin} has no place in {path.name}: add it" for pin in added))
        return outcome.with_commands(self.source.command)

    def _follows(self, name: str, corrected: CorrectedSet) -> bool:
        """Whether the manifest names a package, or one that requires it."""
        return name in self.direct or (name != "torch" and corrected.required_by.get(name, "") in self.direct)

    def _with_list(self, solved: Sequence[SolvedSet], outcome: Outcome) -> Outcome:
        """Write the solved versions of a list, and of a lock whose manifest is not there."""
        target = self.fix.folder_of(self.path) / f"{self.path.stem}.requirements.txt"
        self.fix.write_file(target, requirements_text(solved[0], self.fix.trial_command(self.path)))
        outcome = outcome.with_written(target)
        kind = self.document.kind
        if kind == "requirements" and has_hashes(self.text):
            command = ["uv", "pip", "compile", str(target), "--generate-hashes", "--output-file", str(self.path)]
            return outcome.with_commands(shlex.join(command))
        if kind == "requirements":
            corrected = replace(solved[0].corrected, places=_places_of(self.document))
            written = write_back(self.text, [(corrected, _backend(solved[0]))], kind)
            return outcome.with_written(self.fix.write(self.path, written.text))
        if kind in _LISTS:
            return outcome.with_commands(shlex.join(["uv", "pip", "install", *solved[0].options, "-r", str(target)]))
        missing = f"{self.source.expected} is not next to it" if self.source.expected else "it names no manifest"
        return outcome.with_notes(f"{self.path.name} itself was not corrected: {missing}")


def _read(text: str, path: Path) -> Document | None:
    """A manifest; None if it cannot be read, or installs nothing."""
    try:
        document = read_input(text, path.name, Files(path.parent, *PLATFORMS))
    except BadInput:
        return None
    return document if document.paths else None


def _sets_of(document: Document) -> tuple[PackageSet, ...]:
    """The packages of a list: of `pip list`, or the pins of a requirements file."""
    if document.stack:
        return (set_of_stack(document.stack),)
    platform = document.paths[0].stated_machine.architecture
    markers = Markers(USUAL_PYTHON, platform)
    found = tuple(
        LockedPackage(each.name, each.pin, each.line)
        for each in _requirements(document)
        if each.pin and not each.url and (not each.marker or markers.holds(each.marker))
    )
    return (PackageSet(platform, "", found),)


def _left_addresses(document: Document, machine: Machine | None) -> tuple[DroppedPackage, ...]:
    """The repositories and URLs of a list, which a set does not have, with what installs them."""
    if not any(each.url for each in _requirements(document)):
        return ()
    main = audit_paths(document.paths[0], document.paths, machine).main
    return tuple(each for each in main.dropped if each.reason.startswith(OF_ADDRESSES))


def _requirements(document: Document) -> Iterator[InstallRequirement]:
    for guide in document.paths:
        for action in guide.actions:
            yield from action.requirements if isinstance(action, Install) else ()


def _direct_names(manifest: Document) -> frozenset[str]:
    return frozenset(each.name for each in _requirements(manifest))


def _places_of(document: Document) -> tuple[Place, ...]:
    return tuple(Place(each.line, each.name, each.text) for each in _requirements(document) if not each.url)


def _backend(solved: SolvedSet) -> str:
    return solved.options[0].partition("=")[2] if solved.options else ""
