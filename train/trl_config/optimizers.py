"""The optimizers of transformers and the packages that they need, checked before a model is loaded."""

from __future__ import annotations

import importlib.util
from collections.abc import Collection

from settings import BadInput, suggest

LEAVE = "--set optim=adamw_torch"
# Parts of names -> (module, where it comes from); the first that matches. transformers' trainer_optimizer.py (5.17)
# and trainer.py (4.56 to 5.0) import them when the training begins, after the first evaluation.
NEEDS = {
    "galore": ("galore_torch", "galore-torch"),
    "apollo": ("apollo_torch", "apollo-torch"),
    "bnb": ("bitsandbytes", "bitsandbytes"),
    "paged": ("bitsandbytes", "bitsandbytes"),
    "lion": ("bitsandbytes", "bitsandbytes"),
    "ademamix": ("bitsandbytes", "bitsandbytes"),
    "adamw_8bit": ("bitsandbytes", "bitsandbytes"),
    "torch_4bit": ("torchao", "torchao"),
    "torch_8bit": ("torchao", "torchao"),
    "lomo": ("lomo_optim", "lomo-optim"),
    "grokadamw": ("grokadamw", "grokadamw"),
    "schedule_free": ("schedulefree", "schedulefree"),
    "stable_adamw": ("optimi", "torch-optimi"),
    "apex": ("apex", "apex"),
    "anyprecision": ("torchdistx", "torchdistx"),
    "xla": ("torch_xla", "torch_xla"),
    "npu": ("torch_npu", "torch_npu"),
}


def find_packages() -> frozenset[str]:
    """The modules of NEEDS that this environment has."""
    return frozenset(module for module, _ in NEEDS.values() if importlib.util.find_spec(module))


def check_optimizer(name: str, known: Collection[str], installed: Collection[str]) -> None:
    """Refuse an unknown name, and an optimizer whose package is missing."""
    if name not in known:
        known_here = sorted(known)
        raise BadInput(
            f"optim = {name!r}, which this transformers does not have{suggest(name, known_here)}",
            expected=f"one of {', '.join(known_here)}",
            hint=LEAVE,
        )
    module, package = next((needed for part, needed in NEEDS.items() if part in name), ("", ""))
    if module and module not in installed:
        raise BadInput(
            f"optim = {name}, but {package} is not installed",
            expected=f"the package {package} in the environment of torch and TRL",
            hint=LEAVE,
        )
