"""The bundled trainer and a plain TRL script on a GPU: seconds per step, parts of a step, memory peak, lower bound.

    python tests/benchmarks/trainer_gpu.py PYTHON_OF_THE_STACK [--only NAME ...] [--steps N] [--gpus N] [--small]
        [--micro-batch N] [--rounds N] [--seconds N] [--caches DIR] [--out FILE]

The model is a Qwen2 of 387 M random parameters (Qwen2.5-0.5B with a vocabulary of 32,000, tied embeddings). Each step
has 8 prompts of 256 tokens with 8 completions of 512 tokens, full fine-tuning and one optimizer step per generation.
"gpt-oss" has 0.1 B parameters and 8 experts. Every case runs in its own process; the first two steps do not count.
--gpus uses torchrun, with 8 prompts per GPU. "envdoctor, vLLM server" starts the server on the next GPU. "gap" is the
mean difference between the log-probability of a token in vLLM and in the model; a gap of 0.1 or more shows that vLLM
does not have the trained weights. --small uses a tiny model and short texts, to test the script on a CPU.

--micro-batch N splits the 64 completions of a GPU into passes of N, in both programs; bare TRL's pass of 64 needs
more than 80 GB. --rounds repeats all cases in turns. Each process starts with empty caches of compiled code; with
--caches DIR a case has those of its earlier rounds and of earlier calls with this directory. "first step" is the time
from the start of a process to the end of its first step, and "marks" are the seconds until the libraries are
imported, the trainer is constructed (with vLLM) and, for envdoctor, the untrained model is evaluated. --out appends
each result as a line of JSON. No case starts after --seconds, and none runs beyond it.

The lower bound, printed after all cases, uses the measured rates of this GPU (bfloat16 products of 8192 x 8192,
copies of 4 GiB). Sampling must read the weights and the KV cache for each token. Learning must compute the products
of one forward and one backward pass.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TRAIN = Path(__file__).resolve().parents[2] / "train"
SIZE = {"words": 32000, "width": 896, "inner": 4864, "layers": 24, "heads": 14, "prompt": 256, "completion": 512}
SMALL = {"words": 200, "width": 64, "inner": 128, "layers": 2, "heads": 4, "prompt": 16, "completion": 16}
SKIPPED_STEPS = 2
PARTS = ("generate", "score", "update", "sync")
VLLM = {"use_vllm": True, "vllm_mode": "colocate", "vllm_gpu_memory_utilization": 0.3}
OPTIMIZER = {"optim": "adamw_torch_fused"}  # transformers' default, which bare TRL uses
COLOCATE = {"use_vllm": True, "vllm_gpu_memory_utilization": 0.3} | OPTIMIZER
FUSED = COLOCATE | {"liger_kernels": "on"}
GRAPHS = {"cuda_graph_decoding": True} | OPTIMIZER
LORA = {"r": 4, "target_modules": ["all-linear"]}
EXPERTS = [f"{layer}.mlp.experts.{part}" for layer in (1, 6) for part in ("gate_up_proj", "down_proj")]
GPT_OSS = {  # settings of the recipe vllm-colocate, with experts of two layers
    "r": 4, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"], "target_parameters": EXPERTS,
    "max_completion_length": 128, "learning_rate": 1e-3,
}  # fmt: skip
# name: (program, settings of the trainer or arguments of GRPOConfig)
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "TRL, transformers": ("TRL", {}),
    "envdoctor, transformers": ("envdoctor", OPTIMIZER),
    "TRL, vLLM": ("TRL", VLLM),
    "envdoctor, vLLM": ("envdoctor", COLOCATE),
    "envdoctor, vLLM, fused": ("envdoctor", FUSED),
    "envdoctor, vLLM, fused, micro-batch of 16": ("envdoctor", FUSED | {"per_device_train_batch_size": 16}),
    "envdoctor, vLLM, fused, compiled": ("envdoctor", FUSED | {"torch_compile": True}),
    "envdoctor, vLLM, fused, bfloat16": ("envdoctor", FUSED | {"dtype": "bfloat16"}),
    "envdoctor, vLLM, as planned": ("envdoctor", {"use_vllm": True}),
    "envdoctor, vLLM, as planned, bfloat16": ("envdoctor", {"use_vllm": True, "dtype": "bfloat16"}),
    "envdoctor, graphs": ("envdoctor", GRAPHS | {"liger_kernels": "off"}),
    "envdoctor, graphs, fused": ("envdoctor", GRAPHS | {"liger_kernels": "on"}),
    "envdoctor, graphs, LoRA": ("envdoctor", GRAPHS | LORA),
    "TRL, transformers, 128 tokens": ("TRL", {"max_completion_length": 128}),
    "envdoctor, transformers, 128 tokens": ("envdoctor", OPTIMIZER | {"max_completion_length": 128}),
    "envdoctor, vLLM, fused, uncorrected": ("envdoctor", FUSED | {"vllm_importance_sampling_correction": False}),
    "envdoctor, vLLM, LoRA": ("envdoctor", COLOCATE | LORA),
    "envdoctor, vLLM server": ("envdoctor", OPTIMIZER | {"use_vllm": True, "vllm_mode": "server"}),
    "envdoctor, gpt-oss, LoRA": ("envdoctor", GPT_OSS),
    "envdoctor, gpt-oss, LoRA, vLLM": ("envdoctor", GPT_OSS | COLOCATE),
    "envdoctor, nf4, LoRA, 64 tokens": (
        "envdoctor",
        LORA | {"load_in_4bit": True, "optim": "paged_adamw_8bit", "max_completion_length": 64},
    ),
}
MAKE = """
import json, random, sys
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    GptOssConfig, GptOssForCausalLM, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
)
folder, size = sys.argv[1], json.loads(sys.argv[2])
torch.manual_seed(0)
words = {word: n for n, word in enumerate(["<pad>", "<eos>", "<unk>", *(f"w{n}" for n in range(size["words"] - 3))])}
backend = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
PreTrainedTokenizerFast(
    tokenizer_object=backend, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left",
    model_input_names=["input_ids", "attention_mask"],
).save_pretrained(folder)
config = Qwen2Config(
    vocab_size=size["words"], hidden_size=size["width"], intermediate_size=size["inner"],
    max_position_embeddings=1024, num_hidden_layers=size["layers"], num_attention_heads=size["heads"],
    num_key_value_heads=2, pad_token_id=0, eos_token_id=1, bos_token_id=None, tie_word_embeddings=True,
)
model = Qwen2ForCausalLM(config)
if "gpt-oss" in folder:
    model = GptOssForCausalLM(GptOssConfig(
        vocab_size=size["words"], hidden_size=512, intermediate_size=512, num_hidden_layers=8, num_local_experts=8,
        num_experts_per_tok=4, num_attention_heads=8, num_key_value_heads=2, head_dim=64, sliding_window=128,
        max_position_embeddings=1024, pad_token_id=0, eos_token_id=1, bos_token_id=None,
    )).to(torch.bfloat16)
model.save_pretrained(folder)
rng = random.Random(0)
with open(folder + "/rows.jsonl", "w") as file:
    for _ in range(256):
        words = " ".join(f"w{rng.randrange(size['words'] - 3)}" for _ in range(size["prompt"]))
        file.write(json.dumps({"prompt": words}) + "\\n")
with open(folder + "/reward.py", "w") as file:
    file.write("def lucky(completions, **_):\\n    return [float(len(c) % 7) for c in completions]\\n")
"""
TRL_SCRIPT = """
import json, sys, time
folder, size, more = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
sys.path.insert(0, folder)
import torch
from datasets import load_dataset
from reward import lucky
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
times, marks = [], {"imports": time.time()}
class Clock(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **_):
        if "loss" in logs:
            times.append(time.time())
cuda = torch.cuda.is_available()
arguments = GRPOConfig(
    output_dir=sys.argv[4], max_steps=size["max_steps"], num_generations=8,
    per_device_train_batch_size=size.get("micro_batch", 64),
    gradient_accumulation_steps=64 // size.get("micro_batch", 64),
    learning_rate=1e-6, lr_scheduler_type="constant", save_strategy="no",
    bf16=cuda, gradient_checkpointing=False, use_cpu=not cuda, logging_steps=1, report_to="none", disable_tqdm=True,
    **{"max_completion_length": size["completion"], **more},
)
trainer = GRPOTrainer(
    model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), args=arguments, reward_funcs=lucky,
    processing_class=PreTrainedTokenizerFast.from_pretrained(folder), callbacks=[Clock()],
    train_dataset=load_dataset("json", data_files=folder + "/rows.jsonl", split="train"),
)
marks["trainer"] = time.time()
trainer.train()
peak = torch.cuda.max_memory_allocated() / 2**30 if cuda else None
if trainer.accelerator.is_main_process:
    print(json.dumps({"times": times, "marks": marks, "peak": peak}))
"""


def run(argv: list[str], seconds: float | None = None, **variables: str) -> str:
    """The stdout of a process; RuntimeError with its output if it failed, or lasted longer than `seconds`."""
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, check=False, timeout=seconds, env=os.environ | variables
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"TimeoutError: {seconds:.0f} s\n{(error.stdout or b'')[-3000:]!r}") from None
    if done.returncode:
        raise RuntimeError((done.stdout + done.stderr)[-6000:])
    return done.stdout


@contextmanager
def serving(python: str, settings: dict[str, Any], size: dict[str, Any], gpus: int, folder: Path) -> Iterator[None]:
    """Run the vLLM server of the settings, if any, on the GPU after those of the trainer."""
    if settings.get("vllm_mode") != "server":
        yield
        return
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(gpus + 1)))).split(",")
    max_length = str(size["prompt"] + size["completion"])
    port = str(settings["vllm_server_port"])
    server = [python, "-B", "-m", "trl.scripts.vllm_serve", "--model", settings["model"], "--port", port]
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(
            [*server, "--max_model_len", max_length, "--gpu_memory_utilization", "0.5"],
            stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            env=os.environ | {"CUDA_VISIBLE_DEVICES": visible[gpus]},
        )  # fmt: skip
    try:
        yield
    except RuntimeError as error:
        raise RuntimeError(f"{error}\nthe server:\n{(folder / 'server.log').read_text()[-3000:]}") from error
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def write_run(out: Path, model: str, size: dict[str, Any], more: dict[str, Any], gpus: int = 1) -> dict[str, Any]:
    """Create a run directory for the bundled trainer. Returns its settings."""
    settings: dict[str, Any] = {
        "model": model, "data": f"{model}/rows.jsonl", "rewards": [f"{model}/reward.py:lucky"], "chat": "text",
        "max_steps": size["max_steps"], "prompts_per_step": 8 * gpus, "num_generations": 8, "learning_rate": 1e-6,
        "max_completion_length": size["completion"], "eval_steps": 0, "num_generations_eval": 1, "held_out_rows": 2,
        "save_steps": 0, **({"per_device_train_batch_size": size["micro_batch"]} if "micro_batch" in size else {}),
        **more,
    }  # fmt: skip
    if settings.get("vllm_mode") == "server":
        with socket.create_server(("127.0.0.1", 0)) as free:
            settings |= {"vllm_server_host": "127.0.0.1", "vllm_server_port": free.getsockname()[1]}
    out.mkdir()
    (out / "run.json").write_text(json.dumps({"schema": 1, "recipe": "benchmark", "settings": settings}))
    return settings


def run_case(
    python: str, name: str, size: dict[str, Any], folder: Path, *, caches: Path, gpus: int, seconds: float | None
) -> dict[str, Any]:
    """Time stamps of the steps, memory peak in GiB and, for the bundled trainer, seconds of the parts of a step."""
    kind, more = CASES[name]
    variables = {
        "VLLM_CACHE_ROOT": str(caches / "vllm"), "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
        "TRITON_CACHE_DIR": str(caches / "triton"),
    }  # fmt: skip
    model = str(folder / "model")
    out = folder / "run"
    launch = [python, "-B"]
    if gpus > 1:
        launch += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={gpus}"]
        # As envdoctor's launchers set it; torchrun's default is 1.
        variables["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // gpus))
    if kind == "TRL":
        (folder / "trl_script.py").write_text(TRL_SCRIPT)
        program = [str(folder / "trl_script.py"), model, json.dumps(size), json.dumps(more), str(out)]
        output = run([*launch, *program], seconds, **variables)
        return dict(json.loads(next(line for line in output.splitlines() if line.startswith('{"times"'))))
    settings = write_run(out, model, size, more, gpus)
    with serving(python, settings, size, gpus, folder):
        run([*launch, str(TRAIN / "grpo.py"), str(out)], seconds, **variables)
    events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    result = json.loads((out / "result.json").read_text())
    steps = [event for event in events if event["event"] == "step"]
    peaks = [event["metrics"]["memory_gib"] or 0 for event in steps]
    measured = [event["metrics"] for event in steps[SKIPPED_STEPS:]]
    parts = (*PARTS, "wait") if gpus > 1 else PARTS
    planned = ((result["memory"] or {}).get("planned") or 0) / 2**30
    return {
        "times": [event["t"] for event in steps], "peak": max(peaks) or None, "planned": planned or None,
        "marks": find_marks(events),
        "parts": {part: statistics.median(row[f"{part}_seconds"] for row in measured) for part in parts},
        "gap": max((row["sampling_gap"] or 0 for row in measured), default=0) or None,
        "patches": result["patches"], "phases": result["seconds"],
    }  # fmt: skip


def find_marks(events: list[dict[str, Any]]) -> dict[str, float]:
    """Time stamps of a run of the bundled trainer before its first step, as those of the TRL script."""
    data = next(event["t"] for event in events if event["event"] == "phase" and event["name"] == "data")
    constructed = next(event["t"] for event in events if event["event"] == "patches")
    evaluated = next(event["t"] for event in events if event["event"] == "eval")
    return {"imports": data, "trainer": constructed, "evaluation": evaluated}


MEASURE_RATES = """
import json, time, torch
def best(work, tries=5):
    times = []
    for _ in range(tries):
        torch.cuda.synchronize(); start = time.perf_counter(); work(); torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return min(times)
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
b = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
memory = torch.empty(2**32, device="cuda", dtype=torch.uint8); other = torch.empty_like(memory)
print(json.dumps({
    "flops": 20 * 2 * 8192**3 / best(lambda: [a @ b for _ in range(20)]),
    "bytes": 2 * 2**32 / best(lambda: other.copy_(memory)),
}))
"""


def lower_bound(python: str, size: dict[str, Any]) -> str:
    """Describe the minimum seconds of a step for any implementation, at the measured rates of this GPU."""
    rates = json.loads(run([python, "-c", MEASURE_RATES]).strip().splitlines()[-1])
    head = size["width"] // size["heads"]
    attention = 2 * size["width"] ** 2 + 2 * size["width"] * 2 * head
    weights = size["layers"] * (attention + 3 * size["width"] * size["inner"]) + size["words"] * size["width"]
    completions, length = 64, size["prompt"] + size["completion"]
    # Per token: all weights once for the 64 completions, and the keys and values (2 heads) of the earlier tokens.
    cache = size["layers"] * 2 * 2 * head * 2 * completions * (size["prompt"] + size["completion"] / 2)
    sampling = size["completion"] * (2 * weights + cache) / rates["bytes"]
    # Per weight and token, 2 operations forward and 4 backward; attention: 12 x half of the squared length.
    operations = (
        6 * weights * completions * length + 12 * size["layers"] * size["width"] * completions * length**2 / 2
    )
    learning = operations / rates["flops"]
    return (
        f"lower bound: sampling {sampling:.2f} s ({rates['bytes'] / 1e12:.2f} TB/s), learning {learning:.2f} s "
        f"({rates['flops'] / 1e12:.0f} TFLOP/s), together {sampling + learning:.2f} s"
    )


def main() -> None:
    """Run all cases and print one line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--only", nargs="*", default=[], choices=[*CASES], metavar="NAME")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--micro-batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--caches", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds
    size = (SMALL if options.small else SIZE) | {"max_steps": options.steps, "micro_batch": options.micro_batch}
    if options.gpus == 1:
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")  # TRL rejects several GPUs in one process
    with tempfile.TemporaryDirectory() as shared:
        for name in list(options.only or CASES) * options.rounds:
            left = deadline - time.monotonic()
            if left <= 0:
                print(f"{name:40} not started: the time limit is reached")
                continue
            model = Path(shared, "gpt-oss" if "gpt-oss" in name else "qwen2")
            if not model.exists():
                run([options.python, "-B", "-c", MAKE, str(model), json.dumps(size)])
            seconds = None if math.isinf(left) else left
            caches = options.caches and options.caches / name.replace(", ", "-").replace(" ", "-")
            found = measure(options.python, name, size, model, caches=caches, gpus=options.gpus, seconds=seconds)
            print(f"{name:40} {describe(found)}", flush=True)
            if options.out:
                with options.out.open("a") as file:
                    file.write(json.dumps({"case": name, "micro_batch": options.micro_batch} | found) + "\n")
    if not options.small and not options.only:
        print(lower_bound(options.python, size))


def measure(
    python: str,
    name: str,
    size: dict[str, Any],
    model: Path,
    *,
    caches: Path | None,
    gpus: int,
    seconds: float | None,
) -> dict[str, Any]:
    """The result of one case, with the seconds of its steps after the first ones; or its error."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "model").symlink_to(model)
        start = time.time()
        try:
            result = run_case(
                python, name, size, Path(folder), caches=caches or Path(folder), gpus=gpus, seconds=seconds
            )
        except RuntimeError as error:
            print(error, file=sys.stderr, flush=True)
            lines = [line for line in str(error).splitlines() if line.strip()]
            return {"error": next((line for line in reversed(lines) if "Error" in line), lines[-1])}
    times = result.pop("times")
    result["marks"] = {mark: stamp - start for mark, stamp in result["marks"].items()}
    steps = [after - before for before, after in itertools.pairwise(times)][SKIPPED_STEPS - 1 :]
    return {"median": statistics.median(steps), "seconds": steps, "first_step": times[0] - start} | result


def describe(result: dict[str, Any]) -> str:
    """One line for a result."""
    if "error" in result:
        return f"failed: {result['error']}"
    memory = [f"{name} {result[name]:.1f} GiB" for name in ("peak", "planned") if result.get(name)]
    parts = [f"{part} {part_seconds:.3f}" for part, part_seconds in result.get("parts", {}).items()]
    if result.get("gap"):
        parts.append(f"gap {result['gap']:.4f}")
    parts += [f"{mark} at {seconds:.1f}" for mark, seconds in result["marks"].items()]
    least, first = min(result["seconds"]), result["first_step"]
    return f"{result['median']:6.2f} s (minimum {least:.2f}, first step {first:.0f})  {', '.join(memory + parts)}"


if __name__ == "__main__":
    sys.exit(main())
