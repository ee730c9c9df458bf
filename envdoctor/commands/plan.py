"""`envdoctor plan`: what a training run will hold in GPU memory, whether it fits a machine, and what to change.

The trainer knows its own memory: train/plan.py is run in the tool's Python and answers in JSON.
"""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import msgspec

from envdoctor.core.decoding import convert
from envdoctor.core.directories import bundled_directory
from envdoctor.core.errors import EXIT_NO, EXIT_OK, BadInput, EnvdoctorError
from envdoctor.core.processes import run as run_process
from envdoctor.core.records import Gpu, Machine, Record
from envdoctor.core.results import CommandResult
from envdoctor.environment.select import select_stack
from envdoctor.machine.select import select_machine
from envdoctor.training.recipes import recipe_engine

PLAN_SECONDS = 30.0
# torch counts less than NVML: 139.8 of an H200's 140.4 GiB, 79.1 of an H100's 79.6, since the driver keeps some.
OF_NVML = 0.994
BFLOAT16 = 8.0  # the first compute capability that computes in it
HINT = "envdoctor plan --model Qwen/Qwen2.5-0.5B-Instruct"


class PlanRequest(Record, frozen=True):
    """What `plan` was asked for."""

    model: str = ""
    recipe: str = ""
    assignments: tuple[str, ...] = ()
    machine: str = ""  # a recorded one
    facts: tuple[str, ...] = ()
    gpus: int = 1
    venv: str = ""
    python: str = ""


class Part(Record, frozen=True):
    """One thing that is in memory at the peak."""

    part: str
    bytes: int
    why: str


class Remedy(Record, frozen=True):
    """A change on top of those before it, what it saves, and the command that plans with all of them."""

    set: dict[str, Any]
    why: str
    saves: int
    peak: int
    fits: bool
    command: str = ""


class MemoryPlan(Record, frozen=True, kw_only=True):
    """The memory of one process and its GPU, in bytes. `fits` is None where no GPU is known."""

    schema: int
    recipe: str
    model: str
    source: str  # where the model's sizes were read
    model_type: str
    parameters: int
    trained: int
    gpus: int
    gpu: str
    memory: int
    free: int
    prompt_tokens: int
    completion_tokens: int
    answers: int
    micro_batch: int
    dtype: str
    attention: str
    parts: tuple[Part, ...]
    phases: dict[str, int]
    peak: int
    peak_phase: str
    peak_allocated: int  # as torch counts: without the context and the allocator's fragments
    trainer_peak: int  # without vLLM
    needed: int  # with the least that vLLM needs
    host: int
    fits: bool | None
    vllm_share: float | None
    vllm_share_computed: bool
    remedies: tuple[Remedy, ...]
    notes: tuple[str, ...]


def run(request: PlanRequest) -> CommandResult:
    """The plan of a recipe or of single settings on this machine or a recorded one."""
    if not request.model and not request.recipe:
        raise BadInput("neither --model nor --recipe", expected="what is to be trained, or a recipe", hint=HINT)
    if request.recipe and recipe_engine(request.recipe) != "grpo":
        raise BadInput(
            f"recipe {request.recipe} is for {recipe_engine(request.recipe)}, which divides the GPUs itself",
            expected="a recipe of the bundled trainer",
            hint=f"envdoctor train {shlex.quote(request.recipe)} --dry-run",
        )
    if request.gpus < 1:
        raise BadInput(f"--gpus {request.gpus}", expected="at least 1", hint=f"{HINT} --gpus 1")
    machine = _gpu_memory(select_machine(request.machine, request.facts), request)
    made = _ask(request, machine)
    remedies = _with_commands(made.remedies, request)
    return CommandResult(msgspec.structs.replace(made, remedies=remedies), EXIT_NO if made.fits is False else EXIT_OK)


def _gpu_memory(machine: Machine, request: PlanRequest) -> dict[str, Any]:
    """The smallest of the GPUs that would be used, as torch sees it; empty without one."""
    gpus = [gpu for gpu in machine.gpus.value or () if gpu.memory_total.value]
    if not gpus:
        return {"gpus": request.gpus}
    if request.gpus > len(gpus):
        raise BadInput(
            f"--gpus {request.gpus}, but {machine.name or 'this machine'} has {len(gpus)}",
            expected=f"1 to {len(gpus)}",
            hint=f"{HINT} --gpus {len(gpus)}",
        )
    used = gpus[: request.gpus]
    return {
        "gpus": request.gpus,
        "name": used[0].name.value or "GPU",
        "bfloat16": all(float(gpu.compute_capability.value or 8) >= BFLOAT16 for gpu in used),
        "memory": min(_total(gpu) for gpu in used),
        "free": min(_total(gpu) - (gpu.memory_used.value or 0) for gpu in used),
    }


def _total(gpu: Gpu) -> int:
    return int((gpu.memory_total.value or 0) * OF_NVML)


def _ask(request: PlanRequest, machine: dict[str, Any]) -> MemoryPlan:
    """Let the trainer's program plan; its errors become ours."""
    asked = {
        "model": request.model,
        "recipe": request.recipe,
        "assignments": list(request.assignments),
        "machine": machine,
        "trl": _trl_version(request),
    }
    program = bundled_directory("train") / "plan.py"
    done = run_process(
        [sys.executable, "-B", program], timeout=PLAN_SECONDS, stdin=json.dumps(asked).encode(), cwd=Path.cwd()
    )
    try:
        answer = json.loads(done.output)
    except ValueError as error:
        raise EnvdoctorError(
            f"the memory plan {done.ending} without an answer: {done.output.strip()[-300:]}",
            expected="one JSON object",
            hint="this is a fault of envdoctor: please report it",
        ) from error
    if not answer["ok"]:
        problem = answer["error"]
        raise BadInput(problem["message"], expected=problem["expected"], hint=problem["hint"])
    return convert(answer["plan"], MemoryPlan, source="train/plan.py", expected="a plan", hint=HINT)


def _trl_version(request: PlanRequest) -> str:
    """The installed TRL's version: from 1.15 on it holds no logits. Empty where no environment was named."""
    stack = select_stack(request.venv, request.python, search=False)
    found = (stack.distributions.value or {}).get("trl") if stack else None
    return found.version if found else ""


def _with_commands(remedies: tuple[Remedy, ...], request: PlanRequest) -> tuple[Remedy, ...]:
    """Each with the command that has it and all before it."""
    changed = dict(assignment.partition("=")[::2] for assignment in request.assignments)
    told = []
    for remedy in remedies:
        changed |= {key: _text(value) for key, value in remedy.set.items()}
        told.append(msgspec.structs.replace(remedy, command=_command(request, changed)))
    return tuple(told)


def _command(request: PlanRequest, changed: dict[str, str]) -> str:
    options = {
        "model": request.model, "recipe": request.recipe, "machine": request.machine, "venv": request.venv,
        "python": request.python,
    }  # fmt: skip
    words = ["envdoctor", "plan"]
    words += [word for name, value in options.items() if value for word in (f"--{name}", value)]
    words += [word for fact in request.facts for word in ("--fact", fact)]
    words += ["--gpus", str(request.gpus)] if request.gpus > 1 else []
    words += [word for key, value in changed.items() for word in ("--set", f"{key}={value}")]
    return shlex.join(words)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
