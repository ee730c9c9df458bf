"""Profiles from files: the bundled ones, the user's own by name or path, and what one takes over from another.

By name: the bundled profiles, and the user's in $XDG_CONFIG_HOME/envdoctor/profiles (else ~/.config/...). A bundled
name means one thing in locks, evidence and bug reports, so a user's file of that name counts only if it says
`extends = "that name"`; any other is refused, neither is quietly preferred. A path always means that file.

`extends` takes over another profile: a name, or a .toml file below the file's own folder. Tables (when, python, cuda,
verify, train, environment, build, fallbacks) are merged key by key; requirements, constraints and wheels are replaced
by distribution, and a requirement also takes the place of the base's constraint, wheels and fallback of that name;
`drop` removes by name, from the packages to build, too; sources and other values are replaced if given. Evidence is
never inherited, since nobody saw the changed stack work.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from envdoctor.core.bundled import bundled
from envdoctor.core.decoding import convert, parse_toml, read_toml_text
from envdoctor.core.directories import config_directory
from envdoctor.core.errors import BadInput, nearest, unknown_name
from envdoctor.core.records import Record
from envdoctor.profiles.checks import ENTRIES, NAME, Fault, profile_faults, shown, values_faults
from envdoctor.profiles.merging import HINT, WHAT, Entries, Loaded, merge, refusal
from envdoctor.profiles.records import PROFILE_SCHEMA, Profile
from envdoctor.profiles.toml_lines import find_line

FILE_BYTES = 256 << 10  # a profile that pins 2,000 distributions has 100 KiB
CHAIN = 8  # files that one profile may be made of
BUNDLED = "bundled"


class ProfileFile(Profile, frozen=True, kw_only=True):
    """A profile and the two keys that only a file has: so that a misspelt `extends` is told from the others."""

    extends: str = ""
    drop: tuple[str, ...] = ()


class Listed(Record, frozen=True):
    """A profile that can be found by name: where it comes from, and why it is not used where it is not."""

    name: str
    origin: str  # "bundled", or the user's file
    extends: tuple[str, ...] = ()  # what it is made of, the nearest first
    profile: Profile | None = None  # None: it cannot be read
    problem: str = ""


def profile_names() -> list[str]:
    """The bundled profiles."""
    return sorted(_bundled_files())


def read_profiles() -> list[Profile]:
    """All bundled profiles, the preferred first."""
    return sorted((_read_file(path) for path in _bundled_files().values()), key=lambda p: -p.preference)


def read_candidates(environ: Mapping[str, str] = os.environ) -> list[Profile]:
    """Every profile that this user can choose by name, the preferred first, at a tie the bundled one."""
    return [listed.profile for listed in list_profiles(environ) if listed.profile and not listed.problem]


def list_profiles(environ: Mapping[str, str] = os.environ) -> list[Listed]:
    """The bundled and the user's profiles, the preferred first; one that cannot be used says why."""
    own = [_listed(path, environ) for path in user_files(environ)]
    replaced = {listed.name: listed.origin for listed in own if listed.profile}
    found = [
        Listed(name, BUNDLED, profile=_read_file(path), problem=_instead(replaced.get(name, "")))
        for name, path in sorted(_bundled_files().items())
    ]
    return sorted([*found, *own], key=lambda listed: -listed.profile.preference if listed.profile else 1 << 31)


def _instead(path: str) -> str:
    return f"{path} takes its place" if path else ""


def _listed(path: Path, environ: Mapping[str, str]) -> Listed:
    if not re.fullmatch(NAME, path.stem):
        problem = "its name has other characters than letters, digits, dots and dashes"
        return Listed(shown(path.stem), shown(str(path)), problem=problem)
    try:
        profile, chain = _read_user_file(path, environ)
    except BadInput as error:
        return Listed(path.stem, str(path), problem=error.message)
    return Listed(path.stem, str(path), tuple(file.path.stem for file in chain[1:]), profile)


def profile_is_bundled(name_or_file: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a bundled profile is meant, not the user's own file or a profile of that name in the user's folder."""
    return not _is_path(name_or_file) and name_or_file not in {path.stem for path in user_files(environ)}


def read_profile(name_or_file: str, environ: Mapping[str, str] = os.environ) -> Profile:
    """A profile by name, the bundled or the user's, or from any file."""
    if _is_path(name_or_file):
        return _read_file(Path(name_or_file), environ)
    path = find_profile(name_or_file, environ)
    return _read_file(path) if path in _bundled_files().values() else _read_user_file(path, environ)[0]


def profile_file(name_or_file: str, environ: Mapping[str, str] = os.environ) -> Path:
    """The file of a profile that is given by name or as a file."""
    return Path(name_or_file) if _is_path(name_or_file) else find_profile(name_or_file, environ)


def read_bases(name_or_file: str, environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """What a profile is made of beside its own file, the nearest first."""
    return tuple(file.path.stem for file in _read_chain(profile_file(name_or_file, environ), environ)[1:])


def find_profile(name: str, environ: Mapping[str, str] = os.environ) -> Path:
    """The file of a name."""
    ours, theirs = _bundled_files(), {path.stem: path for path in user_files(environ)}
    if name not in ours and name not in theirs:
        raise unknown_name("profile", name, sorted({*ours, *theirs}), hint=HINT)
    if name not in theirs:
        return ours[name]
    if name in ours and _load(theirs[name]).entries.extends != name:
        raise BadInput(
            f"two profiles are named '{name}': the bundled one and {theirs[name]}",
            expected=f'extends = "{name}" in that file, or another name for it',
            hint=f"rename it, or name it by its path: --profile {theirs[name]}",
        )
    return theirs[name]


def user_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The directory of the user's profiles."""
    return config_directory(environ) / "profiles"


def user_files(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """The TOML files in the user's folder of profiles; what cannot be listed holds none."""
    try:
        files = sorted(user_folder(environ).glob("*.toml"))
    except (OSError, RuntimeError):
        return []
    return [path for path in files if not path.name.startswith(".")]


def _bundled_files() -> dict[str, Path]:
    return {path.stem: path for path in bundled("profiles").glob("*.toml")}


def _is_path(name_or_file: str) -> bool:
    return name_or_file.endswith(".toml") or "/" in name_or_file


def _read_file(path: Path, environ: Mapping[str, str] = os.environ) -> Profile:
    return _whole(_read_chain(path, environ))


def _read_user_file(path: Path, environ: Mapping[str, str]) -> tuple[Profile, list[Loaded]]:
    """A profile of the user's folder: its name is its file's, since it is found again by it."""
    find_profile(path.stem, environ)  # refuses a name that is taken
    chain = _read_chain(path, environ)
    profile = _whole(chain)
    if profile.id != path.stem:
        raise chain[0].refusal(Fault("id", f"id = {shown(profile.id)}", f'"{path.stem}", the name of the file'))
    return profile, chain


def _read_chain(path: Path, environ: Mapping[str, str]) -> list[Loaded]:
    """A file and what it extends, the file itself first."""
    chain = [_load(path)]
    while chain[-1].entries.extends:
        last = chain[-1]
        base = _base_of(last, environ)
        if any(_same(base, file.path) for file in chain):
            names = " -> ".join(file.path.stem for file in chain)
            raise last.refusal(Fault("extends", f"extends runs in a circle: {names} -> {base.stem}", "an end to it"))
        if len(chain) == CHAIN:
            raise last.refusal(
                Fault("extends", f"extends goes on past {CHAIN} profiles", f"a chain of at most {CHAIN}")
            )
        chain.append(_load(base))
    if not chain[-1].entries.extends and chain[-1].entries.drop:
        raise chain[-1].refusal(Fault("drop", "drop without extends", "extends: drop removes from that profile"))
    return chain


def _same(one: Path, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _base_of(file: Loaded, environ: Mapping[str, str]) -> Path:
    """The file that `extends` means; a stranger's profile reads nothing but profiles, and none outside its folder."""
    wanted = file.entries.extends
    if not _is_path(wanted):
        of_user = any(_same(file.path, path) for path in user_files(environ))
        if of_user and wanted == file.path.stem and wanted in _bundled_files():
            return _bundled_files()[wanted]
        try:
            return find_profile(wanted, environ)
        except BadInput as error:
            raise refusal(
                file.path, find_line(file.text, "extends"), Fault("", f"extends: {error.message}", error.expected)
            ) from error
    folder = file.path.parent
    inside = folder / wanted
    outside = wanted.startswith(("/", "~")) or ".." in Path(wanted).parts or not wanted.endswith(".toml")
    if outside or not Path(os.path.realpath(inside)).is_relative_to(os.path.realpath(folder)):
        raise file.refusal(
            Fault("extends", f"extends = {shown(wanted)}", f"a profile's name, or a .toml file below {folder}")
        )
    if not inside.exists():
        near = nearest(inside.name, sorted(path.name for path in folder.glob("*.toml") if path != file.path))
        meant = f"; did you mean '{near}'?" if near else ""
        raise file.refusal(Fault("extends", f"extends: there is no {inside}{meant}", "a file that is there"))
    return inside


def _load(path: Path) -> Loaded:
    """One file, with the faults of its values and of its lists refused."""
    text = _read_profile_text(path)
    data = parse_toml(text, where=str(path), what=WHAT, hint=HINT)
    for fault in values_faults(data):
        raise refusal(path, find_line(text, fault.place), fault)
    schema = data.get("schema", PROFILE_SCHEMA)
    if schema != PROFILE_SCHEMA:
        raise BadInput(f"{path} has schema {schema!r}", expected=f"schema {PROFILE_SCHEMA}", hint="upgrade envdoctor")
    entries: Entries = _converted(data, Entries, [Loaded(path, text, data, Entries())])
    loaded = Loaded(path, text, data, entries)
    for name, faults_of in ENTRIES.items():
        for number, entry in enumerate(getattr(entries, name)):
            for fault in faults_of(entry, f"{name}[{number}]"):
                raise loaded.refusal(fault)
    return loaded


def _read_profile_text(path: Path) -> str:
    text = read_toml_text(path, what=WHAT, hint=HINT)
    if len(text) > FILE_BYTES:
        raise BadInput(
            f"{path} has {len(text)} characters", expected=f"a profile below {FILE_BYTES >> 10} KiB", hint=HINT
        )
    return text


def _whole(chain: Sequence[Loaded]) -> Profile:
    """The profile that a chain of files makes."""
    data = dict(chain[-1].data)
    for file in reversed(chain[:-1]):
        data = merge(data, file)
    read = _converted(data, ProfileFile, chain)
    profile = Profile(**{field: getattr(read, field) for field in Profile.__struct_fields__})
    for fault in profile_faults(profile):
        raise _blamed(chain, fault)
    return profile


def _converted(data: object, kind: type[Any], chain: Sequence[Loaded]) -> Any:
    """Plain values as a record; the error names the file and the line of the field that is wrong."""
    try:
        return convert(data, kind, where="", what=WHAT, hint=HINT)
    except BadInput as error:
        message = error.message.removeprefix(": ")
        above = re.search(r"at `\$\.?([^`]*)`", message)
        field = re.search(r"unknown field `([^`]+)`", message)
        place = ".".join(part for part in (above[1] if above else "", field[1] if field else "") if part)
        raise _blamed(chain, Fault(place, message, error.expected)) from error


def _blamed(chain: Sequence[Loaded], fault: Fault) -> BadInput:
    """The error for a fault of a whole profile: of the nearest file that says something at that place."""
    places = ((file, find_line(file.text, fault.place)) for file in chain)
    file, line = next(((file, line) for file, line in places if line), (chain[0], 0))
    return refusal(file.path, line, fault)
