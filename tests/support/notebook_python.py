"""A Python with torch on PATH, as in Google Colab and Kaggle."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from support.command import envdoctor, envelope
from support.local_packages import PYTHON, write_wheel

from envdoctor.locking.uv import find_uv

TORCH = "2.11.0+cu128"
COLAB = {"COLAB_RELEASE_TAG": "release-colab-external_20260819-060047_RC00"}


class Notebook:
    """A Python with torch on PATH, as in Google Colab, and a folder of wheels."""

    def __init__(self, folder: Path) -> None:
        self.home, self.wheels, self.python = folder, folder / "wheels", folder / "usr/bin/python3"
        write_wheel(self.wheels, "torch", TORCH, requires=["nvidia-nccl-cu12==2.28.9"])
        write_wheel(self.wheels, "nvidia-nccl-cu12", "2.28.9")
        write_wheel(self.wheels, "numpy", "2.1.3")
        self.uv("venv", "-q", "--python", PYTHON, str(folder / "usr"))
        places = ["--no-config", "--no-index", "--find-links", str(self.wheels), "--python", str(self.python)]
        self.uv("pip", "install", "-q", *places, "torch", "numpy")
        for name, version in (("torch", "2.13.0"), ("nvidia-nccl-cu12", "2.31.2"), ("numpy", "2.2.0")):
            write_wheel(self.wheels, name, version)
        write_wheel(self.wheels, "trl", "1.16.0", requires=["torch>=2.6", "numpy>=2.2"])
        write_wheel(self.wheels, "newer", "1.0", requires=["torch>=2.12"])

    def uv(self, *words: str) -> None:
        subprocess.run([find_uv(), *words], check=True)

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        places = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.wheels)}
        path = f"{self.python.parent}:/usr/bin:/bin"
        return envdoctor(*words, home=self.home, **(places | {"PATH": path} | variables))

    def versions(self) -> dict[str, str]:
        site = next(self.home.glob("usr/lib/python*/site-packages"))
        return dict(path.name.removesuffix(".dist-info").split("-") for path in site.glob("*.dist-info"))


def data_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The result of a successful command with --format json."""
    assert done.returncode == 0, done.stderr + done.stdout
    data: dict[str, Any] = envelope(done)["data"]
    return data
