"""Calls in the code of a guide or a notebook that the installed release of another package refuses."""

from __future__ import annotations

import json
from pathlib import Path

from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver
from support.guide_cases import sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Finding
from envdoctor.resolution.index_facts import IndexedRelease

VERSIONS = {
    "torch": "2.8.0", "transformers": "5.24.0", "trl": "1.16.0", "pytorch-lightning": "2.0.0",
    "scikit-learn": "1.6.1", "gradio": "6.0.2", "peft": "0.21.2",
}  # fmt: skip
INSTALL = "pip install torch transformers trl pytorch-lightning scikit-learn gradio peft"
LOAD = "from transformers import AutoModelForCausalLM\nmodel = AutoModelForCausalLM.from_pretrained("
# Blocks of code, and a part of the message.
REFUSED = {
    "a quantized model": ([f"{LOAD}\n    'm',\n    load_in_4bit=True,\n)"], "passes load_in_4bit"),
    "a token": ([f"{LOAD}'m', use_auth_token='t')"], "passes use_auth_token"),
    "a model of one class": (
        ["import transformers\ntransformers.LlamaForCausalLM.from_pretrained('m', load_in_8bit=False)"],
        "passes load_in_8bit",
    ),
    "an import in another block": (
        ["import pytorch_lightning as pl", "trainer = pl.Trainer(gpus=1)"], "passes gpus"
    ),
    "a trainer": (["from transformers import Trainer\nTrainer(model=m, tokenizer=t)"], "passes tokenizer to Trainer"),
    "an argument that the base class lost": (
        ["from trl import SFTConfig\nSFTConfig(output_dir='o', warmup_ratio=0.1)"], "passes warmup_ratio"
    ),
    "an argument of a function": (
        ["from sklearn.metrics import mean_squared_error\nmean_squared_error(a, b, squared=False)"], "passes squared"
    ),
}  # fmt: skip
ACCEPTED = {
    "a quantization": [f"{LOAD}'m', quantization_config=BitsAndBytesConfig(load_in_4bit=True))"],
    "a tokenizer": ["from transformers import AutoTokenizer\nAutoTokenizer.from_pretrained('m', use_auth_token='t')"],
    "a class of another package": [
        "from unsloth import FastLanguageModel\nFastLanguageModel.from_pretrained('m', load_in_4bit=True)"
    ],
    "a handler": ["import pytorch_lightning as pl\ntry:\n    pl.Trainer(gpus=1)\nexcept TypeError:\n    pass"],
    "two meanings of a name": ["import pytorch_lightning as pl", "import polars as pl\npl.Trainer(gpus=1)"],
    "a block that does not parse": ["import pytorch_lightning as pl\npl.Trainer(gpus=1, ...,"],
    "a function that nothing calls": ["import pytorch_lightning as pl\ndef old():\n    return pl.Trainer(gpus=1)"],
}  # fmt: skip


def found_in(name: str, text: str, folder: Path) -> list[Finding]:
    index = FixedIndex(IndexedRelease("pytorch-lightning", "2.6.6", "2026-10-01"))
    result = audit_text(text, str(folder / name), None, FixedSolver(index, VERSIONS)).result
    assert not [each for each in result.findings if each.status == "crashed"]
    return [each for each in result.findings if each.id == "RUN222"]


def guide(blocks: list[str], install: str = INSTALL) -> str:
    return sh(install) + "".join(f"\n```python\n{block}\n```\n" for block in blocks)


def notebook(blocks: list[str]) -> str:
    cells = [
        {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": source}
        for source in (f"!{INSTALL}", *blocks)
    ]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)


@each_case("name", [*REFUSED])
def test_a_call_in_text_that_the_installed_release_refuses(name: str, tmp_path: Path) -> None:
    blocks, message = REFUSED[name]
    for file, text in (("README.md", guide(blocks)), ("train.ipynb", notebook(blocks))):
        found = found_in(file, text, tmp_path)
        assert [(message in each.message, each.status) for each in found] == [(True, "error")], found


@each_case("name", [*ACCEPTED])
def test_calls_in_text_that_are_accepted(name: str, tmp_path: Path) -> None:
    for file, text in (("README.md", guide(ACCEPTED[name])), ("train.ipynb", notebook(ACCEPTED[name]))):
        assert found_in(file, text, tmp_path) == []


def test_the_line_of_the_call(tmp_path: Path) -> None:
    blocks, _ = REFUSED["a quantized model"]
    text = guide(blocks)
    line = text.splitlines().index("    load_in_4bit=True,") + 1
    (found,) = found_in("README.md", text, tmp_path)
    assert f"README.md:{line} passes" in found.message


def test_blocks_for_several_environments_are_left_out(tmp_path: Path) -> None:
    steps = f"python -m venv a && source a/bin/activate && {INSTALL} && deactivate\n"
    steps += f"python -m venv b && source b/bin/activate && {INSTALL}"
    assert found_in("README.md", guide(["import pytorch_lightning as pl\npl.Trainer(gpus=1)"], steps), tmp_path) == []
