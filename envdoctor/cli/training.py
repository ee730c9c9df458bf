"""Commands for training: plan, train, watch, plot, pack, quickstart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from envdoctor.cli.shared import (
    FactOption,
    Format,
    FormatOption,
    MachineOption,
    ProfileOption,
    ProgressFormat,
    ProgressOption,
    PythonOption,
    VenvOption,
    app,
    finish,
    reject_combination,
)

if TYPE_CHECKING:
    from envdoctor.core.results import CommandResult
    from envdoctor.output.reporter import LazyReporter

RUN_HELP = "The run's folder; default: the newest one in ./runs."
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of the recipe; may be repeated."),
]


@app.command()
def plan(
    model: Annotated[
        str,
        typer.Option("--model", metavar="ID|FOLDER|config.json", help="The model to train; default: the recipe's."),
    ] = "",
    recipe: Annotated[
        str, typer.Option("--recipe", metavar="NAME|FILE", help="Use the settings of this recipe.")
    ] = "",
    assignments: SetOption = None,
    machine: MachineOption = "",
    fact: FactOption = None,
    gpus: Annotated[
        int, typer.Option("--gpus", metavar="N", help="GPUs that train together, one process for each.")
    ] = 1,
    venv: VenvOption = "",
    python: PythonOption = "",
    format: FormatOption = Format.human,
) -> None:
    """Prints the memory of each phase, whether it fits, and the settings to change if it does not.

    Nothing is downloaded, no model is loaded, and no GPU is needed. With --venv or --python, the estimate is for
    the TRL version of that environment.

    Example: envdoctor plan --model openai/gpt-oss-20b --set lora_rank=8 --machine h200
    """
    from envdoctor.commands import plan as command

    request = command.PlanRequest(
        model, recipe, tuple(assignments or ()), machine, tuple(fact or ()), gpus, venv, python
    )
    finish("plan", format, lambda _: command.run(request))


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="A bundled recipe, or your own TOML file.")] = "sort",
    assignments: SetOption = None,
    venv: VenvOption = "",
    python: PythonOption = "",
    run: Annotated[
        str, typer.Option("--run", metavar="FOLDER", help="The run's folder; default: runs/RECIPE-TIME.")
    ] = "",
    resume: Annotated[
        str, typer.Option("--resume", metavar="latest|CHECKPOINT", help="Resume a run from this checkpoint.")
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check settings and data, print the command, and stop.")
    ] = False,
    unverified: Annotated[
        bool, typer.Option("--unverified", help="Train even if the environment is not verified.")
    ] = False,
    launcher: Annotated[
        str, typer.Option("--launcher", metavar="NAME", help="local, torchrun, accelerate, ray or slurm.")
    ] = "",
    gpus: Annotated[
        int, typer.Option("--gpus", min=0, max=1024, help="GPUs per node; default with a launcher: all.")
    ] = 0,
    nodes: Annotated[
        int, typer.Option("--nodes", min=0, max=100_000, help="Number of nodes; default in an allocation: all.")
    ] = 0,
    interface: Annotated[
        str, typer.Option("--interface", metavar="NAME", help="The network interface for communication.")
    ] = "",
    partition: Annotated[str, typer.Option("--partition", help="Partition of the SLURM job.")] = "",
    time: Annotated[str, typer.Option("--time", metavar="D-HH:MM:SS", help="Time limit of the SLURM job.")] = "",
    nodelist: Annotated[str, typer.Option("--nodelist", help="Nodes of the SLURM job.")] = "",
    account: Annotated[str, typer.Option("--account", help="Account of the SLURM job.")] = "",
    modules: Annotated[
        list[str] | None,
        typer.Option("--module", metavar="NAME", help="Module to load in the SLURM job, such as hpcx; repeatable."),
    ] = None,
    container: Annotated[
        str,
        typer.Option(
            "--container", metavar="IMAGE", help="Container of the SLURM job: a .sif for apptainer, else for pyxis."
        ),
    ] = "",
    slurm_options: Annotated[
        list[str] | None,
        typer.Option("--slurm-option", metavar="KEY=VALUE", help="Any other option of sbatch, such as qos=high."),
    ] = None,
    report_to: Annotated[
        str, typer.Option("--report-to", metavar="NAMES", help="tensorboard, trackio or wandb, comma-separated.")
    ] = "",
    stop_on: Annotated[
        str, typer.Option("--stop-on", metavar="ALARMS", help="Stop at these alarms, such as no-signal,collapse.")
    ] = "",
    list_recipes: Annotated[bool, typer.Option("--list", help="List the bundled recipes and exit.")] = False,
    list_settings: Annotated[bool, typer.Option("--settings", help="List all settings and exit.")] = False,
    format: FormatOption = Format.human,
) -> None:
    """Starts the bundled GRPO trainer, or verl, on this machine or through a launcher.

    Example: envdoctor train tes --set data=./weeks --set steps=100

    Example: envdoctor train gsm8k --launcher slurm --nodes 2 --gpus 8 --partition gpu --time 12:00:00
    """
    from envdoctor.commands import train as command
    from envdoctor.training.launchers.records import JobOptions, LaunchOptions

    def work(reporter: LazyReporter) -> CommandResult:
        if list_recipes:
            return command.list_recipes()
        if list_settings:
            return command.list_settings(recipe)
        named = {"report_to": report_to, "stop_on": stop_on}
        settings = [*(assignments or ()), *(f"{key}={value}" for key, value in named.items() if value)]
        job = JobOptions(
            partition, time, nodelist, account, tuple(modules or ()), container, tuple(slurm_options or ())
        )
        launch = LaunchOptions(launcher, nodes, gpus, interface, job)
        request = command.TrainRequest(
            recipe, tuple(settings), venv, python, run, resume, dry_run, unverified, launch
        )
        return command.run(request, reporter)

    finish("train", format, work)


@app.command()
def watch(
    run: Annotated[str, typer.Argument(metavar="RUN", help=RUN_HELP)] = "",
    once: Annotated[bool, typer.Option("--once", help="Print the current state and exit.")] = False,
    progress: ProgressOption = ProgressFormat.auto,
    format: FormatOption = Format.human,
) -> None:
    """Follows a run from another terminal, with the usage of this machine's GPUs, and ends with the run's exit code.

    Example: envdoctor watch runs/sort-20261121-153013 --once
    """
    from envdoctor.commands import watch as command

    def work(reporter: LazyReporter) -> CommandResult:
        on_state = (lambda _: None) if once else reporter.watched
        return command.run(run, once=once, on_event=reporter.event, on_state=on_state)

    finish("watch", format, work, progress)


@app.command()
def plot(
    runs: Annotated[list[str] | None, typer.Argument(metavar="RUN...", help=RUN_HELP)] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="A .png or .svg; default: curves.png in the run.")
    ] = "",
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", metavar="NAME", help="A column of metrics.csv to plot; may be repeated."),
    ] = None,
    venv: VenvOption = "",
    python: PythonOption = "",
    format: FormatOption = Format.human,
) -> None:
    """Plots training and held-out metrics of one or more runs with the matplotlib of the run's environment.

    Example: envdoctor plot runs/a runs/b --metric reward --metric entropy --output compared.svg
    """
    from envdoctor.commands import plot as command

    finish("plot", format, lambda _: command.run(runs or [], output, metric or [], venv, python))


@app.command()
def pack(
    run: Annotated[str, typer.Argument(metavar="RUN", help=RUN_HELP)] = "",
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="The zip file; default: RUN.zip next to the run.")
    ] = "",
    with_optimizer: Annotated[
        bool, typer.Option("--with-optimizer", help="Include checkpoints with everything needed to resume.")
    ] = False,
    with_checkpoints: Annotated[
        bool, typer.Option("--with-checkpoints", help="Include the weights of the checkpoints.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Pack the run even while it is being trained.")] = False,
    check: Annotated[
        str, typer.Option("--check", metavar="FILE", help="Check a zip file against its manifest instead.")
    ] = "",
    format: FormatOption = Format.human,
) -> None:
    """The zip contains model, metrics, log and settings, with checksums and without secrets.

    Example: envdoctor pack runs/sort-20261121-153013 --output sort.zip
    """
    from envdoctor.commands import pack as command

    def work(_: LazyReporter) -> CommandResult:
        if not check:
            return command.run(command.PackRequest(run, output, with_optimizer, with_checkpoints, force))
        ignored = {"RUN": run, "--output": output, "--with-optimizer": with_optimizer}
        ignored |= {"--with-checkpoints": with_checkpoints, "--force": force}
        hint = f"envdoctor pack --check {check}"
        reject_combination("--check", ignored, reason="it only reads the zip file", hint=hint)
        return command.check_pack(check)

    finish("pack", format, work)


@app.command()
def quickstart(profile: ProfileOption = "", venv: VenvOption = "", format: FormatOption = Format.human) -> None:
    """Checks this machine, installs the profile that fits, verifies it, and trains the profile's default recipe.

    Example: envdoctor quickstart
    """
    from envdoctor.commands import quickstart as command

    finish("quickstart", format, lambda reporter: command.run(profile, venv, reporter))
