"""pylock.toml (PEP 751): the lock with the address of every wheel, in the sources of whoever exports it.

https://packaging.python.org/en/latest/specifications/pylock-toml/
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence

from envdoctor.core.errors import BadInput
from envdoctor.export.builds import at_once_notes, build_notes, built
from envdoctor.export.stack import Exported, Locked, Place, demand_whole
from envdoctor.locking.lock import Package

FILE_NAME = "pylock.toml"


def pylock(stack: Locked) -> Exported:
    """One file a package, by address or path; a lock itself holds none, so they must have been looked up."""
    demand_whole(stack, "pylock")
    places = {place.sha256: place for place in stack.places}
    if missing := [package.name for package in stack.file.packages if package.sha256 not in places]:
        raise BadInput(
            f"a pylock.toml gives each file's url or path (PEP 751), and that of {missing[0]} is not known",
            expected="sources that have the files of the lock, or form 'requirements', which needs no addresses",
            hint=f"envdoctor export --profile {shlex.quote(stack.profile.id)} --format requirements",
        )
    command = _command([package.name for package in built(stack)])
    head = (
        f"# Profile {stack.profile.id}: {_comment(stack.profile.title)}",
        f"#   {command}",
        'lock-version = "1.0"',
        'created-by = "envdoctor"',
        f"requires-python = {_quoted('==' + stack.file.python + '.*')}",
        f"environments = [{_quoted(_marker(stack))}]",
    )
    lines = [*head, *(line for package in stack.file.packages for line in _package(package, places))]
    return Exported(
        profile=stack.profile.id,
        form="pylock",
        file_name=FILE_NAME,
        text="\n".join(lines) + "\n",
        notes=(*_build_notes(stack), f"the addresses are those of your sources today: {command}"),
    )


def _command(names: Sequence[str]) -> str:
    """uv's command for the file; with builds, they come after the wheels and against them."""
    if not names:
        return f"uv pip sync {FILE_NAME}"
    # Measured with uv 0.13.8: `uv pip sync` knows no --no-build-isolation-package, `uv pip install` does both phases.
    compiled = " ".join(f"--no-binary {name} --no-build-isolation-package {name}" for name in names)
    return f"uv pip install --only-binary :all: {compiled} -r {FILE_NAME}"


def _build_notes(stack: Locked) -> list[str]:
    if not (notes := build_notes(stack)):
        return []
    isolated = "a plain `uv pip sync` would compile in isolation, with build requirements that are in no lock"
    variables = stack.profile.build.environment if stack.profile.build else {}
    notes += [isolated, *at_once_notes(stack)]
    return [*notes, *([f"set before: {', '.join(variables)} (a pylock.toml cannot)"] if variables else [])]


def _package(package: Package, places: dict[str, Place]) -> Iterator[str]:
    place = places[package.sha256]
    kind = "url" if "://" in place.url else "path"
    size = f", size = {place.size}" if place.size else ""
    yield ""
    yield "[[packages]]"
    yield f"name = {_quoted(package.name)}"
    yield f"version = {_quoted(package.version)}"
    file = f"name = {_quoted(place.name)}, {kind} = {_quoted(place.url)}{size}"
    table = f"{{ {file}, hashes = {{ sha256 = {_quoted(place.sha256)} }} }}"
    yield f"sdist = {table}" if package.built else f"wheels = [{table}]"


def _marker(stack: Locked) -> str:
    return f"sys_platform == 'linux' and platform_machine == '{stack.architecture}'"


def _quoted(text: str) -> str:
    """A TOML basic string; JSON's escapes are TOML's, too."""
    return json.dumps(text)


def _comment(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text)
