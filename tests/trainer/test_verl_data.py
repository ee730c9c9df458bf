"""GSM8K rows in verl's format; errors name the location of the row."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from settings import BadInput, read_recipe, resolve_settings
from verl_engine.check import FILE, find_conflicts
from verl_engine.dataset import check_data, count_steps, find_sources, read_split, verl_row

ROWS = [
    {
        "question": f"Tom has {number} apples and buys {number + 1}. How many?",
        "answer": f"Sum.\n#### {1000 + number:,}",
    }
    for number in range(20)
]


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def settings(task: str, data: Path, **changed: Any) -> dict[str, Any]:
    changes = {"data": str(data), **changed}
    return resolve_settings(read_recipe(f"verl-{task}"), changes, file=FILE, find_conflicts=find_conflicts)


def split_of(resolved: dict[str, Any]) -> tuple[list[Any], list[Any], dict[str, Any]]:
    resolved, sources = find_sources(resolved)
    return read_split(resolved, sources)


def verl_rows(resolved: dict[str, Any]) -> list[Any]:
    return [verl_row(row, "train", index, resolved) for index, row in enumerate(split_of(resolved)[0])]


def error_message(resolved: dict[str, Any]) -> str:
    with pytest.raises(BadInput) as caught:
        verl_rows(resolved)
    assert caught.value.expected
    assert caught.value.hint
    return caught.value.message


def test_a_row_has_the_fields_of_verl(tmp_path: Path) -> None:
    resolved = settings("ppo", write(tmp_path / "rows.jsonl", ROWS))
    train, held_out, _ = split_of(resolved)
    assert len(train) + len(held_out) == 20
    row = verl_row(train[0], "train", 7, resolved)
    question, answer = train[0]["columns"]["question"], train[0]["columns"]["answer"]
    assert row == {
        "data_source": "openai/gsm8k",
        "prompt": [{"role": "user", "content": f"{question} {resolved['instruction']}"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": re.sub(r"\D", "", answer)},
        "extra_info": {"split": "train", "index": 7, "question": question, "answer": answer},
    }


def test_sft_rows_have_messages_and_extra_info(tmp_path: Path) -> None:
    resolved = settings("sft", write(tmp_path / "rows.jsonl", ROWS))
    row = verl_row(split_of(resolved)[0][0], "train", 0, resolved)
    assert row["messages"] == [
        {"role": "user", "content": row["extra_info"]["question"]},
        {"role": "assistant", "content": row["extra_info"]["answer"]},
    ]


def test_questions_of_held_out_data_are_dropped_from_training(tmp_path: Path) -> None:
    data, others = write(tmp_path / "rows.jsonl", ROWS), write(tmp_path / "test.jsonl", ROWS[:3])
    train, held_out, summary = split_of(settings("ppo", data, held_out_data=str(others), train_rows=10))
    assert (len(train), len(held_out), summary) == (10, 3, {"dropped_shared_rows": 3})
    assert "cannot be combined with held_out_data" in error_message(
        settings("ppo", data, held_out_data=str(others), held_out="share=0.5")
    )
    assert "no question that is not held out" in error_message(settings("ppo", others, held_out_data=str(data)))


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"question": "How many?", "answer": "seven"}, "'seven'"),
        ({"question": "How many?", "answer": "#### 3/4 of it"}, None),
        ({"question": "How many?", "answer": "#### $5"}, "rows.jsonl:21"),
        ({"question": "How many?"}, "line 21"),
        ({"question": " ", "answer": "#### 5"}, "is empty"),
        ({"question": ["How?"], "answer": "#### 5"}, "message 1"),
        ("{", "line 21 is not JSON"),
        ("[1]", "line 21 is a JSON list"),
    ],
)
def test_rows_that_verl_cannot_reward_are_refused(tmp_path: Path, row: Any, problem: str | None) -> None:
    data = write(tmp_path / "rows.jsonl", [*ROWS, row])
    held_out = write(tmp_path / "test.jsonl", [{"question": "Another?", "answer": "#### 1"}])
    resolved = settings("ppo", data, held_out_data=str(held_out))
    if problem is None:  # verl finds "#### 3" and compares with 3
        train, _, _ = split_of(resolved)
        assert verl_row(train[-1], "train", 20, resolved)["reward_model"]["ground_truth"] == "3"
    else:
        assert problem in error_message(resolved)


def test_the_check_counts_steps_and_makes_paths_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "rows.jsonl", ROWS)
    monkeypatch.chdir(tmp_path)
    resolved, summary = check_data(settings("sft", Path("rows.jsonl"), prompts_per_step=4))
    assert resolved["data"] == str(tmp_path / "rows.jsonl")
    assert (summary["train_rows"], summary["held_out_rows"]) == (18, 2)
    assert count_steps(resolved, 18) == 8  # 4 full batches per epoch, two epochs
    assert count_steps(resolved | {"max_steps": 3}, 18) == 3
    with pytest.raises(BadInput, match="3 training rows for prompts_per_step = 4"):
        count_steps(resolved, 3)


def test_a_hub_dataset_is_checked_when_the_run_starts() -> None:
    resolved = resolve_settings(read_recipe("verl-ppo"), {}, file=FILE, find_conflicts=find_conflicts)
    _, summary = check_data(resolved)
    assert summary == {"files": ["openai/gsm8k:main"], "note": "the rows are checked when the run starts"}
