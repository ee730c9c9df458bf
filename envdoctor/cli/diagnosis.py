"""Commands for diagnosis: check, explain, rules, report, schema."""

from __future__ import annotations

from typing import Annotated

import typer

from envdoctor.cli.shared import (
    FactOption,
    Format,
    FormatOption,
    MachineOption,
    OutputOption,
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
        str,
        typer.Option(
            "--from-report", metavar="FILE|-", help="Use pasted output of collect_env, nvidia-smi, pip freeze ..."
        ),
    ] = "",
    select: Annotated[
        list[str] | None,
        typer.Option("--select", metavar="ID", help="Show only rules with this id or prefix, such as DRV or GPU001."),
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option("--ignore", metavar="ID", help="Hide rules with this id or prefix.")
    ] = None,
    save: Annotated[
        str, typer.Option("--save", metavar="FILE", help="Record this machine's facts to a file for --machine.")
    ] = "",
    format: FormatOption = Format.human,
) -> None:
    """Prints facts, findings with fixes, and the install profile that fits the machine.

    The environment is the one of --venv or --python, else the active one, else .venv. It is read without
    importing any of its packages.

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
        str,
        typer.Argument(metavar="[TEXT|FILE|-|RULE|CAUSE]", help="An error text, a log file, a rule id or a cause."),
    ] = "",
    venv: VenvOption = "",
    python: PythonOption = "",
    machine: MachineOption = "",
    fact: FactOption = None,
    format: FormatOption = Format.human,
) -> None:
    """Prints the likely causes of an error, the most likely first, each with its fix.

    For a rule id or a cause, prints its documentation.

    Example: envdoctor explain train.log --venv ./venv
    """
    from envdoctor.commands import explain as command

    request = command.ExplainRequest(text, machine, tuple(fact or ()), venv, python)
    finish("explain", format, lambda _: command.run(request))


@app.command()
def rules(format: FormatOption = Format.human) -> None:
    """`envdoctor explain ID` prints the documentation of a rule.

    Example: envdoctor rules
    """
    from envdoctor.commands import rules as command

    finish("rules", format, lambda _: command.run())


@app.command()
def report(
    venv: VenvOption = "", python: PythonOption = "", output: OutputOption = "", format: FormatOption = Format.human
) -> None:
    """Contains machine, environment, findings, last install, verification and last run.

    Secrets, names, addresses and serial numbers are removed; the report lists the kinds of removed values.

    Example: envdoctor report --output report.md
    """
    from envdoctor.commands import report as command

    finish("report", format, lambda _: command.run(venv, python, output))


@app.command()
def schema(
    name: Annotated[str, typer.Argument(help="A command, envelope, machine or stack.")] = "envelope",
    format: FormatOption = Format.human,
) -> None:
    """Also prints the schemas of machine files (machine) and of environment files (stack).

    Example: envdoctor schema machine
    """
    from envdoctor.output import schema as command

    finish("schema", format, lambda _: command.run(name))
