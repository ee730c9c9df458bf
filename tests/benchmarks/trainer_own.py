"""What the bundled trainer adds to a step of TRL, in milliseconds: the time that passes in its own code.

    python tests/benchmarks/trainer_own.py PYTHON_OF_THE_STACK [--steps N] [--answers N] [--completion N] [--words N]

The difference of two runs' steps drowns in a machine's noise where a step takes seconds, so here the code between TRL
and the run's files is timed itself: the reward function that TRL calls (the user's own one included), what happens at
the beginning, at the end and at the log of a step, and the stopwatch around TRL's parts. The model is tiny; answers
and their lengths are those of trainer_gpu.py, since it is them that this work grows with. Medians of the steps but
the first two; on a CPU the stopwatch waits for no GPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path

from trainer_gpu import FIRST, MAKE, TRAIN
from trainer_gpu import run as read_output

OWN = ("reward", "on_step_begin", "on_step_end", "on_log")
PROGRAM = """
import functools, json, sys, time
sys.path.insert(0, TRAIN)
import grpo
prepared, spent, inner = grpo.prepare_process, {}, [0.0]
def timed(owner, name):
    method = getattr(owner, name)
    @functools.wraps(method)
    def measured(*arguments, **named):
        began = time.perf_counter()
        try:
            return method(*arguments, **named)
        finally:
            spent[name] = spent.get(name, 0.0) + time.perf_counter() - began
    setattr(owner, name, measured)
def around(make):
    # The stopwatch's own share: all of a timed call but the call itself.
    @functools.wraps(make)
    def made(self, method, *rest):
        def counted(*arguments, **named):
            began = time.perf_counter()
            try:
                return method(*arguments, **named)
            finally:
                inner[0] += time.perf_counter() - began
        watched = make(self, counted, *rest)
        def whole(*arguments, **named):
            began, before = time.perf_counter(), inner[0]
            try:
                return watched(*arguments, **named)
            finally:
                own = time.perf_counter() - began - (inner[0] - before)
                spent["stopwatch"] = spent.get("stopwatch", 0.0) + own
        return whole
    return made
def prepare(*arguments):
    prepared(*arguments)
    from run import recorder, timer
    for name in OWN:
        timed(recorder.Recorder, name)
    stopwatch.StepTimer._timed = around(stopwatch.StepTimer._timed)
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
    """One run; milliseconds by where they pass."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--answers", type=int, default=64)
    parser.add_argument("--completion", type=int, default=512)
    parser.add_argument("--words", type=int, default=1000, help="of the vocabulary")
    asked = parser.parse_args()
    size = {"words": asked.words, "width": 32, "inner": 64, "layers": 1, "heads": 2, "prompt": 256}
    with tempfile.TemporaryDirectory() as folder:
        model, out = Path(folder, "model"), Path(folder, "run")
        read_output([asked.python, "-B", "-c", MAKE, str(model), json.dumps(size)])
        settings = {
            "model": str(model), "data": f"{model}/rows.jsonl", "rewards": [f"{model}/reward.py:lucky"],
            "chat": "text", "steps": asked.steps, "prompts_per_step": asked.answers // 8, "num_generations": 8,
            "max_completion_length": asked.completion, "eval_every": 0, "eval_samples": 1, "held_out_rows": 2,
            "save_every": 0,
        }  # fmt: skip
        out.mkdir()
        (out / "run.json").write_text(json.dumps({"schema": 1, "recipe": "benchmark", "settings": settings}))
        head = f"TRAIN, OWN = {str(TRAIN)!r}, {OWN!r}\n"
        said = read_output([asked.python, "-B", "-c", head + PROGRAM, str(out)])
        metrics = [json.loads(line)["metrics"] for line in (out / "events.jsonl").open() if '"step", "step"' in line]
    rows = [json.loads(line[4:]) for line in said.splitlines() if line.startswith("OWN ")][FIRST:]
    parts = {name: 1000 * statistics.median(row.get(name, 0.0) for row in rows) for name in (*OWN, "stopwatch")}
    seconds = statistics.median(row["seconds"] for row in metrics[FIRST:])
    tokens = statistics.median(row["tokens"] for row in metrics[FIRST:])
    shown = ", ".join(f"{name} {value:.2f}" for name, value in parts.items())
    whole = sum(parts.values())
    print(f"{asked.answers} answers, {tokens:,.0f} tokens, {seconds:.2f} s a step; own code {whole:.1f} ms")
    print(f"in ms: {shown}")


if __name__ == "__main__":
    main()
