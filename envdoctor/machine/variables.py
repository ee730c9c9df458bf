"""Environment variables that affect a GPU stack; the values of secrets are redacted."""

from __future__ import annotations

import os
from collections.abc import Mapping

from envdoctor.core.records import Fact, absent, known
from envdoctor.knowledge.notebook_services import notebook_services
from envdoctor.redact.variables import redact_variable

# Names, and prefixes (ending in _), of variables that CUDA, NCCL, torch, triton, vLLM, Hugging Face, Ray,
# build tools and installers read.
NAMES = frozenset({
    "ATTN_IMPL", "BNB_CUDA_VERSION", "CC", "CXX", "CUDA_DEVICE_ORDER", "CUDA_HOME", "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "CUDAHOSTCXX", "GLOO_SOCKET_IFNAME", "HF_ENDPOINT",
    "HF_HOME", "HF_DATASETS_OFFLINE", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_TOKEN", "HIP_VISIBLE_DEVICES",
    "HUGGING_FACE_HUB_TOKEN", "LD_LIBRARY_PATH", "LD_PRELOAD", "MAX_JOBS", "NVCC_THREADS", "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_REQUIRE_CUDA", "OMP_NUM_THREADS",
    "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "PYTHONHOME", "PYTHONPATH",
    "ROCR_VISIBLE_DEVICES", "TOKENIZERS_PARALLELISM", "TORCHDYNAMO_DISABLE", "TRANSFORMERS_OFFLINE",
    "VIRTUAL_ENV", "CONDA_PREFIX", "WANDB_API_KEY", "WANDB_MODE", "MASTER_ADDR", "MASTER_PORT", "RANK",
    "WORLD_SIZE", "LOCAL_RANK", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
})  # fmt: skip
PREFIXES = ("NCCL_", "VLLM_", "TORCH_", "PYTORCH_", "TRITON_", "FLASH_ATTENTION_", "RAY_", "UV_", "PIP_")
SLURM = ("SLURM_JOB_ID", "SLURM_JOB_PARTITION", "SLURM_JOB_NUM_NODES", "SLURM_JOB_NODELIST", "SLURM_GPUS_ON_NODE",
         "SLURM_NTASKS", "SLURM_PROCID", "SLURM_MEM_PER_NODE", "SLURM_CPUS_ON_NODE")  # fmt: skip


def read_environment(environ: Mapping[str, str] = os.environ) -> Fact[dict[str, str]]:
    """The relevant variables by name."""
    names = NAMES | {service.variable for service in notebook_services()}
    variables = {
        name: redact_variable(name, value)
        for name, value in sorted(environ.items())
        if name in names or name.startswith(PREFIXES)
    }
    return known(variables, "environment")


def read_slurm(environ: Mapping[str, str] = os.environ) -> Fact[dict[str, str]]:
    """The SLURM allocation of this process; absent outside of one."""
    found = {name: environ[name] for name in SLURM if name in environ}
    return known(found, "environment") if "SLURM_JOB_ID" in found else absent("environment")
