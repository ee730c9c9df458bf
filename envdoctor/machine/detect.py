"""Detect all facts of this machine."""

from __future__ import annotations

import os
from pathlib import Path

from envdoctor.core.records import Fact, Machine, absent, known, unreadable
from envdoctor.machine.cuda import read_cuda
from envdoctor.machine.driver import read_driver
from envdoctor.machine.gpu import read_nvml
from envdoctor.machine.interpreters import read_interpreters
from envdoctor.machine.limits import read_limits
from envdoctor.machine.memory import read_memory
from envdoctor.machine.shared_memory import with_shared_memory
from envdoctor.machine.storage import read_storage
from envdoctor.machine.system import read_system
from envdoctor.machine.variables import read_environment, read_slurm


def read_machine() -> Machine:
    """Read all facts; a fact that cannot be read is unreadable, with the reason."""
    nvml, memory = read_nvml(), read_memory()
    return Machine(
        origin="read on this machine",
        system=read_system(),
        memory=memory,
        storage=read_storage(),
        limits=read_limits(),
        pythons=read_interpreters(),
        driver=read_driver(nvml),
        gpus=with_shared_memory(nvml.gpus, memory),
        cuda=read_cuda(),
        environment=read_environment(),
        interfaces=_read_interfaces(),
        slurm=read_slurm(),
    )


def _read_interfaces(directory: Path = Path("/sys/class/net")) -> Fact[tuple[str, ...]]:
    try:
        names = tuple(sorted(os.listdir(directory)))  # noqa: PTH208  names, not paths
    except OSError as error:
        return unreadable(str(directory), str(error.strerror))
    return known(names, str(directory)) if names else absent(str(directory))
