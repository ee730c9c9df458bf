"""TRL's GRPOTrainer on the task's prompts, with the patches of patches/table.py."""

from __future__ import annotations

from typing import Any

from checks.batches import count_steps
from checks.rollouts import uses_rollouts
from datasets import Dataset
from generation.evaluation import Evaluator
from generation.evaluation_engines import choose_evaluation_engine
from modeling.revision import use_snapshot_path
from modeling.reward_models import load_reward_models
from patches.table import construct_trainer
from run.grpo_recorder import GrpoRecorder
from trainers.parts import RunParts, Training
from trainers.rollout_evaluation import RolloutEvaluator
from trainers.rollouts import check_conversations, example_columns, refusals_as_bad_input, rollout_arguments
from trl import GRPOTrainer


def construct(parts: RunParts, config: Any) -> Training:
    """Construct the trainer, the recorder and the evaluation."""
    task, settings, ranks = parts.task, parts.settings, parts.ranks
    evaluator = Evaluator(parts.run, task, parts.policy, settings, ranks)
    recorder = GrpoRecorder(
        parts.run, task, settings, ranks=ranks, interrupt=parts.interrupt, evaluate=evaluator.evaluate,
        first_step=parts.first_step,
    )  # fmt: skip
    patches = parts.policy.patch_context(
        settings, device=parts.device, installed=parts.installed, ranks=ranks, timer=recorder.timer
    )
    rows = [
        example_columns(row, settings) | {"prompt": row["prompt"], "row": number}
        for number, row in enumerate(task.train)
    ]
    if settings["task"] == "dataset":
        load_reward_models(task.rewards.models, parts.device, parts.policy.autocast)
    check_conversations(settings, task.train[0]["prompt"])
    with use_snapshot_path(parts.policy.model, settings), refusals_as_bad_input(settings):
        trainer = construct_trainer(
            patches,
            GRPOTrainer,
            processing_class=parts.policy.tokenizer,
            reward_funcs=recorder.reward,
            args=config,
            train_dataset=Dataset.from_list(rows),
            callbacks=[recorder],
            **rollout_arguments(settings),
        )
    recorder.trainer = trainer
    trainer.state.max_steps = count_steps(
        settings, len(task.train), ranks.world_size
    )  # rewards may read it in the first evaluation
    if uses_rollouts(settings):
        recorder.evaluate = RolloutEvaluator(parts, recorder, trainer).evaluate
        return Training(trainer, recorder, recorder.evaluate, patches)
    engine = choose_evaluation_engine(trainer, settings, ranks, multi_step=patches.multi_step)
    evaluator.use_trainer(trainer, engine)
    return Training(trainer, recorder, evaluator.evaluate, patches)
