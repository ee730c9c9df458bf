"""What the patches of `patches.table` read and change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class PatchContext:
    """A run, as far as it is constructed; the later fields are set while the patches are applied."""

    settings: Mapping[str, Any]
    device: str = "cpu"
    capability: tuple[int, int] = (0, 0)  # of the GPU; (0, 0) on a CPU
    installed: Any = None  # trl_config.versions.InstalledVersions
    ranks: Any = None  # run.ranks.Ranks
    timer: Any = None  # run.timers.StepTimer
    model: Any = None
    autocast: str = ""
    longest_prompt: int = 0
    trainer_class: Any = None
    trainer: Any = None
    multi_step: bool = False  # vLLM samples several tokens per scheduler plan
    sampler: Any = None  # replaces `model.generate` with cuda_graph_decoding
    active: list[str] = field(default_factory=list)  # names of the applied patches
