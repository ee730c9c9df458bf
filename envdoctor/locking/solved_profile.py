"""The profile of a corrected set, with what uv has solved."""

from __future__ import annotations

import json
import re

from msgspec.structs import replace
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from envdoctor.core.patterns import lazy_pattern
from envdoctor.locking.set_solver import target_of
from envdoctor.manifests import CorrectedSet

_ENTRY = lazy_pattern(r'(?m)^\[\[requirements\]\]\nspec = (".*")\n((?:(?:why|url) = .*\n)*)\n?')


def with_requirements(corrected: CorrectedSet, requirements: tuple[str, ...]) -> CorrectedSet:
    """The set and its profile with the solved requirements."""
    pins = {canonicalize_name(Requirement(text).name): text for text in requirements}
    remaining = dict(pins)

    def solved_entry(match: re.Match[str]) -> str:
        name = canonicalize_name(Requirement(json.loads(match[1])).name)
        if name in pins:
            new = remaining.pop(name, "")  # another entry of the same package would be a second release of it
            return _entry(new, match[2]) if new else ""
        return f"# omitted: [[requirements]] spec = {match[1]}\n\n"

    profile = _ENTRY.sub(solved_entry, corrected.profile_toml)
    entries = "".join(_entry(text) for text in remaining.values())
    profile = profile.replace("[[sources]]\n", f"{entries}[[sources]]\n", 1)
    return replace(corrected, requirements=requirements, profile_toml=profile)


def _entry(requirement: str, reasons: str = "") -> str:
    return f"[[requirements]]\nspec = {json.dumps(requirement, ensure_ascii=False)}\n{reasons}\n"


def with_cuda(corrected: CorrectedSet, cuda: str) -> CorrectedSet:
    """The set and its profile with the CUDA version of the solved torch."""
    profile = re.sub(r'(?m)^build = ".*"$', f'build = "{cuda}"', corrected.profile_toml)
    profile = re.sub(r'(?m)^backend = "cu.*"$', f'backend = "cu{cuda.replace(".", "")}"', profile)
    return replace(corrected, cuda=cuda, profile_toml=profile if cuda else corrected.profile_toml)


def with_solved_target(corrected: CorrectedSet, day: str) -> CorrectedSet:
    """The set with the Python and the last day of its solution in the profile: others have no proven solution."""
    python = target_of(corrected).pythons[0]
    profile = re.sub(r"(?m)^versions = \[.*\]$", f'versions = ["{python}"]', corrected.profile_toml)
    return replace(corrected, profile_toml=profile if day else re.sub(r"(?m)^exclude_newer = .*\n", "", profile))
