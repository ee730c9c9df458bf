"""GPU architectures: the compute capabilities that compiled code runs on."""

from __future__ import annotations

import re
from collections.abc import Iterable

from envdoctor.core.records import Gpu

Capability = tuple[int, int]

# Binary compatibility within a major version does not include Tegra chips
# (CUDA C programming guide, "Binary compatibility").
TEGRA: frozenset[Capability] = frozenset({(5, 3), (6, 2), (7, 2), (8, 7), (10, 1), (11, 0)})

# PTX ISA by CUDA release. 11.7 to 13.5: the newest `.version` that ptxas of NVIDIA's wheels accepts (measured
# 2026-11-21). Earlier releases and 12.7: docs.nvidia.com/cuda/parallel-thread-execution, release notes.
PTX_OF_CUDA = {
    "11.0": "7.0", "11.1": "7.1", "11.2": "7.2", "11.3": "7.3", "11.4": "7.4", "11.5": "7.5", "11.6": "7.6",
    "11.7": "7.7", "11.8": "7.8", "12.0": "8.0", "12.1": "8.1", "12.2": "8.2", "12.3": "8.3", "12.4": "8.4",
    "12.5": "8.5", "12.6": "8.5", "12.7": "8.6", "12.8": "8.7", "12.9": "8.8", "13.0": "9.0", "13.1": "9.1",
    "13.2": "9.2", "13.3": "9.3", "13.4": "9.4", "13.5": "9.5",
}  # fmt: skip
# Minimum share of a file's fatbin entries. A few entries mean nothing: vLLM's _C has one empty kernel for
# `sm_52 compute_52`.
PTX_SHARE = 0.1


def capability_of(gpu: Gpu) -> Capability | None:
    """The compute capability as a pair; None if it is unknown."""
    found = re.fullmatch(r"(\d+)\.(\d+)", gpu.compute_capability.value or "")
    return (int(found[1]), int(found[2])) if found else None


def architecture(text: str) -> tuple[Capability, str] | None:
    """`sm_90a` and `compute_120` as ((9, 0), "a") and ((12, 0), ""); None for anything else."""
    found = re.fullmatch(r"(?:sm|compute)_(\d+)(\d)([af]?)", text)
    return ((int(found[1]), int(found[2])), found[3]) if found else None


def runs_native(code: Iterable[str], gpu: Capability) -> bool:
    """Whether native code for these architectures (`sm_80`, `sm_90a`) runs on the GPU.

    Within one major version newer chips run the code of older ones. "a" code runs only on its own chip, "f" code on
    its family. Tegra chips run only their own code.
    """
    parsed = (architecture(name) for name in code if name.startswith("sm_"))
    return any(
        target and (target[0] == gpu or (target[1] != "a" and _same_family(target[0], gpu))) for target in parsed
    )


def runs_as_ptx(code: Iterable[str], gpu: Capability) -> bool:
    """Whether the driver can compile PTX for one of these (`compute_80`) for the GPU.

    PTX is compatible with every newer chip. "a" PTX runs only on its own chip, "f" PTX on its family
    (CUDA C++ programming guide, "Family-specific architecture features").
    """
    parsed = (architecture(name) for name in code if name.startswith("compute_"))
    return any(_compiles_ptx(*target, gpu) for target in parsed if target)


def _compiles_ptx(target: Capability, suffix: str, gpu: Capability) -> bool:
    return target == gpu or (not suffix and target < gpu) or (suffix == "f" and _same_family(target, gpu))


def _same_family(target: Capability, gpu: Capability) -> bool:
    """Whether native code for one chip runs on another of the same major version."""
    return target[0] == gpu[0] and target[1] <= gpu[1] and not {target, gpu} & TEGRA
