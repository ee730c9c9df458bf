"""The compiled files that a library always loads, and those that it loads only on some GPUs."""

from __future__ import annotations

from envdoctor.core.records import Extension

# Patterns of the paths that a library always loads; these need code for every GPU. Its other files contain kernels
# for specific GPUs (FlashMLA, FlashAttention 3), and the library does not load them elsewhere.
MAIN_FILES = {
    "vllm": r"vllm/(_C|_moe_C)(_stable_libtorch)?(\.\w+)*\.so$",
    "flash-attn": r"flash_attn_2_cuda(\.[\w-]+)*\.so$",
    "xformers": r"xformers/_C(\.\w+)*\.so$",
    "sgl-kernel": r"sgl_kernel/(common_ops|sm\w+/common_ops)(\.[\w-]+)*\.so$",
    "sglang-kernel": r"sgl_kernel/(common_ops|sm\w+/common_ops)(\.[\w-]+)*\.so$",  # its name from 0.4 on
    "causal-conv1d": r"causal_conv1d_cuda(\.[\w-]+)*\.so$",
    "mamba-ssm": r"selective_scan_cuda(\.[\w-]+)*\.so$",
    "torchvision": r"torchvision/_C(\.\w+)*\.so$",
    "exllamav2": r"exllamav2_ext(\.[\w-]+)*\.so$",
    "auto-gptq": r"autogptq_cuda_\w+(\.[\w-]+)*\.so$",
    "autoawq-kernels": r"awq_ext(\.[\w-]+)*\.so$",
    "deepspeed": r"deepspeed/ops/\w+(\.[\w-]+)*\.so$",
}


# Distributions, by the beginning of their name, that load only what the GPU or the caller needs. nccl-extensions has
# the libraries of nccl.ep and nccl.m2n: communication between GPUs that FlashInfer and vLLM use on request. torchao
# 0.18 has compiled kernels for Hopper's sparsity and for MXFP8 only.
SELECTIVE = (
    "nvidia-", "bitsandbytes", "cupy", "torchcodec", "torchaudio", "tensorflow", "jax", "onnxruntime",
    "nccl-extensions", "torchao",
)  # fmt: skip


def is_optional(file: Extension) -> bool:
    """Whether a library contains this file for other machines and loads it only where it is needed."""
    return file.distribution == "" or file.distribution.startswith(SELECTIVE)
