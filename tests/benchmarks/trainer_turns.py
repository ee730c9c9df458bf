"""Overhead of the bundled trainer over a plain TRL script on a noisy machine, measured in alternating steps.

    python tests/benchmarks/trainer_turns.py PYTHON_OF_THE_STACK [--steps N] [--tokens N] [--small]

In separate runs, other load on the machine hides a difference of 2 %. Here both programs are loaded on one GPU and
execute their steps alternately: while one executes a step, the other waits. A step lasts from one `on_step_begin` to
the next, with everything in between. The last step is not counted, because it includes the end of the run; the first
two steps do not count either. The settings are those of trainer_gpu.py, with completions of 128 tokens, so that both
fit into memory. The script prints the seconds of both and the median ratio of the steps with its 95 % confidence
interval (from the binomial distribution, without an assumption about the noise). --small uses a tiny model on a CPU.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from math import comb
from pathlib import Path

from trainer_gpu import MAKE, SIZE, SKIPPED_STEPS, SMALL, TRAIN, TRL_SCRIPT, run, write_run

# The programs alternate at the beginning of a step. The second one first waits for a full step of the first one.
GATE = """
import contextlib, json, os, socket, sys, time

def take_turns():
    from transformers import Trainer, TrainerCallback

    other, second = socket.socket(fileno=int(os.environ["TURNS_SOCKET"])), os.environ["TURNS_SECOND"] == "1"

    class Gate(TrainerCallback):
        step_start = None

        def __init__(self):
            self.seconds = []

        def on_step_begin(self, *_, **__):
            if self.step_start is not None:
                self.seconds.append(time.perf_counter() - self.step_start)
                with open(os.environ["TURNS_OUT"], "w") as file:
                    json.dump(self.seconds, file)
            self.release_other()
            other.recv(1)
            if second and not self.seconds and self.step_start is None:
                other.recv(1)
            self.step_start = time.perf_counter()

        def release_other(self):
            with contextlib.suppress(OSError):  # the other program has ended
                other.sendall(b".")

        def on_train_end(self, *_, **__):
            self.release_other()

    original_init = Trainer.__init__

    def init_with_gate(self, *arguments, **named):
        original_init(self, *arguments, **named)
        self.add_callback(Gate())

    Trainer.__init__ = init_with_gate
"""
ENVDOCTOR_PROGRAM = """
sys.path.insert(0, TRAIN)
import grpo
prepare = grpo.prepare_process

def prepare_and_gate(*arguments):
    prepare(*arguments)
    take_turns()

grpo.prepare_process = prepare_and_gate
sys.exit(grpo.main())
"""


def measure_steps(
    python: str, folder: Path, model: str, size: dict[str, int], limit: float
) -> list[tuple[float, float]]:
    """Seconds of each step of the TRL script and of the bundled trainer, until the time limit."""
    write_run(folder / "run", model, size, {})
    programs = {
        "trl": (GATE + "take_turns()\n" + TRL_SCRIPT, [model, json.dumps(size), "{}", str(folder / "out")]),
        "envdoctor": (f"{GATE}TRAIN = {str(TRAIN)!r}\n{ENVDOCTOR_PROGRAM}", [str(folder / "run")]),
    }
    sockets = dict(zip(programs, socket.socketpair(), strict=True))
    started = {}
    for name, (program, arguments) in programs.items():
        (folder / f"{name}.py").write_text(program)
        turns = {
            "TURNS_SOCKET": str(sockets[name].fileno()), "TURNS_SECOND": str(int(name == "envdoctor")),
            "TURNS_OUT": str(folder / f"{name}.json"),
            "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0"),  # TRL rejects several GPUs
        }  # fmt: skip
        with (folder / f"{name}.log").open("w") as log:
            started[name] = subprocess.Popen(
                [python, "-B", str(folder / f"{name}.py"), *arguments],
                stdout=log, stderr=subprocess.STDOUT, pass_fds=[sockets[name].fileno()], env=os.environ | turns,
            )  # fmt: skip
    for one_end in sockets.values():
        one_end.close()  # so that each program notices the end of the other
    deadline = time.monotonic() + limit
    try:
        for name, process in started.items():
            with contextlib.suppress(subprocess.TimeoutExpired):
                if process.wait(max(0.0, deadline - time.monotonic())):
                    raise RuntimeError((folder / f"{name}.log").read_text()[-3000:])
    finally:
        for process in started.values():
            process.kill()
            process.wait()
    trl, envdoctor = (json.loads((folder / f"{name}.json").read_text())[SKIPPED_STEPS:] for name in programs)
    return list(zip(trl, envdoctor, strict=False))  # after the time limit, one may have an additional step


def interval(numbers: Sequence[float]) -> tuple[float, float]:
    """The 95 % confidence interval of the median of the distribution of these samples."""
    count = len(numbers)
    outside = 0.0
    for index, number in enumerate(sorted(numbers)):
        outside += 2 * comb(count, index) / 2**count
        if outside > 0.05:
            return number, sorted(numbers)[count - 1 - index]
    raise AssertionError("unreachable: the sum reaches 2")


def main() -> None:
    """Measure both programs and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python")
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=3600, help="time limit; the steps measured until then count")
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    size = (SMALL if options.small else SIZE | {"completion": options.tokens}) | {"max_steps": options.steps}
    with tempfile.TemporaryDirectory() as folder:
        model = str(Path(folder, "model"))
        run([options.python, "-B", "-c", MAKE, model, json.dumps(size)])
        steps = measure_steps(options.python, Path(folder), model, size, options.seconds)
    trl, envdoctor = zip(*steps, strict=True)
    ratios = [envdoctor_seconds / trl_seconds for trl_seconds, envdoctor_seconds in steps]
    low, high = interval(ratios)
    medians = f"TRL {statistics.median(trl):.3f} s, envdoctor {statistics.median(envdoctor):.3f} s"
    print(f"{len(ratios)} steps each: {medians}")
    print(f"envdoctor / TRL of the same step: median {statistics.median(ratios):.4f} (95 %: {low:.4f} to {high:.4f})")
    print(f"sums: {sum(envdoctor) / sum(trl):.4f}")


if __name__ == "__main__":
    main()
