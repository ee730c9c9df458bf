"""Human-readable output: render a result on stdout, an error on stderr."""

from __future__ import annotations

from rich.text import Text

from envdoctor.commands.registry import load, renderer_name
from envdoctor.core.errors import EnvdoctorError
from envdoctor.core.results import CommandResult
from envdoctor.output.console import err, out


def render(result: CommandResult) -> None:
    """Print a result. Text with `no_wrap` is meant to be pasted: it is neither wrapped nor cut."""
    renderer = load(renderer_name(type(result.data)))
    for part in renderer(result.data):
        if isinstance(part, Text):
            out().print(part, soft_wrap=bool(part.no_wrap), end=part.end)
        else:
            out().print(part)


def render_error(error: EnvdoctorError) -> None:
    """Print an error with the expected value, the hint and the likely causes."""
    console = err()
    console.print(Text.assemble(("error: ", "error"), error.message))
    if error.expected:
        console.print(Text.assemble(("expected: ", "dim"), error.expected))
    if error.hint:
        console.print(Text.assemble(("hint: ", "info"), error.hint), soft_wrap=True)
    if error.causes:
        from envdoctor.output.diagnosis import likely

        for part in likely(error.causes):
            console.print(part)
