"""Real training processes with TRL, transformers and torch."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from support.paths import TRAIN
from support.stacks import run_code
from support.tes_files import write_weeks
from support.trainer_runs import (
    GRPO,
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


def test_a_short_sort_run_writes_every_file(stack_python: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "sort", max_steps=5)
    before = (run / "run.json").read_bytes()
    status, output = finish(start(stack_python, run, program=GRPO))
    assert status == 0, output
    assert (run / "run.json").read_bytes() == before
    result = json.loads((run / "result.json").read_text())
    assert (result["schema"], result["recipe"], result["status"]) == (1, "sort", "done")
    assert {"greedy_exact_match", "sampled_exact_match"} <= set(result["before"]) & set(result["after"])
    assert (result["steps"], result["resumed_from"]) == (5, None)
    assert set(result["versions"]) == {"python", "torch", "transformers", "trl", "peft", "datasets"}
    assert [row["step"] for row in read_rows(run / "metrics.csv")] == ["1", "2", "3", "4", "5"]
    generations = read_rows(run / "generations.csv")
    assert len(generations) == 5 * 4 * 4
    assert all(len(row["expected"]) == 4 for row in generations)
    assert {path.name for path in (run / "checkpoints").glob("checkpoint-*")} == {
        "checkpoint-2",
        "checkpoint-4",
        "checkpoint-5",
    }
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {path.name for path in (run / "model").iterdir()}
    if result["curves"]:
        assert (run / "curves.png").read_bytes().startswith(b"\x89PNG")
    else:
        assert "matplotlib" in result["no_curves"]
    events = read_events(run)
    assert "no checkpoint before the end" not in output
    assert [event["step"] for event in events if event["event"] == "warmup"] == [1, 2, 3]
    assert [(event["when"], event["step"]) for event in events if event["event"] == "eval"] == [
        ("before", 0), ("during", 2), ("during", 4), ("after", 5),
    ]  # fmt: skip
    assert events[-1] == {"t": events[-1]["t"], "event": "done", "result": result}
    # A finished run is not overwritten by starting it again.
    status, output = finish(start(stack_python, run))
    assert status == 2
    assert "already contains a run (result.json, metrics.csv)" in output


@pytest.mark.parametrize(
    ("wanted", "used"), [pytest.param("eager", "eager", marks=pytest.mark.long), ("flash_attention_2", "sdpa")]
)
def test_attn_impl_chooses_the_attention(stack_python: Path, tmp_path: Path, wanted: str, used: str) -> None:
    run = write_run(tmp_path / "run", "sort", max_steps=1, eval_steps=0, save_steps=0)
    status, output = finish(start(stack_python, run, ATTN_IMPL=wanted))
    assert status == 0, output
    assert (
        "save_steps = 0 of 1 steps: no checkpoint before the end; a killed run starts again from the beginning"
        in output
    )
    assert json.loads((run / "result.json").read_text())["attention"] == used
    assert ("sdpa instead of flash_attention_2" in output) == (wanted != used)


def test_an_unsupported_attention_of_the_tiny_model_is_bad_input(stack_python: Path, tmp_path: Path) -> None:
    for wanted, why in (("sdpaa", "it is none of eager, sdpa"), ("flash_attention_2", "flash_attn is not installed")):
        run = write_run(tmp_path / wanted, "sort", max_steps=1, attn_implementation=wanted)
        status, output = finish(start(stack_python, run))
        assert status == 2, output
        assert f"attn_implementation = {wanted}: " in output
        assert why in output


def test_a_killed_run_is_resumed_without_gap_or_repetition(stack_python: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "sort", max_steps=40, save_steps=4)
    process = start(stack_python, run)
    wait_for_step(process, run, 10)
    process.send_signal(signal.SIGKILL)
    assert finish(process)[0] == -signal.SIGKILL
    # Half-written: a directory that the kill left without its last file, newer than every other.
    half = run / "checkpoints" / "checkpoint-39"
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"")
    with (run / "metrics.csv").open("a") as file:
        file.write("39,0.")
    status, output = finish(start(stack_python, run, "--resume", "latest"))
    assert status == 0, output
    result = json.loads((run / "result.json").read_text())
    assert result["resumed_from"] >= 8
    assert result["resumed_from"] % 4 == 0
    rows = read_rows(run / "metrics.csv")
    assert [int(row["step"]) for row in rows] == list(range(1, 41))
    assert all(row["reward"] and row["loss"] for row in rows)
    counts = [row["step"] for row in read_rows(run / "generations.csv")]
    assert {step: counts.count(step) for step in set(counts)} == {str(step): 16 for step in range(1, 41)}
    events = read_events(run)
    skipped = [event for event in events if event["event"] == "checkpoint_skipped"]
    assert [event["path"] for event in skipped] == ["checkpoints/checkpoint-39"]
    evaluations = [event for event in events if event["event"] == "eval"]
    assert [event["when"] for event in evaluations].count("before") == 1
    assert result["before"] == evaluations[0]["metrics"]


def test_a_run_has_one_trainer(stack_python: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "sort", max_steps=5000, save_steps=2, eval_steps=0)
    first = start(stack_python, run)
    wait_for_step(first, run, 3)
    before, trainer = (run / "metrics.csv").read_bytes(), trainer_of(run)
    status, output = finish(start(stack_python, run, "--resume", "latest"))
    first.kill()
    finish(first)
    assert status == 2
    assert f"is being trained by process {trainer}" in output
    assert (run / "metrics.csv").read_bytes().startswith(before)


def test_an_interrupt_saves_and_exits_with_130(stack_python: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "sort", max_steps=5000, save_steps=0, eval_steps=0)
    process = start(stack_python, run)
    wait_for_step(process, run, 3)
    process.send_signal(signal.SIGTERM)
    status, output = finish(process)
    assert status == 130, output
    last = read_events(run)[-1]
    assert last["event"] == "interrupted"
    assert (run / "checkpoints" / f"checkpoint-{last['step']}" / "complete.json").exists()
    # The same run with fewer steps to go, continued from where it was interrupted.
    write_settings = json.loads((run / "run.json").read_text())
    write_settings["settings"]["max_steps"] = last["step"] + 2
    (run / "run.json").write_text(json.dumps(write_settings))
    status, output = finish(start(stack_python, run, "--resume", "latest"))
    assert status == 0, output
    assert [int(row["step"]) for row in read_rows(run / "metrics.csv")] == list(range(1, last["step"] + 3))


def test_a_short_tes_run_on_files(stack_python: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    data = write_weeks(tmp_path / "data")
    run = write_run(tmp_path / "run", "tes", max_steps=4, data=str(data), augment=2)
    (run / "curves.png").mkdir()  # the figure cannot be written: that costs the figure alone
    status, output = finish(start(stack_python, run, program=GRPO))
    assert status == 0, output
    result = json.loads((run / "result.json").read_text())
    expected = {
        f"{kind}_{name}"
        for kind in ("greedy", "sampled")
        for name in ("reward", "parse_rate", "accuracy", "mean_regret")
    }
    assert set(result["before"]) == set(result["after"]) == expected
    assert set(result["baselines"]) >= {"uniform_random", "always_0", "best_constant_of_training"}
    assert result["curves"] is None
    assert "Is a directory" in result["no_curves"] or "matplotlib" in result["no_curves"]
    assert result["data"]["held_out"] == "week_05-05_q_dataset.csv"
    rows = read_rows(run / "metrics.csv")
    assert len(rows) == 4
    for name in ("reward", "parse_rate", "accuracy", "mean_regret"):
        assert all(row[name] and row[f"{name}_smooth"] for row in rows)
    sources = {row["source"].split(":")[0] for row in read_rows(run / "generations.csv")}
    assert sources <= {"week_04-14_q_dataset.csv", "week_04-21_q_dataset.csv"}  # never the held-out week


@pytest.mark.parametrize(
    ("settings", "options", "seen"),
    [
        ({"max_steps": -2}, (), "max_steps = -2"),
        ({}, ("--resume", "latest"), "no complete checkpoint"),
        ({"use_cpu": "yes"}, (), "use_cpu = 'yes'"),
    ],
)
def test_bad_input_exits_with_2_and_no_traceback(
    stack_python: Path, tmp_path: Path, settings: dict[str, Any], options: tuple[str, ...], seen: str
) -> None:
    run = write_run(tmp_path / "run", "sort", **settings)
    cold = settings.get("max_steps") == -2  # refused before torch is imported
    status, output = finish(start(stack_python, run, *options, cold=cold))
    assert status == 2
    assert seen in output
    assert "Traceback" not in output
    last = read_events(run)[-1]
    assert (last["event"], last["kind"]) == ("error", "bad-input")
    assert seen in last["message"]


def test_the_wait_for_the_slowest_rank_is_a_part_of_the_step(stack_python: Path) -> None:
    """The slowest rank may have begun its step earlier: its time to sample can exceed the rest of this step."""
    code = """
        from run.grpo_recorder import add_wait_seconds
        times = {"seconds": 1.0, "generate_seconds": 0.25, "update_seconds": 0.75}
        report(found=[add_wait_seconds(times, slowest) for slowest in (0.25, 0.5, 1.5)])
    """
    found = run_code(stack_python, code)["found"]
    assert [(row["wait_seconds"], row["update_seconds"]) for row in found] == [(0, 0.75), (0.25, 0.5), (0.75, 0)]


# A trainer with the method `end` of transformers 5.18: it leaves the process group.
ENDS = """
import os, sys
sys.path.insert(0, TRAIN)
import grpo
prepared = grpo.prepare_process
def prepare(*arguments):
    prepared(*arguments)
    from transformers import Trainer
    def end(self):
        open(f"{FOLDER}/ended-{os.environ.get('RANK', '0')}", "a").write("x")
        self.accelerator.end_training()
    Trainer.end = end
grpo.prepare_process = prepare
sys.exit(grpo.main())
"""


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_trainer_is_ended_once(stack_python: Path, tmp_path: Path, ranks: int) -> None:
    run = write_run(tmp_path / "run", "sort", max_steps=1, save_steps=0)
    program = tmp_path / "ends.py"
    program.write_text(f"TRAIN, FOLDER = {str(TRAIN)!r}, {str(tmp_path)!r}\n{ENDS}")
    begin = start if ranks == 1 else start_ranks
    status, output = finish(begin(stack_python, run, program=program))
    assert status == 0, output
    assert [(tmp_path / f"ended-{rank}").read_text() for rank in range(ranks)] == ["x"] * ranks
    assert json.loads((run / "result.json").read_text())["status"] == "done"
