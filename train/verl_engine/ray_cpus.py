"""The CPUs that verl's actors request from Ray. If too few are free, Ray waits without a message and without end.

Sources: the wheels of verl 0.4.1 to 0.9.1 and TransferQueue 0.1.11. On a Ray with four CPUs, verl 0.9.1 hung after
three of TransferQueue's eight storage units, and ran with one (2026-11-22).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from packaging.version import Version
from settings import BadInput

# main_ppo.py: from here on the trainer keeps the completions in a TransferQueue unless use_v1 is false. 0.9.0 does
# not require that package, 0.9.1 only in its extra verl-core.
TRANSFER_QUEUE, WITHOUT_QUEUE = Version("0.9.0"), "trainer.use_v1=false"
UNITS_OPTION = "transfer_queue.backend.SimpleStorage.num_data_storage_units"
# config/transfer_queue/transfer_queue.yaml. Each unit is an actor with one CPU, as is the queue's controller.
DEFAULT_UNITS, CONTROLLER_CPUS = 8, 1
THREE_CPUS_PER_GPU = Version("0.7.0")  # ray_trainer.py, single_controller/ray/base.py: max_colocate_count, before 1
RAY_CPUS_OPTION = "ray_init.num_cpus"  # verl's option that overrides Ray's number of CPUs


def has_queue(version: Version, options: Sequence[str]) -> bool:
    """Return whether this verl's trainer keeps the completions in a TransferQueue."""
    return version >= TRANSFER_QUEUE and WITHOUT_QUEUE not in options


def placement_group_cpus(version: Version, gpus: int) -> int:
    """Return the CPUs of the GPUs' placement groups."""
    return gpus * (3 if version >= THREE_CPUS_PER_GPU else 1)


def driver_cpus(version: Version, options: Sequence[str]) -> int:
    """Return the CPUs of the driver, one up to 0.8 (main_ppo.py), and of the queue with one unit.

    An actor that requests no number of CPUs uses none, and starts even if none is free (Ray 2.54).
    """
    return (0 if version >= TRANSFER_QUEUE else 1) + (CONTROLLER_CPUS + 1 if has_queue(version, options) else 0)


def queue_units(version: Version, options: Sequence[str], *, cpus: int, gpus: int) -> dict[str, int]:
    """Return an option with fewer storage units if the CPUs do not suffice for the default; otherwise {}.

    `cpus` (0: unknown) and `gpus` are those of all nodes. User options for the units or Ray's CPUs take precedence.
    """
    is_set = any(name in option for option in options for name in (UNITS_OPTION, RAY_CPUS_OPTION))
    if not cpus or not has_queue(version, options) or is_set:
        return {}
    free = cpus - placement_group_cpus(version, gpus) - CONTROLLER_CPUS
    return {} if free >= DEFAULT_UNITS else {UNITS_OPTION: max(1, free)}


def check_ray_cpus(settings: Mapping[str, Any], version: Version, *, cpus: int, gpus: int) -> None:
    """Refuse a node with fewer CPUs than verl requests. `cpus` (0: unknown) and `gpus` are those of one node.

    The CPUs of driver and queue may be on any node, so each node gets its share of them.
    """
    options = settings["options"]
    if settings["task"] == "sft" or not cpus or any(RAY_CPUS_OPTION in option for option in options):
        return
    required = placement_group_cpus(version, gpus) + math.ceil(driver_cpus(version, options) / settings["nodes"])
    if cpus < required:
        raise BadInput(
            f"{cpus} CPUs for {gpus} GPUs of a node: verl {version} requests {required} CPUs, and Ray would wait for "
            "them without end",
            expected=f"{required} CPUs on each node, {placement_group_cpus(version, 1)} for each GPU",
            hint=f"in SLURM --slurm-option cpus-per-task={required}; else a larger machine, or fewer --set gpus=N",
        )
