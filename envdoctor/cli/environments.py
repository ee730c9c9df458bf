"""Environments made and kept: install, fetch, envs, rollback, clean, uninstall, paths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from envdoctor.cli.shared import (
    Format,
    FormatOption,
    ProfileOption,
    ProgressForm,
    ProgressOption,
    PythonVersionOption,
    VenvOption,
    alone,
    app,
    finish,
)

if TYPE_CHECKING:
    from envdoctor.core.results import CommandResult
    from envdoctor.output.reporter import LazyReporter


@app.command()
def install(
    profile: ProfileOption = "",
    venv: VenvOption = "",
    python: PythonVersionOption = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan as shell commands and stop.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Install though the profile's conditions do not hold here.")
    ] = False,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Replace a venv that envdoctor did not make; it is kept for rollback.")
    ] = False,
    upgrade: Annotated[
        bool, typer.Option("--upgrade", help="Resolve anew instead of keeping what is locked.")
    ] = False,
    wheels: Annotated[
        str, typer.Option("--from", metavar="DIR", help="Take every wheel from what `fetch` brought: no network.")
    ] = "",
    system: Annotated[
        bool, typer.Option("--system", help="As root: install what the system lacks (compiler, headers), too.")
    ] = False,
    progress: ProgressOption = ProgressForm.auto,
    format: FormatOption = Format.human,
) -> None:
    """Build a profile's environment; without --profile the one that fits this machine.

    Example: envdoctor install --profile cpu --venv ./venv
    """
    from envdoctor.commands import install as command

    def answer(reporter: LazyReporter) -> CommandResult:
        if wheels:
            alone("--from", {"--upgrade": upgrade}, why="the folder's lock is installed", hint="envdoctor install -h")
        request = command.InstallRequest(
            profile=profile, venv=venv, python=python, wheels=wheels,
            dry_run=dry_run, force=force, adopt=adopt, system=system, upgrade=upgrade,
        )  # fmt: skip
        return command.run(request, reporter)

    finish("install", format, answer, progress)


@app.command()
def fetch(
    profile: Annotated[
        str, typer.Option("--profile", metavar="NAME|FILE", help="A bundled profile, or a TOML file of yours.")
    ],
    dest: Annotated[str, typer.Option("--dest", metavar="DIR", help="The folder to fill.")],
    python: PythonVersionOption = "",
    arch: Annotated[
        str, typer.Option("--arch", help="x86_64 or aarch64; default: this machine's if the profile has it.")
    ] = "",
    glibc: Annotated[
        str, typer.Option("--glibc", metavar="2.NN", help="Of the other machine; default: the profile's oldest.")
    ] = "",
    progress: ProgressOption = ProgressForm.auto,
    format: FormatOption = Format.human,
) -> None:
    """Fill a folder with every wheel of a profile, for a machine without a network.

    Example: envdoctor fetch --profile cpu --dest ./wheels --arch aarch64
    """
    from envdoctor.commands import fetch as command

    def answer(reporter: LazyReporter) -> CommandResult:
        return command.run(profile, dest, reporter, python=python, architecture=arch, glibc=glibc)

    finish("fetch", format, answer, progress)


@app.command()
def envs(format: FormatOption = Format.human) -> None:
    """List the environments that envdoctor made: profile, lock, size, verified or not, and the ones before them.

    Example: envdoctor envs
    """
    from envdoctor.commands import envs as command

    finish("envs", format, lambda _: command.run())


@app.command()
def rollback(venv: VenvOption = "", format: FormatOption = Format.human) -> None:
    """Let the environment before the current one take its place again; a second time goes forward again.

    Example: envdoctor rollback --venv ./venv
    """
    from envdoctor.commands import rollback as command

    finish("rollback", format, lambda _: command.run(venv))


DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Say what would be removed, and remove nothing.")]


@app.command()
def clean(
    venv: VenvOption = "",
    dry_run: DryRunOption = False,
    adopted: Annotated[
        bool, typer.Option("--adopted", help="Remove replaced environments that envdoctor did not make, too.")
    ] = False,
    format: FormatOption = Format.human,
) -> None:
    """Remove environments that were replaced, and what killed installs left.

    Example: envdoctor clean --dry-run
    """
    from envdoctor.commands import clean as command

    finish("clean", format, lambda _: command.run(venv, dry_run=dry_run, adopted=adopted))


@app.command()
def uninstall(
    venv: VenvOption = "",
    everything: Annotated[
        bool, typer.Option("--all", help="Every environment, and all that envdoctor keeps.")
    ] = False,
    dry_run: DryRunOption = False,
    format: FormatOption = Format.human,
) -> None:
    """Remove an environment with all that lies beside it. Profiles of yours and uv's cache stay.

    Example: envdoctor uninstall --venv ./venv
    """
    from envdoctor.commands import uninstall as command

    finish("uninstall", format, lambda _: command.run(venv, everything=everything, dry_run=dry_run))


@app.command()
def paths(format: FormatOption = Format.human) -> None:
    """List everything that envdoctor keeps on disk, with its size and how to be rid of it.

    Example: envdoctor paths
    """
    from envdoctor.commands import paths as command

    finish("paths", format, lambda _: command.run())
