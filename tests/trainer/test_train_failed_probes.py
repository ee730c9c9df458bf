"""Settings whose probe failed in verify are refused."""

from __future__ import annotations

import pytest
from run.proven_kernels import PROBES, check_failed_probes
from settings import BadInput
from support.paths import PACKAGE
from support.stacks import defaults

BUNDLED = PACKAGE / "probes"


@pytest.mark.parametrize(
    ("changed", "probe"),
    [
        ({"load_in_4bit": True, "bnb_4bit_quant_type": "fp4"}, "bitsandbytes_nf4"),
        ({"use_vllm": True}, "vllm_generate"),
        ({"use_liger_kernel": True}, "liger_grpo"),
        ({"torch_compile": True}, "torch_compile"),
        ({"optim": "paged_adamw_8bit"}, "bitsandbytes_adam8bit"),
    ],
)
def test_only_settings_with_a_failed_probe_are_refused(changed: dict[str, object], probe: str) -> None:
    check_failed_probes(defaults(**changed), {})
    check_failed_probes(defaults(**changed), {"failed": ["nccl_allreduce"]})
    check_failed_probes(defaults(), {"failed": [probe]})
    with pytest.raises(BadInput, match=f"verify's probe {probe} failed") as caught:
        check_failed_probes(defaults(**changed), {"failed": [probe]})
    assert caught.value.hint == f"envdoctor verify --only {probe}"


def test_every_probe_named_is_bundled() -> None:
    assert all((BUNDLED / f"{probe}.py").exists() for probes in PROBES.values() for probe in probes.values())
