"""vLLM: greedy tokens of a tiny model equal transformers, also after sleep mode, and change with the weights."""

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
ALONE = True  # reserves GPU memory that must be free when it starts

PROMPTS, LENGTH, NEW_TOKENS, VOCABULARY = 4, 12, 16, 256
# A greedy token may differ if two logits are close. The float32 logit of the chosen token may be below the largest by
# the errors of both logits, each at most twice the error of transformers in the same 16-bit type.
MAX_REGRET = 4.0


def probe(result: Result) -> str:
    """Start an engine for a tiny checkpoint and check its completions."""
    need_cuda()
    need("vllm", "transformers", "safetensors")
    import torch

    result.read_versions("torch", "vllm", "transformers", "triton", "flashinfer-python")
    read_device(result)
    torch.manual_seed(result.seed())
    dtype = half_precision()
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_llama(VOCABULARY)
        model.to(dtype).save_pretrained(folder)
        engine = Engine(folder, str(dtype).removeprefix("torch."), prompts=PROMPTS, tokens=NEW_TOKENS)
        check_engine(result, engine, model.to("cuda"))
    count = PROMPTS * NEW_TOKENS
    same = result.numbers["same_tokens"]
    return (
        f"{same:.0f} of {count} greedy tokens equal transformers; same after sleep, different after a weight update"
    )


def check_engine(result: Result, engine, model) -> None:
    """Generate, enter and leave sleep mode, generate, update a weight, generate."""
    import torch

    prompts = torch.randint(3, VOCABULARY, (PROMPTS, LENGTH)).tolist()
    first = engine.generate(prompts)
    result.note("same_tokens", check_tokens(result, "regret", model, prompts, first))
    result.require(engine.generate(prompts) == first, "the same prompts gave different completions")
    freed = engine.sleep()
    result.note("bytes_freed_by_sleep", freed)
    result.require(freed > 0, "sleep mode freed no GPU memory")
    engine.wake()
    result.require(engine.generate(prompts) == first, "different tokens after sleep mode")
    with torch.no_grad():
        model.lm_head.weight.neg_()  # the least likely token becomes the most likely
    engine.load("lm_head.weight", model.lm_head.weight.detach().clone())
    changed = engine.generate(prompts)
    result.require(changed != first, "the same tokens after an update of lm_head.weight")
    check_tokens(result, "regret_after_change", model, prompts, changed)


def check_tokens(result: Result, name: str, model, prompts, completions) -> int:
    """Compare each token with the float32 logits for its prefix; returns the number of most likely tokens."""
    import copy

    import torch

    result.require(
        {len(completion) for completion in completions} == {NEW_TOKENS}, "some completions have another length"
    )
    tokens = torch.tensor(
        [prompt + completion for prompt, completion in zip(prompts, completions, strict=True)], device=model.device
    )
    with torch.no_grad():
        low_precision = model(input_ids=tokens, use_cache=False).logits[:, LENGTH - 1 : -1].float()
        exact = copy.deepcopy(model).float()(input_ids=tokens, use_cache=False).logits[:, LENGTH - 1 : -1]
    chosen = tokens[:, LENGTH:]
    regret = exact.max(-1).values - exact.gather(-1, chosen.unsqueeze(-1)).squeeze(-1)
    result.at_most(name, (regret.max() / (low_precision - exact).abs().max().clamp(min=1e-6)).item(), MAX_REGRET)
    return int((exact.argmax(-1) == chosen).sum())


if __name__ == "__main__":
    run(probe)
    # After sleep mode, vLLM 0.10.2 crashes with SIGSEGV at interpreter exit, when the report is already written
    # (H200, driver 580.159.04, 2026-11-21).
    sys.stdout.flush()
    os._exit(0)
