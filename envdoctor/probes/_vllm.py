"""The few calls of vLLM that vllm_generate.py needs, as they are in 0.10 and in 0.26."""

import os

# In one process, as TRL's colocate mode has it and where its weights can be reached; FlashInfer's sampler
# would compile for minutes.
VARIABLES = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
}
SHARE_OF_BUDGET = 0.1  # of the GPU's memory


class Engine:
    """An engine on a checkpoint, for so many prompts at a time and new tokens after each."""

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
            enable_prefix_caching=False,  # cached keys would outlive a change of weights
            gpu_memory_utilization=SHARE_OF_BUDGET,
            max_model_len=128,
            max_num_seqs=prompts,
            seed=0,
        )

    def generate(self, prompts: list[list[int]]) -> list[list[int]]:
        """Greedy tokens after each prompt."""
        from vllm import SamplingParams

        greedy = SamplingParams(temperature=0.0, max_tokens=self.tokens, ignore_eos=True, detokenize=False)
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
