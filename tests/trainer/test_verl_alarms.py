"""Alarms and generations.csv of verl runs, from files that verl's own code wrote."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version
from run.alarms import NAMES
from run.directory import RunDirectory
from settings import BadInput, read_recipe, resolve_settings
from support.verl_formats import Formats, make_formats, needs_verl
from verl_engine.alarms import VerlAlarms, alarm_notes, reward_std_bound, task_alarms
from verl_engine.check import FILE, find_conflicts
from verl_engine.checkpoints import Checkpoints
from verl_engine.recorder import Recorder
from verl_engine.reward_wrapper import NUMPY_DUMP_FIXED, needs_wrapper
from verl_engine.rollout_dumps import RolloutDumps, parse_dump, reward_statistics


def make_recorder(
    folder: Path, task: str = "grpo", *, first_step: int = 0, has_dumps: bool = True, **changed: Any
) -> Recorder:
    batches = {"prompts_per_step": 4} | ({"mini_batch": 4, "num_generations": 4} if task != "sft" else {})
    settings = resolve_settings(
        read_recipe(f"verl-{task}"), batches | changed, file=FILE, find_conflicts=find_conflicts
    )
    run = RunDirectory(folder)
    return Recorder(
        run, settings, Version("0.7.1"), folder / f"verl/metrics-{first_step}.jsonl", steps=20, first_step=first_step,
        gpus=2, checkpoints=Checkpoints(run.checkpoints), held_out_rows=100,
        rollout_folder=folder / "verl/answers" if has_dumps else None,
    )  # fmt: skip


def alarms_of(folder: Path) -> list[tuple[str, int]]:
    return [(event["name"], event["step"]) for event in RunDirectory(folder).read_events("alarm")]


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


@pytest.fixture(scope="module")
def formats(tmp_path_factory: pytest.TempPathFactory) -> Formats:
    return make_formats(tmp_path_factory.mktemp("formats"))


@pytest.fixture
def runs(formats: Formats, tmp_path: Path) -> Path:
    """Copy the runs, and move the dumps of their steps next to them."""
    for kind in ("same", "mixed"):
        shutil.copytree(formats.folder / kind, tmp_path / kind)
        (tmp_path / kind / "verl/answers").rename(tmp_path / f"answers-{kind}")
    return tmp_path


def copy_dumps(folder: Path, steps: range = range(1, 13)) -> None:
    """Copy the dumps of some steps to verl's folder."""
    (folder / "verl/answers").mkdir(exist_ok=True)
    for step in steps:
        shutil.copy(folder.parent / f"answers-{folder.name}/{step}.jsonl", folder / "verl/answers")


@pytest.mark.stack
@needs_verl
def test_groups_with_equal_rewards_raise_no_signal(runs: Path) -> None:
    folder = runs / "same"
    recorder = make_recorder(folder, stop_on=["no-signal"], max_completion_length=3)
    copy_dumps(folder)
    recorder.read_line("a line\n")
    assert ("no-signal", 10) in alarms_of(folder)
    assert recorder.stopped_by == "no-signal"
    assert ("truncation", 10) in alarms_of(folder)  # every completion has the maximum length
    (event,) = RunDirectory(folder).read_events("alarm", name="no-signal")
    assert "frac_reward_zero_std 1, reward_std 0, mean reward 0.5" in event["message"]
    (event,) = RunDirectory(folder).read_events("alarm", name="truncation")
    assert "mask_truncated_completions" not in event["hint"]
    assert "rewards=" not in event["hint"]


@pytest.mark.stack
@needs_verl
def test_dumps_become_generations_and_reward_statistics(runs: Path) -> None:
    folder = runs / "mixed"
    recorder = make_recorder(folder)
    copy_dumps(folder)
    recorder.read_line("a line\n")
    recorder.finish()
    generations = rows(folder / "generations.csv")
    assert len(generations) == 12 * 16
    assert generations[1] == {"step": "1", "prompt": "w1 w1", "completion": "w9 w9 w9", "truth": "g0", "reward": "1"}
    assert list((folder / "verl/answers").iterdir()) == []  # deleted once recorded
    metrics = rows(folder / "metrics.csv")
    assert [float(row["frac_reward_zero_std"]) for row in metrics] == [0.25] * 12
    deviations = [(1 / 3) ** 0.5, 0.5, 0.0, 0.5]  # two, three, none and one of four are correct
    assert float(metrics[0]["reward_std"]) == pytest.approx(sum(deviations) / 4, abs=1e-5)
    # verl writes the NaN of the last step's loss as null.
    assert '"actor/pg_loss":null' in (folder / "verl/metrics-0.jsonl").read_text()
    assert ("not-a-number", 12) in alarms_of(folder)
    assert "no-signal" not in dict(alarms_of(folder))


@pytest.mark.stack
@needs_verl
def test_without_dumps_no_signal_needs_equal_scores_in_the_whole_step(runs: Path) -> None:
    make_recorder(runs / "same", has_dumps=False).read_line("a line\n")
    assert "no-signal" not in dict(alarms_of(runs / "same"))  # verl's smallest and largest score differ
    assert not (runs / "same/generations.csv").exists()
    assert "no-signal is raised only if all completions of a step" in alarm_notes("grpo", has_completions=False)[0]


@pytest.mark.stack
@needs_verl
def test_a_resumed_run_restores_its_alarms(runs: Path) -> None:
    """The run was killed and resumes from the checkpoint of step 8, so steps 9 to 12 are repeated."""
    folder = runs / "same"
    lines = (folder / "verl/metrics-0.jsonl").read_text().splitlines(keepends=True)
    (folder / "verl/metrics-0.jsonl").write_text("".join(lines[:8]))
    first = make_recorder(folder)
    copy_dumps(folder)
    first.read_line("a line\n")
    assert {int(row["step"]) for row in rows(folder / "generations.csv")} == set(range(1, 9))
    assert sorted(int(path.stem) for path in (folder / "verl/answers").iterdir()) == [9, 10, 11, 12]
    resumed = make_recorder(folder, first_step=8)
    assert list((folder / "verl/answers").iterdir()) == []  # those steps are repeated
    copy_dumps(folder, range(9, 11))
    (folder / "verl/metrics-8.jsonl").write_text("".join(lines[8:10]))
    resumed.read_line("a line\n")
    resumed.finish()
    assert [int(row["step"]) for row in rows(folder / "generations.csv")][::16] == list(range(1, 11))
    assert ("no-signal", 10) in alarms_of(folder)


@pytest.mark.stack
@needs_verl
def test_the_wrapper_of_a_reward_function_makes_numbers_serialisable(formats: Formats) -> None:
    if Version(formats.dumped["version"]) >= NUMPY_DUMP_FIXED:  # which serialises them itself
        assert len(formats.dumped["direct"].splitlines()) == 2
        return
    assert "not JSON serializable" in formats.dumped["direct"]
    dumped = [json.loads(line) for line in formats.dumped["wrapped"].splitlines()]
    assert [(row["acc"], row["score"], row["kind"]) for row in dumped] == [(1.0, 1.0, "exact"), (0.0, 0.0, "exact")]
    assert [needs_wrapper("/r.py:score", Version(version)) for version in ("0.7.1", "0.8.0")] == [True, False]


# Without verl


def test_incomplete_lines_of_a_dump_are_skipped() -> None:
    line = '{"input": "2+2?", "output": "4", "score": 1.0, "step": 3, "more": [1]}\n'  # 0.4.1 and 0.5.0: no gts
    completion = {"prompt": "2+2?", "completion": "4", "truth": None, "reward": 1.0}
    assert parse_dump(line + '{"input": "2+') == [completion]
    assert parse_dump("") == parse_dump("[1]\nnot json\n") == []


def test_late_dumps_are_waited_for(tmp_path: Path) -> None:
    import threading

    (tmp_path / "answers").mkdir()
    file = tmp_path / "answers/1.jsonl"
    line = '{"input": "p", "output": "o", "gts": "g", "score": 1.0, "step": 1}\n'
    file.write_text(line)
    dumps = RolloutDumps(
        tmp_path / "g.csv", tmp_path / "answers", first_step=0, completions=2, delete=True, threaded=True
    )
    assert not file.exists()  # from a run without a checkpoint
    file.write_text(line)
    threading.Timer(0.3, file.write_text, [line * 2]).start()
    assert len(dumps.read_step(1)) == 2


def test_dumps_in_a_folder_of_the_user_are_not_deleted(tmp_path: Path) -> None:
    (tmp_path / "user").mkdir()
    file = tmp_path / "user/1.jsonl"
    file.write_text('{"input": "p", "output": "o", "score": 1.0, "step": 1}\n')
    dumps = RolloutDumps(
        tmp_path / "g.csv", tmp_path / "user", first_step=0, completions=1, delete=False, threaded=False
    )
    assert len(dumps.read_step(1)) == 1
    dumps.read_remaining()
    assert file.exists()
    assert len(rows(tmp_path / "g.csv")) == 1


def test_reward_statistics_of_ppo_cover_the_whole_step() -> None:
    completions = [{"prompt": name, "reward": float(name in "bc")} for name in "abcd"]
    assert reward_statistics(completions, grouped=False) == {"reward_std": pytest.approx((1 / 3) ** 0.5)}
    assert reward_statistics(completions, grouped=True) == {}  # one completion per prompt has no deviation
    assert reward_std_bound({"critic/score/min": 0.5, "critic/score/max": 0.5}) == {"reward_std": 0.0}
    assert reward_std_bound({}) == {}


def test_alarms_of_each_task(tmp_path: Path) -> None:
    assert set(NAMES) - set(task_alarms("ppo")) == {"sampling-gap"}
    assert set(task_alarms("ppo")) - set(task_alarms("sft")) == {"no-signal", "collapse", "overfitting", "truncation"}
    assert "sampling-gap" not in alarm_notes("sft", has_completions=False)[0]
    assert "collapse" in alarm_notes("sft", has_completions=False)[0]
    with pytest.raises(BadInput, match="stop_on = collapse: sft does not have these alarms"):
        make_recorder(tmp_path, "sft", stop_on=["collapse", "not-a-number"])


def test_skipped_updates_do_not_count_as_lost_weights(tmp_path: Path) -> None:
    (tmp_path / "verl").mkdir()
    lines = [{"step": step, "data": {"train/loss": 1.0, "train/grad_norm": None}} for step in range(1, 7)]
    (tmp_path / "verl/metrics-0.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    make_recorder(tmp_path, "sft", per_device_train_batch_size=2, has_dumps=False).read_line("a line\n")
    (event,) = RunDirectory(tmp_path).read_events("alarm")
    assert (event["step"], event["name"]) == (5, "not-a-number")
    assert "such updates are skipped, 5 in a row" in event["message"]


def test_a_resumed_run_continues_the_alarms_of_its_rows_and_evaluations() -> None:
    """Two falls in a row are overfitting: one before the run was resumed, one after."""
    settings = {"task": "grpo", "stop_on": ["overfitting"], "learning_rate": 3e-6}
    evaluations = {step: {"sampled_reward": value} for step, value in ((0, 0.3), (10, 0.6), (20, 0.3))}
    table = [{"step": str(step), "reward": str(step / 40), "reward_std": "0.2"} for step in range(1, 21)]
    alarms = VerlAlarms(settings, 100)
    alarms.replay(table, evaluations)
    for step in range(21, 31):
        assert alarms.check_step(step, {"reward": step / 40, "reward_std": 0.2}) == []
    (alarm,) = alarms.check_evaluation("during", 30, {"sampled_reward": 0.3})
    assert (alarm.name, alarm.step, alarms.stopped_by) == ("overfitting", 30, "overfitting")
    assert "(step 10) to 0.3" in alarm.message
    fresh = VerlAlarms(settings, 100)
    fresh.replay(table, {0: evaluations[0]})
    assert fresh.check_evaluation("during", 30, {"sampled_reward": 0.3}) == []
