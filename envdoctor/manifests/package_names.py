"""Sets with the packages whose modules the requirements of a file name: scikit-learn for `sklearn==1.2.2`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Finding
from envdoctor.knowledge.releases import leading_name, normalize_name
from envdoctor.manifests.corrected_pins import CorrectedSet

_NAMED = lazy_pattern(r"Use (\S+): the index has it under this name\.")  # the fix of RUN015


def with_package_names(corrected: CorrectedSet, findings: Sequence[Finding]) -> CorrectedSet:
    """The set with these packages, also as the names of the places in the text; a package that it has stays."""
    for name, text in _renamed(findings):
        new = leading_name(text)
        if new not in map(leading_name, corrected.requirements):
            places = tuple(replace(each, name=new) if each.name == name else each for each in corrected.places)
            corrected = replace(corrected.with_requirement(name, text), places=places)
    return corrected


def _renamed(findings: Sequence[Finding]) -> Iterator[tuple[str, str]]:
    """The names in requirements, each with the requirement of its package."""
    for each in findings:
        found = _NAMED.fullmatch(each.fix) if each.id == "RUN015" else None
        if found and each.evidence:
            yield normalize_name(each.evidence[0].fact), found[1]
