"""vLLM: greedy tokens of a tiny model are transformers', survive sleeping, and follow changed weights."""

import os
import sys
import tempfile

from _needs import half_precision, need, need_cuda, read_device
from _result import Result, run

DEADLINE_SECONDS = 600
NEEDS_GPU = True
MEMORY_GB = 32
QUICK = False
SECONDS = 57
ALONE = True  # takes a share of the GPU that must be free at its start

# In one process, as TRL's colocate mode has it and where its weights can be reached; FlashInfer's sampler
# would compile for minutes.
VARIABLES = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
}
PROMPTS, LENGTH, NEW_TOKENS, WORDS = 4, 12, 16, 256
# A greedy token may differ where two are near: the chosen one's logit in float32 may lie below the largest by
# the two logits' errors, each at most twice that of transformers in the same 16-bit type.
REGRET = 4.0
SHARE_OF_BUDGET = 0.1  # of the GPU's memory


def probe(result: Result) -> str:
    """Start an engine on a checkpoint made here and ask it."""
    need_cuda()
    need("vllm", "transformers", "safetensors")
    os.environ.update(VARIABLES)
    import torch

    result.read_versions("torch", "vllm", "transformers", "triton", "flashinfer-python")
    read_device(result)
    torch.manual_seed(result.seed())
    dtype = half_precision()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["VLLM_CACHE_ROOT"] = os.environ["VLLM_CONFIG_ROOT"] = folder
        model = tiny_llama()
        model.to(dtype).save_pretrained(folder)
        engine = Engine(folder, str(dtype).removeprefix("torch."))
        judge(result, engine, model.to("cuda"))
    count = PROMPTS * NEW_TOKENS
    same = result.numbers["same_tokens"]
    return f"{same:.0f} of {count} greedy tokens are transformers', the same after sleep, others with other weights"


class Engine:
    """The few calls of vLLM that the check needs, as they are in 0.10 and in 0.26."""

    def __init__(self, folder: str, dtype: str) -> None:
        from vllm import LLM

        self.engine = LLM(
            model=folder,
            skip_tokenizer_init=True,
            dtype=dtype,
            enforce_eager=True,
            enable_sleep_mode=True,
            enable_prefix_caching=False,  # cached keys would outlive a change of weights
            gpu_memory_utilization=SHARE_OF_BUDGET,
            max_model_len=128,
            max_num_seqs=PROMPTS,
            seed=0,
        )

    def generate(self, prompts: list[list[int]]) -> list[list[int]]:
        """Greedy tokens after each prompt."""
        from vllm import SamplingParams

        greedy = SamplingParams(temperature=0.0, max_tokens=NEW_TOKENS, ignore_eos=True, detokenize=False)
        asked = [{"prompt_token_ids": prompt} for prompt in prompts]
        return [list(said.outputs[0].token_ids) for said in self.engine.generate(asked, greedy, use_tqdm=False)]

    def sleep(self) -> float:
        """Sleep at level 1; the bytes of GPU memory that this freed."""
        import torch

        before = torch.cuda.mem_get_info()[0]
        self.engine.sleep(level=1)
        return float(torch.cuda.mem_get_info()[0] - before)

    def wake(self) -> None:
        """Take weights and cache back."""
        self.engine.wake_up()

    def load(self, name: str, weight) -> None:
        """Change one weight by the way that TRL's GRPOTrainer takes."""
        inner = self.engine.llm_engine.model_executor.driver_worker.model_runner.model
        inner.load_weights([(name, weight)])


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


def tiny_llama():
    """Two layers with heads of 64, which every attention backend of vLLM takes, and logits some units apart."""
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=WORDS, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, max_position_embeddings=256, initializer_range=0.2, tie_word_embeddings=False,
            bos_token_id=1, eos_token_id=2, pad_token_id=0,
        )
    ).eval()  # fmt: skip


if __name__ == "__main__":
    run(probe)
    # vLLM 0.10.2 that has slept dies with SIGSEGV while the interpreter collects its garbage at the end (on an H200,
    # driver 580.159.04, 2026-11-21), after everything was shown and written.
    sys.stdout.flush()
    os._exit(0)
