"""The memory plan of SFT and DPO against the measured peak on a GPU, with two settings each.

    python tests/benchmarks/examples_memory_gpu.py PYTHON_OF_THE_STACK [--small] [--parallel N] [--out FILE]

The Qwen2 of trainer_gpu.py (387 M random parameters) trains four steps on examples of a prompt of 256 tokens and
completions of 512, with full fine-tuning or LoRA, without and with gradient checkpointing. "planned" is the peak of
the plan that the trainer makes before the first step, "measured" the peak of torch's allocated memory.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from trainer_gpu import LORA, MAKE, SIZE, SMALL, TRAIN, run

CASES: dict[str, dict[str, Any]] = {
    "SFT, full, micro-batch of 16": {"trainer": "sft", "per_device_train_batch_size": 16},
    "SFT, LoRA, checkpointing, micro-batch of 32": {
        "trainer": "sft", "per_device_train_batch_size": 32, "gradient_checkpointing": True, **LORA,
    },
    "DPO, full, micro-batch of 8": {"trainer": "dpo", "per_device_train_batch_size": 8},
    "DPO, LoRA, checkpointing, micro-batch of 16": {
        "trainer": "dpo", "per_device_train_batch_size": 16, "gradient_checkpointing": True, **LORA,
    },
}  # fmt: skip


def write_examples(folder: Path, size: dict[str, Any]) -> None:
    """Examples of both trainers, of random words."""
    words = random.Random(0)

    def text(count: int) -> str:
        return " ".join(f"w{words.randrange(size['words'] - 3)}" for _ in range(count))

    for trainer, names in (("sft", ["completion"]), ("dpo", ["chosen", "rejected"])):
        rows = [{"prompt": text(size["prompt"]), **{n: text(size["completion"]) for n in names}} for _ in range(160)]
        (folder / f"{trainer}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def measure(python: str, folder: Path, name: str, size: dict[str, Any], seconds: float) -> dict[str, Any]:
    """The planned and the measured peak of one case, in GiB."""
    case, out = CASES[name], folder / name.replace(", ", "-").replace(" ", "-")
    settings = {
        "model": str(folder / "qwen2"), "data": str(folder / f"{case['trainer']}.jsonl"), "max_steps": 4,
        "held_out_rows": 2, "eval_steps": 0, "save_steps": 0, "optim": "adamw_torch_fused",
        "max_length": size["prompt"] + size["completion"], **case,
    }  # fmt: skip
    out.mkdir()
    (out / "run.json").write_text(json.dumps({"schema": 1, "recipe": "benchmark", "settings": settings}))
    try:
        run([python, "-B", str(TRAIN / "grpo.py"), str(out)], seconds, CUDA_VISIBLE_DEVICES="0")
    except RuntimeError as error:
        return {"error": str(error)[-1500:]}
    memory = json.loads((out / "result.json").read_text())["memory"] or {}
    return {kind: value / 2**30 if isinstance(value, int) else value for kind, value in memory.items()}


def main() -> None:
    """Run all cases, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python")
    parser.add_argument("--small", action="store_true", help="a tiny model and short texts, for a CPU")
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=300, help="time limit of each case")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    size = SMALL if options.small else SIZE
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run([options.python, "-B", "-c", MAKE, str(folder / "qwen2"), json.dumps(size)])
        write_examples(folder, size)
        with ThreadPoolExecutor(options.parallel) as pool:
            measured = pool.map(lambda case: measure(options.python, folder, case, size, options.seconds), CASES)
            for case, found in zip(CASES, measured, strict=True):
                print(f"{case:45} {json.dumps(found)}", flush=True)
                if options.out:
                    with options.out.open("a") as file:
                        file.write(json.dumps({"case": case} | found) + "\n")


if __name__ == "__main__":
    main()
