"""What a checkpoint's generation_config.json says of sampling changes no answer of a run, and is saved with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from stacks import TINY, defaults, run_code

pytestmark = pytest.mark.stack
# As Qwen2.5 and Qwen3 have them, and stronger.
SAID = {"repetition_penalty": 1.5, "temperature": 0.1, "top_k": 2, "top_p": 0.5, "do_sample": True, "min_p": 0.3}
ANSWERS = (
    TINY
    + """
from generation import evaluation
from modeling import loading as models, saving as after
from peft import LoraConfig, get_peft_model

save_qwen2(given[0])
answers = {}
for name, said in (("plain", {}), ("said", given[1])):
    file = Path(given[0]) / "generation_config.json"
    kept = json.loads(file.read_text()) if file.is_file() else {}
    file.write_text(json.dumps(kept | said))
    loaded = models.load_model(given[2] | {"model": given[0]}, device="cpu").model
    tokenizer, _ = models.load_tokenizer(given[2] | {"model": given[0]})
    ids = [tokenizer("sort these digits please")["input_ids"]] * 4
    generate = evaluation.generate
    answers[name] = [generate(loaded, tokenizer, ids, length=16, temperature=t, seed=3)[1] for t in (0, 1)]
    after.save(loaded, tokenizer, Path(given[0]) / "saved")
    adapted = get_peft_model(loaded, LoraConfig(r=4, target_modules=["q_proj"]))
    answers[name].append(generate(adapted, tokenizer, ids, length=16, temperature=1, seed=3)[1])
say(answers=answers, saved=json.loads((Path(given[0]) / "saved" / "generation_config.json").read_text()))
"""
)


def test_a_checkpoint_s_defaults_do_not_sample(python: Path, tmp_path: Path) -> None:
    made = run_code(python, ANSWERS, tmp_path / "model", SAID, defaults())
    assert made["answers"]["said"] == made["answers"]["plain"]
    assert made["saved"].items() >= SAID.items()
    assert json.loads((tmp_path / "model" / "generation_config.json").read_text()).items() >= SAID.items()
