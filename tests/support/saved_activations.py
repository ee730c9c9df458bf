"""Run by a stack's Python: bytes that autograd really saves, and parameters that transformers really makes.

Reads a JSON list on standard input, each {"config": {...}, "mode": ..., "attn_implementation": ...,
"checkpointing": ..., "lora": [...], "sequences": n, "length": n}, perhaps with "load_in_4bit": True or "int8", or
"masked": false, or {"config": {...}, "count": true}; prints a JSON list of numbers, null where the CPU has not the
GPU's kernel.
"""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

DTYPES = {"float32": torch.float32, "mixed": torch.float32, "bfloat16": torch.bfloat16}


def make(config: dict[str, Any], attention: str) -> Any:
    """A model with random weights from a configuration."""
    kind = CONFIG_MAPPING[config["model_type"]](**{k: v for k, v in config.items() if k != "model_type"})
    return AutoModelForCausalLM.from_config(kind, attn_implementation=attention)


def count(config: dict[str, Any]) -> dict[str, Any]:
    """What the trainer has: the model's parameters, and its config as a dictionary."""
    with torch.device("meta"):
        model = make(config, "eager")
    model.tie_weights()
    config = json.loads(json.dumps(model.config.to_dict(), default=str))
    return {"parameters": sum(parameter.numel() for parameter in model.parameters()), "config": config}


def quantized(model: Any, kind: str) -> Any:
    """The model by bitsandbytes and PEFT, as the trainer loads and prepares it."""
    from peft import prepare_model_for_kbit_training
    from transformers import BitsAndBytesConfig

    four = {"load_in_4bit": True, "bnb_4bit_quant_type": kind, "bnb_4bit_compute_dtype": torch.bfloat16}
    quantization = BitsAndBytesConfig(**(four if kind != "int8" else {"load_in_8bit": True}))
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        loaded = AutoModelForCausalLM.from_pretrained(
            folder, quantization_config=quantization, device_map={"": "cpu"}, attn_implementation="sdpa"
        )
    return prepare_model_for_kbit_training(loaded, use_gradient_checkpointing=False)


def flash_knows_groups() -> bool:
    """Whether this torch's FlashAttention for CPUs takes fewer heads of keys than of queries: from 2.9 on.

    Before, attention without a mask falls back to one that keeps all its weights; on a GPU it does not.
    """
    query, key = torch.zeros(1, 4, 8, 16), torch.zeros(1, 2, 8, 16)
    try:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION), warnings.catch_warnings(action="ignore"):
            scaled_dot_product_attention(query, key, key, is_causal=True, enable_gqa=True)
    except RuntimeError:
        return False
    return True


def saved(case: dict[str, Any]) -> int | None:
    """Without what is as large whatever the batch: bfloat16 copies that autocast makes of the weights."""
    if not case.get("masked", True) and not flash_knows_groups():
        return None
    return _saved(case, case["sequences"]) - _saved(case, case["sequences"] // 2)


def _saved(case: dict[str, Any], sequences: int) -> int:
    """The bytes of activations that a forward pass of some sequences saves."""
    torch.manual_seed(0)
    model = make(case["config"], case["attn_implementation"]).to(DTYPES[case["mode"]])
    if case.get("quantization"):
        model = quantized(model, case["quantization"])
    model.train()
    if case["lora"]:
        from peft import LoraConfig, get_peft_model

        targets = "all-linear" if case["lora"] == ["all-linear"] else case["lora"]
        model = get_peft_model(model, LoraConfig(r=4, target_modules=targets, task_type="CAUSAL_LM"))
    if case["checkpointing"]:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    tensors = [*model.parameters(), *model.buffers()]
    own = {tensor.untyped_storage().data_ptr() for tensor in tensors}
    seen: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    ids = torch.randint(5, case["config"]["vocab_size"], (sequences, case["length"]))
    mask = torch.ones_like(ids)
    if case.get("masked", True):
        mask[:, :2] = 0
    inner = (model.base_model.model if case["lora"] else model).model
    casts = case["mode"] == "mixed" or bool(case.get("quantization"))  # TRL enables autocast with a quantized model
    casting = torch.autocast("cpu", torch.bfloat16, enabled=casts)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor), casting:
        kept = inner(input_ids=ids, attention_mask=mask, use_cache=False)
    total = sum(seen.values())
    del kept
    return total


if __name__ == "__main__":
    print(json.dumps([count(case["config"]) if case.get("count") else saved(case) for case in json.load(sys.stdin)]))
