"""Load verl's critic without flash-attn. verl imports this module in each process (VERL_USE_EXTERNAL_MODULES).

load_valuehead_model (verl/utils/model.py, 0.4.1 to 0.9.1) hard-codes flash_attention_2. Without flash-attn it fails
with "is not a value head model, please install trl".
"""

from __future__ import annotations

import os
from typing import Any

import verl.utils.model
from transformers import AutoModelForTokenClassification


def load_valuehead_model(local_path: str, torch_dtype: Any, model_config: Any, trust_remote_code: bool) -> Any:
    """Load the model like verl, but with the attention of the run."""
    return AutoModelForTokenClassification.from_pretrained(
        pretrained_model_name_or_path=local_path,
        torch_dtype=torch_dtype,
        config=model_config,
        attn_implementation=os.environ["ENVDOCTOR_CRITIC_ATTENTION"],
        trust_remote_code=trust_remote_code,
    )


verl.utils.model.load_valuehead_model = load_valuehead_model
