"""FSDP against DDP on two GPUs, by torchrun and the trainer's own program: the same weights, and what each takes.

    python tests/benchmarks/sharding_gpu.py PYTHON_OF_THE_STACK [--processes 2] [--only PART ...] [--cpu]

First a tiny Qwen2 in float32 (the trainer's autocast switched off: two ways of rounding would soon sample two
different answers): weights after three steps, the same after resuming from step 2, the saved model loaded again;
whole, with a reference and checkpointed activations, and with an adapter. Then a Qwen2 of 387 M random parameters as
it is trained, 8 prompts of 256 tokens with 8 answers of 128 tokens a step: seconds a step and each process's peak of
memory over the steps but the first two. --cpu takes the tiny cases alone, with accelerate made to divide there
(fsdp_on_cpu.py), to try the script.
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
FIRST = 2
APART = 1e-4  # at a learning rate of 1e-3
TINY = {"words": 200, "width": 64, "inner": 128, "layers": 2, "heads": 4, "prompt": 8}
BIG = {"words": 32000, "width": 896, "inner": 4864, "layers": 24, "heads": 14, "prompt": 256}
LORA = {"lora_rank": 4, "lora_targets": ["all-linear"]}
CASES: dict[str, dict[str, Any]] = {
    "tiny": {},
    "tiny, beta, checkpointed": {"beta": 0.1, "num_iterations": 2, "micro_batch": 4, "gradient_checkpointing": True},
    "tiny, LoRA, checkpointed": {**LORA, "gradient_checkpointing": True},
}
# The trainer, which also writes the memory peak of each rank; EXACT disables autocast.
PROGRAM = """
import os, sys
from pathlib import Path
sys.path[:0] = [TRAIN, TESTS + "/train"]
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
prepared = grpo.prepare_process
def prepare(*arguments):
    prepared(*arguments)
    keep_peaks(sys.argv[1])
    if os.environ.get("EXACT"):
        compute_in_float32()
grpo.prepare_process = prepare
if os.environ.get("DIVIDE_ON_CPU"):
    import fsdp_on_cpu
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
apart = max((first[name].float() - second[name].float()).abs().max().item() for name in first)
moved = max((first[name].float() - start[name].float() if name in start else first[name].float()).abs().max().item()
            for name in first if "lora_A" not in name)  # lora_B begins at zero
print(json.dumps([apart, moved]))
"""


class Bench:
    """Where runs lie, and how they are started."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.folder = options, folder
        self.program = folder / "program.py"
        self.program.write_text(f"TRAIN, TESTS = {str(TRAIN)!r}, {str(TESTS)!r}\n{PROGRAM}")

    def make_model(self, name: str, size: dict[str, int]) -> None:
        """A folder with a model, rows and a reward."""
        read_output([self.options.python, "-B", "-c", MAKE, str(self.folder / name), json.dumps(size)])

    def start(self, run: str, model: str, *options: str, exact: bool = True, **more: Any) -> subprocess.Popen[str]:
        """One run under torchrun; `options` resume an existing one."""
        folder, source = self.folder / run, self.folder / model
        if not options:
            folder.mkdir()
            settings = {
                "model": str(source), "data": f"{source}/rows.jsonl", "rewards": [f"{source}/reward.py:lucky"],
                "chat": "text", "steps": 3, "prompts_per_step": 4, "num_generations": 4, "learning_rate": 1e-3,
                "max_completion_length": 16, "eval_every": 2, "eval_samples": 1, "eval_batch": 1, "save_every": 2,
                "held_out_rows": 3, "device": "cpu" if self.options.cpu else "cuda", **more,
            }  # fmt: skip
            (folder / "run.json").write_text(json.dumps({"schema": 1, "recipe": "benchmark", "settings": settings}))
        variables = {"HF_HUB_OFFLINE": "1"} | ({"EXACT": "1"} if exact else {})
        variables |= {"DIVIDE_ON_CPU": "1", "CUDA_VISIBLE_DEVICES": ""} if self.options.cpu else {}
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={self.options.processes}"]
        with (self.folder / f"{run}.log").open("w") as log:  # an unread pipe would fill up
            return subprocess.Popen(
                [self.options.python, "-B", *torchrun, str(self.program), str(folder), *options],
                stdout=log, stderr=subprocess.STDOUT, text=True, env=os.environ | variables,
            )  # fmt: skip

    def wait_for(self, run: str, process: subprocess.Popen[str]) -> None:
        """Until a run is done."""
        if process.wait(timeout=170):
            raise RuntimeError(f"{run}: " + (self.folder / f"{run}.log").read_text()[-6000:])

    def compare(self, first: str, second: str, file: str) -> tuple[float, float]:
        """The largest difference of two runs' weights, and of the first to its start; the first is loaded, too."""
        if not list(self.folder.glob(f"{first}/checkpoints/checkpoint-2/pytorch_model_fsdp_0/*.distcp")):
            raise RuntimeError(f"{first}: its checkpoint is not in parts, so the model was not divided")
        files = [str(self.folder / run / "model" / file) for run in (first, second)]
        loaded = str(self.folder / first / "model") if file.startswith("model") else ""
        start = str(self.folder / "small" / "model.safetensors")
        apart, moved = json.loads(read_output([self.options.python, "-B", "-c", COMPARE, *files, start, loaded]))
        return apart, moved

    def forget_after_step_2(self, run: str, copy: str) -> None:
        """A copy of the run as a kill after step 2 would have left it."""
        folder = self.folder / copy
        shutil.copytree(self.folder / run, folder)
        for path in [*folder.glob("checkpoints/checkpoint-[!2]*"), folder / "model"]:
            shutil.rmtree(path)
        (folder / "result.json").unlink()


def read_output(argv: list[str]) -> str:
    """The output of a process; RuntimeError where it failed."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError((done.stdout + done.stderr)[-3000:])
    return done.stdout.strip()


def tell(name: str, found: tuple[float, float]) -> bool:
    """One case on a line."""
    apart, moved = found
    good = apart <= APART and moved >= 10 * APART
    print(f"{name:52} weights moved {moved:.1e}, apart {apart:.1e} {'ok' if good else 'FAILED'}", flush=True)
    return good


def run_tiny(bench: Bench) -> bool:
    """Whether a divided tiny model learns what a whole one does, from a checkpoint, too."""
    bench.make_model("small", TINY)
    started = {}
    for name, more in CASES.items():
        for sharding in ("none", "fsdp"):
            run = f"{name}, {sharding}"
            started[run] = bench.start(run, "small", sharding=sharding, **more)
            if bench.options.cpu:  # one at a time, for a machine of few cores
                bench.wait_for(run, started.pop(run))
    for run, process in started.items():
        bench.wait_for(run, process)
    good = True
    for name, more in CASES.items():
        file = "adapter_model.safetensors" if "lora_rank" in more else "model.safetensors"
        good &= tell(f"{name}: FSDP and DDP", bench.compare(f"{name}, fsdp", f"{name}, none", file))
        bench.forget_after_step_2(f"{name}, fsdp", f"{name}, again")
        bench.wait_for(f"{name}, again", bench.start(f"{name}, again", "small", "--resume", "latest"))
        good &= tell(f"{name}: from step 2, and at once", bench.compare(f"{name}, again", f"{name}, fsdp", file))
    return good


def run_big(bench: Bench, sharding: str, **more: Any) -> None:
    """Seconds a step and peaks of memory."""
    run = f"387 M, {'FSDP' if sharding == 'fsdp' else 'DDP'}{', adapter' if more else ''}"
    settings = {
        "steps": 6, "prompts_per_step": 8, "num_generations": 8, "learning_rate": 1e-6, "max_completion_length": 128,
        "eval_every": 0, "eval_batch": 64, "save_every": 0, "optimizer": "adamw_torch_fused",
    }  # fmt: skip
    bench.wait_for(run, bench.start(run, "big", exact=False, sharding=sharding, **settings | more))
    folder = bench.folder / run
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    steps = [event for event in events if event["event"] == "step"]
    seconds = [after["t"] - before["t"] for before, after in itertools.pairwise(steps)][FIRST - 1 :]
    peaks = {path.name: path.read_text().split() for path in sorted(folder.glob("peaks-*"))}
    shown = [f"{max(map(float, gib[FIRST:])):.1f}" for gib in peaks.values()]
    result = json.loads((folder / "result.json").read_text())
    planned = (result["memory"] or {}).get("planned", 0) / 2**30
    shares = {name: f"{share:.0%}" for name, share in result["shares"].items()}
    print(
        f"{run:44} {statistics.median(seconds):.2f} s a step (least {min(seconds):.2f}), peak GiB of each "
        f"{', '.join(shown)} (planned {planned:.1f}), loss at 1 {steps[0]['metrics']['loss']:.4f}, {shares}",
        flush=True,
    )


def main() -> int:
    """Every case in turn, a line each; 1 when weights are apart."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=[], choices=["tiny", "big"])
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, Path(folder))
        try:
            if "tiny" in (options.only or ["tiny"]):
                good = run_tiny(bench)
            if "big" in (options.only or ["big"]) and not options.cpu:
                bench.make_model("big", BIG)
                for more in ({}, LORA):
                    for sharding in ("none", "fsdp"):
                        run_big(bench, sharding, **more)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(f"FAILED: {error}", flush=True)
            return 1
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
