"""The variables that a profile may set without the user's consent.

A library reads many variables as the path of code, or as the address of a server that receives the user's token. A
list of forbidden names always has holes, so this is a list of permitted names, each with its values.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import msgspec

from envdoctor.core.bundled_toml import read_bundled_toml
from envdoctor.core.errors import Refused
from envdoctor.core.record import Record
from envdoctor.profiles.files import chain_files, profile_is_bundled
from envdoctor.profiles.records import Profile


class PermittedVariables(Record, frozen=True):
    """Names of variables and their values, as regular expressions."""

    names: str
    values: str
    expected: str
    url: str


@cache
def permitted_variables() -> tuple[PermittedVariables, ...]:
    """The variables that a profile may set."""
    table = read_bundled_toml(Path(__file__).with_name("variables.toml"))
    return msgspec.convert(table["variable"], tuple[PermittedVariables, ...])


def other_variables(profile: Profile) -> Iterator[str]:
    """The variables of a profile that need the user's consent, each with the reason."""
    for variables in (profile.environment, profile.build.environment if profile.build else {}):
        for name, value in variables.items():
            entry = next((each for each in permitted_variables() if re.fullmatch(each.names, name)), None)
            if entry is None:
                yield f"{name}={value} (an unlisted variable)"
            elif not re.fullmatch(entry.values, value):
                yield f"{name}={value} (expected: {entry.expected})"


def profile_digest(name_or_file: str, environ: Mapping[str, str] = os.environ) -> str:
    """A short hash of the files of a profile and of the profiles that it extends."""
    digest = hashlib.sha256()
    for path, text in chain_files(name_or_file, environ):
        digest.update(f"{path.name}\0{text}\0".encode())
    return digest.hexdigest()[:16]


def require_consent(profile: Profile, name_or_file: str, accepted: str, command: str) -> None:
    """Raise Refused for a profile with other variables, unless `accepted` is the digest of its files."""
    if profile_is_bundled(name_or_file) or not (others := list(other_variables(profile))):
        return
    digest = profile_digest(name_or_file)
    if accepted == digest:
        return
    hint = ["envdoctor", command, "--profile", name_or_file, "--accept-variables", digest]
    changed = f"; --accept-variables {accepted} is of other content" if accepted else ""
    raise Refused(
        f"{name_or_file} sets {', '.join(others)}{changed}",
        expected="the variables of libraries that load no code and name no server, or your consent to these",
        hint=f"read the file, then {shlex.join(hint)}",
    )
