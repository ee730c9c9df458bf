"""LoRA by verl, really trained on the CPU: the merged model is the base with the adapter, not the base alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from verl_engine.merge_adapter import readable_shards
from verl_formats import needs_verl, run_verl
from verl_on_cpu import SETTINGS, make_model, train_on_cpu, write_rows

# What the shard says the model should be, beside what lies in the folder `model`.
COMPARE = """
import json, sys, torch
from safetensors.torch import load_file
run, base = sys.argv[1:]
shard = torch.load(run + "/checkpoints/global_step_2/model_world_size_1_rank_0.pt", weights_only=False)
whole = {name.removeprefix("base_model.model."): value.to_local().float() for name, value in shard.items()}
merged, first = load_file(run + "/model/model.safetensors"), load_file(base + "/model.safetensors")
far, moved = 0.0, 0
for name, value in merged.items():
    module = name.removesuffix(".weight")
    if module + ".base_layer.weight" in whole:
        a, b = (whole[f"{module}.lora_{part}.default.weight"] for part in "AB")
        expected, size = whole[module + ".base_layer.weight"] + b @ a * 32 / 4, (b.abs() @ a.abs()) * 8
        moved += bool((value.float() - first[name].float()).abs().max() > 1e-3)
    else:
        expected, size = whole[name], 0
    far = max(far, float(((value.float() - expected).abs() / (first[name].float().abs() + size + 1e-6)).max()))
print("SEEN " + json.dumps({"far": far, "moved": moved, "names": len(merged), "wanted": len(first)}))
"""


def test_a_task_that_verl_s_merger_cannot_read_is_left_out(tmp_path: Path) -> None:
    shards, place = tmp_path / "shards", tmp_path / "place"
    (shards / "huggingface").mkdir(parents=True)
    assert readable_shards(shards, place) == shards
    trained = shards / "lora_train_meta.json"
    trained.write_text('{"r": 8, "lora_alpha": 16}')
    assert readable_shards(shards, place) == shards
    trained.write_text('{"r": 8, "lora_alpha": 16, "task_type": "CAUSAL_LM"}')
    for _ in range(2):  # a run that is resumed merges once more
        assert readable_shards(shards, place) == place
    assert json.loads((place / "lora_train_meta.json").read_text()) == {"r": 8, "lora_alpha": 16}
    assert (place / "huggingface").resolve() == shards / "huggingface"
    assert "task_type" in trained.read_text()  # verl's own is as it was


@pytest.mark.stack
@needs_verl
def test_the_adapter_is_in_the_merged_model(tmp_path: Path) -> None:
    """verl 0.7.1's merger ended with an AttributeError, and where it did not, it wrote the base's weights."""
    base, run = make_model(tmp_path / "base"), tmp_path / "run"
    train_on_cpu(run, SETTINGS | {
        "model": str(base), "data": str(write_rows(tmp_path / "rows.jsonl", range(10, 50))), "steps": 2, "epochs": 1,
        "save_every": 2, "lora_rank": 4, "lora_alpha": 32, "learning_rate": 0.1, "lr_schedule": "constant",
        "lr_warmup_share": 0.0,
    })  # fmt: skip
    compared = run_verl(COMPARE, run, base)
    assert compared.returncode == 0, compared.stderr[-3000:]
    seen = json.loads(compared.stdout.rpartition("SEEN ")[2])
    assert seen["far"] < 2**-7  # of what is added up: verl's merger rounds base, A and B to bfloat16, by 2**-9 each
    assert seen["moved"] == 7  # the projections of the one layer
    assert seen["names"] == seen["wanted"]
    adapter = json.loads((run / "model/lora_adapter/adapter_config.json").read_text())
    assert (adapter["r"], adapter["lora_alpha"]) == (4, 32)
    assert json.loads((run / "result.json").read_text())["merged"]["tensors"] == seen["names"]
