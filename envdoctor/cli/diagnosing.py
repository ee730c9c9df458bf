"""What is this machine and this stack, and what is wrong with them: check, explain, rules, report, schema."""

from __future__ import annotations

from typing import Annotated

import typer

from envdoctor.cli.shared import (
    FactOption,
    Format,
    FormatOption,
    MachineOption,
    PythonOption,
    VenvOption,
    app,
    finish,
)


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
    from envdoctor.commands import check as command

    request = command.CheckRequest(
        machine, tuple(fact or ()), venv, python, from_report, save, tuple(select or ()), tuple(ignore or ())
    )
    finish("check", format, lambda _: command.run(request))


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
    from envdoctor.commands import explain as command

    request = command.ExplainRequest(text, machine, tuple(fact or ()), venv, python)
    finish("explain", format, lambda _: command.run(request))


@app.command()
def rules(format: FormatOption = Format.human) -> None:
    """List all rules; `envdoctor explain ID` shows one.

    Example: envdoctor rules
    """
    from envdoctor.commands import rules as command

    finish("rules", format, lambda _: command.run())


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
    from envdoctor.commands import report as command

    finish("report", format, lambda _: command.run(venv, python, output))


@app.command()
def schema(
    name: Annotated[str, typer.Argument(help="envelope, machine, stack, or a command.")] = "envelope",
    format: FormatOption = Format.human,
) -> None:
    """Print the JSON Schema of the envelope, of machine files or of stacks.

    Example: envdoctor schema machine
    """
    from envdoctor.output import schema as command

    finish("schema", format, lambda _: command.run(name))
