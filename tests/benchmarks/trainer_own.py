"""The time that the code of the bundled trainer adds to a step of TRL, in milliseconds.

    python tests/benchmarks/trainer_own.py PYTHON_OF_THE_STACK [--steps N] [--batch N] [--completion N] [--words N]

If a step takes seconds, noise hides the difference between two runs. This script therefore measures the functions of
the trainer directly: the reward function (including the user's), the callbacks at the beginning, end and log of a
step, and the step timer. The model is tiny; number and length of the completions are those of trainer_gpu.py. The
results are medians without the first two steps. On a CPU, the timer does not synchronize with a GPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path

from trainer_gpu import MAKE, SKIPPED_STEPS, TRAIN
from trainer_gpu import run as read_output

OWN = ("reward", "on_step_begin", "on_step_end", "on_log")
PROGRAM = """
import functools, json, sys, time
sys.path.insert(0, TRAIN)
import grpo
prepare_process, spent, inner = grpo.prepare_process, {}, [0.0]
def measure(owner, name):
    method = getattr(owner, name)
    @functools.wraps(method)
    def measured(*arguments, **named):
        start = time.perf_counter()
        try:
            return method(*arguments, **named)
        finally:
            spent[name] = spent.get(name, 0.0) + time.perf_counter() - start
    setattr(owner, name, measured)
def measure_overhead(wrap):
    # The overhead of the timer: the time of a timed call without the call itself.
    @functools.wraps(wrap)
    def wrapped(self, method, *rest):
        def counted(*arguments, **named):
            start = time.perf_counter()
            try:
                return method(*arguments, **named)
            finally:
                inner[0] += time.perf_counter() - start
        timed = wrap(self, counted, *rest)
        def total(*arguments, **named):
            start, before = time.perf_counter(), inner[0]
            try:
                return timed(*arguments, **named)
            finally:
                own = time.perf_counter() - start - (inner[0] - before)
                spent["timer"] = spent.get("timer", 0.0) + own
        return total
    return wrapped
def prepare(*arguments):
    prepare_process(*arguments)
    from run import recorder, timers
    for name in OWN:
        measure(recorder.Recorder, name)
    timers.StepTimer._timed = measure_overhead(timers.StepTimer._timed)
    logged = recorder.Recorder.on_log
    def on_log(self, *arguments, **named):
        logged(self, *arguments, **named)
        print("OWN " + json.dumps(spent), flush=True)
        spent.clear()
    recorder.Recorder.on_log = on_log
grpo.prepare_process = prepare
sys.argv = ["grpo.py", sys.argv[1]]
sys.exit(grpo.main())
"""


def main() -> None:
    """Run the trainer once, and print the milliseconds of each part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--completion", type=int, default=512)
    parser.add_argument("--words", type=int, default=1000, help="size of the vocabulary")
    options = parser.parse_args()
    size = {"words": options.words, "width": 32, "inner": 64, "layers": 1, "heads": 2, "prompt": 256}
    with tempfile.TemporaryDirectory() as folder:
        model, out = Path(folder, "model"), Path(folder, "run")
        read_output([options.python, "-B", "-c", MAKE, str(model), json.dumps(size)])
        settings = {
            "model": str(model), "data": f"{model}/rows.jsonl", "rewards": [f"{model}/reward.py:lucky"],
            "chat": "text", "max_steps": options.steps, "prompts_per_step": options.batch // 8, "num_generations": 8,
            "max_completion_length": options.completion, "eval_steps": 0, "num_generations_eval": 1,
            "held_out_rows": 2,
            "save_steps": 0,
        }  # fmt: skip
        out.mkdir()
        (out / "run.json").write_text(json.dumps({"schema": 1, "recipe": "benchmark", "settings": settings}))
        head = f"TRAIN, OWN = {str(TRAIN)!r}, {OWN!r}\n"
        output = read_output([options.python, "-B", "-c", head + PROGRAM, str(out)])
        metrics = [json.loads(line)["metrics"] for line in (out / "events.jsonl").open() if '"step", "step"' in line]
    rows = [json.loads(line[4:]) for line in output.splitlines() if line.startswith("OWN ")][SKIPPED_STEPS:]
    parts = {name: 1000 * statistics.median(row.get(name, 0.0) for row in rows) for name in (*OWN, "timer")}
    seconds = statistics.median(row["seconds"] for row in metrics[SKIPPED_STEPS:])
    tokens = statistics.median(row["tokens"] for row in metrics[SKIPPED_STEPS:])
    shown = ", ".join(f"{name} {value:.2f}" for name, value in parts.items())
    total = sum(parts.values())
    print(f"{options.batch} completions, {tokens:,.0f} tokens, {seconds:.2f} s per step; trainer code {total:.1f} ms")
    print(f"in ms: {shown}")


if __name__ == "__main__":
    main()
