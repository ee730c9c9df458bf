"""vLLM's sampling alone, as TRL uses it in the trainer's process: plain, and with what the trainer adds, bit by bit.

    python tests/benchmarks/sampling_gpu.py PYTHON_OF_THE_STACK [--gpus N] [--seconds N]

64 answers of 512 tokens to 8 prompts of 256 by trainer_gpu.py's Qwen2 of 387 M random parameters, with the
log-probability of each token. "store" keeps the log-probabilities a step at a time, "bursts" plans several tokens at
once as well, "recorded" has them made by recorded steps. Every GPU has a vLLM of its own, and all begin each time
together. Printed: whether the
tokens and numbers are vLLM's own, the seconds of each way, of the slowest GPU too, and the ratios of those that
followed each other.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path

from trainer_gpu import MAKE, SIZE, TRAIN, run

WAYS = ("plain", "store", "bursts", "recorded")
PROGRAM = """
import gc, json, os, random, sys, time
model, seconds = sys.argv[1], float(sys.argv[2])
sys.path.insert(0, TRAIN)
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
import torch
import torch.distributed as dist
from contextlib import contextmanager, nullcontext
from patches import vllm_multi_step
from patches.vllm_logprobs import storing_logprobs

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(rank)
dist.init_process_group("cpu:gloo,cuda:nccl", device_id=torch.device(f"cuda:{rank}"))
calm = dist.new_group(backend="gloo")  # to wait in NCCL would keep a processor core busy
from vllm import LLM, SamplingParams

llm = LLM(  # as TRL 1.16 makes it
    model=model, gpu_memory_utilization=0.3, max_model_len=768, max_num_seqs=64, max_num_batched_tokens=4096,
    distributed_executor_backend="external_launcher", seed=rank, logprobs_mode="processed_logprobs",
)
words = random.Random(rank)
prompts = [[words.randrange(3, 31000) for _ in range(256)] for _ in range(8)]
prompts = [{"prompt_token_ids": ids} for ids in prompts for _ in range(8)]

recorders, recording = [], bursts.recording
@contextmanager
def noted(*arguments):
    with recording(*arguments) as recorded:
        recorders.append(recorded)
        yield recorded

def sample(way, temperature=1.0, length=512, stop=()):
    asked = SamplingParams(temperature=temperature, max_tokens=length, detokenize=False, logprobs=0, ignore_eos=True)
    asked.flat_logprobs, asked.stop_token_ids = True, list(stop)
    llm.reset_prefix_cache()
    dist.barrier(group=calm)
    gc.disable()
    began = time.perf_counter()
    recorders.clear()
    bursts.recording = noted if way == "recorded" else lambda *_: nullcontext()
    with (
        bursts.multi_step_scheduling(llm, asked) if way in ("bursts", "recorded") else nullcontext(True) as fits,
        storing_logprobs(llm) if way != "plain" else nullcontext() as store,
    ):
        found = llm.generate(prompts, asked, use_tqdm=False)
    assert fits, "this vLLM does not sample in bursts"
    assert way != "recorded" or recorders[0].step, "nothing was recorded"
    if store:
        numbers = store.read([(one.request_id, list(one.outputs[0].token_ids)) for one in found])
    else:
        numbers = [list(one.outputs[0].logprobs.logprobs) for one in found]
    took = time.perf_counter() - began
    gc.enable()
    tokens = [list(one.outputs[0].token_ids) for one in found]
    assert [len(row) for row in numbers] == [len(row) for row in tokens]
    assert stop or all(len(row) == length for row in tokens)
    return took, tokens, numbers

gc.collect()
gc.freeze()
for way in WAYS:
    sample(way)
one, *others = [sample(way, 0.0, 64)[1:] for way in WAYS]
same = [other == one for other in others]
one, *others = [sample(way, 0.0, 200, range(0, 32000, 50))[1] for way in WAYS]
def parting(a, b):
    return next((at for at, pair in enumerate(zip(a, b)) if pair[0] != pair[1]), min(len(a), len(b)))
stops = [
    [sum(a == b for a, b in zip(one, other)), min(map(len, one)), min(map(parting, one, other))] for other in others
]
rounds, ends, more = [], time.monotonic() + seconds, [True]
while more[0]:
    turn = len(rounds) % len(WAYS)
    took = {way: sample(way)[0] for way in WAYS[turn:] + WAYS[:turn]}
    every = [None] * world
    dist.all_gather_object(every, [took[way] for way in WAYS], group=calm)
    rounds.append(every)
    more = [time.monotonic() < ends]
    dist.broadcast_object_list(more, src=0, group=calm)
alike = [None] * world
dist.all_gather_object(alike, [same, stops], group=calm)
if rank == 0:
    print("FOUND " + json.dumps({"rounds": rounds, "alike": alike}), flush=True)
dist.barrier(group=calm)
dist.destroy_process_group()
"""


def main() -> None:
    """All rounds, and what they say."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=120)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model, program = Path(folder, "model"), Path(folder, "sampling.py")
        run([asked.python, "-B", "-c", MAKE, str(model), json.dumps(SIZE)])
        program.write_text(f"TRAIN, WAYS = {str(TRAIN)!r}, {WAYS!r}\n{PROGRAM}")
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={asked.gpus}"]
        said = run([asked.python, "-B", *torchrun, str(program), str(model), str(asked.seconds)])
    found = json.loads(next(line[6:] for line in said.splitlines() if line.startswith("FOUND ")))
    rounds: list[list[list[float]]] = found["rounds"]  # round, GPU, way
    for way, name in enumerate(WAYS[1:]):
        same = all(gpu[0][way] for gpu in found["alike"])
        print(f"{name}: {'tokens and numbers are' if same else 'NOT'} vLLM's own for 64 greedy answers of 64 tokens")
        for alike, first, parting in (gpu[1][way] for gpu in found["alike"]):
            print(f"  where a token ends them, {alike} of 64 are the same; the first ends after {first}", end="")
            print("" if alike == 64 else f", and none differs before {parting}: the batch is another by then")
    for way, name in enumerate(WAYS):
        of_each = [statistics.median(one[gpu][way] for one in rounds) for gpu in range(asked.gpus)]
        slowest = statistics.median(max(gpu[way] for gpu in one) for one in rounds)
        print(f"{name:8} {', '.join(f'{took:.2f}' for took in of_each)} s; the slowest of all {slowest:.2f} s")
    for way, name in enumerate(WAYS[1:], 1):
        ratios = [took[way] / took[0] for one in rounds for took in one]
        below = sum(ratio < 1 for ratio in ratios)
        print(f"{name} / plain: median {statistics.median(ratios):.3f}, below 1 in {below} of {len(ratios)}")


if __name__ == "__main__":
    main()
