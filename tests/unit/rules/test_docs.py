"""docs/rules.md is up to date and documents every rule and cause."""

from __future__ import annotations

import re

from support.cases import each_case
from support.paths import ROOT

from envdoctor.knowledge.causes import causes
from envdoctor.knowledge.symptoms import symptom_table
from envdoctor.manifests.rules import audit_rules
from envdoctor.rules import RULES
from envdoctor.rules.documentation import rule_families, rule_section, rules_page, split_references

ALL_RULES = {**RULES, **audit_rules()}
TEXT = rules_page(audit_rules())


def test_page_is_up_to_date() -> None:
    assert (ROOT / "docs/rules.md").read_text() == TEXT, "run: python docs/generate.py"


@each_case("identifier", sorted(ALL_RULES))
def test_page_contains_every_rule_with_its_documentation(identifier: str) -> None:
    rule = ALL_RULES[identifier]
    section = rule_section(rule)
    assert section in TEXT
    assert section.startswith(f"#### {identifier} {rule.title}\n")
    assert rule.documentation.splitlines()[0] in section
    assert not rule.url or f"<{rule.url}>" in section


def test_every_rule_is_in_one_family() -> None:
    assert sorted(rule.id for rules in rule_families().values() for rule in rules) == sorted(RULES)


@each_case("slug", sorted(causes()))
def test_every_cause_lists_its_rules_and_counts_its_symptoms(slug: str) -> None:
    section = re.search(rf"^### {slug}\n(.*?)(?=^### |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert section
    for rule in RULES.values():
        assert (rule.cause == slug) == bool(re.search(rf"\b{rule.id}\b", section[1]))
    count = sum(symptom.cause == slug for symptom in symptom_table().symptoms)
    assert (f"{count} symptom" in section[1]) == bool(count)
    assert not re.search(r"\{\w+\|", section[1]), "a placeholder was not filled"


def test_every_link_of_a_rule_leads_to_a_cause_on_the_page() -> None:
    for slug in re.findall(r"\]\(#([\w-]+)\)", TEXT):
        assert f"\n### {slug}\n" in TEXT, slug


def test_references_are_split_from_the_documentation() -> None:
    text, urls = split_references(
        "It is old.\n\nSee `x`.\n\nReferences:\n  https://a.example/b, (https://c.example/d)."
    )
    assert text == "It is old.\n\nSee `x`."
    assert urls == ["https://a.example/b", "https://c.example/d"]
