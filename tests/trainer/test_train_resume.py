"""Runs that are killed, run out of disk space, or have several ranks; a resumed run equals the uninterrupted one."""

from __future__ import annotations

import csv
import json
import resource
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from support.paths import TRAIN
from support.stacks import TINY, run_code
from support.trainer_runs import (
    finish,
    read_events,
    read_rows,
    start,
    start_ranks,
    trainer_of,
    wait_for_step,
    write_run,
)

pytestmark = pytest.mark.stack
# Columns that depend on time or on the process.
UNSTEADY = ("seconds", "tokens_per_second", "memory_gib")


def steady(run: Path) -> list[dict[str, str]]:
    rows = read_rows(run / "metrics.csv")
    return [{name: cell for name, cell in row.items() if not name.endswith(UNSTEADY)} for row in rows]


def contents(run: Path) -> dict[Path, bytes]:
    """Every file but those that each start writes to."""
    files = (path for path in run.rglob("*") if path.is_file() and path.name not in ("events.jsonl", ".lock"))
    return {path: path.read_bytes() for path in files}


def test_a_resumed_run_equals_the_uninterrupted_one(stack_python: Path, tmp_path: Path) -> None:
    whole = write_run(
        tmp_path / "whole", "sort", max_steps=4, sft_steps=20, per_device_train_batch_size=8, beta=0.05, seed=7
    )
    status, output = finish(start(stack_python, whole))
    assert status == 0, output
    resumed = tmp_path / "resumed"
    shutil.copytree(whole, resumed)
    status, output = finish(start(stack_python, resumed, "--resume", "checkpoint-2"))
    assert status == 0, output
    aside = resumed / "checkpoints/aside-1"
    assert "checkpoint-4, generations.csv, metrics.csv, result.json of the later steps were moved to" in output
    for name in ("checkpoint-4/complete.json", "metrics.csv", "result.json"):
        first = (whole / "checkpoints" if name.startswith("checkpoint") else whole) / name
        assert (aside / name).read_bytes() == first.read_bytes()
    assert steady(resumed) == steady(whole)
    assert read_rows(resumed / "generations.csv") == read_rows(whole / "generations.csv")
    results = [json.loads((run / "result.json").read_text()) for run in (whole, resumed)]
    assert results[0]["after"] == results[1]["after"]
    assert results[1]["resumed_from"] == 2
    weights = [(run / "model" / "model.safetensors").read_bytes() for run in (whole, resumed)]
    assert weights[0] == weights[1]


def test_a_full_disk_while_saving_keeps_earlier_checkpoints(stack_python: Path, tmp_path: Path) -> None:
    run = write_run(
        tmp_path / "run", "sort", max_steps=400, save_steps=3, eval_steps=0, hidden_size=64, save_total_limit=1
    )
    process = start(stack_python, run)
    wait_for_step(process, run, 3)
    while not any(event["event"] == "checkpoint" for event in read_events(run)):
        assert process.poll() is None
    # Writes beyond this size now fail, as on a full disk, in the middle of the checkpoint's larger files.
    resource.prlimit(trainer_of(run), resource.RLIMIT_FSIZE, (60_000, 60_000))
    status, output = finish(process)
    assert status == 1, output
    whole = [path for path in (run / "checkpoints").iterdir() if (path / "complete.json").exists()]
    assert whole
    configuration = json.loads((run / "run.json").read_text())
    last = max(int(path.name.rpartition("-")[2]) for path in whole)
    configuration["settings"]["max_steps"] = last + 4
    (run / "run.json").write_text(json.dumps(configuration))
    status, output = finish(start(stack_python, run, "--resume", "latest"))
    assert status == 0, output
    assert [row["step"] for row in read_rows(run / "metrics.csv")] == [str(step) for step in range(1, last + 5)]


# The trainer with a second process that takes half a second longer to sample.
LATE = """
import os, sys, time
sys.path.insert(0, TRAIN)
import grpo
prepared = grpo.prepare_process
def prepare(*arguments):
    prepared(*arguments)
    from torch.nn.parallel import DistributedDataParallel
    from transformers import GenerationMixin
    made = DistributedDataParallel.__init__
    def make(self, *arguments, **named):
        made(self, *arguments, **named)
        os.write(1, f"gradients lie in DDP's buckets: {self.gradient_as_bucket_view}\\n".encode())
    DistributedDataParallel.__init__ = make
    generate = GenerationMixin.generate
    def late(*arguments, **named):
        time.sleep(0.5 * int(os.environ["RANK"]))
        return generate(*arguments, **named)
    GenerationMixin.generate = late
grpo.prepare_process = prepare
sys.exit(grpo.main())
"""


@pytest.mark.early
def test_two_processes_write_one_run(stack_python: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "sort", max_steps=4, sft_steps=10)
    (tmp_path / "late.py").write_text(f"TRAIN = {str(TRAIN)!r}\n{LATE}")
    status, output = finish(start_ranks(stack_python, run, program=tmp_path / "late.py"))
    assert status == 0, output
    assert output.count("gradients lie in DDP's buckets: True") == 2, output
    result = json.loads((run / "result.json").read_text())
    assert (result["ranks"], result["steps"], result["status"]) == (2, 4, "done")
    waits = []
    for row in read_rows(run / "metrics.csv"):
        waits.append(float(row["wait_seconds"]) + float(row["generate_seconds"]))
        parts = [float(row[f"{part}_seconds"]) for part in ("generate", "score", "update", "sync", "wait")]
        assert sum(parts) == pytest.approx(float(row["seconds"]), rel=1e-3)
    # The second rank sleeps for half a second; meanwhile the first one may save a checkpoint of the step before.
    assert sum(seconds > 0.3 for seconds in waits) >= 2, waits
    assert result["shares"]["wait"] > 0
    assert [row["step"] for row in read_rows(run / "metrics.csv")] == ["1", "2", "3", "4"]
    generations = read_rows(run / "generations.csv")
    assert len(generations) == 4 * 4 * 4  # steps, prompts, completions of both ranks
    by_prompt = {(row["step"], row["prompt"]) for row in generations}
    assert len(by_prompt) == 4 * 4
    rewards = [float(row["reward"]) for row in generations if row["step"] == "1"]
    assert float(read_rows(run / "metrics.csv")[0]["reward"]) == pytest.approx(sum(rewards) / len(rewards))
    assert sum("held out, before" in line for line in output.splitlines()) == 1
    events = read_events(run)
    assert [event["step"] for event in events if event["event"] == "step"] == [1, 2, 3, 4]
    assert {"rng_state_0.pth", "rng_state_1.pth"} <= {p.name for p in (run / "checkpoints/checkpoint-4").iterdir()}
    # Both ranks resume from their checkpoint.
    (run / "result.json").unlink()
    status, output = finish(start_ranks(stack_python, run, "--resume", str(run / "checkpoints/checkpoint-2")))
    assert status == 0, output
    assert [row["step"] for row in read_rows(run / "metrics.csv")] == ["1", "2", "3", "4"]
    assert read_rows(run / "generations.csv") == generations


def test_both_ranks_stop_at_the_same_step_after_a_signal(stack_python: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "sort", max_steps=100000, sft_steps=5, save_steps=0, eval_steps=0)
    process = start_ranks(stack_python, run)
    wait_for_step(process, run, 2)
    process.send_signal(signal.SIGTERM)
    status, output = finish(process)
    assert status != 0
    ended = [event for event in read_events(run) if event["event"] == "interrupted"]
    assert ended, output
    step = ended[-1]["step"]
    assert (run / "checkpoints" / f"checkpoint-{step}" / "complete.json").exists()


# The trainer with an ACTION at the beginning of its third step.
AT_STEP_3 = """
import os, signal, sys
sys.path.insert(0, TRAIN)
import grpo
prepared = grpo.prepare_process
def prepare(*arguments):
    prepared(*arguments)
    from run.recorder import Recorder
    begin = Recorder.on_step_begin
    def on_step_begin(self, args, state, *more, **named):
        if state.global_step == 2 and not os.path.exists("done"):
            open("done", "w").close()
            ACTION
        begin(self, args, state, *more, **named)
    Recorder.on_step_begin = on_step_begin
grpo.prepare_process = prepare
sys.exit(grpo.main())
"""


def test_an_interrupt_waits_for_the_last_update_of_its_completions(stack_python: Path, tmp_path: Path) -> None:
    """A checkpoint does not contain completions that another update would use."""
    settings = {"max_steps": 6, "sft_steps": 20, "num_iterations": 2, "seed": 7, "save_steps": 6}
    whole = write_run(tmp_path / "whole", "sort", **settings)
    status, output = finish(start(stack_python, whole))
    assert status == 0, output
    run, program = write_run(tmp_path / "run", "sort", **settings), tmp_path / "signal.py"
    action = "os.kill(os.getpid(), signal.SIGTERM)"
    program.write_text(f"TRAIN = {str(TRAIN)!r}\n{AT_STEP_3.replace('ACTION', action)}")
    status, output = finish(start(stack_python, run, program=program, cwd=tmp_path))
    assert status == 130, output
    assert [event["step"] for event in read_events(run) if event["event"] == "interrupted"] == [4]
    status, output = finish(start(stack_python, run, "--resume", "latest"))
    assert status == 0, output
    assert steady(run) == steady(whole)
    weights = [(folder / "model" / "model.safetensors").read_bytes() for folder in (whole, run)]
    assert weights[0] == weights[1]


def test_the_note_of_a_failed_step_says_that_its_completions_are_lost(stack_python: Path, tmp_path: Path) -> None:
    run, program = (
        write_run(tmp_path / "run", "sort", max_steps=6, num_iterations=2, save_steps=6),
        tmp_path / "fail.py",
    )
    fails = AT_STEP_3.replace("global_step == 2", "global_step == 3").replace("ACTION", "1 / 0")
    program.write_text(f"TRAIN = {str(TRAIN)!r}\n{fails}")
    status, output = finish(start(stack_python, run, program=program, cwd=tmp_path))
    assert status == 1, output
    assert (
        "saved the state after step 3; continue with --resume latest, which samples other completions for" in output
    )


def test_stop_on_ends_the_run(stack_python: Path, tmp_path: Path) -> None:
    # Without a warm-up every completion is wrong: all rewards are 0, and all advantages too.
    run = write_run(
        tmp_path / "run", "sort", max_steps=300, sft_steps=0, sft_batch_size=64, save_steps=0, eval_steps=0,
        stop_on=["no-signal"], num_iterations=2,
    )  # fmt: skip
    status, output = finish(start(stack_python, run))
    assert status == 0, output
    result = json.loads((run / "result.json").read_text())
    assert (result["status"], result["stopped_by"]) == ("stopped", "no-signal")
    assert result["steps"] < 50
    assert result["steps"] % 2 == 0
    (alarm,) = [event for event in read_events(run) if event["event"] == "alarm"]
    assert alarm["name"] == "no-signal"
    assert alarm["hint"]


DATASET = {
    "rewards": ["overlap.py:overlap", "length"], "reward_weights": ["1", "0.5"], "max_completion_length": 6,
    "max_steps": 3, "prompts_per_step": 4, "num_generations": 4, "learning_rate": 1e-2, "eval_steps": 2,
    "save_steps": 2,
    "num_generations_eval": 1, "gradient_checkpointing": True, "per_device_train_batch_size": 8,
}  # fmt: skip
MODELS = {
    "qwen2": {"beta": 0.05},
    "gpt_oss": {
        "r": 4, "target_modules": ["q_proj", "v_proj"], "merge": True, "beta": 0.05,
        "target_parameters": ["1.mlp.experts.gate_up_proj"],
    },
}  # fmt: skip


def write_rows(folder: Path) -> Path:
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    with (folder / "rows.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["prompt", "answer"])
        table.writerows(
            [f"sort these digits please {b} {a}", f"{a} {b}"] for i, a in enumerate(words) for b in words[i + 1 :]
        )
    return folder / "rows.csv"


def test_a_reward_that_fails_loses_no_step(stack_python: Path, tmp_path: Path) -> None:
    run_code(stack_python, TINY + "save_qwen2(given[0])\nreport(ok=True)", tmp_path / "model")
    reward = "def moody(completions, trainer_state=None, **_):\n    {}return [float(len(c)) for c in completions]\n"
    fails = "if trainer_state and trainer_state.global_step == 2: raise RuntimeError('the judge is away')\n    "
    (tmp_path / "moody.py").write_text(reward.format(fails))
    settings = DATASET | {
        "model": str(tmp_path / "model"), "data": str(write_rows(tmp_path)), "rewards": ["moody.py:moody"],
        "reward_weights": [], "save_steps": 1000, "eval_steps": 0, "gradient_checkpointing": False, "max_steps": 4,
    }  # fmt: skip
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text(json.dumps({"schema": 1, "recipe": "mine", "settings": settings}))
    status, output = finish(start(stack_python, run, cwd=tmp_path))
    assert status == 2, output
    assert "the judge is away" in output
    assert "saved the state after step 2" in output
    (tmp_path / "moody.py").write_text(reward.format(""))
    status, output = finish(start(stack_python, run, "--resume", "latest", cwd=tmp_path))
    assert status == 0, output
    assert [row["step"] for row in read_rows(run / "metrics.csv")] == ["1", "2", "3", "4"]


# The trainer with an optimizer whose third step of GRPO fails, as it does where memory runs out.
BREAKS = """
import sys
sys.path.insert(0, TRAIN)
import grpo
prepared, steps = grpo.prepare_process, []
def prepare(*arguments):
    prepared(*arguments)
    from torch.optim import AdamW
    step = AdamW.step
    def breaks(*arguments, **named):
        steps.append(1)
        if len(steps) == 10 + 3:  # ten to warm up
            raise RuntimeError("out of memory, say")
        return step(*arguments, **named)
    AdamW.step = breaks
grpo.prepare_process = prepare
sys.exit(grpo.main())
"""


def test_the_completions_of_a_failed_step_are_written(stack_python: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "sort", max_steps=4, sft_steps=10)
    (tmp_path / "breaks.py").write_text(f"TRAIN = {str(TRAIN)!r}\n{BREAKS}")
    status, output = finish(start(stack_python, run, program=tmp_path / "breaks.py"))
    assert status == 1, output
    assert "out of memory, say" in output
    assert [row["step"] for row in read_rows(run / "metrics.csv")] == ["1", "2"]
    assert [row["step"] for row in read_rows(run / "generations.csv")][::16] == ["1", "2", "3"]


def test_a_full_disk_while_merging_loses_the_merged_model_alone(stack_python: Path, tmp_path: Path) -> None:
    run_code(stack_python, TINY + "save_qwen2(given[0], width=128)\nreport(ok=True)", tmp_path / "model")
    settings = DATASET | {
        "model": str(tmp_path / "model"), "data": str(write_rows(tmp_path)), "rewards": ["length"],
        "reward_weights": [], "r": 2, "target_modules": ["q_proj"], "merge": True, "eval_steps": 0,
    }  # fmt: skip
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text(json.dumps({"schema": 1, "recipe": "mine", "settings": settings}))
    process = start(stack_python, run, cwd=tmp_path, largest_file=200_000)  # the adapter's files are smaller
    status, output = finish(process)
    assert status == 0, output
    assert "not merged: " in output
    assert json.loads((run / "result.json").read_text())["merged"] is None
    assert (run / "model" / "adapter_model.safetensors").exists()
    assert not (run / "model" / "merged").exists()


@pytest.mark.parametrize("kind", MODELS)
def test_a_pretrained_model_trains_on_user_rows(python: Path, tmp_path: Path, kind: str) -> None:
    run_code(python, TINY + f"save_{kind}(given[0])\nreport(ok=True)", tmp_path / "model")
    (tmp_path / "overlap.py").write_text(
        "def overlap(prompts, completions, answer, **_):\n"
        "    return [len({*text.split()} & {*right.split()}) / 2 for text, right in zip(completions, answer)]\n"
    )
    settings = DATASET | MODELS[kind] | {"model": str(tmp_path / "model"), "data": str(write_rows(tmp_path))}
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text(json.dumps({"schema": 1, "recipe": "mine", "settings": settings}))
    status, output = finish(start(python, run, cwd=tmp_path))
    assert status == 0, output
    result = json.loads((run / "result.json").read_text())
    assert (result["status"], result["steps"]) == ("done", 3)
    rows = read_rows(run / "metrics.csv")
    assert all(float(row["grad_norm"]) > 0 for row in rows), rows
    assert all(float(row["kl"]) >= 0 for row in rows)
    assert {"reward_overlap", "reward_length"} <= set(read_rows(run / "generations.csv")[0])
    saved = {path.name for path in (run / "model").iterdir()}
    if kind == "qwen2":
        assert "model.safetensors" in saved
        assert result["trained_parameters"] == result["parameters"]
    else:
        assert "adapter_model.safetensors" in saved
        assert result["merged"]["ok"], result["merged"]
        assert 0 < result["trained_parameters"] < result["parameters"] / 4
        assert result["attention"] == "eager"
    assert str(tmp_path) not in (run / "model" / "README.md").read_text()


@pytest.mark.parametrize("length", [{"max_steps": 4}, {"max_steps": 0, "num_train_epochs": 0.005}])
def test_a_run_killed_after_its_last_step_is_finished_without_another(
    stack_python: Path, tmp_path: Path, length: dict[str, Any]
) -> None:
    run = write_run(tmp_path / "run", "sort", sft_steps=20, seed=7, **length)
    status, output = finish(start(stack_python, run))
    assert status == 0, output
    whole = json.loads((run / "result.json").read_text())
    steps, weights = steady(run), (run / "model" / "model.safetensors").read_bytes()
    # As if it had been killed during the final evaluation.
    events = (run / "events.jsonl").read_text().splitlines(keepends=True)
    last = max(number for number, line in enumerate(events) if '"event": "checkpoint"' in line)
    (run / "events.jsonl").write_text("".join(events[: last + 1]))
    (run / "result.json").unlink()
    shutil.rmtree(run / "model")
    status, output = finish(start(stack_python, run, "--resume", "latest"))
    assert status == 0, output
    again = json.loads((run / "result.json").read_text())
    assert (again["steps"], again["after"]) == (whole["steps"], whole["after"])
    assert steady(run) == steps
    assert (run / "model" / "model.safetensors").read_bytes() == weights
    # The run is finished now: nothing is changed.
    before = contents(run)
    status, output = finish(start(stack_python, run, "--resume", "latest"))
    assert (status, "the run is finished" in output) == (0, True)
    assert contents(run) == before
    assert [event["event"] for event in read_events(run)][-2:] == ["done", "note"]
