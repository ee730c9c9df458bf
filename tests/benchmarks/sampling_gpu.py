"""Sampling time of vLLM in the trainer's process, without patches and with each of the trainer's patches.

    python tests/benchmarks/sampling_gpu.py PYTHON_OF_THE_STACK [--gpus N] [--seconds N]

The Qwen2 of trainer_gpu.py (387 M random parameters) samples 64 completions of 512 tokens for 8 prompts of 256,
with the log-probability of each token. "store" stores the log-probabilities per step, "multi-step" also schedules
several tokens at once, "cuda-graph" also samples them with CUDA graphs. Each GPU has its own vLLM instance; all
instances start each sampling at the same time. The script prints whether tokens and log-probabilities equal those of
unpatched vLLM, the seconds of each mode per GPU and for the slowest GPU, and the ratios to the unpatched mode.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path

from trainer_gpu import MAKE, SIZE, TRAIN, run

MODES = ("plain", "store", "multi-step", "cuda-graph")
PROGRAM = """
import gc, json, os, random, sys, time
model, seconds = sys.argv[1], float(sys.argv[2])
sys.path.insert(0, TRAIN)
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
import torch
import torch.distributed as dist
from contextlib import contextmanager, nullcontext
from operator import eq
from patches import vllm_multi_step
from patches.vllm_logprobs import store_logprobs

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(rank)
dist.init_process_group("cpu:gloo,cuda:nccl", device_id=torch.device(f"cuda:{rank}"))
gloo = dist.new_group(backend="gloo")  # waiting in NCCL would keep a CPU core busy
from vllm import LLM, SamplingParams

llm = LLM(  # with the arguments of TRL 1.16
    model=model, gpu_memory_utilization=0.3, max_model_len=768, max_num_seqs=64, max_num_batched_tokens=4096,
    distributed_executor_backend="external_launcher", seed=rank, logprobs_mode="processed_logprobs",
)
words = random.Random(rank)
prompts = [[words.randrange(3, 31000) for _ in range(256)] for _ in range(8)]
prompts = [{"prompt_token_ids": ids} for ids in prompts for _ in range(8)]

runners, graph_decoding = [], vllm_multi_step.graph_decoding
@contextmanager
def collect_runner(*arguments):
    with graph_decoding(*arguments) as runner:
        runners.append(runner)
        yield runner

def sample(mode, temperature=1.0, length=512, stop=()):
    params = SamplingParams(temperature=temperature, max_tokens=length, detokenize=False, logprobs=0, ignore_eos=True)
    params.flat_logprobs, params.stop_token_ids = True, list(stop)
    llm.reset_prefix_cache()
    dist.barrier(group=gloo)
    gc.disable()
    start = time.perf_counter()
    runners.clear()
    vllm_multi_step.graph_decoding = collect_runner if mode == "cuda-graph" else lambda *_: nullcontext()
    with (
        vllm_multi_step.multi_step_scheduling(llm, params) if mode in MODES[2:] else nullcontext(True) as supported,
        store_logprobs(llm) if mode != "plain" else nullcontext() as store,
    ):
        found = llm.generate(prompts, params, use_tqdm=False)
    assert supported, "this vLLM does not support multi-step scheduling"
    assert mode != "cuda-graph" or runners[0].step, "no step was captured"
    if store:
        numbers = store.read([(one.request_id, list(one.outputs[0].token_ids)) for one in found])
    else:
        numbers = [list(one.outputs[0].logprobs.logprobs) for one in found]
    seconds = time.perf_counter() - start
    gc.enable()
    tokens = [list(one.outputs[0].token_ids) for one in found]
    assert [len(row) for row in numbers] == [len(row) for row in tokens]
    assert stop or all(len(row) == length for row in tokens)
    return seconds, tokens, numbers

gc.collect()
gc.freeze()
for mode in MODES:
    sample(mode)
plain, *others = [sample(mode, 0.0, 64)[1:] for mode in MODES]
same = [other == plain for other in others]
plain, *others = [sample(mode, 0.0, 200, range(0, 32000, 50))[1] for mode in MODES]
def first_difference(a, b):
    return next((at for at, pair in enumerate(zip(a, b)) if pair[0] != pair[1]), min(len(a), len(b)))
stops = [
    [sum(map(eq, plain, other)), min(map(len, plain)), min(map(first_difference, plain, other))] for other in others
]
rounds, deadline, more = [], time.monotonic() + seconds, [True]
while more[0]:
    turn = len(rounds) % len(MODES)
    times = {mode: sample(mode)[0] for mode in MODES[turn:] + MODES[:turn]}
    every = [None] * world
    dist.all_gather_object(every, [times[mode] for mode in MODES], group=gloo)
    rounds.append(every)
    more = [time.monotonic() < deadline]
    dist.broadcast_object_list(more, src=0, group=gloo)
alike = [None] * world
dist.all_gather_object(alike, [same, stops], group=gloo)
if rank == 0:
    print("FOUND " + json.dumps({"rounds": rounds, "alike": alike}), flush=True)
dist.barrier(group=gloo)
dist.destroy_process_group()
"""


def main() -> None:
    """Run all rounds, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=120)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model, program = Path(folder, "model"), Path(folder, "sampling.py")
        run([options.python, "-B", "-c", MAKE, str(model), json.dumps(SIZE)])
        program.write_text(f"TRAIN, MODES = {str(TRAIN)!r}, {MODES!r}\n{PROGRAM}")
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={options.gpus}"]
        output = run([options.python, "-B", *torchrun, str(program), str(model), str(options.seconds)])
    found = json.loads(next(line[6:] for line in output.splitlines() if line.startswith("FOUND ")))
    rounds: list[list[list[float]]] = found["rounds"]
    for mode, name in enumerate(MODES[1:]):
        same = all(gpu[0][mode] for gpu in found["alike"])
        verdict = "equal" if same else "DIFFER FROM"
        print(f"{name}: 64 greedy completions of 64 tokens {verdict} those of unpatched vLLM")
        for alike, first, difference in (gpu[1][mode] for gpu in found["alike"]):
            print(f"  with stop tokens, {alike} of 64 are equal; the shortest has {first} tokens", end="")
            print("" if alike == 64 else f", the first difference is at token {difference}: the batch had changed")
    for mode, name in enumerate(MODES):
        medians = [statistics.median(times[gpu][mode] for times in rounds) for gpu in range(options.gpus)]
        slowest = statistics.median(max(gpu[mode] for gpu in times) for times in rounds)
        print(f"{name:10} {', '.join(f'{seconds:.2f}' for seconds in medians)} s; slowest {slowest:.2f} s")
    for mode, name in enumerate(MODES[1:], 1):
        ratios = [gpu[mode] / gpu[0] for times in rounds for gpu in times]
        below = sum(ratio < 1 for ratio in ratios)
        print(f"{name} / plain: median {statistics.median(ratios):.3f}, below 1 in {below} of {len(ratios)}")


if __name__ == "__main__":
    main()
