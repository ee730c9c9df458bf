"""Answers parsed from completions, rewards by name and by function, and the errors of faulty ones."""

from __future__ import annotations

import math
import random
import sys
import time
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from data.answers import format_number, read_action, read_number, read_reference
from rewards.functions import Rewards, check_rewards, name_columns, overlong_penalty
from rewards.user_function import check_user_reward
from settings import BadInput
from support.paths import TRAIN
from support.stacks import all_stacks, defaults, run_code

ANALYSIS = "<|channel|>analysis<|message|>Is it [1]? No.<|end|><|start|>assistant"


def row(**more: Any) -> dict[str, Any]:
    """Return a row like those of data/rows.py."""
    return {"prompt": "p", "source": "a.csv:1", "file": "a.csv", "columns": {}} | more


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("[2]", 2),
        (" [2]\n", 2),
        ("[2] is best", None),  # one line without reasoning: only the action alone
        ("[1][2]", None),
        ("[4]", None),
        ("", None),
        ("Load is 38 kW [1].\nSo I take [0], no: [2].", 2),  # several lines: the last action of the last line
        ("[2]\n\nI am sure.", None),  # no action in the last line
        ("I weigh [1].\n[2] or [7]", None),  # the last number is no action
        ("<think>[1]?\nNo.</think>[2]", 2),
        ("<think>[1]?</think>The answer is [3].", 3),
        ("<think>[1]?</think>\nThe answer:\n[3].\n", 3),
        ("<think>it may be [1]", None),  # truncated while reasoning
        (ANALYSIS + "<|channel|>final<|message|>[2]<|return|>", 2),
        (ANALYSIS + "<|channel|>final<|message|>I choose [3]", 3),
        (ANALYSIS + "<|channel|>final <|constrain|>text<|message|>[3]<|return|>", 3),
        (ANALYSIS + "<|channel|>final<|message|>None fits.<|return|>", None),
        ("<|channel|>analysis<|message|>Is it\n[1]", None),  # no final channel
        ("analysisIs it [1]? No.assistantfinal[2]", 2),  # decoded without special tokens
        ("analysisIs it\n[1]", None),
        ("final[2]", 2),
        ("analysis of the loads:\n[1]", 1),  # an ordinary sentence
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
        ("so 3\n#### unknown", None),  # the marker without a number
        ("####", None),
        (r"\boxed{1} and then \boxed{\text{about } 42}", 42),
        (r"\boxed{\$1{,}234}", 1234),
        (r"\boxed{\frac{3}{4}}", Fraction(3, 4)),
        (r"\boxed{x} is 3", None),
        (r"\boxed{12", 12),  # truncated
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
        ("9" * 10_000, None),  # a repetition up to the length limit
    ],
)
def test_final_numbers(text: str, number: Fraction | int | None) -> None:
    assert read_number(text) == number


def test_references() -> None:
    cells = ["a\n#### 1,000", "72", "$5.50", 7, 7.5, "3 of 4", "", None, True, math.nan]
    found = [1000, 72, Fraction(11, 2), 7, Fraction(15, 2), None, None, None, None, None]
    assert [read_reference(cell) for cell in cells] == found


def test_numbers_are_formatted_for_tables() -> None:
    numbers = [Fraction(1000), Fraction(-1, 2), Fraction(1, 3), Fraction(10**30), None]
    assert [format_number(number) for number in numbers] == ["1000", "-0.5", "1/3", "1" + "0" * 30, ""]


def test_q_value_by_softmax_and_by_advantage() -> None:
    rows = [row(q=[0.0, -1.0, -2.0, -9.0])] * 3
    for q_reward, best in (("softmax", 1 / (1 + math.exp(-1) + math.exp(-2) + math.exp(-9))), ("advantage", 3.0)):
        rewards = Rewards(defaults(rewards=["q-value"], q_reward=q_reward, tau=1.0, invalid_reward=-2.5))
        found = rewards.score(rows, ["[0]", "[3]", "[9]"])
        assert found[0]["reward"] == pytest.approx(best)
        assert found[1]["reward"] < found[0]["reward"]
        assert found[2] == {"reward": -2.5, "reward_q_value": -2.5}


def test_gsm8k_compares_by_value() -> None:
    rows = [row(reference=Fraction(1000))] * 3
    found = Rewards(defaults(rewards=["gsm8k"])).score(rows, ["#### $1,000.0", "it is 100", "no"])
    assert [score["reward_gsm8k"] for score in found] == [1, 0, 0]


def test_parts_are_weighted_and_recorded() -> None:
    settings = defaults(rewards=["gsm8k", r"format:.*####\s*\d+", "format:x"], reward_weights=["2", 0.5, "-1"])
    found = Rewards(settings).score([row(reference=Fraction(5))], ["a\nb #### 5"])
    assert found == [{"reward": 2.5, "reward_gsm8k": 1.0, "reward_format": 1.0, "reward_format_2": 0.0}]


def test_columns_of_parts_avoid_columns_of_the_trainer() -> None:
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


def test_length_penalty_starts_at_a_share_of_the_limit() -> None:
    assert [overlong_penalty(count, 100, 0.8) for count in (0, 80, 85, 90, 99, 100, 101)] == pytest.approx(
        [0, 0, -0.25, -0.5, -0.95, -1, -1]
    )
    assert [overlong_penalty(count, 10, 1.0) for count in (9, 10)] == [0, -1]
    settings = defaults(rewards=["length"], max_completion_length=10)
    found = Rewards(settings).score([row()] * 2, ["a", "b"], completion_ids=[[1] * 9, [1] * 10])
    assert [score["reward"] for score in found] == pytest.approx([-0.5, -1])


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"rewards": ["q-vale"]}, "unknown reward 'q-vale' (did you mean 'q-value'?)"),
        ({"rewards": ["format:(a"]}, "missing )"),
        ({"rewards": ["format:(a+)+b"]}, "takes more than 1 s"),
        ({"rewards": ["gsm8k"], "reward_weights": ["1", "2"]}, "has 2 numbers, rewards has 1 names"),
        ({"rewards": ["gsm8k"], "reward_weights": ["x"]}, "reward_weights = ['x']"),
        ({"rewards": ["gsm8k"], "reward_weights": ["inf"]}, "reward_weights = ['inf']"),
        ({"rewards": ["nowhere.py:f"]}, "nowhere.py cannot be read: No such file or directory"),
    ],
)
def test_invalid_rewards(changed: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadInput) as caught:
        check_rewards(defaults(**changed))
    assert problem in caught.value.message
    assert caught.value.hint


def test_a_pattern_with_catastrophic_backtracking_is_stopped() -> None:
    rewards = Rewards(defaults(rewards=[r"format:(\w+\s?)*:"]))
    started = time.monotonic()
    with pytest.raises(BadInput) as caught:
        rewards.score([row(), row(source="a.csv:2")], ["a:", "word " * 50], step=3)
    assert time.monotonic() - started < 60
    assert "step 3: it did not finish in 1 s; sample a.csv:2" in caught.value.message


def write_reward(folder: Path, body: str) -> str:
    """Write a function `f` and return its name."""
    path = folder / "mine.py"
    path.write_text(f"import math\ndef f(prompts, completions, completion_ids, **columns):\n    {body}\n", "utf-8")
    return f"{path}:f"


def error_message(name: str, **arguments: Any) -> str:
    """Return the error of a faulty function on three samples."""
    rewards = Rewards(defaults(rewards=[name]))
    rows = [row(source=f"a.csv:{number}", prompt=f"prompt {number}") for number in (1, 2, 3)]
    with pytest.raises(BadInput) as caught:
        rewards.score(rows, ["good", "bad" + "x" * 300, "good"], **arguments)
    return caught.value.message


def test_a_function_for_texts_gets_the_hint_that_completions_are_messages(tmp_path: Path) -> None:
    rewards = Rewards(defaults(rewards=[write_reward(tmp_path, "return [len(one.strip()) for one in completions]")]))
    with pytest.raises(BadInput) as caught:
        rewards.score([row(prompt=[{"role": "user", "content": "2+2="}])], ["4"])
    assert caught.value.hint.startswith("a completion is a list of messages here: use completion[0]['content']")
    assert rewards.score([row(prompt="2+2=")], ["4"]) == [{"reward": 1.0, "reward_f": 1.0}]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("return [1 / ('bad' not in c) for c in completions]", "raised ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "raised SystemExit: 3"),
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
def test_errors_of_functions_name_the_sample(tmp_path: Path, body: str, problem: str) -> None:
    message = error_message(write_reward(tmp_path, body), step=7, completions=["good", "bad", "good"])
    assert problem in message
    assert "mine.py:f, step 7: it" in message
    if "'bad'" in body and "raised" not in problem:
        assert "sample a.csv:2: prompt 'prompt 2', completion 'badxxx" in message
        assert "x" * 250 not in message


def test_the_error_of_a_too_large_sum_names_the_sample(tmp_path: Path) -> None:
    name = write_reward(tmp_path, "return [len(c) * 1e17 for c in completions]")
    rewards = Rewards(defaults(rewards=[name, "length"], reward_weights=["1", "1e300"], max_completion_length=2))
    rows = [row(source="a.csv:1")]
    assert rewards.score(rows, ["good"], completion_ids=[[1]])[0]["reward"] == 4e17
    with pytest.raises(BadInput, match=r"f \+ length, .*: it has the sum -1e\+300; sample a.csv:1"):
        rewards.score(rows, ["good"], completion_ids=[[1, 2]])


def test_a_function_that_raises_is_called_once(tmp_path: Path) -> None:
    """A reward may count, pay or wait for each call."""
    called = tmp_path / "called"
    (tmp_path / "counted.py").write_text(f"from pathlib import Path\nFILE = Path({str(called)!r})\n")
    body = "from counted import FILE; FILE.write_text(FILE.read_text() + 'x'); assert not completions; return []"
    called.touch()
    message = error_message(write_reward(tmp_path, body), trainer_state=SimpleNamespace(global_step=6))
    assert called.read_text() == "x"
    assert "evaluation: it raised AssertionError" in message
    assert "mine.py:3) on the batch of 3 samples from a.csv:1 on" in message


def test_none_from_the_only_reward_is_passed_to_trl(tmp_path: Path) -> None:
    rewards = Rewards(
        defaults(rewards=[write_reward(tmp_path, "return [None if c == 'b' else 1 for c in completions]")])
    )
    assert [score["reward"] for score in rewards.score([row(), row()], ["a", "b"])] == [1.0, None]


STATEFUL = """
import random
from collections import deque

count, seen, model = 0, [], None
recent = same = deque([1.0], maxlen=9)


class Mean:
    def __init__(self):
        self.total = 0.0


mean = Mean()


def load():
    load.calls = getattr(load, "calls", 0) + 1
    return object()


def f(completions, **_):
    global count, model
    model = model or load()
    count += 1
    seen.append(completions[0])
    same.append(float(count))
    mean.total += 1
    f.calls = getattr(f, "calls", 0) + 1
    return [count + len(seen) + sum(recent) + mean.total + f.calls + random.random() for _ in completions]


class Scorer:
    def __init__(self):
        self.calls = 0

    def __call__(self, completions, **_):
        self.calls += 1
        return [self.calls] * len(completions)


scorer = Scorer()
"""


def test_an_evaluation_leaves_the_state_of_a_reward_as_it_was(tmp_path: Path) -> None:
    found = []
    for evaluations in (0, 2):
        file = tmp_path / f"stateful{evaluations}.py"
        file.write_text(STATEFUL)
        rewards = Rewards(defaults(rewards=[f"{file}:f", f"{file}:scorer"]))
        random.seed(3)
        values = []
        for _ in range(3):
            for _ in range(evaluations):
                rewards.score([row()], ["b"], evaluation=True)
            values.append(rewards.score([row()], ["a"])[0])
        found.append(values)
    assert found[0] == found[1]
    assert found[0][0] != found[0][1]
    # Nothing that an evaluation loaded is loaded again, and the functions of a file share it.
    assert sys.modules["user_reward_of_stateful2"].load.calls == 1


def test_functions_get_columns_and_messages(tmp_path: Path) -> None:
    body = (
        "return [level * len(c[0]['content']) if level else None for level, c in zip(columns['level'], completions)]"
    )
    rewards = Rewards(defaults(rewards=[write_reward(tmp_path, body), "length"], max_completion_length=9))
    messages = [{"role": "user", "content": "hi"}]
    rows = [row(prompt=messages, columns={"level": level, "prompt": messages}) for level in (2, 0)]
    found = rewards.score(rows, ["abc", "abc"], completion_ids=[[1], [2]], trainer_state=None)
    assert found == [
        {"reward": 6.0, "reward_f": 6.0, "reward_length": 0.0},
        {"reward": 0.0, "reward_f": None, "reward_length": 0.0},
    ]


def test_a_function_may_modify_its_lists(tmp_path: Path) -> None:
    first = write_reward(tmp_path, "found = [len(c) for c in completions]; completions.clear(); return found")
    rewards = Rewards(defaults(rewards=[first, first]))
    completions = ["a", "bcd"]
    found = rewards.score([row(), row()], ["a", "bcd"], completions=completions, prompts=["p", "p"])
    assert [score["reward"] for score in found] == [2, 6]
    assert completions == ["a", "bcd"]


def test_functions_with_named_arguments_and_coroutines(tmp_path: Path) -> None:
    path = tmp_path / "other.py"
    path.write_text(
        "from settings_of_mine import UNIT\n"
        "def few(completions, level): return [UNIT * item for item in level]\n"
        "async def later(completions, log_metric, **_): log_metric('a', 1); return [1.0 for _ in completions]\n",
        "utf-8",
    )
    (tmp_path / "settings_of_mine.py").write_text("UNIT = 3\n", "utf-8")
    rewards = Rewards(defaults(rewards=[f"{path}:few", f"{path}:later"]))
    assert rewards.score([row(columns={"level": 2})], ["a"])[0]["reward"] == 7


def test_the_check_parses_the_source_without_running_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack/__init__.py").touch()
    (tmp_path / "pack/scores.py").write_text("import torch\nraise SystemExit\ndef brief(**_): ...\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    expected = [f"{tmp_path}/pack/scores.py:brief"]
    assert check_rewards(defaults(rewards=["pack.scores:brief"])) == expected
    assert check_rewards(defaults(rewards=["pack/scores.py:brief"])) == expected
    assert check_rewards(defaults(rewards=["installed.elsewhere:brief"])) == ["installed.elsewhere:brief"]
    for name, problem in (
        ("pack.scores:brif", "defines no brif (did you mean 'brief'?)"),
        ("pack/x.py:f", "No such file"),
    ):
        with pytest.raises(BadInput) as caught:
            check_rewards(defaults(rewards=[name]))
        assert problem in caught.value.message
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


def test_import_errors(tmp_path: Path) -> None:
    (tmp_path / "needs.py").write_text("import nothing_of_this_name\ndef f(**_): ...\nnumber = 3\n", "utf-8")
    for name, problem in (
        (f"{tmp_path}/needs.py:f", "No module named 'nothing_of_this_name'"),
        ("no_module_of_this_name:f", "No module named 'no_module_of_this_name'"),
        ("math:pi", "is a float"),
        ("math:nothing", "has no attribute 'nothing'"),
    ):
        with pytest.raises(BadInput) as caught:
            Rewards(defaults(rewards=[name])).score([row()], ["a"])
        assert problem in caught.value.message


def test_a_user_file_does_not_hide_a_trainer_module(tmp_path: Path) -> None:
    (tmp_path / "settings.py").write_text("def f(completions, **_): return [4.0] * len(completions)\n", "utf-8")
    assert Rewards(defaults(rewards=[f"{tmp_path}/settings.py:f"])).score([row()], ["a"])[0]["reward"] == 4
    assert Path(str(sys.modules["settings"].__file__)).samefile(TRAIN / "settings.py")


@pytest.mark.stack
def test_arrays_tensors_and_channels_in_every_stack(stack_python: Path, tmp_path: Path) -> None:
    """Scalars of numpy and torch count as numbers; harmony channels are decoded from the ids."""
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
        def score(names, texts, **arguments):
            rewards = Rewards(settings | {"rewards": names, "q_reward": "advantage"}, tokenizer)
            try:
                return rewards.score([row] * len(texts), texts, **arguments)
            except BadInput as error:
                return error.message
        bare = tokenizer.decode(ids, skip_special_tokens=True)
        report(harmony=score(["q-value"], [bare], completion_ids=[ids]), bare=bare,
            sums=score([f"{folder}/mine.py:array", f"{folder}/mine.py:tensors"], ["a", "b"]),
            wide=score([f"{folder}/mine.py:wide"], ["a", "b"]))
    """
    for python in all_stacks(stack_python):
        found = run_code(python, code, defaults(), tmp_path)
        assert "<|" not in found["bare"]
        assert found["harmony"] == [{"reward": 3.0, "reward_q_value": 3.0}]
        assert [score["reward"] for score in found["sums"]] == [3.0, 1.5]
        assert "returned tensor([1., 1.]) (Tensor) for it" in found["wide"]


DEFINITIONS = """
import math as numbers, os.path
from functools import partial as bound
def plain(): ...
async def later(): ...
class Reward: ...
lambda_: object = lambda: 0
first = second = max
pair.x, other = 1, 2
if os.name:
    def in_if(): ...
else:
    def in_else(): ...
try:
    def in_try(): ...
except ImportError:
    def in_handler(): ...
with open(os.devnull):
    def in_with(): ...
for _ in ():
    def in_loop(): ...
"""


def test_names_that_a_file_defines(tmp_path: Path) -> None:
    """Each can be a reward. The error lists the first ten of them."""
    (tmp_path / "mine.py").write_text(DEFINITIONS)
    names = [
        "numbers", "os", "bound", "plain", "later", "Reward", "lambda_", "first", "second", "in_if", "in_else",
        "in_try", "in_handler", "in_with",
    ]  # fmt: skip
    for name in names:
        assert check_user_reward(f"{tmp_path}/mine.py:{name}") == f"{tmp_path}/mine.py:{name}"
    with pytest.raises(BadInput) as caught:
        check_user_reward(f"{tmp_path}/mine.py:in_loop")
    assert "defines no in_loop" in caught.value.message
    assert caught.value.expected == f"one of its functions: {', '.join(names[:10])}"
    assert caught.value.hint == f"--set rewards={tmp_path}/mine.py:numbers"
