"""The corrected text of `audit --fix` while it is made: each correction is audited before it is accepted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from envdoctor.core.errors import BadInput
from envdoctor.core.records import Finding
from envdoctor.locking.solve_set import SolvedSet
from envdoctor.manifests import GuideAudit
from envdoctor.manifests.line_corrections import correct_lines
from envdoctor.manifests.write_back import write_back

AuditAgain = Callable[[str], GuideAudit]


class Draft(NamedTuple):
    """A text with its audit."""

    text: str
    audit: GuideAudit
    missing: tuple[str, ...] = ()  # what has no place in the text

    @property
    def problems(self) -> int:
        """The number of errors and warnings."""
        return problems_of(self.audit.findings)


def problems_of(findings: Sequence[Finding]) -> int:
    """The number of errors and warnings."""
    return sum(1 for finding in findings if finding.status in ("error", "warning"))


def new_problems(before: Sequence[Finding], after: Sequence[Finding]) -> list[Finding]:
    """The errors and warnings of a corrected text that the original does not have."""
    known = Counter(each.id for each in before if each.status in ("error", "warning"))
    new = []
    for each in after:
        if each.status in ("error", "warning"):
            known[each.id] -= 1
            new += [each] if known[each.id] < 0 else []
    return new


def with_corrected_lines(draft: Draft, kind: str, audit_again: AuditAgain) -> Draft:
    """The draft with the corrections of its lines; without those that lead to other problems."""
    causes: set[str] = set()
    for _ in range(2):
        corrected = correct_lines(draft.text, kind, draft.audit.findings, causes)
        if corrected.text == draft.text:
            return draft
        try:
            again = Draft(corrected.text, audit_again(corrected.text), draft.missing)
        except BadInput:
            return draft
        new = new_problems(draft.audit.findings, again.audit.findings)
        if not new:
            return again if again.problems < draft.problems else draft
        causes = {each.cause for each in new}
        if causes.isdisjoint(each.cause for each in corrected.findings):
            return draft
    return draft


def with_sets(
    draft: Draft, usable: Sequence[SolvedSet], kind: str, audit_again: AuditAgain, limited: Collection[str]
) -> Draft:
    """The draft with the solved sets, and with the lines that are correct after them. Raises BadInput."""
    sets = [(each.corrected, each.options[0].partition("=")[2] if each.options else "") for each in usable]
    written = write_back(draft.text, sets, kind, limited)
    if written.text == draft.text:
        return draft._replace(missing=written.missing)
    again = Draft(written.text, audit_again(written.text), written.missing)
    return with_corrected_lines(again, kind, audit_again) if again.problems else again


def remaining_notes(draft: Draft, name: str) -> list[str]:
    """What remains to be done by hand: each error and warning of a text, with its fix."""
    return [
        f"remains in {name}, line {each.line}: {each.id}: {each.message}. {each.fix}".replace("..", ".")
        for each in draft.audit.findings
        if each.status in ("error", "warning")
    ]
