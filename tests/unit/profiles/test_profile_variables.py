"""A profile of a stranger sets only variables that load no code and name no server."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.command import envdoctor
from support.local_packages import write_profile

from envdoctor.core.errors import EXIT_NO, Refused
from envdoctor.profiles import read_profile, read_profiles
from envdoctor.profiles.variables import other_variables, profile_digest, require_consent

LINE = 'OMP_NUM_THREADS = "1"'
# Each was accepted by a list of forbidden names.
HOSTILE = {
    "HF_ENDPOINT": "http://127.0.0.1:9", "OPENSSL_CONF": "./openssl.cnf", "OPENSSL_MODULES": ".",
    "TRITON_PTXAS_PATH": "./ptxas", "VLLM_NCCL_SO_PATH": "./nccl.so", "CUDA_INJECTION64_PATH": "./inject.so",
    "NCCL_NET_PLUGIN": "hostile", "NCCL_TUNER_PLUGIN": "hostile", "WANDB_BASE_URL": "http://127.0.0.1:9",
    "HF_MODULES_CACHE": ".", "MAKEFLAGS": "--eval=x", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1", "HF_HOME": ".",
    "TORCHINDUCTOR_CACHE_DIR": ".", "TRITON_CACHE_DIR": ".", "VLLM_PLUGINS": "x", "VLLM_USE_MODELSCOPE": "1",
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "1", "RAY_ADDRESS": "127.0.0.1:1", "MASTER_ADDR": "127.0.0.1",
    "NCCL_DEBUG_FILE": "/tmp/x", "NCCL_TOPO_FILE": "/tmp/x", "OMP_TOOL_LIBRARIES": "./x.so", "KMP_FORKJOIN": "x",
    "TORCH_EXTENSIONS_DIR": ".", "HSA_TOOLS_LIB": "x", "VLLM_CACHE_ROOT": ".", "TRANSFORMERS_CACHE": ".",
    "OMP_NUM_THREADS": "1; id", "NCCL_SOCKET_IFNAME": "/etc/passwd", "PYTORCH_CUDA_ALLOC_CONF": "backend:x",
    "VLLM_ATTENTION_BACKEND": "a.b:c", "WANDB_MODE": "http://x", "ATTN_IMPL": "owner/kernel",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_other_variables_need_consent(name: str, tmp_path: Path) -> None:
    path = write_profile(tmp_path / "mine.toml", "six==1.17.0")
    path.write_text(path.read_text().replace(LINE, f'{name} = "{HOSTILE[name]}"'))
    profile = read_profile(str(path))
    with pytest.raises(Refused, match=re.escape(f"{name}={HOSTILE[name]}")) as refused:
        require_consent(profile, str(path), "", "install")
    digest = profile_digest(str(path))
    assert refused.value.hint.endswith(f"--accept-variables {digest}")
    require_consent(profile, str(path), digest, "install")
    path.write_text(path.read_text() + "\n")
    with pytest.raises(Refused, match="of other content"):
        require_consent(profile, str(path), digest, "install")


def test_commands_that_use_the_variables_require_consent(tmp_path: Path) -> None:
    path = write_profile(tmp_path / "mine.toml", "six==1.17.0")
    path.write_text(path.read_text().replace(LINE, 'HF_ENDPOINT = "http://127.0.0.1:9"'))
    for command in (("install", "--dry-run"), ("quickstart",), ("export",)):
        done = envdoctor(*command, "--profile", path, home=tmp_path)
        assert done.returncode == EXIT_NO, done.stderr
        assert "HF_ENDPOINT=http://127.0.0.1:9" in done.stderr


def test_bundled_profiles_and_common_settings_need_no_consent(tmp_path: Path) -> None:
    assert not [text for profile in read_profiles() for text in other_variables(profile)]
    path = write_profile(tmp_path / "mine.toml", "six==1.17.0")
    lines = (
        'NCCL_DEBUG = "INFO"\nNCCL_SOCKET_IFNAME = "^lo,docker0"\nVLLM_ATTENTION_BACKEND = "FLASH_ATTN"\n'
        'PYTORCH_CUDA_ALLOC_CONF = "expandable_segments:True"\nTORCH_CUDA_ARCH_LIST = "8.0;9.0+PTX"\n'
        'HF_HUB_OFFLINE = "1"\nCUDA_DEVICE_MAX_CONNECTIONS = "1"'
    )
    path.write_text(path.read_text().replace(LINE, lines))
    assert list(other_variables(read_profile(str(path)))) == []
