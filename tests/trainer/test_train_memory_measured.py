"""The formulas of the memory plan compared with transformers' parameters and the tensors that autograd saves."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from memory.config import parse_config
from memory.formulas import MicroBatch, stored_activations
from memory.shape import count_parameters
from support.paths import TESTS
from support.stacks import all_stacks, forking, name_of, run_code, stack_environment

SMALL = {"vocab_size": 512, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 3,
         "num_attention_heads": 8, "num_key_value_heads": 2, "max_position_embeddings": 512}  # fmt: skip
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
COUNTED: list[dict[str, Any]] = [
    {"model_type": "qwen2", "vocab_size": 32000, "hidden_size": 896, "intermediate_size": 4864,
     "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2, "tie_word_embeddings": True},
    {"model_type": "qwen2", **SMALL, "tie_word_embeddings": False},
    {"model_type": "llama", **SMALL, "tie_word_embeddings": False},
    {"model_type": "llama", **SMALL, "attention_bias": True, "mlp_bias": True, "head_dim": 64,
     "tie_word_embeddings": True},
    {"model_type": "mistral", **SMALL, "tie_word_embeddings": False},
    {"model_type": "qwen3", **SMALL, "head_dim": 64, "tie_word_embeddings": True},
    {"model_type": "phi3", **SMALL, "tie_word_embeddings": False, "pad_token_id": 0},
    {"model_type": "gemma2", **SMALL, "head_dim": 32},
    {"model_type": "gemma3_text", **SMALL, "head_dim": 32},
    {"model_type": "mixtral", **SMALL, **EXPERTS, "tie_word_embeddings": False},
    {"model_type": "qwen2_moe", **SMALL, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 128,
     "shared_expert_intermediate_size": 192, "tie_word_embeddings": False},
    {"model_type": "qwen3_moe", **SMALL, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 128,
     "head_dim": 32, "mlp_only_layers": [1], "decoder_sparse_step": 1, "tie_word_embeddings": False},
    {"model_type": "gpt_oss", **SMALL, **EXPERTS, "head_dim": 32, "tie_word_embeddings": False,
     "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    {"model_type": "gpt2", "vocab_size": 512, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128},
]  # fmt: skip


def in_stack(python: Path, cases: list[dict[str, Any]]) -> list[Any]:
    done = subprocess.run(
        [str(forking(python)), "-B", str(TESTS / "support/saved_activations.py")], input=json.dumps(cases), text=True,
        capture_output=True, timeout=200, check=False,
        env=stack_environment(os.environ["HOME"]),
    )  # fmt: skip
    assert done.returncode == 0, f"{name_of(python)}: {done.stderr[-3000:]}"
    return list(json.loads(done.stdout.strip().splitlines()[-1]))


# Bytes per token that autograd saves on a CPU (bitsandbytes 0.50.2, peft 0.21, transformers 5.17, 2026-11-22).
QUANTIZED = {("nf4", "all"): 65333, ("nf4", "attention"): 56048, ("int8", "all"): 46896, ("int8", "attention"): 37608}


@pytest.mark.parametrize(("kind", "lora"), QUANTIZED)
def test_activations_of_a_quantized_model(kind: str, lora: str) -> None:
    batch = MicroBatch(2, 0, 96, "bfloat16", "sdpa", lora=lora, quantized=kind)
    saved = stored_activations(parse_config(quantized_config()), batch) / batch.tokens
    assert saved == pytest.approx(QUANTIZED[kind, lora], rel=0.06)


def quantized_config() -> dict[str, Any]:
    dense = {"model_type": "qwen2", **SMALL, "intermediate_size": 1024, "tie_word_embeddings": True}
    return dense | {"num_attention_heads": 4}


@pytest.mark.stack
def test_quantized_activations_match_autograd(stack_python: Path) -> None:
    """Needs a stack with bitsandbytes in ENVDOCTOR_STACK_PYTHONS; the profile cpu has none."""
    targets = {"all": ["all-linear"], "attention": ["q_proj", "k_proj", "v_proj", "o_proj"]}
    plain = {"config": quantized_config(), "mode": "bfloat16", "attn_implementation": "sdpa", "checkpointing": False}
    cases = [
        plain | {"quantization": kind, "lora": targets[lora], "sequences": 4, "length": 96}
        for kind, lora in QUANTIZED
    ]
    with_bitsandbytes = [
        python for python in all_stacks(stack_python) if list(python.parents[1].glob("lib/*/*/bitsandbytes"))
    ]
    if not with_bitsandbytes:
        pytest.skip("no stack with bitsandbytes")
    for python in with_bitsandbytes:
        for expected, measured in zip(QUANTIZED.values(), in_stack(python, cases), strict=True):
            assert measured / (2 * 96) == pytest.approx(expected, rel=0.02), name_of(python)


@pytest.mark.stack
def test_parameter_counts_match_transformers(stack_python: Path) -> None:
    for python in all_stacks(stack_python):
        measurements = in_stack(python, [{"config": config, "count": True} for config in COUNTED])
        for config, measured in zip(COUNTED, measurements, strict=True):
            for source in (config, measured["config"]):  # config.json, and the config object of transformers
                counted = sum(count_parameters(parse_config(source)).values())
                assert counted == measured["parameters"], f"{name_of(python)}: {source}"


def activation_cases() -> list[dict[str, Any]]:
    oss = {"model_type": "gpt_oss", **SMALL, **EXPERTS, "head_dim": 32, "intermediate_size": 256,
           "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}  # fmt: skip
    dense = {"model_type": "qwen2", **SMALL, "intermediate_size": 1024, "tie_word_embeddings": True}
    plain = {"checkpointing": False, "lora": [], "sequences": 4, "length": 96, "attn_implementation": "sdpa"}
    attention = ["q_proj", "k_proj", "v_proj", "o_proj"]
    cases = [plain | {"config": dense, "mode": mode} for mode in ("float32", "mixed", "bfloat16")]
    cases += [plain | {"config": dense, "mode": "bfloat16", "attn_implementation": "eager"}]
    cases += [plain | {"config": dense, "mode": mode, "masked": False} for mode in ("mixed", "bfloat16")]
    cases += [plain | {"config": dense, "mode": "mixed", "lora": lora} for lora in (["all-linear"], attention)]
    cases += [plain | {"config": dense, "mode": mode, "checkpointing": True} for mode in ("float32", "bfloat16")]
    cases += [plain | {"config": dense | {"model_type": "llama"}, "mode": mode} for mode in ("float32", "bfloat16")]
    cases += [
        plain | {"config": oss, "mode": mode, "attn_implementation": "eager"} for mode in ("float32", "bfloat16")
    ]
    cases += [plain | {"config": oss, "mode": "bfloat16", "attn_implementation": "eager", "checkpointing": True}]
    cases += [plain | {"config": dense | {"model_type": "qwen3", "head_dim": 64}, "mode": "bfloat16"}]
    cases += [plain | {"config": {"model_type": "mixtral", **SMALL, **EXPERTS}, "mode": "bfloat16"}]
    return cases


@pytest.mark.stack
def test_activations_match_autograd(stack_python: Path) -> None:
    cases = activation_cases()
    unmasked = 0
    for python in all_stacks(stack_python):
        for case, measured in zip(cases, in_stack(python, cases), strict=True):
            if not case.get("masked", True):
                unmasked += measured is not None
                if measured is None:
                    continue
            lora = "" if not case["lora"] else "all" if case["lora"] == ["all-linear"] else "attention"
            half = MicroBatch(case["sequences"] // 2, 0, case["length"], case["mode"], case["attn_implementation"],
                        case["checkpointing"], lora, masked=case.get("masked", True))  # fmt: skip
            ratio = stored_activations(parse_config(case["config"]), half) / measured
            print(f"{name_of(python):16} {case['config']['model_type']:8} {case['mode']:9} "
                  f"{case['attn_implementation']:6} "
                  f"{'checkpointing' if case['checkpointing'] else '':14}{lora:10} {ratio:.3f}")  # fmt: skip
            assert ratio == pytest.approx(1, abs=0.1), (name_of(python), case)
    assert unmasked >= 2, "no stack has the SDPA kernel without a mask"


STATES = """
import torch
from transformers import Trainer, TrainingArguments
from memory.formulas import optimizer_bytes
found = {}
for name in ("adamw_torch", "adamw_torch_fused", "sgd", "adagrad", "rmsprop", "adafactor"):
    for dtype in (torch.float32, torch.bfloat16):
        weight = torch.nn.Parameter(torch.ones(256, 512, dtype=dtype))
        arguments = TrainingArguments(output_dir=given[0], optim=name, use_cpu=True, report_to="none")
        kind, options = Trainer.get_optimizer_cls_and_kwargs(arguments, model=None)
        optimizer = kind([weight], **options)
        weight.grad = torch.ones_like(weight)
        optimizer.step()
        actual = sum(state.nbytes for state in optimizer.state[weight].values() if hasattr(state, "nbytes"))
        planned, _, _ = optimizer_bytes(name, weight.numel(), weight.element_size())
        found[f"{name} {dtype}"] = [actual, planned, weight.nbytes]
report(**found)
"""


@pytest.mark.stack
def test_optimizer_states_match_torch(python: Path, tmp_path: Path) -> None:
    for name, (actual, planned, weight) in run_code(python, STATES, tmp_path).items():
        assert planned == pytest.approx(actual, abs=0.02 * weight), name
