"""The bundled trainer against a bare TRL script on a GPU: seconds a step, its parts, and the peak of memory.

    python tests/benchmarks/trainer_gpu.py PYTHON_OF_THE_STACK [--small] [--only NAME ...] [--steps N]

The work: a Qwen2 of 387 M random parameters (Qwen2.5-0.5B with 32,000 words, tied), 8 prompts of 256 tokens with 8
answers of 512 tokens each a step, full fine-tuning, one optimizer step a generation. Every case is a process of its
own; the first two steps do not count. --small takes a tiny model and short texts, to try the script on a CPU.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

TRAIN = Path(__file__).resolve().parents[2] / "train"
FIRST = 2
COLOCATE = {"generation": "vllm-colocate", "vllm_share": 0.3}
# name: (bare or ours, settings of ours or arguments of GRPOConfig)
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "bare, transformers": ("bare", {}),
    "ours, transformers": ("ours", {}),
    "bare, vLLM colocate": (
        "bare", {"use_vllm": True, "vllm_mode": "colocate", "vllm_gpu_memory_utilization": 0.3},
    ),
    "ours, vLLM colocate": ("ours", COLOCATE),
    "ours, vLLM, passes of 16": ("ours", COLOCATE | {"micro_batch": 16}),
    "ours, vLLM, passes of 16, bfloat16": ("ours", COLOCATE | {"micro_batch": 16, "dtype": "bfloat16"}),
}  # fmt: skip
MAKE = """
import json, random, sys
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
folder, size = sys.argv[1], json.loads(sys.argv[2])
torch.manual_seed(0)
words = {word: n for n, word in enumerate(["<pad>", "<eos>", "<unk>", *(f"w{n}" for n in range(size["words"] - 3))])}
backend = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
PreTrainedTokenizerFast(
    tokenizer_object=backend, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left",
    model_input_names=["input_ids", "attention_mask"],
).save_pretrained(folder)
config = Qwen2Config(
    vocab_size=size["words"], hidden_size=size["width"], intermediate_size=size["inner"],
    max_position_embeddings=1024, num_hidden_layers=size["layers"], num_attention_heads=size["heads"],
    num_key_value_heads=2, pad_token_id=0, eos_token_id=1, bos_token_id=None, tie_word_embeddings=True,
)
Qwen2ForCausalLM(config).save_pretrained(folder)
rng = random.Random(0)
with open(folder + "/rows.jsonl", "w") as file:
    for _ in range(256):
        words = " ".join(f"w{rng.randrange(size['words'] - 3)}" for _ in range(size["prompt"]))
        file.write(json.dumps({"prompt": words}) + "\\n")
with open(folder + "/reward.py", "w") as file:
    file.write("def lucky(completions, **_):\\n    return [float(len(c) % 7) for c in completions]\\n")
"""
BARE = """
import json, sys, time
folder, size, more = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
sys.path.insert(0, folder)
import torch
from datasets import load_dataset
from reward import lucky
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
times = []
class Clock(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **_):
        if "loss" in logs:
            times.append(time.time())
cuda = torch.cuda.is_available()
arguments = GRPOConfig(
    output_dir=sys.argv[4], max_steps=size["steps"], num_generations=8, per_device_train_batch_size=64,
    max_completion_length=size["completion"], learning_rate=1e-6, lr_scheduler_type="constant", save_strategy="no",
    bf16=cuda, gradient_checkpointing=False, use_cpu=not cuda, logging_steps=1, report_to="none", disable_tqdm=True,
    **more,
)
trainer = GRPOTrainer(
    model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), args=arguments, reward_funcs=lucky,
    processing_class=PreTrainedTokenizerFast.from_pretrained(folder), callbacks=[Clock()],
    train_dataset=load_dataset("json", data_files=folder + "/rows.jsonl", split="train"),
)
trainer.train()
peak = torch.cuda.max_memory_allocated() / 2**30 if cuda else None
print(json.dumps({"times": times, "peak": peak}))
"""


def run(argv: list[str]) -> str:
    """The output of a process, or the end of this one with what it said."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError((done.stdout + done.stderr)[-3000:])
    return done.stdout


def run_case(python: str, kind: str, more: dict[str, Any], size: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Times of the steps, peak in GiB, and the parts' shares where they are known."""
    model = str(folder / "model")
    out = folder / "run"
    if kind == "bare":
        arguments = [model, json.dumps(size), json.dumps(more), str(out)]
        return dict(json.loads(run([python, "-B", "-c", BARE, *arguments]).strip().splitlines()[-1]))
    settings = {
        "model": model, "data": f"{model}/rows.jsonl", "rewards": [f"{model}/reward.py:lucky"], "chat": "text",
        "steps": size["steps"], "prompts_per_step": 8, "num_generations": 8, "learning_rate": 1e-6,
        "max_completion_length": size["completion"], "eval_every": 0, "eval_samples": 1, "held_out_rows": 2,
        "save_every": 0, **more,
    }  # fmt: skip
    out.mkdir()
    (out / "run.json").write_text(json.dumps({"schema": 1, "recipe": "benchmark", "settings": settings}))
    run([python, "-B", str(TRAIN / "grpo.py"), str(out)])
    events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    result = json.loads((out / "result.json").read_text())
    steps = [event for event in events if event["event"] == "step"]
    peaks = [event["metrics"]["memory_gib"] or 0 for event in steps]
    memory = result["memory"] or {}
    planned = memory.get("planned", 0) / 2**30 or None
    return {
        "times": [event["t"] for event in steps], "peak": max(peaks) or None, "shares": result["shares"],
        "planned": planned,
    }  # fmt: skip


def main() -> None:
    """Every case in turn, a line each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--steps", type=int, default=6)
    asked = parser.parse_args()
    size = {"words": 32000, "width": 896, "inner": 4864, "layers": 24, "heads": 14, "prompt": 256, "completion": 512}
    if asked.small:
        size = {"words": 200, "width": 64, "inner": 128, "layers": 2, "heads": 4, "prompt": 16, "completion": 16}
    size["steps"] = asked.steps
    with tempfile.TemporaryDirectory() as shared:
        model = Path(shared, "model")
        run([asked.python, "-B", "-c", MAKE, str(model), json.dumps(size)])
        for name, (kind, more) in CASES.items():
            if asked.only and not any(part in name for part in asked.only):
                continue
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "model").symlink_to(model)
                try:
                    found = run_case(asked.python, kind, more, size, Path(folder))
                except RuntimeError as error:
                    print(f"{name:38} failed: {str(error).strip().splitlines()[-1]}", flush=True)
                    continue
            seconds = [after - before for before, after in itertools.pairwise(found["times"])][FIRST - 1 :]
            told = {key: found.get(key) for key in ("peak", "planned", "shares") if found.get(key)}
            print(f"{name:38} {statistics.median(seconds):7.2f} s (least {min(seconds):.2f})  {told}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
