"""The application `envdoctor`: the group of all commands, with --version."""

from __future__ import annotations

from typing import Annotated

import typer

from envdoctor.cli.application import build_group
from envdoctor.cli.help import DESCRIPTION, OPTIONS


def _root(version: Annotated[bool, typer.Option("--version", help=OPTIONS["--version"])] = False) -> None:
    if version:
        from envdoctor import __version__
        from envdoctor.knowledge.tables import tables_date

        typer.echo(f"envdoctor {__version__} (compatibility tables of {tables_date()})")
        raise typer.Exit


app = build_group(
    "envdoctor",
    _root,
    help=DESCRIPTION,
    invoke_without_command=True,
    no_args_is_help=True,
    # Help pages are coloured where all other output is, also in a pipe with FORCE_COLOR.
    context_settings={"help_option_names": ["-h", "--help"], "color": True},
)
