"""The numbers of the trainer at their limits: settings, tasks, rewards and prompt lengths."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from data import split, tes_prompt
from data.files import cut
from data.lengths import choose_bounds
from data.tes import mismatched_rows
from data.tes_prompt import least_action, list_symbols, most_action, parse_prompt, tokenise
from rewards.functions import overlong_penalty
from settings import SETTINGS_FILE, BadInput, Recipe, resolve_settings, setting_definitions
from support.cases import each_case
from support.recorded_results import assert_as_recorded
from support.stacks import defaults
from support.tes_files import make_prompt
from tasks.sort import SortTask, check_sort, count_multisets
from tasks.tes import check_tes
from verl_engine.alarms import reward_std_bound
from verl_engine.check import FILE, find_conflicts

FACTS = parse_prompt(make_prompt("2025-05-05", 15, 120.0, [30.0, 40.0, 20.0], [0.3, 0.4, 0.2]))


def limits(setting: Any) -> list[Any]:
    """The smallest and the largest value of a number, and the values next to them that are refused."""
    if isinstance(setting.default, bool) or not isinstance(setting.default, int | float):
        return []
    step = 1 if isinstance(setting.default, int) else 0.25
    bounds = [(setting.minimum, -step), (setting.maximum, step)]
    return [value for bound, off in bounds if bound is not None for value in (bound, bound + off)]


@pytest.mark.parametrize("file", [SETTINGS_FILE, FILE])
def test_limits_of_each_setting_are_as_recorded(file: str) -> None:
    """Errors at the limits of each setting, which include settings that have no effect or do not fit together."""
    recipe, found = (
        Recipe("test", "", {"model": "a/b"} if file == SETTINGS_FILE else {"model": "a/b", "data": "x"}),
        {},
    )
    for name, setting in setting_definitions(file).items():
        for value in limits(setting):
            try:
                conflicts = {} if file == SETTINGS_FILE else {"find_conflicts": find_conflicts}
                found[f"{name}={value}"] = resolve_settings(recipe, {name: value}, file=file, **conflicts)[name]
            except BadInput as error:
                found[f"{name}={value}"] = [[error.message, error.expected, error.hint]]
    assert_as_recorded(f"settings/limits-{'grpo' if file == SETTINGS_FILE else 'verl'}", found)


MODEL, SORT, LINEAR = {"model": "a/b"}, {"task": "sort"}, {"model": "a/b", "lr_scheduler_type": "linear"}
COMBINATIONS: list[dict[str, Any]] = [
    SORT | {"hidden_size": 96, "heads": 5}, SORT | {"hidden_size": 4, "heads": 4}, SORT | {"hidden_size": 100},
    SORT | {"hidden_size": 128, "heads": 8}, MODEL | {"per_device_train_batch_size": 6, "prompts_per_step": 4,
        "num_generations": 4},
    MODEL | {"per_device_train_batch_size": 4, "prompts_per_step": 4}, LINEAR | {"max_steps": 50, "warmup_steps": 50},
    LINEAR | {"max_steps": 51, "warmup_steps": 50}, LINEAR | {"max_steps": 0, "warmup_steps": 50},
    MODEL | {"save_steps": 10, "num_iterations": 3}, MODEL | {"save_steps": 9, "num_iterations": 3},
    MODEL | {"report_to": ["wandbb"]}, {"model": ""}, MODEL | {"loss_type": "cispo", "epsilon_high": 0.0},
    MODEL | {"loss_type": "cispo", "epsilon_high": 1.0},
    MODEL | {"epsilon": 0.2, "epsilon_high": 0.2}, MODEL | {"epsilon": 0.2, "epsilon_high": 0.1},
    MODEL | {"use_vllm": True, "vllm_mode": "server"}, MODEL | {"use_vllm": True, "vllm_enable_sleep_mode": True},
]  # fmt: skip


def test_settings_that_do_not_fit_together_are_as_recorded() -> None:
    found: dict[str, Any] = {}
    for given in COMBINATIONS:
        try:
            resolve_settings(Recipe("test", "", {}), given)
            found[str(given)] = "accepted"
        except BadInput as error:
            found[str(given)] = [[error.message, error.expected, error.hint]]
    assert_as_recorded("settings/combinations", found)


def sort_settings(**changed: Any) -> dict[str, Any]:
    return {"digits": 2, "held_out_multisets": 10, "seed": 1, "max_completion_length": 8} | changed


def test_sorting_of_two_digits() -> None:
    task = SortTask(sort_settings(held_out_multisets=54))
    # 54 of 55 multisets are held out, each in a random order; of different digits there are two.
    same = sum(row["answer"][0] == row["answer"][1] for row in task.held_out)
    assert task.baselines()["random_order"]["exact_match"] == pytest.approx((same + (54 - same) / 2) / 54)
    total = count_multisets(2)
    for changed, problem in (
        ({"held_out_multisets": total}, f"held_out_multisets = {total}"),
        ({"held_out_multisets": 0}, "held_out_multisets = 0"),
        ({"max_completion_length": 2}, "max_completion_length = 2 for 2 digits"),
    ):
        with pytest.raises(BadInput, match=problem):
            check_sort(defaults(**sort_settings(**changed)))
    assert check_sort(
        defaults(**sort_settings(held_out_multisets=total - 1, max_completion_length=3), prompts_per_step=2)
    )


@each_case(
    ("energy", "load", "least", "most"),
    [
        (0.0, tes_prompt.SHARES[1], 1, 3), (0.0, 1 / 3 + 1e-6, 2, 3), (0.0, 2 / 3, 2, 3), (0.0, 1.0, 3, 3),
        (0.5, 0.0, 0, 1), (0.3, 0.0, 0, 2), (0.0, 0.0, 0, 3), (1.1, 0.0, 0, 0),
    ],
)  # fmt: skip
def test_actions_with_a_third_and_two_thirds_of_the_capacity(
    energy: float, load: float, least: int, most: int
) -> None:
    facts = dataclasses.replace(FACTS, energy=energy, loads=(load,), rated=1.0, capacity=1.0)
    assert (least_action(facts), most_action(facts)) == (least, most)


@each_case(
    ("changed", "token"),
    [
        ({"co2": (0.3, 0.3, 0.2)}, "cleaner1"), ({"energy": 0.0}, "stored0"), ({"energy": FACTS.capacity}, "stored9"),
        ({"energy": -0.5}, "stored0"), ({"energy": FACTS.capacity * 0.7}, "stored7"), ({"hour": 23}, "hour23"),
        ({"co2": (0.3,), "loads": (30.0,)}, "today_none"), ({"co2": (0.3, 0.3, 0.3)}, "covered_none"),
        ({"co2": (0.3, 0.4, 0.4), "energy": 60.0}, "covered5"),
    ],
)  # fmt: skip
def test_tokens_of_facts_at_their_edges(changed: dict[str, Any], token: str) -> None:
    tokens = tokenise(dataclasses.replace(FACTS, **changed))
    assert token in tokens
    assert set(tokens) <= set(list_symbols())


@each_case(
    ("changed", "problem"),
    [
        ({"capacity": 0.0}, "be positive"), ({"rated": 0.0}, "be positive"), ({"energy": -1.1}, "is outside"),
        ({"energy": FACTS.capacity + 1.1}, "is outside"), ({"co2": (0.0, 1.0)}, "co2 factor"),
        ({"next_low5": 0.0}, "co2 factor"), ({"next_min": 0.0}, "co2 factor"), ({"loads": (-0.1,)}, "negative"),
        ({"energy": -1.0}, ""), ({"energy": FACTS.capacity + 1}, ""), ({"loads": (0.0,)}, ""),
    ],
)  # fmt: skip
def test_ranges_of_facts(changed: dict[str, Any], problem: str) -> None:
    facts = dataclasses.replace(FACTS, **changed)
    if not problem:
        tes_prompt._check_ranges(facts)
        return
    with pytest.raises(tes_prompt.PromptError, match=problem):
        tes_prompt._check_ranges(facts)


@each_case(
    ("tokens", "expected"), [(79, 0.0), (80, 0.0), (81, -0.05), (90, -0.5), (99, -0.95), (100, -1.0), (101, -1.0)]
)
def test_the_penalty_of_long_completions(tokens: int, expected: float) -> None:
    assert overlong_penalty(tokens, 100, 0.8) == pytest.approx(expected)
    assert overlong_penalty(100, 100, 1.0) == -1.0


def test_a_text_of_the_limit_is_not_cut() -> None:
    assert (cut("x" * 200), cut("x" * 201)) == ("x" * 200, "x" * 197 + "...")


def test_a_completion_of_an_action_has_four_tokens() -> None:
    with pytest.raises(BadInput, match="max_completion_length = 3"):
        check_tes(defaults(max_completion_length=3, data=""))
    with pytest.raises(BadInput) as caught:  # the next check, of the data
        check_tes(defaults(max_completion_length=4, data=""))
    assert "max_completion_length" not in caught.value.message


def test_a_completion_leaves_at_least_one_token_for_the_prompt() -> None:
    settings = {"max_seq_length": 100, "max_prompt_length": 0}
    assert choose_bounds(settings | {"max_completion_length": 99}, 0)[0] == 100
    with pytest.raises(BadInput, match="leaves no tokens for a prompt"):
        choose_bounds(settings | {"max_completion_length": 100}, 0)
    assert choose_bounds(settings | {"max_completion_length": 10}, 100)[0] == 100
    with pytest.raises(BadInput, match="max_position_embeddings = 99"):
        choose_bounds(settings | {"max_completion_length": 10}, 99)


def test_the_bound_of_a_standard_deviation() -> None:
    assert reward_std_bound({"critic/score/min": -1.0, "critic/score/max": 2.0}) == {"reward_std": 1.5}
    assert reward_std_bound({"critic/score/min": 0.0, "critic/score/max": math.inf}) == {}


@pytest.mark.parametrize(("count", "more"), [(10, False), (11, True)])
def test_ten_values_of_a_column_are_listed(count: int, more: bool) -> None:
    rows = [{"columns": {"day": f"{number:050d}"}} for number in range(count)]
    with pytest.raises(BadInput) as caught:
        split._by_column(rows, "day", "x")
    assert caught.value.expected.endswith(", ...") is more
    assert caught.value.expected.count("0" * 38) == 10
    assert caught.value.hint.endswith(f"day={count - 1:050d}")


def test_rows_whose_best_action_is_not_the_highest() -> None:
    @dataclasses.dataclass
    class Row:
        source: str
        q: tuple[float, ...]
        optimal_action: int

    rows = [Row("a.csv:1", (1.0, 2.0), 1), Row("a.csv:2", (1.0, 2.0), 0), Row("a:b.csv:3", (2.0, 2.0), 0)]
    assert mismatched_rows(rows) == ["a.csv row 2"]  # type: ignore[arg-type]
