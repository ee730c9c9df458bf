"""A dry run reports what the run itself would report before its first step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.command import envdoctor, envelope
from support.stacks import isolated_forking
from support.trainer_runs import finish, start, write_run

pytestmark = pytest.mark.stack
ROWS = [{"question": f"What is {n} + {n}?", "answer": f"#### {2 * n}"} for n in range(400)]


def train(python: Path, home: Path, recipe: str, *options: str) -> tuple[int, dict[str, Any]]:
    (home / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    words = ["train", recipe, "--python", str(isolated_forking(python)), "--unverified", "--format", "json", *options]
    done = envdoctor(*words, home=home, cwd=home, CUDA_VISIBLE_DEVICES="")
    return done.returncode, envelope(done)


@pytest.mark.parametrize(
    ("recipe", "problem"),
    [("gsm8k", "use_vllm = true without a GPU"), ("verl-grpo", "verl is not installed")],
)
def test_a_dry_run_reports_what_stops_the_run(stack_python: Path, tmp_path: Path, recipe: str, problem: str) -> None:
    options = ["--set", "data=rows.jsonl", "--set", "held_out=share=0.1"]
    code, planned = train(stack_python, tmp_path, recipe, *options, "--dry-run")
    (blocker,) = planned["data"]["blockers"]
    assert code == 1
    assert problem in blocker["message"]
    assert planned["data"]["run"]["command"]
    assert not list(tmp_path.glob("runs/*"))
    code, stopped = train(stack_python, tmp_path, recipe, *options)
    assert code == 2
    assert {name: stopped["error"][name] for name in blocker} == blocker


def test_a_dry_run_of_a_run_that_starts_has_no_blocker(stack_python: Path, tmp_path: Path) -> None:
    code, planned = train(stack_python, tmp_path, "sort", "--dry-run")
    assert (code, planned["data"]["blockers"]) == (0, [])


def test_the_checks_are_those_of_all_processes(stack_python: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "sort", prompts_per_step=1, max_steps=1)
    status, output = finish(start(stack_python, run, "--dry-run", "--processes", "3"))
    assert status == 2, output
    assert "4 completions per step (prompts_per_step * num_generations) on 3 GPUs" in output
    status, output = finish(start(stack_python, run, "--dry-run", "--processes", "2"))
    assert (status, output) == (0, "")
    assert [path.name for path in run.iterdir()] == ["run.json"]


def test_without_an_environment_the_dry_run_names_the_next_command(tmp_path: Path) -> None:
    done = envdoctor(
        "train", "sort", "--dry-run", "--format", "json", home=tmp_path, cwd=tmp_path, PATH="/usr/bin:/bin"
    )
    (blocker,) = envelope(done)["data"]["blockers"]
    assert done.returncode == 0
    assert "envdoctor" in blocker["hint"]
