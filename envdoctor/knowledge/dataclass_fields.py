"""The fields of the dataclasses of transformers and TRL of which HfArgumentParser makes options."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

from envdoctor.knowledge.names import Span
from envdoctor.knowledge.tables import read_table

_TABLE = "dataclass_fields.toml"
Fields = dict[str, tuple[Span, ...]]  # field -> the periods with it; none: all compared releases have it


def compared_sources() -> tuple[str, str]:
    """The source and the date of the table."""
    table = read_table(_TABLE)["table"]
    return table["source"], table["date"]


def compared_releases(package: str) -> tuple[str, ...]:
    """The compared releases of a package, oldest first."""
    releases = (row["releases"] for row in read_table(_TABLE)["compared"] if row["package"] == package)
    return tuple(next(releases).split())


@cache
def _rows() -> dict[tuple[str, str], dict[str, str]]:
    """The rows of the table by the package and the class."""
    return {(row["package"], row["name"]): row for row in read_table(_TABLE)["dataclass"]}


@cache
def fields_of(package: str, name: str) -> Fields | None:
    """The fields of a class with those of its bases; None if the table does not have one of them."""
    row = _rows().get((package, name))
    if row is None:
        return None
    found: Fields = {}
    for base in row["bases"].split():
        owner = next((owner for owner, other in _rows() if other == base), "")
        inherited = fields_of(owner, base) if owner and base != name else None
        if inherited is None:
            return None
        found |= inherited
    releases = compared_releases(package)
    before = {later: earlier for earlier, later in pairwise(releases)}
    after = dict(pairwise(releases))
    for line in row["fields"].splitlines():
        field, *periods = line.split()
        if field in found and not found[field]:
            continue  # a base has it in all releases
        ends = (period.partition("..") for period in periods)
        own = tuple(Span(package, before.get(first, ""), first, last, after.get(last, "")) for first, _, last in ends)
        of_bases = found.get(field, ())
        is_of_other_package = bool(of_bases) and of_bases[0].package != package
        found[field] = of_bases if is_of_other_package else (*own, *of_bases)
    return found
