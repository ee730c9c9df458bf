"""GSM8K's rows in verl's own form, as Parquet: what verl's data preparation example writes, without it.

A row is {"data_source", "prompt": [messages], "ability", "reward_model": {"style", "ground_truth"}, "extra_info":
{"split", "index", "question", "answer"}}; for SFT also "messages", which its trainer reads from verl 0.7.1 on.
Standard library but for the hub and Parquet.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from data.files import Source, bad_data, cut, find_source
from data.rows import read_rows
from data.split import split_rows
from settings import BadInput

DATA_SOURCE = "openai/gsm8k"  # verl chooses its reward by this name (utils/reward_score/__init__.py)
# What its reward finds in an answer (utils/reward_score/gsm8k.py, the same from 0.4.1 to 0.9.1). It compares texts:
# a row whose own answer it cannot find could never be rewarded.
FOUND_BY_VERL = re.compile(r"#### (-?[0-9.,]+)")

WAIT_SECONDS = 600

Row = dict[str, Any]


def check_data(settings: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings with absolute paths, and what the files hold; of what only the run can read, that it will."""
    settings, sources = find_sources(settings)
    named = [path.name for source in sources for path in source.files] or [sources[0].name]
    if any(source.waits_for_the_run for source in sources):
        return settings, {"files": named, "note": "the rows are looked at when the run starts"}
    train, held_out, summary = read_halves(settings, sources)
    return settings, {"files": named, "train_rows": len(train), "held_out_rows": len(held_out), **summary}


def find_sources(settings: dict[str, Any]) -> tuple[dict[str, Any], list[Source]]:
    """Where the rows are, training first; the settings name files by absolute paths."""
    sources = [find_source(settings["data"], "gsm8k")]
    settings = settings | {"data": sources[0].name}
    if settings["held_out_data"]:
        if settings["held_out"]:
            raise BadInput(
                f"held_out = {settings['held_out']} beside held_out_data = {settings['held_out_data']}",
                expected="one of the two", hint="leave held_out out",
            )  # fmt: skip
        sources.append(find_source(settings["held_out_data"], "gsm8k"))
        settings |= {"held_out_data": sources[1].name}
    elif sources[0].kind == "hub" and not settings["held_out"]:
        sources.append(sources[0])  # its other split
    return settings, sources


def read_halves(settings: dict[str, Any], sources: list[Source]) -> tuple[list[Row], list[Row], dict[str, Any]]:
    """(training rows, held-out rows, what to tell): as files hold them, checked row by row."""
    asked = {"data_format": "gsm8k", "prompt_column": "question", **settings}
    _, rows, _ = read_rows(sources[0], asked)
    if len(sources) == 1:
        halves = split_rows(rows, asked, "gsm8k")
        return halves.train, halves.held_out, {"held_out": halves.summary["held_out"]}
    _, others, _ = read_rows(sources[1], asked | {"data_split": settings["held_out_split"]})
    kept_out = {row["key"] for row in others}
    train = [row for row in rows if row["key"] not in kept_out]
    if not train:
        raise bad_data(sources[0].name, "has no question that is not held out", "questions of its own")
    summary = {"dropped_shared_rows": len(rows) - len(train)}
    return _first(train, settings["train_rows"]), _first(others, settings["held_out_rows"]), summary


def _first(rows: list[Row], most: int) -> list[Row]:
    return rows[:most] if most else rows


def verl_row(row: Row, split: str, index: int, settings: dict[str, Any]) -> Row:
    """One of our rows as verl's. The ground truth is a text without commas, as its reward compares it."""
    question, answer = row["prompt"], str(row["columns"][settings["answer_column"]])
    found = FOUND_BY_VERL.findall(answer)
    if not found:
        shown = cut(repr(answer[-60:]), 80)
        raise bad_data(
            f"{row['source']}, column {settings['answer_column']}:", f"ends in {shown}", "#### and a number"
        )
    asked = question if settings["task"] == "sft" else f"{question} {settings['instruction']}".strip()
    record: Row = {
        "data_source": DATA_SOURCE,
        "prompt": [{"role": "user", "content": asked}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": found[-1].replace(",", "")},
        "extra_info": {"split": split, "index": index, "question": question, "answer": answer},
    }
    if settings["task"] == "sft":
        reply = {"role": "assistant", "content": answer}
        record["messages"] = [{"role": "user", "content": question}, reply]
    return record


def write_data(settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    """folder/train.parquet and folder/held_out.parquet; how many rows, and what to tell about them."""
    import pyarrow
    import pyarrow.parquet

    settings, sources = find_sources(settings)
    train, held_out, summary = read_halves(settings, sources)
    folder.mkdir(parents=True, exist_ok=True)
    for split, rows in (("train", train), ("held_out", held_out)):
        table = pyarrow.Table.from_pylist([verl_row(row, split, at, settings) for at, row in enumerate(rows)])
        temporary = folder / f"{split}.parquet.part"
        pyarrow.parquet.write_table(table, temporary)
        temporary.replace(folder / f"{split}.parquet")
    return {"train_rows": len(train), "held_out_rows": len(held_out), **summary}


def check_held_out(settings: dict[str, Any], rows: int) -> None:
    """verl's SFT trainers look at full batches alone: with fewer rows the held-out loss is the mean of nothing."""
    if settings["task"] == "sft" and rows < settings["prompts_per_step"]:
        raise BadInput(
            f"{rows} held-out rows for prompts_per_step = {settings['prompts_per_step']}",
            expected="at least one full batch: verl's SFT trainer leaves out what does not fill one",
            hint="--set held_out=share=0.2, --set held_out_data=FILE, or a smaller --set prompts_per_step",
        )


def wait_for_data(folder: Path) -> dict[str, Any]:
    """On another node than the first: the rows that the first one writes onto the file system that they share."""
    import time

    import pyarrow.parquet

    last = time.monotonic() + WAIT_SECONDS
    while not (folder / "held_out.parquet").is_file():  # written last
        if time.monotonic() > last:
            raise BadInput(
                f"{folder} holds no held_out.parquet after {WAIT_SECONDS} s",
                expected="the first node's, on a file system that all nodes share",
                hint="start the run in a folder that every node sees",
            )
        time.sleep(1)
    files = {split: folder / f"{split}.parquet" for split in ("train", "held_out")}
    return {f"{split}_rows": pyarrow.parquet.read_metadata(file).num_rows for split, file in files.items()}


def count_steps(settings: dict[str, Any], rows: int) -> int:
    """Steps of a run: verl leaves the rest of an epoch out that fills no batch."""
    an_epoch = rows // settings["prompts_per_step"]
    if not an_epoch:
        raise BadInput(
            f"{rows} training rows for prompts_per_step = {settings['prompts_per_step']}",
            expected="at least one full step: verl drops what does not fill one",
            hint=f"--set prompts_per_step={rows}",
        )
    whole = an_epoch * settings["epochs"]
    return min(settings["steps"], whole) if settings["steps"] else whole
