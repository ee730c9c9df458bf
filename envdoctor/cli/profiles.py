"""Commands for profiles and locks: profiles, facts check, resolve, lock, audit, export."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from envdoctor.cli.shared import (
    FactOption,
    Format,
    FormatOption,
    MachineOption,
    OutputOption,
    PythonVersionOption,
    app,
    finish,
    reject_combination,
)

if TYPE_CHECKING:
    from envdoctor.core.results import CommandResult
    from envdoctor.output.reporter import LazyReporter

profiles_app = app.add_group("profiles", no_args_is_help=False)
facts_app = app.add_group("facts")


@profiles_app.callback(invoke_without_command=True)
def profiles(context: typer.Context, format: FormatOption = Format.human) -> None:
    """List the bundled profiles and your own, or run a subcommand.

    Example: envdoctor profiles show gh200
    """
    if context.invoked_subcommand is None:
        from envdoctor.commands import profiles as command

        finish("profiles", format, lambda _: command.run())


@profiles_app.command("show")
def profiles_show(
    name: Annotated[str, typer.Argument(metavar="NAME|FILE", help="A bundled profile, or your own TOML file.")],
    format: FormatOption = Format.human,
) -> None:
    """Prints its conditions, its pins with their reasons, and its locks.

    Example: envdoctor profiles show cpu
    """
    from envdoctor.commands import profiles_show as command

    finish("profiles show", format, lambda _: command.run(name))


@profiles_app.command("new")
def profiles_new(
    from_venv: Annotated[str, typer.Option("--from-venv", metavar="PATH", help="The working environment.")],
    name: Annotated[str, typer.Option("--name", help="The profile's id; default: the folder's name.")] = "",
    output: OutputOption = "",
    format: FormatOption = Format.human,
) -> None:
    """The profile pins every package to its exact version, with the hash of its wheel if it is known.

    Example: envdoctor profiles new --from-venv ./venv --name mine --output mine.toml
    """
    from envdoctor.commands import profiles_new as command

    finish("profiles new", format, lambda _: command.run(from_venv, name, output))


@facts_app.callback()
def facts() -> None:
    """Check the built-in compatibility tables.

    Example: envdoctor facts check
    """


@facts_app.command("check")
def facts_check(
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="TABLE|PACKAGE", help="Check only this table or package, such as torch."),
    ] = None,
    format: FormatOption = Format.human,
) -> None:
    """Prints table entries that differ from the metadata of published wheels, and new releases.

    Example: envdoctor facts check --only vllm
    """
    from envdoctor.commands import facts_check as command

    finish("facts check", format, lambda reporter: command.run(only or [], reporter))


@app.command()
def resolve(
    profile: Annotated[
        list[str] | None,
        typer.Option("--profile", metavar="NAME|FILE", help="Resolve this profile; may be repeated."),
    ] = None,
    all_profiles: Annotated[
        bool, typer.Option("--all", help="Resolve every profile, including your own, as a dry run in CI.")
    ] = False,
    machine: Annotated[
        str, typer.Option("--machine", metavar="FILE|NAME|all", help="A recorded machine; all: the matrix, offline.")
    ] = "",
    fact: FactOption = None,
    python: PythonVersionOption = "",
    format: FormatOption = Format.human,
) -> None:
    """Prints the packages that an install would use, with their sources.

    Example: envdoctor resolve --profile gh200 --machine gh200-480gb
    """
    from envdoctor.commands import resolve as command
    from envdoctor.core.errors import BadInput

    def work(reporter: LazyReporter) -> CommandResult:
        if bool(profile) == all_profiles:
            raise BadInput(
                "neither --profile nor --all is given" if not profile else "--profile and --all are both given",
                expected="one of them",
                hint="envdoctor resolve --all",
            )
        if machine == "all":
            ignored = {"--fact": fact, "--python": python}
            reason = "the matrix covers all recorded machines and locks"
            reject_combination("--machine all", ignored, reason=reason, hint="envdoctor resolve --all")
            return command.run_matrix(profile or [])
        request = command.ResolveRequest(tuple(profile or ()), machine, tuple(fact or ()), python)
        return command.run(request, reporter)

    finish("resolve", format, work)


@app.command()
def lock(
    profile: Annotated[
        list[str] | None,
        typer.Option("--profile", metavar="NAME|FILE", help="Lock this profile; may be repeated; default: all."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Check existing locks against profiles and rules; write nothing.")
    ] = False,
    upgrade: Annotated[
        bool, typer.Option("--upgrade", help="Allow new versions of packages that the profile does not pin.")
    ] = False,
    format: FormatOption = Format.human,
) -> None:
    """A profile has one lock with hashes for each platform and Python version. Changes are printed.

    The locks of your own mine.toml are in mine.locks next to it.

    Example: envdoctor lock --check
    """
    from envdoctor.commands import lock as command

    def work(reporter: LazyReporter) -> CommandResult:
        if check:
            ignored = {"--upgrade": upgrade}
            reject_combination("--check", ignored, reason="it writes no lock", hint="envdoctor lock --check")
        return command.run(profile or [], reporter, check=check, upgrade=upgrade)

    finish("lock", format, work)


@app.command()
def audit(
    target: Annotated[
        str,
        typer.Argument(metavar="FILE|FOLDER", help="A lock, requirements file, setup guide (.md) or environment."),
    ],
    machine: MachineOption = "",
    fact: FactOption = None,
    fix: Annotated[
        str, typer.Option("--fix", metavar="FOLDER", help="Write corrected requirements and a profile here.")
    ] = "",
    format: FormatOption = Format.human,
) -> None:
    """Finds conflicts that package metadata does not state: breaking releases, replaced builds, unsuitable wheels.

    Example: envdoctor audit SETUP.md --machine gh200-480gb
    """
    from envdoctor.commands import audit as command

    finish("audit", format, lambda _: command.run(target, machine, fact or [], fix))


@app.command()
def export(
    profile: Annotated[str, typer.Option("--profile", metavar="NAME|FILE", help="A profile with locks.")],
    export_format: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="requirements, pylock, dockerfile, apptainer, conda, script or uv-project.",
        ),
    ] = "requirements",
    python: PythonVersionOption = "",
    arch: Annotated[
        str, typer.Option("--arch", help="x86_64 or aarch64; default: the first one of the profile.")
    ] = "",
    output: OutputOption = "",
) -> None:
    """The exported file can be used without envdoctor.

    Example: envdoctor export --profile x86-cu124-hf --format dockerfile --output Dockerfile
    """
    from envdoctor.commands import export as command

    request = command.ExportRequest(profile, export_format, python, arch, output)
    finish("export", Format.human, lambda _: command.run(request))
