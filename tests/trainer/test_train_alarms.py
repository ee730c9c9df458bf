"""Alarms stay quiet on real healthy runs, and are raised on real and constructed bad ones."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from run.alarm_definitions import (
    Collapse,
    GradientSpike,
    NoSignal,
    NotANumber,
    Overfitting,
    SamplingGap,
    Truncation,
)  # fmt: skip
from run.alarms import NAMES, Alarm, Alarms, check_alarm_names, parse_row
from settings import BadInput
from support.paths import DATA
from support.recorded_results import assert_as_recorded

RECORDED = DATA / "recorded_runs"
HEALTHY = {
    "loss": 0.01, "grad_norm": 1.0, "reward": 0.5, "reward_std": 0.4, "frac_reward_zero_std": 0.2, "entropy": 0.7,
    "completion_length": 100.0, "truncated": 0.02,
}  # fmt: skip


def replay(name: str, **settings: Any) -> list[Alarm]:
    """Every alarm that a recorded run raises, from evaluations and steps in their order."""
    about = json.loads((RECORDED / f"{name}.json").read_text())
    alarms = Alarms(about["settings"] | settings, about["held_out_rows"])
    evaluations = {evaluation["step"]: evaluation for evaluation in about["evaluations"]}
    raised = list(alarms.check_evaluation("before", 0, evaluations[0]["metrics"]))
    with (RECORDED / f"{name}.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            metrics = parse_row(row)
            step = int(row["step"])
            raised += alarms.check_step(step, metrics)
            if step in evaluations:
                raised += alarms.check_evaluation(evaluations[step]["when"], step, evaluations[step]["metrics"])
    return raised


def run(alarms: Alarms, steps: range, change: Callable[[int], dict[str, Any]] = lambda _: {}) -> list[Alarm]:
    """A run whose metrics wobble by a few percent, with what is wrong laid over them."""
    return [alarm for step in steps for alarm in alarms.check_step(step, wobbling(step) | change(step))]


def wobbling(step: int) -> dict[str, Any]:
    return {name: value * (1 + 0.05 * math.sin(7.3 * step)) for name, value in HEALTHY.items()}


@pytest.mark.parametrize("name", ["sort", "tes"])
def test_healthy_runs_raise_no_alarm(name: str) -> None:
    assert replay(name) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sort-learning-rate-1e-2", {"no-signal"}),
        ("sort-without-warmup", {"no-signal", "truncation"}),
        ("sort-35-multisets", {"overfitting"}),
        ("tes-learning-rate-2e-2", {"collapse"}),
    ],
)
def test_real_failed_runs_raise_the_expected_alarm(name: str, expected: set[str]) -> None:
    raised = replay(name)
    assert {alarm.name for alarm in raised} == expected
    assert all(alarm.step <= 55 and "--set " in alarm.hint for alarm in raised)


def test_messages_contain_the_observed_numbers() -> None:
    lost = replay("sort-learning-rate-1e-2")[0]
    assert (lost.step, "frac_reward_zero_std 1, reward_std 0, mean reward 0" in lost.message) == (11, True)
    assert "the reward was 0.3398 before" in lost.hint
    assert "--set learning_rate=0.001" in lost.hint
    assert "--set sft_steps=40" in replay("sort-without-warmup")[0].hint
    over = replay("sort-35-multisets")[0]
    assert over.message.startswith(
        "held-out greedy_reward fell from 0.1824 (step 0) to 0.0309, significantly (0.054)"
    )


def test_a_steady_run_raises_no_alarm() -> None:
    assert run(Alarms({}), range(1, 400)) == []


def test_no_signal_is_raised_once_until_it_clears() -> None:
    alarms = Alarms({"num_generations": 8})
    silent = {"frac_reward_zero_std": 1.0, "reward_std": 0.0, "reward": 0.5}
    assert run(alarms, range(1, 10), lambda _: silent) == []
    assert [alarm.step for alarm in run(alarms, range(10, 40), lambda _: silent)] == [10]
    assert run(alarms, range(40, 45)) == []
    assert [alarm.step for alarm in run(alarms, range(45, 60), lambda _: silent)] == [54]


@pytest.mark.parametrize(
    "silent", [{"frac_reward_zero_std": 1.0, "reward_std": None}, {"frac_reward_zero_std": None, "reward_std": 0.0}]
)
def test_either_metric_shows_a_missing_signal(silent: dict[str, Any]) -> None:
    assert [alarm.name for alarm in run(Alarms({}), range(1, 12), lambda _: silent)] == ["no-signal"]


def test_the_hint_is_to_stop_if_every_completion_is_correct() -> None:
    alarms = Alarms({})
    run(alarms, range(1, 20))
    (alarm,) = run(alarms, range(20, 30), lambda _: {"frac_reward_zero_std": 1.0, "reward_std": 0.0, "reward": 1.0})
    assert "stop here" in alarm.hint


@pytest.mark.parametrize("name", ["loss", "grad_norm", "reward"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None])
def test_not_a_number_is_raised_at_once(name: str, value: float | None) -> None:
    alarms = Alarms({"learning_rate": 1e-5})
    run(alarms, range(1, 4))
    (alarm,) = run(alarms, range(4, 30), lambda _: {name: value})
    assert (alarm.name, alarm.step) == ("not-a-number", 4)
    assert f"{name} {'null' if value is None else value}" in alarm.message
    assert run(alarms, range(30, 45)) == []
    assert len(run(alarms, range(45, 50), lambda _: {name: math.nan})) == 1, "it had cleared"


def test_a_metric_without_values_is_ignored() -> None:
    nothing = dict.fromkeys(HEALTHY)
    assert run(Alarms({}), range(1, 100), lambda _: nothing) == []
    assert [alarm for step in range(1, 100) for alarm in Alarms({}).check_step(step, {})] == []


def test_fp16_may_overflow_a_few_times_at_the_start() -> None:
    half = Alarms({"dtype": "float16"})
    assert run(half, range(1, 5), lambda _: {"grad_norm": math.inf}) == []
    assert run(half, range(5, 20)) == []
    assert [alarm.step for alarm in run(half, range(20, 30), lambda _: {"grad_norm": math.inf})] == [24]


def test_falling_entropy_is_a_collapse_only_if_the_reward_does_not_rise() -> None:
    def falling(step: int) -> dict[str, Any]:
        return {"entropy": 0.7 * 0.95**step}

    (alarm,) = run(Alarms({"learning_rate": 3e-4}), range(1, 150), falling)
    assert alarm.name == "collapse"
    assert "--set learning_rate=0.0001" in alarm.hint
    rising = run(Alarms({}), range(1, 150), lambda step: falling(step) | {"reward": 0.2 + step / 200})
    assert rising == []


@pytest.mark.parametrize(("factor", "fires"), [(0.1, True), (0.6, False), (2.0, False), (5.0, True)])
def test_a_large_change_of_length_is_a_collapse(factor: float, fires: bool) -> None:
    alarms = Alarms({})
    run(alarms, range(1, 30))
    raised = run(alarms, range(30, 60), lambda _: {"completion_length": 100.0 * factor})
    assert [alarm.name for alarm in raised] == (["collapse"] if fires else [])
    longer = run(Alarms({}), range(1, 200), lambda s: {"completion_length": 100.0 + 5 * s, "reward": 0.2 + s / 250})
    assert longer == [], "learning to reason at length is no collapse"


def test_a_gradient_spike_is_above_the_median_and_all_earlier_norms() -> None:
    alarms = Alarms({"max_grad_norm": 1.0, "learning_rate": 3e-4})
    run(alarms, range(1, 40))
    (spike,) = run(alarms, range(40, 42), lambda step: {"grad_norm": 30.0} if step == 40 else {})
    assert (spike.name, spike.step) == ("gradient-spike", 40)
    assert "grad_norm 30 is 29.9 times its running median 1.005" in spike.message
    assert run(alarms, range(42, 60), lambda step: {"grad_norm": 12.0} if step == 50 else {}) == []
    assert run(alarms, range(60, 64), lambda step: {"grad_norm": 60.0} if step == 63 else {}) != [], (
        "it cleared between"
    )


def test_a_gradient_below_the_clipping_bound_is_no_spike() -> None:
    small = Alarms({"max_grad_norm": 1.0})
    assert run(small, range(1, 60), lambda step: {"grad_norm": 0.9 if step == 50 else 0.01}) == []


def test_truncation_must_persist() -> None:
    alarms = Alarms({"max_completion_length": 256})
    assert run(alarms, range(1, 60), lambda step: {"truncated": 0.9 if step % 5 else 0.1}) == []
    (alarm,) = run(alarms, range(60, 90), lambda _: {"truncated": 0.8})
    assert alarm.name == "truncation"
    assert "at least 80 %" in alarm.message
    assert "--set max_completion_length=512" in alarm.hint


def test_a_sampling_gap_must_persist_and_clears() -> None:
    alarms = Alarms({})
    assert run(alarms, range(1, 60), lambda step: {"sampling_gap": 0.4 if step % 3 != 2 else 0.02}) == []
    (alarm,) = run(alarms, range(60, 90), lambda _: {"sampling_gap": 0.4})
    assert (alarm.name, alarm.step) == ("sampling-gap", 62)
    assert "differ by 0.4 per token from the model's" in alarm.message
    assert "use_vllm=false" in alarm.hint
    assert run(alarms, range(90, 100), lambda _: {"sampling_gap": 0.07}) == [], "neither wide nor closed"
    run(alarms, range(100, 101), lambda _: {"sampling_gap": 0.01})
    assert len(run(alarms, range(101, 110), lambda _: {"sampling_gap": 0.4})) == 1, "raised again"
    (cut,) = run(Alarms({"top_p": 0.9}), range(1, 9), lambda _: {"sampling_gap": 0.2})
    assert cut.hint.startswith("--set top_p=1: 0.9 truncates")


def evaluate(rewards: list[float], held_out: list[float], rows: int = 100) -> list[Alarm]:
    """Ten steps at each of these rewards, and an evaluation after each."""
    alarms, raised = Alarms({}, rows), []
    for number, (reward, score) in enumerate(zip(rewards, held_out, strict=True)):
        run(alarms, range(10 * number + 1, 10 * number + 11), lambda _, reward=reward: {"reward": reward})
        raised += alarms.check_evaluation("during", 10 * number + 10, {"sampled_reward": score, "greedy_regret": 3.0})
    return raised


def test_overfitting_needs_two_significant_falls_without_a_fall_in_training() -> None:
    assert [a.step for a in evaluate([0.3, 0.5, 0.6, 0.7], [0.4, 0.6, 0.3, 0.3])] == [40]
    assert evaluate([0.3, 0.5, 0.6, 0.7], [0.4, 0.6, 0.3, 0.6]) == [], "one bad evaluation"
    assert evaluate([0.3, 0.5, 0.6, 0.7], [0.4, 0.6, 0.55, 0.53]) == [], "not significant with 100 rows"
    assert len(evaluate([0.3, 0.5, 0.6, 0.7], [0.4, 0.6, 0.55, 0.53], rows=10_000)) == 1, (
        "significant with 10,000 rows"
    )
    assert evaluate([0.3, 0.5, 0.3, 0.2], [0.4, 0.6, 0.3, 0.2]) == [], "training fell too"


def test_stop_on_names_are_checked() -> None:
    assert check_alarm_names(list(NAMES)) == list(NAMES)
    with pytest.raises(BadInput, match="did you mean 'overfitting'") as caught:
        check_alarm_names(["no-signal", "overfiting"])
    assert all(name in caught.value.expected for name in NAMES)
    with pytest.raises(BadInput):
        Alarms({"stop_on": ["nan"]})


def test_the_stopping_alarm_is_returned() -> None:
    alarms = Alarms({"stop_on": ["truncation"]})
    raised = run(alarms, range(1, 15), lambda _: {"truncated": 1.0, "frac_reward_zero_std": 1.0})
    assert {alarm.name for alarm in raised} == {"no-signal", "truncation"}
    stopping = alarms.stopping_alarm(raised)
    assert stopping is not None
    assert stopping.as_record().keys() == {"name", "step", "message", "hint"}
    assert stopping.name == "truncation"
    assert alarms.stopping_alarm([alarm for alarm in raised if alarm.name == "no-signal"]) is None


def triangle(step: int, period: int = 80) -> float:
    """From 0 up to 1 and back within a period."""
    part = step % period / period
    return 2 * min(part, 1 - part)


SETTINGS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "some": {"learning_rate": 3e-4, "max_completion_length": 256, "num_generations": 4, "sft_steps": 30,
             "top_p": 0.9, "temperature": 0.9, "max_grad_norm": 0.5, "task": "sort",
             "mask_truncated_completions": True},
    "verl": {"learning_rate": 1e-6, "engine": "verl", "max_completion_length": 512, "sft_steps": 0},
    "float16": {"learning_rate": 1e-5, "dtype": "float16", "task": "sort"},
}  # fmt: skip
STEADY = {"reward": 0.5}
SILENT = {"frac_reward_zero_std": 1.0, "reward_std": 0.0}
NORMS = {40: 9.0, 41: 10.5, 60: 30.0, 75: 4.0, 90: 31.0}
SERIES: dict[str, tuple[type, Callable[[int], dict[str, Any]]]] = {
    "loss": (NotANumber, lambda step: {"loss": math.nan if step in (5, 30, 50) else 1.0}),
    "gradient": (NotANumber, lambda step: {"grad_norm": math.inf if 5 <= step < 15 or step == 40 else 1.0}),
    "no reward": (NotANumber, lambda step: {"reward": None if step == 5 else 1.0}),
    "same rewards": (NoSignal, lambda step: SILENT | {"reward": 0.5} if step % 30 else {"reward_std": 0.1}),
    "lost": (NoSignal, lambda step: SILENT | {"reward": 0.2} if step > 3 else {"reward": 0.7, "reward_std": 0.1}),
    "solved": (NoSignal, lambda step: SILENT | {"reward": 1.0} if step > 3 else {"reward": 0.7, "reward_std": 0.1}),
    "entropy": (Collapse, lambda step: STEADY | {"entropy": round(1 - triangle(step, 300), 3)}),
    "shorter": (Collapse, lambda step: STEADY | {"completion_length": 100.0 - 100 * triangle(step, 300)}),
    "longer": (Collapse, lambda step: STEADY | {"completion_length": 100.0 + 400 * triangle(step, 300)}),
    "spikes": (GradientSpike, lambda step: {"grad_norm": NORMS.get(step, 1.0)}),
    "small spikes": (GradientSpike, lambda step: {"grad_norm": {19: 0.6, 40: 0.7}.get(step, 0.02 + step / 1e4)}),
    "truncated": (Truncation, lambda step: {"truncated": round(20 * triangle(step)) / 20}),
    "gap": (SamplingGap, lambda step: {"sampling_gap": round(0.2 * triangle(step), 3)}),
}  # fmt: skip


@pytest.mark.parametrize("name", SETTINGS)
def test_verdicts_are_as_recorded(name: str) -> None:
    """The verdicts of each detector, from each step where they change, and those on evaluations."""
    found: dict[str, Any] = {}
    for series, (detector, metrics) in SERIES.items():
        check, changes, before = detector(SETTINGS[name]), {}, None
        for step in range(1, 320 if detector is Collapse else 170):
            verdict = check(metrics(step))
            kind = verdict if isinstance(verdict, bool) else "raised"
            if kind != before:
                changes[step], before = verdict, kind
        found[series] = changes
    check, evaluations = Overfitting(SETTINGS[name], 50), []
    for step, score in enumerate((0.5, 0.6, 0.6, 0.57, 0.5, 0.4, 0.58, 0.59, 0.3, 0.2)):
        check.note({"reward": 0.5 + step / 100, "reward_std": 0.2})
        evaluations.append(check(step, {"sampled_reward": score}, first=not step))
    assert_as_recorded(f"alarms/{name}", found | {"evaluations": evaluations})
