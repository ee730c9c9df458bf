"""The training process: requirements, environment variables, device, time of each phase."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
import time
from typing import Any

from run.directory import RunDirectory
from settings import BadInput

MALLOC_TRIM_THRESHOLD, MALLOC_MMAP_THRESHOLD = -1, -3  # parameters in malloc.h


def check_requirements(settings: dict[str, Any]) -> None:
    """Refuse a run whose Hub token or tracker package is missing before it trains for hours."""
    if settings["hub_model_id"] and not os.environ.get("HF_TOKEN"):
        raise BadInput(
            f"hub_model_id = {settings['hub_model_id']}, but HF_TOKEN is not set",
            expected="a token with write permission, in the environment alone",
            hint="export HF_TOKEN, or --set hub_model_id=",
        )
    for name in settings["report_to"]:
        if importlib.util.find_spec(name) is None:
            raise BadInput(
                f"report_to = {name}, but {name} is not installed in {sys.prefix}",
                expected=f"the package {name} in the environment of torch and TRL",
                hint=f"uv pip install --python {sys.executable} {name}",
            )


def prepare_process(settings: dict[str, Any], run: RunDirectory) -> None:
    """Set the environment variables that the libraries read at import."""
    os.environ.setdefault("TENSORBOARD_LOGGING_DIR", str(run.path / "tensorboard"))  # read by transformers 5
    os.environ.setdefault("WANDB_DIR", str(run.path))
    os.environ.update(HF_HUB_DISABLE_TELEMETRY="1", DO_NOT_TRACK="1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if not settings["model"]:
        os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")  # the tiny model needs no hub
    if not settings["model"] and settings["hidden_size"] <= 128:
        # Two threads take 27 s for `sort` on two idle cores and 196 s next to another busy process, since they spin
        # at every barrier; one thread takes 34 s either way (200 steps).
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        keep_freed_memory()
    elif "LOCAL_WORLD_SIZE" in os.environ:
        cores = (os.cpu_count() or 1) // int(os.environ["LOCAL_WORLD_SIZE"])
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores)))
    if "WORLD_SIZE" not in os.environ and not settings["device_map"]:
        # With several GPUs in one process transformers wraps the model in DataParallel, which cannot generate.
        os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]


def keep_freed_memory() -> None:
    """Let glibc's malloc reuse freed memory instead of returning it to the kernel.

    The activations of a step of `sort` are above malloc's limits; their page faults took a tenth of the CPU time.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt:
        for parameter in (MALLOC_TRIM_THRESHOLD, MALLOC_MMAP_THRESHOLD):
            mallopt(parameter, 1 << 30)


def choose_device(*, use_cpu: bool) -> str:
    """Return "cpu" or "cuda"; select the GPU of this rank."""
    import torch

    if use_cpu or not torch.cuda.is_available():
        return "cpu"
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    return "cuda"


class PhaseTimer:
    """Seconds of each phase of a run."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._started = time.monotonic()

    def end(self, phase: str) -> None:
        """Add the time since the last call to a phase."""
        now = time.monotonic()
        self.seconds[phase] = round(self.seconds.get(phase, 0.0) + now - self._started, 2)
        self._started = now
