"""Whether the kernels of an environment work: verify on this machine; archs and abi without a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from envdoctor.cli.shared import (
    FactOption,
    Format,
    FormatOption,
    MachineOption,
    ProgressForm,
    ProgressOption,
    PythonOption,
    VenvOption,
    alone,
    app,
    finish,
)

if TYPE_CHECKING:
    from envdoctor.core.results import CommandResult
    from envdoctor.output.reporter import LazyReporter


@app.command()
def verify(
    venv: VenvOption = "",
    python: PythonOption = "",
    only: Annotated[list[str] | None, typer.Option("--only", metavar="PROBE", help="Run just this probe.")] = None,
    skip: Annotated[list[str] | None, typer.Option("--skip", metavar="PROBE", help="Leave this probe out.")] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Without probes that compile or start vLLM, unless the profile requires them."),
    ] = False,
    load: Annotated[
        bool, typer.Option("--load", help="Load every compiled file and import the libraries; no GPU needed.")
    ] = False,
    bench: Annotated[
        bool, typer.Option("--bench", help="Measure the GPUs' speed within a minute, and grade it: no probes.")
    ] = False,
    progress: ProgressOption = ProgressForm.auto,
    format: FormatOption = Format.human,
) -> None:
    """Prove an environment's kernels and libraries by numbers, each in a process of its own.

    Example: envdoctor verify --python /opt/venv/bin/python
    """
    from envdoctor.commands import verify as command

    def answer(reporter: LazyReporter) -> CommandResult:
        if bench or load:
            option = "--bench" if bench else "--load"
            others = {"--load": bench and load, "--quick": quick, "--only": only, "--skip": skip}
            alone(option, others, why="it runs no probes", hint=f"envdoctor verify {option}")
        if bench:
            return command.run_benchmark(venv, python, reporter)
        if load:
            return command.run_load_test(venv, python, reporter)
        request = command.VerifyRequest(venv, python, tuple(only or ()), tuple(skip or ()), quick)
        return command.run(request, reporter)

    finish("verify", format, answer, progress)


@app.command()
def archs(
    target: Annotated[str, typer.Argument(metavar="FILE|VENV", help="A compiled file, an environment, or a folder.")],
    cc: Annotated[
        str, typer.Option("--cc", metavar="X.Y,...", help="Compute capabilities instead of a machine's GPUs.")
    ] = "",
    machine: MachineOption = "",
    fact: FactOption = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Each file, and what its containers hold.")
    ] = False,
    format: FormatOption = Format.human,
) -> None:
    """Say which GPUs the compiled files of an environment have code for, natively or as PTX.

    Example: envdoctor archs .venv --cc 9.0,12.0
    """
    from envdoctor.commands import archs as command

    finish("archs", format, lambda _: command.run(target, cc, machine, fact or [], verbose=verbose))


@app.command()
def abi(
    venv: Annotated[str, typer.Argument(metavar="VENV", help="The environment's folder.")],
    format: FormatOption = Format.human,
) -> None:
    """Hold the symbols and libraries that compiled files ask for against what is installed; nothing is loaded.

    Example: envdoctor abi .venv
    """
    from envdoctor.commands import abi as command

    finish("abi", format, lambda _: command.run(venv))
