"""Reports of collect_env."""

from __future__ import annotations

HEALTHY = {
    "PyTorch version": "2.8.0+cu128",
    "Is debug build": "False",
    "CUDA used to build PyTorch": "12.8",
    "ROCM used to build PyTorch": "N/A",
    "OS": "Ubuntu 22.04.5 LTS (x86_64)",
    "GCC version": "(Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0",
    "Clang version": "Could not collect",
    "CMake version": "Could not collect",
    "Libc version": "glibc-2.35",
    "Python version": "3.12.11 (main, Jun  4 2025, 08:56:18) [GCC 11.4.0] (64-bit runtime)",
    "Python platform": "Linux-5.15.0-126-generic-x86_64-with-glibc2.35",
    "Is CUDA available": "True",
    "CUDA runtime version": "Could not collect",
    "CUDA_MODULE_LOADING set to": "LAZY",
    "GPU models and configuration": "GPU 0: NVIDIA H100 80GB HBM3",
    "Nvidia driver version": "570.133.20",
    "cuDNN version": "Could not collect",
    "HIP runtime version": "N/A",
    "MIOpen runtime version": "N/A",
    "Is XNNPACK available": "True",
}


PACKAGES = {
    "numpy": "2.2.6",
    "torch": "2.8.0+cu128",
    "torchaudio": "2.8.0+cu128",
    "torchvision": "0.23.0+cu128",
    "triton": "3.4.0",
}


def torch_report(lines: dict[str, str], packages: dict[str, str], before: str = "") -> str:
    """A report of `python -m torch.utils.collect_env`."""
    facts = "\n".join(f"{name}: {value}" for name, value in (HEALTHY | lines).items())
    versions = "\n".join(f"[pip3] {name}=={version}" for name, version in (PACKAGES | packages).items() if version)
    libraries = f"Versions of relevant libraries:\n{versions}\n[conda] Could not collect\n"
    return f"{before}Collecting environment information...\n{facts}\n\n{libraries}"


def vllm_report(lines: dict[str, str], packages: dict[str, str], vllm: str) -> str:
    """A report of vLLM's collect_env."""
    facts = HEALTHY | lines
    sections = {
        "System Info": ("OS", "GCC version", "Clang version", "CMake version", "Libc version"),
        "PyTorch Info": (
            "PyTorch version",
            "Is debug build",
            "CUDA used to build PyTorch",
            "ROCM used to build PyTorch",
        ),
        "Python Environment": ("Python version", "Python platform"),
        "CUDA / GPU Info": (
            "Is CUDA available",
            "CUDA runtime version",
            "CUDA_MODULE_LOADING set to",
            "GPU models and configuration",
            "Nvidia driver version",
            "cuDNN version",
            "HIP runtime version",
            "MIOpen runtime version",
            "Is XNNPACK available",
        ),
    }
    rule = "=" * 30
    text = ["Collecting environment information..."]
    for title, names in sections.items():
        text += [rule, f"        {title}", rule, *(f"{name:28} : {facts[name]}" for name in names), ""]
    versions = PACKAGES | {"transformers": "4.57.1"} | packages
    text += [
        rule,
        "Versions of relevant libraries",
        rule,
        *(f"[pip3] {name}=={version}" for name, version in versions.items() if version),
    ]
    text += [
        "[conda] Could not collect",
        "",
        rule,
        "         vLLM Info",
        rule,
        "ROCM Version                 : Could not collect",
    ]
    text += [
        f"vLLM Version                 : {vllm}",
        "vLLM Build Flags:",
        "  CUDA Archs: Not Set; ROCm: Disabled",
        "",
        rule,
        "     Environment Variables",
        rule,
    ]
    text += [
        "LD_LIBRARY_PATH=/usr/local/nvidia/lib64:/usr/local/cuda/lib64",
        "CUDA_VISIBLE_DEVICES=0",
        "NCCL_CUMEM_ENABLE=0",
        "VLLM_WORKER_MULTIPROC_METHOD=spawn",
    ]
    return "\n".join(text) + "\n"
