"""The verdict of a memory plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.command import envdoctor, envelope

from envdoctor.commands.plan import MemoryPlan
from envdoctor.output.planning import _verdict

GIB = 1 << 30


@pytest.fixture
def plan(tmp_path: Path) -> MemoryPlan:
    done = envdoctor("plan", "gsm8k", "--machine", "h200", "--format", "json", home=tmp_path)
    return msgspec.convert(envelope(done)["data"], MemoryPlan)


def verdict(plan: MemoryPlan, **changed: Any) -> str:
    sizes = {"memory": 80 * GIB, "free": 80 * GIB, "usable": 79 * GIB, "gpu": "GPU"}
    return _verdict(msgspec.structs.replace(plan, **sizes | changed)).plain


def test_verdicts(plan: MemoryPlan) -> None:
    assert verdict(plan, fits=True, peak=60 * GIB) == "✓ fits: 60.0 of 80.0 GiB, 20.0 GiB to spare  GPU"
    partly = {"fits": True, "peak": 60 * GIB, "free": 70 * GIB}
    assert verdict(plan, **partly) == "✓ fits: 60.0 of 70.0 GiB free of 80.0, 10.0 GiB to spare  GPU"
    large = {"fits": False, "peak": 90 * GIB, "needed": 0}
    assert verdict(plan, **large) == ("✗ does not fit: 11.0 GiB too much; 90.0 needed, 79.0 of 80.0 GiB usable  GPU")
    with_vllm = {"fits": False, "peak": 70 * GIB, "needed": 81 * GIB}
    assert "2.0 GiB too much; 81.0 needed with the minimum of vLLM" in verdict(plan, **with_vllm)
    # All of the usable memory is not too much: vLLM's share is.
    share = {
        "fits": False,
        "peak": 79 * GIB,
        "needed": 79 * GIB,
        "vllm_shortage": 3 * GIB,
        "vllm_gpu_memory_utilization": 0.3,
    }
    assert (
        verdict(plan, **share) == "✗ does not fit: vLLM needs 3.0 GiB more than vllm_gpu_memory_utilization=0.3  GPU"
    )
