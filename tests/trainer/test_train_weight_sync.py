"""The weight sync to vLLM: one call for all tensors, replayed where tensors stay in place on a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.stacks import TINY, run_code

# TRL's own VLLMGeneration syncs the weights, to a stand-in for vLLM's model.
SYNCED = (
    TINY
    + """
from types import SimpleNamespace
from peft import LoraConfig, get_peft_model
from patches.merged_copies import merge_in_copies
from patches.weight_sync import sync_weights_in_one_call
from trl.generation.vllm_generation import VLLMGeneration

WEIGHT = "model.layers.0.self_attn.q_proj.weight"


class VllmModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls, self.streams, self.weights = 0, [], {}

    def load_weights(self, weights):
        self.calls += 1
        self.streams.append(not isinstance(weights, list))
        self.weights |= {name: weight.clone() for name, weight in weights}


def make_generation(model, sleeps=False):
    vllm_model = VllmModel()
    worker = SimpleNamespace(model_runner=SimpleNamespace(model=vllm_model))
    engine = SimpleNamespace(model_executor=SimpleNamespace(driver_worker=worker))
    generation = object.__new__(VLLMGeneration)
    vars(generation).update(
        mode="colocate", model=model, enable_sleep_mode=sleeps, accelerator=None,
        llm=SimpleNamespace(llm_engine=engine, reset_prefix_cache=lambda: True, wake_up=lambda tags: None),
        _dist=SimpleNamespace(is_fsdp=False, gather_params=lambda parameters: __import__("contextlib").nullcontext()),
    )
    return generation, vllm_model


def sync(model):
    generation, vllm_model = make_generation(model)
    merge_in_copies(SimpleNamespace(vllm_generation=generation))
    sync_weights_in_one_call(SimpleNamespace(vllm_generation=generation))
    for _ in range(2):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(1.0)
        generation.sync_weights()
    return vllm_model


root = Path(given[0])
save_qwen2(root / "model")
plain = Qwen2ForCausalLM.from_pretrained(root / "model")
found = sync(plain)
same = all(torch.equal(found.weights[name], weight) for name, weight in plain.named_parameters())
adapted = get_peft_model(Qwen2ForCausalLM.from_pretrained(root / "model"), LoraConfig(target_modules=["q_proj"]))
merged = sync(adapted)
layer = adapted.get_base_model().model.layers[0].self_attn.q_proj
right = layer.base_layer.weight + layer.get_delta_weight("default")
report(
    plain=[found.calls, same, set(found.weights) == {name for name, _ in plain.named_parameters()}],
    merged=[merged.calls, merged.streams, float((merged.weights[WEIGHT] - right).abs().max()) < 1e-4,
            bool((layer.base_layer.weight - right).abs().max() > 1e-2)],
)
"""
)


@pytest.mark.stack
def test_all_weights_in_one_call_each_time(stack_python: Path, tmp_path: Path) -> None:
    found = run_code(stack_python, SYNCED, tmp_path)
    assert found["plain"] == [2, True, True]
    assert found["merged"] == [2, [True, True], True, True]  # merged one by one, never all in memory


FROZEN = (
    SYNCED.partition("root = Path")[0]
    + """
root = Path(given[0])
save_qwen2(root / "model")
config = LoraConfig(r=4, target_modules=["q_proj", "down_proj"], init_lora_weights=False)
model = get_peft_model(Qwen2ForCausalLM.from_pretrained(root / "model", dtype=torch.bfloat16), config)
layers = [module for module in model.modules() if hasattr(module, "get_delta_weight")]
frozen = [layer.get_base_layer().weight.clone() for layer in layers]
generation, vllm_model = make_generation(model)
merge_in_copies(SimpleNamespace(vllm_generation=generation))
for _ in range(20):
    with torch.no_grad():
        for layer in layers:
            layer.lora_B["default"].weight.add_(torch.randn_like(layer.lora_B["default"].weight) * 0.01)
    generation.sync_weights()
expected = [(weight + layer.get_delta_weight("default")).bfloat16() for weight, layer in zip(frozen, layers)]
names = [name for name, _ in model.named_modules() if hasattr(_, "get_delta_weight")]
sent = [vllm_model.weights[name.removeprefix("base_model.model.") + ".weight"] for name in names]
report(
    unchanged=all(torch.equal(layer.get_base_layer().weight, weight) for layer, weight in zip(layers, frozen)),
    sent=all(torch.equal(*pair) for pair in zip(sent, expected)),
    merged=any(layer.merged for layer in layers), restored="merge_adapter" not in vars(model),
)
"""
)


@pytest.mark.stack
def test_a_weight_sync_keeps_frozen_weights(stack_python: Path, tmp_path: Path) -> None:
    found = run_code(stack_python, FROZEN, tmp_path)
    assert found == {"unchanged": True, "sent": True, "merged": False, "restored": True}


CAPTURED = """
import torch
from patches.weight_sync import WeightSync


class VllmModel(torch.nn.Module):
    '''Two of the trainer's weights joined in one bfloat16 parameter, as in vLLM.'''

    def __init__(self, synchronizes):
        super().__init__()
        self.synchronizes, self.calls = synchronizes, 0
        self.joined = torch.nn.Parameter(torch.zeros(48, 16, dtype=torch.bfloat16, device="cuda"))

    def load_weights(self, weights):
        self.calls += 1
        for name, weight in weights:
            if self.synchronizes:
                weight.sum().item()
            place = self.joined.data[:32] if name == "first" else self.joined.data[32:]
            place.copy_(weight)


def sync(synchronizes):
    vllm_model = VllmModel(synchronizes)
    first, second = (torch.randn(rows, 16, device="cuda") for rows in (32, 16))
    weight_sync, equal = WeightSync(vllm_model), []
    for step in range(6):
        if step == 4:
            first = first.clone()  # another address
        first.add_(1), second.mul_(1.5)
        weight_sync.load(iter([("first", first), ("second", second)]))
        equal.append(torch.equal(vllm_model.joined.data, torch.cat([first, second]).bfloat16()))
    return equal, vllm_model.calls, weight_sync.replay is not None


report(capturable=sync(False), synchronizing=sync(True))
"""


def check(result: dict[str, Any]) -> None:
    """Check the output of CAPTURED on a machine with a GPU."""
    # Plain, captured, replayed twice; plain again, since a weight was moved, and captured again.
    assert result["capturable"] == [[True] * 6, 4, True]
    assert result["synchronizing"] == [[True] * 6, 7, False]  # one capture was tried


@pytest.mark.gpu
@pytest.mark.stack
def test_a_replayed_weight_sync_equals_the_plain_one(stack_python: Path) -> None:
    check(run_code(stack_python, CAPTURED, CUDA_VISIBLE_DEVICES="0"))
