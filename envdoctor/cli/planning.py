"""What a training run needs: plan."""

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
def plan(
    model: Annotated[
        str, typer.Option("--model", metavar="ID|FOLDER|config.json", help="What is trained; default the recipe's.")
    ] = "",
    recipe: Annotated[str, typer.Option("--recipe", metavar="NAME|FILE", help="A recipe's settings.")] = "",
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting.")
    ] = None,
    machine: MachineOption = "",
    fact: FactOption = None,
    gpus: Annotated[int, typer.Option("--gpus", metavar="N", help="GPUs that train together, a process each.")] = 1,
    venv: VenvOption = "",
    python: PythonOption = "",
    format: FormatOption = Format.human,
) -> None:
    """Plan a run's GPU memory: what is needed when, whether it fits, and what to change where it does not.

    Nothing is downloaded or loaded, no GPU is needed. With --venv or --python the plan is for that TRL.

    Example: envdoctor plan --model openai/gpt-oss-20b --set lora_rank=8 --machine h200
    """
    from envdoctor.commands import plan as command

    request = command.PlanRequest(
        model, recipe, tuple(assignments or ()), machine, tuple(fact or ()), gpus, venv, python
    )
    finish("plan", format, lambda _: command.run(request))
