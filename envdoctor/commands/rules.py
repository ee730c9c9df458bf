"""`envdoctor rules`: list all rules."""

from __future__ import annotations

from envdoctor.core.record import Record
from envdoctor.core.results import CommandResult
from envdoctor.manifests.rules import audit_rules
from envdoctor.rules import RULES


class RuleSummary(Record, frozen=True):
    """One rule, summarised."""

    id: str
    title: str
    cause: str
    summary: str
    stack: bool  # the rule needs an environment, not only the machine or a manifest


class RuleList(Record, frozen=True):
    """All rules."""

    rules: tuple[RuleSummary, ...]


class RulesRequest(Record, frozen=True):
    """`envdoctor explain ID` prints the documentation of a rule.

    Example: envdoctor rules
    """


def run(_request: RulesRequest) -> CommandResult:
    """List all rules by id."""
    return CommandResult(
        RuleList(
            tuple(
                RuleSummary(
                    id=rule.id,
                    title=rule.title,
                    cause=rule.cause,
                    summary=rule.documentation.split("\n\n")[0].replace("\n", " "),
                    stack=rule.needs_environment,
                )
                for rule in sorted((RULES | audit_rules()).values(), key=lambda rule: rule.id)
            )
        )
    )
