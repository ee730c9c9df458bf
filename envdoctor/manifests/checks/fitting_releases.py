"""Whether the packages that a guide names accept the release of another one that a remedy would install."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from envdoctor.knowledge.releases import parse_requirement
from envdoctor.knowledge.versions import public_part, satisfies
from envdoctor.resolution.index_facts import IndexFacts
from envdoctor.resolution.resolver import ResolvedPackage

_MAX_READ = 15  # packages whose requirements are requested


def excluding_package(
    index: IndexFacts, packages: Mapping[str, ResolvedPackage], name: str, version: str, *, python: str
) -> str:
    """A named package that requires another release than this one, `gradio 4.11.0`; empty if none does."""
    if not version:
        return ""
    named = (each for each in packages.values() if not each.is_dependency and each.version and each.name != name)
    for package in islice(named, _MAX_READ):
        for text in index.requires(package.name, package.version):
            bound = parse_requirement(text)
            is_open = bound is None or bound.name != name or not bound.applies_to(python)
            if bound and not is_open and satisfies(version, bound.specifier) is False:
                return f"{package.name} {public_part(package.version)}"
    return ""
