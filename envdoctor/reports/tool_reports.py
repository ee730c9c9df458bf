"""Parsers for the `env` commands of Hugging Face libraries, ds_report, sglang's check_env and xformers.info."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Filesystem
from envdoctor.reports.collect_env import DRIVER_VERSION, record_platform, record_python_version
from envdoctor.reports.gpus import is_gpu_name, record_gpu_names, record_torch_device
from envdoctor.reports.section import Line, Section, first_group, is_missing, is_version, parse_size


class Tool(NamedTuple):
    """A tool and the keys that only it prints."""

    kind: str
    distinctive_keys: tuple[str, ...]


# The order matters: LlamaFactory and diffusers also print the keys of TRL, and TRL those of transformers.
TOOLS = (
    Tool("ComfyUI system information", ("comfyui version", "embedded python")),
    Tool("accelerate env", ("accelerate default config", "accelerate bash location", "accelerate configs")),
    Tool("LlamaFactory env", ("llamafactory version", "llama-factory version")),
    Tool("diffusers env", ("running on google colab?", "running on a notebook?")),
    Tool("trl env", ("trl version", "cuda device(s)", "llm-blender version")),
    Tool("transformers env", ("transformers version", "using distributed or parallel set-up in script?")),
    Tool("huggingface-cli env", ("huggingface_hub version", "hf_hub version", "has saved token ?")),
    Tool("datasets env", ("datasets version",)),
    Tool("peft env", ("peft version",)),
)
ITEM = lazy_pattern(r"[-*\u2022]\s?(.{2,70}?):\s?(.*)$")
GPU_KEYS = frozenset({
    "gpu type", "cuda device(s)", "accelerator(s)", "accelerator", "gpu", "gpus", "gpu model", "device name",
    "graphics card",
})  # fmt: skip
NOT_PACKAGES = frozenset(
    {"python version", "cuda version", "driver version", "os version", "tensorflow version", "flax version"}
)


def parse_env_list(lines: list[Line]) -> Section | None:
    """Parse lists of `- key: value`, as printed by accelerate, transformers, TRL, diffusers and LlamaFactory.

    ```
    - `Accelerate` version: 1.2.1
    - Platform: Linux-5.15.0-1048-aws-x86_64-with-glibc2.31
    - PyTorch version (GPU?): 2.5.1+cu124 (True)
    - CUDA device(s): NVIDIA H100 80GB HBM3
    - vLLM version: not installed
    ```
    """
    items = [(line, *_parse_item(line.text)) for line in lines if line.text[0] in "-*\u2022"]
    keys = {key for _, key, _ in items if key}
    kind = next((tool.kind for tool in TOOLS if not keys.isdisjoint(tool.distinctive_keys)), "")
    if not kind and keys.isdisjoint({"pytorch version (gpu?)", "pytorch version (accelerator?)", "pytorch version"}):
        return None
    section = Section(kind or ("accelerate env" if "accelerate version" in keys else "transformers env"))
    inside_config = False
    for line, key, value in items:
        if not key:
            continue
        if inside_config and ("_" in key or key == "deepspeed_config"):
            section.consumed.add(line.number)
        elif _record_item(section, key, value):
            section.consumed.add(line.number)
            inside_config = "config" in key
    return section if section.consumed else None


def _parse_item(text: str) -> tuple[str, str]:
    """The key in lower case without backticks and emoji, and the value."""
    match = ITEM.match(text)
    if not match:
        return "", ""
    return re.sub(r"[^a-z0-9_()?/ .-]", "", match[1].lower()).strip(), match[2].removeprefix("**").strip("` ")


def _record_item(section: Section, key: str, value: str) -> bool:
    """Record one item. Returns False if none of these tools prints it."""
    if key.startswith("pytorch version") or key == "torch version":
        _record_torch(section, value)
    elif key == "platform":
        record_platform(section, value)
    elif key in ("python version", "python"):
        record_python_version(section, value)
    elif key in GPU_KEYS:
        record_gpu_names(section, value)
    elif key == "gpu number":
        _repeat_gpu(section, value)
    elif key == "os":
        section.set_fact("system.os", OS_OF_PYTHON.get(value, value) or None)
    elif section.kind.startswith("ComfyUI") and key in ("name", "type", "vram total"):
        return _record_comfyui_device(section, key, value)
    elif key.endswith("driver version"):
        section.set_fact("driver.version", value if DRIVER_VERSION.match(value) else None)
    elif not _record_version(section, key, value):
        return key.startswith(OTHER_KEYS) or "version" in key
    return True


OS_OF_PYTHON = {"nt": "Windows", "darwin": "macOS", "win32": "Windows", "posix": ""}  # os.name and sys.platform


def _record_comfyui_device(section: Section, key: str, value: str) -> bool:
    if key == "name":
        return record_torch_device(section, value)
    if key == "vram total" and value.isdecimal() and section.gpus:
        section.set_gpu_fact(max(section.gpus), "memory_total", int(value[:16]))
    return True


def _record_version(section: Section, key: str, value: str) -> bool:
    """Record entries such as `Transformers version: 4.57.1`. Returns False for other keys."""
    if not key.endswith(" version") or key in NOT_PACKAGES:
        return False
    return section.add_distribution(key.removesuffix(" version"), value.partition(" ")[0])


def _repeat_gpu(section: Section, value: str) -> None:
    """LlamaFactory prints one GPU type and the number of GPUs."""
    if value.isdecimal() and 0 in section.gpus:
        for index in range(1, min(int(value[:3]), 64)):
            section.gpus.setdefault(index, dict(section.gpus[0]))


OTHER_KEYS = (
    "accelerate", "using ", "system ram", "pytorch xpu", "pytorch npu", "pytorch mlu", "pytorch sdaa", "pytorch musa",
    "running ", "deepspeed config", "gpu memory", "token path", "has saved", "who am i", "hf_", "bf16 support",
    "default data", "git branch", "arguments", "embedded python", "vram ", "torch vram ",
)  # fmt: skip


def _record_torch(section: Section, value: str) -> None:
    """`2.5.1+cu124 (True)`, `2.8.0+cu128 (CUDA)`, `2.5.1+cu124 (GPU)`, `not installed (NA)`."""
    version, _, accelerator = value.partition(" ")
    if value.lower().startswith("not installed"):
        section.set_absent("stack.torch", f"torch is not installed ({value})")
    elif is_version(version):
        section.set_fact("stack.torch.version", version)
        state = accelerator.strip("()").lower()
        if state in ("true", "cuda", "gpu"):
            section.set_fact("stack.cuda_available", value=True)
        elif state in ("false", "na"):
            section.set_fact("stack.cuda_available", value=False)


DOTTED_LINE = lazy_pattern(r"([a-z][\w /().,+-]{1,40}?) ?\.{2,40} ?(.*)$")
DS_LINES = ("DeepSpeed C++/CUDA extension op report", "DeepSpeed general environment info", "NOTE: Ops not installed",
            "runtime if needed. Op compatibility", "meet the required dependencies", "JIT compiled ops requires",
            "op name ....")  # fmt: skip


def parse_ds_report(lines: list[Line]) -> Section | None:
    """Parse the ds_report of DeepSpeed: dotted lines below `DeepSpeed general environment info`.

    ```
    torch version .................... 2.3.0+cu121
    torch cuda version ............... 12.1
    nvcc version ..................... 12.0
    shared memory (/dev/shm) size .... 125.77 GB
    ```
    """
    section = Section("ds_report")
    for line in lines:
        match = DOTTED_LINE.match(line.text) if ".." in line.text and len(line.text) < 600 else None
        if match and (match[1] in DS_KEYS or re.match(r"\[(?:YES|NO|OKAY|FAIL)\]", match[2])):
            section.consumed.add(line.number)
            _record_dotted(section, match[1], match[2].strip())
        elif line.text.startswith(DS_LINES):
            section.consumed.add(line.number)
    return section if section.consumed else None


DS_KEYS = frozenset({
    "torch install path", "torch version", "deepspeed install path", "deepspeed info", "torch cuda version",
    "torch hip version", "nvcc version", "deepspeed wheel compiled w.", "deepspeed wheel compiled w",
    "shared memory (/dev/shm) size",
})  # fmt: skip


def _record_dotted(section: Section, key: str, value: str) -> None:
    if key == "torch version" and is_version(value):
        section.set_fact("stack.torch.version", value)
    elif key == "torch cuda version":
        section.set_fact("stack.torch.cuda", first_group(r"^(\d{1,2}\.\d{1,2})", value))
        if value == "None":
            section.set_absent("stack.torch.cuda", "a build without CUDA (torch cuda version: None)")
    elif key == "torch hip version":
        section.set_fact("stack.torch.hip", first_group(r"^(\d{1,2}\.\d[\w.-]{0,20})", value))
    elif key == "nvcc version":
        section.set_fact("cuda.nvcc_version", first_group(r"^(\d{1,2}\.\d{1,2})", value))
        if "FAIL" in value:
            section.set_absent("cuda.nvcc_version", value[:120])
            section.set_absent("cuda.nvcc", value[:120])
    elif key == "deepspeed info":
        section.add_distribution("deepspeed", value.partition(",")[0].strip())
    elif key == "torch install path":
        section.set_fact("stack.python_version", first_group(r"/python(3\.\d{1,2})/", value), "from a path")
    elif key.startswith("shared memory") and (size := parse_size(value)):
        shm = Filesystem(path="/dev/shm", total=size, free=size)
        section.set_fact("storage.places", {"shm": shm}, "the report contains the size only, not the free space")


def parse_sglang_check_env(lines: list[Line]) -> Section | None:
    """Parse sglang's check_env, and the OpenMMLab collect_env on which it is based.

    ```
    Python: 3.10.12 (main, Nov 20 2023, 15:14:05) [GCC 11.4.0]
    CUDA available: True
    CUDA_HOME: /usr/local/cuda
    NVCC: Cuda compilation tools, release 12.1, V12.1.105
    CUDA Driver Version: 550.90.07
    sglang: 0.2.10
    ```
    """
    headers = ("cuda driver version", "nvidia topology", "cuda available", "nvcc", "hipcc")
    header_lines = [line for line in lines if line.key in headers]
    if len(header_lines) < 2 and not any(line.key in ("sglang", "sgl_kernel") for line in lines):
        return None
    keys = {line.key for line in lines}
    is_sglang = not keys.isdisjoint({"sglang", "sgl_kernel", "cuda driver version", "nvidia topology"})
    is_sglang = is_sglang and "lmdeploy" not in keys  # its check_env prints the topology as well
    section = Section("sglang check_env" if is_sglang else "collect_env (OpenMMLab)")
    in_report = False
    for line in lines:
        key, value = line.key, line.value
        in_report = in_report or key in ("cuda available", "python", "cuda driver version", "pytorch")
        if _record_sglang(section, key, value, in_report) or _record_module(line, in_report, section):
            section.consumed.add(line.number)
    section.consumed |= {
        line.number for line, following in pairwise(lines) if following.key == "python" and NO_NVCC.search(line.text)
    }
    return section if section.consumed else None


NO_NVCC = lazy_pattern(r"^(?:/bin/)?sh: .{0,200}nvcc: not found$")  # printed by the shell that check_env starts
OTHER_SGLANG_KEYS = frozenset({
    "nvidia topology", "amd topology", "hypervisor vendor", "rocm_home", "rocm driver version", "gcc", "sys.platform",
    "musa available", "numpy_random_seed", "msvc", "opencv", "mmcv compiler",
})  # fmt: skip


def _record_sglang(section: Section, key: str, value: str, in_report: bool) -> bool:
    """Record one of the rows above the module table. Returns False for other rows."""
    if key == "cuda available" and value in ("True", "False"):
        section.set_fact("stack.cuda_available", value == "True")
    elif key == "python" and in_report:
        record_python_version(section, value)
    elif key == "cuda driver version":
        section.set_fact("driver.version", first_group(r"^(\d{2,4}\.\d{1,4}(?:\.\d{1,4})?)$", value))
    elif key == "cuda_home":
        section.set_fact("cuda.cuda_home", None if is_missing(value) else value)
    elif key == "nvcc":
        version = first_group(r"V(\d{1,2}\.\d{1,2}(?:\.\d{1,4})?)", value)
        section.set_fact("cuda.nvcc_version", version)
        home = section.facts.get("cuda.cuda_home")
        if version and home and home.value:  # check_env.py runs $CUDA_HOME/bin/nvcc
            section.set_fact("cuda.nvcc", f"{home.value}/bin/nvcc")
    elif key == "pytorch" and is_version(value):
        section.set_fact("stack.torch.version", value)
    else:
        has_cuda = key == "mmcv cuda compiler" and value != "not available"  # else it was compiled without CUDA
        return has_cuda or key in OTHER_SGLANG_KEYS or _record_rocm_or_limit(section, key, value)
    return True


def _record_rocm_or_limit(section: Section, key: str, value: str) -> bool:
    if key == "rocm available":
        section.set_absent("stack.torch.cuda", "a build for ROCm (sglang check_env)")
        section.set_absent("gpus", "no NVIDIA GPU, but ROCm (sglang check_env)")
    elif key == "hipcc":
        section.set_fact("stack.torch.hip", first_group(r"HIP version: (\d{1,2}\.\d{1,2})", value))
    elif key == "ulimit soft" and value.isdecimal():
        section.set_fact("limits.open_files", int(value[:12]))
    else:
        return False
    return True


def _record_module(line: Line, in_report: bool, section: Section) -> bool:
    """Record a row of the module table: `flashinfer_python: 0.5.3` or `vllm: Module Not Found`."""
    if not in_report or not re.fullmatch(r"[a-z][\w-]{1,40}", line.key):
        return False
    return line.value == "Module Not Found" or section.add_distribution(line.key, line.value)


FLASHINFER_KEYS = {
    "flashinfer version": "flashinfer-python", "flashinfer-cubin version": "flashinfer-cubin",
    "flashinfer-jit-cache version": "flashinfer-jit-cache", "flashinfer": "flashinfer-python",
    "flashinfer-cubin": "flashinfer-cubin", "flashinfer-jit-cache": "flashinfer-jit-cache",
}  # fmt: skip


def parse_flashinfer_config(lines: list[Line]) -> Section | None:
    """Parse `flashinfer show-config`.

    ```
    === Version Info ===
    FlashInfer version: 0.4.0
    Torch version: 2.8.0+cu128
    FLASHINFER_CUDA_ARCH_LIST: {(9, '0a')}
    ```
    """
    if not any(line.key.startswith("flashinfer_c") or "flashinfer show-config" in line.text for line in lines):
        return None
    section = Section("flashinfer show-config")
    for line in lines:
        if line.key in FLASHINFER_KEYS:
            section.add_distribution(FLASHINFER_KEYS[line.key], line.value)
        elif line.key == "torch version" and is_version(line.value):
            section.set_fact("stack.torch.version", line.value)
        elif line.key == "cuda runtime available" and line.value in ("Yes", "No"):
            section.set_fact("stack.cuda_available", line.value == "Yes")
        elif not (
            line.key.startswith("flashinfer_") or re.match(r"=== [A-Z][\w ]{3,40} ===$|Downloaded \d+/", line.text)
        ):
            continue
        section.consumed.add(line.number)
    return section if section.facts or section.distributions else None


XFORMERS_KEY = lazy_pattern(
    r"(?:pytorch|gpu|build|memory_efficient_attention|is_triton|swiglu|indexing|sequence_parallel|sp24|dcp)[.\w@-]*$"
)


def parse_xformers_info(lines: list[Line]) -> Section | None:
    """Parse `python -m xformers.info`: `pytorch.version: 2.5.1+cu124`, `gpu.name: NVIDIA H100 80GB HBM3`."""
    section = Section("xformers.info")
    for line in lines:
        if "." not in line.key or not XFORMERS_KEY.match(line.key):
            continue
        section.consumed.add(line.number)
        if line.key == "pytorch.version" and is_version(line.value):
            section.set_fact("stack.torch.version", line.value)
        elif line.key == "pytorch.cuda":
            section.set_fact("stack.cuda_available", line.value == "available")
        elif line.key == "gpu.name":
            section.set_gpu_fact(0, "name", line.value if is_gpu_name(line.value) else None)
        elif line.key == "gpu.compute_capability" and re.fullmatch(r"\d{1,2}\.\d", line.value):
            section.set_gpu_fact(0, "compute_capability", line.value)
    return section if section.facts or section.gpus else None


COLOSSALAI_KEYS = {
    "system cuda version": "cuda.nvcc_version", "cuda version": "cuda.nvcc_version",
    "cuda version required by pytorch": "stack.torch.cuda",
}  # fmt: skip


def parse_colossalai(lines: list[Line]) -> Section | None:
    """Parse `colossalai check -i`: `System CUDA version: 9.1`, `CUDA version required by PyTorch: 11.7`."""
    if not any(line.key == "cuda version required by pytorch" for line in lines):
        return None
    section = Section("colossalai check")
    for line in lines:
        value = line.value.strip("* ")
        if line.key == "colossal-ai version" and is_version(value):
            section.add_distribution("colossalai", value)
        elif line.key == "pytorch version" and is_version(value):
            section.set_fact("stack.torch.version", value)
        elif line.key in COLOSSALAI_KEYS:
            section.set_fact(COLOSSALAI_KEYS[line.key], first_group(r"^(\d{1,2}\.\d{1,2})$", value))
        else:
            continue
        section.consumed.add(line.number)
    return section
