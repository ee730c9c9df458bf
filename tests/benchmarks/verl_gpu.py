"""verl by envdoctor's recipes on a GPU: does it learn, does it resume, and what does a step take.

    python tests/benchmarks/verl_gpu.py PYTHON_OF_THE_STACK [--only NAME ...] [--gpus N] [--small]

The work: sums in GSM8K's form, a tokenizer of bytes, Llamas made here; nothing is downloaded. Every run is an
`envdoctor train` of its own, from the checkout. "sft" trains 0.39 B random parameters for 24 steps of 16 rows; the
merged model is loaded by transformers and asked a held-out row. "sft, resumed" stops such a run by SIGTERM once step
10 is saved, goes on with --resume latest, and compares the losses after step 10 with the uninterrupted run's. "grpo"
(10 steps, 8 answers a prompt) and "ppo" (6 steps), 64 prompts a step, begin with a Llama of 3.6 M that verl-sft
taught sums before, so that rewards differ; vLLM samples without CUDA graphs.

Seconds a step and its parts are medians, without the first two steps; the peak is what verl tells of its training
process, where it does. TMPDIR has to hold two checkpoints of 0.39 B with their optimizer states. --small takes tiny
models and few steps, to try the script on a CPU: there verl trains only if VERL_USE_EXTERNAL_MODULES names a module
that makes it (tests/train/verl_on_cpu.py has one for SFT).
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from trainer_gpu import run as read_output

ROOT = Path(__file__).resolve().parents[2]
FIRST = 2
SAVED = 10  # the step after which a run is stopped
LIMIT, INTERRUPTED = 900, 130  # seconds a run may take, and envdoctor's exit code
PARTS = ("generate", "update", "sync")
PEAK = "perf/max_memory_allocated_gb"  # verl's name
BIG, START, TINY = (1024, 30, 16, 2816), (256, 4, 4, 768), (64, 2, 2, 128)  # width, layers, heads, inner width
SFT = {"epochs": 10, "max_seq_length": 128, "eval_every": 0, "keep_checkpoints": 1, "options": "data.num_workers=0"}
# Eight processes each by verl's default; before 0.9 there is no TransferQueue.
FEW = (
    "actor_rollout_ref.rollout.agent.num_workers=2,reward.num_workers=2,data.dataloader_num_workers=0,"
    "++transfer_queue.backend.SimpleStorage.num_data_storage_units=2"
)
SAMPLED = {
    "data": "sampled", "instruction": "", "prompts_per_step": 64, "mini_batch": 32, "max_prompt_length": 64,
    "max_completion_length": 48, "vllm_share": 0.3, "vllm_cuda_graphs": "false", "options": FEW,
}  # fmt: skip
SETTINGS: dict[str, dict[str, Any]] = {
    "sft": SFT | {"data": "sft", "prompts_per_step": 16, "steps": 24, "learning_rate": 1e-4, "save_every": SAVED},
    "start": SFT | {"data": "start", "prompts_per_step": 64, "steps": 200, "learning_rate": 1e-3, "save_every": 0},
    "grpo": SAMPLED | {"steps": 10, "num_generations": 8, "learning_rate": 5e-5},
    "ppo": SAMPLED | {"steps": 6, "learning_rate": 1e-5, "critic_learning_rate": 1e-4},
}
CPU = "trainer.device=cpu,"
SMALL_SFT = {"prompts_per_step": 8, "steps": 14, "sharding": "fsdp2", "options": f"{CPU}{SFT['options']}"}
SMALL_SAMPLED = SMALL_SFT | {"mini_batch": 4, "steps": 2, "held_out_rows": 8}
SMALL_SAMPLED |= {"options": CPU + FEW + ",actor_rollout_ref.rollout.free_cache_engine=false"}
VARIABLES = {  # for a machine without network, and perhaps without nvcc, which compiles FlashInfer's sampler
    "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_USE_FLASHINFER_SAMPLER": "0", "NO_COLOR": "1",
    "RAY_DEFAULT_OBJECT_STORE_MEMORY_PROPORTION": "0.1",
}  # fmt: skip
MAKE = """
import sys, torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
folder, width, layers, heads, inner = sys.argv[1], *map(int, sys.argv[2:])
special = ["<pad>", "<eos>", "<unk>", "<|user|>", "<|assistant|>", "<|system|>"]
words = {word: n for n, word in enumerate([*special, *sorted(pre_tokenizers.ByteLevel.alphabet())])}
backend = Tokenizer(models.BPE(vocab=words, merges=[], unk_token="<unk>"))
backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
backend.decoder = decoders.ByteLevel()
backend.add_special_tokens([AddedToken(word, special=True) for word in special])
tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
tokenizer.chat_template = ("{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}{{ eos_token }}{% endfor %}"
                           "{% if add_generation_prompt %}<|assistant|>{% endif %}")
tokenizer.save_pretrained(folder)
torch.manual_seed(1)
model = LlamaForCausalLM(LlamaConfig(
    vocab_size=-(-len(words) // 64) * 64, hidden_size=width, intermediate_size=inner, num_hidden_layers=layers,
    num_attention_heads=heads, num_key_value_heads=heads, max_position_embeddings=512,
    pad_token_id=0, eos_token_id=1, bos_token_id=None))
model.to(torch.bfloat16).save_pretrained(folder)
again, text = AutoTokenizer.from_pretrained(folder), "What is 12 plus 30?\\n#### 42"
ids = again.encode(text, add_special_tokens=False)  # its class may put a pre-tokenizer of its own in
assert len(ids) == len(text) and again.decode(ids) == text, (type(again), ids)
"""
ANSWER = """
import json, sys
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline
model, told = AutoModelForCausalLM.from_pretrained(sys.argv[1], output_loading_info=True)
assert not told["missing_keys"] and not told["unexpected_keys"], told
answer = pipeline("text-generation", model=model, tokenizer=AutoTokenizer.from_pretrained(sys.argv[1]))
said = answer([{"role": "user", "content": sys.argv[2]}], max_new_tokens=40, do_sample=False)
print(json.dumps([said[0]["generated_text"][-1]["content"], model.num_parameters()]))
"""


def write_rows(folder: Path) -> None:
    """Sums, no pair of numbers in two files."""
    pairs = [(a, b) for a in range(10, 60) for b in range(10, 60)]
    random.Random(7).shuffle(pairs)
    parts = {"sft": pairs[:512], "sampled": pairs[512:1024], "held_out": pairs[1024:1088], "start": pairs[1088:]}
    for name, some in parts.items():
        with (folder / f"{name}.jsonl").open("w") as file:
            for a, b in some:
                row = {"question": f"What is {a} plus {b}?", "answer": f"{a} + {b} = {a + b}\n#### {a + b}"}
                file.write(json.dumps(row) + "\n")


class Bench:
    """Where models and runs lie, and how runs are started."""

    def __init__(self, asked: argparse.Namespace, folder: Path) -> None:
        self.small, self.gpus, self.folder = asked.small, asked.gpus, folder
        self.python = str(Path(asked.python).absolute())  # a virtual environment's link stays one
        self.began: dict[str, float] = {}
        write_rows(folder)

    def make_model(self, name: str, size: tuple[int, ...]) -> Path:
        """A folder with a model of random weights and its tokenizer."""
        sizes = map(str, TINY if self.small else size)
        read_output([self.python, "-B", "-c", MAKE, str(self.folder / name), *sizes])
        return self.folder / name

    def assignments(self, recipe: str, model: Path, settings: dict[str, Any]) -> list[str]:
        """The words that set a run's settings."""
        if self.small:
            settings = settings | (SMALL_SFT if recipe == "verl-sft" else SMALL_SAMPLED)
        held_out, data = (self.folder / f"{name}.jsonl" for name in ("held_out", settings["data"]))
        passes = settings.get("mini_batch", settings["prompts_per_step"]) // self.gpus
        if recipe != "verl-sft":
            settings = settings | {"save_every": settings["steps"], "eval_every": 0}
        made = {"model": model, "data": data, "held_out_data": held_out, "micro_batch": passes, "gpus": self.gpus}
        return [word for name, value in (settings | made).items() for word in ("--set", f"{name}={value}")]

    def start(self, run: str, recipe: str, *words: str) -> subprocess.Popen[str]:
        """One run of a recipe; its output goes beside it."""
        self.began[run] = time.time()
        with (self.folder / f"{run}.log").open("w") as log:
            return subprocess.Popen(
                [self.python, "-B", "-m", "envdoctor", "train", recipe, *words, "--run", str(self.folder / run),
                 "--python", self.python, "--unverified"],
                cwd=ROOT, env=VARIABLES | os.environ, stdout=log, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip

    def wait(self, run: str, process: subprocess.Popen[str], code: int = 0) -> list[dict[str, Any]]:
        """The run's events once it has ended as it should, or what verl's processes and envdoctor said at the end."""
        try:
            if process.wait(timeout=LIMIT) == code:
                return self.events(run)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait(timeout=LIMIT)
        errors = [line for log in (self.folder / run).glob("train.log") for line in log.open() if "Error" in line]
        raise RuntimeError("".join(errors[-12:]) + (self.folder / f"{run}.log").read_text()[-3000:])

    def train(self, run: str, recipe: str, model: Path, settings: dict[str, Any]) -> list[dict[str, Any]]:
        """A whole run, and its events."""
        if run in self.began:
            raise RuntimeError(f"failed before: {run}")
        return self.wait(run, self.start(run, recipe, *self.assignments(recipe, model, settings)))

    def events(self, run: str) -> list[dict[str, Any]]:
        """What a run has told so far, but for a line that is being written."""
        lines = [line for file in (self.folder / run).glob("events.jsonl") for line in file.open()]
        return [json.loads(line) for line in lines if line.endswith("\n")]

    @functools.cached_property
    def whole(self) -> list[dict[str, Any]]:
        """The uninterrupted run of SFT."""
        return self.train("sft", "verl-sft", self.make_model("big", BIG), SETTINGS["sft"])

    @functools.cached_property
    def taught(self) -> Path:
        """The model that PPO and GRPO begin with."""
        self.train("start", "verl-sft", self.make_model("small", START), SETTINGS["start"])
        return self.folder / "start" / "model"

    def tell_steps(self, run: str, told: list[dict[str, Any]], name: str) -> str:
        """A number of the first and the last step, and what the steps took."""
        steps = [event for event in told if event["event"] == "step"]
        rows = [step["metrics"] for step in steps]
        counted = rows[FIRST:] or rows[-1:]
        seconds = [row["seconds"] for row in counted]
        parts = {part: [row.get(f"{part}_seconds") for row in counted] for part in PARTS}
        known = [f"{part} {statistics.median(taken):.3f}" for part, taken in parts.items() if None not in taken]
        lines = [line for file in (self.folder / run).glob("verl/metrics-*.jsonl") for line in file.open()]
        numbers = [item for line in lines for item in json.loads(line)["data"].items()]
        if peak := max((value for key, value in numbers if key.endswith(PEAK)), default=0):
            known.append(f"peak {peak:.1f} GiB")
        known.append(f"step 1 done after {steps[0]['t'] - self.began[run]:.0f} s")
        moved = f"{name} {rows[0][name]:.4f} to {rows[-1][name]:.4f} in {len(rows)} steps"
        return f"{moved}, {statistics.median(seconds):.2f} s a step (least {min(seconds):.2f}), {', '.join(known)}"


def tell_sft(bench: Bench, run: str) -> str:
    """How SFT learned, and what the merged model answers."""
    told = bench.tell_steps(run, bench.whole, "loss")
    question = json.loads((bench.folder / "held_out.jsonl").open().readline())["question"]
    said = read_output([bench.python, "-B", "-c", ANSWER, str(bench.folder / run / "model"), question])
    text, parameters = json.loads(said.strip().splitlines()[-1])
    return f"{parameters / 1e6:.1f} M, {told}; merged, asked {question!r}: {text!r}"


def tell_resumed(bench: Bench, run: str) -> str:
    """How far the losses of a run that was stopped are from those of one that was not."""
    whole, run = bench.whole, run.replace(", ", "-")
    process = bench.start(run, "verl-sft", *bench.assignments("verl-sft", bench.folder / "big", SETTINGS["sft"]))
    while process.poll() is None and not any(event["event"] == "checkpoint" for event in bench.events(run)):
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    before = bench.wait(run, process, INTERRUPTED)
    told = bench.wait(run, bench.start(run, "verl-sft", "--resume", "latest"))
    once, cut, again = (
        {event["step"]: event["metrics"]["loss"] for event in part if event["event"] == "step"}
        for part in (whole, before, told[len(before) :])
    )
    if list(again) != [step for step in once if step > SAVED]:
        raise RuntimeError(f"resumed from {SAVED}, but the steps after that were {list(again)}")
    apart = max(abs(loss - once[step]) for step, loss in again.items())
    return f"stopped after step {max(cut)}, {len(again)} losses after step {SAVED} apart by {apart:.2g} at most"


def tell_sampled(bench: Bench, task: str) -> str:
    """How PPO or GRPO learned, and what a step was made of."""
    told = bench.train(task, f"verl-{task}", bench.taught, SETTINGS[task])
    looks = {event["when"]: event["metrics"]["greedy_reward"] for event in told if event["event"] == "eval"}
    return f"held-out {looks['before']:.3f} to {looks['after']:.3f}, {bench.tell_steps(task, told, 'reward')}"


CASES = {"sft": tell_sft, "sft, resumed": tell_resumed, "grpo": tell_sampled, "ppo": tell_sampled}


def main() -> None:
    """Every case in turn, a line each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python")
    parser.add_argument("--only", nargs="*", default=[], choices=[*CASES], metavar="NAME")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--small", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(asked, Path(folder))
        for name in asked.only or CASES:
            try:
                line = CASES[name](bench, name)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                print(error, file=sys.stderr, flush=True)
                lines = [text for text in str(error).splitlines() if text.strip()]
                line = "failed: " + next((text for text in reversed(lines) if "rror" in text), lines[-1])
            print(f"{name:14} {line}", flush=True)


if __name__ == "__main__":
    main()
