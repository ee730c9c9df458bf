"""Prompt lengths: the rules, and a comparison with the tokens of TRL itself in every stack."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from data.lengths import adds_special_tokens, choose_bounds, choose_form, encode, fit, measure, prepare_prompts
from settings import BadInput
from support.stacks import all_stacks, defaults, name_of, run_code


class CharTokenizer:
    """A character tokenizer with a BOS. The stack tests use a real tokenizer."""

    all_special_tokens = ("<s>", "<|im_end|>")
    name_or_path = "characters"

    def __init__(self, template: str | None = None) -> None:
        self.chat_template = template

    def __call__(self, text: Any, *, add_special_tokens: bool) -> dict[str, Any]:
        if isinstance(text, list):
            return {"input_ids": [self(item, add_special_tokens=add_special_tokens)["input_ids"] for item in text]}
        return {"input_ids": [1] * add_special_tokens + [ord(character) for character in text.strip()]}

    def decode(self, ids: list[int], **_: Any) -> str:
        return "".join(map(chr, ids))

    @staticmethod
    def num_special_tokens_to_add(*, pair: bool) -> int:
        return 1 + pair

    @staticmethod
    def apply_chat_template(messages: list[dict[str, str]], **options: Any) -> str:
        assert options == {"add_generation_prompt": True, "tokenize": False}
        if messages[0]["role"] == "system":
            raise ValueError("no system role")
        return "".join(f"<{message['content']}>" for message in messages) + "A:"


@pytest.fixture(autouse=True)
def _trl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _: "1.16.0")


def rows_of(*prompts: Any) -> list[dict[str, Any]]:
    """Return rows like those of data/rows.py."""
    return [{"prompt": prompt, "source": f"a.csv:{n}", "file": "a.csv"} for n, prompt in enumerate(prompts, 1)]


@pytest.mark.parametrize(
    ("trl", "generation", "text", "messages"),
    [
        ("0.22.2", "transformers", False, False),
        ("0.23.1", "transformers-paged", True, True),
        ("0.23.1", "vllm-colocate", True, True),
        ("0.25.1", "transformers", False, False),
        ("0.25.1", "vllm-server", True, False),
        ("0.26.2", "transformers", True, False),
        ("0.27.1", "vllm-colocate", True, False),
        ("1.16.0", "transformers-paged", True, False),
        ("1.16.0.dev0", "transformers", True, False),
    ],
)
def test_special_tokens_by_version(trl: str, generation: str, text: bool, messages: bool) -> None:
    assert adds_special_tokens(trl, generation, messages=False) is text
    assert adds_special_tokens(trl, generation, messages=True) is messages


def test_statistics_of_text_prompts() -> None:
    rows = rows_of(*("x" * count for count in range(1, 21)))
    found = measure(rows, CharTokenizer(), defaults(max_completion_length=10), context=30)
    assert (found.longest, found.median, found.p95, found.longest_source) == (21, 11, 20, "a.csv:20")  # with BOS
    assert (found.bound, found.overlong, found.window, found.special_tokens) == (20, 1, 30, 1)


def test_form_depends_on_data_template_and_setting() -> None:
    messages, plain, markup = (
        rows_of(prompt) for prompt in ([{"role": "user", "content": "hi"}], "hi", "<|start|>user<|message|>hi")
    )
    cases = [
        (messages, "t", "auto", "messages"),
        (plain, "t", "auto", "messages"),
        (plain, None, "auto", "text"),
        (plain, "t", "text", "text"),
        (plain, "t", "messages", "messages"),
        (markup, "t", "auto", "text"),  # the template must not be applied twice
        (rows_of("a <|im_end|> b"), "t", "auto", "text"),
    ]
    for rows, template, chat, form in cases:
        assert choose_form(rows, CharTokenizer(template), defaults(chat=chat)) == form
    for rows, template, chat, problem in (
        (messages, None, "auto", "has no chat template"),
        (plain, None, "messages", "has no chat template"),
        (messages, "t", "text", "are messages"),
        (markup, "t", "messages", "already has a chat format: it contains '<|start|>'"),
    ):
        with pytest.raises(BadInput) as caught:
            choose_form(rows, CharTokenizer(template), defaults(chat=chat))
        assert problem in caught.value.message


def test_system_prompt_comes_first() -> None:
    assert prepare_prompts(rows_of("hi"), "text", "be kind")[0]["prompt"] == "be kind\n\nhi"
    messages = prepare_prompts(rows_of("hi"), "messages", "be kind")
    assert messages[0]["prompt"] == [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hi"}]
    with pytest.raises(BadInput, match="begins with a system message"):
        prepare_prompts(messages, "messages", "be brief")
    with pytest.raises(BadInput, match=r"refuses the prompt of a.csv:1 \(system, user\): ValueError: no system role"):
        encode(messages, CharTokenizer("t"), defaults())


@pytest.mark.parametrize(
    ("changed", "context", "window", "bound"),
    [
        ({}, 0, 0, 0),
        ({"max_prompt_length": 5}, 0, 0, 5),
        ({}, 1000, 1000, 744),
        ({"max_seq_length": 300}, 1000, 300, 44),
        ({"max_seq_length": 300, "max_prompt_length": 20}, 1000, 300, 20),
        ({"max_seq_length": 300, "max_completion_length": 0}, 0, 300, 299),
    ],
)
def test_bounds(changed: dict[str, int], context: int, window: int, bound: int) -> None:
    assert choose_bounds(defaults(**changed), context) == (window, bound)


@pytest.mark.parametrize(
    ("changed", "context", "problem"),
    [
        ({"max_seq_length": 2000}, 1000, "max_position_embeddings = 1000"),
        ({"max_completion_length": 0}, 0, "neither max_seq_length nor"),
        ({"max_completion_length": 1000}, 1000, "leaves no tokens for a prompt"),
        ({"max_seq_length": 256}, 1000, "leaves no tokens for a prompt: max_seq_length = 256"),
    ],
)
def test_impossible_bounds(changed: dict[str, int], context: int, problem: str) -> None:
    with pytest.raises(BadInput) as caught:
        choose_bounds(defaults(**changed), context)
    assert problem in caught.value.message


def test_overlong_prompts_are_refused_filtered_or_truncated() -> None:
    rows = rows_of("a" * 5, "b" * 30 + "end", "c" * 12)
    changed = {"max_seq_length": 20, "max_completion_length": 8}  # prompts of at most 12 tokens
    with pytest.raises(BadInput, match=r"2 of 3 prompts have more than 12 tokens, the longest \(a.csv:2\) 34 "):
        fit(rows, CharTokenizer(), defaults(**changed))
    usable, lengths = fit(rows, CharTokenizer(), defaults(overlong="filter", **changed))
    assert [row["source"] for row in usable] == ["a.csv:1"]
    assert (lengths.overlong, lengths.filtered, lengths.longest) == (2, 2, 6)
    usable, lengths = fit(rows, CharTokenizer(), defaults(overlong="truncate", **changed))
    assert [row["prompt"] for row in usable] == ["aaaaa", "bbbbbbbbend", "c" * 11]
    assert (lengths.truncated, lengths.longest, lengths.max_completion_length) == (2, 12, 8)


def test_filtering_all_prompts_and_truncating_messages_are_errors() -> None:
    with pytest.raises(BadInput, match="none would be left"):
        fit(rows_of("a" * 30), CharTokenizer(), defaults(overlong="filter", max_prompt_length=3))
    messages = rows_of([{"role": "user", "content": "a" * 30}])
    with pytest.raises(BadInput, match="messages cannot be truncated"):
        fit(messages, CharTokenizer("t"), defaults(overlong="truncate", max_prompt_length=3))


def test_truncation_moves_on_if_the_text_encodes_differently() -> None:
    # CharTokenizer drops leading blanks, as some tokenizers do: a cut before a blank encodes to other tokens.
    usable, lengths = fit(rows_of("aaaa    bb"), CharTokenizer(), defaults(overlong="truncate", max_prompt_length=6))
    assert (usable[0]["prompt"], lengths.longest) == ("bb", 3)
    with pytest.raises(BadInput, match="cannot be truncated to 30 tokens"):
        fit(rows_of("a" * 40 + " " * 40 + "."), CharTokenizer(), defaults(overlong="truncate", max_prompt_length=30))


def test_completions_get_the_rest_after_the_longest_prompt() -> None:
    changed = {"max_seq_length": 40, "max_completion_length": 0}
    assert fit(rows_of("a" * 9), CharTokenizer(), defaults(**changed))[1].max_completion_length == 30
    with pytest.raises(BadInput, match="1 of 1 prompts have more than 39 tokens"):
        fit(rows_of("a" * 39), CharTokenizer(), defaults(**changed))


# A byte-level BPE with a BOS in front of texts, like Llama's, trained on a few sentences.
BPE = """
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

WORDS = "The load of the next hour is 38 kW, the store 150 kWh; \\u65e5\\u672c\\u8a9e caf\\u00e9. "

def make_tokenizer():
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    special = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
    letters = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator([WORDS] * 4, trainers.BpeTrainer(
        vocab_size=330, special_tokens=special, initial_alphabet=letters, show_progress=False))
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", pad_token="</s>",
        model_input_names=["input_ids", "attention_mask"])
    tokenizer.chat_template = (
        "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\\n{{ m.content }}<|im_end|>\\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\\n{% endif %}")
    return tokenizer
"""


@pytest.mark.stack
def test_counts_match_trl_in_every_stack(stack_python: Path, tmp_path: Path) -> None:
    """Run one step of TRL on texts and one on messages, and compare its prompt tokens with the counts."""
    code = """
        import torch
        from dataclasses import fields
        from datasets import Dataset
        from transformers import Qwen2Config, Qwen2ForCausalLM
        from trl import GRPOConfig, GRPOTrainer
        from data import lengths
        settings, folder = given
        tokenizer, found = make_tokenizer(), {}
        texts = [WORDS * n + "x" * n for n in (1, 2, 3, 40)]  # the last is far past 512 tokens
        config = Qwen2Config(vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                             num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=2048)
        for form in ("text", "messages"):
            rows = [{"prompt": text, "source": str(n), "file": "f"} for n, text in enumerate(texts)]
            rows = lengths.prepare_prompts(rows, form, "be kind")
            counted = [len(ids) for ids in lengths.encode(rows, tokenizer, settings)]
            used = {}
            class RecordingTrainer(GRPOTrainer):
                def _generate_and_score_completions(self, inputs):
                    outputs = super()._generate_and_score_completions(inputs)
                    for sample, ids, mask in zip(inputs, outputs["prompt_ids"], outputs["prompt_mask"]):
                        used[sample["row"]] = ids[mask.bool()].tolist()
                    return outputs
            extra = {"max_prompt_length": None} if "max_prompt_length" in {f.name for f in fields(GRPOConfig)} else {}
            torch.manual_seed(0)
            trainer = RecordingTrainer(
                model=Qwen2ForCausalLM(config), processing_class=tokenizer,
                reward_funcs=lambda completions, **_: [0.0] * len(completions),
                args=GRPOConfig(output_dir=folder, max_steps=1, per_device_train_batch_size=8, num_generations=2,
                                max_completion_length=2, use_cpu=True, bf16=False, report_to="none",
                                save_strategy="no",
                                gradient_checkpointing=False, disable_tqdm=True, **extra),
                train_dataset=Dataset.from_list([{"prompt": row["prompt"], "row": n} for n, row in enumerate(rows)]))
            trainer.train()
            in_order = [used[n] for n in range(len(rows))]
            same = lengths.encode(rows, tokenizer, settings) == in_order
            measured = lengths.measure(rows, tokenizer, settings).as_record()
            found[form] = [counted, [len(ids) for ids in in_order], same, measured]
        report(**found)
    """
    head = 'import os; os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"\n'
    for python in all_stacks(stack_python):
        found = run_code(python, head + BPE + dedent(code), defaults(), tmp_path)
        for form in ("text", "messages"):
            counted, used, same, lengths = found[form]
            assert counted == used, (name_of(python), form)
            assert same, (name_of(python), form)
            assert max(counted) == lengths["longest"] > 512
        assert found["text"][3]["special_tokens"] in (0, 1)


@pytest.mark.stack
def test_truncated_texts_encode_to_the_same_tokens_in_every_stack(stack_python: Path) -> None:
    """A truncated text with multi-byte characters encodes to the end of the tokens, or is refused."""
    code = """
        from data import lengths
        from settings import BadInput
        tokenizer, found = make_tokenizer(), []
        text = WORDS * 2 + "\u6f22\u5b57 \u20ac " + WORDS  # characters outside the training text: three tokens each
        full = tokenizer(text, add_special_tokens=False)["input_ids"]
        row = {"prompt": text, "source": "a:1", "file": "a"}
        for bound in range(2, len(full)):
            settings = given[0] | {"max_prompt_length": bound, "overlong": "truncate"}
            try:
                (row_cut,), measured = lengths.fit([row], tokenizer, settings)
            except BadInput:
                found.append(None)
                continue
            ids = tokenizer(row_cut["prompt"], add_special_tokens=False)["input_ids"]
            count = len(lengths.encode([row_cut], tokenizer, settings)[0])
            found.append([full[-len(ids):] == ids, count == measured.longest, bound - count])
        report(found=found)
    """
    for python in all_stacks(stack_python):
        found = run_code(python, BPE + dedent(code), defaults())["found"]
        assert all(cut is None or (cut[0] and cut[1] and 0 <= cut[2] <= 16) for cut in found)
        assert sum(cut is not None for cut in found) > 0.9 * len(found)
        assert any(cut and cut[2] > 0 for cut in found)  # a cut inside a character had to move
