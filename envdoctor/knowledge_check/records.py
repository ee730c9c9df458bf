"""The result of a comparison of the tables with an index."""

from __future__ import annotations

from envdoctor.core.record import Record

OLD_DAYS = 180  # a row that the index cannot confirm should be reviewed after this age


class Drift(Record, frozen=True):
    """A row that differs from the index."""

    row: str  # "vllm 0.10.2"
    field: str  # "requires torch"
    table_value: str
    index_value: str
    source: str  # file or page of the index


class NewRelease(Record, frozen=True):
    """A release on the index that is not in the table."""

    package: str
    version: str
    uploaded: str = ""  # day; empty where the index does not state it


class Underivable(Record, frozen=True):
    """Rows that nothing on the index can confirm, the age of their source, and what would disprove one."""

    rows: int
    reason: str
    source: str
    age_days: int | None = None  # None: the row has no date
    old: bool = False
    disproof: str = ""  # empty: the release has no wheel to read


class FailedRead(Record, frozen=True):
    """A page or a wheel that could not be read, and the number of rows that were not compared."""

    item: str
    reason: str
    rows: int


class TableChecked(Record, frozen=True):
    """The comparison of one table. A row is one release, one build or one entry of the table."""

    table: str
    checked: int = 0
    drifted: tuple[Drift, ...] = ()
    new: tuple[NewRelease, ...] = ()
    underivable: tuple[Underivable, ...] = ()
    failed_reads: tuple[FailedRead, ...] = ()


class FactsCheckResult(Record, frozen=True):
    """The comparison of all requested tables."""

    index: str  # without credentials
    day: str
    seconds: float
    requests: int
    bytes: int
    tables: tuple[TableChecked, ...]

    @property
    def has_drifted(self) -> bool:
        """Whether a row differs from the index. New releases are not drift."""
        return any(table.drifted for table in self.tables)

    @property
    def is_incomplete(self) -> bool:
        """Whether a page or a wheel could not be read."""
        return any(table.failed_reads for table in self.tables)
