"""Which stack belongs here, and is it still true: profiles, resolve, lock, audit, export, facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from envdoctor.cli.shared import (
    FactOption,
    Format,
    FormatOption,
    MachineOption,
    PythonVersionOption,
    alone,
    app,
    facts_app,
    finish,
    profiles_app,
)

if TYPE_CHECKING:
    from envdoctor.core.results import CommandResult
    from envdoctor.output.reporter import LazyReporter


@profiles_app.callback(invoke_without_command=True)
def profiles(context: typer.Context, format: FormatOption = Format.human) -> None:
    """List the bundled profiles and your own, or show one.

    Example: envdoctor profiles show gh200
    """
    if context.invoked_subcommand is None:
        from envdoctor.commands import profiles as command

        finish("profiles", format, lambda _: command.run())


@profiles_app.command("show")
def profiles_show(name: str, format: FormatOption = Format.human) -> None:
    """Show everything that a profile says, bundled or from a file: what it needs, its pins and why, its locks.

    Example: envdoctor profiles show cpu
    """
    from envdoctor.commands import profiles_show as command

    finish("profiles show", format, lambda _: command.run(name))


@profiles_app.command("new")
def profiles_new(
    from_venv: Annotated[str, typer.Option("--from-venv", metavar="PATH", help="An environment that works.")],
    name: Annotated[str, typer.Option("--name", help="The profile's id; default: the folder's name.")] = "",
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="Write it there.")] = "",
    format: FormatOption = Format.human,
) -> None:
    """Write a profile from an environment that works: exact pins, and the hashes of its wheels where they are known.

    Example: envdoctor profiles new --from-venv ./venv --name mine --output mine.toml
    """
    from envdoctor.commands import profiles_new as command

    finish("profiles new", format, lambda _: command.run(from_venv, name, output))


@app.command()
def resolve(
    profile: Annotated[
        list[str] | None, typer.Option("--profile", metavar="NAME|FILE", help="May be given several times.")
    ] = None,
    all_profiles: Annotated[bool, typer.Option("--all", help="Every profile, your own too: the CI dry run.")] = False,
    machine: Annotated[
        str, typer.Option("--machine", metavar="FILE|NAME|all", help="A recorded machine; all: the matrix, offline.")
    ] = "",
    fact: FactOption = None,
    python: PythonVersionOption = "",
    format: FormatOption = Format.human,
) -> None:
    """Say what would be installed and from which source, without installing.

    Example: envdoctor resolve --profile gh200 --machine gh200-480gb
    """
    from envdoctor.commands import resolve as command
    from envdoctor.core.errors import BadInput

    def answer(reporter: LazyReporter) -> CommandResult:
        if bool(profile) == all_profiles:
            raise BadInput(
                "neither --profile nor --all is given" if not profile else "--profile and --all are both given",
                expected="one of them",
                hint="envdoctor resolve --all",
            )
        if machine == "all":
            others = {"--fact": fact, "--python": python}
            alone("--machine all", others, why="it is of recorded machines and locks", hint="envdoctor resolve --all")
            return command.run_matrix(profile or [])
        request = command.ResolveRequest(tuple(profile or ()), machine, tuple(fact or ()), python)
        return command.run(request, reporter)

    finish("resolve", format, answer)


@app.command()
def lock(
    profile: Annotated[
        list[str] | None, typer.Option("--profile", metavar="NAME|FILE", help="Default: every profile, your own too.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing: hold the locks against their profiles and the rules.")
    ] = False,
    upgrade: Annotated[
        bool, typer.Option("--upgrade", help="Let versions move that the profile leaves open.")
    ] = False,
    format: FormatOption = Format.human,
) -> None:
    """Make the hashed locks of profiles, one a platform and Python, and print what changed.

    Those of your own mine.toml lie in mine.locks beside it.

    Example: envdoctor lock --check
    """
    from envdoctor.commands import lock as command

    def answer(reporter: LazyReporter) -> CommandResult:
        if check:
            alone("--check", {"--upgrade": upgrade}, why="it writes no lock", hint="envdoctor lock --check")
        return command.run(profile or [], reporter, check=check, upgrade=upgrade)

    finish("lock", format, answer)


@app.command()
def audit(
    target: Annotated[
        str, typer.Argument(metavar="FILE|FOLDER", help="A lock, requirements, a guide (.md), a venv.")
    ],
    machine: MachineOption = "",
    fact: FactOption = None,
    fix: Annotated[
        str, typer.Option("--fix", metavar="FOLDER", help="Write corrected requirements and a profile there.")
    ] = "",
    format: FormatOption = Format.human,
) -> None:
    """Hold pins against what no metadata says: breaking releases, replaced builds, wheels that do not fit.

    Example: envdoctor audit SETUP.md --machine gh200-480gb
    """
    from envdoctor.commands import audit as command

    finish("audit", format, lambda _: command.run(target, machine, fact or [], fix))


@app.command()
def export(
    profile: Annotated[str, typer.Option("--profile", metavar="NAME|FILE", help="A profile with locks.")],
    to: Annotated[
        str,
        typer.Option(
            "--format", metavar="FORM", help="requirements, pylock, dockerfile, apptainer, conda, script, uv-project."
        ),
    ] = "requirements",
    python: PythonVersionOption = "",
    arch: Annotated[str, typer.Option("--arch", help="x86_64 or aarch64; default: the profile's first.")] = "",
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="Write it there.")] = "",
) -> None:
    """Print a profile's lock in a form for someone without envdoctor.

    Example: envdoctor export --profile x86-cu124-hf --format dockerfile --output Dockerfile
    """
    from envdoctor.commands import export as command

    request = command.ExportRequest(profile, to, python, arch, output)
    finish("export", Format.human, lambda _: command.run(request))


@facts_app.callback()
def facts() -> None:
    """What envdoctor takes for true of the field.

    Example: envdoctor facts check
    """


@facts_app.command("check")
def facts_check(
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="TABLE|PACKAGE", help="As requires/vllm, or torch.")
    ] = None,
    format: FormatOption = Format.human,
) -> None:
    """Hold envdoctor's own tables against the wheels of the package index, and say what drifted.

    Example: envdoctor facts check --only vllm
    """
    from envdoctor.commands import facts_check as command

    finish("facts check", format, lambda reporter: command.run(only or [], reporter))
