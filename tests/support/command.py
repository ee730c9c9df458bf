"""Run the command line in its own process with an empty home."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.paths import ROOT


def environment(home: Path, **extra: str) -> dict[str, str]:
    """The variables of a user's shell, without this machine's settings for uv, NVIDIA, CUDA, NCCL and SLURM."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("UV_", "NVIDIA_", "CUDA_", "NCCL_", "SLURM_")) and name not in ("COLUMNS", "NO_COLOR")
    }
    return kept | {"HOME": str(home), "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"} | extra


def envdoctor(
    *arguments: str | Path, home: Path, cwd: Path | None = None, **extra: str
) -> subprocess.CompletedProcess[str]:
    """Run one command."""
    return subprocess.run(
        [sys.executable, "-m", "envdoctor", *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment(home, **extra),
        cwd=cwd or home,
        timeout=300,
        check=False,
    )


def envelope(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Parse the JSON envelope, which must be the only output on stdout."""
    data = json.loads(done.stdout)
    assert isinstance(data, dict)
    return data


def snapshot(folder: Path) -> dict[str, bytes]:
    """The content of every file below a folder, to check that nothing changed."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
