"""Names, arguments and attributes that only some releases of a library have: names/PACKAGE.toml."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Literal

from envdoctor.core.record import Record
from envdoctor.knowledge.tables import FOLDER, read_table
from envdoctor.knowledge.versions import satisfies

Kind = Literal["names", "arguments", "attributes", "values"]
CALLERS = ("trl", "peft", "accelerate", "transformers")  # a class of the first can have a base in a later one


class Span(Record, frozen=True):
    """A period of releases of a package that have a member.

    The tables compare some releases. The oldest one has the member if `before` and `first` are empty, the newest one
    if `last` and `next` are. A release between `before` and `first`, or between `last` and `next`, can have it.
    """

    package: str
    before: str  # the last compared release without it
    first: str  # the first one with it
    last: str  # the last one with it
    next: str  # the first one without it again
    sometimes: bool = False  # also in releases that have it, some instances lack this attribute

    @property
    def in_words(self) -> str:
        """The period in words. Samples: 0.15.0 to 0.17.0; 0.26.0 and newer; releases up to 0.27.2."""
        if self.first and self.last:
            return self.first if self.first == self.last else f"{self.first} to {self.last}"
        return f"{self.first} and newer" if self.first else f"releases up to {self.last}"

    def can_be_in(self, version: str) -> bool:
        """Whether a release has the member, or can have it."""
        clauses = [f">{self.before}"] if self.before else []
        clauses += [f"<{self.next}"] if self.next else []
        return satisfies(version, ",".join(clauses)) is not False


def packages() -> tuple[str, ...]:
    """The packages with a table."""
    return tuple(sorted(path.stem for path in FOLDER.glob("names/*.toml")))


def project_of(package: str) -> str:
    """The distribution of a package with a table: flash-attn."""
    return package.replace("_", "-")


def compared_wheels(package: str) -> tuple[str, str]:
    """The source and the date of a package's table."""
    table = read_table(f"names/{package}.toml")
    return f"{table['source']}: {package}", table["date"]


def compared_releases(package: str) -> tuple[str, ...]:
    """The releases of a package's table, oldest first."""
    return tuple(read_table(f"names/{package}.toml")["releases"].split())


@cache
def spans_of(package: str, kind: Kind) -> dict[str, tuple[Span, ...]]:
    """The rows of one kind: the periods of each member."""
    table = read_table(f"names/{package}.toml")
    releases = compared_releases(package)
    following = dict(pairwise(releases))
    preceding = {later: earlier for earlier, later in following.items()}

    def read_span(period: str, *, sometimes: bool) -> Span:
        first, _, last = period.partition("..")
        return Span(package, preceding.get(first, ""), first, last, following.get(last, ""), sometimes=sometimes)

    found: dict[str, tuple[Span, ...]] = {}
    for line in table.get(kind, "").splitlines():
        name, *periods = line.removesuffix("?").split()
        found[name] = tuple(read_span(each, sometimes=line.endswith("?")) for each in periods)
    return found


@cache
def _bases(package: str) -> dict[str, list[str]]:
    lines = read_table(f"names/{package}.toml")["bases"].splitlines()
    return {name: bases for name, *bases in (line.split() for line in lines)}


def find_name(package: str, name: str) -> tuple[Span, ...]:
    """The releases with a name, oldest first; none if all or none of them have it.

    A name that was removed and added again has a span for each period.
    """
    return spans_of(package, "names").get(name, ()) if package in packages() else ()


def single_period(spans: tuple[Span, ...]) -> Span | None:
    """The releases with a member that was added and removed at most once: a range of versions can describe them."""
    return spans[0] if len(spans) == 1 else None


def find_member(kind: Kind, owner: str, member: str) -> tuple[Span, ...]:
    """The releases in which a class or function has an argument or attribute, also that of a base class.

    `owner` is a class or a function, `member` an argument of its call, a `method.argument`, an attribute, or the
    `argument=value` of a value.
    """
    for package in dict.fromkeys((*CALLERS, *packages())):  # some class names are in several packages
        if spans := _find_in(package, kind, owner, member, ()):
            return spans
    return ()


@cache
def owners_of_argument(argument: str) -> dict[str, tuple[Span, ...]]:
    """The classes and functions of all tables with an argument that some releases lack, `Accelerator`: its releases.

    The packages are in the order of CALLERS. Methods are left out: their arguments are those of `class.method`.
    """
    found: dict[str, tuple[Span, ...]] = {}
    for package in dict.fromkeys((*CALLERS, *packages())):
        for member, spans in spans_of(package, "arguments").items():
            owner, _, name = member.rpartition(".")
            if name == argument and "." not in owner:
                found.setdefault(owner, spans)
    return found


def find_argument(package: str, owner: str, argument: str) -> tuple[Span, ...]:
    """The releases in which a class or function of a package, or a base of it, has an argument."""
    return _find_in(package, "arguments", owner, argument, ()) if package in packages() else ()


def _find_in(package: str, kind: Kind, owner: str, member: str, seen: tuple[str, ...]) -> tuple[Span, ...]:
    if owner in seen:
        return ()
    if spans := spans_of(package, kind).get(f"{owner}.{member}"):
        return spans
    for base in _bases(package).get(owner, ()):
        for other in (package, *CALLERS):
            if spans := _find_in(other, kind, base, member, (*seen, owner)):
                return spans
    return ()
