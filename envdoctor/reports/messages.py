"""Facts that log and error lines name in passing. The lines stay with the errors: they are symptoms."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from envdoctor.reports.gpus import is_gpu_name
from envdoctor.reports.section import Said, find, is_version


class Message(NamedTuple):
    """A text that must be there (found fast), the pattern around it, and what its groups say."""

    mark: str
    pattern: re.Pattern[str]
    tell: Callable[[Said, re.Match[str]], None]


def _architectures(said: Said, found: re.Match[str]) -> None:
    names = tuple(re.findall(r"(?:sm|compute)_\d{2,3}[af]?", found[1]))
    said.tell("stack.torch.architectures", names)


def _gpu(said: Said, name: str, capability: str) -> None:
    if is_gpu_name(name) and not said.gpus:
        said.tell_gpu(0, "name", name.strip())
        said.tell_gpu(0, "compute_capability", capability)


def _installed(name: str) -> Callable[[Said, re.Match[str]], None]:
    def tell(said: Said, found: re.Match[str]) -> None:
        said.add_distribution(name, found[1].rstrip("."))

    return tell


def _torch(said: Said, version: str) -> None:
    if is_version(version):
        said.tell("stack.torch.version", version)


def _pair(said: Said, found: re.Match[str]) -> None:
    said.add_distribution(found[1], found[2].rstrip(".,"))


def _cuda_120(text: str) -> str:
    """`128` or `117` as 12.8 or 11.7."""
    return f"{text[:-1]}.{text[-1]}"


def _bitsandbytes(said: Said, found: re.Match[str]) -> None:
    said.tell("stack.torch.cuda", _cuda_120(found[1]))
    if not said.gpus:
        said.tell_gpu(0, "compute_capability", f"{found[2]}.{found[3]}")


def _uv_environment(said: Said, found: re.Match[str]) -> None:
    said.tell("stack.python_version", found[1])
    said.tell("stack.python", found[2])
    _tell_kind(said, found[2])


def _tell_kind(said: Said, path: str) -> None:
    if re.search(r"[/\\]envs[/\\]|conda|miniforge|mamba", path):
        said.tell("stack.kind", "conda", "from a path")
    elif re.search(r"[/\\]\.?v?env[/\\]?$|[/\\]\.?venv", path):
        said.tell("stack.kind", "venv", "from a path")


def _detected_cuda(said: Said, found: re.Match[str]) -> None:
    said.tell("cuda.nvcc_version", found[1])
    said.tell("stack.torch.cuda", found[2])


def _torchao(said: Said, found: re.Match[str]) -> None:
    _torch(said, found[1])
    said.add_distribution("torchao", found[2].rstrip("."))


def _unsloth(said: Said, found: re.Match[str]) -> None:
    _torch(said, found[1].rstrip("."))
    said.tell("cuda.nvcc_version", None)
    if not said.gpus:
        said.tell_gpu(0, "compute_capability", found[2])
    said.tell("stack.torch.cuda", found[3])


# The samples are what the projects print; the tests hold one for each.
MESSAGES = (
    # The current PyTorch install supports CUDA capabilities sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90.
    Message(
        "supports CUDA capabilities", re.compile(r"supports CUDA capabilities ([a-z0-9_ ]{4,400})"), _architectures
    ),
    # NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch installation.
    Message(
        "with CUDA capability sm_",
        re.compile(r"^\W{0,4}([A-Z][\w /()-]{2,60}) with CUDA capability sm_(\d{2,3})", re.MULTILINE),
        lambda said, found: _gpu(said, found[1], _cuda_120(found[2])),
    ),
    # Your Tesla V100-PCIE-32GB GPU has compute capability 7.0.
    Message(
        "GPU has compute capability",
        re.compile(r"[Yy]our ([A-Z][\w /()-]{2,60}) GPU has compute capability (\d{1,2}\.\d)"),
        lambda said, found: _gpu(said, found[1], found[2]),
    ),
    # The NVIDIA driver on your system is too old (found version 12080).
    Message(
        "(found version ",
        re.compile(r"\(found version (\d{1,2})0(\d)0\)"),
        lambda said, found: said.tell("driver.cuda", f"{found[1]}.{found[2]}"),
    ),
    # Initializing a V1 LLM engine (v0.11.0) with config: / vLLM API server version 0.9.2 / v0.6.4.post1
    Message("LLM engine (v", re.compile(r"LLM engine \(v(\d[\w.+-]{1,50})\)"), _installed("vllm")),
    Message(
        "vLLM API server version ", re.compile(r"vLLM API server version v?(\d[\w.+-]{1,50})"), _installed("vllm")
    ),
    Message(
        "You have version ",
        re.compile(r"vLLM version.{0,120}You have version (\d[\w.+-]{1,40}) installed"),
        _installed("vllm"),
    ),
    # vllm 0.6.3 requires torch==2.4.0, but you have torch 2.2.0 which is incompatible.
    Message(
        "which is incompatible",
        re.compile(r"but you(?:'ll)? have ([\w.-]{2,60}) (\d[\w.+!-]{0,50}) which is incompatible"),
        _pair,
    ),
    Message(
        "which is incompatible",
        re.compile(r"^(?:ERROR: )?([A-Za-z][\w.-]{1,60}) (\d[\w.+!-]{0,50}) requires ", re.MULTILINE),
        _pair,
    ),
    # huggingface-hub>=0.34.0,<1.0 is required for a normal functioning of this module, but found
    # huggingface-hub==1.2.3.
    Message("but found ", re.compile(r"but found ([\w-]{2,60})==(\d[\w.+!-]{0,50})"), _pair),
    # Skipping import of cpp extensions due to incompatible torch version 2.10.0+cu130 for torchao version 0.14.0
    Message(
        "for torchao version",
        re.compile(r"torch version (\d[\w.+-]{2,50}) for torchao version (\d[\w.+-]{2,50})"),
        _torchao,
    ),
    # PyTorch 2.6.0+cu124 with CUDA None (you have 2.5.1+cu121)
    Message(
        "(you have ",
        re.compile(r"PyTorch \d[\w.+]{2,40} with CUDA .{0,12}\(you have (\d[\w.+]{2,40})\)"),
        lambda said, found: _torch(said, found[1]),
    ),
    #     Python  3.11.0 (you have 3.11.5)
    Message(
        "(you have 3.",
        re.compile(r"Python\s{1,4}3\.[\d.]{1,6} \(you have (3\.\d{1,2}\.\d{1,2})\)"),
        lambda said, found: said.tell("stack.python_version", found[1]),
    ),
    # Using Python 3.11.13 environment at: /home/user/miniconda3/envs/nano
    Message(
        "Using Python 3.",
        re.compile(r"Using Python (3\.\d{1,2}\.\d{1,2}) environment at:? ([^\s:]{1,200})"),
        _uv_environment,
    ),
    # A module that was compiled using NumPy 1.x cannot be run in NumPy 2.1.0 as it may crash.
    Message(
        "NumPy 1.x cannot be run in", re.compile(r"cannot be run in\s{1,4}NumPy (\d[\d.]{1,10})"), _installed("numpy")
    ),
    # CUDA SETUP: PyTorch settings found: CUDA_VERSION=117, Highest Compute Capability: 7.5.
    Message(
        "PyTorch settings found",
        re.compile(r"CUDA_VERSION=(\d{3}), Highest Compute Capability: \(?(\d{1,2})(?:\.|, )(\d)"),
        _bitsandbytes,
    ),
    # The detected CUDA version (11.8) mismatches the version that was used to compile PyTorch (12.4).
    Message(
        "The detected CUDA version",
        re.compile(r"detected CUDA version \((\d{1,2}\.\d{1,2})\).{0,160}?PyTorch \((\d{1,2}\.\d{1,2})\)", re.DOTALL),
        _detected_cuda,
    ),
    # O^O/ \_/ \    Pytorch: 2.3.1+cu121. CUDA = 8.0. CUDA Toolkit = 12.1.
    Message(
        "CUDA Toolkit",
        re.compile(
            r"(?:Pytorch|Torch): (\d[\w.+]{2,40})\. CUDA(?: =|:) (\d{1,2}\.\d)\. CUDA Toolkit(?: =|:) (\d{1,2}\.\d)"
        ),
        _unsloth,
    ),
    # Attempting uninstall ... Successfully installed torch-2.4.0 vllm-0.6.1
    Message(
        "Successfully installed ",
        re.compile(
            r"(?<=[ d] )(torch|vllm|transformers|trl|triton|xformers|numpy|flash-attn)-(\d[\w.+]{1,40})(?= |$)",
            re.MULTILINE,
        ),
        _pair,
    ),
)
# Paths of tracebacks name the interpreter's version, its kind, and the libraries in use.
SITE = re.compile(
    r"([\w./~\\:+-]{0,200}?)[/\\][Ll]ib(?:[/\\]python(3\.\d{1,2}))?[/\\](?:site|dist)-packages[/\\](\w{2,40})"
)
USED = frozenset({
    "vllm", "sglang", "verl", "trl", "deepspeed", "xformers", "flash_attn", "bitsandbytes", "unsloth", "lmdeploy",
    "transformers", "accelerate", "peft", "torchao", "flashinfer", "liger_kernel", "openrlhf", "ray",
    "triton", "torchvision", "torchaudio", "tensorrt_llm",
})  # fmt: skip


USE_MARKS = (
    ("vllm", ("Automatically detected platform", "vLLM Version", "vLLM Build Flags", "Failed to import from vllm",
              "vLLM API server", "vllm serve ", "/vllm-workspace", "vllm.entrypoints", "import vllm", "from vllm",
              "/vllm/vllm/", "/vllm/worker/", "/vllm/v1/", "/vllm/engine/", "vllm/collect_env.py")),
    ("sglang", ("sglang.check_env", "sglang.launch_server", "sgl-workspace", "import sglang")),
    ("trl", ("GRPOTrainer", "from trl", "import trl")),
    ("deepspeed", ("DeepSpeed general environment", "real_accelerator.py")),
    ("unsloth", ("from unsloth", "Unsloth: ")),
    ("verl", ("verl.trainer",)),
    ("bitsandbytes", ("bitsandbytes.cextension", "import bitsandbytes")),
    ("flash-attn", ("import flash_attn", "flash_attn_2_cuda")),
)  # fmt: skip


def parse_messages(text: str) -> Said | None:
    """All facts that known messages in a text name, and what the paths of its tracebacks tell."""
    said = Said("log lines")
    for message in MESSAGES:
        if message.mark in text:
            for number, found in enumerate(message.pattern.finditer(text)):
                if number > 50:
                    break
                message.tell(said, found)
    for found in _sites(text):
        exact = find(r"[/\\]versions[/\\](3\.\d{1,2}\.\d{1,2})$", found[1])  # pyenv
        windows = find(r"[/\\]Python3(\d{1,2})$", found[1])
        version = exact or found[2] or (f"3.{windows}" if windows else None)
        said.tell("stack.python_version", version, "from a path")
        if re.match(r"[A-Za-z]:\\", found[1]):
            said.tell("system.os", "Windows", "from a path")
        _tell_kind(said, found[1])
    return said if said.facts or said.gpus or said.distributions else None


def find_uses(text: str) -> tuple[str, ...]:
    """Libraries that the text shows in use: vLLM's and sglang's log lines, packages in the paths of a traceback."""
    used = {found[3].replace("_", "-") for found in _sites(text) if found[3] in USED}
    used.update(name for name, words in USE_MARKS if any(word in text for word in words))
    return tuple(sorted(used))


def _sites(text: str) -> list[re.Match[str]]:
    """The first paths into site-packages; the search starts at each mark, not at each character."""
    found = []
    for mark in re.finditer(r"(?:site|dist)-packages[/\\]", text):
        start = text.rfind("\n", max(0, mark.start() - 260), mark.start()) + 1 or max(0, mark.start() - 260)
        quote = max(text.rfind('"', start, mark.start()), text.rfind(" ", start, mark.start())) + 1
        match = SITE.match(text, max(start, quote), mark.end() + 60)
        if match:
            found.append(match)
        if len(found) >= 400:
            break
    return found
