"""What is written on rules, on findings of a fleet and on causes: `envdoctor rules`, `envdoctor explain NAME`."""

from __future__ import annotations

import re

from envdoctor.core.errors import BadInput, nearest
from envdoctor.core.paths import exists
from envdoctor.core.results import Answer, Documentation, RuleList, RuleText

RULE = re.compile(r"[A-Za-z]{2,6}\d{3}")
CAUSE = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)+")


def documentation(given: str) -> Documentation | None:
    """What is written on a rule, a finding of the fleet, or a cause of this name; None where it is no name.

    BadInput for what can only be meant as a rule: DRV999.
    """
    if not (RULE.fullmatch(given) or CAUSE.fullmatch(given)):
        return None  # the tables are not read for every error text
    from envdoctor.knowledge.causes import causes
    from envdoctor.knowledge.fleet import fleet_texts
    from envdoctor.rules import RULES

    name = given.upper() if RULE.fullmatch(given) else given
    if name in RULES:
        rule = RULES[name]
        return Documentation(name, rule.title, rule.cause, rule.documentation, url=rule.url)
    if name in fleet_texts():
        told = fleet_texts()[name]
        return Documentation(name, told.title, told.cause, told.text)
    if name in causes():
        cause = causes()[name]
        related = tuple(rule.id for rule in RULES.values() if rule.cause == name)
        from envdoctor.explain.placeholders import fill_placeholders

        commands = tuple(fill_placeholders(command, {}) for command in cause.commands)
        text = f"{cause.definition}\n\n{fill_placeholders(cause.fix, {})}"
        return Documentation(name, cause.title, name, text, related, commands, cause.check, cause.url)
    if name == given and RULE.fullmatch(name) and not exists(name):
        close = nearest(name, [*RULES, *fleet_texts()])
        meant = f"; did you mean '{close}'?" if close else ""
        raise BadInput(f"there is no rule {name}{meant}", expected="an id of the list", hint="envdoctor rules")
    return None


def list_rules() -> Answer:
    """All rules."""
    from envdoctor.rules import RULES

    rows = (
        RuleText(
            rule.id,
            rule.title,
            rule.cause,
            rule.documentation.split("\n\n")[0].replace("\n", " "),
            rule.needs_environment,
        )
        for rule in RULES.values()
    )
    return Answer(RuleList(tuple(sorted(rows, key=lambda row: row.id))))
