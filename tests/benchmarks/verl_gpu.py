"""Benchmark verl with envdoctor's recipes on a GPU: learning, resuming, and the time of a step.

    python tests/benchmarks/verl_gpu.py PYTHON_OF_THE_STACK [--only NAME ...] [--gpus N] [--folder DIR] [--small]

The task is sums in GSM8K's format, with a byte tokenizer and Llamas that the script creates; nothing is downloaded.
Each run is an `envdoctor train` from the checkout. "sft" trains 0.39 B random parameters for 24 steps of 16 rows;
transformers loads the merged model and completes a held-out row. "sft, resumed" stops such a run with SIGTERM after
the checkpoint of step 10, continues it with --resume latest, and compares the later losses with those of the
uninterrupted run. "grpo" (10 steps, 8 completions per prompt) and "ppo" (6 steps) use 64 prompts per step and start
from a Llama of 3.6 M that verl-sft has trained on sums, so that rewards differ; vLLM runs without CUDA graphs.
"digits" (GRPO, 8 steps) starts from random weights, with the share of digits as its reward: it needs no SFT first.

The seconds of a step and its parts are medians without the first two steps; the peak is the one that verl logs.
TMPDIR needs space for two checkpoints of 0.39 B parameters with optimizer states; --folder keeps the files.
--small uses tiny models and few steps, to test the script on a CPU. There verl trains only with patches from
VERL_USE_EXTERNAL_MODULES (tests/support/verl_on_cpu.py has them for SFT).
"""

from __future__ import annotations

import argparse
import contextlib
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
SKIPPED_STEPS = 2
STOP_STEP = 10  # the step after which a run is stopped
TIMEOUT, INTERRUPTED = 900, 130  # seconds of a run, and envdoctor's exit code
PARTS = ("generate", "update", "sync")
PEAK = "perf/max_memory_allocated_gb"
BIG, START, TINY = (1024, 30, 16, 2816), (256, 4, 4, 768), (64, 2, 2, 128)  # width, layers, heads, inner width
SFT = {
    "num_train_epochs": 10,
    "max_seq_length": 128,
    "eval_steps": 0,
    "save_total_limit": 1,
    "options": "data.num_workers=0",
}
# verl's default is eight processes each; TransferQueue exists from 0.9 on.
FEW_WORKERS = (
    "actor_rollout_ref.rollout.agent.num_workers=2,reward.num_workers=2,data.dataloader_num_workers=0,"
    "++transfer_queue.backend.SimpleStorage.num_data_storage_units=2"
)
RL = {
    "data": "sampled", "instruction": "", "prompts_per_step": 64, "mini_batch": 32, "max_prompt_length": 64,
    "max_completion_length": 48, "vllm_gpu_memory_utilization": 0.3, "vllm_cuda_graphs": "false",
    "options": FEW_WORKERS,
}  # fmt: skip
SETTINGS: dict[str, dict[str, Any]] = {
    "sft": SFT
    | {"data": "sft", "prompts_per_step": 16, "max_steps": 24, "learning_rate": 1e-4, "save_steps": STOP_STEP},
    "start": SFT
    | {"data": "start", "prompts_per_step": 64, "max_steps": 200, "learning_rate": 1e-3, "save_steps": 0},
    "grpo": RL | {"max_steps": 10, "num_generations": 8, "learning_rate": 5e-5},
    "digits": RL
    | {"max_steps": 8, "num_generations": 8, "mini_batch": 16, "learning_rate": 1e-3, "beta": 0, "held_out_rows": 32},
    "ppo": RL | {"max_steps": 6, "learning_rate": 1e-5, "critic_learning_rate": 1e-4},
}
CPU = "trainer.device=cpu,"
SMALL_SFT = {"prompts_per_step": 8, "max_steps": 14, "sharding": "fsdp2", "options": f"{CPU}{SFT['options']}"}
SMALL_RL = SMALL_SFT | {"mini_batch": 4, "max_steps": 2, "held_out_rows": 8}
SMALL_RL |= {"options": CPU + FEW_WORKERS + ",actor_rollout_ref.rollout.free_cache_engine=false"}
VARIABLES = {  # for a machine without network or nvcc, which FlashInfer's sampler needs
    "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_USE_FLASHINFER_SAMPLER": "0", "NO_COLOR": "1",
    "RAY_DEFAULT_OBJECT_STORE_MEMORY_PROPORTION": "0.1",
}  # fmt: skip
REWARD = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return sum(letter in "0123456789" for letter in solution_str) / max(len(solution_str), 1)
"""
MAKE_MODEL = """
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
loaded, text = AutoTokenizer.from_pretrained(folder), "What is 12 plus 30?\\n#### 42"
ids = loaded.encode(text, add_special_tokens=False)  # its class may add a pre-tokenizer
assert len(ids) == len(text) and loaded.decode(ids) == text, (type(loaded), ids)
"""
COMPLETE = """
import json, sys
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline
model, info = AutoModelForCausalLM.from_pretrained(sys.argv[1], output_loading_info=True)
assert not info["missing_keys"] and not info["unexpected_keys"], info
generate = pipeline("text-generation", model=model, tokenizer=AutoTokenizer.from_pretrained(sys.argv[1]))
messages = generate([{"role": "user", "content": sys.argv[2]}], max_new_tokens=40, do_sample=False)
print(json.dumps([messages[0]["generated_text"][-1]["content"], model.num_parameters()]))
"""


def write_rows(folder: Path) -> None:
    """Write files of sums that share no pair of numbers."""
    pairs = [(a, b) for a in range(10, 60) for b in range(10, 60)]
    random.Random(7).shuffle(pairs)
    parts = {"sft": pairs[:512], "sampled": pairs[512:1024], "held_out": pairs[1024:1088], "start": pairs[1088:]}
    for name, part in parts.items():
        with (folder / f"{name}.jsonl").open("w") as file:
            for a, b in part:
                row = {"question": f"What is {a} plus {b}?", "answer": f"{a} + {b} = {a + b}\n#### {a + b}"}
                file.write(json.dumps(row) + "\n")


class Bench:
    """The folder of models and runs, and the functions that start runs."""

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self.small, self.gpus, self.folder = arguments.small, arguments.gpus, folder
        self.python = str(
            Path(arguments.python).absolute()
        )  # not resolved: a virtual environment's interpreter is a symlink
        self.started: dict[str, float] = {}
        write_rows(folder)

    def make_model(self, name: str, size: tuple[int, ...]) -> Path:
        """Create a model with random weights and its tokenizer, unless --folder has it."""
        sizes = map(str, TINY if self.small else size)
        if not (self.folder / name).is_dir():
            read_output([self.python, "-B", "-c", MAKE_MODEL, str(self.folder / name), *sizes])
        return self.folder / name

    def assignments(self, recipe: str, model: Path, settings: dict[str, Any]) -> list[str]:
        """Return the --set arguments of a run."""
        if self.small:
            settings = settings | (SMALL_SFT if recipe == "verl-sft" else SMALL_RL)
        held_out, data = (self.folder / f"{name}.jsonl" for name in ("held_out", settings["data"]))
        per_device_train_batch_size = settings.get("mini_batch", settings["prompts_per_step"]) // self.gpus
        if recipe != "verl-sft":
            settings = settings | {"save_steps": settings["max_steps"], "eval_steps": 0}
        common = {
            "model": model,
            "data": data,
            "held_out_data": held_out,
            "per_device_train_batch_size": per_device_train_batch_size,
            "gpus": self.gpus,
        }
        return [word for name, value in (settings | common).items() for word in ("--set", f"{name}={value}")]

    def start(self, run: str, recipe: str, *arguments: str) -> subprocess.Popen[str]:
        """Start a run of a recipe; its output goes into a file next to it."""
        self.started[run] = time.time()
        with (self.folder / f"{run}.log").open("w") as log:
            return subprocess.Popen(
                [self.python, "-B", "-m", "envdoctor", "train", recipe, *arguments, "--run", str(self.folder / run),
                 "--python", self.python, "--unverified"],
                cwd=ROOT, env=VARIABLES | os.environ, stdout=log, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip

    def wait(self, run: str, process: subprocess.Popen[str], code: int = 0) -> list[dict[str, Any]]:
        """Wait for the expected exit code and return the run's events; otherwise raise its last errors."""
        try:
            if process.wait(timeout=TIMEOUT) == code:
                return self.events(run)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait(timeout=TIMEOUT)
        errors = [line for log in (self.folder / run).glob("train.log") for line in log.open() if "Error" in line]
        raise RuntimeError("".join(errors[-12:]) + (self.folder / f"{run}.log").read_text()[-3000:])

    def train(self, run: str, recipe: str, model: Path, settings: dict[str, Any]) -> list[dict[str, Any]]:
        """Execute a run and return its events."""
        if run in self.started:
            raise RuntimeError(f"failed before: {run}")
        return self.wait(run, self.start(run, recipe, *self.assignments(recipe, model, settings)))

    def events(self, run: str) -> list[dict[str, Any]]:
        """Return the events of a run so far, without an incomplete last line."""
        lines = [line for file in (self.folder / run).glob("events.jsonl") for line in file.open()]
        return [json.loads(line) for line in lines if line.endswith("\n")]

    @functools.cached_property
    def uninterrupted(self) -> list[dict[str, Any]]:
        """Return the events of the uninterrupted SFT run."""
        return self.train("sft", "verl-sft", self.make_model("big", BIG), SETTINGS["sft"])

    @functools.cached_property
    def start_model(self) -> Path:
        """Return the initial model of PPO and GRPO."""
        self.train("start", "verl-sft", self.make_model("small", START), SETTINGS["start"])
        return self.folder / "start" / "model"

    def describe_steps(self, run: str, events: list[dict[str, Any]], name: str) -> str:
        """Describe a metric at the first and the last step, and the time of the steps."""
        steps = [event for event in events if event["event"] == "step"]
        rows = [step["metrics"] for step in steps]
        timed = rows[SKIPPED_STEPS:] or rows[-1:]
        seconds = [row["seconds"] for row in timed]
        parts = {part: [row.get(f"{part}_seconds") for row in timed] for part in PARTS}
        known = [f"{part} {statistics.median(times):.3f}" for part, times in parts.items() if None not in times]
        lines = [line for file in (self.folder / run).glob("verl/metrics-*.jsonl") for line in file.open()]
        numbers = [item for line in lines for item in json.loads(line)["data"].items()]
        if peak := max((value for key, value in numbers if key.endswith(PEAK)), default=0):
            known.append(f"peak {peak:.1f} GiB")
        known.append(f"step 1 ended after {steps[0]['t'] - self.started[run]:.0f} s")
        change = f"{name} {rows[0][name]:.4f} to {rows[-1][name]:.4f} in {len(rows)} steps"
        return (
            f"{change}, {statistics.median(seconds):.2f} s per step (minimum {min(seconds):.2f}), {', '.join(known)}"
        )


def run_sft(bench: Bench, run: str) -> str:
    """Describe the SFT run and a completion of the merged model."""
    steps = bench.describe_steps(run, bench.uninterrupted, "loss")
    question = json.loads((bench.folder / "held_out.jsonl").open().readline())["question"]
    output = read_output([bench.python, "-B", "-c", COMPLETE, str(bench.folder / run / "model"), question])
    text, parameters = json.loads(output.strip().splitlines()[-1])
    return f"{parameters / 1e6:.1f} M, {steps}; the merged model completes {question!r}: {text!r}"


def run_resumed(bench: Bench, run: str) -> str:
    """Describe the largest difference between the losses of a resumed and an uninterrupted run."""
    uninterrupted, run = bench.uninterrupted, run.replace(", ", "-")
    process = bench.start(run, "verl-sft", *bench.assignments("verl-sft", bench.folder / "big", SETTINGS["sft"]))
    while process.poll() is None and not any(event["event"] == "checkpoint" for event in bench.events(run)):
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    before = bench.wait(run, process, INTERRUPTED)
    events = bench.wait(run, bench.start(run, "verl-sft", "--resume", "latest"))
    expected, stopped, resumed = (
        {event["step"]: event["metrics"]["loss"] for event in part if event["event"] == "step"}
        for part in (uninterrupted, before, events[len(before) :])
    )
    if list(resumed) != [step for step in expected if step > STOP_STEP]:
        raise RuntimeError(f"resumed from {STOP_STEP}, but the steps after that were {list(resumed)}")
    difference = max(abs(loss - expected[step]) for step, loss in resumed.items())
    losses = f"{len(resumed)} losses after step {STOP_STEP}"
    return f"stopped after step {max(stopped)}, {losses} differ by up to {difference:.2g}"


def run_rl(bench: Bench, task: str) -> str:
    """Describe a run of PPO or GRPO."""
    return describe_rl(bench, task, bench.train(task, f"verl-{task}", bench.start_model, SETTINGS[task]))


def run_digits(bench: Bench, run: str) -> str:
    """Describe a run of GRPO that starts from random weights."""
    (bench.folder / "reward.py").write_text(REWARD)
    settings = SETTINGS[run] | {"reward_function": f"{bench.folder / 'reward.py'}:compute_score"}
    return describe_rl(bench, run, bench.train(run, "verl-grpo", bench.make_model("small", START), settings))


def describe_rl(bench: Bench, run: str, events: list[dict[str, Any]]) -> str:
    """Describe the rewards and the time of the steps."""
    rewards = {event["when"]: event["metrics"]["greedy_reward"] for event in events if event["event"] == "eval"}
    return (
        f"held-out {rewards['before']:.3f} to {rewards['after']:.3f}, {bench.describe_steps(run, events, 'reward')}"
    )


CASES = {"sft": run_sft, "sft, resumed": run_resumed, "digits": run_digits, "grpo": run_rl, "ppo": run_rl}


def main() -> None:
    """Run every case and print one line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python")
    parser.add_argument("--only", nargs="*", default=[], choices=[*CASES], metavar="NAME")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="an empty folder for models and runs, which stay there")
    parser.add_argument("--small", action="store_true")
    arguments = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = arguments.folder or stack.enter_context(tempfile.TemporaryDirectory())
        bench = Bench(arguments, Path(folder).absolute())
        for name in arguments.only or CASES:
            try:
                line = CASES[name](bench, name)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                print(error, file=sys.stderr, flush=True)
                lines = [text for text in str(error).splitlines() if text.strip()]
                line = "failed: " + next((text for text in reversed(lines) if "rror" in text), lines[-1])
            print(f"{name:14} {line}", flush=True)


if __name__ == "__main__":
    main()
