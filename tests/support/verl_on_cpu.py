"""verl runs on the CPU: a tiny model, rows, and patches that let verl train without a GPU."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from support.paths import TRAIN
from support.verl_formats import run_verl

# The last argument is a weight of the last norm: 1, or NaN.
MODEL = """
import sys, torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
words = {word: n for n, word in enumerate(["<pad>", "<eos>", "<unk>", *sorted(pre_tokenizers.ByteLevel.alphabet())])}
backend = Tokenizer(models.BPE(vocab=words, merges=[], unk_token="<unk>"))
backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
backend.decoder = decoders.ByteLevel()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
tokenizer.chat_template = "{% for m in messages %}{{ m['content'] + eos_token }}{% endfor %}"
tokenizer.save_pretrained(sys.argv[1])
model = LlamaForCausalLM(LlamaConfig(
    vocab_size=len(words), hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
    num_key_value_heads=2, max_position_embeddings=256, pad_token_id=0, eos_token_id=1, bos_token_id=None))
model.model.norm.weight.data[0] = float(sys.argv[2])
model.save_pretrained(sys.argv[1])
"""

# Patches for verl 0.7.1 and 0.9.1, which create an NCCL process group and register their engine for GPUs only.
ON_CPU = """
import torch
import verl.utils.device
verl.utils.device.get_nccl_backend = lambda: "gloo"
from verl.workers.engine.base import EngineRegistry
for backends in EngineRegistry._engines.values():
    for devices in backends.values():
        if "cuda" in devices:
            devices.setdefault("cpu", devices["cuda"])
names = ("memory_reserved", "memory_allocated", "max_memory_allocated", "max_memory_reserved", "empty_cache",
        "ipc_collect", "reset_peak_memory_stats")
for name in names:
    if not hasattr(torch.cpu, name):
        setattr(torch.cpu, name, lambda *_, **__: 0)
torch.cpu.get_device_properties = lambda *_: type("Properties", (), {"total_memory": 1})
torch.cpu.mem_get_info = lambda *_: (1, 1)
torch.cpu.manual_seed = torch.manual_seed
try:  # 0.9 gets the device from a platform, whose default is CUDA
    from verl.plugin.platform.platform_cuda import PlatformCUDA
    from verl.plugin.platform.platform_manager import set_platform
except ImportError:
    pass
else:
    import contextlib
    import torch.distributed
    class PlatformCPU(PlatformCUDA):
        device_name = "cpu"
        device_module = torch.cpu
        is_available = lambda self: True
        current_device = lambda self: "cpu"
        device_count = lambda self: 1
        set_device = synchronize = set_allocator_settings = empty_cache = lambda self, *_: None
        manual_seed = manual_seed_all = lambda self, seed: torch.manual_seed(seed)
        communication_backend_name = lambda self: "gloo"
        nvtx_range = lambda self, *_, **__: contextlib.nullcontext()
    set_platform(PlatformCPU())
    original = torch.distributed.init_process_group
    torch.distributed.init_process_group = lambda backend=None, **options: original(
        backend="gloo" if backend == "cpu:gloo,cpu:gloo" else backend, **options
    )
"""
# Settings of verl-sft for the tiny model.
SETTINGS = {
    "prompts_per_step": 2, "per_device_train_batch_size": 2, "gpus": 1, "sharding": "fsdp2", "eval_steps": 0,
    "options": ["trainer.device=cpu", "data.num_workers=0"],
}  # fmt: skip


def program() -> list[str]:
    """Return the command of verl_run.py."""
    return [os.environ["ENVDOCTOR_VERL_PYTHON"], "-B", str(TRAIN / "verl_run.py")]


def make_model(folder: Path, weight: float = 1.0) -> Path:
    """Create a tiny model with a byte tokenizer; `weight` is one of its weights."""
    done = run_verl(MODEL, folder, weight)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def write_rows(file: Path, numbers: range) -> Path:
    """Write one sum per row."""
    rows = [{"question": f"{i} + 1?", "answer": f"#### {i + 1}"} for i in numbers]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def train_on_cpu(run: Path, settings: dict[str, Any], **variables: str) -> str:
    """Create a run of verl-sft, execute it, and return its output."""
    run.mkdir()
    (run / "run.json").write_text(json.dumps({"schema": 1, "recipe": "verl-sft", "settings": settings}))
    (run.parent / "cpu_for_verl.py").write_text(ON_CPU)
    environment = os.environ | {
        "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(run.parent),
        "VERL_USE_EXTERNAL_MODULES": "cpu_for_verl", **variables,
    }  # fmt: skip
    done = subprocess.run(
        [*program(), str(run)],
        capture_output=True,
        text=True,
        timeout=400,
        env=environment,
        check=False,
        cwd=run.parent,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout + done.stderr
