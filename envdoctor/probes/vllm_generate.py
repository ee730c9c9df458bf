"""vLLM: greedy tokens of a tiny model are transformers', survive sleeping, and follow changed weights."""

import os
import sys
import tempfile

from _needs import half_precision, need, need_cuda, read_device
from _result import Result, run
from _tiny import tiny_llama
from _vllm import Engine

DEADLINE_SECONDS = 600
NEEDS_GPU = True
MEMORY_GB = 32
QUICK = False
SECONDS = 57
ALONE = True  # takes a share of the GPU that must be free at its start

PROMPTS, LENGTH, NEW_TOKENS, WORDS = 4, 12, 16, 256
# A greedy token may differ where two are near: the chosen one's logit in float32 may lie below the largest by
# the two logits' errors, each at most twice that of transformers in the same 16-bit type.
REGRET = 4.0


def probe(result: Result) -> str:
    """Start an engine on a checkpoint made here and ask it."""
    need_cuda()
    need("vllm", "transformers", "safetensors")
    import torch

    result.read_versions("torch", "vllm", "transformers", "triton", "flashinfer-python")
    read_device(result)
    torch.manual_seed(result.seed())
    dtype = half_precision()
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_llama(WORDS)
        model.to(dtype).save_pretrained(folder)
        engine = Engine(folder, str(dtype).removeprefix("torch."), prompts=PROMPTS, tokens=NEW_TOKENS)
        judge(result, engine, model.to("cuda"))
    count = PROMPTS * NEW_TOKENS
    same = result.numbers["same_tokens"]
    return f"{same:.0f} of {count} greedy tokens are transformers', the same after sleep, others with other weights"


def judge(result: Result, engine, model) -> None:
    """Ask, sleep, wake, ask, change a weight, ask."""
    import torch

    prompts = torch.randint(3, WORDS, (PROMPTS, LENGTH)).tolist()
    first = engine.generate(prompts)
    result.note("same_tokens", hold(result, "regret", model, prompts, first))
    result.require(engine.generate(prompts) == first, "the same prompts twice gave two answers")
    freed = engine.sleep()
    result.note("bytes_freed_by_sleep", freed)
    result.require(freed > 0, "sleeping freed no GPU memory")
    engine.wake()
    result.require(engine.generate(prompts) == first, "other tokens after sleeping and waking")
    with torch.no_grad():
        model.lm_head.weight.neg_()  # the least likely token becomes the likeliest
    engine.load("lm_head.weight", model.lm_head.weight.detach().clone())
    changed = engine.generate(prompts)
    result.require(changed != first, "the same tokens after lm_head.weight was changed")
    hold(result, "regret_after_change", model, prompts, changed)


def hold(result: Result, name: str, model, prompts, answers) -> int:
    """Hold each token against float32 logits for what stands before it; how many are the likeliest there."""
    import copy

    import torch

    result.require({len(answer) for answer in answers} == {NEW_TOKENS}, "some answers have another length")
    tokens = torch.tensor([p + a for p, a in zip(prompts, answers, strict=True)], device=model.device)
    with torch.no_grad():
        rough = model(input_ids=tokens, use_cache=False).logits[:, LENGTH - 1 : -1].float()
        exact = copy.deepcopy(model).float()(input_ids=tokens, use_cache=False).logits[:, LENGTH - 1 : -1]
    chosen = tokens[:, LENGTH:]
    regret = exact.max(-1).values - exact.gather(-1, chosen.unsqueeze(-1)).squeeze(-1)
    result.at_most(name, (regret.max() / (rough - exact).abs().max().clamp(min=1e-6)).item(), REGRET)
    return int((exact.argmax(-1) == chosen).sum())


if __name__ == "__main__":
    run(probe)
    # vLLM 0.10.2 that has slept dies with SIGSEGV while the interpreter collects its garbage at the end (on an H200,
    # driver 580.159.04, 2026-11-21), after everything was shown and written.
    sys.stdout.flush()
    os._exit(0)
