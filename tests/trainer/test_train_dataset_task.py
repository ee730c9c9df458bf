"""The task `dataset`: its check without torch, its scores, and its prompts with a tokenizer."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from settings import BadInput
from support.paths import TRAIN
from support.stacks import all_stacks, defaults, name_of, run_code
from support.tes_files import write_weeks
from tasks.dataset import DatasetTask, check_dataset
from tasks.tes import TesTask


def settings_of(path: Path, **changed: Any) -> dict[str, Any]:
    """Return the settings of the task for a file or folder."""
    return defaults(task="dataset", data=str(path), **changed)


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write one object per line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


@pytest.fixture
def sums(tmp_path: Path) -> Path:
    """Write thirty questions in the format of GSM8K."""
    rows = [{"question": f"What is {n} + {n}?", "answer": f"{n} + {n} = {2 * n}\n#### {2 * n}"} for n in range(30)]
    return write_jsonl(tmp_path / "sums.jsonl", rows)


def test_tes_metrics_match_the_task_tes(tmp_path: Path) -> None:
    settings = settings_of(write_weeks(tmp_path), reward_weights=[])
    task, tiny = DatasetTask(settings), TesTask(settings)
    assert [row["source"] for row in task.held_out] == [row["source"] for row in tiny.held_out]
    rng = random.Random(0)
    texts = [rng.choice(["[0]", "[1]", "[2]", "[3]", "no"]) for _ in task.held_out]
    scores, expected = task.score(task.held_out, texts), tiny.score(tiny.held_out, texts)
    for score, other in zip(scores, expected, strict=True):
        assert {key: score[key] for key in other} == other
        assert score["reward_q_value"] == score["reward"]
        assert set(task.generation_fields) <= set(score)
    numbers = task.summarise(scores)
    assert {key: numbers[key] for key in tiny.summarise(expected)} == pytest.approx(tiny.summarise(expected))
    assert set(task.smoothed) <= set(numbers)
    assert task.headline == ["greedy_mean_regret", "sampled_mean_regret"]


def test_the_check_resolves_local_models(tmp_path: Path, sums: Path) -> None:
    def check(model: str) -> dict[str, Any]:
        request = {"recipe": "gsm8k", "settings": {"data": str(sums), "model": model, "prompts_per_step": 8}}
        done = subprocess.run(
            [sys.executable, "-B", str(TRAIN / "grpo.py"), "--check"], input=json.dumps(request), cwd=tmp_path,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return dict(json.loads(done.stdout))

    (tmp_path / "mine").mkdir()
    assert check("./mine")["settings"]["model"] == str(tmp_path / "mine")
    assert check("Qwen/Qwen2.5-0.5B-Instruct")["settings"]["model"] == "Qwen/Qwen2.5-0.5B-Instruct"
    for missing in ("./nowhere", "~no-such-user/model"):
        assert check(missing)["error"]["message"] == f"settings: model = {missing}: it is not a directory"


def test_fewer_rows_than_a_step_needs_are_refused(sums: Path) -> None:
    _, summary = check_dataset(settings_of(sums, prompts_per_step=27))
    assert summary["train_rows"] == 27
    with pytest.raises(BadInput, match=r"27 training prompts \(.*sums\.jsonl\), prompts_per_step = 28") as caught:
        check_dataset(settings_of(sums, prompts_per_step=28))
    assert "prompts_per_step=27" in caught.value.hint


def test_tes_baselines_match_the_task_tes(tmp_path: Path) -> None:
    settings = settings_of(write_weeks(tmp_path))
    found, expected = DatasetTask(settings).baselines(), TesTask(settings).baselines()
    assert list(found) == list(expected)
    for name, numbers in found.items():
        assert numbers["mean_regret"] == pytest.approx(expected[name]["mean_regret"])
        assert numbers["accuracy"] == pytest.approx(expected[name]["accuracy"])
        assert numbers["reward_q_value"] == pytest.approx(expected[name]["reward"])


def test_gsm8k_has_a_default_reward_and_metrics(sums: Path) -> None:
    task = DatasetTask(settings_of(sums))
    assert (len(task.train), len(task.held_out)) == (27, 3)
    assert task.train[0]["prompt"].startswith("What is")
    row = task.held_out[0]
    scores = task.score([row] * 3, [f"#### {row['reference']}.0", "#### 1001", "no"])
    assert task.summarise(scores) == pytest.approx(
        {"reward": 1 / 3, "reward_gsm8k": 1 / 3, "exact_match": 1 / 3, "parse_rate": 2 / 3}
    )
    assert scores[1]["answer"] == "1001"
    assert set(task.generation_fields) <= set(scores[0])
    assert task.baselines() == {}


def test_the_summary_of_no_scores_has_every_metric(sums: Path) -> None:
    task = DatasetTask(settings_of(sums, rewards=["gsm8k", "format:.*", "length"]))
    assert list(task.summarise([])) == [
        "reward", "reward_gsm8k", "reward_format", "reward_length", "exact_match", "parse_rate",
    ]  # fmt: skip


def test_rows_need_a_reward_and_may_have_an_answer_column(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [{"prompt": f"p{n}", "target": n / 2} for n in range(20)])
    with pytest.raises(BadInput, match="rewards is empty, and the columns prompt, target imply no default reward"):
        check_dataset(settings_of(path))
    task = DatasetTask(settings_of(path, rewards=["gsm8k"], answer_column="target"))
    assert task.headline == ["greedy_exact_match", "sampled_exact_match"]
    with pytest.raises(BadInput, match=r"a.jsonl:1, column answer: None"):
        check_dataset(settings_of(path, rewards=["gsm8k"]))
    with pytest.raises(BadInput, match="no action values"):
        check_dataset(settings_of(path, rewards=["q-value"]))
    assert DatasetTask(settings_of(path, rewards=["format:a"])).headline == ["greedy_reward", "sampled_reward"]


def test_rows_with_action_values_in_any_data(tmp_path: Path) -> None:
    rows = [{"prompt": f"p{n}", **{f"q_action_{a}": -abs(a - n % 4) for a in range(4)}} for n in range(20)]
    task = DatasetTask(settings_of(write_jsonl(tmp_path / "a.jsonl", rows)))
    assert task.settings["rewards"] == ["q-value"]
    assert list(task.baselines()) == ["uniform_random", "always_0", "best_constant_of_training"]
    rows[4]["q_action_1"] = "x"
    with pytest.raises(BadInput, match="line 5, column q_action_1: 'x'"):
        check_dataset(settings_of(write_jsonl(tmp_path / "a.jsonl", rows)))


def test_builtin_sums_are_right_and_held_out_in_both_orders() -> None:
    task = DatasetTask(settings_of(Path("builtin:addition"), rewards=["gsm8k"]))
    numbers = {
        part: [tuple(map(int, re.findall(r"\d+", row["prompt"][0]["content"]))) for row in rows]
        for part, rows in (("train", task.train), ("held_out", task.held_out))
    }
    both = numbers["train"] + numbers["held_out"]
    assert {tuple(sorted(pair)) for pair in both} == {(a, b) for a in range(10, 100) for b in range(a, 100)}
    assert len(both) == 4095
    assert len(numbers["held_out"]) == 410
    assert [row["reference"] for row in task.train] == [a + b for a, b in numbers["train"]]
    assert 0.4 < sum(a < b for a, b in both) / len(both) < 0.6
    (a, b), row = numbers["train"][0], task.train[0]
    texts = [str(a + b), f"{a} + {b} = {a + b}", str(a + b + 1), "no"]
    assert [score["reward"] for score in task.score([row] * 4, texts)] == [1, 1, 0, 0]


def test_an_unknown_name_of_builtin_rows_is_refused() -> None:
    with pytest.raises(BadInput, match="settings: data = builtin:adition") as caught:
        check_dataset(settings_of(Path("builtin:adition")))
    assert caught.value.hint == "--set data=builtin:addition"


def test_the_check_makes_paths_absolute_and_counts(sums: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(sums.parent)
    (sums.parent / "mine.py").write_text("def f(**_): ...\n", "utf-8")
    settings, summary = check_dataset(settings_of(Path("sums.jsonl"), rewards=["mine:f", "gsm8k"]))
    assert settings["data"] == str(sums)
    assert settings["rewards"] == [f"{sums.parent}/mine.py:f", "gsm8k"]
    assert (summary["train_rows"], summary["held_out_rows"], summary["format"]) == (27, 3, "gsm8k")
    json.dumps(summary)
    assert check_dataset(settings)[1] == summary  # checking twice changes nothing


def test_the_check_defers_data_that_only_the_run_can_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)  # the tool's own Python has no pyarrow
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    for data in (tmp_path, "openai/gsm8k:main"):
        _, summary = check_dataset(settings_of(data))
        assert summary["note"].endswith("its columns are checked when the run starts")


@pytest.mark.stack
def test_prompts_with_a_tokenizer_in_every_stack(stack_python: Path, sums: Path) -> None:
    code = """
        from tokenizers import Tokenizer, models, pre_tokenizers
        from transformers import PreTrainedTokenizerFast
        from tasks.dataset import DatasetTask
        from settings import BadInput
        words = {word: n for n, word in enumerate(["<unk>", "</s>", "user:", "system:", "A:"])}
        backend = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
        backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", eos_token="</s>")
        tokenizer.chat_template = (
            "{% for m in messages %}{{ m.role }}: {{ m.content }} {% endfor %}"
            "{% if add_generation_prompt %}A:{% endif %}")
        def use(context=0, **changed):
            task = DatasetTask(given[0] | changed)
            try:
                report = task.use_tokenizer(tokenizer, context)
            except BadInput as error:
                return error.as_record()
            first = task.train[0]["prompt"]
            return [report, first, task.settings["max_completion_length"], len(task.train), len(task.held_out),
                    task.summary["train_rows"]]
        length = DatasetTask(given[0] | {"rewards": ["length"], "max_completion_length": 5})
        length.use_tokenizer(tokenizer)
        report(messages=use(system_prompt="be kind", max_seq_length=40, max_completion_length=0),
            text=use(chat="text", context=300), long=use(max_prompt_length=3),
            none=use(max_prompt_length=3, overlong="filter"),
            cut=use(max_prompt_length=2, overlong="truncate", chat="text"),
            length=length.score(length.train[:1], ["a b c d e f"]))
    """
    for python in all_stacks(stack_python):
        found, name = run_code(python, dedent(code), settings_of(sums)), name_of(python)
        report, first, completion, train, held_out, counted = found["messages"]
        assert [message["role"] for message in first] == ["system", "user"], name
        # system: be kind user: What is 3 + 3? A:
        assert (report["form"], report["longest"], completion) == ("messages", 10, 30), name
        assert (train, held_out, counted) == (27, 3, 27)
        report, first, completion, *_ = found["text"]
        assert (report["form"], report["longest"], report["window"], completion) == ("text", 5, 300, 256), name
        assert isinstance(first, str)
        assert "30 of 30 prompts have more than 3 tokens" in found["long"]["message"]
        assert "none would be left" in found["none"]["message"]
        # Every unknown word decodes to <unk>, so all truncated prompts are equal.
        assert "equals a held-out prompt" in found["cut"]["message"], found["cut"]
        assert found["length"][0]["reward"] == -1
