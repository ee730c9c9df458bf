"""GPU architectures: which compiled code runs on which compute capability."""

from __future__ import annotations

import re
from collections.abc import Iterable

from envdoctor.core.records import Gpu

Capability = tuple[int, int]

# Code for one chip does not run on another of the same major version where one of the two is a Tegra
# (CUDA C programming guide, "Binary compatibility").
TEGRA: frozenset[Capability] = frozenset({(5, 3), (6, 2), (7, 2), (8, 7), (10, 1), (11, 0)})

# PTX ISA by CUDA release: 11.7 to 13.5 measured, as the newest `.version` that ptxas of NVIDIA's wheels takes
# (2026-11-21); those before and 12.7 by docs.nvidia.com/cuda/parallel-thread-execution, release notes.
PTX_OF_CUDA = {
    "11.0": "7.0", "11.1": "7.1", "11.2": "7.2", "11.3": "7.3", "11.4": "7.4", "11.5": "7.5", "11.6": "7.6",
    "11.7": "7.7", "11.8": "7.8", "12.0": "8.0", "12.1": "8.1", "12.2": "8.2", "12.3": "8.3", "12.4": "8.4",
    "12.5": "8.5", "12.6": "8.5", "12.7": "8.6", "12.8": "8.7", "12.9": "8.8", "13.0": "9.0", "13.1": "9.1",
    "13.2": "9.2", "13.3": "9.3", "13.4": "9.4", "13.5": "9.5",
}  # fmt: skip
# Of a file's containers: single ones are no sign. vLLM's _C has one empty kernel as `sm_52 compute_52`.
PTX_SHARE = 0.1


def capability_of(gpu: Gpu) -> Capability | None:
    """The compute capability as a pair to compare by; None if it is not known."""
    found = re.fullmatch(r"(\d+)\.(\d+)", gpu.compute_capability.value or "")
    return (int(found[1]), int(found[2])) if found else None


def architecture(text: str) -> tuple[Capability, str] | None:
    """`sm_90a` and `compute_120` as ((9, 0), "a") and ((12, 0), ""); None for anything else."""
    found = re.fullmatch(r"(?:sm|compute)_(\d+)(\d)([af]?)", text)
    return ((int(found[1]), int(found[2])), found[3]) if found else None


def runs_native(code: Iterable[str], gpu: Capability) -> bool:
    """Whether native code of these architectures (`sm_80`, `sm_90a`) runs on the GPU.

    Within one major version newer chips run the code of older ones; "a" code runs on exactly its chip, "f" code on
    its family, and Tegra chips only on code of their own.
    """
    for each in code:
        parsed = architecture(each) if each.startswith("sm_") else None
        if not parsed:
            continue
        built, suffix = parsed
        if built == gpu or (suffix != "a" and _is_of_family(built, gpu)):
            return True
    return False


def runs_as_ptx(code: Iterable[str], gpu: Capability) -> bool:
    """Whether the driver can compile PTX of one of these (`compute_80`) for the GPU.

    PTX goes forward to every newer chip; that with "a" to none but its own, that with "f" to its family
    (CUDA C++ programming guide, "Family-specific architecture features").
    """
    parsed = [architecture(each) for each in code if each.startswith("compute_")]
    return any(
        each
        and (each[0] == gpu or (not each[1] and each[0] < gpu) or (each[1] == "f" and _is_of_family(each[0], gpu)))
        for each in parsed
    )


def _is_of_family(built: Capability, gpu: Capability) -> bool:
    """Whether code for one chip's family runs on another of the same major version."""
    return built[0] == gpu[0] and built[1] <= gpu[1] and not {built, gpu} & TEGRA
