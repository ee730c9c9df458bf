"""One real GRPO step by TRL's GRPOTrainer with a tiny model on the CPU."""

import math
import os
import tempfile

# One CPU process by intent: with several GPUs in sight the Trainer would wrap the model in DataParallel.
os.environ["CUDA_VISIBLE_DEVICES"] = ""

from _needs import need
from _result import Result, run
from _tiny import tiny_model, tiny_tokenizer

DEADLINE_SECONDS = 300
NEEDS_GPU = False
SECONDS = 23

GROUP = 4


def probe(result: Result) -> str:
    """Generate, reward, update: the loss is finite, the reward was asked, every weight moved."""
    need("torch", "transformers", "accelerate", "datasets", "trl")
    import torch
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    result.read_versions("torch", "transformers", "accelerate", "datasets", "trl")
    asked: list[str] = []

    def reward(completions: list[str], **_: object) -> list[float]:
        """Half of each group is right, so that advantages are never all zero."""
        asked.extend(completions)
        return [float(n % 2) for n in range(len(completions))]

    with tempfile.TemporaryDirectory() as folder:
        # only fields that TRL 0.22 to 1.16 share; precision and checkpointing said outright, defaults differ
        config = GRPOConfig(
            output_dir=folder,
            seed=result.seed(),
            max_steps=1,
            per_device_train_batch_size=2 * GROUP,
            num_generations=GROUP,
            max_completion_length=6,
            learning_rate=1e-2,
            beta=0.0,
            bf16=False,
            gradient_checkpointing=False,
            use_cpu=True,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        torch.manual_seed(config.seed)
        model = tiny_model()
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=reward,
            args=config,
            train_dataset=Dataset.from_dict({"prompt": [f"{n}{n + 1}:" for n in range(8)]}),
            processing_class=tiny_tokenizer(),
        )
        trainer.train()
    loss = next((row["loss"] for row in trainer.state.log_history if "loss" in row), math.nan)
    after = dict(trainer.model.named_parameters())
    still = [name for name, p in before.items() if torch.equal(p, after[name].detach())]
    result.note("loss", loss)
    result.note("completions", len(asked))
    steps = trainer.state.global_step
    result.require(steps == 1, f"{steps} steps were taken, expected 1")
    result.require(len(asked) == 2 * GROUP, f"the reward saw {len(asked)} completions, expected {2 * GROUP}")
    result.require(not still, f"weights that the step left as they were: {', '.join(still[:3])}")
    broken = [name for name, p in after.items() if not bool(p.isfinite().all())]
    result.require(not broken, f"weights that are not finite after the step: {', '.join(broken[:3])}")
    return f"one step, {len(asked)} completions, loss {loss:.3g}, all {len(before)} tensors moved"


if __name__ == "__main__":
    run(probe)
