"""`envdoctor quickstart` in an empty home, once for all workers of a test session.

    python -m support.quickstart FOLDER

runs it in the background: the tests that need no stack run meanwhile.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from support.command import COMMAND
from support.paths import ROOT, TESTS, TRAIN


@dataclass(frozen=True)
class Quickstart:
    """The result of `envdoctor quickstart` in an empty home."""

    done: subprocess.CompletedProcess[str]
    home: Path

    @property
    def python(self) -> Path:
        """The interpreter of the installed environment."""
        return self.home / ".local/share/envdoctor/envs/cpu/bin/python"


SHORTER = {"digits": 3, "held_out_multisets": 60, "sft_steps": 30, "max_completion_length": 5, "max_steps": 30}

STARTED: list[subprocess.Popen[bytes]] = []  # without a reference, the end of the object is a ResourceWarning


def start_in_background(folder: Path) -> None:
    """Start a process that runs quickstart in a folder and outlives a failed test session by at most its run."""
    process = subprocess.Popen(
        [sys.executable, "-m", "support.quickstart", str(folder)], env=os.environ | {"PYTHONPATH": f"{TESTS}:{ROOT}"},
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    STARTED.append(process)


def run_once(folder: Path) -> Quickstart:
    """Run quickstart in a folder, wait for the process that runs it there, or read its result."""
    home, result_file = folder / "quickstart", folder / "quickstart.json"
    with (folder / "quickstart.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not result_file.exists():
            home.mkdir(exist_ok=True)
            done = _run(home)
            result_file.write_text(json.dumps([done.returncode, done.stdout, done.stderr]))
    return Quickstart(subprocess.CompletedProcess([], *json.loads(result_file.read_text())), home)


def _run(home: Path) -> subprocess.CompletedProcess[str]:
    """Run quickstart. Only uv's cache of wheels is shared with the real home.

    It sorts three digits in 30 of the 200 steps of the recipe, which suffice to learn, with one thread, since threads
    of OpenMP wait for each other in busy loops; ENVDOCTOR_REAL_STARTS=1: the recipe itself.
    """
    recipe = home / "sort.toml"
    text = (TRAIN / "recipes/sort.toml").read_text(encoding="utf-8")
    for name, value in SHORTER.items():
        text, count = re.subn(rf"(?m)^{name} = \d+", f"{name} = {value}", text)
        assert count == 1, name
    recipe.write_text(text, encoding="utf-8")
    cache = os.environ.get("UV_CACHE_DIR") or str(Path.home() / ".cache/uv")
    removed = ("PYTHONPATH", "OMP_NUM_THREADS", "UV_HTTP_RETRIES")
    kept = {name: value for name, value in os.environ.items() if name not in removed}
    shorter: list[str] = []
    if not os.environ.get("ENVDOCTOR_REAL_STARTS"):
        shorter = ["--recipe", str(recipe)]
        kept["OMP_NUM_THREADS"] = "1"
    return subprocess.run(
        [*COMMAND, "quickstart", "--profile", "cpu", *shorter, "--format", "json"],
        capture_output=True, text=True, cwd=home, timeout=1500, check=False,
        env=kept | {"HOME": str(home), "UV_CACHE_DIR": cache, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


if __name__ == "__main__":
    run_once(Path(sys.argv[1]))
