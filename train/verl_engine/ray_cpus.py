"""CPUs that verl's actors ask Ray for. Where there are fewer, Ray waits for more of them for ever, without a word.

Read in the wheels of verl 0.4.1 to 0.9.1 and TransferQueue 0.1.11; on a Ray of four CPUs 0.9.1 stood still at three
of TransferQueue's eight units, and went on with one (2026-11-22).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from packaging.version import Version
from settings import BadInput

# main_ppo.py: from here on its trainer keeps the answers in a TransferQueue unless use_v1 is false. 0.9.0 does not
# name that package, 0.9.1 in the extra verl-core alone.
QUEUE, WITHOUT_QUEUE = Version("0.9.0"), "trainer.use_v1=false"
UNITS = "transfer_queue.backend.SimpleStorage.num_data_storage_units"
# config/transfer_queue/transfer_queue.yaml. Each unit is an actor that holds a CPU, as the queue's controller does.
UNITS_USUAL, CONTROLLER = 8, 1
THREE_A_GPU = Version("0.7.0")  # ray_trainer.py, single_controller/ray/base.py: max_colocate_count, 1 before
RAY = "ray_init.num_cpus"  # an option of verl's, by which Ray is told another number


def has_queue(version: Version, options: Sequence[str]) -> bool:
    """Whether this verl's trainer keeps the answers in a TransferQueue."""
    return version >= QUEUE and WITHOUT_QUEUE not in options


def held_by_gpus(version: Version, gpus: int) -> int:
    """CPUs of the GPUs' placement groups."""
    return gpus * (3 if version >= THREE_A_GPU else 1)


def held_once(version: Version, options: Sequence[str]) -> int:
    """CPUs of the driver, which holds one up to 0.8 (main_ppo.py), or of the queue with one unit.

    An actor that asks for no number holds none, and is placed where none is free (Ray 2.54).
    """
    return (0 if version >= QUEUE else 1) + (CONTROLLER + 1 if has_queue(version, options) else 0)


def queue_units(version: Version, options: Sequence[str], *, cpus: int, gpus: int) -> dict[str, int]:
    """Fewer of the queue's units where Ray's CPUs do not do for all; nothing where they do, or are not known (0).

    `cpus` and `gpus` are those of all nodes. What the person says of the units or of Ray's CPUs himself stays.
    """
    if not cpus or not has_queue(version, options) or any(name in each for each in options for name in (UNITS, RAY)):
        return {}
    left = cpus - held_by_gpus(version, gpus) - CONTROLLER
    return {} if left >= UNITS_USUAL else {UNITS: max(1, left)}


def check_ray_cpus(settings: Mapping[str, Any], version: Version, *, cpus: int, gpus: int) -> None:
    """Refuse what Ray would wait for without end.

    `cpus` and `gpus` are a node's; what is needed once lies on any of the nodes.
    """
    options = settings["options"]
    if settings["task"] == "sft" or not cpus or any(RAY in each for each in options):
        return
    needed = held_by_gpus(version, gpus) + math.ceil(held_once(version, options) / settings["nodes"])
    if cpus < needed:
        raise BadInput(
            f"{cpus} CPUs for {gpus} GPUs of a node: verl {version} asks Ray for {needed}, and Ray waits without end",
            expected=f"{needed} CPUs on each node, {held_by_gpus(version, 1)} for each GPU among them",
            hint=f"in SLURM --slurm-option cpus-per-task={needed}; else a larger machine, or fewer --set gpus=N",
        )
