"""A run by verl is watched as one by TRL: alarms, what they end, generations.csv; by what verl itself writes."""

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
from verl_engine.alarms import alarms_of, spread_by_extremes, untold
from verl_engine.check import FILE, find_conflicts
from verl_engine.launch_context import Checkpoints
from verl_engine.recorder import Recorder
from verl_engine.reward_wrapper import ANY_NUMBER, needs_plain_numbers
from verl_engine.rollout_dumps import Generations, compare, parse_dump
from verl_formats import Formats, make_formats, needs_verl


def recorder(folder: Path, task: str = "grpo", *, first_step: int = 0, dumped: bool = True, **given: Any) -> Recorder:
    batches = {"prompts_per_step": 4} | ({"mini_batch": 4, "num_generations": 4} if task != "sft" else {})
    settled = resolve_settings(read_recipe(f"verl-{task}"), batches | given, file=FILE, find_conflicts=find_conflicts)
    run = RunDirectory(folder)
    return Recorder(
        run, settled, Version("0.7.1"), folder / f"verl/metrics-{first_step}.jsonl", steps=20, first_step=first_step,
        gpus=2, checkpoints=Checkpoints(run.checkpoints), held_out_rows=100,
        dumps=folder / "verl/answers" if dumped else None,
    )  # fmt: skip


def alarms(folder: Path) -> list[tuple[str, int]]:
    return [(event["name"], event["step"]) for event in RunDirectory(folder).read_events("alarm")]


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


@pytest.fixture(scope="module")
def formats(tmp_path_factory: pytest.TempPathFactory) -> Formats:
    return make_formats(tmp_path_factory.mktemp("formats"))


@pytest.fixture
def written(formats: Formats, tmp_path: Path) -> Path:
    """The runs, to be used up; the answers of their steps lie beside them, since verl has not started yet."""
    for kind in ("same", "mixed"):
        shutil.copytree(formats.folder / kind, tmp_path / kind)
        (tmp_path / kind / "verl/answers").rename(tmp_path / f"answers-{kind}")
    return tmp_path


def dump(folder: Path, steps: range = range(1, 13)) -> None:
    """verl's dumps of some steps, where it puts them."""
    (folder / "verl/answers").mkdir(exist_ok=True)
    for step in steps:
        shutil.copy(folder.parent / f"answers-{folder.name}/{step}.jsonl", folder / "verl/answers")


@pytest.mark.stack
@needs_verl
def test_groups_that_earn_the_same_are_told_though_verl_logs_different_scores(written: Path) -> None:
    folder = written / "same"
    taken = recorder(folder, stop_on=["no-signal"], max_completion_length=3)
    dump(folder)
    taken.take("a line\n")
    assert ("no-signal", 10) in alarms(folder)
    assert taken.stopped_by == "no-signal"
    assert ("truncation", 10) in alarms(folder)  # every answer is as long as it may be
    (event,) = RunDirectory(folder).read_events("alarm", name="no-signal")
    assert "frac_reward_zero_std 1, reward_std 0, mean reward 0.5" in event["message"]
    (event,) = RunDirectory(folder).read_events("alarm", name="truncation")
    assert "mask_truncated" not in event["hint"]
    assert "rewards=" not in event["hint"]


@pytest.mark.stack
@needs_verl
def test_the_answers_become_generations_and_what_metrics_say_of_groups(written: Path) -> None:
    folder = written / "mixed"
    taken = recorder(folder)
    dump(folder)
    taken.take("a line\n")
    taken.finish()
    found = rows(folder / "generations.csv")
    assert len(found) == 12 * 16
    assert found[1] == {"step": "1", "prompt": "w1 w1", "completion": "w9 w9 w9", "truth": "g0", "reward": "1"}
    assert list((folder / "verl/answers").iterdir()) == []  # not kept twice
    metrics = rows(folder / "metrics.csv")
    assert [float(row["frac_reward_zero_std"]) for row in metrics] == [0.25] * 12
    spreads = [(1 / 3) ** 0.5, 0.5, 0.0, 0.5]  # of two, three, none and one of four right
    assert float(metrics[0]["reward_std"]) == pytest.approx(sum(spreads) / 4, abs=1e-5)
    # verl's JSON has null for the NaN of the last step's loss.
    assert '"actor/pg_loss":null' in (folder / "verl/metrics-0.jsonl").read_text()
    assert ("not-a-number", 12) in alarms(folder)
    assert "no-signal" not in dict(alarms(folder))


@pytest.mark.stack
@needs_verl
def test_without_the_answers_less_is_seen(written: Path) -> None:
    recorder(written / "same", dumped=False).take("a line\n")
    assert "no-signal" not in dict(alarms(written / "same"))  # verl's least and largest score differ
    assert not (written / "same/generations.csv").exists()
    assert "no-signal is raised only where all answers of a step" in untold("grpo", dumped=False)[0]


@pytest.mark.stack
@needs_verl
def test_a_run_that_is_gone_on_with_counts_its_old_steps(written: Path) -> None:
    """Killed after step 8, whose checkpoint it goes on from: steps 9 to 12 are done again."""
    folder = written / "same"
    lines = (folder / "verl/metrics-0.jsonl").read_text().splitlines(keepends=True)
    (folder / "verl/metrics-0.jsonl").write_text("".join(lines[:8]))
    first = recorder(folder)
    dump(folder)
    first.take("a line\n")
    assert {int(row["step"]) for row in rows(folder / "generations.csv")} == set(range(1, 9))
    assert sorted(int(path.stem) for path in (folder / "verl/answers").iterdir()) == [9, 10, 11, 12]
    again = recorder(folder, first_step=8)
    assert list((folder / "verl/answers").iterdir()) == []  # of steps that are done again
    dump(folder, range(9, 11))
    (folder / "verl/metrics-8.jsonl").write_text("".join(lines[8:10]))
    again.take("a line\n")
    again.finish()
    assert [int(row["step"]) for row in rows(folder / "generations.csv")][::16] == list(range(1, 11))
    assert ("no-signal", 10) in alarms(folder)


@pytest.mark.stack
@needs_verl
def test_a_reward_function_s_ints_would_end_verl_and_its_stand_in_does_not(formats: Formats) -> None:
    if Version(formats.dumped["version"]) >= ANY_NUMBER:  # which makes numbers of what it dumps itself
        assert len(formats.dumped["given"].splitlines()) == 2
        return
    assert "not JSON serializable" in formats.dumped["given"]
    dumped = [json.loads(line) for line in formats.dumped["wrapped"].splitlines()]
    assert [(row["acc"], row["score"], row["kind"]) for row in dumped] == [(1.0, 1.0, "exact"), (0.0, 0.0, "exact")]
    assert [needs_plain_numbers("/r.py:score", Version(version)) for version in ("0.7.1", "0.8.0")] == [True, False]


# Without verl


def test_a_line_that_is_being_written_is_left_for_later() -> None:
    whole = '{"input": "2+2?", "output": "4", "score": 1.0, "step": 3, "more": [1]}\n'  # 0.4.1 and 0.5.0: no gts
    answer = {"prompt": "2+2?", "completion": "4", "truth": None, "reward": 1.0}
    assert parse_dump(whole + '{"input": "2+') == [answer]
    assert parse_dump("") == parse_dump("[1]\nnot json\n") == []


def test_a_dump_that_comes_late_is_waited_for(tmp_path: Path) -> None:
    import threading

    (tmp_path / "answers").mkdir()
    file = tmp_path / "answers/1.jsonl"
    line = '{"input": "p", "output": "o", "gts": "g", "score": 1.0, "step": 1}\n'
    file.write_text(line)
    found = Generations(tmp_path / "g.csv", tmp_path / "answers", first_step=0, answers=2, own=True, late=True)
    assert not file.exists()  # of a start that came to no checkpoint
    file.write_text(line)
    threading.Timer(0.3, file.write_text, [line * 2]).start()
    assert len(found.take(1)) == 2


def test_a_persons_own_folder_of_dumps_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    file = tmp_path / "theirs/1.jsonl"
    file.write_text('{"input": "p", "output": "o", "score": 1.0, "step": 1}\n')
    found = Generations(tmp_path / "g.csv", tmp_path / "theirs", first_step=0, answers=1, own=False, late=False)
    assert len(found.take(1)) == 1
    found.take_rest()
    assert file.exists()
    assert len(rows(tmp_path / "g.csv")) == 1


def test_ppo_s_answers_are_compared_over_the_whole_step() -> None:
    answers = [{"prompt": name, "reward": float(name in "bc")} for name in "abcd"]
    assert compare(answers, grouped=False) == {"reward_std": pytest.approx((1 / 3) ** 0.5)}
    assert compare(answers, grouped=True) == {}  # one answer each: nothing to compare
    assert spread_by_extremes({"critic/score/min": 0.5, "critic/score/max": 0.5}) == {"reward_std": 0.0}
    assert spread_by_extremes({}) == {}


def test_sft_says_which_alarms_it_has_and_refuses_to_wait_for_the_others(tmp_path: Path) -> None:
    assert set(NAMES) - set(alarms_of("ppo")) == {"sampling-gap"}
    assert set(alarms_of("ppo")) - set(alarms_of("sft")) == {"no-signal", "collapse", "overfitting", "truncation"}
    assert "sampling-gap" not in untold("sft", dumped=False)[0]
    assert "collapse" in untold("sft", dumped=False)[0]
    with pytest.raises(BadInput, match="stop_on = collapse, which sft never raises"):
        recorder(tmp_path, "sft", stop_on=["collapse", "not-a-number"])


def test_a_gradient_that_verl_leaves_out_is_no_lost_weight(tmp_path: Path) -> None:
    (tmp_path / "verl").mkdir()
    lines = [{"step": step, "data": {"train/loss": 1.0, "train/grad_norm": None}} for step in range(1, 7)]
    (tmp_path / "verl/metrics-0.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    recorder(tmp_path, "sft", micro_batch=2, dumped=False).take("a line\n")
    (event,) = RunDirectory(tmp_path).read_events("alarm")
    assert (event["step"], event["name"]) == (5, "not-a-number")
    assert "such updates are left out, 5 in a row" in event["message"]
