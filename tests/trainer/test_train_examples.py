"""Examples of SFT and DPO: their data, lengths, settings and memory plan. No torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import plan as memory_plan
import pytest
from checks.versions import at_least
from data.example_lengths import count_tokens, fit, prepare
from grpo import check
from memory.config import parse_config
from packaging.version import Version
from run.resumed_settings import check_changes
from settings import BadInput, Recipe, parse_assignments, resolve_settings, setting_definitions
from support.example_runs import write_examples
from tasks.examples import ExamplesTask
from trl_config.example_arguments import make_example_arguments
from trl_config.versions import InstalledVersions, RunContext
from trl_fields import fields

USER, ASSISTANT = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}
MODEL = {"model": "a/b"}


def own(trainer: str, **settings: Any) -> Recipe:
    return Recipe("mine", "", {"trainer": trainer, **MODEL, **settings})


def write_rows(file: Path, *rows: dict[str, Any], copies: int = 12) -> str:
    """Rows with distinct texts: `N` in a text is the number of the copy."""
    lines = [json.dumps(row).replace("NUMBER", str(copy)) for copy in range(copies) for row in rows]
    file.write_text("\n".join(lines))
    return str(file)


def task_of(trainer: str, data: str, **settings: Any) -> ExamplesTask:
    return ExamplesTask(resolve_settings(own(trainer), {"data": data, **settings}))


def refusal(trainer: str, given: dict[str, Any]) -> BadInput:
    with pytest.raises(BadInput) as caught:
        check(own(trainer), given)
    assert caught.value.expected
    assert caught.value.hint
    return caught.value


@pytest.mark.parametrize(
    ("trainer", "row", "example"),
    [
        ("sft", {"text": "word NUMBER"}, ["text"]),
        ("sft", {"messages": [{"role": "user", "content": "NUMBER"}, ASSISTANT]}, ["messages"]),
        ("sft", {"prompt": "NUMBER", "completion": "b"}, ["prompt", "completion"]),
        ("sft", {"prompt": [{"role": "user", "content": "NUMBER"}], "completion": [ASSISTANT]},
         ["prompt", "completion"]),
        ("sft", {"conversations": [{"from": "human", "value": "NUMBER"}, {"from": "gpt", "value": "b"}]},
         ["messages"]),
        ("dpo", {"prompt": "NUMBER", "chosen": "a", "rejected": "b"}, ["prompt", "chosen", "rejected"]),
        ("dpo", {"chosen": "NUMBER a", "rejected": "NUMBER b"}, ["chosen", "rejected"]),
        ("dpo", {"chosen": [{"role": "user", "content": "NUMBER"}, ASSISTANT],
                 "rejected": [{"role": "user", "content": "NUMBER"}, {"role": "assistant", "content": "no"}]},
         ["chosen", "rejected"]),
    ],
)  # fmt: skip
def test_each_dataset_type_of_trl_is_read(
    tmp_path: Path, trainer: str, row: dict[str, Any], example: list[str]
) -> None:
    task = task_of(trainer, write_rows(tmp_path / "rows.jsonl", row))
    assert list(task.train[0]["example"]) == example
    assert (len(task.held_out), len(task.train)) == (1, 11)
    assert not {row["key"] for row in task.train} & {row["key"] for row in task.held_out}
    if "conversations" in row:
        assert [message["role"] for message in task.train[0]["example"]["messages"]] == ["user", "assistant"]


def test_rows_with_the_same_prompt_are_not_split(tmp_path: Path) -> None:
    rows = [{"chosen": f"question NUMBER {good}", "rejected": f"question NUMBER {bad}"} for good, bad in ("ab", "cd")]
    task = task_of("dpo", write_rows(tmp_path / "rows.jsonl", *rows), held_out="share=0.25")
    assert (len(task.held_out), len(task.train)) == (6, 18)


@pytest.mark.parametrize(
    ("trainer", "row", "message", "hint"),
    [
        ("sft", {"question": "a NUMBER", "answer": "b"}, "has question, answer",
         "--set prompt_column=question --set completion_column=answer"),
        ("sft", {"prompt": "NUMBER", "chosen": "a", "rejected": "b"}, "has prompt, chosen, rejected",
         "--trainer dpo"),
        ("sft", {"body": "a NUMBER"}, "has body", "--set text_column=NAME"),
        ("sft", {"messages": [ASSISTANT, USER]}, "the last message has the role user", "correct the data"),
        ("sft", {"messages": [{"role": "bot", "content": "x"}]}, "message 1: {'role': 'bot'", "correct the data"),
        ("sft", {"prompt": "NUMBER", "completion": [ASSISTANT]}, "completion is messages, prompt is text",
         "correct the data"),
        ("sft", {"text": 4}, "column text contains 4", "correct the data"),
        ("dpo", {"prompt": "NUMBER", "completion": "x"}, "has prompt, completion", "rename the columns"),
        ("dpo", {"prompt": "NUMBER", "chosen": "a", "rejected": "a"}, "equal completions", "correct the data"),
        ("dpo", {"prompt": "NUMBER", "chosen": "a", "rejected": ""}, "column rejected is empty", "correct the data"),
    ],
)  # fmt: skip
def test_rows_of_another_shape_are_refused(
    tmp_path: Path, trainer: str, row: dict[str, Any], message: str, hint: str
) -> None:
    error = refusal(trainer, {"data": write_rows(tmp_path / "rows.jsonl", row)})
    assert message in error.message
    assert error.hint.startswith(hint)


@pytest.mark.parametrize(("trainer", "option"), [("sft", "--trainer sft"), ("dpo", "--trainer dpo")])
def test_grpo_names_the_trainer_for_other_rows(tmp_path: Path, trainer: str, option: str) -> None:
    row = {"messages": [USER, ASSISTANT]} if trainer == "sft" else {"chosen": "NUMBER a", "rejected": "NUMBER b"}
    assert refusal("grpo", {"data": write_rows(tmp_path / "rows.jsonl", row)}).hint == option


class Words:
    """A tokenizer with one token per word."""

    eos_token, chat_template, name_or_path = " end", "x", "words"

    def __call__(self, texts: list[str], *, add_special_tokens: bool) -> dict[str, Any]:
        assert isinstance(add_special_tokens, bool)
        return {"input_ids": [text.split() for text in texts]}

    def apply_chat_template(self, messages: list[dict[str, str]], **_: Any) -> str:
        return " ".join(f"<{message['role']}> {message['content']}" for message in messages)


def test_lengths_and_overlong_examples(tmp_path: Path) -> None:
    rows = [{"prompt": f"a NUMBER{' word' * count}", "completion": " b"} for count in (0, 10)]
    task = task_of("sft", write_rows(tmp_path / "rows.jsonl", *rows), max_length=8)
    lengths = task.use_tokenizer(Words(), 128)
    assert (lengths["longest"], lengths["overlong"], lengths["truncated"]) == (8, 12, 12)
    for overlong, kept in (("filter", 12), ("truncate", 24)):
        settings = resolve_settings(own("sft"), {"data": "x", "max_length": 8, "overlong": overlong})
        usable, found = fit([*task.train, *task.held_out], Words(), settings, 128)
        assert (len(usable), found["filtered"]) == (kept, 24 - kept)
    with pytest.raises(BadInput, match="12 of 24 examples have more than max_length = 8 tokens"):
        fit([*task.train, *task.held_out], Words(), settings | {"overlong": "refuse"}, 128)
    with pytest.raises(BadInput, match="max_length = 300, the model has max_position_embeddings = 128"):
        fit(task.train, Words(), settings | {"max_length": 300}, 128)
    pair = {"form": "text", "example": {"prompt": "a", "chosen": " b", "rejected": " b c"}, "source": "x"}
    assert count_tokens([pair], Words()) == [4]


def test_texts_become_messages_and_get_a_system_prompt(tmp_path: Path) -> None:
    row = {"prompt": "a NUMBER", "completion": "b"}
    settings = {"chat": "messages", "system_prompt": "be brief"}
    task = task_of("sft", write_rows(tmp_path / "rows.jsonl", row), **settings)
    task.use_tokenizer(Words(), 128)
    example = task.train[0]["example"]
    assert [message["role"] for message in example["prompt"]] == ["system", "user"]
    assert example["completion"] == [{"role": "assistant", "content": "b"}]
    text = {"form": "text", "example": {"text": "a"}, "source": "x"}
    for given in ({"chat": "messages", "system_prompt": ""}, {"chat": "auto", "system_prompt": "x"}):
        with pytest.raises(BadInput, match="has no prompt of its own"):
            prepare([text], Words(), given)


def test_settings_belong_to_trainers() -> None:
    assert resolve_settings(own("sft"), {})["learning_rate"] == 2e-5
    settled = resolve_settings(own("dpo"), parse_assignments(["loss_type=sigmoid,ipo", "beta=5"], trainer="dpo"))
    assert (settled["loss_type"], settled["beta"], settled["num_train_epochs"]) == (["sigmoid", "ipo"], 5.0, 3.0)
    for trainer, given, message in (
        ("sft", {"num_generations": 4}, "num_generations = 4, which belongs to trainer grpo"),
        ("sft", {"beta": 0.3}, "beta = 0.3, which belongs to trainer grpo and dpo"),
        ("grpo", {"completion_column": "x"}, "completion_column = x, which belongs to trainer sft"),
        ("sft", {"label_smoothing": 0.1}, "label_smoothing is a field of TRL's DPOConfig, and the trainer is sft"),
        ("grpo", {"packing": True}, "packing is a field of TRL's SFTConfig, and the trainer is grpo"),
        ("sft", {"packing_strategy": "bfd"}, "packing_strategy = bfd does nothing with packing"),
        ("sft", {"dataset_text_field": "x"}, "dataset_text_field = x cannot be set"),
        ("grpo", {"trainer": "ppo"}, "trainer = 'ppo'"),
        ("sft", {"task": "tes"}, "task = 'tes'"),
    ):
        with pytest.raises(BadInput) as caught:
            resolve_settings(own(trainer), given)
        assert message in caught.value.message
    with pytest.raises(BadInput) as caught:
        resolve_settings(Recipe("gsm8k", "", MODEL | {"num_generations": 4}), {"trainer": "sft"})
    assert "trainer = sft, but the recipe sets num_generations" in caught.value.message


def test_a_resumed_run_keeps_its_batches() -> None:
    before = resolve_settings(own("sft"), {})
    with pytest.raises(BadInput, match="per_device_train_batch_size = 4"):
        check_changes(before, before | {"per_device_train_batch_size": 4}, "--set")
    grpo = resolve_settings(Recipe("mine", "", MODEL), {})
    assert check_changes(grpo, grpo | {"per_device_train_batch_size": 4}, "--set")
    earlier = {name: value for name, value in grpo.items() if name not in ("trainer", "text_column")}
    assert check_changes(earlier, grpo, "--set") == {}  # of a version without these settings


def installed(trl: str, trainer: str) -> InstalledVersions:
    versions = {"trl": trl, "transformers": "5.17.0" if at_least(trl, (1, 0)) else "4.57.6"}
    names = frozenset(name for name, field in fields(trainer).items() if field.is_in(versions[field.package]))
    return InstalledVersions(Version(trl), names, versions={"transformers": Version(versions["transformers"])})


@pytest.mark.parametrize("trl", ["0.22.2", "0.27.1", "0.28.0", "1.16.0"])
def test_arguments_of_each_release(trl: str) -> None:
    context = RunContext(output="/tmp/run/checkpoints", device="cpu", ranks=1)
    arguments, _ = make_example_arguments(resolve_settings(own("sft"), {}), installed(trl, "sft"), context)
    assert "loss_type" not in arguments
    assert (arguments["per_device_train_batch_size"], arguments["lr_scheduler_type"]) == (8, "linear")
    liger = resolve_settings(own("dpo"), {"use_liger_kernel": True})
    arguments, notes = make_example_arguments(liger, installed(trl, "dpo"), context)
    old = not at_least(trl, (0, 28))
    assert ("use_liger_loss" in arguments, "use_liger_kernel" in arguments) == (old, not old)
    assert bool(notes) == old
    assert arguments.get("max_prompt_length", 0) is (None if not at_least(trl, (0, 29)) else 0) or not old
    with_loss = resolve_settings(own("sft"), {"loss_type": "dft"})
    if trl == "0.22.2":
        with pytest.raises(BadInput, match=r"loss_type = dft with TRL 0\.22\.2"):
            make_example_arguments(with_loss, installed(trl, "sft"), context)
    else:
        assert make_example_arguments(with_loss, installed(trl, "sft"), context)[0]["loss_type"] == "dft"


SHAPE = parse_config({
    "model_type": "qwen2", "vocab_size": 50_000, "hidden_size": 1024, "intermediate_size": 4096,
    "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 4, "max_position_embeddings": 4096,
})  # fmt: skip
GPU = {"gpus": 1, "memory": 80 << 30, "free": 79 << 30, "name": "GPU", "bfloat16": True}


def planned(trainer: str, trl: str = "1.16.0", memory: int = 80 << 30, **given: Any) -> dict[str, Any]:
    settings = resolve_settings(own(trainer), given)
    return memory_plan.plan(SHAPE, settings, GPU | {"memory": memory, "free": memory}, trl=trl)


def parts(plan: dict[str, Any]) -> dict[str, int]:
    return {part["part"]: part["bytes"] for part in plan["parts"]}


def test_the_plan_of_examples_has_no_generation() -> None:
    sft, dpo = planned("sft"), planned("dpo")
    assert set(sft["phases"]) == {"load", "update", "step"}
    assert (sft["answers"], sft["per_device_train_batch_size"], sft["completion_tokens"]) == (8, 8, 1024)
    assert sft["notes"][-1] == "assumed example length: 1024 tokens; --set max_length=N sets it"
    assert "reference model" not in parts(sft)
    assert parts(dpo)["reference model"] == parts(dpo)["weights"]
    assert parts(dpo)["activations"] == 2 * parts(sft)["activations"]  # both completions of a pair
    assert "reference model" not in parts(planned("dpo", precompute_ref_log_probs=True))
    assert "reference model" not in parts(planned("dpo", r=8))
    assert parts(planned("dpo", r=8))["reference pass"] > 0
    assert planned("sft", gradient_accumulation_steps=4)["answers"] == 32
    assert planned("sft", max_length=512)["peak"] < sft["peak"] < planned("sft", max_length=4096)["peak"]
    held = [planned("sft", trl=trl) for trl in ("1.6.0", "1.7.1")]
    assert parts(held[0])["logits"] > 3 * parts(held[1])["logits"]  # chunked_nll is the default from 1.7 on


def test_remedies_of_examples_are_settings_of_the_trainer() -> None:
    plan = planned("sft", memory=24 << 30, max_length=4096)
    assert plan["fits"] is False
    assert plan["remedies"][-1]["fits"]
    changed: dict[str, Any] = {}
    for remedy in plan["remedies"]:
        changed |= remedy["set"]
    assert set(changed) <= {*setting_definitions(), "max_length"}
    assert planned("sft", memory=24 << 30, **{"max_length": 4096} | changed)["fits"]
    if "gradient_accumulation_steps" in changed:
        assert changed["gradient_accumulation_steps"] * changed["per_device_train_batch_size"] == 8


def test_the_examples_of_the_support_module_are_read(tmp_path: Path) -> None:
    for trainer in ("sft", "dpo"):
        assert len(task_of(trainer, str(write_examples(tmp_path / f"{trainer}.jsonl", trainer))).train) == 22
