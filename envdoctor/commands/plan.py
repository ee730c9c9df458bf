"""`envdoctor plan`: the GPU memory of a training run, whether it fits a machine, and changes that make it fit.

The trainer computes its memory itself: train/plan.py runs with the tool's Python and returns JSON.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated, Any

import msgspec

from envdoctor.core.decoding import convert
from envdoctor.core.directories import bundled_directory
from envdoctor.core.errors import BadInput, exit_code
from envdoctor.core.options import (
    Argument,
    FactOption,
    MachineOption,
    Option,
    PythonOption,
    SetOption,
    VenvOption,
    machine_words,
)
from envdoctor.core.processes import run as run_process
from envdoctor.core.record import Record
from envdoctor.core.records import Gpu, Machine
from envdoctor.core.results import CommandResult
from envdoctor.core.shell_commands import shell_command
from envdoctor.environment.select import select_stack
from envdoctor.machine.select import select_machine
from envdoctor.training import recipes

PLAN_SECONDS = 30.0
# The driver reserves memory: torch reports 139.8 of an H200's 140.4 GiB in NVML, and 79.1 of an H100's 79.6.
USABLE_SHARE = 0.994
BFLOAT16_CAPABILITY = 8.0  # the first compute capability with bfloat16
HINT = "envdoctor plan --model Qwen/Qwen2.5-0.5B-Instruct"


class PlanRequest(Record, frozen=True, kw_only=True):
    """Prints the memory of each phase, whether it fits, and the settings to change if it does not.

    Nothing is downloaded, no model is loaded, and no GPU is needed. With --venv or --python, the estimate is for
    the TRL version of that environment.

    Example: envdoctor plan --model openai/gpt-oss-20b --set r=8 --machine h200
    """

    model: Annotated[str, Option("--model", "The model to train; default: the recipe's.", "ID|DIR|config.json")] = ""
    recipe: Annotated[str, Argument("A bundled recipe, or your own TOML file.", "[RECIPE]")] = ""
    assignments: SetOption = ()
    machine: MachineOption = ""
    facts: FactOption = ()
    gpus: Annotated[int, Option("--gpus", "GPUs that train together, one process for each.", "N")] = 1
    venv: VenvOption = ""
    python: PythonOption = ""


class MemoryPart(Record, frozen=True):
    """One part of the memory at the peak."""

    part: str
    bytes: int
    why: str


class MemoryRemedy(Record, frozen=True):
    """A change of settings in addition to the previous ones, its saving, and the command that plans with all."""

    set: dict[str, Any]
    why: str
    saves: int
    peak: int
    fits: bool
    command: str = ""


class MemoryPlan(Record, frozen=True, kw_only=True):
    """The memory of one process and its GPU, in bytes. `fits` is None without a GPU."""

    schema: int
    recipe: str
    model: str
    source: str  # of the model's sizes
    model_type: str
    parameters: int
    trained: int
    gpus: int
    gpu: str
    memory: int
    free: int
    usable: int  # of the free memory; a fuller plan does not count as fitting
    prompt_tokens: int
    completion_tokens: int
    trainer: str = "grpo"
    answers: int  # completions or examples per step and GPU
    per_device_train_batch_size: int
    dtype: str
    attention: str
    parts: tuple[MemoryPart, ...]
    phases: dict[str, int]
    peak: int
    peak_phase: str
    peak_allocated: int  # by torch: without the CUDA context and the allocator's fragmentation
    trainer_peak: int  # without vLLM
    needed: int  # with the minimum that vLLM needs
    host: int
    fits: bool | None
    vllm_shortage: int  # that vLLM's share is too small by
    vllm_gpu_memory_utilization: float | None
    vllm_share_computed: bool
    remedies: tuple[MemoryRemedy, ...]
    notes: tuple[str, ...]


def run(request: PlanRequest) -> CommandResult:
    """Plan a recipe or settings on this machine or a recorded one."""
    if not request.model and not request.recipe:
        raise BadInput("neither a recipe nor --model is given", expected="a recipe or a model", hint=HINT)
    if request.recipe and recipes.recipe_engine(request.recipe) != "grpo":
        raise BadInput(
            f"recipe {request.recipe} is for {recipes.recipe_engine(request.recipe)}, which assigns the GPUs itself",
            expected="a recipe of the bundled trainer",
            hint=shell_command("envdoctor train {} --dry-run", request.recipe),
        )
    if request.gpus < 1:
        raise BadInput(f"--gpus {request.gpus}", expected="at least 1", hint=f"{HINT} --gpus 1")
    machine = select_machine(request.machine, request.facts)
    plan = _run_planner(request, _gpu_memory(machine, request))
    plan = msgspec.structs.replace(plan, remedies=_with_commands(plan.remedies, request))
    undecided = plan.fits is None and machine.gpus.state == "unreadable"  # without a GPU only the memory is requested
    return CommandResult(plan, exit_code(failed=plan.fits is False, undecided=undecided))


def _gpu_memory(machine: Machine, request: PlanRequest) -> dict[str, Any]:
    """Return the smallest memory of the GPUs that would be used, as torch reports it."""
    gpus = [gpu for gpu in machine.gpus.value or () if gpu.memory_total.value]
    if not gpus:
        return {"gpus": request.gpus}
    if request.gpus > len(gpus):
        raise BadInput(
            f"--gpus {request.gpus}, but {machine.name or 'this machine'} has {len(gpus)}",
            expected=f"1 to {len(gpus)}",
            hint=_command(msgspec.structs.replace(request, gpus=len(gpus)), {}),
        )
    used = gpus[: request.gpus]
    return {
        "gpus": request.gpus,
        "name": used[0].name.value or "GPU",
        "bfloat16": all(float(gpu.compute_capability.value or 8) >= BFLOAT16_CAPABILITY for gpu in used),
        "memory": min(_usable_memory(gpu) for gpu in used),
        "free": min(_usable_memory(gpu) - (gpu.memory_used.value or 0) for gpu in used),
    }


def _usable_memory(gpu: Gpu) -> int:
    return int((gpu.memory_total.value or 0) * USABLE_SHARE)


def _run_planner(request: PlanRequest, machine: dict[str, Any]) -> MemoryPlan:
    """Run the trainer's planner; raises its errors as BadInput."""
    arguments = {
        "model": request.model,
        "recipe": request.recipe,
        "assignments": list(request.assignments),
        "machine": machine,
        "trl": _trl_version(request),
    }
    program = bundled_directory("train") / "plan.py"
    done = run_process(
        [recipes.CHECK_INTERPRETER, "-B", program],
        timeout=PLAN_SECONDS,
        stdin=json.dumps(arguments).encode(),
        cwd=Path.cwd(),
    )
    reply = recipes.read_reply(done, "the memory plan")
    return convert(reply["plan"], MemoryPlan, source="train/plan.py", expected="a plan", hint=HINT)


def _trl_version(request: PlanRequest) -> str:
    """Return the version of the environment's TRL, which from 1.15 stores no logits; empty without an environment."""
    stack = select_stack(request.venv, request.python)
    trl = (stack.distributions.value or {}).get("trl") if stack else None
    return trl.version if trl else ""


def _with_commands(remedies: tuple[MemoryRemedy, ...], request: PlanRequest) -> tuple[MemoryRemedy, ...]:
    """Add to each remedy the command with its changes and all previous ones."""
    changed = dict(assignment.partition("=")[::2] for assignment in request.assignments)
    completed = []
    for remedy in remedies:
        changed |= {key: format_setting(value) for key, value in remedy.set.items()}
        completed.append(msgspec.structs.replace(remedy, command=_command(request, changed)))
    return tuple(completed)


def _command(request: PlanRequest, changed: dict[str, str]) -> str:
    options = {"model": request.model, "venv": request.venv, "python": request.python}
    words = ["envdoctor", "plan", *([request.recipe] if request.recipe else [])]
    words += [word for name, value in options.items() if value for word in (f"--{name}", value)]
    words += machine_words(request.machine)
    words += [word for fact in request.facts for word in ("--fact", fact)]
    words += ["--gpus", str(request.gpus)] if request.gpus > 1 else []
    words += [word for key, value in changed.items() for word in ("--set", f"{key}={value}")]
    return shlex.join(words)


def format_setting(value: object) -> str:
    """Format a value for --set."""
    return str(value).lower() if isinstance(value, bool) else str(value)
