"""Answers read out of completions, rewards by name and by function, and what a faulty one is told."""

from __future__ import annotations

import math
import sys
import time
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from data.answers import format_number, read_action, read_number, read_reference
from rewards.functions import Rewards, check_rewards, name_columns, overlong_penalty
from settings import BadInput
from stacks import TRAIN, all_stacks, defaults, run_code

THOUGHT = "<|channel|>analysis<|message|>Is it [1]? No.<|end|><|start|>assistant"


def row(**more: Any) -> dict[str, Any]:
    """A row as rows.py makes it."""
    return {"prompt": "p", "source": "a.csv:1", "file": "a.csv", "columns": {}} | more


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("[2]", 2),
        (" [2]\n", 2),
        ("[2] is best", None),  # one line without thinking: nothing beside the answer
        ("[1][2]", None),
        ("[4]", None),
        ("", None),
        ("Load is 38 kW [1].\nSo I take [0], no: [2].", 2),  # several lines: the last of the last
        ("[2]\n\nI am sure.", None),  # the last line has none
        ("I weigh [1].\n[2] or [7]", None),  # the last one is no action
        ("<think>[1]?\nNo.</think>[2]", 2),
        ("<think>[1]?</think>The answer is [3].", 3),
        ("<think>[1]?</think>\nThe answer:\n[3].\n", 3),
        ("<think>it may be [1]", None),  # cut off while thinking
        (THOUGHT + "<|channel|>final<|message|>[2]<|return|>", 2),
        (THOUGHT + "<|channel|>final<|message|>I choose [3]", 3),
        (THOUGHT + "<|channel|>final <|constrain|>text<|message|>[3]<|return|>", 3),
        (THOUGHT + "<|channel|>final<|message|>None fits.<|return|>", None),
        ("<|channel|>analysis<|message|>Is it\n[1]", None),  # never came to the final channel
        ("analysisIs it [1]? No.assistantfinal[2]", 2),  # the same, decoded without special tokens
        ("analysisIs it\n[1]", None),
        ("final[2]", 2),
        ("analysis of the loads:\n[1]", 1),  # a sentence of plain words
    ],
)
def test_actions(text: str, action: int | None) -> None:
    assert read_action(text) == action


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("2 + 3 = 5\n#### 5", 5),
        ("#### $1,234.00", 1234),
        ("#### 1234 apples.", 1234),
        ("#### 12.", 12),
        ("#### -7", -7),
        ("#### \u22127", -7),
        ("#### $-7", -7),
        ("#### 3\n#### 4\n", 4),
        ("so 3\n#### unknown", None),  # the form without a number
        ("####", None),
        (r"\boxed{1} and then \boxed{\text{about } 42}", 42),
        (r"\boxed{\$1{,}234}", 1234),
        (r"\boxed{\frac{3}{4}}", Fraction(3, 4)),
        (r"\boxed{x} is 3", None),
        (r"\boxed{12", 12),  # cut off
        ("It costs 3 or 4 dollars, so **18.50**.", Fraction(37, 2)),
        ("0.50", Fraction(1, 2)),
        (".5", Fraction(1, 2)),
        ("between 10-12", 12),
        ("10 - 12 = -2", -2),
        ("sold 1, 2 and 3", 3),
        ("50%", 50),
        ("none", None),
        ("<think>3</think>4", 4),
        ("<think>3", None),
        ("1/0", None),
        ("9" * 10_000, None),  # repeats itself until it is cut off
    ],
)
def test_final_numbers(text: str, number: Fraction | int | None) -> None:
    assert read_number(text) == number


def test_references() -> None:
    cells = ["a\n#### 1,000", "72", "$5.50", 7, 7.5, "3 of 4", "", None, True, math.nan]
    found = [1000, 72, Fraction(11, 2), 7, Fraction(15, 2), None, None, None, None, None]
    assert [read_reference(cell) for cell in cells] == found


def test_numbers_are_said_as_people_write_them() -> None:
    numbers = [Fraction(1000), Fraction(-1, 2), Fraction(1, 3), Fraction(10**30), None]
    assert [format_number(number) for number in numbers] == ["1000", "-0.5", "1/3", "1" + "0" * 30, ""]


def test_q_value_by_softmax_and_by_advantage() -> None:
    rows = [row(q=[0.0, -1.0, -2.0, -9.0])] * 3
    for kind, best in (("softmax", 1 / (1 + math.exp(-1) + math.exp(-2) + math.exp(-9))), ("advantage", 3.0)):
        rewards = Rewards(defaults(rewards=["q-value"], q_reward=kind, tau=1.0, invalid_reward=-2.5))
        found = rewards.score(rows, ["[0]", "[3]", "[9]"])
        assert found[0]["reward"] == pytest.approx(best)
        assert found[1]["reward"] < found[0]["reward"]
        assert found[2] == {"reward": -2.5, "reward_q_value": -2.5}


def test_gsm8k_compares_by_value() -> None:
    rows = [row(reference=Fraction(1000))] * 3
    found = Rewards(defaults(rewards=["gsm8k"])).score(rows, ["#### $1,000.0", "it is 100", "no"])
    assert [score["reward_gsm8k"] for score in found] == [1, 0, 0]


def test_parts_are_weighed_and_kept() -> None:
    settings = defaults(rewards=["gsm8k", r"format:.*####\s*\d+", "format:x"], reward_weights=["2", 0.5, "-1"])
    found = Rewards(settings).score([row(reference=Fraction(5))], ["a\nb #### 5"])
    assert found == [{"reward": 2.5, "reward_gsm8k": 1.0, "reward_format": 1.0, "reward_format_2": 0.0}]


def test_columns_of_parts_are_not_the_trainers_own() -> None:
    names = ["a:std", "b:std", "a:smooth", "a:brief_smooth", "a:f", "a:f_3", "b:f", "c:f", "d:f"]
    assert name_columns(names) == [
        "reward_std_2", "reward_std_3", "reward_smooth_2", "reward_brief_smooth_2",
        "reward_f", "reward_f_3", "reward_f_2", "reward_f_4", "reward_f_5",
    ]  # fmt: skip


def test_columns_of_parts_are_distinct() -> None:
    names = ["q-value", "format:a:b", "format:c", "my.rewards:brief", "/x/other.py:brief", "length"]
    assert name_columns(names) == [
        "reward_q_value", "reward_format", "reward_format_2", "reward_brief", "reward_brief_2", "reward_length",
    ]  # fmt: skip


def test_length_falls_from_a_share_to_the_end() -> None:
    assert [overlong_penalty(count, 100, 0.8) for count in (0, 80, 85, 90, 99, 100, 101)] == pytest.approx(
        [0, 0, -0.25, -0.5, -0.95, -1, -1]
    )
    assert [overlong_penalty(count, 10, 1.0) for count in (9, 10)] == [0, -1]
    settings = defaults(rewards=["length"], max_completion_length=10)
    found = Rewards(settings).score([row()] * 2, ["a", "b"], completion_ids=[[1] * 9, [1] * 10])
    assert [score["reward"] for score in found] == pytest.approx([-0.5, -1])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"rewards": ["q-vale"]}, "unknown reward 'q-vale' (did you mean 'q-value'?)"),
        ({"rewards": ["format:(a"]}, "missing )"),
        ({"rewards": ["format:(a+)+b"]}, "keep it busy for more than 1 s"),
        ({"rewards": ["gsm8k"], "reward_weights": ["1", "2"]}, "has 2 numbers, rewards has 1 names"),
        ({"rewards": ["gsm8k"], "reward_weights": ["x"]}, "reward_weights = ['x']"),
        ({"rewards": ["gsm8k"], "reward_weights": ["inf"]}, "reward_weights = ['inf']"),
        ({"rewards": ["nowhere.py:f"]}, "nowhere.py cannot be read: No such file or directory"),
    ],
)
def test_rewards_that_cannot_be(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput) as caught:
        check_rewards(defaults(**changed))
    assert said in caught.value.message
    assert caught.value.hint


def test_a_pattern_that_backtracks_without_end_is_stopped() -> None:
    rewards = Rewards(defaults(rewards=[r"format:(\w+\s?)*:"]))
    started = time.monotonic()
    with pytest.raises(BadInput) as caught:
        rewards.score([row(), row(source="a.csv:2")], ["a:", "word " * 50], step=3)
    assert time.monotonic() - started < 5
    assert "step 3: it did not come to an end in 1 s; sample a.csv:2" in caught.value.message


def write_reward(folder: Path, body: str) -> str:
    """The name of a function `f` in a file of its own."""
    path = folder / "mine.py"
    path.write_text(f"import math\ndef f(prompts, completions, completion_ids, **columns):\n    {body}\n", "utf-8")
    return f"{path}:f"


def fault(name: str, **given: Any) -> str:
    """What a faulty function is told, on three samples."""
    rewards = Rewards(defaults(rewards=[name]))
    rows = [row(source=f"a.csv:{number}", prompt=f"prompt {number}") for number in (1, 2, 3)]
    with pytest.raises(BadInput) as caught:
        rewards.score(rows, ["good", "bad" + "x" * 300, "good"], **given)
    return caught.value.message


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return [1 / ('bad' not in c) for c in completions]", "raised ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "raised SystemExit: 3"),
        ("return [None if 'bad' in c else 1 for c in completions]", "gave None: no reward applies to this sample"),
        ("return [math.nan if 'bad' in c else 1 for c in completions]", "returned nan (float) for it"),
        ("return [-math.inf if 'bad' in c else 1 for c in completions]", "returned -inf (float) for it"),
        ("return [1e300 if 'bad' in c else 1 for c in completions]", "returned 1e+300 (float) for it"),
        ("return [-(10 ** 400) if 'bad' in c else 1 for c in completions]", "0000... (int) for it"),
        ("return [10 ** 5000 if 'bad' in c else 1 for c in completions]", "a number of 16610 bits (int) for it"),
        ("return ['1' if 'bad' in c else 1 for c in completions]", "returned '1' (str) for it"),
        ("return [1]", "returned 1 values for 3 samples; sample a.csv:2"),
        ("return [1, 2, 3, 4]", "returned 4 values for 3 samples"),
        ("return None", "returned None, not a list"),
        ("return 0.5", "returned 0.5 (float), not a list"),
        ("return {c: 1 for c in completions}", "not a list"),
    ],
)
def test_faulty_functions_are_told_with_their_sample(tmp_path: Path, body: str, said: str) -> None:
    state = SimpleNamespace(global_step=6)
    message = fault(write_reward(tmp_path, body), trainer_state=state, completions=["good", "bad", "good"])
    assert said in message
    assert "mine.py:f, step 7: it" in message
    if "'bad'" in body:
        assert "sample a.csv:2: prompt 'prompt 2', completion 'badxxx" in message
        assert "x" * 250 not in message


def test_a_sum_that_is_too_large_is_told_with_its_sample(tmp_path: Path) -> None:
    name = write_reward(tmp_path, "return [len(c) * 1e17 for c in completions]")
    rewards = Rewards(defaults(rewards=[name, "length"], reward_weights=["1", "1e300"], max_completion_length=2))
    rows = [row(source="a.csv:1")]
    assert rewards.score(rows, ["good"], completion_ids=[[1]])[0]["reward"] == 4e17
    with pytest.raises(BadInput, match=r"f \+ length, .*: it adds up to -1e\+300; sample a.csv:1"):
        rewards.score(rows, ["good"], completion_ids=[[1, 2]])


def test_a_fault_of_the_batch_alone_names_no_sample(tmp_path: Path) -> None:
    message = fault(write_reward(tmp_path, "assert len(completions) < 2; return [1]"))
    assert "on the batch of 3, on no sample alone" in message
    assert "sample a.csv" not in message
    assert "a look at the held-out rows" in message


def test_what_a_function_is_given(tmp_path: Path) -> None:
    body = (
        "return [level * len(c[0]['content']) if level else None for level, c in zip(columns['level'], completions)]"
    )
    rewards = Rewards(defaults(rewards=[write_reward(tmp_path, body), "length"], max_completion_length=9))
    talk = [{"role": "user", "content": "hi"}]
    rows = [row(prompt=talk, columns={"level": level, "prompt": talk}) for level in (2, 0)]
    found = rewards.score(rows, ["abc", "abc"], completion_ids=[[1], [2]], trainer_state=None)
    assert found == [
        {"reward": 6.0, "reward_f": 6.0, "reward_length": 0.0},
        {"reward": 0.0, "reward_f": None, "reward_length": 0.0},
    ]


def test_a_function_may_take_its_lists_apart(tmp_path: Path) -> None:
    first = write_reward(tmp_path, "found = [len(c) for c in completions]; completions.clear(); return found")
    rewards = Rewards(defaults(rewards=[first, first]))
    completions = ["a", "bcd"]
    found = rewards.score([row(), row()], ["a", "bcd"], completions=completions, prompts=["p", "p"])
    assert [score["reward"] for score in found] == [2, 6]
    assert completions == ["a", "bcd"]


def test_functions_may_name_what_they_take_and_be_coroutines(tmp_path: Path) -> None:
    path = tmp_path / "other.py"
    path.write_text(
        "from settings_of_mine import UNIT\n"
        "def few(completions, level): return [UNIT * one for one in level]\n"
        "async def later(completions, log_metric, **_): log_metric('a', 1); return [1.0 for _ in completions]\n",
        "utf-8",
    )
    (tmp_path / "settings_of_mine.py").write_text("UNIT = 3\n", "utf-8")
    rewards = Rewards(defaults(rewards=[f"{path}:few", f"{path}:later"]))
    assert rewards.score([row(columns={"level": 2})], ["a"])[0]["reward"] == 7


def test_a_check_reads_the_source_and_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack/__init__.py").touch()
    (tmp_path / "pack/scores.py").write_text("import torch\nraise SystemExit\ndef brief(**_): ...\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    made = [f"{tmp_path}/pack/scores.py:brief"]
    assert check_rewards(defaults(rewards=["pack.scores:brief"])) == made
    assert check_rewards(defaults(rewards=["pack/scores.py:brief"])) == made
    assert check_rewards(defaults(rewards=["installed.elsewhere:brief"])) == ["installed.elsewhere:brief"]
    for name, said in (
        ("pack.scores:brif", "defines no brif (did you mean 'brief'?)"),
        ("pack/x.py:f", "No such file"),
    ):
        with pytest.raises(BadInput) as caught:
            check_rewards(defaults(rewards=[name]))
        assert said in caught.value.message
    (tmp_path / "bad.py").write_text("def f(:\n", "utf-8")
    with pytest.raises(BadInput, match=r"line 1"):
        check_rewards(defaults(rewards=["bad.py:f"]))


def test_modules_of_a_package_import_each_other(tmp_path: Path) -> None:
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed/__init__.py").touch()
    (tmp_path / "packed/one.py").write_text("from .two import f\n", "utf-8")
    (tmp_path / "packed/two.py").write_text("def f(completions, **_): return [2] * len(completions)\n", "utf-8")
    rewards = Rewards(defaults(rewards=check_rewards(defaults(rewards=[f"{tmp_path}/packed/one.py:f"]))))
    assert rewards.score([row()], ["a"])[0]["reward"] == 2


def test_what_cannot_be_imported_is_told(tmp_path: Path) -> None:
    (tmp_path / "needs.py").write_text("import nothing_of_this_name\ndef f(**_): ...\nnumber = 3\n", "utf-8")
    for name, said in (
        (f"{tmp_path}/needs.py:f", "No module named 'nothing_of_this_name'"),
        ("no_module_of_this_name:f", "No module named 'no_module_of_this_name'"),
        ("math:pi", "is a float"),
        ("math:nothing", "has no attribute 'nothing'"),
    ):
        with pytest.raises(BadInput) as caught:
            Rewards(defaults(rewards=[name])).score([row()], ["a"])
        assert said in caught.value.message


def test_a_file_called_like_ours_stays_apart(tmp_path: Path) -> None:
    (tmp_path / "settings.py").write_text("def f(completions, **_): return [4.0] * len(completions)\n", "utf-8")
    assert Rewards(defaults(rewards=[f"{tmp_path}/settings.py:f"])).score([row()], ["a"])[0]["reward"] == 4
    assert Path(str(sys.modules["settings"].__file__)).samefile(TRAIN / "settings.py")


@pytest.mark.stack
def test_arrays_tensors_and_channels_in_every_stack(stack_python: Path, tmp_path: Path) -> None:
    """What numpy and torch return counts as numbers; harmony's marks are read from the ids."""
    (tmp_path / "mine.py").write_text(
        "import numpy, torch\n"
        "def array(completions, **_): return numpy.ones(len(completions), dtype='float32')\n"
        "def tensors(completions, **_): return [torch.tensor(2.0), numpy.float16(0.5)]\n"
        "def wide(completions, **_): return [torch.ones(2), torch.ones(2)]\n",
        "utf-8",
    )
    code = """
        from tokenizers import Tokenizer, models, pre_tokenizers
        from transformers import PreTrainedTokenizerFast
        from rewards.functions import Rewards
        from settings import BadInput
        settings, folder = given
        marks = ["<|channel|>", "<|message|>", "<|end|>", "<|start|>", "<|return|>"]
        words = {word: n for n, word in enumerate(["analysis", "final", "assistant", "[1]", "[2]", "<unk>"])}
        backend = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
        backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")
        tokenizer.add_special_tokens({"additional_special_tokens": marks})
        text = "<|channel|> analysis <|message|> [1] <|end|> <|start|> assistant <|channel|> final <|message|> [2]"
        ids = tokenizer(text)["input_ids"]
        row = {"prompt": "p", "columns": {}, "q": [0.0, 0.0, 4.0, 0.0]}
        def score(names, texts, **more):
            rewards = Rewards(settings | {"rewards": names, "q_reward": "advantage"}, tokenizer)
            try:
                return rewards.score([row] * len(texts), texts, **more)
            except BadInput as error:
                return error.message
        bare = tokenizer.decode(ids, skip_special_tokens=True)
        say(harmony=score(["q-value"], [bare], completion_ids=[ids]), bare=bare,
            sums=score([f"{folder}/mine.py:array", f"{folder}/mine.py:tensors"], ["a", "b"]),
            wide=score([f"{folder}/mine.py:wide"], ["a", "b"]))
    """
    for python in all_stacks(stack_python):
        found = run_code(python, code, defaults(), tmp_path)
        assert "<|" not in found["bare"]
        assert found["harmony"] == [{"reward": 3.0, "reward_q_value": 3.0}]
        assert [score["reward"] for score in found["sums"]] == [3.0, 1.5]
        assert "returned tensor([1., 1.]) (Tensor) for it" in found["wide"]
