"""The trainer with FSDP2 over gloo on CPUs, for tests: `python fsdp_on_cpu.py RUN_DIR [...]`.

On a CPU, accelerate replaces FSDP by DDP, so the trainer rejects it there. This program restores FSDP in accelerate;
the rest is the code that runs on GPUs: accelerate's fsdp2_prepare_model, torch's fully_shard and TRL's training loop.
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

original_init = state.AcceleratorState.__init__


def init_with_fsdp(self: Any, *arguments: Any, fsdp_plugin: Any = None, **named: Any) -> None:
    """Initialise AcceleratorState with FSDP, which Accelerate selects only on a GPU."""
    original_init(self, *arguments, fsdp_plugin=fsdp_plugin, **named)
    if fsdp_plugin is not None and self.distributed_type != DistributedType.FSDP:
        self.distributed_type = state.PartialState._shared_state["distributed_type"] = DistributedType.FSDP
        self.fsdp_plugin = fsdp_plugin
        if self._mixed_precision != "no":
            fsdp_plugin.set_mixed_precision(self._mixed_precision)


state.AcceleratorState.__init__ = init_with_fsdp
fsdp_fields.DEVICES = ("cuda", "cpu")
if __name__ == "__main__":
    sys.exit(grpo.main())
