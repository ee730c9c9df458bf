"""Rows of a person's data: every kind of file, every way to be wrong, and halves that share no prompt."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import pytest
from data.files import find_source
from data.rows import read_rows
from data.split import split_rows
from settings import BadInput
from stacks import all_stacks, defaults, run_code
from tes_files import HARMONY, make_rows, write_rows, write_weeks


def read(path: Path | str, **changed: Any) -> tuple[str, list[dict[str, Any]], dict[str, Any]]:
    """Format, rows and summary of a file or folder."""
    settings = defaults(task="dataset", data=str(path), **changed)
    return read_rows(find_source(str(path), settings["data_format"]), settings)


def split(path: Path | str, **changed: Any) -> Any:
    """The two halves of a file or folder."""
    form, rows, _ = read(path, **changed)
    return split_rows(rows, defaults(task="dataset", data=str(path), **changed), form)


def write(path: Path, text: str) -> Path:
    """A file with this text."""
    path.write_text(text, encoding="utf-8")
    return path


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    """One object a line."""
    return write(path, "".join(json.dumps(row) + "\n" for row in rows))


def refuse(path: Path | str, **changed: Any) -> BadInput:
    """The error that reading gives."""
    with pytest.raises(BadInput) as caught:
        read(path, **changed)
    assert caught.value.expected
    assert caught.value.hint
    return caught.value


def test_a_name_that_is_not_text_is_refused_before_a_row_is_read(tmp_path: Path) -> None:
    name = os.fsdecode(bytes(tmp_path) + b"/a\xff.csv")
    write_rows(Path(name), make_rows("2025-05-05"))
    for data in (name, str(tmp_path)):
        assert "a\\udcff.csv' is not UTF-8" in refuse(data).message


def test_csv_keeps_every_column_and_says_where_a_row_is_from(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", '\ufeffprompt,group,source\r\n"one, two\nthree",x,web\r\nfour,y,book\r\n')
    form, rows, _ = read(path)
    assert form == "rows"
    assert [row["prompt"] for row in rows] == ["one, two\nthree", "four"]
    assert rows[1]["source"] == "a.csv:2"
    assert rows[1]["columns"] == {"prompt": "four", "group": "y", "source": "book"}


def test_jsonl_with_messages_and_columns_that_come_and_go(tmp_path: Path) -> None:
    talk = [{"role": "system", "content": "be short", "name": None}, {"role": "user", "content": "hi"}]
    path = write_jsonl(tmp_path / "a.jsonl", [{"prompt": talk, "level": 1}, {"prompt": talk[1:], "tag": "t"}])
    _, rows, _ = read(path)
    assert rows[0]["prompt"] == [{"role": "system", "content": "be short"}, {"role": "user", "content": "hi"}]
    assert [row["columns"]["level"] for row in rows] == [1, None]
    assert [row["columns"]["tag"] for row in rows] == [None, "t"]


def test_messages_in_a_csv_cell_are_json(tmp_path: Path) -> None:
    with (tmp_path / "a.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["prompt"], ['[{"role": "user", "content": "hi"}]'], ['[{"role": "user", "con']])
    error = refuse(tmp_path / "a.csv")
    assert "row 2" in error.message
    assert "begins as a list of messages and is not JSON" in error.message
    write(tmp_path / "b.csv", "prompt\n[1] is a list of numbers\n[2] another\n")
    assert read(tmp_path / "b.csv")[1][0]["prompt"] == "[1] is a list of numbers"


def test_gsm8k_by_its_columns(tmp_path: Path) -> None:
    rows = [{"question": f"{n} + {n}?", "answer": f"so {n * 2}\n#### {n * 2:,}"} for n in (1, 700)]
    form, read_back, _ = read(write_jsonl(tmp_path / "a.jsonl", rows))
    assert form == "gsm8k"
    assert [row["reference"] for row in read_back] == [2, 1400]
    rows.append({"question": "why?", "answer": "because"})
    error = refuse(write_jsonl(tmp_path / "a.jsonl", rows))
    assert "line 3, column answer: 'because'" in error.message


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "", "is empty"),
        ("a.csv", "prompt\n", "has no rows"),
        ("a.csv", "prompt,prompt\na,b\n", "names the column 'prompt' twice"),
        ("a.csv", "prompt,x\na,b\nc\n", "row 2 (ends at line 3) has 1 cells, the header has 2"),
        ("a.csv", "prompt,x\na,b\n  ,b\n", "row 2 (ends at line 3), column prompt is empty"),
        ("a.csv", 'prompt,x\n"a"b,c\n', "is not a CSV file: line 2"),
        ("a.csv", "promt,x\na,b\n", "lacks the column prompt (did you mean 'promt'?)"),
        ("a.csv", "prompt;x\na;b\n", "lacks the column prompt"),
        ("a.jsonl", '{"prompt": "a"}\n{"prompt": }\n', "line 2 is not JSON: Expecting value"),
        ("a.jsonl", '\n["a"]\n', "line 2 holds a list"),
        ("a.jsonl", '{"prompt": "a", "prompt": "b"}\n', "the key 'prompt' stands twice"),
        ("a.jsonl", '{"prompt": "a"}\n{"promt": "b"}\n', "line 2, column prompt holds None"),
        ("a.jsonl", '{"prompt": 3}\n', "column prompt holds 3"),
        ("a.jsonl", '{"prompt": "\\ud83d"}\n', "which no text encoding has"),
        ("a.jsonl", '{"prompt": []}\n', "is an empty list"),
        ("a.jsonl", '{"prompt": [{"role": "boss", "content": "a"}]}\n', "message 1: {'role': 'boss'"),
        ("a.jsonl", '{"prompt": [{"role": "user", "content": ""}]}\n', "message 1: content is ''"),
        ("a.jsonl", '{"prompt": [{"role": "assistant", "content": "a"}]}\n', "the last message is the assistant's"),
        ("a.jsonl", '{"prompt": [{"role": "user", "content": "a", "tool_calls": [1]}]}\n', "has tool_calls"),
        ("a.jsonl", '{"prompt": "a"}\n{"prompt": [{"role": "user", "content": "a"}]}\n', "messages, a.jsonl:1 text"),
        ("a.jsonl", "[" * 100_000, "line 1 is n"),
        ("a.json", "[]", "files named *.json are not read"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, name: str, text: str, said: str) -> None:
    assert said in refuse(write(tmp_path / name, text)).message


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("prompt\nlöss\n".encode("latin-1"))
    assert "is not UTF-8 text: byte 0xf6" in refuse(tmp_path / "a.csv").message
    (tmp_path / "a.jsonl").write_bytes("\ufeff{}".encode("utf-16-le"))
    assert "is not UTF-8 text: byte 0xff" in refuse(tmp_path / "a.jsonl").message


def test_semicolons_are_named(tmp_path: Path) -> None:
    assert "separated by commas" in refuse(write(tmp_path / "a.csv", "prompt;x\na;b\n")).hint


def test_a_prompt_longer_than_the_csv_module_takes_by_itself(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "prompt\n" + "x" * 200_000 + "\n")
    assert len(read(tmp_path / "a.csv")[1][0]["prompt"]) == 200_000


def test_folders_hold_one_kind(tmp_path: Path) -> None:
    write(tmp_path / "README.md", "notes")
    assert "no file to read (1 entries: README.md)" in refuse(tmp_path).message
    write_jsonl(tmp_path / "b.jsonl", [{"prompt": "b"}])
    write_jsonl(tmp_path / "a.jsonl", [{"prompt": "a"}])
    _, rows, summary = read(tmp_path)
    assert [row["source"] for row in rows] == ["a.jsonl:1", "b.jsonl:1"]
    assert summary["files"] == ["a.jsonl", "b.jsonl"]
    assert len(read(tmp_path / "b*.jsonl")[1]) == 1
    write(tmp_path / "c.csv", "prompt\nc\n")
    assert "1 csv, 2 jsonl" in refuse(tmp_path).message


@pytest.mark.parametrize("name", ["nowhere.csv", "/nowhere/at/all", "a b", "", "data/x/y"])
def test_paths_that_do_not_exist(name: str) -> None:
    assert "settings: data" in refuse(name).message


def test_any_other_name_is_a_dataset_of_the_hub() -> None:
    for name in ("gsm8k", "openai/gsm8k", "openai/gsm8k:main"):
        source = find_source(name, "auto")
        assert (source.kind, source.waits_for_the_run) == ("hub", True)


def test_tes_keeps_the_prompt_as_it_was_written(tmp_path: Path) -> None:
    form, rows, summary = read(write_weeks(tmp_path))
    assert form == "tes"
    assert rows[0]["prompt"] == make_rows("2025-04-14", 0)[0]["prompt"]
    assert rows[0]["key"] == "2025-04-14T08"
    assert len(rows[0]["q"]) == 4
    assert "q_action_3" in rows[0]["columns"]
    assert summary["ignored_twins"] == ["week_05-05_q_dataset_harmony.csv"]


def test_harmony_twins_are_chosen_by_a_pattern(tmp_path: Path) -> None:
    write_weeks(tmp_path)
    _, rows, _ = read(tmp_path / "*_harmony.csv")
    assert len(rows) == 10
    assert rows[0]["prompt"].endswith("<|start|>assistant")


def test_twins_of_a_week_never_stand_on_both_sides(tmp_path: Path) -> None:
    write_weeks(tmp_path)
    for held_out in ("", "share=0.3", "05-05_q_dataset.csv", "optimal_action=0"):
        halves = split(tmp_path / "*.csv", held_out=held_out)  # the pattern takes the twins, too
        assert {row["key"] for row in halves.held_out}.isdisjoint(row["key"] for row in halves.train)
    halves = split(tmp_path / "*.csv", held_out="05-05_q_dataset.csv")
    assert halves.summary["dropped_shared_rows"] == 10  # its harmony twin
    assert halves.summary["train_rows"] == 20


def test_of_one_week_the_last_day_is_held_out(tmp_path: Path) -> None:
    rows = [*make_rows("2025-05-05", 1), *make_rows("2025-05-06", 2)]
    path = write_rows(tmp_path / "week_q_dataset.csv", rows)
    assert split(path).summary["held_out"] == "day 2025-05-06"
    assert split(path, held_out="05-05").summary["held_out"] == "day 2025-05-05"


def test_tes_columns_are_read_as_strictly_as_the_task_tes_does(tmp_path: Path) -> None:
    rows = make_rows("2025-05-05", 1, HARMONY)
    rows[3]["q_action_2"] = "nan"
    assert "row 4" in refuse(write_rows(tmp_path / "week_q_dataset.csv", rows)).message


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """Twenty prompts, each twice, in two files, in four topics."""
    for name in ("first", "second"):
        rows = [{"prompt": f"prompt {n}", "topic": f"t{n % 4}", "hard": n > 9} for n in range(20)]
        write_jsonl(tmp_path / f"{name}.jsonl", rows)
    return tmp_path


def test_a_share_is_of_distinct_prompts(pairs: Path) -> None:
    halves = split(pairs, held_out="share=0.2", seed=3)
    assert (len(halves.train), len(halves.held_out)) == (32, 8)
    assert {row["prompt"] for row in halves.train}.isdisjoint(row["prompt"] for row in halves.held_out)
    assert halves == split(pairs, held_out="share=0.2", seed=3)
    assert halves.held_out != split(pairs, held_out="share=0.2", seed=4).held_out
    assert len(split(pairs).held_out) == 4  # share=0.1 unless told


def test_a_file_is_held_out_and_its_prompts_leave_the_training(pairs: Path) -> None:
    write_jsonl(pairs / "third.jsonl", [{"prompt": "alone"}, {"prompt": "prompt 0"}])
    halves = split(pairs, held_out="file=third")
    assert [row["prompt"] for row in halves.held_out] == ["alone", "prompt 0"]
    assert halves.summary["dropped_shared_rows"] == 2
    assert halves.summary == split(pairs, held_out="third").summary


def test_a_group_is_held_out(pairs: Path) -> None:
    halves = split(pairs, held_out="topic=t1")
    assert {row["columns"]["topic"] for row in halves.held_out} == {"t1"}
    assert len(halves.train) == 30
    assert len(split(pairs, held_out="hard=true").held_out) == 20


def test_a_value_to_hold_out_is_named_as_the_shell_takes_it(tmp_path: Path) -> None:
    rows = [{"prompt": f"p{n}", "topic": f"the {n}th topic; a long one, with many words"} for n in (1, 2)]
    with pytest.raises(BadInput) as caught:
        split(write_jsonl(tmp_path / "a.jsonl", rows), held_out="topic=none")
    assert caught.value.hint == "--set 'held_out=topic=the 2th topic; a long one, with many words'"


@pytest.mark.parametrize(
    ("held_out", "said", "expected"),
    [
        ("share=2", "share=2", "between 0 and 1"),
        ("share=x", "share=x", "between 0 and 1"),
        ("file=third", "matches no file", "first.jsonl, second.jsonl"),
        ("sec", "nothing is left to train on", "both sides"),
        ("topik=t1", "no column 'topik' (did you mean 'topic'?)", "prompt, topic, hard"),
        ("topic=t9", "no row has it", "t0, t1, t2, t3"),
    ],
)
def test_what_cannot_be_held_out(pairs: Path, held_out: str, said: str, expected: str) -> None:
    with pytest.raises(BadInput) as caught:
        split(pairs, held_out=held_out)
    assert said in caught.value.message
    assert expected in caught.value.expected


def test_one_prompt_cannot_be_split(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="1 distinct prompt"):
        split(write_jsonl(tmp_path / "a.jsonl", [{"prompt": "a"}, {"prompt": " a\n"}]))


def test_caps_are_drawn_by_the_seed(pairs: Path) -> None:
    halves = split(pairs, held_out="share=0.5", train_rows=7, held_out_rows=3)
    assert (len(halves.train), len(halves.held_out)) == (7, 3)
    assert (halves.summary["train_rows"], halves.summary["train_rows_there"]) == (7, 20)
    other = split(pairs, held_out="share=0.5", train_rows=7, held_out_rows=3, seed=2)
    assert [row["source"] for row in other.train] != [row["source"] for row in halves.train]


@pytest.mark.stack
def test_parquet_and_the_hub_in_every_stack(stack_python: Path, tmp_path: Path) -> None:
    code = """
        import pyarrow, pyarrow.parquet
        from pathlib import Path
        from data.files import find_source
        from data.rows import read_rows
        from settings import BadInput
        folder, settings = Path(given[0]), given[1]
        talk = [{"role": "user", "content": "hi"}]
        table = pyarrow.table({"prompt": [talk] * 3000, "level": list(range(3000))})
        pyarrow.parquet.write_table(table, folder / "a.parquet")
        def read(data):
            try:
                return read_rows(find_source(str(data), "auto"), settings)
            except BadInput as error:
                return error.as_record()
        form, rows, summary = read(folder / "a.parquet")
        (folder / "b.parquet").write_bytes((folder / "a.parquet").read_bytes()[:900])
        broken, hub = read(folder / "b.parquet"), read("openai/gsm8k:main")
        say(form=form, count=len(rows), last=rows[-1], broken=broken, hub=hub)
    """
    for python in all_stacks(stack_python):
        found = run_code(python, code, tmp_path, defaults(task="dataset"))
        assert (found["form"], found["count"]) == ("rows", 3000)
        assert found["last"]["prompt"] == [{"role": "user", "content": "hi"}]
        assert (found["last"]["source"], found["last"]["columns"]["level"]) == ("a.parquet:3000", 2999)
        assert "is not a Parquet file" in found["broken"]["message"]
        assert "openai/gsm8k:main (split train)" in found["hub"]["message"]
        assert "load_dataset('openai/gsm8k', 'main', split='train')" in found["hub"]["hint"]
