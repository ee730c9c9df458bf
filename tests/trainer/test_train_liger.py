"""Liger's kernels in a loaded model; on a GPU they are in the cases of tests/benchmarks/trainer_gpu.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.stacks import TINY, defaults, run_code
from support.trainer_runs import finish, start

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


@pytest.mark.stack
@pytest.mark.parametrize(
    ("setting", "value", "obstacle"),
    [
        ("liger_kernels", "on", "liger_kernels = on, but there is no GPU"),
        ("attn_implementation", "flash_attention_2", "attn_implementation = flash_attention_2: "),
        ("load_in_4bit", True, "load_in_4bit = true, but bitsandbytes is not installed"),
    ],
)
def test_a_dry_run_reports_missing_packages(
    setting: str, value: object, obstacle: str, stack_python: Path, tmp_path: Path
) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "qwen2"}')
    (tmp_path / "rows.jsonl").write_text(
        "".join(f'{{"prompt": "w{number}", "answer": "1"}}\n' for number in range(12))
    )
    paths = {"model": str(tmp_path / "model"), "data": str(tmp_path / "rows.jsonl")}
    settings = paths | {"rewards": ["length"], "use_cpu": True, "r": 4, "max_steps": 1, setting: value}
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text(json.dumps({"schema": 1, "recipe": "dataset", "settings": settings}))
    status, output = finish(start(stack_python, tmp_path / "run", "--dry-run"))
    assert status == 2, output
    assert obstacle in output
