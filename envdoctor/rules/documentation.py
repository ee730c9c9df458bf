"""Generates the page of all rules and causes from the rules' docstrings, causes.toml and the symptoms."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from envdoctor.core.remedies import command_lines, either
from envdoctor.knowledge.causes import CauseText, causes
from envdoctor.knowledge.symptoms import symptom_table
from envdoctor.rules import RULES
from envdoctor.rules.registry import Rule

INTRODUCTION = """# Rules and causes

The rules of `envdoctor check` and `envdoctor audit`, and the causes that `envdoctor check` and `envdoctor explain`
report.
This page is generated: `python docs/generate.py`. `envdoctor explain RULE-ID` and `envdoctor explain CAUSE`
print the same texts.
"""


_SUBJECTS = {
    "machine": "machine",
    "environment": "machine and environment",
    "guide": "guides and manifests",
    "directory": "the files of a directory",
    "image": "a container image and a machine",
    "trial": "a trial installation (`--trial`)",
}


def rules_page(audit_rules: Mapping[str, Rule]) -> str:
    """The page in Markdown: the rules by family, those of `envdoctor audit`, then the causes."""
    parts = [INTRODUCTION, f"## Rules\n\n{len(RULES)} rules. A rule without a problem reports nothing.\n"]
    for family, rules in rule_families().items():
        parts += [f"### {family}\n", *(rule_section(rule) for rule in rules)]
    images = sum(rule.kind == "image" for rule in audit_rules.values())
    number = f"{len(audit_rules) - images} rules of `envdoctor audit`, and {images} of `envdoctor check --image`"
    parts.append(f"## Rules of audit\n\n{number}.\n")
    parts += map(rule_section, audit_rules.values())
    parts.append(f"## Causes\n\n{len(causes())} causes.\n")
    parts += [_cause_section(cause, audit_rules) for cause in causes().values()]
    return "\n".join(parts)


def rule_families() -> dict[str, list[Rule]]:
    """The rules by the prefix of their ids, both in alphabetical order."""
    families: dict[str, list[Rule]] = {}
    for identifier in sorted(RULES):
        families.setdefault(identifier.rstrip("0123456789"), []).append(RULES[identifier])
    return families


def rule_section(rule: Rule) -> str:
    """One rule in Markdown: id and title, cause and severity, documentation, references."""
    text, urls = split_references(rule.documentation)
    if rule.url and rule.url not in urls:
        urls.insert(0, rule.url)
    references = "".join(f"- <{url}>\n" for url in urls)
    return (
        f"#### {rule.id} {rule.title}\n\n"
        f"Cause: [`{rule.cause}`](#{rule.cause}). Severity: {', '.join(rule.severities)}. "
        f"Checks: {_SUBJECTS[rule.kind]}.\n\n"
        f"{text}\n" + (f"\n{references}" if urls else "")
    )


def split_references(text: str) -> tuple[str, list[str]]:
    """A docstring without its `References:` paragraph, and the URLs of that paragraph.

    Sample: "The driver is old.\\n\\nReferences: https://docs.nvidia.com/deploy, https://github.com/a/b".
    """
    body, _, references = text.partition("\nReferences:")
    return body.strip(), [url.rstrip(".,;)") for url in re.findall(r"https?://[^\s<>]+", references)]


def _cause_section(cause: CauseText, audit_rules: Mapping[str, Rule]) -> str:
    rules = [rule.id for rule in (*RULES.values(), *audit_rules.values()) if rule.cause == cause.slug]
    symptoms = Counter(symptom.cause for symptom in symptom_table().symptoms)[cause.slug]
    detected_by = [f"rules {', '.join(sorted(rules))}"] if rules else []
    detected_by += [f"{symptoms} symptom{'s' if symptoms > 1 else ''} in logs"] if symptoms else []
    lines = [line.removeprefix("$ ").replace("or:", "# or") for line in command_lines(either(*cause.remedies))]
    commands = "\n".join(lines)
    parts = [
        f"### {cause.slug}\n",
        f"**{cause.title}.** {cause.definition}\n",
        f"Fix: {_with_defaults(cause.fix)}\n",
        f"```sh\n{_with_defaults(commands)}\n```\n" if commands else "",
        f"To verify: `{_with_defaults(cause.check)}`\n" if cause.check else "",
        f"Detected by: {' and '.join(detected_by) or 'no rule and no symptom yet'}.\n",
        f"<{cause.url}>\n" if cause.url else "",
    ]
    return "\n".join(part for part in parts if part)


def _with_defaults(text: str) -> str:
    """A text with the default of each placeholder: `{gpu|this GPU}` gives "this GPU"."""
    return re.sub(r"\{(\w+)(?:\|([^{}]*))?\}", lambda match: match[2] or match[1].upper(), text)
