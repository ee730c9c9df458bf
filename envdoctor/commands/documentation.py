"""The page of all rules and causes, made from the rules' docstrings and the tables of causes and symptoms."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from types import FunctionType

from envdoctor.core.records import Status
from envdoctor.knowledge.causes import CauseText, causes
from envdoctor.knowledge.symptoms import symptom_table
from envdoctor.rules import RULES
from envdoctor.rules.registry import Rule

SEVERITIES: tuple[Status, ...] = ("error", "warning", "info")  # worst first
INTRODUCTION = """# Rules and causes

What `envdoctor check` looks for, and the causes that `envdoctor check` and `envdoctor explain` name.
This page is made from the code: `python tests/docs_page.py`. The same texts are printed by
`envdoctor explain RULE-ID` and `envdoctor explain CAUSE`.
"""


def rules_page() -> str:
    """The page in Markdown: the rules by family, then the causes."""
    parts = [INTRODUCTION, f"## Rules\n\n{len(RULES)} rules. A rule that finds nothing says nothing.\n"]
    for family, rules in families().items():
        parts += [f"### {family}\n", *(rule_section(rule) for rule in rules)]
    known = causes()
    parts.append(f"## Causes\n\n{len(known)} causes.\n")
    parts += [_cause_section(cause) for cause in known.values()]
    return "\n".join(parts)


def families() -> dict[str, list[Rule]]:
    """The rules by the family that their ids begin with, both in alphabetical order."""
    found: dict[str, list[Rule]] = {}
    for identifier in sorted(RULES):
        found.setdefault(identifier.rstrip("0123456789"), []).append(RULES[identifier])
    return found


def rule_section(rule: Rule) -> str:
    """One rule in Markdown: id and name, cause and severity, what its docstring says, references."""
    text, urls = split_references(rule.documentation)
    if rule.url and rule.url not in urls:
        urls.insert(0, rule.url)
    words = ", ".join(severities(rule.check)) or "it depends"
    references = "".join(f"- <{url}>\n" for url in urls)
    return (
        f"#### {rule.id} {rule.title}\n\n"
        f"Cause: [`{rule.cause}`](#{rule.cause}). Severity: {words}. Looks at: "
        f"{'machine and stack' if rule.wants_stack else 'machine'}.\n\n{text}\n" + (f"\n{references}" if urls else "")
    )


def split_references(text: str) -> tuple[str, list[str]]:
    """A docstring without its `References:` paragraph, and the addresses that stand in that paragraph.

    Sample: "The driver is old.\\n\\nReferences: https://docs.nvidia.com/deploy, https://github.com/a/b".
    """
    body, _, references = text.partition("\nReferences:")
    return body.strip(), [url.rstrip(".,;)") for url in re.findall(r"https?://[^\s<>]+", references)]


def severities(check: Callable[..., object]) -> list[Status]:
    """The severities that stand in a rule's code, or in the functions of its file that it calls; worst first."""
    words = set(_constants(check))
    for name in check.__code__.co_names:
        called = check.__globals__.get(name) if isinstance(check, FunctionType) else None
        if isinstance(called, FunctionType) and called.__module__ == check.__module__:
            words |= set(_constants(called))
    return [severity for severity in SEVERITIES if severity in words]


def _constants(function: Callable[..., object]) -> Iterator[str]:
    """The texts in a function's code, those of its inner functions too."""
    codes = [function.__code__]
    while codes:
        for constant in codes.pop().co_consts:
            if isinstance(constant, str):
                yield constant
            elif isinstance(constant, type(function.__code__)):
                codes.append(constant)


def _cause_section(cause: CauseText) -> str:
    rules = [rule.id for rule in RULES.values() if rule.cause == cause.slug]
    symptoms = Counter(symptom.cause for symptom in symptom_table().symptoms)[cause.slug]
    known = [f"rules {', '.join(sorted(rules))}"] if rules else []
    known += [f"{symptoms} symptom{'s' if symptoms > 1 else ''} in logs"] if symptoms else []
    commands = "\n".join(cause.commands)
    parts = [
        f"### {cause.slug}\n",
        f"**{cause.title}.** {cause.definition}\n",
        f"Fix: {_plain(cause.fix)}\n",
        f"```sh\n{_plain(commands)}\n```\n" if commands else "",
        f"To be sure: `{_plain(cause.check)}`\n" if cause.check else "",
        f"Known by: {' and '.join(known) or 'no rule and no symptom yet'}.\n",
        f"<{cause.url}>\n" if cause.url else "",
    ]
    return "\n".join(part for part in parts if part)


def _plain(text: str) -> str:
    """A text with the words for what is not known: `{gpu|this GPU}` is "this GPU"."""
    return re.sub(r"\{(\w+)(?:\|([^{}]*))?\}", lambda place: place[2] or place[1].upper(), text)
