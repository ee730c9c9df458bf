"""Arguments of TRL that unsloth, imported before, passes to where TRL accepts them."""

from __future__ import annotations

from datetime import date

from support.cases import each_case
from support.guide_cases import sh

from envdoctor.manifests import audit_guide

STEP = sh("pip install unsloth trl==1.15.0 transformers==5.17.0")
MOVED = "    dataset_text_field='text',\n    max_seq_length=2048,\n    args=TrainingArguments(output_dir='o'),\n)\n"


def refused(code: str, step: str = STEP) -> list[str]:
    audit = audit_guide(f"{step}\n```python\n{code}\n```\n", name="guide.md", today=date(2026, 11, 21))
    return [each.message.partition("(")[2].partition("=")[0] for each in audit.findings if each.id == "RUN070"]


PATCHED = {
    "arguments of SFTTrainer": f"from unsloth import FastModel\nSFTTrainer(\n    tokenizer=tokenizer,\n{MOVED}",
    "the tokenizer of GRPOTrainer": "import unsloth\nGRPOTrainer(model=model, tokenizer=tokenizer)",
    "a field of a config": "import unsloth\nSFTConfig(max_seq_length=2048)\nGRPOConfig(max_prompt_length=256)",
}


@each_case("name", list(PATCHED))
def test_unsloth_passes_arguments_of_older_releases(name: str) -> None:
    assert refused(PATCHED[name]) == []


REFUSED = {
    "without unsloth": (f"trainer = SFTTrainer(\n{MOVED}", ["dataset_text_field", "max_seq_length"]),
    "unsloth imported after the call": ("GRPOTrainer(tokenizer=t)\nimport unsloth", ["tokenizer"]),
    "no config to pass them to": ("import unsloth\nSFTTrainer(model=m, max_seq_length=1)", ["max_seq_length"]),
    "a name of no release": ("import unsloth\nGRPOTrainer(reward_func=r, args=a)", ["reward_func"]),
}


@each_case("name", list(REFUSED))
def test_other_arguments_are_refused(name: str) -> None:
    code, expected = REFUSED[name]
    assert refused(code) == expected
