"""Profiles selected by name, and the platforms and Python versions that they are locked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from envdoctor.locking.lock import Target
from envdoctor.profiles import Profile, read_candidates, read_profile


class NamedProfile(NamedTuple):
    """A profile with the name or file by which it was selected. The name determines where its locks are."""

    name: str
    profile: Profile


def named_profiles(names: Sequence[str]) -> list[NamedProfile]:
    """The profiles with these names; without names, all bundled and user profiles."""
    if names:
        return [NamedProfile(name, read_profile(name)) for name in names]
    return [NamedProfile(profile.id, profile) for profile in read_candidates()]


def lock_targets(profile: Profile) -> Iterator[Target]:
    """Every architecture and Python version of a profile, each with the oldest glibc that the profile supports."""
    for architecture in profile.when.architectures:
        for python in profile.python.versions:
            yield Target(architecture, profile.when.glibc, (python,))
