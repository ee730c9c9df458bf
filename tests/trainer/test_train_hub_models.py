"""Models from a local hub, trained by their names, and refusals."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.hub_runs import add_sums, ask, local_hub, train
from support.hub_server import Hub
from support.stacks import TINY, defaults, run_code

pytestmark = pytest.mark.stack

LOADING = """
import os
from modeling import loading as models
from settings import BadInput


def load(name, token="", **changed):
    if token:
        os.environ["HF_TOKEN"] = token
    settings = given[0] | {"model": name} | changed
    try:
        loaded = models.load_model(settings, device="cpu")
        tokenizer, _ = models.load_tokenizer(settings)
        return {"words": len(tokenizer("sort one")["input_ids"]), "commit": loaded.model.config._commit_hash}
    except BadInput as error:
        return error.as_record()
"""


@pytest.fixture
def hub(made: Path) -> Iterator[Hub]:
    """A hub with these models, and with sums."""
    with local_hub() as served:
        for name in ("qwen2", "gpt_oss", "bin"):
            served.add("models", f"o/{name}", made / name, "v1")
        served.add("models", "o/gated", made / "qwen2", gated=True)
        add_sums(served)
        yield served


def load(python: Path, hub: Hub, home: Path, calls: str, **extra: str) -> list[dict[str, Any]]:
    """What these calls of `load` find, each in turn in one process."""
    settings = defaults(task="dataset")
    found = ask(python, hub, home, f"{LOADING}\nreport(found=[{calls}])", settings, **extra)["found"]
    assert all(one.get("hint") for one in found if "message" in one)
    return found


@pytest.mark.parametrize("name", ["qwen2", pytest.param("gpt_oss", marks=pytest.mark.long)])
def test_a_run_with_a_hub_name(python: Path, hub: Hub, tmp_path: Path, name: str) -> None:
    experts = {"target_parameters": ["1.mlp.experts.gate_up_proj"]} if name == "gpt_oss" else {}
    settings = {"model": f"o/{name}", "revision": "v1", "data": "o/sums:main@v1"} | experts
    done = train(python, hub, tmp_path / "a", settings, HF_TOKEN="hf_reader")
    assert done.status == 0, done.errors
    assert done.result["steps"] == 2
    assert done.result["data"]["format"] == "gsm8k"
    assert done.result["data"]["commit"] == hub.repositories["datasets", "o/sums"].names["v1"]
    config = json.loads((done.run / "model/adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == f"o/{name}"
    assert f'base_model: "o/{name}"' in (done.run / "model/README.md").read_text()
    assert hub.matching_requests("HEAD .*v1/model.safetensors")
    assert not done.holds("hf_reader")
    assert "Retrying" not in done.errors


def test_the_reference_model_has_the_trained_revision(python: Path, hub: Hub, made: Path, tmp_path: Path) -> None:
    """TRL loads it by the name alone: main's weights would be another policy from the first step on."""
    run_code(python, f"{TINY}\nsave_qwen2(given[0])\n"
             "model = Qwen2ForCausalLM(Qwen2Config.from_pretrained(given[0]))\n"
             "model.save_pretrained(given[0])\nreport()", tmp_path / "other")  # fmt: skip
    hub.add("models", "o/two", made / "qwen2", "v1")
    hub.add("models", "o/two", tmp_path / "other")
    settings = {"model": "o/two", "revision": "v1", "data": "o/sums:main@v1", "r": 0, "beta": 0.1, "max_steps": 1}
    done = train(python, hub, tmp_path / "a", settings)
    assert done.status == 0, done.errors
    (row,) = csv.DictReader((done.run / "metrics.csv").read_text(encoding="utf-8").splitlines())
    assert float(row["kl"]) == pytest.approx(0, abs=1e-6)
    assert str(tmp_path) not in (done.run / "model/config.json").read_text()


def test_models_that_cannot_be_loaded(python: Path, hub: Hub, made: Path, tmp_path: Path) -> None:
    weights = {"tokenizer.json": (made / "qwen2/tokenizer.json").read_bytes()}
    hub.add("models", "o/adapter", {"adapter_config.json": "{}"})
    hub.add("models", "o/empty", weights | {"config.json": (made / "qwen2/config.json").read_bytes()})
    hub.fail("/ill/", 500)
    hub.fail("/slow/", "hang")
    calls = ("load('o/gated'), load('o/qwen3'), load('o/qwen2', revision='v9'), load('o/adapter'), load('o/empty'), "
             "load('o/ill'), load('o/slow'), load('no name'), load('o/qwen2', tokenizer='o/words'), "
             "load('o/gated', 'hf_stranger'), load('o/gated', 'hf_wrong')")  # fmt: skip
    found = load(python, hub, tmp_path, calls)
    expected = (
        "it is gated, and HF_TOKEN is not set", "it does not exist on the Hub", "it has no revision 'v9'",
        "its repository has no config.json",
        "o/empty", "the Hub responded with HTTP 500; it is not in the cache", "did not respond within 2 s",
        "not a name on the Hub", "tokenizer = o/words: it does not exist on the Hub",
        "the owner of HF_TOKEN has no access", "the Hub rejects this HF_TOKEN",
    )  # fmt: skip
    for one, words in zip(found, expected, strict=True):
        assert words in one["message"], one


@pytest.mark.long  # a whole run for words that are above; the one below is refused in a run, too
def test_a_refusal_ends_the_run_without_a_traceback(python: Path, hub: Hub, tmp_path: Path) -> None:
    done = train(python, hub, tmp_path / "a", {"model": "o/gated"}, HF_TOKEN="hf_stranger")
    assert done.status == 2
    assert "error: model = o/gated: it is gated, and the owner of HF_TOKEN has no access" in done.errors
    assert "\nhint: request access" in done.errors
    assert "Traceback" not in done.output + done.errors
    assert not done.holds("hf_stranger")


def test_repository_code_is_not_run_by_default(python: Path, hub: Hub, made: Path, tmp_path: Path) -> None:
    config = json.loads((made / "qwen2/config.json").read_text())
    own = {"model_type": "own", "auto_map": {"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.Own"}}
    mark = tmp_path / "it-ran"
    hub.add("models", "o/code", {
        "config.json": json.dumps(config | own), "own.py": f"open({str(mark)!r}, 'w')\n",
        "tokenizer.json": (made / "qwen2/tokenizer.json").read_bytes(),
    })  # fmt: skip
    done = train(python, hub, tmp_path / "a", {"model": "o/code"})
    assert done.status == 2, done.errors
    assert "contains code, which is not run by default" in done.errors
    assert not mark.exists()
    assert not hub.matching_requests("own.py")


def test_weights_in_bin_files_only(python: Path, hub: Hub, tmp_path: Path) -> None:
    """Read where torch reads them safely; no conversion by a third host is requested."""
    (found,) = load(python, hub, tmp_path, "load('o/bin')", HF_TOKEN="hf_reader")
    if "message" in found:
        assert "torch" in found["message"], found  # transformers wants torch 2.6 for them
        assert "convert" in found["hint"] or "--set model=" in found["hint"], found
    else:
        assert found["words"] == 2
    assert not hub.matching_requests("/discussions")


def test_without_the_hub_the_cache_is_used(python: Path, hub: Hub, tmp_path: Path) -> None:
    (first,) = load(python, hub, tmp_path, "load('o/qwen2')")
    assert first["words"] == 2
    hub.close()
    (again,) = load(python, hub, tmp_path, "load('o/qwen2')")
    assert again == first
    (gone,) = load(python, hub, tmp_path, "load('o/gpt_oss')")
    refused = f"the Hub cannot be reached at {hub.address}: Connection refused; it is not in the cache"
    assert refused in gone["message"]
