"""Prompts counted as TRL makes their tokens: by the rules, and against steps of TRL itself in every stack."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from data.lengths import adds_special_tokens, choose_bounds, choose_form, encode, fit, measure, prepare_prompts
from settings import BadInput
from stacks import all_stacks, defaults, name_of, run_code


class Letters:
    """A tokenizer of letters with a BOS: quick to reason about. The real ones are in the tests of the stacks."""

    all_special_tokens = ("<s>", "<|im_end|>")
    name_or_path = "letters"

    def __init__(self, template: str | None = None) -> None:
        self.chat_template = template

    def __call__(self, text: Any, *, add_special_tokens: bool) -> dict[str, Any]:
        if isinstance(text, list):
            return {"input_ids": [self(one, add_special_tokens=add_special_tokens)["input_ids"] for one in text]}
        return {"input_ids": [1] * add_special_tokens + [ord(letter) for letter in text.strip()]}

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
        return "".join(f"<{one['content']}>" for one in messages) + "A:"


@pytest.fixture(autouse=True)
def _trl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _: "1.16.0")


def rows_of(*prompts: Any) -> list[dict[str, Any]]:
    """Rows as rows.py makes them."""
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


def test_lengths_of_texts() -> None:
    rows = rows_of(*("x" * count for count in range(1, 21)))
    found = measure(rows, Letters(), defaults(max_completion_length=10), context=30)
    assert (found.longest, found.median, found.p95, found.longest_source) == (21, 11, 20, "a.csv:20")  # with BOS
    assert (found.bound, found.overlong, found.window, found.special_tokens) == (20, 1, 30, 1)


def test_form_follows_data_template_and_setting() -> None:
    talk, plain, marked = (
        rows_of(prompt) for prompt in ([{"role": "user", "content": "hi"}], "hi", "<|start|>user<|message|>hi")
    )
    cases = [
        (talk, "t", "auto", "messages"),
        (plain, "t", "auto", "messages"),
        (plain, None, "auto", "text"),
        (plain, "t", "text", "text"),
        (plain, "t", "messages", "messages"),
        (marked, "t", "auto", "text"),  # wrapped once more, it would say something else
        (rows_of("a <|im_end|> b"), "t", "auto", "text"),
    ]
    for rows, template, chat, form in cases:
        assert choose_form(rows, Letters(template), defaults(chat=chat)) == form
    for rows, template, chat, said in (
        (talk, None, "auto", "has no chat template"),
        (plain, None, "messages", "has no chat template"),
        (talk, "t", "text", "are messages"),
        (marked, "t", "messages", "in a chat format already: its prompt holds '<|start|>'"),
    ):
        with pytest.raises(BadInput) as caught:
            choose_form(rows, Letters(template), defaults(chat=chat))
        assert said in caught.value.message


def test_system_prompt_comes_before() -> None:
    assert prepare_prompts(rows_of("hi"), "text", "be kind")[0]["prompt"] == "be kind\n\nhi"
    talk = prepare_prompts(rows_of("hi"), "messages", "be kind")
    assert talk[0]["prompt"] == [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hi"}]
    with pytest.raises(BadInput, match="begins with a system message"):
        prepare_prompts(talk, "messages", "be brief")
    with pytest.raises(BadInput, match=r"refuses the prompt of a.csv:1 \(system, user\): ValueError: no system role"):
        encode(talk, Letters("t"), defaults())


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
    ("changed", "context", "said"),
    [
        ({"max_seq_length": 2000}, 1000, "max_position_embeddings = 1000"),
        ({"max_completion_length": 0}, 0, "neither max_seq_length nor"),
        ({"max_completion_length": 1000}, 1000, "leaves no room for a prompt"),
        ({"max_seq_length": 256}, 1000, "leaves no room for a prompt: max_seq_length = 256"),
    ],
)
def test_bounds_that_cannot_be(changed: dict[str, int], context: int, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        choose_bounds(defaults(**changed), context)
    assert said in caught.value.message


def test_overlong_prompts_are_refused_left_out_or_cut() -> None:
    rows = rows_of("a" * 5, "b" * 30 + "end", "c" * 12)
    changed = {"max_seq_length": 20, "max_completion_length": 8}  # prompts of at most 12 tokens
    with pytest.raises(BadInput, match=r"2 of 3 prompts have more than 12 tokens, the longest \(a.csv:2\) 34 "):
        fit(rows, Letters(), defaults(**changed))
    kept, lengths = fit(rows, Letters(), defaults(overlong="filter", **changed))
    assert [row["source"] for row in kept] == ["a.csv:1"]
    assert (lengths.overlong, lengths.filtered, lengths.longest) == (2, 2, 6)
    kept, lengths = fit(rows, Letters(), defaults(overlong="truncate", **changed))
    assert [row["prompt"] for row in kept] == ["aaaaa", "bbbbbbbbend", "c" * 11]
    assert (lengths.truncated, lengths.longest, lengths.max_completion_length) == (2, 12, 8)


def test_nothing_left_and_messages_cut_are_errors() -> None:
    with pytest.raises(BadInput, match="none would be left"):
        fit(rows_of("a" * 30), Letters(), defaults(overlong="filter", max_prompt_length=3))
    talk = rows_of([{"role": "user", "content": "a" * 30}])
    with pytest.raises(BadInput, match="messages cannot be truncated"):
        fit(talk, Letters("t"), defaults(overlong="truncate", max_prompt_length=3))


def test_a_cut_that_text_cannot_express_moves_on() -> None:
    # Letters drops leading blanks, as some tokenizers do: a cut before a blank gives other tokens than were kept.
    kept, lengths = fit(rows_of("aaaa    bb"), Letters(), defaults(overlong="truncate", max_prompt_length=6))
    assert (kept[0]["prompt"], lengths.longest) == ("bb", 3)
    with pytest.raises(BadInput, match="cannot be cut to 30"):
        fit(rows_of("a" * 40 + " " * 40 + "."), Letters(), defaults(overlong="truncate", max_prompt_length=30))


def test_the_longest_prompt_leaves_the_rest_to_the_completion() -> None:
    changed = {"max_seq_length": 40, "max_completion_length": 0}
    assert fit(rows_of("a" * 9), Letters(), defaults(**changed))[1].max_completion_length == 30
    with pytest.raises(BadInput, match="1 of 1 prompts have more than 39 tokens"):
        fit(rows_of("a" * 39), Letters(), defaults(**changed))


# A byte-level BPE with a BOS around texts, as Llama's; learnt from a few sentences on the spot.
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
def test_counts_are_those_of_trl_in_every_stack(stack_python: Path, tmp_path: Path) -> None:
    """One step of TRL on texts and one on messages: its prompt_mask holds as many tokens as were counted."""
    code = """
        import torch
        from dataclasses import fields
        from datasets import Dataset
        from transformers import Qwen2Config, Qwen2ForCausalLM
        from trl import GRPOConfig, GRPOTrainer
        from tasks import lengths
        settings, folder = given
        tokenizer, found = make_tokenizer(), {}
        texts = [WORDS * n + "x" * n for n in (1, 2, 3, 40)]  # the last is far past 512 tokens
        config = Qwen2Config(vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                             num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=2048)
        for form in ("text", "messages"):
            rows = [{"prompt": text, "source": str(n), "file": "f"} for n, text in enumerate(texts)]
            rows = lengths.prepare_prompts(rows, form, "be kind")
            counted = [len(ids) for ids in lengths.encode(rows, tokenizer, settings)]
            seen = {}
            class Watched(GRPOTrainer):
                def _generate_and_score_completions(self, inputs):
                    made = super()._generate_and_score_completions(inputs)
                    for one, ids, mask in zip(inputs, made["prompt_ids"], made["prompt_mask"]):
                        seen[one["row"]] = ids[mask.bool()].tolist()
                    return made
            more = {"max_prompt_length": None} if "max_prompt_length" in {f.name for f in fields(GRPOConfig)} else {}
            torch.manual_seed(0)
            trainer = Watched(
                model=Qwen2ForCausalLM(config), processing_class=tokenizer,
                reward_funcs=lambda completions, **_: [0.0] * len(completions),
                args=GRPOConfig(output_dir=folder, max_steps=1, per_device_train_batch_size=8, num_generations=2,
                                max_completion_length=2, use_cpu=True, bf16=False, report_to="none",
                                save_strategy="no",
                                gradient_checkpointing=False, disable_tqdm=True, **more),
                train_dataset=Dataset.from_list([{"prompt": row["prompt"], "row": n} for n, row in enumerate(rows)]))
            trainer.train()
            in_order = [seen[n] for n in range(len(rows))]
            same = lengths.encode(rows, tokenizer, settings) == in_order
            measured = lengths.measure(rows, tokenizer, settings).as_record()
            found[form] = [counted, [len(ids) for ids in in_order], same, measured]
        say(**found)
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
def test_cuts_give_the_tokens_that_were_kept_in_every_stack(stack_python: Path) -> None:
    """Every cut of a text with characters of several bytes comes back as the end of the tokens, or is refused."""
    code = """
        from tasks import lengths
        from settings import BadInput
        tokenizer, found = make_tokenizer(), []
        text = WORDS * 2 + "\u6f22\u5b57 \u20ac " + WORDS  # letters that were not learnt: three tokens each
        whole = tokenizer(text, add_special_tokens=False)["input_ids"]
        row = {"prompt": text, "source": "a:1", "file": "a"}
        for bound in range(2, len(whole)):
            settings = given[0] | {"max_prompt_length": bound, "overlong": "truncate"}
            try:
                (cut,), told = lengths.fit([row], tokenizer, settings)
            except BadInput:
                found.append(None)
                continue
            ids = tokenizer(cut["prompt"], add_special_tokens=False)["input_ids"]
            again = len(lengths.encode([cut], tokenizer, settings)[0])
            found.append([whole[-len(ids):] == ids, again == told.longest, bound - again])
        say(found=found)
    """
    for python in all_stacks(stack_python):
        found = run_code(python, BPE + dedent(code), defaults())["found"]
        assert all(one is None or (one[0] and one[1] and 0 <= one[2] <= 16) for one in found)
        assert sum(one is not None for one in found) > 0.9 * len(found)
        assert any(one and one[2] > 0 for one in found)  # a cut within a character had to move
