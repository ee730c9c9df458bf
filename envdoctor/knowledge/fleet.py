"""Documentation of the findings of `envdoctor fleet`: fleet.toml."""

from __future__ import annotations

from envdoctor.core.record import Record
from envdoctor.knowledge.tables import load_table


class FleetText(Record, frozen=True, kw_only=True):
    """A finding of `envdoctor fleet`: its title, its cause, its documentation."""

    title: str
    cause: str
    text: str


def fleet_texts() -> dict[str, FleetText]:
    """The findings by id."""
    return load_table("fleet.toml", dict[str, FleetText])
