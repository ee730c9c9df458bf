"""pylock.toml (PEP 751): the lock with the address of every wheel, in the sources of whoever exports it.

https://packaging.python.org/en/latest/specifications/pylock-toml/
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator

from envdoctor.errors import BadInput
from envdoctor.export.stack import Exported, Locked, Place, built_names, demand_whole
from envdoctor.resolve import Package

FILE_NAME = "pylock.toml"


def pylock(stack: Locked) -> Exported:
    """One wheel a package, by address or path; a lock itself holds none, so they must have been looked up."""
    demand_whole(stack, "pylock")
    places = {place.sha256: place for place in stack.places}
    if missing := [package.name for package in stack.file.packages if package.sha256 not in places]:
        raise BadInput(
            f"a pylock.toml gives each wheel's url or path (PEP 751), and that of {missing[0]} is not known",
            expected="sources that have the wheels of the lock, or form 'requirements', which needs no addresses",
            hint=f"envdoctor export --profile {shlex.quote(stack.profile.id)} --format requirements",
        )
    head = (
        f"# Profile {stack.profile.id}: {_comment(stack.profile.title)}",
        'lock-version = "1.0"',
        'created-by = "envdoctor"',
        f"requires-python = {_quoted('==' + stack.file.python + '.*')}",
        f"environments = [{_quoted(_marker(stack))}]",
    )
    lines = [*head, *(line for package in stack.file.packages for line in _package(package, places))]
    left = built_names(stack)
    notes = (f"{', '.join(left)} must be compiled on the machine and is not part of this",) if left else ()
    return Exported(
        profile=stack.profile.id,
        form="pylock",
        file_name=FILE_NAME,
        text="\n".join(lines) + "\n",
        notes=(*notes, "the addresses are those of your sources today: uv pip sync pylock.toml"),
    )


def _package(package: Package, places: dict[str, Place]) -> Iterator[str]:
    place = places[package.sha256]
    kind = "url" if "://" in place.url else "path"
    size = f", size = {place.size}" if place.size else ""
    yield ""
    yield "[[packages]]"
    yield f"name = {_quoted(package.name)}"
    yield f"version = {_quoted(package.version)}"
    wheel = f"name = {_quoted(place.name)}, {kind} = {_quoted(place.url)}{size}"
    yield f"wheels = [{{ {wheel}, hashes = {{ sha256 = {_quoted(place.sha256)} }} }}]"


def _marker(stack: Locked) -> str:
    return f"sys_platform == 'linux' and platform_machine == '{stack.architecture}'"


def _quoted(text: str) -> str:
    """A TOML basic string; JSON's escapes are TOML's, too."""
    return json.dumps(text)


def _comment(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text)
