"""Human-readable output: render a result on stdout, an error on stderr."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from envdoctor.commands.registry import load, renderer_name
from envdoctor.core.errors import EnvdoctorError
from envdoctor.core.results import CommandResult
from envdoctor.output.console import err, out
from envdoctor.output.text import Part, Text, hint


def render(result: CommandResult) -> None:
    """Print a result."""
    out().print(*parts_of(result.data))


def parts_of(data: Any) -> Iterable[Part]:
    """The parts of a result's screen."""
    parts: Iterable[Part] = load(renderer_name(type(data)))(data)
    return parts


def render_error(error: EnvdoctorError) -> None:
    """Print an error."""
    err().print(*error_parts(error))


def error_parts(error: EnvdoctorError) -> list[Part]:
    """An error with the expected value, the hint and the likely causes."""
    parts: list[Part] = [Text.assemble(("error: ", "error"), error.message)]
    if error.expected:
        parts.append(Text.assemble(("expected: ", "dim"), error.expected))
    if error.hint:
        parts.append(hint(error.hint))
    if error.causes:
        from envdoctor.output.diagnosis import likely

        parts += likely(error.causes)
    return parts
