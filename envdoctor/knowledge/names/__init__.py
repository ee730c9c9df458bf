"""Names, arguments and attributes that only some releases of a library have: names/PACKAGE.toml."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Literal

from envdoctor.core.record import Record
from envdoctor.knowledge.tables import FOLDER, read_table
from envdoctor.knowledge.versions import satisfies

Kind = Literal["names", "arguments", "attributes"]
CALLERS = ("trl", "peft", "accelerate", "transformers")  # a class of the first can have a base in a later one


class Span(Record, frozen=True):
    """The releases of a package that have a member.

    The tables compare some releases. The oldest one has the member if `before` and `first` are empty, the newest one
    if `last` and `next` are. A release between `before` and `first`, or between `last` and `next`, can have it.
    """

    package: str
    before: str  # the last compared release without it
    first: str  # the first one with it
    last: str  # the last one with it
    next: str  # the first one without it again
    sometimes: bool = False  # also in releases that have it, some instances lack this attribute

    def can_be_in(self, version: str) -> bool:
        """Whether a release has the member, or can have it."""
        clauses = [f">{self.before}"] if self.before else []
        clauses += [f"<{self.next}"] if self.next else []
        return satisfies(version, ",".join(clauses)) is not False


def packages() -> tuple[str, ...]:
    """The packages with a table."""
    return tuple(sorted(path.stem for path in FOLDER.glob("names/*.toml")))


@cache
def _spans(package: str, kind: Kind) -> dict[str, Span]:
    table = read_table(f"names/{package}.toml")
    releases = table["releases"].split()
    following = dict(pairwise(releases))
    preceding = {later: earlier for earlier, later in following.items()}
    found: dict[str, Span] = {}
    for line in table[kind].splitlines():
        name, _, ends = line.partition(" ")
        first, _, last = ends.removesuffix("?").partition("..")
        found[name] = Span(
            package, preceding.get(first, ""), first, last, following.get(last, ""), sometimes=ends.endswith("?")
        )
    return found


@cache
def _bases(package: str) -> dict[str, list[str]]:
    lines = read_table(f"names/{package}.toml")["bases"].splitlines()
    return {name: bases for name, *bases in (line.split() for line in lines)}


def find_name(package: str, name: str) -> Span | None:
    """The releases with a name; None if all or none of them have it."""
    return _spans(package, "names").get(name) if package in packages() else None


def find_member(kind: Kind, owner: str, member: str) -> Span | None:
    """The releases in which a class or function has an argument or attribute, also that of a base class.

    `owner` is a class or a function, `member` an argument of its call, a `method.argument` or an attribute.
    """
    for package in packages():
        if span := _find_in(package, kind, owner, member, ()):
            return span
    return None


def _find_in(package: str, kind: Kind, owner: str, member: str, seen: tuple[str, ...]) -> Span | None:
    if owner in seen:
        return None
    if span := _spans(package, kind).get(f"{owner}.{member}"):
        return span
    for base in _bases(package).get(owner, ()):
        for other in (package, *CALLERS):
            if span := _find_in(other, kind, base, member, (*seen, owner)):
                return span
    return None
