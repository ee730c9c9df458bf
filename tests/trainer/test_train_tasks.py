"""Rewards, regret, tokens and splits of the tasks tes and sort; the recipe files."""

from __future__ import annotations

import random
import tomllib

import pytest
from data.answers import parse_action
from data.tes import read_split
from data.tes_prompt import least_action, list_symbols, most_action, parse_prompt, tokenise
from rewards.q_values import advantage_reward, regret, softmax_reward
from settings import RECIPES, list_recipes, read_recipe, resolve_settings, setting_definitions
from support.tes_files import HARMONY, make_prompt, make_rows, write_weeks
from tasks.sort import SortTask, split_multisets
from tasks.tes import TesTask
from verl_engine.check import find_conflicts as find_verl_conflicts

Q = (-8.0, -8.1, -8.5, -30.0)


def test_softmax_rewards_sum_to_one() -> None:
    shares = [softmax_reward(Q, action, 0.1) for action in range(4)]
    assert sum(shares) == pytest.approx(1)
    assert shares[0] / shares[1] == pytest.approx(2.718281828)  # one tau apart
    assert shares[3] == pytest.approx(0, abs=1e-12)  # without overflow


def test_softmax_reward_agrees_with_recorded_values() -> None:
    # A row of the plant's data; its reward_action columns were computed with tau = 0.1
    q = (-8.227054814840123, -8.377054814840124, -8.5298325926179, -8.682610370395679)
    recorded = (0.7799935119792473, 0.174040077242665, 0.0377697237954805, 0.0081966869826069)
    assert [softmax_reward(q, action, 0.1) for action in range(4)] == pytest.approx(recorded, rel=1e-6)


def test_advantage_reward() -> None:
    assert [advantage_reward((1.0, 2.0, 3.0, 6.0), action) for action in range(4)] == [-2, -1, 0, 3]


def test_regret() -> None:
    assert regret(Q, 0) == 0
    assert regret(Q, 2) == pytest.approx(0.5)
    assert regret(Q, None) == regret(Q, 3) == 22


@pytest.mark.parametrize(("text", "action"), [("[0]", 0), ("[3]", 3), (" [2]\n", 2)])
def test_valid_actions(text: str, action: int) -> None:
    assert parse_action(text) == action


@pytest.mark.parametrize(
    "text", ["", "0", "[4]", "[1][2]", "[ 1 ]", "[1] ok", "[-1]", "[01]", "[\N{ARABIC-INDIC DIGIT ONE}]"]
)
def test_invalid_actions(text: str) -> None:
    assert parse_action(text) is None


def test_both_chat_formats_give_the_same_tokens() -> None:
    facts = ("2025-05-05", 15, 120.5, [30.0, 40.0, 20.0], [0.3, 0.4, 0.2])
    plain, harmony = (parse_prompt(make_prompt(*facts, **form)) for form in ({}, {"form": HARMONY}))
    assert plain == harmony
    assert tokenise(plain) == [
        "hour15", "stored4", "least0", "most3", "cleaner1", "today4", "tomorrow4", "covered7",
    ]  # fmt: skip


def test_every_token_has_a_symbol() -> None:
    symbols = set(list_symbols())
    for seed in range(40):
        for row in make_rows("2025-05-05", seed):
            assert set(tokenise(parse_prompt(row["prompt"]))) <= symbols


@pytest.mark.parametrize(
    ("energy", "load", "least", "most"),
    [(150.0, 40.0, 0, 3), (5.0, 40.0, 2, 3), (0.0, 120.0, 3, 3), (280.0, 20.0, 0, 1), (300.0, 0.0, 0, 0)],
)
def test_least_and_most_action(energy: float, load: float, least: int, most: int) -> None:
    facts = parse_prompt(make_prompt("2025-05-05", 17, energy, [load], [0.3]))
    assert (least_action(facts), most_action(facts)) == (least, most)


def test_prompts_do_not_depend_on_action_values(tmp_path) -> None:
    folder = write_weeks(tmp_path)
    settings = read_recipe("tes").settings | {"data": str(folder)}
    prompts = [[row["prompt"] for row in part] for part in (TesTask(settings).train, TesTask(settings).held_out)]
    for file in folder.iterdir():
        header, *lines = file.read_text(encoding="utf-8").split("\n")
        changed = "\n".join([header, *lines]).replace(",-5.", ",-7.").replace(",-25.", ",3.")
        assert changed != file.read_text(encoding="utf-8")
        file.write_text(changed, encoding="utf-8")
    task = TesTask(settings)
    assert [[row["prompt"] for row in part] for part in (task.train, task.held_out)] == prompts


def test_no_training_row_shares_an_hour_with_the_held_out_file(tmp_path) -> None:
    folder = write_weeks(tmp_path)
    for held_out in ("04-14", "04-21", "05-05"):
        split = read_split(str(folder), held_out)
        moments = [{decision.facts.moment for decision in part} for part in (split.train, split.held_out)]
        assert len(moments[1]) == 10
        assert not moments[0] & moments[1]


def test_held_out_prompts_have_no_noise(tmp_path) -> None:
    settings = read_recipe("tes").settings | {"data": str(write_weeks(tmp_path))}
    exact = [" ".join(tokenise(d.facts)) for d in read_split(settings["data"], "").held_out]
    assert [row["prompt"] for row in TesTask(settings).held_out] == exact
    assert len(TesTask(settings).train) == 20 * settings["augment"]
    unaugmented = TesTask(settings | {"augment": 0})
    assert len({row["source"] for row in unaugmented.train}) == len(unaugmented.train) == 20


def test_the_warm_up_of_tes_uses_random_actions(tmp_path) -> None:
    task = TesTask(read_recipe("tes").settings | {"data": str(write_weeks(tmp_path))})
    examples = task.warmup_examples(random.Random(0))
    completions = [next(examples)[1] for _ in range(4000)]
    assert {text: completions.count(text) > 850 for text in set(completions)} == dict.fromkeys(
        ["[ 0 ]", "[ 1 ]", "[ 2 ]", "[ 3 ]"], True
    )


def test_baselines_of_tes(tmp_path) -> None:
    task = TesTask(read_recipe("tes").settings | {"data": str(write_weeks(tmp_path))})
    baselines = task.baselines()
    q = [row["q"] for row in task.held_out]
    assert baselines["always_0"]["mean_regret"] == pytest.approx(sum(max(v) - v[0] for v in q) / len(q))
    assert baselines["uniform_random"]["mean_regret"] == pytest.approx(sum(max(v) - sum(v) / 4 for v in q) / len(q))
    assert baselines["uniform_random"]["reward"] == pytest.approx(0.25)


@pytest.mark.parametrize("seed", range(5))
def test_training_and_held_out_prompts_share_no_multiset(seed: int) -> None:
    task = SortTask(read_recipe("sort").settings | {"seed": seed})
    trained = {row["answer"] for row in task.train}
    held_out = {row["answer"] for row in task.held_out}
    assert (len(trained), len(held_out)) == (615, 100)
    assert not trained & held_out
    examples = task.warmup_examples(random.Random(seed))
    assert not {next(examples)[1].replace(" ", "") for _ in range(2000)} & held_out


def test_the_split_contains_every_multiset() -> None:
    training, held_out = split_multisets(3, 20, seed=0)
    assert len({*training, *held_out}) == len(training) + len(held_out) == 220


def test_sort_scores() -> None:
    task = SortTask(read_recipe("sort").settings)
    row = {"prompt": "4 1 3 1 =", "answer": "1134"}
    right, wrong, longer = task.score([row, row, row], ["1134", "1143", "11344"])
    assert right["reward"] == 1
    assert (wrong["reward"], wrong["parsed"]) == (0, 1)
    assert longer["parsed"] == 0


@pytest.mark.parametrize("name", list_recipes())
def test_each_recipe_file_is_valid(name: str) -> None:
    recipe = read_recipe(name)
    assert recipe.name == name
    assert recipe.summary
    assert "\n" not in recipe.summary
    table = tomllib.loads((RECIPES / f"{name}.toml").read_text(encoding="utf-8"))
    file = "verl_settings.toml" if table.get("engine") == "verl" else "settings.toml"
    options = {"find_conflicts": find_verl_conflicts} if table.get("engine") == "verl" else {}
    own = {"model": "a/model", "data": "rows.jsonl"} if name == "dataset" else {}  # it has no default for these
    resolved = resolve_settings(recipe, own, file=file, **options)
    assert set(resolved) == {*setting_definitions(file), *recipe.settings}  # and fields that pass to TRL
    assert recipe.settings.items() <= resolved.items()
    assert set(table) <= {"name", "summary", "engine", "settings"}
