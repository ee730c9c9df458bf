"""Remedies of a plan that does not fit: the trainer accepts each change, and none is needless."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from memory.config_sources import read_shape
from plan import plan
from settings import BadInput, setting_definitions
from support.stacks import defaults

GIB = 1 << 30
SETTINGS: list[dict[str, Any]] = [
    {},
    {"use_vllm": True},
    {"use_vllm": True, "vllm_gpu_memory_utilization": 0.6},
    {"cuda_graph_decoding": True},
    {"r": 8, "max_completion_length": 4096},
    {"per_device_train_batch_size": 16, "dtype": "float32"},
    {"fsdp": "full_shard", "beta": 0.1},
]


def planned(model: str, gib: int, gpus: int, trl: str, changed: dict[str, Any]) -> dict[str, Any]:
    machine = {"gpus": gpus, "memory": gib * GIB, "free": gib * GIB, "name": f"{gib} GiB"}
    return plan(read_shape(model)[0], defaults(model=model, max_prompt_length=256, **changed), machine, trl=trl)


def suggested_changes(*arguments: Any) -> list[dict[str, Any]]:
    return [row["set"] for row in planned(*arguments)["remedies"]]


def merged(sets: list[dict[str, Any]]) -> dict[str, Any]:
    return {key: value for each in sets for key, value in each.items()}


@pytest.mark.parametrize("model", ["Qwen/Qwen2.5-7B", "openai/gpt-oss-20b"])
@pytest.mark.parametrize("trl", ["", pytest.param("0.27.1", marks=pytest.mark.long), "1.16.0"])
def test_remedies_are_accepted_and_none_is_needless(model: str, trl: str) -> None:
    checked = 0
    for gib, gpus, changed in itertools.product((24, 80), (1, 4), SETTINGS):
        try:
            result = planned(model, gib, gpus, trl, changed)
        except BadInput:
            continue
        if result["fits"] or not result["remedies"]:
            continue
        checked += 1
        sets = [row["set"] for row in result["remedies"]]
        assert set(merged(sets)) <= set(setting_definitions())
        assert all(row["saves"] > 0 for row in result["remedies"])
        with_remedies = planned(model, gib, gpus, trl, changed | merged(sets))  # BadInput if the trainer refuses one
        assert with_remedies["fits"] == result["remedies"][-1]["fits"]
        for left_out in sets if with_remedies["fits"] else ():
            try:
                fewer = planned(
                    model, gib, gpus, trl, changed | merged([each for each in sets if each is not left_out])
                )
            except BadInput:
                continue
            assert not fewer["fits"], (gib, gpus, changed, sets, left_out)
    assert checked > 3


def test_fsdp_is_suggested_for_several_gpus() -> None:
    base = ("meta-llama/Llama-3.1-8B", 80, 4)
    assert {"fsdp": "full_shard"} in suggested_changes(*base, "", {})
    assert {"fsdp": "full_shard"} in suggested_changes(*base, "1.16.0", {})
    # TRL 0.27.1 and vllm-colocate do not support it.
    for refused in ((*base, "0.27.1", {}), (*base, "1.16.0", {"use_vllm": True})):
        assert {"fsdp": "full_shard"} not in suggested_changes(*refused)
    assert {"fsdp": "full_shard"} not in suggested_changes("meta-llama/Llama-3.1-8B", 80, 1, "1.16.0", {})


def test_vllm_sleep_is_suggested_only_for_trl_versions_that_restore_the_weights() -> None:
    base = ("unsloth/gpt-oss-20b-BF16", 90, 1)
    changed = {"use_vllm": True, "r": 8, "gradient_checkpointing": True, "per_device_train_batch_size": 4,
             "max_completion_length": 4096}  # fmt: skip
    for trl, safe in (("0.22.2", False), ("0.24.0", True), ("0.25.1", False), ("1.9.0", False), ("1.10.0", True)):
        assert ({"vllm_enable_sleep_mode": True} in suggested_changes(*base, trl, changed)) is safe
    rows = {tuple(row["set"]): row["why"] for row in planned(*base, "", changed)["remedies"]}
    assert "1.10 and newer" in rows[("vllm_enable_sleep_mode",)]  # with an unknown TRL the effect names the versions


def test_a_smaller_micro_batch_is_suggested_only_if_it_was_set() -> None:
    """Without the setting, the trainer uses the largest micro-batch that fits."""
    base = ("Qwen/Qwen2.5-7B", 24, 1, "1.16.0")
    assert suggested_changes(*base, {}) == [{"r": 16}]
    assert "per_device_train_batch_size" in merged(suggested_changes(*base, {"per_device_train_batch_size": 64}))


def test_liger_loss_is_suggested_if_it_saves_memory() -> None:
    base, changed = (
        ("Qwen/Qwen2.5-7B", 24, 1),
        {"r": 8, "per_device_train_batch_size": 1, "max_completion_length": 8192},
    )
    changed |= {"prompts_per_step": 1, "gradient_checkpointing": True}
    # Before TRL 1.14 Liger holds the logits of one completion, which a micro-batch of one does as well.
    for trl, loss_type, expected in (("1.13.0", "sapo", False), ("1.14.0", "dapo", True), ("1.14.0", "sapo", True)):
        assert (
            {"use_liger_kernel": True} in suggested_changes(*base, trl, changed | {"loss_type": loss_type})
        ) is expected
    assert {"use_liger_kernel": True} not in suggested_changes(*base, "1.15.0", changed)


def test_savings_outside_the_peak_phase_count() -> None:
    """LoRA alone does not shrink the update, but saves 80 GiB in the optimizer's step."""
    changed = {"per_device_train_batch_size": 16, "dtype": "bfloat16"}
    sets = suggested_changes("unsloth/gpt-oss-20b-BF16", 80, 4, "0.27.1", changed)
    assert merged(sets) == {"per_device_train_batch_size": 4, "r": 16}


def test_generation_without_vllm_is_the_last_remedy() -> None:
    changed = {"use_vllm": True, "vllm_gpu_memory_utilization": 0.6, "vllm_max_model_length": 768}
    found = merged(suggested_changes("Qwen/Qwen2.5-7B", 24, 1, "1.16.0", changed))
    assert found["use_vllm"] is False
    assert (found["vllm_gpu_memory_utilization"], found["vllm_max_model_length"]) == (0.0, 0)
