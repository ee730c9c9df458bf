"""Hub datasets, read by the real client from a local hub server, and its failures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.hub_runs import CARD, add_sums, ask, jsonl, local_hub, make_models, sums, train
from support.hub_server import Hub
from support.stacks import defaults

pytestmark = pytest.mark.stack

READING = """
import time
from settings import BadInput
from data.sources import find_source
from data.rows import read_rows


def read(data, **changed):
    settings = given[0] | {"data": data} | changed
    began = time.monotonic()
    try:
        form, rows, summary = read_rows(find_source(data, "auto"), settings)
        found = {"form": form, "prompts": [row["prompt"] for row in rows], "source": rows[0]["source"], **summary}
    except BadInput as error:
        found = error.as_record()
    return found | {"seconds": time.monotonic() - began}
"""


@pytest.fixture
def hub() -> Iterator[Hub]:
    """Return a Hub server with a dataset of sums as JSON lines."""
    with local_hub() as served:
        add_sums(served)
        yield served


def read(python: Path, hub: Hub, home: Path, calls: str, **extra: str) -> list[dict[str, Any]]:
    """Return the results of these calls of `read`, made in turn in one process."""
    found = ask(python, hub, home, f"{READING}\nreport(found=[{calls}])", defaults(task="dataset"), **extra)["found"]
    assert all(result.get("hint") for result in found if "message" in result)
    return found


def test_jsonl_csv_and_parquet(python: Path, hub: Hub, tmp_path: Path) -> None:
    rows = sums(6)
    code = """
        import pyarrow, pyarrow.parquet
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(given[1]), given[0])
        report()
    """
    ask(python, hub, tmp_path, code, tmp_path / "rows.parquet", rows)
    text = "question,answer\n" + "".join(f'"{row["question"]}","{row["answer"]}"\n' for row in rows)
    parquet = (tmp_path / "rows.parquet").read_bytes()
    files = {"parquet": parquet, "csv": text.encode(), "jsonl": jsonl(rows).encode()}
    for kind, content in files.items():
        card = CARD.replace("KIND", kind)
        hub.add(
            "datasets", f"o/{kind}", {"README.md": card, f"main/train.{kind}": content, f"main/test.{kind}": content}
        )
        hub.add("datasets", f"o/plain-{kind}", {f"train.{kind}": content})
    calls = ", ".join(f"read('o/{kind}:main', data_split='test'), read('o/plain-{kind}')" for kind in files)
    for found in read(python, hub, tmp_path, calls):
        assert found.get("form") == "gsm8k", found
        assert found["prompts"] == [row["question"] for row in rows]
    assert all(token == "" for _, token in hub.requests)


def test_a_revision_is_pinned_and_the_commit_is_recorded(python: Path, hub: Hub, tmp_path: Path) -> None:
    repository = hub.repositories["datasets", "o/sums"]
    tagged, newest = read(python, hub, tmp_path, "read('o/sums:main@v1'), read('o/sums:main')")
    assert (len(tagged["prompts"]), tagged["commit"]) == (12, repository.names["v1"])
    assert (len(newest["prompts"]), newest["commit"]) == (20, repository.names["main"])
    assert newest["source"] == "o/sums:main:1"


def test_missing_datasets_splits_and_configurations(python: Path, hub: Hub, tmp_path: Path) -> None:
    hub.add("datasets", "o/empty", {"README.md": "# nothing\n"})
    calls = ("read('o/none'), read('o/sums:main', data_split='dev'), read('o/sums'), read('o/sums:other'), "
             "read('o/sums:main@v9'), read('o/empty')")  # fmt: skip
    missing, split, unnamed, config, revision, empty = read(python, hub, tmp_path, calls)
    assert "it does not exist on the Hub, or it is private and HF_TOKEN is not set" in missing["message"]
    assert "it has the splits train, test" in split["message"]
    assert split["hint"] == "--set data_split=train"
    for found in (unnamed, config):
        assert "it has the configurations main, socratic" in found["message"]
        assert found["hint"] == "--set data=o/sums:main"
    assert "it has no revision 'v9'" in revision["message"]
    assert "no Parquet, JSON lines or CSV files" in empty["message"], empty


def test_the_own_split_of_a_dataset_is_held_out(python: Path, hub: Hub, tmp_path: Path) -> None:
    make_models(python, tmp_path)
    local = {"model": str(tmp_path / "qwen2"), "rewards": [], "r": 0, "held_out": "split=test"}
    done = train(python, hub, tmp_path / "a", local, HF_TOKEN="hf_reader")
    assert done.status == 0, done.errors
    data = done.result["data"]
    # The test split has the questions of the first four training rows, which are dropped from the training.
    assert (data["held_out"], data["held_out_rows"], data["dropped_shared_rows"]) == ("split test", 4, 4)
    assert data["train_rows"] == 20 - 4
    for rule, problem, hint in (
        ("split=tset", "has the splits train, test", "--set held_out=split=test"),
        ("split=train", "held_out = split=train is the split of the training rows", "--set held_out=share=0.1"),
        ("split=", "held_out = split=", "--set held_out=split=test"),
    ):
        wrong = train(python, hub, tmp_path / "a", local | {"held_out": rule})
        assert wrong.status == 2, wrong.output
        assert problem in wrong.errors, wrong.errors
        assert hint in wrong.errors, wrong.errors


def test_tokens(python: Path, hub: Hub, tmp_path: Path) -> None:
    add_sums(hub, "o/gated", gated=True)
    add_sums(hub, "o/private", private=True)
    cases = {
        "": ("it is gated, and HF_TOKEN is not set", "it does not exist on the Hub, or it is private"),
        "hf_stranger": ("it is gated, and the owner of HF_TOKEN has no access", "or HF_TOKEN may not read it"),
        "hf_wrong": ("the Hub rejects this HF_TOKEN", "the Hub rejects this HF_TOKEN"),
    }
    for token, expected in cases.items():
        found = read(python, hub, tmp_path, "read('o/gated:main'), read('o/private:main')", HF_TOKEN=token)
        for result, words in zip(found, expected, strict=True):
            assert words in result["message"], (token, result)
            assert "HF_TOKEN" in result["hint"]
    found = read(python, hub, tmp_path, "read('o/gated:main'), read('o/private:main')", HF_TOKEN="hf_reader")
    assert [len(result.get("prompts", ())) for result in found] == [20, 20], found


def test_cache_is_used_when_the_hub_does_not_respond(python: Path, hub: Hub, tmp_path: Path) -> None:
    for number, (fault, words) in enumerate({"hang": "did not respond within 2 s", 503: "HTTP 503"}.items()):
        hub.faults.clear()
        hub.fail(".", fault)
        (found,) = read(python, hub, tmp_path / str(number), "read('o/sums:main')")
        assert words in found["message"]
        assert found["message"].endswith("the dataset is not in the cache either")
        assert found["seconds"] < 20, found  # the client alone retries for minutes
    hub.faults.clear()
    read(python, hub, tmp_path / "3", "read('o/sums:main')")
    hub.close()
    (refused,) = read(python, hub, tmp_path / "2", "read('o/sums:main')")
    assert f"the Hub cannot be reached at {hub.address}: Connection refused" in refused["message"]
    (cached,) = read(python, hub, tmp_path / "3", "read('o/sums:main')")
    assert len(cached["prompts"]) == 20, cached


def test_a_hub_that_stops_answering(python: Path, hub: Hub, tmp_path: Path) -> None:
    """The client has no deadline for listing a folder, and retries six times."""
    hub.fail("/tree/|/revision/", "hang")
    limited = "import hub\nhub.CLIENT_TIMEOUTS['GET'] = 0.5\n"
    found = ask(python, hub, tmp_path, f"{READING}\n{limited}report(found=read('o/sums:main'))",
                defaults(task="dataset"), timeout=120)["found"]  # fmt: skip
    assert "the dataset cannot be loaded from the Hub" in found["message"], found


@pytest.mark.long  # test_train_hub_models.py covers Hub models; here the model is local
def test_a_run_on_a_hub_dataset(python: Path, hub: Hub, tmp_path: Path) -> None:
    make_models(python, tmp_path)
    local = {"model": str(tmp_path / "qwen2"), "rewards": [], "data": "o/sums:main@v1", "r": 0}
    done = train(python, hub, tmp_path / "a", local, HF_TOKEN="hf_reader")
    assert done.status == 0, done.errors
    assert done.result["data"]["format"] == "gsm8k"
    assert done.result["data"]["commit"] == hub.repositories["datasets", "o/sums"].names["v1"]
    assert done.result["steps"] == 2
    assert not done.holds("hf_reader")
    assert json.loads((done.run / "run.json").read_text())["settings"]["data"] == "o/sums:main@v1"
    wrong = train(python, hub, tmp_path / "b", local | {"data": "o/sum:main"}, HF_TOKEN="hf_reader")
    assert wrong.status == 2
    assert "data = o/sum:main" in wrong.errors
    assert "hint: --set data=OWNER/NAME" in wrong.errors
    assert "Traceback" not in wrong.output + wrong.errors
    assert not wrong.holds("hf_reader")
