"""The recipe `add` with bare TRL and with the bundled trainer: do both learn the same? And does a resumed run?

    python tests/benchmarks/add_gpu.py PYTHON_OF_THE_STACK MODEL OUT [--seeds N] [--more-seeds N] [--resumed N]
        [--parallel N] [--seconds N] [--micro-batch N] [KEY=VALUE ...]

MODEL is a folder with SmolLM2-135M-Instruct (train/gguf_model.py makes it). Each of --seeds trains twice with vLLM in
the trainer's process, with TRL alone and with envdoctor, on the same rows with the same settings; --more-seeds do the
same with LoRA and with transformers' generation. --resumed runs are killed after half of their steps and continued.
--parallel processes share the GPU, so their seconds are no measurement; each vLLM gets a KV cache of 1 GiB.

One evaluation program loads each saved model, and completes the held-out prompts greedily with transformers:
"accuracy" computes in bfloat16, as both programs do in training, "float32" does not round the trained weights. Each
result is a line of OUT/results.jsonl, and OUT/summary.json is written again after each: held-out accuracy and the
area under the reward curve (mean training reward of all steps) per group, with the difference of the means and its
p-value in a permutation test. KEY=VALUE changes settings of the recipe, for a short trial on a CPU.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import queue
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TRAIN = Path(__file__).resolve().parents[2] / "train"
sys.path.insert(0, str(TRAIN))

from settings import read_recipe  # noqa: E402

VLLM = {"use_vllm": True, "vllm_mode": "colocate", "vllm_gpu_memory_utilization": 0.05, "vllm_max_model_length": 128}
# The TRL script loads float32; envdoctor's default for frozen weights is bfloat16.
LORA = {"r": 16, "lora_alpha": 32, "target_modules": ["all-linear"], "learning_rate": 2e-4, "dtype": "float32"}
ENGINES = {"vLLM": VLLM, "LoRA": VLLM | LORA, "transformers": {"use_vllm": False}}
# Memory that grows in other processes would count as vLLM's own while it measures how much is left for its cache.
COMMON = """
import json, os, sys, time
sys.path.insert(0, TRAIN)

def limit_cache():
    import vllm
    start = vllm.LLM.__init__
    def start_with_limit(self, *arguments, **named):
        start(self, *arguments, **{"kv_cache_memory_bytes": 1 << 30} | named)
    vllm.LLM.__init__ = start_with_limit
"""
ENVDOCTOR = """
import grpo
prepare, folder = grpo.prepare_process, sys.argv[1]

def prepare_and_limit(settings, run):
    prepare(settings, run)
    if settings["use_vllm"]:
        limit_cache()

grpo.prepare_process = prepare_and_limit
sys.exit(grpo.main())
"""
TRL = """
folder = sys.argv[1]
with open(folder + "/run.json") as file:
    settings = json.load(file)["settings"]
if settings["use_vllm"]:
    limit_cache()
import torch
from data.answers import read_number
from datasets import Dataset
from peft import LoraConfig
from settings import read_recipe, resolve_settings
from tasks.dataset import DatasetTask
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

rows = DatasetTask(resolve_settings(read_recipe("add"), settings, "the benchmark")).train

def exact(completions, answer, **_):
    return [float(read_number(c[0]["content"]) == int(a)) for c, a in zip(completions, answer)]

class Rewards(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **_):
        if "loss" in logs:
            with open(folder + "/rewards.jsonl", "a") as file:
                file.write(json.dumps([state.global_step, logs["reward"], time.time()]) + "\\n")

cuda = torch.cuda.is_available()
step = settings["prompts_per_step"] * settings["num_generations"]
micro_batch = settings["per_device_train_batch_size"] or step
names = {
    "seed", "max_steps", "num_generations", "learning_rate", "temperature", "beta", "max_completion_length",
    "use_vllm", *(name for name in settings if name.startswith("vllm_")),
}
arguments = GRPOConfig(
    output_dir=folder + "/checkpoints", per_device_train_batch_size=micro_batch,
    gradient_accumulation_steps=step // micro_batch, lr_scheduler_type="constant", save_strategy="no", bf16=cuda,
    use_cpu=not cuda, gradient_checkpointing=False, logging_steps=1, report_to="none", disable_tqdm=True,
    **{name: settings[name] for name in names},
)
adapter = None
if settings.get("r"):
    adapter = LoraConfig(r=settings["r"], lora_alpha=settings["lora_alpha"], target_modules="all-linear")
trainer = GRPOTrainer(
    model=AutoModelForCausalLM.from_pretrained(settings["model"], dtype=torch.float32), args=arguments,
    reward_funcs=exact, processing_class=AutoTokenizer.from_pretrained(settings["model"], padding_side="left"),
    train_dataset=Dataset.from_list([{"prompt": r["prompt"], "answer": r["columns"]["answer"]} for r in rows]),
    peft_config=adapter, callbacks=[Rewards()],
)
trainer.train()
trainer.model.save_pretrained(folder + "/model")
"""
# Reads run folders, and prints the held-out accuracy of each saved model; "before": of the model of the settings.
EVALUATE = """
import torch
from data.answers import read_number
from peft import PeftModel
from settings import read_recipe, resolve_settings
from tasks.dataset import DatasetTask
from transformers import AutoModelForCausalLM, AutoTokenizer

device = "cuda" if torch.cuda.is_available() else "cpu"
for line in sys.stdin:
    folder, when = json.loads(line)
    with open(folder + "/run.json") as file:
        settings = json.load(file)["settings"]
    rows = DatasetTask(resolve_settings(read_recipe("add"), settings, "the benchmark")).held_out
    tokenizer = AutoTokenizer.from_pretrained(settings["model"], padding_side="left")
    model, saved = settings["model"], folder + "/model"
    is_adapter = when == "after" and os.path.exists(saved + "/adapter_config.json")
    path = saved if when == "after" and not is_adapter else model
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).to(device)
    if is_adapter:
        model = PeftModel.from_pretrained(model, saved)
    prompts = [tokenizer.apply_chat_template(r["prompt"], add_generation_prompt=True, tokenize=False) for r in rows]
    batch = tokenizer(prompts, padding=True, add_special_tokens=False, return_tensors="pt").to(device)
    shares = []
    for bfloat16 in (True, False):
        with torch.inference_mode(), torch.autocast(device, torch.bfloat16, enabled=bfloat16):
            ids = model.generate(**batch, max_new_tokens=settings["max_completion_length"], do_sample=False)
        texts = tokenizer.batch_decode(ids[:, batch["input_ids"].shape[1]:], skip_special_tokens=True)
        right = [read_number(text) == int(row["columns"]["answer"]) for text, row in zip(texts, rows)]
        shares.append(sum(right) / len(right))
    del model
    print(json.dumps(dict(zip(("accuracy", "float32"), shares)) | {"sample": texts[0]}), flush=True)
"""


@dataclass(frozen=True)
class Job:
    """One training run."""

    program: str  # TRL, envdoctor, or resumed (envdoctor, killed and continued)
    engine: str
    seed: int

    @property
    def group(self) -> str:
        """The runs that differ only in their seed."""
        return f"{self.program}, {self.engine}"


def list_jobs(seeds: int, more_seeds: int, resumed: int) -> list[Job]:
    """All runs; those with several seeds first."""
    plain = [Job(program, "vLLM", seed) for program in ("TRL", "envdoctor") for seed in range(1, seeds + 1)]
    plain[seeds:seeds] = [Job("resumed", "vLLM", seed) for seed in range(1, resumed + 1)]  # they take longest
    return plain + [
        Job(program, engine, seed)
        for seed in range(1, more_seeds + 1)
        for engine in ("LoRA", "transformers")
        for program in ("TRL", "envdoctor")
    ]


class Benchmark:
    """Runs jobs in parallel processes, and writes their results."""

    def __init__(self, python: str, model: str, out: Path, options: argparse.Namespace) -> None:
        self.python, self.model, self.out, self.options = python, model, out, options
        self.deadline = time.monotonic() + options.seconds
        self.work = Path(options.work)
        self.changed = {key: json.loads(value) for key, value in (pair.split("=", 1) for pair in options.changed)}
        self.jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self.lock, self.results = threading.Lock(), list[dict[str, Any]]()
        for name, text in (("trl", TRL), ("envdoctor", ENVDOCTOR), ("evaluate", EVALUATE)):
            (self.work / f"{name}_script.py").write_text(f"TRAIN = {str(TRAIN)!r}\n{COMMON}{text}")
        self.evaluation = subprocess.Popen(
            [python, "-B", str(self.work / "evaluate_script.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=(self.out / "evaluation.log").open("w"), text=True,
        )  # fmt: skip

    def run(self, jobs: Sequence[Job]) -> None:
        """Run all jobs, or those until the time limit."""
        first = self.work / "before"
        self.write_settings(first, Job("envdoctor", "vLLM", 1))
        self.record(program="untrained", engine="", seed=1, **self.evaluate(first, "before"))
        for job in jobs:
            self.jobs.put(job)
        slots = [
            threading.Thread(target=self.run_slot, args=(slot,), daemon=True) for slot in range(self.options.parallel)
        ]
        for thread in slots:
            thread.start()
        for thread in slots:
            thread.join()

    def run_slot(self, slot: int) -> None:
        """Run one job after the other, with a cache of compiled code of its own."""
        caches = {"VLLM_CACHE_ROOT": "vllm", "TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
        environment = os.environ | {name: str(self.work / f"{cache}{slot}") for name, cache in caches.items()}
        environment |= {"OMP_NUM_THREADS": "2", "TORCHINDUCTOR_COMPILE_THREADS": "2"}
        while time.monotonic() < self.deadline:
            try:
                job = self.jobs.get_nowait()
            except queue.Empty:
                return
            with socket.create_server(("127.0.0.1", 0)) as free:  # TRL's choice of a port is not atomic
                environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
            start = time.monotonic()
            try:
                found = self.run_job(job, environment)
            except RuntimeError as error:
                found = {"error": str(error)[-1500:]}
            self.record(
                program=job.program, engine=job.engine, seed=job.seed, total_seconds=time.monotonic() - start, **found
            )

    def run_job(self, job: Job, environment: dict[str, str]) -> dict[str, Any]:
        """Rewards of the steps, and held-out accuracy afterwards."""
        folder = self.work / f"{job.program}-{job.engine}-{job.seed}"
        settings = self.write_settings(folder, job)
        program = "trl" if job.program == "TRL" else "envdoctor"
        command = [self.python, "-B", str(self.work / f"{program}_script.py"), str(folder)]
        found: dict[str, Any] = {}
        if job.program == "resumed":
            half = settings["max_steps"] // 2
            found["killed_after_step"] = self.run_until(command, folder, half, environment)
            command += ["--resume", "latest"]
        self.wait(self.start(command, folder, environment), folder)
        steps = read_steps(folder)
        found |= {
            "rewards": [reward for _, reward, _ in steps],
            "seconds": (steps[-1][2] - steps[2][2]) / (len(steps) - 3) if len(steps) > 3 else None,
            **self.evaluate(folder, "after"),
        }
        if program == "envdoctor":
            result = json.loads((folder / "result.json").read_text())
            found |= {"own_accuracy": result["after"]["greedy_exact_match"], "patches": result["patches"]}
        shutil.rmtree(folder)
        return found

    def write_settings(self, folder: Path, job: Job) -> dict[str, Any]:
        """Create a run directory for both programs."""
        fixed = {"model": self.model, "seed": job.seed, "eval_steps": 0}
        half = {"save_steps": 0} if job.program != "resumed" else {}
        batch = {"per_device_train_batch_size": self.options.micro_batch} if self.options.micro_batch else {}
        settings = read_recipe("add").settings | ENGINES[job.engine] | fixed | half | batch | self.changed
        if job.program == "resumed":
            settings["save_steps"] = settings["max_steps"] // 2
        settings.setdefault("per_device_train_batch_size", 0)
        folder.mkdir()
        (folder / "run.json").write_text(json.dumps({"schema": 1, "recipe": "add", "settings": settings}))
        return settings

    def start(self, command: Sequence[str], folder: Path, environment: dict[str, str]) -> subprocess.Popen[str]:
        """Start a program; its output is in the folder's log."""
        with (folder / "log").open("a") as log:
            return subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, text=True, env=environment, start_new_session=True
            )

    def wait(self, process: subprocess.Popen[str], folder: Path) -> None:
        """Wait for the end of a program; RuntimeError with the end of its log if it failed or the time is over."""
        try:
            status = process.wait(max(1.0, self.deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            status = -signal.SIGKILL
        if status:
            raise RuntimeError(
                f"exit status {status}, {len(read_steps(folder))} steps\n{(folder / 'log').read_text()}"
            )

    def run_until(self, command: Sequence[str], folder: Path, step: int, environment: dict[str, str]) -> int:
        """Kill a run as soon as it has a complete checkpoint of this step; return its last step."""
        process = self.start(command, folder, environment)
        while not any(path.name == "complete.json" for path in folder.glob(f"checkpoints/checkpoint-{step}/*")):
            if process.poll() is not None or time.monotonic() > self.deadline:
                break
            time.sleep(0.02)
        with_steps = read_steps(folder)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return int(with_steps[-1][0]) if with_steps else 0

    def evaluate(self, folder: Path, when: str) -> dict[str, Any]:
        """Held-out accuracy of a saved model, and one of its completions."""
        with self.lock:
            assert self.evaluation.stdin is not None
            assert self.evaluation.stdout is not None
            self.evaluation.stdin.write(json.dumps([str(folder), when]) + "\n")
            self.evaluation.stdin.flush()
            line = self.evaluation.stdout.readline()
        if not line:
            raise RuntimeError("the evaluation ended: " + (self.out / "evaluation.log").read_text())
        return dict(json.loads(line))

    def record(self, **result: Any) -> None:
        """Append a result, print it, and write the summary again."""
        with self.lock:
            self.results.append(result)
            with (self.out / "results.jsonl").open("a") as file:
                file.write(json.dumps(result) + "\n")
            (self.out / "summary.json").write_text(json.dumps(summarise(self.results), indent=1))
        shown = {key: value for key, value in result.items() if key not in ("rewards", "patches")}
        print(json.dumps(shown), flush=True)


def read_steps(folder: Path) -> list[tuple[int, float, float]]:
    """(step, mean reward, time) of each step of a run, of either program."""
    if (file := folder / "rewards.jsonl").exists():
        return [tuple(json.loads(line)) for line in file.read_text().splitlines()]
    if not (file := folder / "events.jsonl").exists():
        return []
    events = [json.loads(line) for line in file.read_text().split("\n")[:-1]]
    steps = {e["step"]: (e["step"], e["metrics"]["reward"], e["t"]) for e in events if e["event"] == "step"}
    return [steps[step] for step in sorted(steps)]  # after a resume, the later one of a repeated step


def summarise(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Mean and standard deviation of each group, and the differences between TRL and envdoctor."""
    groups: dict[str, dict[str, list[float]]] = {}
    for result in results:
        if "accuracy" in result:
            group = groups.setdefault(f"{result['program']}, {result['engine']}", {"accuracy": [], "area": []})
            group["accuracy"].append(result["accuracy"])
            if "rewards" in result:
                group["area"].append(statistics.mean(result["rewards"]))
    found: dict[str, Any] = {
        name: {
            kind: {"values": values, "mean": statistics.mean(values), "deviation": deviation(values)}
            for kind, values in group.items()
            if values
        }
        for name, group in groups.items()
    }
    for engine in ENGINES:
        pair = [groups.get(f"{program}, {engine}") for program in ("TRL", "envdoctor")]
        if all(pair):
            found[f"difference, {engine}"] = {
                kind: dict(zip(("difference", "p"), permutation_test(*(group[kind] for group in pair)), strict=True))  # type: ignore[index]
                for kind in ("accuracy", "area")
            }
    return found


def deviation(values: Sequence[float]) -> float | None:
    """The standard deviation of a sample; None of one value."""
    return statistics.stdev(values) if len(values) > 1 else None


def permutation_test(first: Sequence[float], second: Sequence[float]) -> tuple[float, float]:
    """(difference of the means, share of all divisions of the values whose difference is at least as large)."""
    values, size = [*first, *second], len(first)

    def differences() -> Iterator[float]:
        for chosen in itertools.combinations(range(len(values)), size):
            rest = [values[at] for at in range(len(values)) if at not in chosen]
            yield statistics.mean(rest) - statistics.mean(values[at] for at in chosen)

    observed = statistics.mean(second) - statistics.mean(first)
    as_large = [abs(difference) >= abs(observed) - 1e-12 for difference in differences()]
    return observed, sum(as_large) / len(as_large)


def main() -> None:
    """Run all jobs, and print the summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python")
    parser.add_argument("model")
    parser.add_argument("out", type=Path)
    parser.add_argument("changed", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--more-seeds", type=int, default=1)
    parser.add_argument("--resumed", type=int, default=1)
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--micro-batch", type=int, default=0)
    parser.add_argument("--work", default="", help="folder for the runs, which are removed when they are evaluated")
    options = parser.parse_intermixed_args()
    options.out.mkdir(parents=True, exist_ok=True)
    options.work = options.work or str(options.out / "runs")
    Path(options.work).mkdir(parents=True)
    benchmark = Benchmark(options.python, str(Path(options.model).resolve()), options.out, options)
    benchmark.run(list_jobs(options.seeds, options.more_seeds, options.resumed))
    print((options.out / "summary.json").read_text())


if __name__ == "__main__":
    main()
