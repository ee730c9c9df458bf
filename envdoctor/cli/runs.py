"""Runs of the trainer, while they go on and afterwards: watch, plot, pack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from envdoctor.cli.shared import (
    Format,
    FormatOption,
    ProgressForm,
    ProgressOption,
    PythonOption,
    VenvOption,
    app,
    finish,
)

if TYPE_CHECKING:
    from envdoctor.core.results import CommandResult
    from envdoctor.output.reporter import LazyReporter

RUN = "A run's folder; default: the newest below ./runs."


@app.command()
def watch(
    run: Annotated[str, typer.Argument(metavar="RUN", help=RUN)] = "",
    once: Annotated[bool, typer.Option("--once", help="Print where the run stands, and end.")] = False,
    progress: ProgressOption = ProgressForm.auto,
    format: FormatOption = Format.human,
) -> None:
    """Follow a run from another terminal, with this machine's GPUs beside; ends with the run, as the run.

    Example: envdoctor watch runs/sort-20261121-153013 --once
    """
    from envdoctor.commands import watch as command

    def answer(reporter: LazyReporter) -> CommandResult:
        shown = (lambda _: None) if once else reporter.watched
        return command.run(run, once=once, on_event=reporter.event, on_state=shown)

    finish("watch", format, answer, progress)


@app.command()
def plot(
    runs: Annotated[list[str] | None, typer.Argument(metavar="RUN...", help=RUN)] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="A .png or .svg; default: curves.png in the run.")
    ] = "",
    metric: Annotated[
        list[str] | None, typer.Option("--metric", metavar="NAME", help="A column of metrics.csv; several times.")
    ] = None,
    venv: VenvOption = "",
    python: PythonOption = "",
    format: FormatOption = Format.human,
) -> None:
    """Draw runs into one figure, training and held-out, by the matplotlib of the environment that trained.

    Example: envdoctor plot runs/a runs/b --metric reward --metric entropy --output compared.svg
    """
    from envdoctor.commands import plot as command

    finish("plot", format, lambda _: command.run(runs or [], output, metric or [], venv, python))


@app.command()
def pack(
    run: Annotated[str, typer.Argument(metavar="RUN", help=RUN)] = "",
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Default: RUN.zip beside the run.")
    ] = "",
    with_optimizer: Annotated[
        bool, typer.Option("--with-optimizer", help="Checkpoints with all that a resumed run needs.")
    ] = False,
    with_checkpoints: Annotated[bool, typer.Option("--with-checkpoints", help="Checkpoints' weights.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Though the run is being trained.")] = False,
    check: Annotated[
        str, typer.Option("--check", metavar="FILE", help="Hold a zip against its manifest instead.")
    ] = "",
    format: FormatOption = Format.human,
) -> None:
    """Pack a run into a zip with checksums: model, tables, log and settings, without secrets.

    Example: envdoctor pack runs/sort-20261121-153013 --output sort.zip
    """
    from envdoctor.commands import pack as command

    def answer(_: LazyReporter) -> CommandResult:
        if not check:
            return command.run(command.PackRequest(run, output, with_optimizer, with_checkpoints, force))
        from envdoctor.core.errors import BadInput

        others = {"RUN": run, "--output": output, "--with-optimizer": with_optimizer}
        others |= {"--with-checkpoints": with_checkpoints, "--force": force}
        if given := [name for name, value in others.items() if value]:
            hint = f"envdoctor pack --check {check}"
            raise BadInput(
                f"--check cannot be combined with {', '.join(given)}", expected="--check without them", hint=hint
            )
        return command.check_pack(check)

    finish("pack", format, answer)
