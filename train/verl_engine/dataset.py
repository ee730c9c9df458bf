"""Convert GSM8K rows into verl's format, as Parquet files like those of verl's data preparation example.

A row is {"data_source", "prompt": [messages], "ability", "reward_model": {"style", "ground_truth"}, "extra_info":
{"split", "index", "question", "answer"}}; rows for SFT also have "messages", which its trainer reads from verl 0.7.1
on. Standard library only, except for the Hub and Parquet.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

from data.files import bad_data, cut
from data.rows import read_rows
from data.sources import Source, find_source
from data.split import split_rows
from settings import BadInput

DATA_SOURCE = "openai/gsm8k"  # verl selects its reward by this name (utils/reward_score/__init__.py)
# The pattern of verl's reward (utils/reward_score/gsm8k.py, the same in 0.4.1 to 0.9.1). The reward compares strings,
# so a row whose own answer does not match could never be rewarded.
VERL_ANSWER = re.compile(r"#### (-?[0-9.,]+)")
DATA_TIMEOUT = 600  # seconds that another node waits for the first node's files

Row = dict[str, Any]


def check_data(settings: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (settings with absolute paths, summary of the data); a note for data that only the run can read."""
    settings, sources = find_sources(settings)
    files = [path.name for source in sources for path in source.files] or [sources[0].name]
    if any(source.needs_stack for source in sources):
        return settings, {"files": files, "note": "the rows are checked when the run starts"}
    train, held_out, summary = read_split(settings, sources)
    return settings, {"files": files, "train_rows": len(train), "held_out_rows": len(held_out), **summary}


def find_sources(settings: dict[str, Any]) -> tuple[dict[str, Any], list[Source]]:
    """Return (settings with absolute paths, sources): the training source first, then a separate held-out one."""
    sources = [find_source(settings["data"], "gsm8k")]
    settings = settings | {"data": sources[0].name}
    if settings["held_out_data"]:
        if settings["held_out"]:
            raise BadInput(
                f"held_out = {settings['held_out']} cannot be combined with held_out_data = "
                f"{settings['held_out_data']}",
                expected="one of the two", hint="remove held_out",
            )  # fmt: skip
        sources.append(find_source(settings["held_out_data"], "gsm8k"))
        settings |= {"held_out_data": sources[1].name}
    elif sources[0].kind == "hub" and not settings["held_out"]:
        sources.append(sources[0])  # the held-out split of the same dataset
    return settings, sources


def read_split(settings: dict[str, Any], sources: list[Source]) -> tuple[list[Row], list[Row], dict[str, Any]]:
    """Return (training rows, held-out rows, summary), checked row by row."""
    options = {"data_format": "gsm8k", "prompt_column": "question", **settings}
    _, rows, _ = read_rows(sources[0], options)
    if len(sources) == 1:
        split = split_rows(rows, options, "gsm8k")
        return split.train, split.held_out, {"held_out": split.summary["held_out"]}
    _, held_out, _ = read_rows(sources[1], options | {"data_split": settings["held_out_split"]})
    held_out_keys = {row["key"] for row in held_out}
    train = [row for row in rows if row["key"] not in held_out_keys]
    if not train:
        raise bad_data(sources[0].name, "has no question that is not held out", "questions that are not held out")
    summary = {"dropped_shared_rows": len(rows) - len(train)}
    return _first(train, settings["train_rows"]), _first(held_out, settings["held_out_rows"]), summary


def _first(rows: list[Row], count: int) -> list[Row]:
    return rows[:count] if count else rows


def verl_row(row: Row, split: str, index: int, settings: dict[str, Any]) -> Row:
    """Convert a row. The ground truth is a string without commas, as verl's reward compares it."""
    question, answer = row["prompt"], str(row["columns"][settings["answer_column"]])
    matches = VERL_ANSWER.findall(answer)
    if not matches:
        end = cut(repr(answer[-60:]), 80)
        location = f"{row['source']}, column {settings['answer_column']}:"
        raise bad_data(location, f"ends in {end}", "#### and a number")
    prompt = question if settings["task"] == "sft" else f"{question} {settings['instruction']}".strip()
    record: Row = {
        "data_source": DATA_SOURCE,
        "prompt": [{"role": "user", "content": prompt}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": matches[-1].replace(",", "")},
        "extra_info": {"split": split, "index": index, "question": question, "answer": answer},
    }
    if settings["task"] == "sft":
        reply = {"role": "assistant", "content": answer}
        record["messages"] = [{"role": "user", "content": question}, reply]
    return record


def write_data(settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Write folder/train.parquet and folder/held_out.parquet, and return a summary with the numbers of rows."""
    import pyarrow
    import pyarrow.parquet

    settings, sources = find_sources(settings)
    train, held_out, summary = read_split(settings, sources)
    folder.mkdir(parents=True, exist_ok=True)
    for split, rows in (("train", train), ("held_out", held_out)):
        table = pyarrow.Table.from_pylist([verl_row(row, split, index, settings) for index, row in enumerate(rows)])
        temporary = folder / f"{split}.parquet.part"
        pyarrow.parquet.write_table(table, temporary)
        temporary.replace(folder / f"{split}.parquet")
    return {"train_rows": len(train), "held_out_rows": len(held_out), **summary}


def check_held_out_count(settings: dict[str, Any], rows: int) -> None:
    """Refuse fewer held-out rows than a batch, since verl's SFT trainers evaluate only full batches."""
    if settings["task"] == "sft" and rows < settings["prompts_per_step"]:
        raise BadInput(
            f"{rows} held-out rows for prompts_per_step = {settings['prompts_per_step']}",
            expected="at least one full batch: verl's SFT trainer drops incomplete batches",
            hint="--set held_out=share=0.2, --set held_out_data=FILE, or a smaller --set prompts_per_step",
        )


def wait_for_data(folder: Path) -> dict[str, Any]:
    """Wait for the files that the first node writes to the shared file system, and return the numbers of rows."""
    import pyarrow.parquet

    deadline = time.monotonic() + DATA_TIMEOUT
    while not (folder / "held_out.parquet").is_file():  # the last file that is written
        if time.monotonic() > deadline:
            raise BadInput(
                f"{folder} has no held_out.parquet after {DATA_TIMEOUT} s",
                expected="the first node's file, on a file system that all nodes share",
                hint="start the run in a directory on the shared file system",
            )
        time.sleep(1)
    files = {split: folder / f"{split}.parquet" for split in ("train", "held_out")}
    return {f"{split}_rows": pyarrow.parquet.read_metadata(file).num_rows for split, file in files.items()}


def count_steps(settings: dict[str, Any], rows: int) -> int:
    """Return the steps of a run: verl drops the incomplete batch at the end of each epoch."""
    per_epoch = rows // settings["prompts_per_step"]
    if not per_epoch:
        raise BadInput(
            f"{rows} training rows for prompts_per_step = {settings['prompts_per_step']}",
            expected="at least one full batch: verl drops incomplete batches",
            hint=f"--set prompts_per_step={rows}",
        )
    total = per_epoch * settings["num_train_epochs"]
    return min(settings["max_steps"], total) if settings["max_steps"] > 0 else total
