"""FSDP compared with DDP on two GPUs under torchrun: equality of the weights, time and memory.

    python tests/benchmarks/sharding_gpu.py PYTHON_OF_THE_STACK [--processes 2] [--only PART ...] [--cpu]

"tiny" compares the weights of a tiny Qwen2 after three steps, and after resuming from step 2, and loads the saved
model: full fine-tuning, with a reference model and activation checkpointing, and with an adapter. It uses float32
without autocast, because different rounding would lead to different completions. "big" trains a Qwen2 of 387 M random
parameters, 8 prompts of 256 tokens with 8 completions of 128 tokens per step, and prints the seconds per step and the
memory peak of each process, without the first two steps. --cpu runs only the tiny cases, with FSDP enabled on the CPU
(fsdp_on_cpu.py), to test the script.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from trainer_gpu import MAKE

TESTS = Path(__file__).resolve().parents[1]
TRAIN = TESTS.parent / "train"
SKIPPED_STEPS = 2
MAX_DIFFERENCE = 1e-4  # of the weights, at a learning rate of 1e-3
TINY = {"words": 200, "width": 64, "inner": 128, "layers": 2, "heads": 4, "prompt": 8}
BIG = {"words": 32000, "width": 896, "inner": 4864, "layers": 24, "heads": 14, "prompt": 256}
LORA = {"r": 4, "target_modules": ["all-linear"]}
CASES: dict[str, dict[str, Any]] = {
    "tiny": {},
    "tiny, beta, checkpointed": {
        "beta": 0.1,
        "num_iterations": 2,
        "per_device_train_batch_size": 4,
        "gradient_checkpointing": True,
    },
    "tiny, LoRA, checkpointed": {**LORA, "gradient_checkpointing": True},
}
# The trainer, which also writes the memory peak of each rank; EXACT disables autocast.
PROGRAM = """
import os, sys
from pathlib import Path
sys.path[:0] = [TRAIN, TESTS]
import grpo
def keep_peaks(run):
    from run import recorder
    read_memory = recorder.Recorder._memory
    def keep(self):
        gib = read_memory(self)
        with Path(run, "peaks-" + os.environ["RANK"]).open("a") as file:
            print(gib or 0, file=file)
        return gib
    recorder.Recorder._memory = keep
def compute_in_float32():
    from modeling import loading
    loading.choose_dtype = lambda *_, **__: ("float32", "float32", [])
original_prepare = grpo.prepare_process
def prepare(*arguments):
    original_prepare(*arguments)
    keep_peaks(sys.argv[1])
    if os.environ.get("EXACT"):
        compute_in_float32()
grpo.prepare_process = prepare
if os.environ.get("FSDP_ON_CPU"):
    from support import fsdp_on_cpu
sys.exit(grpo.main())
"""
COMPARE = """
import json, sys
from safetensors.torch import load_file
first, second, start = (load_file(name) for name in sys.argv[1:4])
folder = sys.argv[4]
assert set(first) == set(second) and first, (len(first), len(second))
if folder:
    from transformers import AutoModelForCausalLM
    report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)[1]
    assert not report["missing_keys"] and not report["unexpected_keys"], report
difference = max((first[name].float() - second[name].float()).abs().max().item() for name in first)
change = max((first[name].float() - start[name].float() if name in start else first[name].float()).abs().max().item()
            for name in first if "lora_A" not in name)  # lora_B is initialized with zeros
print(json.dumps([difference, change]))
"""


class Bench:
    """The folder of models and runs, and the functions that start runs."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.folder = options, folder
        self.program = folder / "program.py"
        self.program.write_text(f"TRAIN, TESTS = {str(TRAIN)!r}, {str(TESTS)!r}\n{PROGRAM}")

    def make_model(self, name: str, size: dict[str, int]) -> None:
        """Create a folder with a model, rows and a reward function."""
        read_output([self.options.python, "-B", "-c", MAKE, str(self.folder / name), json.dumps(size)])

    def start(self, run: str, model: str, *options: str, exact: bool = True, **more: Any) -> subprocess.Popen[str]:
        """Start a run under torchrun. With `options`, resume an existing run."""
        folder, source = self.folder / run, self.folder / model
        if not options:
            folder.mkdir()
            settings = {
                "model": str(source), "data": f"{source}/rows.jsonl", "rewards": [f"{source}/reward.py:lucky"],
                "chat": "text", "max_steps": 3, "prompts_per_step": 4, "num_generations": 4, "learning_rate": 1e-3,
                "max_completion_length": 16, "eval_steps": 2, "num_generations_eval": 1,
                "per_device_eval_batch_size": 1, "save_steps": 2,
                "held_out_rows": 3, "use_cpu": self.options.cpu, **more,
            }  # fmt: skip
            (folder / "run.json").write_text(json.dumps({"schema": 1, "recipe": "benchmark", "settings": settings}))
        variables = {"HF_HUB_OFFLINE": "1"} | ({"EXACT": "1"} if exact else {})
        variables |= {"FSDP_ON_CPU": "1", "CUDA_VISIBLE_DEVICES": ""} if self.options.cpu else {}
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={self.options.processes}"]
        with (self.folder / f"{run}.log").open("w") as log:  # an unread pipe would fill up
            return subprocess.Popen(
                [self.options.python, "-B", *torchrun, str(self.program), str(folder), *options],
                stdout=log, stderr=subprocess.STDOUT, text=True, env=os.environ | variables,
            )  # fmt: skip

    def wait_for(self, run: str, process: subprocess.Popen[str]) -> None:
        """Wait for the end of a run; RuntimeError if it failed."""
        if process.wait(timeout=170):
            raise RuntimeError(f"{run}: " + (self.folder / f"{run}.log").read_text()[-6000:])

    def compare(self, first: str, second: str, file: str) -> tuple[float, float]:
        """The largest difference between the weights of two runs, and of the first to its initial weights.

        Also loads the model of the first run.
        """
        if not list(self.folder.glob(f"{first}/checkpoints/checkpoint-2/pytorch_model_fsdp_0/*.distcp")):
            raise RuntimeError(f"{first}: its checkpoint is not sharded, so FSDP was not used")
        files = [str(self.folder / run / "model" / file) for run in (first, second)]
        loaded = str(self.folder / first / "model") if file.startswith("model") else ""
        start = str(self.folder / "small" / "model.safetensors")
        difference, change = json.loads(
            read_output([self.options.python, "-B", "-c", COMPARE, *files, start, loaded])
        )
        return difference, change

    def copy_without_later_steps(self, run: str, copy: str) -> None:
        """Copy a run without the files written after step 2, as after a kill."""
        folder = self.folder / copy
        shutil.copytree(self.folder / run, folder)
        for path in [*folder.glob("checkpoints/checkpoint-[!2]*"), folder / "model"]:
            shutil.rmtree(path)
        (folder / "result.json").unlink()


def read_output(argv: list[str]) -> str:
    """The output of a process; RuntimeError if it failed."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError((done.stdout + done.stderr)[-3000:])
    return done.stdout.strip()


def report(name: str, result: tuple[float, float]) -> bool:
    """Print the result of a comparison. Returns whether the weights changed and are equal."""
    difference, change = result
    passed = difference <= MAX_DIFFERENCE and change >= 10 * MAX_DIFFERENCE
    outcome = "ok" if passed else "FAILED"
    print(f"{name:52} weights changed by {change:.1e}, difference {difference:.1e} {outcome}", flush=True)
    return passed


def run_tiny(bench: Bench) -> bool:
    """Whether FSDP and DDP give equal weights for a tiny model, also after resuming from a checkpoint."""
    bench.make_model("small", TINY)
    started = {}
    for name, more in CASES.items():
        for fsdp in ("", "full_shard"):
            run = f"{name}, {'FSDP' if fsdp else 'DDP'}"
            started[run] = bench.start(run, "small", fsdp=fsdp, **more)
            if bench.options.cpu:  # sequentially, for a machine with few cores
                bench.wait_for(run, started.pop(run))
    for run, process in started.items():
        bench.wait_for(run, process)
    passed = True
    for name, more in CASES.items():
        file = "adapter_model.safetensors" if "r" in more else "model.safetensors"
        passed &= report(f"{name}: FSDP and DDP", bench.compare(f"{name}, fsdp", f"{name}, none", file))
        bench.copy_without_later_steps(f"{name}, fsdp", f"{name}, resumed")
        bench.wait_for(f"{name}, resumed", bench.start(f"{name}, resumed", "small", "--resume", "latest"))
        passed &= report(
            f"{name}: resumed and uninterrupted", bench.compare(f"{name}, resumed", f"{name}, fsdp", file)
        )
    return passed


def run_big(bench: Bench, fsdp: str, **more: Any) -> None:
    """Print the seconds per step and the memory peak of each process."""
    run = f"387 M, {'FSDP' if fsdp else 'DDP'}{', adapter' if more else ''}"
    settings = {
        "max_steps": 6, "prompts_per_step": 8, "num_generations": 8, "learning_rate": 1e-6,
        "max_completion_length": 128,
        "eval_steps": 0, "per_device_eval_batch_size": 64, "save_steps": 0, "optim": "adamw_torch_fused",
    }  # fmt: skip
    bench.wait_for(run, bench.start(run, "big", exact=False, fsdp=fsdp, **settings | more))
    folder = bench.folder / run
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    steps = [event for event in events if event["event"] == "step"]
    seconds = [after["t"] - before["t"] for before, after in itertools.pairwise(steps)][SKIPPED_STEPS - 1 :]
    peaks = {path.name: path.read_text().split() for path in sorted(folder.glob("peaks-*"))}
    shown = [f"{max(map(float, gib[SKIPPED_STEPS:])):.1f}" for gib in peaks.values()]
    result = json.loads((folder / "result.json").read_text())
    planned = (result["memory"] or {}).get("planned", 0) / 2**30
    shares = {name: f"{share:.0%}" for name, share in result["shares"].items()}
    print(
        f"{run:44} {statistics.median(seconds):.2f} s per step (minimum {min(seconds):.2f}), peak GiB "
        f"{', '.join(shown)} (planned {planned:.1f}), loss of step 1 {steps[0]['metrics']['loss']:.4f}, {shares}",
        flush=True,
    )


def main() -> int:
    """Run all cases. Returns 1 if a run failed or weights differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=[], choices=["tiny", "big"])
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args()
    passed = True
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, Path(folder))
        try:
            if "tiny" in (options.only or ["tiny"]):
                passed = run_tiny(bench)
            if "big" in (options.only or ["big"]) and not options.cpu:
                bench.make_model("big", BIG)
                for more in ({}, LORA):
                    for fsdp in ("", "full_shard"):
                        run_big(bench, fsdp, **more)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(f"FAILED: {error}", flush=True)
            return 1
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
