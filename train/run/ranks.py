"""The processes of one run: one alone, or one a GPU under torchrun."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch


class Ranks:
    """This process among the others. Every method is called by all of them, or by none."""

    def __init__(self, device: str) -> None:
        self.world_size = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0"))
        self.is_main = self.rank == 0
        self.group: Any = None
        if self.world_size > 1:
            from accelerate import PartialState

            PartialState(cpu=device == "cpu")  # the process group, as the trainer would make it later
            if device == "cpu":
                _place_on_cpu()
            elif os.environ.get("LOCAL_WORLD_SIZE") == str(self.world_size):
                # NCCL would gather when the GPU is done with all that it was given. Between machines gloo finds its
                # way by their names, which NCCL does not need.
                self.group = torch.distributed.new_group(backend="gloo")

    def gather(self, items: Sequence[Any]) -> list[Any]:
        """Everybody's items in the order of the ranks."""
        if self.world_size == 1:
            return list(items)
        parts: list[Any] = [None] * self.world_size
        torch.distributed.all_gather_object(parts, list(items), group=self.group)
        return [item for part in parts for item in part]

    def lend(self, trainer: Any) -> None:
        """Let TRL's module gather objects like this, too: four times a step it does, all texts among them."""
        if self.group is not None:
            trainer.gather_object = self.gather

    def prepare(self, accelerator: Any) -> None:
        """Gradients lie in DDP's buckets, where they are added up: else it holds them twice, and copies them back."""
        if getattr(accelerator, "ddp_handler", None) is not None:
            accelerator.ddp_handler.gradient_as_bucket_view = True

    def any(self, flag: bool) -> bool:
        """Whether anybody says so: ranks that stop at different steps would wait for each other for ever."""
        return any(self.gather([flag]))

    def barrier(self) -> None:
        """Until everybody is here."""
        if self.world_size > 1:
            torch.distributed.barrier()

    def shut_down(self) -> None:
        """The end, together: torchrun's agents on several nodes fail or hang when one of them ends long before."""
        if self.world_size > 1:
            torch.distributed.barrier()
            torch.distributed.destroy_process_group()

    def local_items(self, items: Sequence[Any]) -> list[Any]:
        """This rank's part of the items, so that `in_order(gather(...))` of all parts is the whole."""
        return list(items[self.rank :: self.world_size])

    def restore_order(self, gathered: Sequence[Any], size: int) -> list[Any]:
        """Gathered parts of `share` back in the order of the items."""
        starts = [
            sum(len(range(rank, size, self.world_size)) for rank in range(number))
            for number in range(self.world_size)
        ]
        return [gathered[starts[place % self.world_size] + place // self.world_size] for place in range(size)]


def _place_on_cpu() -> None:
    """Let torch.load put an optimizer's state on `cpu:1`, accelerate's name of a rank's CPU; torch knows `cpu`."""
    torch.serialization.register_package(
        0, lambda _: None, lambda storage, place: storage if place.startswith("cpu:") else None
    )
