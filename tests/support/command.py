"""The command line in a process of its own, with an empty home.

`envdoctor` runs a command in a fork of an interpreter that has imported the package and read its tables, which saves
its start. Tests of start-up, signals and streams use `COMMAND`, a new interpreter. With ENVDOCTOR_REAL_STARTS=1 every
command is one.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from contextlib import AbstractContextManager, ExitStack
from functools import cache
from pathlib import Path
from typing import Any

from support.forking import session_interpreter
from support.paths import PACKAGE, ROOT, TESTS, TRAIN

from envdoctor.core.processes import REMOVED_VARIABLES

COMMAND = (sys.executable, "-m", "envdoctor")


def environment(home: Path, **extra: str) -> dict[str, str]:
    """The variables of a user's shell, without this machine's settings for uv, NVIDIA, CUDA, NCCL and SLURM."""
    removed = ("UV_", "NVIDIA_", "CUDA_", "NCCL_", "SLURM_")
    others = ("COLUMNS", "NO_COLOR")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(removed) and name not in others}
    if retries := os.environ.get("UV_HTTP_RETRIES"):  # see conftest.py
        kept["UV_HTTP_RETRIES"] = retries
    return kept | {"HOME": str(home), "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"} | extra


@cache
def interpreter() -> str:
    """The program that runs envdoctor's commands: a forking interpreter, which all workers share.

    The trainer's checks that these commands run are forks of another interpreter.
    """
    if os.environ.get("ENVDOCTOR_REAL_STARTS"):
        return sys.executable
    files = [path for path in sorted(PACKAGE.rglob("*.py")) if not path.is_relative_to(PACKAGE / "probes")]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in files]
    modules = [name for name in names if not name.endswith("__main__")]
    variables = environment(Path("/")) | {"ENVDOCTOR_CHECK_INTERPRETER": check_interpreter()}
    modules.append("support.preload")
    return _started(session_interpreter("commands", Path(sys.executable), modules, variables, folders=[TESTS]))


@cache
def check_interpreter() -> str:
    """The program that runs the trainer's checks with `check_environment`: a fork with its modules imported."""
    if os.environ.get("ENVDOCTOR_REAL_STARTS"):
        return sys.executable
    modules = ["grpo", "plan", "verl_run", str(TESTS / "support/preload_checks.py")]
    variables = check_environment(Path("/"))
    return _started(session_interpreter("checks", Path(sys.executable), modules, variables, folders=[TRAIN]))


def check_environment(home: Path) -> dict[str, str]:
    """The variables with which the commands start a check of the trainer."""
    return {name: value for name, value in environment(home).items() if name not in REMOVED_VARIABLES}


def _started(server: AbstractContextManager[Path]) -> str:
    """The program of a fork server that ends with this process."""
    resources = ExitStack()
    atexit.register(resources.close)
    return str(resources.enter_context(server))


def envdoctor(
    *arguments: str | Path, home: Path, cwd: Path | None = None, **extra: str
) -> subprocess.CompletedProcess[str]:
    """Run one command."""
    return subprocess.run(
        [interpreter(), "-m", "envdoctor", *map(str, arguments)],
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
