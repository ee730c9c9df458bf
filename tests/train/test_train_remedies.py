"""What a plan advises where it does not fit: each setting exists, is taken by the trainer, and is needed."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from memory.config_sources import read_shape
from plan import plan
from settings import BadInput, vocabulary
from stacks import defaults

GIB = 1 << 30
GIVEN: list[dict[str, Any]] = [
    {},
    {"generation": "vllm-colocate"},
    {"generation": "vllm-colocate", "vllm_share": 0.6},
    {"generation": "transformers-graphs"},
    {"lora_rank": 8, "max_completion_length": 4096},
    {"micro_batch": 16, "dtype": "float32"},
    {"sharding": "fsdp", "beta": 0.1},
]


def planned(model: str, gib: int, gpus: int, trl: str, given: dict[str, Any]) -> dict[str, Any]:
    machine = {"gpus": gpus, "memory": gib * GIB, "free": gib * GIB, "name": f"{gib} GiB"}
    return plan(read_shape(model)[0], defaults(model=model, max_prompt_length=256, **given), machine, trl=trl)


def advice(*asked: Any) -> list[dict[str, Any]]:
    return [row["set"] for row in planned(*asked)["remedies"]]


def merged(sets: list[dict[str, Any]]) -> dict[str, Any]:
    return {key: value for each in sets for key, value in each.items()}


@pytest.mark.parametrize("model", ["Qwen/Qwen2.5-7B", "openai/gpt-oss-20b"])
@pytest.mark.parametrize("trl", ["", "0.27.1", "1.16.0"])
def test_advice_is_followable_enough_and_none_of_it_needless(model: str, trl: str) -> None:
    seen = 0
    for gib, gpus, given in itertools.product((24, 80), (1, 4), GIVEN):
        try:
            made = planned(model, gib, gpus, trl, given)
        except BadInput:
            continue
        if made["fits"] or not made["remedies"]:
            continue
        seen += 1
        sets = [row["set"] for row in made["remedies"]]
        assert set(merged(sets)) <= set(vocabulary())
        assert all(row["saves"] >= 0 for row in made["remedies"])
        again = planned(model, gib, gpus, trl, given | merged(sets))  # BadInput if the trainer would refuse it
        assert again["fits"] == made["remedies"][-1]["fits"]
        for left_out in sets if again["fits"] else ():
            try:
                less = planned(model, gib, gpus, trl, given | merged([each for each in sets if each is not left_out]))
            except BadInput:
                continue
            assert not less["fits"], (gib, gpus, given, sets, left_out)
    assert seen > 3


def test_several_gpus_are_told_to_divide_the_model() -> None:
    asked = ("meta-llama/Llama-3.1-8B", 80, 4)
    assert {"sharding": "fsdp"} in advice(*asked, "", {})
    assert {"sharding": "fsdp"} in advice(*asked, "1.16.0", {})
    for apart in ((*asked, "0.27.1", {}), (*asked, "1.16.0", {"generation": "vllm-colocate"})):  # which refuse it
        assert {"sharding": "fsdp"} not in advice(*apart)
    assert {"sharding": "fsdp"} not in advice("meta-llama/Llama-3.1-8B", 80, 1, "1.16.0", {})


def test_a_sleep_is_advised_only_where_vllm_wakes_with_its_weights() -> None:
    asked = ("unsloth/gpt-oss-20b-BF16", 90, 1)
    given = {"generation": "vllm-colocate", "lora_rank": 8, "gradient_checkpointing": True, "micro_batch": 4,
             "max_completion_length": 4096}  # fmt: skip
    for trl, safe in (("0.22.2", False), ("0.24.0", True), ("0.25.1", False), ("1.9.0", False), ("1.10.0", True)):
        assert ({"vllm_sleep": True} in advice(*asked, trl, given)) is safe
    rows = {tuple(row["set"]): row["why"] for row in planned(*asked, "", given)["remedies"]}
    assert "1.10 and newer" in rows[("vllm_sleep",)]  # an unknown TRL: when it is


def test_a_micro_batch_that_nobody_named_is_found_and_not_advised() -> None:
    """The trainer takes the largest that fits by itself."""
    asked = ("Qwen/Qwen2.5-7B", 24, 1, "1.16.0")
    assert advice(*asked, {}) == [{"lora_rank": 16}]
    assert "micro_batch" in merged(advice(*asked, {"micro_batch": 64}))


def test_liger_s_loss_is_advised_where_it_helps() -> None:
    asked, given = ("Qwen/Qwen2.5-7B", 24, 1), {"lora_rank": 8, "micro_batch": 1, "max_completion_length": 8192}
    given |= {"prompts_per_step": 1, "gradient_checkpointing": True}
    # Before 1.14 it holds an answer's logits: no less than a pass of one answer.
    for trl, kind, there in (("1.13.0", "sapo", False), ("1.14.0", "dapo", True), ("1.14.0", "sapo", True)):
        assert ({"liger_loss": True} in advice(*asked, trl, given | {"loss_type": kind})) is there
    assert {"liger_loss": True} not in advice(*asked, "1.15.0", given)


def test_what_helps_is_not_hidden_behind_another_phase() -> None:
    """An adapter alone leaves the update as large, and saves 80 GiB of the optimizer's step."""
    given = {"micro_batch": 16, "dtype": "bfloat16"}
    sets = advice("unsloth/gpt-oss-20b-BF16", 80, 4, "0.27.1", given)
    assert merged(sets) == {"micro_batch": 4, "lora_rank": 16}


def test_vllm_s_second_copy_is_given_up_where_nothing_else_helps() -> None:
    given = {"generation": "vllm-colocate", "vllm_share": 0.6, "vllm_max_model_length": 768}
    found = merged(advice("Qwen/Qwen2.5-7B", 24, 1, "1.16.0", given))
    assert found["generation"] == "transformers"
    assert (found["vllm_share"], found["vllm_max_model_length"]) == (0.0, 0)
