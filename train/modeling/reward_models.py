"""Loading the reward models of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from modeling.load_errors import first_line, reach_hub
from modeling.loading import dtype_option, load_tokenizer
from rewards.model_names import EXPECTED, PREFIX
from rewards.reward_model import RewardModel
from settings import BadInput


def load_reward_models(models: Sequence[RewardModel], device: str, autocast: str) -> None:
    """Load each model in the data type of its checkpoint; `autocast` is that of the policy, as in TRL."""
    for reward in models:
        model, tokenizer = _load(reward)
        # The model scores the last token that is no padding.
        model.config.get_text_config().pad_token_id = tokenizer.pad_token_id
        reward.use(model.to(device).eval().requires_grad_(requires_grad=False), tokenizer, autocast)


def _load(reward: RewardModel) -> tuple[Any, Any]:
    from transformers import AutoModelForSequenceClassification

    reach_hub(reward.name, "")
    trust = {"trust_remote_code": reward.settings["trust_remote_code"]}
    try:
        model, report = AutoModelForSequenceClassification.from_pretrained(
            reward.name, num_labels=1, output_loading_info=True, **{dtype_option(): "auto"}, **trust
        )
    except Exception as error:
        raise BadInput(
            f"settings: rewards: {PREFIX}{reward.name} cannot be loaded: {type(error).__name__}: {first_line(error)}",
            expected=EXPECTED,
            hint=f"--set rewards={PREFIX}DIR",
        ) from error
    if missing := sorted(report["missing_keys"]):
        raise BadInput(
            f"settings: rewards: {PREFIX}{reward.name} has no {missing[0]}: its rewards would be random",
            expected=EXPECTED,
            hint=f"--set rewards={PREFIX}NAME of a reward model",
        )
    tokenizer, _ = load_tokenizer(trust | {"model": reward.name, "tokenizer": reward.tokenizer_name, "revision": ""})
    return model, tokenizer
