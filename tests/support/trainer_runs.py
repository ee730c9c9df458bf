"""Runs of the trainer: settings of seconds, the process, and the files that it writes."""

from __future__ import annotations

import csv
import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from support.paths import TESTS, TRAIN
from support.stacks import forking, stack_environment, torchrun_variables

GRPO = TRAIN / "grpo.py"
WITHOUT_FIGURES = TESTS / "support/grpo_without_figures.py"


SHORT = {
    "sft_steps": 3,
    "sft_batch_size": 8,
    "prompts_per_step": 4,
    "num_generations": 4,
    "hidden_size": 16,
    "intermediate_size": 16,
    "layers": 1,
    "heads": 2,
    "eval_steps": 2,
    "num_generations_eval": 1,
    "save_steps": 2,
}


def write_run(folder: Path, recipe: str, **settings: Any) -> Path:
    """Create a run directory with run.json: a recipe with short settings."""
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"schema": 1, "recipe": recipe, "settings": SHORT | settings}))
    return folder


def start(
    python: Path,
    run: Path,
    *options: str,
    program: Path = WITHOUT_FIGURES,
    cwd: Path | None = None,
    cold: bool = False,
    largest_file: int = 0,
    **variables: str,
) -> subprocess.Popen[str]:
    """Start the trainer in a fork of the stack's interpreter; `cold`: in a new interpreter.

    `largest_file`: writes beyond this size fail, as on a full disk.
    """
    limit = ["prlimit", f"--fsize={largest_file}"] if largest_file else []
    return subprocess.Popen(
        [*limit, str(python if cold else forking(python)), "-B", str(program), str(run), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=cwd,
        env=stack_environment(run) | variables,
    )


def start_ranks(
    python: Path,
    run: Path,
    *options: str,
    program: Path = WITHOUT_FIGURES,
    count: int = 2,
    cold: bool = False,
    **variables: str,
) -> subprocess.Popen[str]:
    """Start torchrun and its ranks, each in a fork; `cold`: in new interpreters."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}", "--log-dir=/dev/null"]
    return subprocess.Popen(
        [str(python if cold else forking(python)), "-B", *torchrun, str(program), str(run), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=stack_environment(run) | ({} if cold else torchrun_variables(python)) | variables,
    )


def trainer_of(run: Path) -> int:
    """The process that trains a run, from the run's lock."""
    return int((run / ".lock").read_text())


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for the end of a process, and return its exit code and output."""
    output, _ = process.communicate(timeout=240)
    return process.returncode, output


def read_events(run: Path) -> list[dict[str, Any]]:
    """The complete lines of a run's events.jsonl."""
    file = run / "events.jsonl"
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return [json.loads(line) for line in text.split("\n")[:-1]]


def read_rows(file: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    with file.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def wait_for_step(process: subprocess.Popen[str], run: Path, step: int) -> None:
    """Wait until a run has recorded a step; fail if its process ends before."""
    for _ in range(2400):
        if any(event["event"] == "step" and event["step"] >= step for event in read_events(run)):
            return
        if process.poll() is not None:
            pytest.fail(f"ended before step {step}: {finish(process)[1]}")
        time.sleep(0.05)
    pytest.fail(f"no step {step} within two minutes")
