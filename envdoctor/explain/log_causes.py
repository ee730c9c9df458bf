"""Likely causes of a failed child process, read from its log."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from envdoctor.core.errors import EnvdoctorError
from envdoctor.core.files import open_file
from envdoctor.core.records import Machine, Stack
from envdoctor.environment.select import select_stack
from envdoctor.explain.rank import Cause, Explanation, explain

MIN_SCORE = 0.5  # a cause below this score is not shown with an error


@contextmanager
def likely_causes_attached(machine: Machine, python: Path | None) -> Iterator[None]:
    """Add the likely causes to an error whose `log` names the log of a child process."""
    try:
        yield
    except EnvdoctorError as error:
        if error.log:
            error.causes = _causes_in_log(Path(error.log), machine, python)
        raise


def likely_cause(text: str, machine: Machine, stack: Stack | None) -> str:
    """The most likely cause of an error text with its fix, on one line; empty if no symptom is known."""
    causes = _likely(explain(io.BytesIO(text.encode()), machine, stack))
    return f"{causes[0].cause}: {causes[0].fix}" if causes else ""


def _causes_in_log(log: Path, machine: Machine, python: Path | None) -> tuple[Cause, ...]:
    try:
        stack = select_stack("", str(python)) if python else None
    except EnvdoctorError:
        stack = None  # an unreadable environment: the log is explained without it
    try:
        with open_file(log) as stream:
            return _likely(explain(stream, machine, stack))
    except OSError:
        return ()  # the error itself matters more than its unreadable log


def _likely(explained: Explanation) -> tuple[Cause, ...]:
    found = sorted((*explained.causes, *explained.program_errors), key=lambda cause: -cause.score)
    return tuple(cause for cause in found if cause.lines and cause.score >= MIN_SCORE)[:2]
