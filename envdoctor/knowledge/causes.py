"""The causes that findings and explanations report: causes.toml."""

from __future__ import annotations

from functools import cache

from envdoctor.core.record import Record
from envdoctor.core.remedies import Notation
from envdoctor.knowledge.tables import load_table


class Question(Record, frozen=True):
    """A command whose output decides between the causes of a text. Words in capitals are placeholders."""

    command: str
    shows: str  # what its output means


class CauseText(Record, frozen=True, kw_only=True):
    """One cause: its definition, and the fix if no rule or symptom has a more exact one.

    `{name|default}` in the fix is replaced by a value of the text or the facts. A placeholder of a remedy has no
    default.
    """

    slug: str
    title: str
    definition: str
    fix: str
    remedies: Notation
    check: str
    url: str
    check_windows: str = ""  # where `check` has programs that Windows lacks
    check_mac: str = ""
    find_out: tuple[Question, ...] = ()  # if the text alone does not decide, and no symptom has its own
    program_error: bool = False  # in the program, its data or its settings: no change of the environment fixes it


@cache
def causes() -> dict[str, CauseText]:
    """All causes by slug."""
    return {row.slug: row for row in load_table("causes.toml", tuple[CauseText, ...], "cause")}
