"""Names and modules that a library creates from another module, which no file of their own module shows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeVar

State = TypeVar("State", bound=str)
# Another module of the library sets them with setattr: torchaudio.backend.utils before 2.2, and `_graveyard` of
# Lightning from 2.1 on, which keeps old names.
SET_BEFORE = {"torchaudio": ("info", "load", "save")}
SET_SINCE = re.compile(
    r"(?:lightning\.(?:pytorch|fabric)|pytorch_lightning)\.(?:accelerators|strategies|plugins(?:\.io|\.precision(?:\.\w+)?)?)"
    r":(?:(?:TPU|XLA|HPU|Single(?:TPU|HPU))\w+|HPUParallelStrategy|\w*PrecisionPlugin)"
)
# What `_graveyard` puts into sys.modules.
MODULE_SINCE = re.compile(
    r"(?:lightning\.(?:pytorch|fabric)|pytorch_lightning)\.(?:\w+\.)+"
    r"(?:tpu\w*|hpu\w*|single_[th]pu|xlabf16|hpu_parallel|precision_plugin)"
)


def with_later(states: Sequence[State]) -> list[State]:
    """The states of what a library keeps from the first release that has it on."""
    first = states.index("present") if "present" in states else len(states)
    return [*states[:first], *(states[first] for _ in states[first:])]
