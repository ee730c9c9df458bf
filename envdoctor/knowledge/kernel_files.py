"""Which of a library's compiled files it always loads, and which it chooses among."""

from __future__ import annotations

from envdoctor.core.records import Extension

# Files that a library loads always, by a pattern of their path: only these must have code for every GPU. The others
# hold kernels for single chips (FlashMLA, FlashAttention 3), which a healthy library leaves alone elsewhere.
MAIN_FILES = {
    "vllm": r"vllm/(_C|_moe_C)(\.\w+)*\.so$",
    "flash-attn": r"flash_attn_2_cuda(\.[\w-]+)*\.so$",
    "xformers": r"xformers/_C(\.\w+)*\.so$",
    "sgl-kernel": r"sgl_kernel/(common_ops|sm\w+/common_ops)(\.[\w-]+)*\.so$",
    "causal-conv1d": r"causal_conv1d_cuda(\.[\w-]+)*\.so$",
    "mamba-ssm": r"selective_scan_cuda(\.[\w-]+)*\.so$",
    "torchvision": r"torchvision/_C(\.\w+)*\.so$",
    "exllamav2": r"exllamav2_ext(\.[\w-]+)*\.so$",
    "auto-gptq": r"autogptq_cuda_\w+(\.[\w-]+)*\.so$",
    "autoawq-kernels": r"awq_ext(\.[\w-]+)*\.so$",
    "deepspeed": r"deepspeed/ops/\w+(\.[\w-]+)*\.so$",
}


def is_optional(file: Extension) -> bool:
    """Files that a library carries for other machines than this one and loads by choice."""
    chosen = ("nvidia-", "bitsandbytes", "cupy", "torchcodec", "torchaudio", "tensorflow", "jax", "onnxruntime")
    return file.distribution == "" or file.distribution.startswith(chosen)
