"""Detect the GPUs, CPUs and libraries of the environment that runs verl."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from settings import BadInput
from verl_engine.process import Children

# Runs in a child process: importing torch takes seconds, and its CUDA context would occupy GPU memory during the run.
# CPUs are counted as Ray counts them when it starts here (a container's limit, not the machine's CPUs). The launchers
# of an existing Ray count the CPUs of the job.
PROBE = """
import json, os, sys, torch
cpus = os.cpu_count() or 1
if "RAY_ADDRESS" in os.environ:
    cpus = len(os.sched_getaffinity(0))
elif sys.argv[1] != "sft":
    try:
        from ray._private.utils import get_num_cpus
        cpus = int(get_num_cpus())
    except Exception:
        pass
count = torch.cuda.device_count() if torch.cuda.is_available() else 0
first = torch.cuda.get_device_properties(0) if count else None
memory = {"gib": first.total_memory / 2**30, "name": first.name} if first else {"gib": 0, "name": ""}
print("\\n" + json.dumps({"gpus": count, "cpus": cpus, **memory}))
"""


@dataclass(frozen=True)
class Inventory:
    """The GPUs that torch detects, and the installed libraries."""

    gpus: int
    gib: float  # memory of the first GPU
    name: str
    flash_attention: bool
    versions: dict[str, str] = field(default_factory=dict)
    cpus: int = 0  # 0: unknown


def detect_inventory(settings: Mapping[str, Any], children: Children) -> Inventory:
    """Detect GPUs and libraries; refuse an environment without vLLM for PPO and GRPO."""
    lines: list[str] = []
    status = children.run([sys.executable, "-c", PROBE, settings["task"]], {}, Path.cwd(), lines.append)
    try:
        devices = json.loads(lines[-1])
    except (IndexError, ValueError):
        raise BadInput(
            f"torch cannot list the GPUs in {sys.prefix} (exit status {status}): {''.join(lines).strip()[-300:]}",
            expected="an importable torch", hint="envdoctor verify",
        ) from None  # fmt: skip
    versions = {}
    for name in ("torch", "transformers", "vllm", "ray"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    if settings["task"] != "sft" and "vllm" not in versions:
        raise BadInput(
            f"vLLM is not installed in {sys.prefix}", expected="vLLM, which verl uses to generate completions",
            hint="envdoctor install verl-8gpu",
        )  # fmt: skip
    flash_attention = importlib.util.find_spec("flash_attn") is not None
    return Inventory(
        devices["gpus"], devices["gib"], devices["name"], flash_attention, versions, devices["cpus"]
    )  # fmt: skip
