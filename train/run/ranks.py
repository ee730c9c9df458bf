"""The processes of a run: one, or one per GPU under torchrun."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch


class Ranks:
    """This process among the others. Every method is a collective: all ranks call it, or none."""

    def __init__(self, device: str) -> None:
        self.world_size = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0"))
        self.is_main = self.rank == 0
        self.group: Any = None
        if self.world_size > 1:
            from accelerate import PartialState

            PartialState(cpu=device == "cpu")  # creates the process group, as the trainer would do later
            if device == "cpu":
                _register_cpu_location()
            elif os.environ.get("LOCAL_WORLD_SIZE") == str(self.world_size):
                # NCCL would gather only when the GPU has finished its queue. Between hosts gloo needs host names that
                # resolve, which NCCL does not.
                self.group = torch.distributed.new_group(backend="gloo")

    def gather(self, items: Sequence[Any]) -> list[Any]:
        """The items of all ranks, in the order of the ranks."""
        if self.world_size == 1:
            return list(items)
        parts: list[Any] = [None] * self.world_size
        torch.distributed.all_gather_object(parts, list(items), group=self.group)
        return [item for part in parts for item in part]

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any rank; ranks that stop at different steps would deadlock."""
        return any(self.gather([flag]))

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self.world_size > 1:
            torch.distributed.barrier()

    def shut_down(self, trainer: Any) -> None:
        """Leave the process group together: torchrun's agents fail or hang when one node ends long before another.

        From transformers 5.18 on a script calls `trainer.end()`, which ends the trackers and leaves the group.
        """
        self.barrier()
        if hasattr(trainer, "end"):
            trainer.end()
        if self.world_size > 1 and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()

    def local_items(self, items: Sequence[Any]) -> list[Any]:
        """This rank's part of the items; `restore_order(gather(part), len(items))` restores the order."""
        return list(items[self.rank :: self.world_size])

    def restore_order(self, gathered: Sequence[Any], size: int) -> list[Any]:
        """The gathered parts of `local_items`, in the order of the items."""
        sizes = [len(range(rank, size, self.world_size)) for rank in range(self.world_size)]
        starts = [sum(sizes[:rank]) for rank in range(self.world_size)]
        return [gathered[starts[index % self.world_size] + index // self.world_size] for index in range(size)]


def _register_cpu_location() -> None:
    """Let torch.load map `cpu:1`, accelerate's name for the CPU of a rank."""
    torch.serialization.register_package(
        0, lambda _: None, lambda storage, location: storage if location.startswith("cpu:") else None
    )
