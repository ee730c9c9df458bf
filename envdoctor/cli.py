"""The command line: parse, call, render, exit code. No logic."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from envdoctor.errors import EnvdoctorError
    from envdoctor.output.reporter import Reporter
    from envdoctor.results import Answer

app = typer.Typer(
    name="envdoctor",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: it starts 90 ms sooner and reads well in a pipe
    context_settings={"help_option_names": ["-h", "--help"]},
)
profiles_app = typer.Typer(no_args_is_help=False, rich_markup_mode=None)
app.add_typer(profiles_app, name="profiles")
facts_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.add_typer(facts_app, name="facts")


class Format(str, Enum):
    """How a result is printed."""

    human = "human"
    json = "json"
    github = "github"
    sarif = "sarif"


FormatOption = Annotated[
    Format, typer.Option("--format", help="human; json: one envelope; github: annotations; sarif.")
]
MachineOption = Annotated[
    str, typer.Option("--machine", metavar="FILE|NAME", help="A recorded machine instead of this one.")
]
FactOption = Annotated[
    list[str] | None,
    typer.Option("--fact", metavar="NAME=VALUE", help="Replace one fact, as driver.version=570.26."),
]
ProfileOption = Annotated[
    str, typer.Option("--profile", metavar="NAME|FILE", help="A bundled profile, or a TOML file of yours.")
]
VenvOption = Annotated[str, typer.Option("--venv", metavar="PATH", help="The environment's folder.")]
PythonOption = Annotated[str, typer.Option("--python", metavar="PATH", help="An interpreter that holds the stack.")]
PythonVersionOption = Annotated[
    str, typer.Option("--python", metavar="X.Y", help="The Python version to resolve for.")
]


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Doctor and provisioner for GPU training environments.

    Example: envdoctor quickstart
    """
    if version:
        from envdoctor import __version__

        typer.echo(f"envdoctor {__version__}")
        raise typer.Exit


@app.command()
def check(
    machine: MachineOption = "",
    fact: FactOption = None,
    venv: VenvOption = "",
    python: PythonOption = "",
    from_report: Annotated[
        str, typer.Option("--from-report", metavar="FILE|-", help="A pasted collect_env, nvidia-smi, pip freeze ...")
    ] = "",
    select: Annotated[
        list[str] | None, typer.Option("--select", metavar="ID", help="Only rules that begin so: DRV, GPU001.")
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option("--ignore", metavar="ID", help="Not these rules.")] = None,
    save: Annotated[str, typer.Option("--save", metavar="FILE", help="Record this machine's facts in a file.")] = "",
    format: FormatOption = Format.human,
) -> None:
    """Show this machine's facts and its environment's, what is wrong with them, and which profile fits.

    The environment is --venv, --python, the active one, or .venv. Nothing of it is imported.

    Example: envdoctor check --venv ./venv
    """
    from envdoctor import diagnosis

    request = diagnosis.CheckRequest(
        machine, tuple(fact or ()), venv, python, from_report, save, tuple(select or ()), tuple(ignore or ())
    )
    _finish("check", format, lambda _: diagnosis.check(request))


@app.command()
def explain(
    text: Annotated[
        str, typer.Argument(metavar="[TEXT|FILE|-|RULE|CAUSE]", help="An error text, a log, or what to read up on.")
    ] = "",
    venv: VenvOption = "",
    python: PythonOption = "",
    machine: MachineOption = "",
    fact: FactOption = None,
    format: FormatOption = Format.human,
) -> None:
    """Name the causes of an error text or log, the most likely first, with the fix; or explain a rule or a cause.

    Example: envdoctor explain train.log --venv ./venv
    """
    from envdoctor import diagnosis

    _finish("explain", format, lambda _: diagnosis.explain(text, machine, fact or [], venv, python))


@app.command()
def rules(format: FormatOption = Format.human) -> None:
    """List all rules; `envdoctor explain ID` shows one.

    Example: envdoctor rules
    """
    from envdoctor import diagnosis

    _finish("rules", format, lambda _: diagnosis.list_rules())


@app.command()
def report(
    venv: VenvOption = "",
    python: PythonOption = "",
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Write the report there instead of printing it.")
    ] = "",
    format: FormatOption = Format.human,
) -> None:
    """Make one file to attach to an issue: machine, stack, findings, last install, verification and run.

    Secrets, names, addresses and serials are removed, and a line says what was.

    Example: envdoctor report --output report.md
    """
    from envdoctor import diagnosis

    _finish("report", format, lambda _: diagnosis.report(venv, python, output))


@app.command()
def schema(
    name: Annotated[str, typer.Argument(help="envelope, machine, stack, or a command.")] = "envelope",
    format: FormatOption = Format.human,
) -> None:
    """Print the JSON Schema of the envelope, of machine files or of stacks.

    Example: envdoctor schema machine
    """
    from envdoctor.output import schema as schemas

    _finish("schema", format, lambda _: schemas.answer(name))


@profiles_app.callback(invoke_without_command=True)
def profiles(context: typer.Context, format: FormatOption = Format.human) -> None:
    """List the bundled profiles, or show one.

    Example: envdoctor profiles show gh200
    """
    if context.invoked_subcommand is None:
        from envdoctor import workflow

        _finish("profiles", format, lambda _: workflow.list_profiles())


@profiles_app.command("show")
def profiles_show(name: str, format: FormatOption = Format.human) -> None:
    """Show a profile: what it needs, its pins and why, and the evidence.

    Example: envdoctor profiles show cpu
    """
    from envdoctor import workflow

    _finish("profiles show", format, lambda _: workflow.show_profile(name))


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
    from envdoctor import workflow

    _finish("profiles new", format, lambda _: workflow.new_profile(from_venv, name, output))


@app.command()
def resolve(
    profile: Annotated[
        list[str] | None, typer.Option("--profile", metavar="NAME|FILE", help="May be given several times.")
    ] = None,
    all_profiles: Annotated[bool, typer.Option("--all", help="Every bundled profile: the CI dry run.")] = False,
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
    from envdoctor import keeping, workflow
    from envdoctor.errors import BadInput

    def answer(reporter: Reporter) -> Answer:
        if bool(profile) == all_profiles:
            raise BadInput(
                "neither --profile nor --all is given" if not profile else "--profile and --all are both given",
                expected="one of them",
                hint="envdoctor resolve --all",
            )
        if machine == "all":
            return keeping.matrix(profile or [])
        return workflow.resolve(profile or [], machine, fact or [], python, reporter)

    _finish("resolve", format, answer)


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
    from envdoctor import auditing

    _finish("audit", format, lambda _: auditing.audit(target, machine, fact or [], fix))


@app.command()
def export(
    profile: Annotated[str, typer.Option("--profile", metavar="NAME", help="A bundled profile.")],
    to: Annotated[
        str,
        typer.Option(
            "--format", metavar="FORM", help="requirements, dockerfile, apptainer, conda, script, uv-project."
        ),
    ] = "requirements",
    python: PythonVersionOption = "",
    arch: Annotated[str, typer.Option("--arch", help="x86_64 or aarch64; default: the profile's first.")] = "",
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="Write it there.")] = "",
) -> None:
    """Print a profile's lock in a form for someone without envdoctor.

    Example: envdoctor export --profile x86-cu124-hf --format dockerfile --output Dockerfile
    """
    from envdoctor import keeping

    _finish("export", Format.human, lambda _: keeping.export(profile, to, python, arch, output))


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
    from envdoctor import keeping

    _finish("facts check", format, lambda reporter: keeping.check_facts(only or [], reporter))


@app.command()
def lock(
    profile: Annotated[
        list[str] | None, typer.Option("--profile", metavar="NAME", help="Default: every bundled profile.")
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

    Example: envdoctor lock --check
    """
    from envdoctor import keeping

    _finish("lock", format, lambda r: keeping.lock(profile or [], r, check=check, upgrade=upgrade))


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

    _finish(
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

    _finish("verify", format, lambda reporter: workflow.verify(venv, python, only or [], reporter))


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="A bundled recipe, or a TOML file of yours.")] = "sort",
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of the recipe.")
    ] = None,
    venv: VenvOption = "",
    python: PythonOption = "",
    run: Annotated[
        str, typer.Option("--run", metavar="FOLDER", help="The run's folder; default runs/RECIPE-TIME.")
    ] = "",
    resume: Annotated[str, typer.Option("--resume", metavar="latest|CHECKPOINT", help="Go on with a run.")] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check settings and data, print them, and stop.")
    ] = False,
    unverified: Annotated[
        bool, typer.Option("--unverified", help="Train though the environment is not verified.")
    ] = False,
    list_recipes: Annotated[bool, typer.Option("--list", help="List the bundled recipes.")] = False,
    format: FormatOption = Format.human,
) -> None:
    """Train a recipe with the bundled GRPO trainer in a verified environment.

    Example: envdoctor train tes --set data=./weeks --set steps=100
    """
    from envdoctor import workflow

    def answer(reporter: Reporter) -> Answer:
        if list_recipes:
            return workflow.list_recipes()
        request = workflow.TrainRequest(
            recipe, tuple(assignments or ()), venv, python, run, resume, dry_run, unverified
        )
        return workflow.train(request, reporter)

    _finish("train", format, answer)


@app.command()
def quickstart(profile: ProfileOption = "", venv: VenvOption = "", format: FormatOption = Format.human) -> None:
    """Check this machine, install the profile that fits, verify it and train the embedded default.

    Example: envdoctor quickstart
    """
    import time

    from envdoctor import workflow

    _finish("quickstart", format, lambda reporter: workflow.quickstart(profile, venv, reporter, time.monotonic))


def _finish(command: str, form: Format, work: Callable[[Reporter], Answer]) -> None:
    """Do the work, print its answer or its error, and end with its exit code."""
    from envdoctor.errors import EXIT_INTERRUPTED, EnvdoctorError
    from envdoctor.output.reporter import Reporter
    from envdoctor.process import ended_as_by_ctrl_c

    reporter = Reporter()
    try:
        with ended_as_by_ctrl_c():  # probes run in threads, where no signal arrives
            answer = work(reporter)
    except EnvdoctorError as error:
        reporter.close()
        _print_error(command, form, error)
        raise typer.Exit(error.exit_code) from None
    except KeyboardInterrupt:
        reporter.close()
        typer.echo("interrupted", err=True)
        raise typer.Exit(EXIT_INTERRUPTED) from None
    reporter.close()
    _print(command, form, answer)
    raise typer.Exit(answer.exit_code)


def _print(command: str, form: Format, answer: Answer) -> None:
    if form is Format.human:
        from envdoctor.output.human import render

        render(answer)
    else:
        text = _machine_form(form)(command, answer, None)
        typer.echo(text, nl=bool(text))


def _print_error(command: str, form: Format, error: EnvdoctorError) -> None:
    if form is Format.human:
        from envdoctor.output.human import render_error

        render_error(error)
    else:
        typer.echo(_machine_form(form)(command, None, error))


def _machine_form(form: Format) -> Callable[[str, Answer | None, EnvdoctorError | None], str]:
    """What prints a result for programs; each is imported only when it is asked for."""
    if form is Format.json:
        from envdoctor.output.envelope import to_json

        return to_json
    if form is Format.github:
        from envdoctor.output.github import to_github

        return to_github
    from envdoctor.output.sarif import to_sarif

    return to_sarif


def main() -> None:
    """Run the command line. Whatever goes wrong in here that nobody foresaw is told without a traceback."""
    try:
        app()
    except BrokenPipeError:  # the reader, `head` for instance, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        _print_fault(error)
        sys.exit(3)


def _print_fault(error: Exception) -> None:
    """A fault of envdoctor itself: the trace goes into a file, for the report."""
    import tempfile
    import traceback

    with tempfile.NamedTemporaryFile("w", prefix="envdoctor-fault-", suffix=".log", delete=False) as file:
        traceback.print_exception(error, file=file)
    typer.echo(f"error: envdoctor itself failed: {type(error).__name__}: {error}", err=True)
    typer.echo(f"hint: please report it with {file.name}", err=True)
