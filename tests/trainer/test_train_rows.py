"""User data: kinds of files, errors with their location, and splits that share no prompt."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import pytest
from data.rows import read_rows
from data.sources import find_source
from data.split import split_rows
from settings import BadInput
from support.stacks import all_stacks, defaults, run_code
from support.tes_files import HARMONY, make_rows, write_rows, write_weeks


def read(path: Path | str, **changed: Any) -> tuple[str, list[dict[str, Any]], dict[str, Any]]:
    """Return (format, rows, summary) of a file or folder."""
    settings = defaults(task="dataset", data=str(path), **changed)
    return read_rows(find_source(str(path), settings["data_format"]), settings)


def split(path: Path | str, **changed: Any) -> Any:
    """Return the split of a file or folder."""
    data_format, rows, _ = read(path, **changed)
    return split_rows(rows, defaults(task="dataset", data=str(path), **changed), data_format)


def write(path: Path, text: str) -> Path:
    """Write a text file."""
    path.write_text(text, encoding="utf-8")
    return path


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write one object per line."""
    return write(path, "".join(json.dumps(row) + "\n" for row in rows))


def read_error(path: Path | str, **changed: Any) -> BadInput:
    """Return the error of reading a file or folder."""
    with pytest.raises(BadInput) as caught:
        read(path, **changed)
    assert caught.value.expected
    assert caught.value.hint
    return caught.value


def test_file_names_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    name = os.fsdecode(bytes(tmp_path) + b"/a\xff.csv")
    write_rows(Path(name), make_rows("2025-05-05"))
    for data in (name, str(tmp_path)):
        assert "a\\udcff.csv' is not UTF-8" in read_error(data).message


def test_csv_rows_have_every_column_and_their_source(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", '\ufeffprompt,group,source\r\n"one, two\nthree",x,web\r\nfour,y,book\r\n')
    data_format, rows, _ = read(path)
    assert data_format == "rows"
    assert [row["prompt"] for row in rows] == ["one, two\nthree", "four"]
    assert rows[1]["source"] == "a.csv:2"
    assert rows[1]["columns"] == {"prompt": "four", "group": "y", "source": "book"}


def test_jsonl_with_messages_and_omitted_columns(tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "be short", "name": None}, {"role": "user", "content": "hi"}]
    path = write_jsonl(tmp_path / "a.jsonl", [{"prompt": messages, "level": 1}, {"prompt": messages[1:], "tag": "t"}])
    _, rows, _ = read(path)
    assert rows[0]["prompt"] == [{"role": "system", "content": "be short"}, {"role": "user", "content": "hi"}]
    assert [row["columns"]["level"] for row in rows] == [1, None]
    assert [row["columns"]["tag"] for row in rows] == [None, "t"]


def test_messages_in_a_csv_cell_are_json(tmp_path: Path) -> None:
    with (tmp_path / "a.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["prompt"], ['[{"role": "user", "content": "hi"}]'], ['[{"role": "user", "con']])
    error = read_error(tmp_path / "a.csv")
    assert "row 2" in error.message
    assert "starts like a list of messages, but is not JSON" in error.message
    write(tmp_path / "b.csv", "prompt\n[1] is a list of numbers\n[2] another\n")
    assert read(tmp_path / "b.csv")[1][0]["prompt"] == "[1] is a list of numbers"


def test_gsm8k_is_detected_by_its_columns(tmp_path: Path) -> None:
    rows = [{"question": f"{n} + {n}?", "answer": f"so {n * 2}\n#### {n * 2:,}"} for n in (1, 700)]
    data_format, read_back, _ = read(write_jsonl(tmp_path / "a.jsonl", rows))
    assert data_format == "gsm8k"
    assert [row["reference"] for row in read_back] == [2, 1400]
    rows.append({"question": "why?", "answer": "because"})
    error = read_error(write_jsonl(tmp_path / "a.jsonl", rows))
    assert "line 3, column answer: 'because'" in error.message


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.csv", "", "is empty"),
        ("a.csv", "prompt\n", "has no rows"),
        ("a.csv", "prompt,prompt\na,b\n", "has the column 'prompt' twice"),
        ("a.csv", "prompt,x\na,b\nc\n", "row 2 (ends at line 3) has 1 cells, the header has 2"),
        ("a.csv", "prompt,x\na,b\n  ,b\n", "row 2 (ends at line 3), column prompt is empty"),
        ("a.csv", 'prompt,x\n"a"b,c\n', "is not a CSV file: line 2"),
        ("a.csv", "promt,x\na,b\n", "lacks the column prompt (did you mean 'promt'?)"),
        ("a.csv", "prompt;x\na;b\n", "lacks the column prompt"),
        ("a.jsonl", '{"chosen": "a", "rejected": "b"}\n',
            "rejected: pairs of a preferred and a rejected completion"),
        ("a.jsonl", '{"messages": []}\n', "has messages: complete conversations, which SFT trains on, and no column"),
        ("a.csv", "text\na\n", ") has text: complete texts, which SFT trains on, and no column prompt"),
        ("a.jsonl", '{"prompt": "a"}\n{"prompt": }\n', "line 2 is not JSON: Expecting value"),
        ("a.jsonl", '\n["a"]\n', "line 2 is a JSON list"),
        ("a.jsonl", '{"prompt": "a", "prompt": "b"}\n', "duplicate key 'prompt'"),
        ("a.jsonl", '{"prompt": "a"}\n{"promt": "b"}\n', "line 2, column prompt contains None"),
        ("a.jsonl", '{"prompt": 3}\n', "column prompt contains 3"),
        ("a.jsonl", '{"prompt": "\\ud83d"}\n', "which UTF-8 cannot encode"),
        ("a.jsonl", '{"prompt": []}\n', "is an empty list"),
        ("a.jsonl", '{"prompt": [{"role": "boss", "content": "a"}]}\n', "message 1: {'role': 'boss'"),
        ("a.jsonl", '{"prompt": [{"role": "user", "content": ""}]}\n', "message 1: content is ''"),
        ("a.jsonl", '{"prompt": [{"role": "assistant", "content": "a"}]}\n', "last message has the role assistant"),
        ("a.jsonl", '{"prompt": [{"role": "user", "content": "a", "tool_calls": [1]}]}\n', "has tool_calls"),
        ("a.jsonl", '{"prompt": "a"}\n{"prompt": [{"role": "user", "content": "a"}]}\n', "that of a.jsonl:1 is text"),
        ("a.jsonl", "[" * 100_000, "line 1 is n"),
        ("a.json", "[]", "files named *.json are not supported"),
    ],
)  # fmt: skip
def test_errors_name_the_location(tmp_path: Path, name: str, text: str, problem: str) -> None:
    assert problem in read_error(write(tmp_path / name, text)).message


def test_files_that_are_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("prompt\nlöss\n".encode("latin-1"))
    assert "is not UTF-8 text: byte 0xf6" in read_error(tmp_path / "a.csv").message
    (tmp_path / "a.jsonl").write_bytes("\ufeff{}".encode("utf-16-le"))
    assert "is not UTF-8 text: byte 0xff" in read_error(tmp_path / "a.jsonl").message


def test_semicolons_have_a_hint(tmp_path: Path) -> None:
    assert "separated by commas" in read_error(write(tmp_path / "a.csv", "prompt;x\na;b\n")).hint


def test_prompts_longer_than_the_default_limit_of_csv(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "prompt\n" + "x" * 200_000 + "\n")
    assert len(read(tmp_path / "a.csv")[1][0]["prompt"]) == 200_000


def test_folders_contain_one_kind(tmp_path: Path) -> None:
    write(tmp_path / "README.md", "notes")
    assert "no data file (1 entries: README.md)" in read_error(tmp_path).message
    write_jsonl(tmp_path / "b.jsonl", [{"prompt": "b"}])
    write_jsonl(tmp_path / "a.jsonl", [{"prompt": "a"}])
    _, rows, summary = read(tmp_path)
    assert [row["source"] for row in rows] == ["a.jsonl:1", "b.jsonl:1"]
    assert summary["files"] == ["a.jsonl", "b.jsonl"]
    assert len(read(tmp_path / "b*.jsonl")[1]) == 1
    write(tmp_path / "c.csv", "prompt\nc\n")
    assert "1 csv, 2 jsonl" in read_error(tmp_path).message


@pytest.mark.parametrize("name", ["nowhere.csv", "/nowhere/at/all", "a b", "", "data/x/y"])
def test_paths_that_do_not_exist(name: str) -> None:
    assert "settings: data" in read_error(name).message


def test_any_other_name_is_a_hub_dataset() -> None:
    for name in ("gsm8k", "openai/gsm8k", "openai/gsm8k:main"):
        source = find_source(name, "auto")
        assert (source.kind, source.needs_stack) == ("hub", True)


def test_tes_prompts_are_unchanged(tmp_path: Path) -> None:
    data_format, rows, summary = read(write_weeks(tmp_path))
    assert data_format == "tes"
    assert rows[0]["prompt"] == make_rows("2025-04-14", 0)[0]["prompt"]
    assert rows[0]["key"] == "2025-04-14T08"
    assert len(rows[0]["q"]) == 4
    assert "q_action_3" in rows[0]["columns"]
    assert summary["ignored_twins"] == ["week_05-05_q_dataset_harmony.csv"]


def test_harmony_copies_are_selected_by_a_pattern(tmp_path: Path) -> None:
    write_weeks(tmp_path)
    _, rows, _ = read(tmp_path / "*_harmony.csv")
    assert len(rows) == 10
    assert rows[0]["prompt"].endswith("<|start|>assistant")


def test_copies_of_a_week_are_never_split(tmp_path: Path) -> None:
    write_weeks(tmp_path)
    for held_out in ("", "share=0.3", "05-05_q_dataset.csv", "optimal_action=0"):
        parts = split(tmp_path / "*.csv", held_out=held_out)  # the pattern matches the harmony copies as well
        assert {row["key"] for row in parts.held_out}.isdisjoint(row["key"] for row in parts.train)
    parts = split(tmp_path / "*.csv", held_out="05-05_q_dataset.csv")
    assert parts.summary["dropped_shared_rows"] == 10  # its harmony copy
    assert parts.summary["train_rows"] == 20


def test_the_last_day_of_a_single_week_is_held_out(tmp_path: Path) -> None:
    rows = [*make_rows("2025-05-05", 1), *make_rows("2025-05-06", 2)]
    path = write_rows(tmp_path / "week_q_dataset.csv", rows)
    assert split(path).summary["held_out"] == "day 2025-05-06"
    assert split(path, held_out="05-05").summary["held_out"] == "day 2025-05-05"


def test_invalid_tes_columns_are_refused(tmp_path: Path) -> None:
    rows = make_rows("2025-05-05", 1, HARMONY)
    rows[3]["q_action_2"] = "nan"
    assert "row 4" in read_error(write_rows(tmp_path / "week_q_dataset.csv", rows)).message


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """Two files with the same twenty prompts in four topics."""
    for name in ("first", "second"):
        rows = [{"prompt": f"prompt {n}", "topic": f"t{n % 4}", "hard": n > 9} for n in range(20)]
        write_jsonl(tmp_path / f"{name}.jsonl", rows)
    return tmp_path


def test_a_share_counts_distinct_prompts(pairs: Path) -> None:
    parts = split(pairs, held_out="share=0.2", seed=3)
    assert (len(parts.train), len(parts.held_out)) == (32, 8)
    assert {row["prompt"] for row in parts.train}.isdisjoint(row["prompt"] for row in parts.held_out)
    assert parts == split(pairs, held_out="share=0.2", seed=3)
    assert parts.held_out != split(pairs, held_out="share=0.2", seed=4).held_out
    assert len(split(pairs).held_out) == 4  # the default is share=0.1


def test_prompts_of_a_held_out_file_are_dropped_from_training(pairs: Path) -> None:
    write_jsonl(pairs / "third.jsonl", [{"prompt": "alone"}, {"prompt": "prompt 0"}])
    parts = split(pairs, held_out="file=third")
    assert [row["prompt"] for row in parts.held_out] == ["alone", "prompt 0"]
    assert parts.summary["dropped_shared_rows"] == 2
    assert parts.summary == split(pairs, held_out="third").summary


def test_rows_are_held_out_by_a_column(pairs: Path) -> None:
    parts = split(pairs, held_out="topic=t1")
    assert {row["columns"]["topic"] for row in parts.held_out} == {"t1"}
    assert len(parts.train) == 30
    assert len(split(pairs, held_out="hard=true").held_out) == 20


def test_the_hint_for_held_out_is_quoted_for_the_shell(tmp_path: Path) -> None:
    rows = [{"prompt": f"p{n}", "topic": f"the {n}th topic; a long one, with many words"} for n in (1, 2)]
    with pytest.raises(BadInput) as caught:
        split(write_jsonl(tmp_path / "a.jsonl", rows), held_out="topic=none")
    assert caught.value.hint == "--set 'held_out=topic=the 2th topic; a long one, with many words'"


@pytest.mark.parametrize(
    ("held_out", "problem", "expected"),
    [
        ("share=2", "share=2", "between 0 and 1"),
        ("share=x", "share=x", "between 0 and 1"),
        ("file=third", "matches no file", "first.jsonl, second.jsonl"),
        ("sec", "no training rows are left", "different prompts"),
        ("topik=t1", "no column 'topik' (did you mean 'topic'?)", "prompt, topic, hard"),
        ("topic=t9", "no row has this value", "t0, t1, t2, t3"),
    ],
)
def test_invalid_held_out_rules(pairs: Path, held_out: str, problem: str, expected: str) -> None:
    with pytest.raises(BadInput) as caught:
        split(pairs, held_out=held_out)
    assert problem in caught.value.message
    assert expected in caught.value.expected


def test_a_single_prompt_cannot_be_split(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="1 distinct prompt"):
        split(write_jsonl(tmp_path / "a.jsonl", [{"prompt": "a"}, {"prompt": " a\n"}]))


def test_limited_rows_are_sampled_by_the_seed(pairs: Path) -> None:
    parts = split(pairs, held_out="share=0.5", train_rows=7, held_out_rows=3)
    assert (len(parts.train), len(parts.held_out)) == (7, 3)
    assert (parts.summary["train_rows"], parts.summary["train_rows_there"]) == (7, 20)
    other = split(pairs, held_out="share=0.5", train_rows=7, held_out_rows=3, seed=2)
    assert [row["source"] for row in other.train] != [row["source"] for row in parts.train]


@pytest.mark.stack
def test_parquet_and_hub_errors_in_every_stack(stack_python: Path, tmp_path: Path) -> None:
    code = """
        import pyarrow, pyarrow.parquet
        from pathlib import Path
        from data.sources import find_source
        from data.rows import read_rows
        from settings import BadInput
        folder, settings = Path(given[0]), given[1]
        messages = [{"role": "user", "content": "hi"}]
        table = pyarrow.table({"prompt": [messages] * 3000, "level": list(range(3000))})
        pyarrow.parquet.write_table(table, folder / "a.parquet")
        def read(data):
            try:
                return read_rows(find_source(str(data), "auto"), settings)
            except BadInput as error:
                return error.as_record()
        data_format, rows, summary = read(folder / "a.parquet")
        (folder / "b.parquet").write_bytes((folder / "a.parquet").read_bytes()[:900])
        broken, hub = read(folder / "b.parquet"), read("openai/gsm8k:main")
        report(form=data_format, count=len(rows), last=rows[-1], broken=broken, hub=hub)
    """
    for python in all_stacks(stack_python):
        found = run_code(python, code, tmp_path, defaults(task="dataset"))
        assert (found["form"], found["count"]) == ("rows", 3000)
        assert found["last"]["prompt"] == [{"role": "user", "content": "hi"}]
        assert (found["last"]["source"], found["last"]["columns"]["level"]) == ("a.parquet:3000", 2999)
        assert "is not a Parquet file" in found["broken"]["message"]
        assert "openai/gsm8k:main (split train)" in found["hub"]["message"]
        assert "load_dataset('openai/gsm8k', 'main', split='train')" in found["hub"]["hint"]
