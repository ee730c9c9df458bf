"""One GRPO step of TRL's GRPOTrainer with a tiny model on the CPU."""

import math
import os
import tempfile

# With several visible GPUs, the Trainer would wrap the model in DataParallel.
os.environ["CUDA_VISIBLE_DEVICES"] = ""

from _needs import need
from _result import Result, run
from _tiny import tiny_model, tiny_tokenizer

DEADLINE_SECONDS = 300
NEEDS_GPU = False
SECONDS = 23

GROUP = 4


def probe(result: Result) -> str:
    """Run one step and check the loss, the calls of the reward function, and the update of every weight."""
    need("torch", "transformers", "accelerate", "datasets", "trl")
    import torch
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    result.read_versions("torch", "transformers", "accelerate", "datasets", "trl")
    rewarded: list[str] = []

    def reward(completions: list[str], **_: object) -> list[float]:
        """Reward half of each group, so that advantages are not all zero."""
        rewarded.extend(completions)
        return [float(n % 2) for n in range(len(completions))]

    with tempfile.TemporaryDirectory() as folder:
        # only fields of TRL 0.22 to 1.16; precision and checkpointing are explicit because the defaults differ
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
    unchanged = [name for name, p in before.items() if torch.equal(p, after[name].detach())]
    result.note("loss", loss)
    result.note("completions", len(rewarded))
    steps = trainer.state.global_step
    result.require(steps == 1, f"{steps} steps were taken, expected 1")
    result.require(
        len(rewarded) == 2 * GROUP, f"the reward function received {len(rewarded)} completions, expected {2 * GROUP}"
    )
    result.require(not unchanged, f"weights that the step did not change: {', '.join(unchanged[:3])}")
    not_finite = [name for name, p in after.items() if not bool(p.isfinite().all())]
    result.require(not not_finite, f"weights that are not finite after the step: {', '.join(not_finite[:3])}")
    return f"one step, {len(rewarded)} completions, loss {loss:.3g}, all {len(before)} tensors changed"


if __name__ == "__main__":
    run(probe)
