"""Human-readable output: render a result on stdout, an error on stderr."""

from __future__ import annotations

from envdoctor.commands.registry import load, renderer_name
from envdoctor.core.errors import EnvdoctorError
from envdoctor.core.results import CommandResult
from envdoctor.output.console import err, out
from envdoctor.output.text import Part, Text


def render(result: CommandResult) -> None:
    """Print a result."""
    renderer = load(renderer_name(type(result.data)))
    out().print(*renderer(result.data))


def render_error(error: EnvdoctorError) -> None:
    """Print an error."""
    err().print(*error_parts(error))


def error_parts(error: EnvdoctorError) -> list[Part]:
    """An error with the expected value, the hint and the likely causes."""
    parts: list[Part] = [Text.assemble(("error: ", "error"), error.message)]
    if error.expected:
        parts.append(Text.assemble(("expected: ", "dim"), error.expected))
    if error.hint:
        parts.append(Text.assemble(("hint: ", "info"), error.hint, wrap=False))
    if error.causes:
        from envdoctor.output.diagnosis import likely

        parts += likely(error.causes)
    return parts
