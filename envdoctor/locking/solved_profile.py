"""The profile of a corrected set, with what uv has solved."""

from __future__ import annotations

import re

from msgspec.structs import replace
from packaging.requirements import Requirement

from envdoctor.locking.set_solver import target_of
from envdoctor.manifests import CorrectedSet


def with_requirements(corrected: CorrectedSet, requirements: tuple[str, ...]) -> CorrectedSet:
    """The set and its profile with the solved requirements."""
    pins = {Requirement(text).name: text for text in requirements}
    profile = corrected.profile_toml
    entries_of = {Requirement(old).name for old in corrected.requirements if f'spec = "{old}"\n' in profile}
    added = [text for name, text in pins.items() if name not in entries_of]
    entries = "".join(f'[[requirements]]\nspec = "{text}"\n\n' for text in added)
    profile = profile.replace("[[sources]]\n", f"{entries}[[sources]]\n", 1)
    for old in corrected.requirements:
        entry = f'[[requirements]]\nspec = "{old}"\n'
        new = pins.get(Requirement(old).name)
        profile = profile.replace(
            entry, entry.replace(old, new) if new else "# omitted: " + entry.replace("\n", " ") + "\n"
        )
    return replace(corrected, requirements=requirements, profile_toml=profile)


def with_solved_target(corrected: CorrectedSet, day: str) -> CorrectedSet:
    """The set with the Python and the last day of its solution in the profile: others have no proven solution."""
    python = target_of(corrected).pythons[0]
    profile = re.sub(r"(?m)^versions = \[.*\]$", f'versions = ["{python}"]', corrected.profile_toml)
    return replace(corrected, profile_toml=profile if day else re.sub(r"(?m)^exclude_newer = .*\n", "", profile))
