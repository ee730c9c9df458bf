"""LoRA training with verl on the CPU: the merged model contains the adapter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.verl_formats import needs_verl, run_verl
from support.verl_on_cpu import SETTINGS, make_model, train_on_cpu, write_rows
from verl_engine.merge_adapter import readable_shards

# Compare the weights of the shard with those in the folder `model`.
COMPARE = """
import json, sys, torch
from safetensors.torch import load_file
run, base = sys.argv[1:]
shard = torch.load(run + "/checkpoints/global_step_2/model_world_size_1_rank_0.pt", weights_only=False)
shard_weights = {name.removeprefix("base_model.model."): value.to_local().float() for name, value in shard.items()}
merged, first = load_file(run + "/model/model.safetensors"), load_file(base + "/model.safetensors")
error, changed = 0.0, 0
for name, value in merged.items():
    module = name.removesuffix(".weight")
    if module + ".base_layer.weight" in shard_weights:
        a, b = (shard_weights[f"{module}.lora_{part}.default.weight"] for part in "AB")
        expected, size = shard_weights[module + ".base_layer.weight"] + b @ a * 32 / 4, (b.abs() @ a.abs()) * 8
        changed += bool((value.float() - first[name].float()).abs().max() > 1e-3)
    else:
        expected, size = shard_weights[name], 0
    error = max(error, float(((value.float() - expected).abs() / (first[name].float().abs() + size + 1e-6)).max()))
print("COMPARED " + json.dumps({"error": error, "changed": changed, "names": len(merged), "expected": len(first)}))
"""


def test_a_task_type_that_the_merger_cannot_read_is_removed(tmp_path: Path) -> None:
    shards, links = tmp_path / "shards", tmp_path / "links"
    (shards / "huggingface").mkdir(parents=True)
    assert readable_shards(shards, links) == shards
    metadata = shards / "lora_train_meta.json"
    metadata.write_text('{"r": 8, "lora_alpha": 16}')
    assert readable_shards(shards, links) == shards
    metadata.write_text('{"r": 8, "lora_alpha": 16, "task_type": "CAUSAL_LM"}')
    for _ in range(2):  # a resumed run merges again
        assert readable_shards(shards, links) == links
    assert json.loads((links / "lora_train_meta.json").read_text()) == {"r": 8, "lora_alpha": 16}
    assert (links / "huggingface").resolve() == shards / "huggingface"
    assert "task_type" in metadata.read_text()  # verl's file is unchanged


@pytest.mark.stack
@needs_verl
def test_the_adapter_is_in_the_merged_model(tmp_path: Path) -> None:
    """verl 0.7.1's merger failed with an AttributeError, or wrote the base weights without the adapter."""
    base, run = make_model(tmp_path / "base"), tmp_path / "run"
    train_on_cpu(run, SETTINGS | {
        "model": str(base), "data": str(write_rows(tmp_path / "rows.jsonl", range(10, 50))), "max_steps": 2,
        "num_train_epochs": 1,
        "save_steps": 2, "r": 4, "lora_alpha": 32, "learning_rate": 0.1, "lr_scheduler_type": "constant",
        "warmup_ratio": 0.0,
    })  # fmt: skip
    compared = run_verl(COMPARE, run, base)
    assert compared.returncode == 0, compared.stderr[-3000:]
    result = json.loads(compared.stdout.rpartition("COMPARED ")[2])
    assert result["error"] < 2**-7  # verl's merger rounds base, A and B to bfloat16, by 2**-9 each
    assert result["changed"] == 7  # the projections of the single layer
    assert result["names"] == result["expected"]
    adapter = json.loads((run / "model/lora_adapter/adapter_config.json").read_text())
    assert (adapter["r"], adapter["lora_alpha"]) == (4, 32)
    assert json.loads((run / "result.json").read_text())["merged"]["tensors"] == result["names"]
