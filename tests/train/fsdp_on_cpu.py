"""The trainer, with FSDP2 over gloo on CPUs: `python fsdp_on_cpu.py RUN_DIR [...]`, for tests alone.

accelerate makes DDP of FSDP on a CPU, and the trainer therefore refuses it there. Here accelerate is told otherwise;
from there on everything is what a GPU would run: accelerate's fsdp2_prepare_model, torch's fully_shard, TRL's loop.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "train"))

import grpo
from accelerate import state
from accelerate.utils import DistributedType
from checks import fsdp as fsdp_fields

made = state.AcceleratorState.__init__


def make(self: Any, *arguments: Any, fsdp_plugin: Any = None, **named: Any) -> None:
    made(self, *arguments, fsdp_plugin=fsdp_plugin, **named)
    if fsdp_plugin is not None and self.distributed_type != DistributedType.FSDP:
        self.distributed_type = state.PartialState._shared_state["distributed_type"] = DistributedType.FSDP
        self.fsdp_plugin = fsdp_plugin
        if self._mixed_precision != "no":
            fsdp_plugin.set_mixed_precision(self._mixed_precision)


state.AcceleratorState.__init__ = make
fsdp_fields.DEVICES = ("cuda", "cpu")
if __name__ == "__main__":
    sys.exit(grpo.main())
