"""How old the tables are. Answers about what installs today lose their truth with the days after the tables' date."""

from __future__ import annotations

from datetime import UTC, date, datetime

from envdoctor.core.bundled_toml import read_bundled_toml
from envdoctor.core.directories import PACKAGE
from envdoctor.core.program import start_command
from envdoctor.knowledge.tables import tables_date

NOTE_DAYS = 30  # from then on check, audit and resolve say so
UNKNOWN_DAYS = 180  # from then on the result of an open range is unknown


def age_in_days(today: date | None = None) -> int:
    """The days since the newest row of the tables; 0 for a clock that is before it."""
    return max(0, ((today or datetime.now(UTC).date()) - date.fromisoformat(tables_date())).days)


def is_too_old(today: str) -> bool:
    """Whether the tables do not know what an open range resolves to on a day."""
    return age_in_days(date.fromisoformat(today)) >= UNKNOWN_DAYS


def age_note() -> list[str]:
    """A line about old tables with the command that gets newer ones; none for new tables."""
    days = age_in_days()
    return [f"note: the compatibility tables are {days} days old: {update_advice()}"] if days >= NOTE_DAYS else []


def can_update() -> bool:
    """Whether this build has a release key; without one `envdoctor update` could verify no package."""
    keys = read_bundled_toml(PACKAGE / "knowledge_update/keys.toml")["key"]
    return any(not key.get("test") for key in keys)


def update_advice() -> str:
    """The command that gets newer tables, or what to do without it."""
    return start_command("envdoctor update") if can_update() else "install a newer envdoctor"
