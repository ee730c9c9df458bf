"""A real run by verl on the CPU, ended by an alarm of stop_on: a tiny model with a NaN among its weights."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from stacks import TRAIN
from verl_formats import needs_verl, run_verl

pytestmark = [pytest.mark.stack, needs_verl]

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
model.model.norm.weight.data[0] = float("nan")
model.save_pretrained(sys.argv[1])
"""

# verl 0.7.1 makes NCCL's process group, and registers its FSDP engine for GPUs: what stands between it and a CPU.
ON_CPU = """
import torch
import verl.utils.device
verl.utils.device.get_nccl_backend = lambda: "gloo"
from verl.workers.engine.base import EngineRegistry
for backends in EngineRegistry._engines.values():
    for devices in backends.values():
        if "cuda" in devices:
            devices.setdefault("cpu", devices["cuda"])
none = ("memory_reserved", "memory_allocated", "max_memory_allocated", "max_memory_reserved", "empty_cache",
        "ipc_collect", "reset_peak_memory_stats")
for name in none:
    if not hasattr(torch.cpu, name):
        setattr(torch.cpu, name, lambda *_, **__: 0)
torch.cpu.get_device_properties = lambda *_: type("Properties", (), {"total_memory": 1})
torch.cpu.mem_get_info = lambda *_: (1, 1)
torch.cpu.manual_seed = torch.manual_seed
"""


def test_not_a_number_ends_a_real_run_in_order(tmp_path: Path) -> None:
    made = run_verl(MODEL, tmp_path / "model")
    assert made.returncode == 0, made.stderr[-3000:]
    rows = [{"question": f"{i} + 1?", "answer": f"#### {i + 1}"} for i in range(200)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = {
        "model": str(tmp_path / "model"), "data": str(tmp_path / "rows.jsonl"), "prompts_per_step": 2,
        "micro_batch": 2, "gpus": 1, "sharding": "fsdp2", "epochs": 50, "save_every": 0, "eval_every": 0,
        "stop_on": ["not-a-number"],
        "options": ["trainer.device=cpu", "data.num_workers=0"],
    }  # fmt: skip
    program = [os.environ["ENVDOCTOR_VERL_PYTHON"], "-B", str(TRAIN / "verl_run.py")]
    asked = json.dumps({"recipe": "verl-sft", "settings": settings})
    checked = subprocess.run([*program, "--check"], input=asked, capture_output=True, text=True, check=True)
    run = tmp_path / "run"
    run.mkdir()
    configuration = {"schema": 1, "recipe": "verl-sft", "settings": json.loads(checked.stdout)["settings"]}
    (run / "run.json").write_text(json.dumps(configuration))
    (tmp_path / "verl_on_cpu.py").write_text(ON_CPU)
    given = os.environ | {
        "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(tmp_path),
        "VERL_USE_EXTERNAL_MODULES": "verl_on_cpu",
    }  # fmt: skip
    done = subprocess.run(
        [*program, str(run)], capture_output=True, text=True, timeout=400, env=given, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    result = json.loads((run / "result.json").read_text())
    assert (result["status"], result["stopped_by"]) == ("stopped", "not-a-number")
    assert result["steps"] < 4000  # of 4,500
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    alarm = next(event for event in events if event["event"] == "alarm")
    assert (alarm["name"], alarm["step"]) == ("not-a-number", 1)
    notes = [event["message"] for event in events if event["event"] == "note"]
    assert any(
        note.startswith("alarms: no-signal, collapse, overfitting, truncation are not raised") for note in notes
    )
    assert any("ended by stop_on: not-a-number" in note and "no checkpoint was saved" in note for note in notes)
    assert events[-1]["event"] == "done"
    left = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(run) not in left  # torchrun and its processes are gone
