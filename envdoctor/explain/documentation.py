"""Documentation of a rule, a fleet finding or a cause, by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from envdoctor.core.errors import BadInput, closest_match
from envdoctor.core.paths import exists
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record
from envdoctor.core.remedies import Remedy
from envdoctor.explain.placeholders import fill_placeholders, fill_remedies

if TYPE_CHECKING:
    from envdoctor.rules.registry import Rule

RULE = lazy_pattern(r"[A-Za-z]{2,6}\d{3}")
CAUSE = lazy_pattern(r"[a-z0-9]+(?:-[a-z0-9]+)+")


class Documentation(Record, frozen=True):
    """The documentation of one rule or cause."""

    id: str
    title: str
    cause: str
    text: str
    rules: tuple[str, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    check: str = ""
    url: str = ""


def find_documentation(name: str, audit_rules: Callable[[], Mapping[str, Rule]]) -> Documentation | None:
    """The documentation of a rule, fleet finding or cause; None if `name` does not have the form of such a name.

    `audit_rules` loads the rules of `envdoctor audit`, for a rule id only.

    Raises BadInput for an unknown name that has the form of a rule id, such as DRV999.
    """
    if not (RULE.fullmatch(name) or CAUSE.fullmatch(name)):
        return None  # the tables are not read for an ordinary error text
    from envdoctor.knowledge.causes import causes
    from envdoctor.knowledge.fleet import fleet_texts
    from envdoctor.rules import RULES

    is_rule_id = RULE.fullmatch(name) is not None
    key = name.upper() if is_rule_id else name
    rules = {**RULES, **(audit_rules() if is_rule_id else {})}
    if key in rules:
        rule = rules[key]
        return Documentation(key, rule.title, rule.cause, rule.documentation, url=rule.url)
    if key in fleet_texts():
        entry = fleet_texts()[key]
        return Documentation(key, entry.title, entry.cause, entry.text)
    if key in causes():
        cause = causes()[key]
        related = tuple(rule.id for rule in RULES.values() if rule.cause == key)
        remedies = fill_remedies(cause.remedies, {})
        text = f"{cause.definition}\n\n{fill_placeholders(cause.fix, {})}"
        return Documentation(key, cause.title, key, text, related, remedies, cause.check, cause.url)
    if key == name and is_rule_id and not exists(key):
        close = closest_match(key, [*rules, *fleet_texts()])
        suggestion = f"; did you mean '{close}'?" if close else ""
        raise BadInput(f"there is no rule {key}{suggestion}", expected="a rule id", hint="envdoctor rules")
    return None
