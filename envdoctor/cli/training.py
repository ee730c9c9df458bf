"""The hand-over to the trainer: train, quickstart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from envdoctor.cli.shared import Format, FormatOption, ProfileOption, PythonOption, VenvOption, app, finish

if TYPE_CHECKING:
    from envdoctor.core.results import CommandResult
    from envdoctor.output.reporter import LazyReporter


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="A bundled recipe, or a TOML file of your own.")] = "sort",
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
        bool, typer.Option("--dry-run", help="Check settings and data, print what would run, and stop.")
    ] = False,
    unverified: Annotated[
        bool, typer.Option("--unverified", help="Train though the environment is not verified.")
    ] = False,
    launcher: Annotated[
        str, typer.Option("--launcher", metavar="NAME", help="local, torchrun, accelerate, ray or slurm.")
    ] = "",
    gpus: Annotated[
        int, typer.Option("--gpus", min=0, max=1024, help="GPUs of each node; a launcher by itself takes all.")
    ] = 0,
    nodes: Annotated[int, typer.Option("--nodes", min=0, max=100_000, help="Machines; in an allocation all.")] = 0,
    interface: Annotated[
        str, typer.Option("--interface", metavar="NAME", help="The network interface between processes.")
    ] = "",
    partition: Annotated[str, typer.Option("--partition", help="Of a SLURM job.")] = "",
    time: Annotated[
        str, typer.Option("--time", metavar="D-HH:MM:SS", help="Of a SLURM job, until it is killed.")
    ] = "",
    nodelist: Annotated[str, typer.Option("--nodelist", help="Of a SLURM job: these machines.")] = "",
    account: Annotated[str, typer.Option("--account", help="Of a SLURM job.")] = "",
    modules: Annotated[
        list[str] | None, typer.Option("--module", metavar="NAME", help="A module that a SLURM job loads, as hpcx.")
    ] = None,
    container: Annotated[
        str,
        typer.Option("--container", metavar="IMAGE", help="Of a SLURM job: a .sif for apptainer, else for pyxis."),
    ] = "",
    slurm_options: Annotated[
        list[str] | None,
        typer.Option("--slurm-option", metavar="KEY=VALUE", help="Any option of sbatch, as qos=high."),
    ] = None,
    report_to: Annotated[
        str, typer.Option("--report-to", metavar="NAMES", help="tensorboard, trackio, wandb; several with commas.")
    ] = "",
    stop_on: Annotated[
        str, typer.Option("--stop-on", metavar="ALARMS", help="End the run at these alarms, as no-signal,collapse.")
    ] = "",
    list_recipes: Annotated[bool, typer.Option("--list", help="List the bundled recipes.")] = False,
    list_settings: Annotated[bool, typer.Option("--settings", help="List every setting there is.")] = False,
    format: FormatOption = Format.human,
) -> None:
    """Train a recipe with the bundled GRPO trainer in a verified environment.

    Example: envdoctor train tes --set data=./weeks --set steps=100

    Example: envdoctor train gsm8k --launcher slurm --nodes 2 --gpus 8 --partition gpu --time 12:00:00
    """
    from envdoctor.commands import train as command
    from envdoctor.training.launchers.records import JobOptions, LaunchOptions

    def answer(reporter: LazyReporter) -> CommandResult:
        if list_recipes:
            return command.list_recipes()
        if list_settings:
            return command.list_settings(recipe)
        named = {"report_to": report_to, "stop_on": stop_on}
        given = [*(assignments or ()), *(f"{key}={value}" for key, value in named.items() if value)]
        job = JobOptions(
            partition, time, nodelist, account, tuple(modules or ()), container, tuple(slurm_options or ())
        )
        launch = LaunchOptions(launcher, nodes, gpus, interface, job)
        request = command.TrainRequest(recipe, tuple(given), venv, python, run, resume, dry_run, unverified, launch)
        return command.run(request, reporter)

    finish("train", format, answer)


@app.command()
def quickstart(profile: ProfileOption = "", venv: VenvOption = "", format: FormatOption = Format.human) -> None:
    """Check this machine, install the profile that fits, verify it and train the embedded default.

    Example: envdoctor quickstart
    """
    from envdoctor.commands import quickstart as command

    finish("quickstart", format, lambda reporter: command.run(profile, venv, reporter))
