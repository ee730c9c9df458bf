"""Run the trainer's tests with the TRL version of each profile.

    python tests/campaigns/trl_versions.py DIR [PROFILE ...]

Installs each profile from its lock into DIR (20 GB for the default profiles; no GPU needed), then runs pytest.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROFILES = ["x86-cu124-hf", "x86-cu128-vllm", "x86-trl027-vllm", "cpu"]  # TRL 0.22.2, 0.23.1, 0.27.1, 1.16
TESTS = Path(__file__).resolve().parents[1] / "train"


def main() -> int:
    """Install missing environments, then run the tests marked `stack` without those that need a GPU."""
    folder, profiles = Path(sys.argv[1]).resolve(), sys.argv[2:] or PROFILES
    for profile in profiles:
        install = [sys.executable, "-m", "envdoctor", "install", "--profile", profile, "--force"]
        subprocess.run([*install, "--venv", str(folder / profile)], check=True)
    pythons = [str(folder / profile / "bin" / "python") for profile in profiles]
    variables = {"ENVDOCTOR_STACK_PYTHONS": ":".join(pythons), "ENVDOCTOR_STACK_PYTHON": pythons[-1]}
    pytest = [sys.executable, "-m", "pytest", "-q", "-m", "stack and not gpu", str(TESTS)]
    return subprocess.run(pytest, env=os.environ | variables, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
