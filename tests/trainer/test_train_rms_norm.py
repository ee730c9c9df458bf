"""torch's fused RMSNorm gives the results of transformers' norms."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.stacks import TINY, run_code

pytestmark = pytest.mark.stack

PASSES = (
    TINY
    + """
import copy
from patches.rms_norm import fuse_norms
from transformers import AutoConfig, AutoModelForCausalLM

ids = torch.randint(3, 18, (4, 12), generator=torch.Generator().manual_seed(0))
calls, rms_norm = [], torch.nn.functional.rms_norm


def count(*arguments, **named):
    calls.append(1)
    return rms_norm(*arguments, **named)


torch.nn.functional.rms_norm = count


def learn(model):
    model.zero_grad()
    logits = model(input_ids=ids, use_cache=False).logits
    (logits.float().log_softmax(-1)[..., 0] ** 2).sum().backward()
    return [logits.detach().float(), *(p.grad.float().clone() for p in model.parameters())]


found = {}
for kind in ("llama", "mistral", "olmo2", "qwen2", "qwen3", "smollm3", "gemma2"):
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        kind, vocab_size=len(WORDS) + 3, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=64, pad_token_id=0,
        eos_token_id=1, bos_token_id=None, initializer_range=0.2,
    )
    plain = AutoModelForCausalLM.from_config(config)
    for name, parameter in plain.named_parameters():
        if "norm" in name:
            torch.nn.init.normal_(parameter, 1.0, 0.2)
    fused = copy.deepcopy(plain)
    applied = fuse_norms(fused)
    calls.clear()
    results = [(a - b).abs().max().item() / a.abs().max().item() for a, b in zip(learn(plain), learn(fused))]
    in_float32 = len(calls)
    half = [(a - b).abs().max().item() for a, b in zip(learn(plain.bfloat16()), learn(fused.bfloat16()))]
    found[kind] = dict(applied=applied, difference=max(results), calls=in_float32, half=max(half), later=len(calls))
report(found=found)
"""
)


def test_fused_norms_give_the_same_gradients(stack_python: Path) -> None:
    found = run_code(stack_python, PASSES)["found"]
    gemma = found.pop("gemma2")  # adds 1 to the weight
    assert gemma["applied"] is False
    assert gemma["calls"] == 0
    for kind, numbers in found.items():
        assert numbers["applied"], kind
        assert numbers["calls"] >= 5, (kind, numbers)
        assert numbers["difference"] < 1e-5, (kind, numbers)
        assert numbers["half"] == 0, (kind, numbers)  # transformers' own norms in 16 bits
        assert numbers["later"] == numbers["calls"], (kind, numbers)
