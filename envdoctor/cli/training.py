"""The hand-over to the trainer: train, quickstart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from envdoctor.cli.shared import Format, FormatOption, ProfileOption, PythonOption, VenvOption, app, finish

if TYPE_CHECKING:
    from envdoctor.output.reporter import Reporter
    from envdoctor.results import Answer


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

    finish("train", format, answer)


@app.command()
def quickstart(profile: ProfileOption = "", venv: VenvOption = "", format: FormatOption = Format.human) -> None:
    """Check this machine, install the profile that fits, verify it and train the embedded default.

    Example: envdoctor quickstart
    """
    import time

    from envdoctor import workflow

    finish("quickstart", format, lambda reporter: workflow.quickstart(profile, venv, reporter, time.monotonic))
