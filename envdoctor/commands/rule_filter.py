"""The options --select and --ignore: prefixes of the rules whose findings are shown."""

from __future__ import annotations

import re
from collections.abc import Sequence

from envdoctor.core.errors import BadInput, closest_match
from envdoctor.core.record import Record
from envdoctor.core.records import Finding
from envdoctor.profiles.unused_gpu import FINDING_PREFIX

TEXT_PREFIX = "TEXT-"
CAUSE_PREFIX = f"^(?:{TEXT_PREFIX}|{FINDING_PREFIX})"  # of findings that are not the result of a rule


class RuleFilter(Record, frozen=True):
    """Prefixes of the rule ids to show and to hide."""

    select: tuple[str, ...]
    ignore: tuple[str, ...]

    def apply(self, findings: Sequence[Finding]) -> tuple[Finding, ...]:
        """The findings that the filter lets through."""
        return tuple(finding for finding in findings if self.includes(finding.id))

    def includes(self, identifier: str) -> bool:
        """Whether the findings of a rule are shown."""
        return (not self.select or identifier.startswith(self.select)) and not identifier.startswith(self.ignore)


def parse_rule_filter(select: Sequence[str], ignore: Sequence[str], known: list[str]) -> RuleFilter:
    """Parse rule ids or prefixes, each option comma-separated or repeated; raises BadInput for an unknown one."""
    parsed = [
        tuple(part.strip() for text in texts for part in text.split(",") if part.strip())
        for texts in (select, ignore)
    ]
    for prefix in [*parsed[0], *parsed[1]]:
        names = [*known, TEXT_PREFIX, FINDING_PREFIX]
        if not any(name.startswith(prefix) for name in names) and not re.search(CAUSE_PREFIX, prefix):
            close = closest_match(prefix, known)
            raise BadInput(
                f"no rule id starts with '{prefix}'" + (f"; did you mean '{close}'?" if close else ""),
                expected="rule ids or prefixes, such as DRV001 or DRV",
                hint="envdoctor rules",
            )
    return RuleFilter(*parsed)
