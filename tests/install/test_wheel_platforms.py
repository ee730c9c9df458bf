"""Wheels for aarch64 whose WHEEL file names that architecture in another way, as those of nvidia-cusparselt-cu13."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
from support.local_packages import PYTHON, write_wheel

from envdoctor.install.wheel_platforms import are_for_this_platform
from envdoctor.locking.uv import find_uv

SBSA = "py3-none-manylinux2014_sbsa"


@pytest.mark.parametrize(
    ("tag", "requires", "machine", "accepted"),
    [
        (SBSA, (), "aarch64", True),
        (SBSA, (), "x86_64", False),
        ("py3-none-win_arm64", (), "aarch64", False),
        (SBSA, ("absent",), "aarch64", False),
    ],
)
def test_uv_pip_check(tmp_path: Path, tag: str, requires: Iterable[str], machine: str, *, accepted: bool) -> None:
    wheel = write_wheel(tmp_path, "nvidia-cusparselt-cu13", "0.8.1", tag_inside=tag, requires=requires)
    venv = tmp_path / "venv"
    _uv("venv", "-q", "--python", PYTHON, str(venv))
    _uv("pip", "install", "-q", "--python", str(venv), "--no-deps", "--offline", str(wheel))
    checked = _uv("pip", "check", "--python", str(venv))
    assert checked.returncode == 1
    assert are_for_this_platform(checked.stderr, venv, machine) is accepted


def _uv(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([find_uv(), *words], capture_output=True, text=True, check=False)
