"""The corrected text of `audit --fix` while it is made: each correction is audited before it is accepted.

A requirements file that a command of the text installs is part of it, and its versions are corrected there.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from envdoctor.core.errors import BadInput
from envdoctor.core.records import Finding
from envdoctor.core.remedies import Install
from envdoctor.knowledge.releases import normalize_name
from envdoctor.knowledge.versions import public_part
from envdoctor.locking.solved_set import SolvedSet
from envdoctor.manifests import GuideAudit
from envdoctor.manifests.added_packages import MISSING
from envdoctor.manifests.files import TextsOfFiles
from envdoctor.manifests.inputs.pieces import numbered
from envdoctor.manifests.line_corrections import correct_lines
from envdoctor.manifests.places import Place
from envdoctor.manifests.requirement_files import logical_lines, requirement_text
from envdoctor.manifests.write_back import write_back
from envdoctor.resolution.requirement import parse_install_requirement


class AuditAgain(Protocol):
    """Audits a corrected text, with the corrected texts of files next to it."""

    def __call__(self, corrected: str, on_disk: TextsOfFiles | None = None) -> GuideAudit:
        """Audit a text."""
        ...


class Draft(NamedTuple):
    """A text with its audit."""

    text: str
    audit: GuideAudit
    missing: tuple[str, ...] = ()  # what has no place in the text
    included: Mapping[Path, str] = {}  # the corrected texts of requirements files that it installs

    @property
    def problems(self) -> int:
        """The number of errors and warnings."""
        return problems_of(self.audit.findings)


def problems_of(findings: Sequence[Finding]) -> int:
    """The number of errors and warnings."""
    return sum(1 for finding in findings if finding.status in ("error", "warning"))


def new_problems(before: Sequence[Finding], after: Sequence[Finding]) -> list[Finding]:
    """The errors and warnings of a corrected text that the original does not have.

    One that was not certain, because a line could not be read, is not new.
    """
    known = Counter(each.id for each in before if each.status in ("error", "warning", "unknown"))
    new = []
    for each in after:
        if each.status in ("error", "warning"):
            known[each.id] -= 1
            new += [each] if known[each.id] < 0 else []
    return new


def is_incomplete(before: GuideAudit, after: GuideAudit) -> bool:
    """Whether steps of a corrected text could not be resolved: an index can be too slow."""
    return len(after.unresolved) > len(before.unresolved)


def is_better(before: GuideAudit, after: GuideAudit) -> bool:
    """Whether errors or warnings of a text are gone from the corrected one; others can have become certain.

    What is not compared any more is not gone: of old releases, a limited number is read.
    """
    old, remaining = _counts(before.findings), _counts(after.findings)
    skipped = [[each for each in audit.findings if _is_skipped(each)] for audit in (before, after)]
    ignored = {each.id for each in skipped[1]} if len(skipped[1]) > len(skipped[0]) else set()
    return any(remaining[each] < count for each, count in old.items() if each not in ignored)


def _is_skipped(finding: Finding) -> bool:
    return finding.message.startswith("not compared")


def _counts(findings: Sequence[Finding]) -> Counter[str]:
    return Counter(each.id for each in findings if each.status in ("error", "warning"))


def packages_of(findings: Sequence[Finding]) -> set[str]:
    """The packages that errors and warnings are about; without those that other programs need."""
    own = [each for each in findings if each.status in ("error", "warning") and each.id not in MISSING]
    steps = (step for each in own for remedy in each.remedies for step in remedy.steps)
    texts = [text for step in steps if isinstance(step, Install) for text in step.packages]
    texts += [item.fact for each in own for item in each.evidence]
    return {normalize_name(found[0]) for text in texts if (found := re.match(r"[A-Za-z0-9][\w.-]*", text))}


def for_packages(solved: SolvedSet, names: Collection[str]) -> SolvedSet:
    """A set with the versions of some packages only."""
    own = replace(solved.corrected, requirements=_pins_of(solved, names), torch_place=None)
    return replace(solved, corrected=own)


def with_corrected_lines(draft: Draft, kind: str, audit_again: AuditAgain) -> Draft:
    """The draft with the corrections of its lines; without those that lead to other problems."""
    causes: set[str] = set()
    for _ in range(2):
        corrected = correct_lines(draft.text, kind, draft.audit.findings, causes, _torch_of(draft.audit))
        if corrected.text == draft.text:
            return draft
        try:
            audit = audit_again(corrected.text, TextsOfFiles(draft.included))
            again = draft._replace(text=corrected.text, audit=audit)
        except BadInput:
            return draft
        if is_incomplete(draft.audit, audit):
            return draft
        new = new_problems(draft.audit.findings, again.audit.findings)
        if not new:
            return again if is_better(draft.audit, again.audit) else draft
        causes = {each.cause for each in new}
        if causes.isdisjoint(each.cause for each in corrected.findings):
            return draft
    return draft


def _torch_of(audit: GuideAudit) -> str:
    """The requirement of the torch that the text installs."""
    torch = audit.environment.torch.value
    version = torch.version.value if torch else ""
    return f"torch=={public_part(version)}" if version else "torch"


def with_sets(
    draft: Draft,
    usable: Sequence[SolvedSet],
    kind: str,
    audit_again: AuditAgain,
    *,
    limited: Collection[str],
    included: Mapping[Path, str],
) -> Draft:
    """The draft with the solved sets, and with the lines that are correct after them. Raises BadInput.

    `included` are the requirements files that the text installs.
    """
    files = {path: _with_pins(text, usable) for path, text in included.items()}
    named = {place.name for text in included.values() for place in _places_in(text)}
    sets = [(each.corrected, each.options[0].partition("=")[2] if each.options else "") for each in usable]
    written = write_back(draft.text, sets, kind, limited, named)
    missing = written.missing
    files = {path: text for path, text in files.items() if text != included[path]}
    if written.text == draft.text and not files:
        return draft._replace(missing=missing)
    again = Draft(written.text, audit_again(written.text, TextsOfFiles(files)), missing, files)
    corrected = with_corrected_lines(again, kind, audit_again) if again.problems else again
    is_for_set = corrected.audit.main.python == again.audit.main.python  # with another Python, the set is another one
    return corrected if is_for_set else again


def _with_pins(text: str, usable: Sequence[SolvedSet]) -> str:
    """A requirements file with the versions of sets for the packages that it names, and their index of torch."""
    places = tuple(_places_in(text))
    names = {place.name for place in places}
    sets = []
    for solved in usable:
        own = replace(
            solved.corrected, requirements=_pins_of(solved, names), places=places, torch_place=None, required_by={}
        )
        sets += [(own, solved.options[0].partition("=")[2] if solved.options else "")]
    return write_back(text, sets, "requirements").text


def _pins_of(solved: SolvedSet, names: Collection[str]) -> tuple[str, ...]:
    """The versions of a set for some packages."""
    return tuple(each for each in solved.corrected.requirements if each.partition("==")[0] in names)


def _places_in(text: str) -> list[Place]:
    lines = ((number, requirement_text(line)) for number, line in logical_lines(numbered(text)))
    found = (parse_install_requirement(line, number) for number, line in lines)
    return [Place(each.line, each.name, each.text) for each in found if each and each.name and not each.url]


def remaining_notes(draft: Draft, name: str, tried: Sequence[Finding] = ()) -> list[str]:
    """What --fix does not correct: each error and warning of a text, with its fix.

    `tried` are the findings of the original text with the fixes whose commands were tried.
    """
    fixes = {(each.id, each.message): each.fix for each in tried}
    return [
        f"remains in {name}, line {each.line}: {each.id}: {each.message.removesuffix('.')}. "
        f"{fixes.get((each.id, each.message), each.fix)}"
        for each in draft.audit.findings
        if each.status in ("error", "warning")
    ]
