"""A checkpoint's generation_config.json changes no sampling of a run, and is saved with the model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.stacks import TINY, defaults, run_code

pytestmark = pytest.mark.stack
# Fields of Qwen2.5 and Qwen3, with stronger values.
CHECKPOINT_DEFAULTS = {
    "repetition_penalty": 1.5,
    "temperature": 0.1,
    "top_k": 2,
    "top_p": 0.5,
    "do_sample": True,
    "min_p": 0.3,
}
GENERATE = (
    TINY
    + """
from generation import evaluation
from modeling import loading as models, saving as after
from peft import LoraConfig, get_peft_model

save_qwen2(given[0])
completions = {}
for name, config in (("plain", {}), ("changed", given[1])):
    file = Path(given[0]) / "generation_config.json"
    kept = json.loads(file.read_text()) if file.is_file() else {}
    file.write_text(json.dumps(kept | config))
    loaded = models.load_model(given[2] | {"model": given[0]}, device="cpu").model
    tokenizer, _ = models.load_tokenizer(given[2] | {"model": given[0]})
    ids = [tokenizer("sort these digits please")["input_ids"]] * 4
    generate = evaluation.generate
    completions[name] = [generate(loaded, tokenizer, ids, length=16, temperature=t, seed=3)[1] for t in (0, 1)]
    after.save(loaded, tokenizer, Path(given[0]) / "saved")
    wrapped, patches = loaded.generate, []
    while hasattr(wrapped, "__wrapped__"):
        patches.append(wrapped.__code__.co_name)
        wrapped = wrapped.__wrapped__
    adapted = get_peft_model(loaded, LoraConfig(r=4, target_modules=["q_proj"]))
    completions[name].append(generate(adapted, tokenizer, ids, length=16, temperature=1, seed=3)[1])
saved = json.loads((Path(given[0]) / "saved" / "generation_config.json").read_text())
report(completions=completions, patches=patches, saved=saved)
"""
)


def test_the_checkpoints_generation_defaults_are_ignored(python: Path, tmp_path: Path) -> None:
    made = run_code(python, GENERATE, tmp_path / "model", CHECKPOINT_DEFAULTS, defaults())
    assert made["completions"]["changed"] == made["completions"]["plain"]
    assert made["patches"].count("generate_by_settings") == 1
    assert made["saved"].items() >= CHECKPOINT_DEFAULTS.items()
    assert (
        json.loads((tmp_path / "model" / "generation_config.json").read_text()).items() >= CHECKPOINT_DEFAULTS.items()
    )
