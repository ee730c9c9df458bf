"""The options that every command has."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from envdoctor.core.options import Option
from envdoctor.core.record import Record


class Format(StrEnum):
    """Format of the result on stdout."""

    human = "human"
    json = "json"
    github = "github"
    sarif = "sarif"


class ProgressFormat(StrEnum):
    """Format of the progress on stderr."""

    auto = "auto"
    json = "json"


class Color(StrEnum):
    """When to use colours."""

    auto = "auto"
    always = "always"
    never = "never"


class ProgressOptions(Record, frozen=True):
    """The option of commands that report progress."""

    progress: Annotated[
        ProgressFormat,
        Option(
            "--progress", "Progress format: auto (live line, or lines in a pipe), or json (one per line).", "FORMAT"
        ),
    ] = ProgressFormat.auto


class CommonOptions(Record, frozen=True):
    """The options of every command."""

    output_format: Annotated[
        Format, Option("--format", "Output format: human or json; github or sarif for findings.", "FORMAT")
    ] = Format.human
    quiet: Annotated[bool, Option("--quiet", "Print no progress, only the result and errors.", short="-q")] = False
    verbose: Annotated[bool, Option("--verbose", "Print all details.", short="-v")] = False
    color: Annotated[
        Color, Option("--color", "When to use colours: auto (on a terminal), always or never.", "WHEN")
    ] = Color.auto
