"""Shared fixtures: a fake NVML library, a SLURM cluster, and a training stack installed by envdoctor."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.fakenvml.fixture import fake_nvml  # noqa: F401  a fixture is found by its name
from support.install_place import place  # noqa: F401
from support.paths import ROOT
from support.slurm_cluster import cluster  # noqa: F401


def pytest_configure() -> None:
    """Handle SIGINT where it is ignored, as in background jobs: children inherit this, and tests send SIGINT."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@dataclass(frozen=True)
class Quickstart:
    """The result of `envdoctor quickstart` in an empty home."""

    done: subprocess.CompletedProcess[str]
    home: Path

    @property
    def python(self) -> Path:
        """The interpreter of the installed environment."""
        return self.home / ".local/share/envdoctor/envs/cpu/bin/python"


@pytest.fixture(scope="session")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Quickstart:
    """Run quickstart once per session. Only uv's cache of wheels is shared with the real home."""
    shared = tmp_path_factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        shared = shared.parent  # shared by all workers: the first one runs quickstart
    home, result_file = shared / "quickstart", shared / "quickstart.json"
    with (shared / "quickstart.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not result_file.exists():
            home.mkdir()
            done = run_quickstart(home)
            result_file.write_text(json.dumps([done.returncode, done.stdout, done.stderr]))
    return Quickstart(subprocess.CompletedProcess([], *json.loads(result_file.read_text())), home)


def run_quickstart(home: Path) -> subprocess.CompletedProcess[str]:
    """Run `envdoctor quickstart` with this home."""
    cache = os.environ.get("UV_CACHE_DIR") or str(Path.home() / ".cache/uv")
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "OMP_NUM_THREADS")}
    return subprocess.run(
        [sys.executable, "-m", "envdoctor", "quickstart", "--profile", "cpu", "--format", "json"],
        capture_output=True, text=True, cwd=home, timeout=1500, check=False,
        env=kept | {"HOME": str(home), "UV_CACHE_DIR": cache, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


@pytest.fixture(scope="session")
def stack_python(request: pytest.FixtureRequest) -> Path:
    """An interpreter with the training stack: ENVDOCTOR_STACK_PYTHON, else that of quickstart."""
    if given := os.environ.get("ENVDOCTOR_STACK_PYTHON"):
        return Path(given)
    made: Quickstart = request.getfixturevalue("quickstart")
    if made.done.returncode:
        pytest.fail(f"quickstart failed: {made.done.stdout[-2000:]}\n{made.done.stderr[-4000:]}")
    return made.python
