"""The vLLM calls of vllm_generate.py, for vLLM 0.10 to 0.26."""

import os

# One process, as in TRL's colocate mode, in which the weights are accessible. FlashInfer's sampler would compile for
# minutes.
VARIABLES = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
}
GPU_MEMORY_UTILIZATION = 0.1


class Engine:
    """An engine for a checkpoint, with a fixed number of parallel prompts and of new tokens."""

    def __init__(self, folder: str, dtype: str, *, prompts: int, tokens: int) -> None:
        os.environ.update(VARIABLES, VLLM_CACHE_ROOT=folder, VLLM_CONFIG_ROOT=folder)
        from vllm import LLM

        self.tokens = tokens
        self.engine = LLM(
            model=folder,
            skip_tokenizer_init=True,
            dtype=dtype,
            enforce_eager=True,
            enable_sleep_mode=True,
            enable_prefix_caching=False,  # the cache would not be invalidated by a change of weights
            gpu_memory_utilization=GPU_MEMORY_UTILIZATION,
            max_model_len=128,
            max_num_seqs=prompts,
            seed=0,
        )

    def generate(self, prompts: list[list[int]]) -> list[list[int]]:
        """Greedy tokens after each prompt."""
        from vllm import SamplingParams

        greedy = SamplingParams(temperature=0.0, max_tokens=self.tokens, ignore_eos=True, detokenize=False)
        inputs = [{"prompt_token_ids": prompt} for prompt in prompts]
        return [list(output.outputs[0].token_ids) for output in self.engine.generate(inputs, greedy, use_tqdm=False)]

    def sleep(self) -> float:
        """Enter sleep mode level 1; returns the number of freed bytes of GPU memory."""
        import torch

        before = torch.cuda.mem_get_info()[0]
        self.engine.sleep(level=1)
        return float(torch.cuda.mem_get_info()[0] - before)

    def wake(self) -> None:
        """Restore weights and KV cache."""
        self.engine.wake_up()

    def load(self, name: str, weight) -> None:
        """Update one weight in the same way as TRL's GRPOTrainer."""
        inner = self.engine.llm_engine.model_executor.driver_worker.model_runner.model
        inner.load_weights([(name, weight)])
