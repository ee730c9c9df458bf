"""Liger's kernels in a loaded model; on a GPU they are in the cases of tests/benchmarks/trainer_gpu.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.stacks import TINY, defaults, run_code

LIGER = (
    TINY
    + """
from modeling import loading as models
from settings import BadInput

root = Path(given[0])
save_qwen2(root / "qwen2")


def load(wanted):
    settings = given[1] | {"model": str(root / "qwen2"), "liger_kernels": wanted}
    try:
        loaded = models.load_model(settings, device="cpu")
    except BadInput as error:
        return [error.message, error.hint]
    return [settings["liger_kernels"], *[note for note in loaded.notes if "liger" in note]]


report(off=load("off"), auto=load("auto"), on=load("on"))
"""
)


@pytest.mark.stack
def test_ligers_kernels_are_applied_where_they_are_supported(stack_python: Path, tmp_path: Path) -> None:
    assert run_code(stack_python, LIGER, tmp_path, defaults()) == {
        "off": ["off"],
        "auto": ["off", "liger_kernels: off, since there is no GPU."],
        "on": ["liger_kernels = on, but there is no GPU", "--set liger_kernels=auto, or off"],
    }
