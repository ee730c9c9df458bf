"""What a comparison of the tables with an index found."""

from __future__ import annotations

from envdoctor.core.records import Record

OLD_DAYS = 180  # a row that nothing re-derives and that is older than this wants a look


class Drift(Record, frozen=True):
    """A row that says something else than the index does."""

    row: str  # "vllm 0.10.2"
    field: str  # "requires torch"
    ours: str
    index: str
    where: str  # the file or page that the index's side was read from


class NewRelease(Record, frozen=True):
    """A release on the index that the table does not have."""

    package: str
    version: str
    uploaded: str = ""  # day; empty where the index does not tell


class Underivable(Record, frozen=True):
    """Rows that no wheel's metadata can confirm, and how old their source is."""

    rows: int
    reason: str
    source: str
    age_days: int | None = None  # None: the row has no date
    old: bool = False


class NotAnswered(Record, frozen=True):
    """What the index should have told and did not."""

    what: str
    reason: str
    rows: int


class TableChecked(Record, frozen=True):
    """One table held against the index. A row is one release, one build or one entry, as the table counts."""

    table: str
    checked: int = 0
    drifted: tuple[Drift, ...] = ()
    new: tuple[NewRelease, ...] = ()
    underivable: tuple[Underivable, ...] = ()
    unanswered: tuple[NotAnswered, ...] = ()


class FactsChecked(Record, frozen=True):
    """All tables that were asked for."""

    index: str  # without credentials
    day: str
    seconds: float
    requests: int
    bytes: int
    tables: tuple[TableChecked, ...]

    @property
    def has_drifted(self) -> bool:
        """Whether a row differs from the index; new releases alone are no drift."""
        return any(table.drifted for table in self.tables)

    @property
    def is_incomplete(self) -> bool:
        """Whether the index left questions open."""
        return any(table.unanswered for table in self.tables)
