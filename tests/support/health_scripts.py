"""A program `envdoctor` for scripts of cluster nodes: the real one, with a fake NVML library and a kernel log."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

from support.paths import ROOT

XID = "6,1000,5130000,-;NVRM: Xid (PCI:0000:41:00): {code}, pid='<unknown>', name=<unknown>, a fault.\n"


def write_program(folder: Path, fake: dict[str, str], *codes: int) -> Path:
    """Write a program that runs envdoctor with a fake library and these Xids in the kernel log."""
    log = folder / "kernel.log"
    log.write_text("6,999,5120000,-;nvidia-nvlink: Nvlink Core is being initialized\n")
    with log.open("a") as stream:
        stream.writelines(XID.format(code=code) for code in codes)
    variables = {name: fake[name] for name in ("LD_LIBRARY_PATH", "FAKE_NVML_CONFIG")} | {
        "PYTHONPATH": str(ROOT), "HOME": str(folder), "ENVDOCTOR_CONFIG": "/dev/null",
    }  # fmt: skip
    words = [f"{name}={value}" for name, value in variables.items()]
    line = shlex.join(["env", *words, sys.executable, "-m", "envdoctor"])
    return write_script(folder / "envdoctor", f'exec {line} "$@" --kernel-log {log} --xid-hours 1000000\n')


def write_script(path: Path, text: str) -> Path:
    """Write an executable bash script."""
    path.write_text(f"#!/bin/bash\n{text}")
    path.chmod(0o755)
    return path


def run_script(path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script as slurmd does, without a search path and a home."""
    return subprocess.run(
        ["/bin/bash", path], capture_output=True, text=True, env=variables, timeout=120, check=False, cwd=path.parent
    )
