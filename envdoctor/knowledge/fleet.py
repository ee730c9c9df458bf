"""What findings about nodes and ranks mean, by id."""

from __future__ import annotations

from functools import cache

import msgspec

from envdoctor.core.records import Record
from envdoctor.knowledge import read_table


class FleetText(Record, frozen=True, kw_only=True):
    """One id of `envdoctor fleet`: its title, its cause, what it means."""

    title: str
    cause: str
    text: str


@cache
def fleet_texts() -> dict[str, FleetText]:
    """All of them by id."""
    return msgspec.convert(read_table("fleet.toml"), dict[str, FleetText])
