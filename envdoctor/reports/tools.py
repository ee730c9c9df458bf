"""The `env` commands of Hugging Face's libraries, DeepSpeed's ds_report, sglang's check_env, xformers.info."""

from __future__ import annotations

import re
from typing import NamedTuple

from envdoctor.core.records import Filesystem
from envdoctor.reports.collect_env import DRIVER, tell_platform, tell_python
from envdoctor.reports.gpus import parse_gpu_phrase
from envdoctor.reports.section import Line, Said, find, is_nothing, is_version, parse_size


class Tool(NamedTuple):
    """A tool whose list begins with its own version, or has a key that only it prints."""

    kind: str
    own: tuple[str, ...]


# LlamaFactory's and diffusers' lists hold the keys of TRL's, and TRL's those of transformers'.
TOOLS = (
    Tool("accelerate env", ("accelerate default config", "accelerate bash location", "accelerate configs")),
    Tool("LlamaFactory env", ("llamafactory version", "llama-factory version")),
    Tool("diffusers env", ("running on google colab?", "running on a notebook?")),
    Tool("trl env", ("trl version", "cuda device(s)", "llm-blender version")),
    Tool("transformers env", ("transformers version", "using distributed or parallel set-up in script?")),
    Tool("huggingface-cli env", ("huggingface_hub version", "hf_hub version", "has saved token ?")),
    Tool("datasets env", ("datasets version",)),
    Tool("peft env", ("peft version",)),
)
ITEM = re.compile(r"[-*\u2022]\s?(.{2,70}?):\s?(.*)$")
GPU_KEYS = frozenset({
    "gpu type", "cuda device(s)", "accelerator(s)", "accelerator", "gpu", "gpus", "gpu model", "device name",
    "graphics card",
})  # fmt: skip
NOT_PACKAGES = frozenset(
    {"python version", "cuda version", "driver version", "os version", "tensorflow version", "flax version"}
)


def parse_env_list(lines: list[Line]) -> Said | None:
    """Lists of `- key: value`, as accelerate, transformers, TRL, diffusers and LlamaFactory print them.

    ```
    - `Accelerate` version: 1.2.1
    - Platform: Linux-5.15.0-1048-aws-x86_64-with-glibc2.31
    - PyTorch version (GPU?): 2.5.1+cu124 (True)
    - CUDA device(s): NVIDIA H100 80GB HBM3
    - vLLM version: not installed
    ```
    """
    items = [(line, *_item(line.text)) for line in lines if line.text[0] in "-*\u2022"]
    keys = {key for _, key, _ in items if key}
    kind = next((tool.kind for tool in TOOLS if not keys.isdisjoint(tool.own)), "")
    if not kind and keys.isdisjoint({"pytorch version (gpu?)", "pytorch version (accelerator?)", "pytorch version"}):
        return None
    said = Said(kind or ("accelerate env" if "accelerate version" in keys else "transformers env"))
    inside_config = False
    for line, key, value in items:
        if not key:
            continue
        if inside_config and ("_" in key or key == "deepspeed_config"):
            said.lines.add(line.number)
        elif _tell_item(said, key, value):
            said.lines.add(line.number)
            inside_config = "config" in key
    return said if said.lines else None


def _item(text: str) -> tuple[str, str]:
    """The key in lower case without backticks and emoji, and the value."""
    found = ITEM.match(text)
    if not found:
        return "", ""
    return re.sub(r"[^a-z0-9_()?/ .-]", "", found[1].lower()).strip(), found[2].strip("` ")


def _tell_item(said: Said, key: str, value: str) -> bool:
    """One item; False where it is none of these tools'."""
    if key.startswith("pytorch version") or key == "torch version":
        _tell_torch(said, value)
    elif key == "platform":
        tell_platform(said, value)
    elif key in ("python version", "python"):
        tell_python(said, value)
    elif key in GPU_KEYS:
        _tell_gpus(said, value)
    elif key == "gpu number":
        _repeat_gpu(said, value)
    elif key == "os":
        said.tell("system.os", value)
    elif key.endswith("driver version"):
        said.tell("driver.version", value if DRIVER.match(value) else None)
    elif not _tell_version(said, key, value):
        return key.startswith(OTHER_KEYS) or "version" in key
    return True


def _tell_version(said: Said, key: str, value: str) -> bool:
    """`Transformers version: 4.57.1` and its like."""
    if not key.endswith(" version") or key in NOT_PACKAGES:
        return False
    return said.add_distribution(key.removesuffix(" version"), value.partition(" ")[0])


def _repeat_gpu(said: Said, value: str) -> None:
    """LlamaFactory names one type and a number."""
    if value.isdecimal() and 0 in said.gpus:
        for index in range(1, min(int(value[:3]), 64)):
            said.gpus.setdefault(index, dict(said.gpus[0]))


OTHER_KEYS = (
    "accelerate", "using ", "system ram", "pytorch xpu", "pytorch npu", "pytorch mlu", "pytorch sdaa", "pytorch musa",
    "running ", "deepspeed config", "gpu memory", "token path", "has saved", "who am i", "hf_", "bf16 support",
    "default data", "git branch",
)  # fmt: skip


def _tell_torch(said: Said, value: str) -> None:
    """`2.5.1+cu124 (True)`, `2.8.0+cu128 (CUDA)`, `2.5.1+cu124 (GPU)`, `not installed (NA)`."""
    version, _, rest = value.partition(" ")
    if value.lower().startswith("not installed"):
        said.deny("stack.torch", f"torch is not installed ({value})")
    elif is_version(version):
        said.tell("stack.torch.version", version)
        state = rest.strip("()").lower()
        if state in ("true", "cuda", "gpu"):
            said.tell("stack.cuda_available", value=True)
        elif state in ("false", "na"):
            said.tell("stack.cuda_available", value=False)


def _tell_gpus(said: Said, value: str) -> None:
    if said.gpus or is_nothing(value):
        return
    for index, name in enumerate(parse_gpu_phrase(value)):
        said.tell_gpu(index, "name", name)


DOTTED = re.compile(r"([a-z][\w /().,+-]{1,40}?) ?\.{2,40} ?(.*)$")
DS_LINES = ("DeepSpeed C++/CUDA extension op report", "DeepSpeed general environment info", "NOTE: Ops not installed",
            "runtime if needed. Op compatibility", "meet the required dependencies", "JIT compiled ops requires",
            "op name ....")  # fmt: skip


def parse_ds_report(lines: list[Line]) -> Said | None:
    """DeepSpeed's report: dotted lines below `DeepSpeed general environment info`.

    ```
    torch version .................... 2.3.0+cu121
    torch cuda version ............... 12.1
    nvcc version ..................... 12.0
    shared memory (/dev/shm) size .... 125.77 GB
    ```
    """
    said = Said("ds_report")
    for line in lines:
        found = DOTTED.match(line.text) if ".." in line.text and len(line.text) < 600 else None
        if found and (found[1] in DS_KEYS or re.match(r"\[(?:YES|NO|OKAY|FAIL)\]", found[2])):
            said.lines.add(line.number)
            _tell_dotted(said, found[1], found[2].strip())
        elif line.text.startswith(DS_LINES):
            said.lines.add(line.number)
    return said if said.lines else None


DS_KEYS = frozenset({
    "torch install path", "torch version", "deepspeed install path", "deepspeed info", "torch cuda version",
    "torch hip version", "nvcc version", "deepspeed wheel compiled w.", "deepspeed wheel compiled w",
    "shared memory (/dev/shm) size",
})  # fmt: skip


def _tell_dotted(said: Said, key: str, value: str) -> None:
    if key == "torch version" and is_version(value):
        said.tell("stack.torch.version", value)
    elif key == "torch cuda version":
        said.tell("stack.torch.cuda", find(r"^(\d{1,2}\.\d{1,2})", value))
        if value == "None":
            said.deny("stack.torch.cuda", "a build without CUDA (torch cuda version: None)")
    elif key == "torch hip version":
        said.tell("stack.torch.hip", find(r"^(\d{1,2}\.\d[\w.-]{0,20})", value))
    elif key == "nvcc version":
        said.tell("cuda.nvcc_version", find(r"^(\d{1,2}\.\d{1,2})", value))
        if "FAIL" in value:
            said.deny("cuda.nvcc_version", value[:120])
            said.deny("cuda.nvcc", value[:120])
    elif key == "deepspeed info":
        said.add_distribution("deepspeed", value.partition(",")[0].strip())
    elif key == "torch install path":
        said.tell("stack.python_version", find(r"/python(3\.\d{1,2})/", value), "from a path")
    elif key.startswith("shared memory") and (size := parse_size(value)):
        shm = Filesystem(path="/dev/shm", total=size, free=size)
        said.tell("storage.places", {"shm": shm}, "the report gives the size only; free room is not told")


def parse_sglang(lines: list[Line]) -> Said | None:
    """sglang's check_env, and OpenMMLab's collect_env, from which it comes.

    ```
    Python: 3.10.12 (main, Nov 20 2023, 15:14:05) [GCC 11.4.0]
    CUDA available: True
    CUDA_HOME: /usr/local/cuda
    NVCC: Cuda compilation tools, release 12.1, V12.1.105
    CUDA Driver Version: 550.90.07
    sglang: 0.2.10
    ```
    """
    own = [line for line in lines if line.key in ("cuda driver version", "nvidia topology", "cuda available", "nvcc")]
    if len(own) < 2 and not any(line.key in ("sglang", "sgl_kernel") for line in lines):
        return None
    keys = {line.key for line in lines}
    ours = not keys.isdisjoint({"sglang", "sgl_kernel", "cuda driver version", "nvidia topology"})
    said = Said("sglang check_env" if ours else "collect_env (OpenMMLab)")
    begun = False
    for line in lines:
        key, value = line.key, line.value
        begun = begun or key in ("cuda available", "python", "cuda driver version", "pytorch")
        if _tell_sglang(said, key, value, begun) or _is_module(line, begun, said):
            said.lines.add(line.number)
    return said if said.lines else None


SGLANG_OTHERS = frozenset({
    "nvidia topology", "hypervisor vendor", "ulimit soft", "gcc", "sys.platform", "musa available",
    "numpy_random_seed",
})  # fmt: skip


def _tell_sglang(said: Said, key: str, value: str, begun: bool) -> bool:
    """One of the rows above the table of modules."""
    if key == "cuda available" and value in ("True", "False"):
        said.tell("stack.cuda_available", value == "True")
    elif key == "python" and begun:
        tell_python(said, value)
    elif key == "cuda driver version":
        said.tell("driver.version", find(r"^(\d{2,4}\.\d{1,4}(?:\.\d{1,4})?)$", value))
    elif key == "cuda_home":
        said.tell("cuda.cuda_home", None if is_nothing(value) else value)
    elif key == "nvcc":
        version = find(r"V(\d{1,2}\.\d{1,2}(?:\.\d{1,4})?)", value)
        said.tell("cuda.nvcc_version", version)
        home = said.facts.get("cuda.cuda_home")
        if version and home and home.value:  # check_env.py starts $CUDA_HOME/bin/nvcc
            said.tell("cuda.nvcc", f"{home.value}/bin/nvcc")
    elif key == "pytorch" and is_version(value):
        said.tell("stack.torch.version", value)
    else:
        return key in SGLANG_OTHERS
    return True


def _is_module(line: Line, begun: bool, said: Said) -> bool:
    """A row of its table of modules, `flashinfer_python: 0.5.3` or `vllm: Module Not Found`."""
    if not begun or not re.fullmatch(r"[a-z][\w-]{1,40}", line.key):
        return False
    return line.value == "Module Not Found" or said.add_distribution(line.key, line.value)


XFORMERS_KEY = re.compile(
    r"(?:pytorch|gpu|build|memory_efficient_attention|is_triton|swiglu|indexing|sequence_parallel|sp24|dcp)[.\w@-]*$"
)


def parse_xformers_info(lines: list[Line]) -> Said | None:
    """`python -m xformers.info`: `pytorch.version: 2.5.1+cu124`, `gpu.name: NVIDIA H100 80GB HBM3`."""
    said = Said("xformers.info")
    for line in lines:
        if "." not in line.key or not XFORMERS_KEY.match(line.key):
            continue
        said.lines.add(line.number)
        if line.key == "pytorch.version" and is_version(line.value):
            said.tell("stack.torch.version", line.value)
        elif line.key == "pytorch.cuda":
            said.tell("stack.cuda_available", line.value == "available")
        elif line.key == "gpu.name":
            _tell_gpus(said, line.value)
        elif line.key == "gpu.compute_capability" and re.fullmatch(r"\d{1,2}\.\d", line.value):
            said.tell_gpu(0, "compute_capability", line.value)
    return said if said.facts or said.gpus else None
