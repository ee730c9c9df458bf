"""Environments made, proven and kept: install, verify."""

from __future__ import annotations

from typing import Annotated

import typer

from envdoctor.cli.shared import (
    Format,
    FormatOption,
    ProfileOption,
    PythonOption,
    PythonVersionOption,
    VenvOption,
    app,
    finish,
)


@app.command()
def install(
    profile: ProfileOption = "",
    venv: VenvOption = "",
    python: PythonVersionOption = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan as shell commands and stop.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Install though the profile's conditions do not hold here.")
    ] = False,
    format: FormatOption = Format.human,
) -> None:
    """Build a profile's environment; without --profile the one that fits this machine.

    Example: envdoctor install --profile cpu --venv ./venv
    """
    from envdoctor import workflow

    finish(
        "install",
        format,
        lambda r: workflow.install(profile, venv, python, dry_run=dry_run, force=force, reporter=r),
    )


@app.command()
def verify(
    venv: VenvOption = "",
    python: PythonOption = "",
    only: Annotated[list[str] | None, typer.Option("--only", metavar="PROBE", help="Run just this probe.")] = None,
    format: FormatOption = Format.human,
) -> None:
    """Prove an environment's kernels and libraries by numbers, each in a process of its own.

    Example: envdoctor verify --python /opt/venv/bin/python
    """
    from envdoctor import workflow

    finish("verify", format, lambda reporter: workflow.verify(venv, python, only or [], reporter))
