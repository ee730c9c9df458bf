"""Weights on their way to vLLM: all in one call, and recorded where they lie still on a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from stacks import TINY, run_code

# TRL's own VLLMGeneration hands the weights over; what takes them stands where vLLM's model does.
STREAMED = (
    TINY
    + """
from types import SimpleNamespace
from peft import LoraConfig, get_peft_model
from patches.weight_sync import sync_weights_in_one_call
from trl.generation.vllm_generation import VLLMGeneration

WEIGHT = "model.layers.0.self_attn.q_proj.weight"


class VllmModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls, self.streams, self.held = 0, [], {}

    def load_weights(self, weights):
        self.calls += 1
        self.streams.append(not isinstance(weights, list))
        self.held |= {name: weight.clone() for name, weight in weights}


def hand_over(model, sleeps=False):
    theirs = VllmModel()
    worker = SimpleNamespace(model_runner=SimpleNamespace(model=theirs))
    engine = SimpleNamespace(model_executor=SimpleNamespace(driver_worker=worker))
    generation = object.__new__(VLLMGeneration)
    vars(generation).update(
        mode="colocate", model=model, enable_sleep_mode=sleeps, accelerator=None,
        llm=SimpleNamespace(llm_engine=engine, reset_prefix_cache=lambda: True, wake_up=lambda tags: None),
        _dist=SimpleNamespace(is_fsdp=False, gather_params=lambda parameters: __import__("contextlib").nullcontext()),
    )
    sync_weights_in_one_call(SimpleNamespace(vllm_generation=generation))
    for _ in range(2):
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(1.0)
        generation.sync_weights()
    return theirs


root = Path(given[0])
save_qwen2(root / "model")
plain = Qwen2ForCausalLM.from_pretrained(root / "model")
found = hand_over(plain)
same = all(torch.equal(found.held[name], weight) for name, weight in plain.named_parameters())
adapted = get_peft_model(Qwen2ForCausalLM.from_pretrained(root / "model"), LoraConfig(target_modules=["q_proj"]))
merged = hand_over(adapted)
layer = adapted.get_base_model().model.layers[0].self_attn.q_proj
right = layer.base_layer.weight + layer.get_delta_weight("default")
say(
    plain=[found.calls, same, set(found.held) == {name for name, _ in plain.named_parameters()}],
    merged=[merged.calls, merged.streams, float((merged.held[WEIGHT] - right).abs().max()) < 1e-4,
            bool((layer.base_layer.weight - right).abs().max() > 1e-2)],
)
"""
)


@pytest.mark.stack
def test_all_weights_in_one_call_each_time(stack_python: Path, tmp_path: Path) -> None:
    found = run_code(stack_python, STREAMED, tmp_path)
    assert found["plain"] == [2, True, True]
    assert found["merged"] == [2, [True, True], True, True]  # merged one by one, never held all together


RECORDED = """
import torch
from patches.weight_sync import WeightSync


class VllmModel(torch.nn.Module):
    '''Two of the trainer's weights in one of its own, as vLLM has them, in bfloat16.'''

    def __init__(self, asks):
        super().__init__()
        self.asks, self.calls = asks, 0
        self.joined = torch.nn.Parameter(torch.zeros(48, 16, dtype=torch.bfloat16, device="cuda"))

    def load_weights(self, weights):
        self.calls += 1
        for name, weight in weights:
            if self.asks:
                weight.sum().item()
            place = self.joined.data[:32] if name == "first" else self.joined.data[32:]
            place.copy_(weight)


def hand_over(asks):
    theirs = VllmModel(asks)
    first, second = (torch.randn(rows, 16, device="cuda") for rows in (32, 16))
    way, right = WeightSync(theirs), []
    for step in range(6):
        if step == 4:
            first = first.clone()  # lies elsewhere now
        first.add_(1), second.mul_(1.5)
        way.load(iter([("first", first), ("second", second)]))
        right.append(torch.equal(theirs.joined.data, torch.cat([first, second]).bfloat16()))
    return right, theirs.calls, way.replay is not None


say(quiet=hand_over(False), asking=hand_over(True))
"""


def check(said: dict[str, Any]) -> None:
    """What RECORDED says on a machine with a GPU."""
    # Plainly, recorded, replayed twice; plainly again, since a weight was moved, and recorded anew.
    assert said["quiet"] == [[True] * 6, 4, True]
    assert said["asking"] == [[True] * 6, 7, False]  # one recording was tried


@pytest.mark.gpu
@pytest.mark.stack
def test_a_recorded_hand_over_is_the_plain_one(stack_python: Path) -> None:
    check(run_code(stack_python, RECORDED, CUDA_VISIBLE_DEVICES="0"))
