"""GSM8K's rows in verl's own form; what is wrong with a row is told by its place."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from settings import BadInput, read_recipe, resolve_settings
from verl_engine.check import FILE, find_conflicts
from verl_engine.dataset import check_data, count_steps, find_sources, read_halves, verl_row

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


def settings(task: str, data: Path, **given: Any) -> dict[str, Any]:
    changes = {"data": str(data), **given}
    return resolve_settings(read_recipe(f"verl-{task}"), changes, file=FILE, find_conflicts=find_conflicts)


def halves(settled: dict[str, Any]) -> tuple[list[Any], list[Any], dict[str, Any]]:
    settled, sources = find_sources(settled)
    return read_halves(settled, sources)


def verl_rows(settled: dict[str, Any]) -> list[Any]:
    return [verl_row(row, "train", at, settled) for at, row in enumerate(halves(settled)[0])]


def problem(settled: dict[str, Any]) -> str:
    with pytest.raises(BadInput) as caught:
        verl_rows(settled)
    assert caught.value.expected
    assert caught.value.hint
    return caught.value.message


def test_a_row_has_what_verls_trainers_and_its_reward_read(tmp_path: Path) -> None:
    settled = settings("ppo", write(tmp_path / "rows.jsonl", ROWS))
    train, held_out, _ = halves(settled)
    assert len(train) + len(held_out) == 20
    row = verl_row(train[0], "train", 7, settled)
    question, answer = train[0]["columns"]["question"], train[0]["columns"]["answer"]
    assert row == {
        "data_source": "openai/gsm8k",
        "prompt": [{"role": "user", "content": f"{question} {settled['instruction']}"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": re.sub(r"\D", "", answer)},
        "extra_info": {"split": "train", "index": 7, "question": question, "answer": answer},
    }


def test_sft_has_the_same_question_and_answer_as_messages_and_in_extra_info(tmp_path: Path) -> None:
    settled = settings("sft", write(tmp_path / "rows.jsonl", ROWS))
    row = verl_row(halves(settled)[0][0], "train", 0, settled)
    assert row["messages"] == [
        {"role": "user", "content": row["extra_info"]["question"]},
        {"role": "assistant", "content": row["extra_info"]["answer"]},
    ]


def test_held_out_rows_come_from_a_file_and_their_questions_leave_the_training_rows(tmp_path: Path) -> None:
    data, others = write(tmp_path / "rows.jsonl", ROWS), write(tmp_path / "test.jsonl", ROWS[:3])
    train, held_out, summary = halves(settings("ppo", data, held_out_data=str(others), train_rows=10))
    assert (len(train), len(held_out), summary) == (10, 3, {"dropped_shared_rows": 3})
    assert "beside held_out_data" in problem(settings("ppo", data, held_out_data=str(others), held_out="share=0.5"))
    assert "no question that is not held out" in problem(settings("ppo", others, held_out_data=str(data)))


@pytest.mark.parametrize(
    ("row", "seen"),
    [
        ({"question": "How many?", "answer": "seven"}, "'seven'"),
        ({"question": "How many?", "answer": "#### 3/4 of it"}, None),
        ({"question": "How many?", "answer": "#### $5"}, "rows.jsonl:21"),
        ({"question": "How many?"}, "line 21"),
        ({"question": " ", "answer": "#### 5"}, "is empty"),
        ({"question": ["How?"], "answer": "#### 5"}, "message 1"),
        ("{", "line 21 is not JSON"),
        ("[1]", "line 21 holds a list"),
    ],
)
def test_a_row_that_verls_reward_could_never_give_one_for_is_told(tmp_path: Path, row: Any, seen: str | None) -> None:
    data = write(tmp_path / "rows.jsonl", [*ROWS, row])
    every = write(tmp_path / "test.jsonl", [{"question": "Another?", "answer": "#### 1"}])
    settled = settings("ppo", data, held_out_data=str(every))
    if seen is None:  # "#### 3" is what verl finds there, and what it compares with
        train, _, _ = halves(settled)
        assert verl_row(train[-1], "train", 20, settled)["reward_model"]["ground_truth"] == "3"
    else:
        assert seen in problem(settled)


def test_the_check_counts_steps_as_verl_does_and_names_files_absolutely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "rows.jsonl", ROWS)
    monkeypatch.chdir(tmp_path)
    settled, summary = check_data(settings("sft", Path("rows.jsonl"), prompts_per_step=4))
    assert settled["data"] == str(tmp_path / "rows.jsonl")
    assert (summary["train_rows"], summary["held_out_rows"]) == (18, 2)
    assert count_steps(settled, 18) == 8  # 4 full batches an epoch, two epochs
    assert count_steps(settled | {"steps": 3}, 18) == 3
    with pytest.raises(BadInput, match="3 training rows for prompts_per_step = 4"):
        count_steps(settled, 3)


def test_a_hub_dataset_is_looked_at_when_the_run_starts() -> None:
    settled = resolve_settings(read_recipe("verl-ppo"), {}, file=FILE, find_conflicts=find_conflicts)
    _, summary = check_data(settled)
    assert summary == {"files": ["openai/gsm8k:main"], "note": "the rows are looked at when the run starts"}
