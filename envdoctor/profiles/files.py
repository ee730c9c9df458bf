"""Profile files: bundled profiles, the user's own by name or path, and profiles that extend others.

A name refers to a bundled profile or to a user profile in $XDG_CONFIG_HOME/envdoctor/profiles (default: ~/.config).
Locks, evidence and bug reports refer to bundled names. A user profile with a bundled name is therefore only accepted
if it has `extends = "that name"`. A path always refers to that file.

`extends` names another profile, or a .toml file below the file's own directory:

- Tables (when, python, cuda, verify, train, environment, build, fallbacks, notebook) are merged key by key.
- Requirements, constraints and wheels are replaced by distribution. A requirement also replaces the constraint, the
  wheels and the fallback of the same distribution in the base.
- `drop` removes distributions by name, also from the packages to build.
- Sources and other values are replaced if given.
- Evidence is never inherited, since the changed stack was not tested.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from envdoctor.core.bundled_toml import read_bundled_toml
from envdoctor.core.decoding import convert, parse_toml, read_text
from envdoctor.core.directories import bundled_directory, config_directory
from envdoctor.core.distribution import upgrade_command
from envdoctor.core.errors import BadInput, closest_match, unknown_name
from envdoctor.core.record import Record
from envdoctor.core.toml_lines import find_line
from envdoctor.profiles.checks import ENTRY_CHECKS, NAME, Problem, check_profile, check_values, escaped
from envdoctor.profiles.merging import FORMAT, HINT, Entries, LoadedFile, merge, problem_error
from envdoctor.profiles.records import PROFILE_SCHEMA, Profile

FILE_BYTES = 256 << 10  # a profile with 2,000 pinned distributions has 100 KiB
MAX_CHAIN = 8  # files in a chain of `extends`
BUNDLED = "bundled"


class ProfileFile(Profile, frozen=True, kw_only=True):
    """A profile with the two additional keys of a file, so that a misspelt `extends` gets a useful error."""

    extends: str = ""
    drop: tuple[str, ...] = ()


class ListedProfile(Record, frozen=True):
    """A profile that can be selected by name: its origin, and the reason if it cannot be used."""

    name: str
    origin: str  # "bundled", or the user's file
    extends: tuple[str, ...] = ()  # its base profiles, the nearest first
    profile: Profile | None = None  # None: unreadable
    problem: str = ""


def profile_names() -> list[str]:
    """The names of the bundled profiles."""
    return sorted(_bundled_files())


def read_profiles() -> list[Profile]:
    """All bundled profiles, sorted by preference."""
    return sorted((_read_file(path) for path in _bundled_files().values()), key=lambda p: -p.preference)


def read_candidates(environ: Mapping[str, str] = os.environ) -> list[Profile]:
    """All profiles that can be selected by name, sorted by preference; bundled profiles come first in a tie."""
    return [listed.profile for listed in list_profiles(environ) if listed.profile and not listed.problem]


def list_profiles(environ: Mapping[str, str] = os.environ) -> list[ListedProfile]:
    """The bundled and the user's profiles sorted by preference, including unusable ones with the reason."""
    own = [_list_user_profile(path, environ) for path in user_files(environ)]
    replaced = {listed.name: listed.origin for listed in own if listed.profile}
    found = [
        ListedProfile(name, BUNDLED, profile=_read_bundled_file(path), problem=_replaced_note(replaced.get(name, "")))
        for name, path in sorted(_bundled_files().items())
    ]
    return sorted([*found, *own], key=lambda listed: -listed.profile.preference if listed.profile else 1 << 31)


def _replaced_note(path: str) -> str:
    return f"replaced by {path}" if path else ""


def _list_user_profile(path: Path, environ: Mapping[str, str]) -> ListedProfile:
    if not re.fullmatch(NAME, path.stem):
        problem = "its name has characters other than letters, digits, dots and dashes"
        return ListedProfile(escaped(path.stem), escaped(str(path)), problem=problem)
    try:
        profile, chain = _read_user_file(path, environ)
    except BadInput as error:
        return ListedProfile(path.stem, str(path), problem=error.message)
    return ListedProfile(path.stem, str(path), tuple(file.path.stem for file in chain[1:]), profile)


def profile_is_bundled(name_or_file: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a name refers to a bundled profile, and not to a file or a user profile of that name."""
    return not _is_path(name_or_file) and name_or_file not in {path.stem for path in user_files(environ)}


def read_profile(name_or_file: str, environ: Mapping[str, str] = os.environ) -> Profile:
    """Read a profile by name (bundled or user profile) or from a file."""
    if _is_path(name_or_file):
        return _read_file(Path(name_or_file), environ)
    path = find_profile(name_or_file, environ)
    return _read_file(path) if path in _bundled_files().values() else _read_user_file(path, environ)[0]


def profile_file(name_or_file: str, environ: Mapping[str, str] = os.environ) -> Path:
    """The file of a profile that is given by name or path."""
    return Path(name_or_file) if _is_path(name_or_file) else find_profile(name_or_file, environ)


def read_bases(name_or_file: str, environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The base profiles of a profile, the nearest first."""
    return tuple(file.path.stem for file in _read_chain(profile_file(name_or_file, environ), environ)[1:])


def chain_files(name_or_file: str, environ: Mapping[str, str] = os.environ) -> list[tuple[Path, str]]:
    """The files of a profile and of the profiles that it extends, with their texts."""
    return [(file.path, file.text) for file in _read_chain(profile_file(name_or_file, environ), environ)]


def find_profile(name: str, environ: Mapping[str, str] = os.environ) -> Path:
    """The file of a profile name."""
    bundled_files, own_files = _bundled_files(), {path.stem: path for path in user_files(environ)}
    if name not in bundled_files and name not in own_files:
        raise unknown_name("profile", name, sorted({*bundled_files, *own_files}), hint=HINT)
    if name not in own_files:
        return bundled_files[name]
    if name in bundled_files and _load_file(own_files[name]).entries.extends != name:
        raise BadInput(
            f"two profiles are named '{name}': the bundled one and {own_files[name]}",
            expected=f'extends = "{name}" in that file, or another name for it',
            hint=f"rename it, or name it by its path: --profile {own_files[name]}",
        )
    return own_files[name]


def user_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The directory of the user's profiles."""
    return config_directory(environ) / "profiles"


def user_files(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """The TOML files in the user's profile directory; empty if the directory cannot be listed."""
    try:
        files = sorted(user_folder(environ).glob("*.toml"))
    except (OSError, RuntimeError):
        return []
    return [path for path in files if not path.name.startswith(".")]


def _bundled_files() -> dict[str, Path]:
    return {path.stem: path for path in bundled_directory("profiles").glob("*.toml")}


def _is_path(name_or_file: str) -> bool:
    return name_or_file.endswith(".toml") or "/" in name_or_file


@cache
def _read_bundled_file(path: Path) -> Profile:
    """Read a bundled profile without checks, which take longer than reading. The tests check all bundled profiles."""
    return msgspec.convert(read_bundled_toml(path), Profile)


def _read_file(path: Path, environ: Mapping[str, str] = os.environ) -> Profile:
    return _merged_profile(_read_chain(path, environ))


def _read_user_file(path: Path, environ: Mapping[str, str]) -> tuple[Profile, list[LoadedFile]]:
    """Read a profile from the user's directory. Its id must be the name of its file."""
    find_profile(path.stem, environ)  # an error if the name is already used
    chain = _read_chain(path, environ)
    profile = _merged_profile(chain)
    if profile.id != path.stem:
        raise chain[0].problem_error(
            Problem("id", f"id = {escaped(profile.id)}", f'"{path.stem}", the name of the file')
        )
    return profile, chain


def _read_chain(path: Path, environ: Mapping[str, str]) -> list[LoadedFile]:
    """A file and its base files, the file itself first."""
    chain = [_load_file(path)]
    while chain[-1].entries.extends:
        last = chain[-1]
        base = _base_file(last, environ)
        if any(_is_same_file(base, file.path) for file in chain):
            names = " -> ".join(file.path.stem for file in chain)
            raise last.problem_error(
                Problem("extends", f"extends is circular: {names} -> {base.stem}", "no circular extends")
            )
        if len(chain) == MAX_CHAIN:
            raise last.problem_error(
                Problem("extends", f"extends has more than {MAX_CHAIN} levels", f"a chain of at most {MAX_CHAIN}")
            )
        chain.append(_load_file(base))
    if not chain[-1].entries.extends and chain[-1].entries.drop:
        raise chain[-1].problem_error(
            Problem("drop", "drop without extends", "extends, since drop removes from the extended profile")
        )
    return chain


def _is_same_file(one: Path, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _base_file(file: LoadedFile, environ: Mapping[str, str]) -> Path:
    """The file that `extends` refers to. A path must be a .toml file below the directory of the profile."""
    base_name = file.entries.extends
    if not _is_path(base_name):
        is_user_file = any(_is_same_file(file.path, path) for path in user_files(environ))
        if is_user_file and base_name == file.path.stem and base_name in _bundled_files():
            return _bundled_files()[base_name]
        try:
            return find_profile(base_name, environ)
        except BadInput as error:
            raise problem_error(
                file.path, find_line(file.text, "extends"), Problem("", f"extends: {error.message}", error.expected)
            ) from error
    folder = file.path.parent
    inside = folder / base_name
    outside = base_name.startswith(("/", "~")) or ".." in Path(base_name).parts or not base_name.endswith(".toml")
    if outside or not Path(os.path.realpath(inside)).is_relative_to(os.path.realpath(folder)):
        raise file.problem_error(
            Problem("extends", f"extends = {escaped(base_name)}", f"a profile's name, or a .toml file below {folder}")
        )
    if not inside.exists():
        suggestion = closest_match(
            inside.name, sorted(path.name for path in folder.glob("*.toml") if path != file.path)
        )
        did_you_mean = f"; did you mean '{suggestion}'?" if suggestion else ""
        raise file.problem_error(
            Problem("extends", f"extends: there is no {inside}{did_you_mean}", "an existing file")
        )
    return inside


def _load_file(path: Path) -> LoadedFile:
    """Read one file and check its values and lists."""
    text = read_text(path, expected=FORMAT, hint=HINT)
    if len(text) > FILE_BYTES:
        raise BadInput(
            f"{path} has {len(text)} characters", expected=f"a profile below {FILE_BYTES >> 10} KiB", hint=HINT
        )
    data = parse_toml(text, source=str(path), expected=FORMAT, hint=HINT)
    for problem in check_values(data):
        raise problem_error(path, find_line(text, problem.place), problem)
    schema = data.get("schema", PROFILE_SCHEMA)
    if schema != PROFILE_SCHEMA:
        newer = isinstance(schema, int) and schema > PROFILE_SCHEMA
        hint = upgrade_command() if newer else HINT
        raise BadInput(f"{path} has schema {schema!r}", expected=f"schema {PROFILE_SCHEMA}", hint=hint)
    entries: Entries = _convert(data, Entries, [LoadedFile(path, text, data, Entries())])
    loaded = LoadedFile(path, text, data, entries)
    for name, check_entry in ENTRY_CHECKS.items():
        for number, entry in enumerate(getattr(entries, name)):
            for problem in check_entry(entry, f"{name}[{number}]"):
                raise loaded.problem_error(problem)
    return loaded


def _merged_profile(chain: Sequence[LoadedFile]) -> Profile:
    data = dict(chain[-1].data)
    for file in reversed(chain[:-1]):
        data = merge(data, file)
    read = _convert(data, ProfileFile, chain)
    profile = Profile(**{field: getattr(read, field) for field in Profile.__struct_fields__})
    for problem in check_profile(profile):
        raise _locate_problem(chain, problem)
    return profile


def _convert(data: object, kind: type[Any], chain: Sequence[LoadedFile]) -> Any:
    """Convert plain values to a record. The error contains the file and the line of the invalid field."""
    try:
        return convert(data, kind, source="", expected=FORMAT, hint=HINT)
    except BadInput as error:
        message = error.message.removeprefix(": ")
        parent = re.search(r"at `\$\.?([^`]*)`", message)
        field = re.search(r"unknown field `([^`]+)`", message)
        place = ".".join(part for part in (parent[1] if parent else "", field[1] if field else "") if part)
        raise _locate_problem(chain, Problem(place, message, error.expected)) from error


def _locate_problem(chain: Sequence[LoadedFile], problem: Problem) -> BadInput:
    """The error for a problem of a merged profile. It names the first file of the chain that contains the key."""
    places = ((file, find_line(file.text, problem.place)) for file in chain)
    file, line = next(((file, line) for file, line in places if line), (chain[0], 0))
    return problem_error(file.path, line, problem)
