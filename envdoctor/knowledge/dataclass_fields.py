"""The fields of the dataclasses of transformers and TRL of which HfArgumentParser makes options."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

from envdoctor.knowledge.names import Span
from envdoctor.knowledge.tables import read_table

_TABLE = "dataclass_fields.toml"
Fields = dict[str, tuple[Span, ...]]  # field -> the periods with it; none: all compared releases have it


def compared_sources() -> tuple[str, str]:
    """The source and the date of the table."""
    table = read_table(_TABLE)
    return table["source"], table["date"]


def compared_releases(package: str) -> tuple[str, ...]:
    """The compared releases of a package, oldest first."""
    return tuple(read_table(_TABLE)[package]["releases"].split())


@cache
def fields_of(package: str, name: str) -> Fields | None:
    """The fields of a class with those of its bases; None if the table does not have one of them."""
    row: Any = read_table(_TABLE).get(package, {}).get(name)
    if row is None:
        return None
    found: Fields = {}
    for base in row["bases"].split():
        owner = next((each for each in ("transformers", "trl") if base in read_table(_TABLE)[each]), "")
        inherited = fields_of(owner, base) if owner and base != name else None
        if inherited is None:
            return None
        found |= inherited
    releases = compared_releases(package)
    before = {later: earlier for earlier, later in pairwise(releases)}
    after = dict(pairwise(releases))
    for line in row["fields"].splitlines():
        field, *periods = line.split()
        spans = (period.partition("..") for period in periods)
        found[field] = tuple(
            Span(package, before.get(first, ""), first, last, after.get(last, "")) for first, _, last in spans
        )
    return found
