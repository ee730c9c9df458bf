"""Specifications of launches, and their job files."""

from __future__ import annotations

from typing import Any

import msgspec

from envdoctor.training.launchers.plan import plan_launch
from envdoctor.training.launchers.records import (
    JobOptions,
    LaunchContext,
    LaunchOptions,
    RunSpec,
)

CONTEXT = LaunchContext(
    host="login1", address="10.0.0.7", interface="eth0", interface_reason="the default route uses it",
    infiniband=(), cores=64, gpus=8, environ={}, limits=("ulimit -n 65536  # was 1024; sockets",),
)  # fmt: skip


SPEC = RunSpec(
    directory="/runs/sort-1", recipe="sort", engine="grpo", settings={"use_cpu": False}, python="/env/bin/python",
    program=("/tool/train/grpo.py", "/runs/sort-1"), node_program="/tool/node.py", folders=("/runs/sort-1", "/env"),
)  # fmt: skip


VERL = msgspec.structs.replace(SPEC, engine="verl", program=("/tool/train/verl_run.py", "/runs/sort-1"))


SFT = msgspec.structs.replace(VERL, settings={"task": "sft", "nodes": 1})


def context_with(**changes: Any) -> LaunchContext:
    """The launch context of these tests, with changes."""
    return msgspec.structs.replace(CONTEXT, **changes)


def job(**options: Any) -> LaunchOptions:
    """The options of a SLURM job on two nodes with eight GPUs."""
    return LaunchOptions("slurm", nodes=2, gpus=8, job=JobOptions(**options))


def job_text(options: LaunchOptions | None = None, spec: RunSpec = SPEC, **changes: Any) -> str:
    """The sbatch script of a job."""
    return plan_launch(options or job(), spec, context_with(**changes)).files["job.sbatch"]
