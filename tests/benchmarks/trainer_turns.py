"""The bundled trainer against a bare TRL script, step by step in turns: what ours costs where the machine is noisy.

    python tests/benchmarks/trainer_turns.py PYTHON_OF_THE_STACK [--steps N] [--tokens N] [--small]

Two runs apart drown 2 % in what the machine does meanwhile. Here both are loaded on one GPU, and each step of the one
is followed by the same step of the other, which waits: a step lasts from one `on_step_begin` to the next, with all
that either does in between (the last is left out, since a run's end is in it). The work is trainer_gpu.py's, with
completions of 128 tokens, so that both fit; the first two steps do not count. Printed: seconds of both, and the
median of the steps' ratios with its 95 % interval (from the binomial distribution, with no assumption about the
noise). --small uses a tiny model, for a CPU.
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

from trainer_gpu import BARE, FIRST, MAKE, SIZE, SMALL, TRAIN, run, write_run

# Steps begin in turns. The second to begin lets the first one's whole first step pass.
GATE = """
import contextlib, json, os, socket, sys, time

def take_turns():
    from transformers import Trainer, TrainerCallback

    other, second = socket.socket(fileno=int(os.environ["TURNS_SOCKET"])), os.environ["TURNS_SECOND"] == "1"

    class Gate(TrainerCallback):
        began = None

        def __init__(self):
            self.seconds = []

        def on_step_begin(self, *_, **__):
            if self.began is not None:
                self.seconds.append(time.perf_counter() - self.began)
                with open(os.environ["TURNS_OUT"], "w") as file:
                    json.dump(self.seconds, file)
            self.pass_on()
            other.recv(1)
            if second and not self.seconds and self.began is None:
                other.recv(1)
            self.began = time.perf_counter()

        def pass_on(self):
            with contextlib.suppress(OSError):  # the other one is done
                other.sendall(b".")

        def on_train_end(self, *_, **__):
            self.pass_on()

    begin = Trainer.__init__

    def begin_with_gate(self, *arguments, **named):
        begin(self, *arguments, **named)
        self.add_callback(Gate())

    Trainer.__init__ = begin_with_gate
"""
OURS = """
sys.path.insert(0, TRAIN)
import grpo
prepare = grpo.prepare_process

def prepare_and_gate(*arguments):
    prepare(*arguments)
    take_turns()

grpo.prepare_process = prepare_and_gate
sys.exit(grpo.main())
"""


def both(python: str, folder: Path, model: str, size: dict[str, int], limit: float) -> list[tuple[float, float]]:
    """Seconds of each step of the bare script and of the trainer, in turns, until the time limit."""
    write_run(folder / "run", model, size, {})
    programs = {
        "bare": (GATE + "take_turns()\n" + BARE, [model, json.dumps(size), "{}", str(folder / "out")]),
        "ours": (f"{GATE}TRAIN = {str(TRAIN)!r}\n{OURS}", [str(folder / "run")]),
    }
    ends = dict(zip(programs, socket.socketpair(), strict=True))
    started = {}
    for name, (program, arguments) in programs.items():
        (folder / f"{name}.py").write_text(program)
        turns = {
            "TURNS_SOCKET": str(ends[name].fileno()), "TURNS_SECOND": str(int(name == "ours")),
            "TURNS_OUT": str(folder / f"{name}.json"),
            "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0"),  # TRL refuses several in one process
        }  # fmt: skip
        with (folder / f"{name}.log").open("w") as log:
            started[name] = subprocess.Popen(
                [python, "-B", str(folder / f"{name}.py"), *arguments],
                stdout=log, stderr=subprocess.STDOUT, pass_fds=[ends[name].fileno()], env=os.environ | turns,
            )  # fmt: skip
    for end in ends.values():
        end.close()  # so that the one learns of the other's end
    ends_at = time.monotonic() + limit
    try:
        for name, process in started.items():
            with contextlib.suppress(subprocess.TimeoutExpired):
                if process.wait(max(0.0, ends_at - time.monotonic())):
                    raise RuntimeError((folder / f"{name}.log").read_text()[-3000:])
    finally:
        for process in started.values():
            process.kill()
            process.wait()
    bare, ours = (json.loads((folder / f"{name}.json").read_text())[FIRST:] for name in programs)
    return list(zip(bare, ours, strict=False))  # cut off, the one may be a step ahead


def interval(numbers: Sequence[float]) -> tuple[float, float]:
    """Two of the numbers, between which the median of what they are drawn from lies in 95 % of all cases."""
    count = len(numbers)
    outside = 0.0
    for place, number in enumerate(sorted(numbers)):
        outside += 2 * comb(count, place) / 2**count
        if outside > 0.05:
            return number, sorted(numbers)[count - 1 - place]
    raise AssertionError("unreachable: the sum reaches 2")


def main() -> None:
    """Both, in turns."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python")
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=3600, help="end then, with what was measured")
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    size = (SMALL if options.small else SIZE | {"completion": options.tokens}) | {"steps": options.steps}
    with tempfile.TemporaryDirectory() as folder:
        model = str(Path(folder, "model"))
        run([options.python, "-B", "-c", MAKE, model, json.dumps(size)])
        steps = both(options.python, Path(folder), model, size, options.seconds)
    bare, ours = ([step[which] for step in steps] for which in (0, 1))
    ratios = [ours_took / bare_took for bare_took, ours_took in steps]
    low, high = interval(ratios)
    print(f"{len(ratios)} steps each: bare TRL {statistics.median(bare):.3f} s, ours {statistics.median(ours):.3f} s")
    print(f"ours / bare of the same step: median {statistics.median(ratios):.4f} (95 %: {low:.4f} to {high:.4f})")
    print(f"sums: {sum(ours) / sum(bare):.4f}")


if __name__ == "__main__":
    main()
