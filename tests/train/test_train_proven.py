"""What verify found wrong is not trained with."""

from __future__ import annotations

from pathlib import Path

import pytest
from run.proven_kernels import PROBES, refuse_what_is_wrong
from settings import BadInput
from stacks import defaults

BUNDLED = Path(__file__).resolve().parents[2] / "envdoctor" / "probes"


@pytest.mark.parametrize(
    ("changed", "probe"),
    [
        ({"quantization": "fp4"}, "bitsandbytes_nf4"),
        ({"generation": "vllm-colocate"}, "vllm_generate"),
        ({"liger_loss": True}, "liger_grpo"),
        ({"compile": True}, "torch_compile"),
        ({"optimizer": "paged_adamw_8bit"}, "bitsandbytes_adam8bit"),
    ],
)
def test_what_failed_is_refused_and_nothing_else(changed: dict[str, object], probe: str) -> None:
    refuse_what_is_wrong(defaults(**changed), {})
    refuse_what_is_wrong(defaults(**changed), {"failed": ["nccl_allreduce"]})
    refuse_what_is_wrong(defaults(), {"failed": [probe]})
    with pytest.raises(BadInput, match=f"verify's probe {probe} did not pass") as caught:
        refuse_what_is_wrong(defaults(**changed), {"failed": [probe]})
    assert caught.value.hint == f"envdoctor verify --only {probe}"


def test_every_probe_named_is_bundled() -> None:
    assert all((BUNDLED / f"{probe}.py").exists() for probes in PROBES.values() for probe in probes.values())
