"""Each distinct prompt is tokenized once, with the same tokens as TRL's."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from patches.prompt_tokenization import tokenize_distinct_prompts
from support.stacks import TINY, run_code


def make_trainer(images: Any = None, fields: dict[str, Any] | None = None) -> tuple[Any, list[int]]:
    """A trainer that makes two tokens of each prompt, and the sizes of its tokenized batches."""
    batch_sizes: list[int] = []

    def tokenize(prompts: list[Any]) -> tuple[list[list[int]], Any, Any]:
        batch_sizes.append(len(prompts))
        return (
            [[len(str(prompt)), batch_sizes[-1]] for prompt in prompts],
            images and images * len(prompts),
            fields or {},
        )

    trainer = SimpleNamespace(_tokenize_prompts=tokenize)
    tokenize_distinct_prompts(trainer)
    return trainer, batch_sizes


def test_equal_prompts_are_tokenized_once_into_separate_lists() -> None:
    trainer, batch_sizes = make_trainer()
    ids, images, fields = trainer._tokenize_prompts(["one", "three", "one", "one", "three"])
    assert (ids, images, fields) == ([[3, 2], [5, 2], [3, 2], [3, 2], [5, 2]], None, {})
    assert batch_sizes == [2]
    ids[0].append(9)
    assert ids[2] == [3, 2]


@pytest.mark.parametrize("more", [{"images": ["picture"]}, {"fields": {"token_type_ids": [[0]]}}])
def test_prompts_with_images_or_fields_are_tokenized_by_trl(more: dict[str, Any]) -> None:
    trainer, batch_sizes = make_trainer(**more)
    ids, images, _ = trainer._tokenize_prompts(["one", "one", "three"])
    assert ids == [[3, 3], [3, 3], [5, 3]]
    assert images in (None, ["picture"] * 3)
    assert batch_sizes == [2, 3]


def test_an_older_trl_is_not_patched() -> None:
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
expected = [trainer._tokenize_prompts(rows) for rows in (texts, messages)]
calls = []
own = trainer._tokenize_prompts
trainer._tokenize_prompts = lambda rows: calls.append(len(rows)) or own(rows)
tokenize_distinct_prompts(trainer)
tokens = [trainer._tokenize_prompts(rows) for rows in (texts, messages)]
report(same=tokens == expected, calls=calls, lengths=[[len(ids) for ids in found[0]] for found in tokens])
"""
)


@pytest.mark.stack
def test_the_tokens_are_those_of_trl(stack_python: Path, tmp_path: Path) -> None:
    found = run_code(stack_python, REAL, tmp_path)
    assert found == {"same": True, "calls": [2, 2], "lengths": [[3, 2, 3], [4, 3, 4]]}
