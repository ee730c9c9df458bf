"""verl's metrics as columns, in the formats of several versions."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version
from run.directory import RunDirectory
from settings import read_recipe, resolve_settings
from verl_engine.check import FILE, find_conflicts
from verl_engine.checkpoints import Checkpoints
from verl_engine.metrics import evaluation_metrics, header, parse_console, parse_file, parse_total, step_metrics
from verl_engine.recorder import Recorder

RAY = (
    "\x1b[36m(TaskRunner pid=71)\x1b[0m step:3 - actor/pg_loss:-0.0125 - actor/lr:1e-06 - actor/grad_norm:0.75 - "
    "actor/entropy:1.5 - critic/score/mean:0.25 - response_length/mean:120.5 - response_length/clip_ratio:0.125 - "
    "timing_s/gen:4.0 - timing_s/reward:0.5 - timing_s/update_actor:2.0 - timing_s/update_critic:1.5 - "
    "perf/total_num_tokens:40000 - perf/time_per_step:10.0 - perf/throughput:500.0 - "
    "val-core/openai/gsm8k/reward/mean@1:np.float64(0.3125) - val-aux/num_turns/mean:2.0\n"
)
# LocalLogger has this format in 0.4.1 and in 0.9.1: verl/utils/logger/aggregate_logger.py.


def test_a_console_line_with_the_prefix_of_ray() -> None:
    parsed = parse_console(RAY)
    assert parsed is not None
    step, metrics = parsed
    assert (step, metrics["actor/lr"], metrics["val-core/openai/gsm8k/reward/mean@1"]) == (3, 1e-06, 0.3125)
    row = step_metrics("ppo", metrics, 8)
    expected = {
        "reward": 0.25, "loss": -0.0125, "grad_norm": 0.75, "learning_rate": 1e-06, "entropy": 1.5, "kl": None,
        "completion_length": 120.5, "truncated": 0.125, "tokens": 40000.0, "tokens_per_second": 4000.0,
        "seconds": 10.0, "generate_seconds": 4.0, "score_seconds": 0.5, "update_seconds": 3.5,
    }  # fmt: skip
    assert {name: row[name] for name in expected} == expected
    assert evaluation_metrics(metrics) == {"greedy_reward": 0.3125}


@pytest.mark.parametrize(
    "line",
    [
        "",
        "step:1",
        "step:x - a:1",
        "Training Progress: 10%| 3/29 step:",
        "my_step:3 - nothing here",
        "step:3 - a:text",
    ],
)
def test_other_lines_have_no_metrics(line: str) -> None:
    assert parse_console(line) is None


def test_nan_becomes_an_empty_cell() -> None:
    parsed = parse_console("step:1 - train/loss:nan - train/lr(1e-3):0.01")
    assert parsed is not None
    row = step_metrics("sft", parsed[1], 1)
    assert (row["loss"], row["learning_rate"]) == (None, pytest.approx(1e-5))
    assert math.isnan(parsed[1]["train/loss"])


def test_a_line_of_the_json_file() -> None:
    assert parse_file('{"step": 2, "data": {"train/loss": 5.5, "note": "x", "train/lr": 0}}') == (
        2, {"train/loss": 5.5, "train/lr": 0.0},
    )  # fmt: skip
    for damaged in ("", "{", "[]", "7", '{"step": "2", "data": {}}', '{"step": 2, "data": [1]}'):
        assert parse_file(damaged) is None


def test_an_evaluation_alone_is_no_step() -> None:
    assert step_metrics("sft", {"val/loss": 1.5}, 1) == {}
    assert evaluation_metrics({"val/loss": 1.5}) == {"greedy_loss": 1.5}
    assert step_metrics("grpo", {"val-core/openai/gsm8k/acc/mean@1": 0.5}, 1) == {}


def test_total_steps() -> None:
    assert parse_total("(TaskRunner pid=9) Total training steps: 435\n") == 435
    assert parse_total("Total epochs: 15") == 0


def make_recorder(folder: Path, verl: str, recipe: str = "verl-sft", **changed: Any) -> tuple[Recorder, RunDirectory]:
    run = RunDirectory(folder)
    settings = resolve_settings(
        read_recipe(recipe), {"smoothing": 0.5, **changed}, file=FILE, find_conflicts=find_conflicts
    )
    recorder = Recorder(
        run, settings, Version(verl), folder / "verl.jsonl", steps=4, first_step=0, gpus=2,
        checkpoints=Checkpoints(run.checkpoints), held_out_rows=10,
    )  # fmt: skip
    return recorder, run


def test_console_lines_of_an_old_verl_become_events_and_a_table(tmp_path: Path) -> None:
    recorder, run = make_recorder(tmp_path, "0.5.0")
    lines = ["step:1 - train/loss:4.0 - train/lr(1e-3):0.01", "Epoch 1/2: 50%", "step:2 - train/loss:2.0"]
    for line in [*lines, "step:2 - val/loss:3.0", "step:4 - train/loss:1.0", "step:4 - val/loss:0.5"]:
        recorder.read_line(line + "\n")
    recorder.finish()
    table = [line.split(",") for line in (tmp_path / "metrics.csv").read_text().splitlines()]
    assert table[0] == header("sft")
    loss, smooth = table[0].index("loss"), table[0].index("loss_smooth")
    assert [(row[0], row[loss], row[smooth]) for row in table[1:]] == [
        ("1", "4", "4"),
        ("2", "2", "3"),
        ("4", "1", "2"),
    ]
    assert [event["step"] for event in run.read_events("step")] == [1, 2, 4]
    evaluations = [(event["when"], event["metrics"]) for event in run.read_events("eval")]
    assert evaluations == [("during", {"greedy_loss": 3.0}), ("after", {"greedy_loss": 0.5})]


def test_truncation_is_relative_to_the_limit(tmp_path: Path) -> None:
    """Metrics of verl 0.9.1 (2026-11-22): every completion had 21 of at most 48 tokens, and none was truncated."""
    recorder, run = make_recorder(tmp_path, "0.9.1", "verl-grpo", max_completion_length=48)
    metrics = {"critic/score/mean": 0.5, "response_length/clip_ratio": 1.0, "actor/perf/max_memory_allocated_gb": 2.5}
    recorder.record(1, metrics | {"response_length/max": 21.0})
    recorder.record(2, metrics | {"response_length/max": 48.0, "response_length/clip_ratio": 0.125})
    rows = [event["metrics"] for event in run.read_events("step")]
    assert [row["truncated"] for row in rows] == [0.0, 0.125]
    assert rows[0]["memory_gib"] == 2.5


def test_newer_versions_use_the_json_file_only(tmp_path: Path) -> None:
    recorder, run = make_recorder(tmp_path, "0.7.1")
    file = tmp_path / "verl.jsonl"
    file.write_text('{"step":1,"data":{"train/loss":4.0,"train/global_tokens":100}}\n{"step":2,"da')
    recorder.read_line("step:1 - train/loss:4.0\n")
    with file.open("a") as stream:
        stream.write('ta":{"train/loss":2.0,"train/global_tokens":90}}\n')
    recorder.finish()
    steps = run.read_events("step")
    assert [(event["step"], event["metrics"]["loss"]) for event in steps] == [(1, 4.0), (2, 2.0)]
    assert steps[0]["metrics"]["seconds"] is None  # it would include loading
    assert steps[1]["metrics"]["tokens_per_second"] > 0


def test_a_checkpoint_is_recorded_when_it_is_complete(tmp_path: Path) -> None:
    recorder, run = make_recorder(tmp_path, "0.7.1")
    (tmp_path / "checkpoints/global_step_2").mkdir(parents=True)
    recorder.read_line("Saving checkpoint to: checkpoints/global_step_2\n")
    assert run.read_events("checkpoint") == []
    (tmp_path / "checkpoints/latest_checkpointed_iteration.txt").write_text("2")
    recorder.read_line("Updated checkpoint tracker\n")
    recorder.finish()
    recorded = [(event["step"], event["path"]) for event in run.read_events("checkpoint")]
    assert recorded == [(2, "checkpoints/global_step_2")]


def test_the_end_names_the_error_of_the_trainer(tmp_path: Path) -> None:
    recorder, _ = make_recorder(tmp_path, "0.7.1")
    lines = [
        "\x1b[36m(WorkerDict pid=9)\x1b[0m torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", "=====",
    ]  # fmt: skip
    for line in lines:
        recorder.read_line(line + "\n")
    assert recorder.describe_end(1) == (
        "verl's trainer ended with exit status 1: "
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"
    )  # fmt: skip
    assert "signal 9" in recorder.describe_end(-9)


def test_events_are_json(tmp_path: Path) -> None:
    recorder, _ = make_recorder(tmp_path, "0.5.0")
    recorder.read_line("step:1 - train/loss:inf\n")
    assert all(json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines())
