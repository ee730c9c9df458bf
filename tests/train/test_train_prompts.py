"""A prompt is tokenized once for all its answers, and each answer's is TRL's own."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from patches.prompt_tokenization import tokenize_distinct_prompts
from stacks import TINY, run_code


def make_trainer(images: Any = None, fields: dict[str, Any] | None = None) -> tuple[Any, list[int]]:
    """A trainer that makes two tokens of each prompt, and how many it was asked for at once."""
    asked: list[int] = []

    def tokenize(prompts: list[Any]) -> tuple[list[list[int]], Any, Any]:
        asked.append(len(prompts))
        return [[len(str(prompt)), asked[-1]] for prompt in prompts], images and images * len(prompts), fields or {}

    trainer = SimpleNamespace(_tokenize_prompts=tokenize)
    tokenize_distinct_prompts(trainer)
    return trainer, asked


def test_equal_prompts_are_tokenized_once_and_answers_do_not_share_their_tokens() -> None:
    trainer, asked = make_trainer()
    ids, images, fields = trainer._tokenize_prompts(["one", "three", "one", "one", "three"])
    assert (ids, images, fields) == ([[3, 2], [5, 2], [3, 2], [3, 2], [5, 2]], None, {})
    assert asked == [2]
    ids[0].append(9)
    assert ids[2] == [3, 2]


@pytest.mark.parametrize("more", [{"images": ["picture"]}, {"fields": {"token_type_ids": [[0]]}}])
def test_what_comes_with_a_prompt_comes_with_each(more: dict[str, Any]) -> None:
    trainer, asked = make_trainer(**more)
    ids, images, _ = trainer._tokenize_prompts(["one", "one", "three"])
    assert ids == [[3, 3], [3, 3], [5, 3]]
    assert images in (None, ["picture"] * 3)
    assert asked == [2, 3]


def test_a_trl_without_a_place_for_it_is_left_alone() -> None:
    trainer = SimpleNamespace()
    tokenize_distinct_prompts(trainer)
    assert vars(trainer) == {}


REAL = (
    TINY
    + """
from datasets import Dataset
from patches.prompt_tokenization import tokenize_distinct_prompts
from trl import GRPOConfig, GRPOTrainer

root = Path(given[0])
save_qwen2(root / "model")
tokenizer = PreTrainedTokenizerFast.from_pretrained(root / "model")
tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }} {% endfor %}answer"
trainer = GRPOTrainer(
    model=Qwen2ForCausalLM.from_pretrained(root / "model"), processing_class=tokenizer,
    args=GRPOConfig(
        output_dir=str(root / "out"), num_generations=2, per_device_train_batch_size=2, report_to="none",
        use_cpu=True, bf16=False,
    ),
    reward_funcs=lambda completions, **_: [0.0] * len(completions),
    train_dataset=Dataset.from_list([{"prompt": "sort"}] * 2),
)
texts = ["sort these digits", "one two", "sort these digits"]
messages = [[{"role": "user", "content": text}] for text in texts]
theirs = [trainer._tokenize_prompts(rows) for rows in (texts, messages)]
calls = []
own = trainer._tokenize_prompts
trainer._tokenize_prompts = lambda rows: calls.append(len(rows)) or own(rows)
tokenize_distinct_prompts(trainer)
ours = [trainer._tokenize_prompts(rows) for rows in (texts, messages)]
say(same=ours == theirs, calls=calls, lengths=[[len(ids) for ids in found[0]] for found in ours])
"""
)


@pytest.mark.stack
def test_trl_s_own_tokens(stack_python: Path, tmp_path: Path) -> None:
    found = run_code(stack_python, REAL, tmp_path)
    assert found == {"same": True, "calls": [2, 2], "lengths": [[3, 2, 3], [4, 3, 4]]}
