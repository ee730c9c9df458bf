"""Parser for facts in log and error messages. The lines are not consumed, because they are symptoms."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.versions import cuda_of_local
from envdoctor.reports.gpus import is_gpu_name
from envdoctor.reports.section import Section, dotted_version, first_group, is_version


class Message(NamedTuple):
    """A known log message.

    `substring` is a fast check that precedes `pattern`; `record` records the facts in the groups of a match.
    """

    substring: str
    pattern: str
    record: Callable[[Section, re.Match[str]], None]


def _record_architectures(section: Section, match: re.Match[str]) -> None:
    names = tuple(re.findall(r"(?:sm|compute)_\d{2,3}[af]?", match[1]))
    section.set_fact("stack.torch.architectures", names)


def _record_torch_without_kernels(section: Section, match: re.Match[str]) -> None:
    """Record the build of torch. The next line names the CUDA of another build, which it recommends."""
    _record_torch(section, match[1])
    section.set_fact("stack.torch.cuda", cuda_of_local(match[1]).removeprefix("cpu"))


def _record_listed_capabilities(section: Section, match: re.Match[str]) -> None:
    """The list in the warning of torch 2.11 and newer, a line for each architecture of the build."""
    found = re.findall(r"[-\u2022] (\d{1,2})\.(\d) which", match[1])
    section.set_fact("stack.torch.architectures", tuple(f"sm_{major}{minor}" for major, minor in found))


def _record_gpu(section: Section, name: str, capability: str) -> None:
    if is_gpu_name(name) and not section.gpus:
        section.set_gpu_fact(0, "name", name.strip())
        section.set_gpu_fact(0, "compute_capability", capability)


def _distribution_recorder(name: str) -> Callable[[Section, re.Match[str]], None]:
    def record(section: Section, match: re.Match[str]) -> None:
        section.add_distribution(name, match[1].rstrip("."))

    return record


def _record_toolkit(section: Section, match: re.Match[str]) -> None:
    section.set_fact("cuda.nvcc_version", match[1])


def _record_torch(section: Section, version: str) -> None:
    if is_version(version):
        section.set_fact("stack.torch.version", version)


def _record_distribution(section: Section, match: re.Match[str]) -> None:
    section.add_distribution(match[1], match[2].rstrip(".,"))


def _record_bitsandbytes(section: Section, match: re.Match[str]) -> None:
    section.set_fact("stack.torch.cuda", dotted_version(match[1]))
    if not section.gpus:
        section.set_gpu_fact(0, "compute_capability", f"{match[2]}.{match[3]}")


def _record_uv_environment(section: Section, match: re.Match[str]) -> None:
    section.set_fact("stack.python_version", match[1])
    section.set_fact("stack.python", match[2])
    _record_kind(section, match[2])


def _record_kind(section: Section, path: str) -> None:
    if re.search(r"[/\\]envs[/\\]|conda|miniforge|mamba", path):
        section.set_fact("stack.kind", "conda", "from a path")
    elif re.search(r"[/\\]\.?v?env[/\\]?$|[/\\]\.?venv", path):
        section.set_fact("stack.kind", "venv", "from a path")


def _record_detected_cuda(section: Section, match: re.Match[str]) -> None:
    section.set_fact("cuda.nvcc_version", match[1])
    section.set_fact("stack.torch.cuda", match[2])


def _record_torchao(section: Section, match: re.Match[str]) -> None:
    _record_torch(section, match[1])
    section.add_distribution("torchao", match[2].rstrip("."))


def _record_unsloth(section: Section, match: re.Match[str]) -> None:
    _record_torch(section, match[1].rstrip("."))
    if not section.gpus:
        section.set_gpu_fact(0, "compute_capability", match[2])
    section.set_fact("stack.torch.cuda", match[3])


def _record_ollama(section: Section, match: re.Match[str]) -> None:
    _record_gpu(section, match[3], match[1])
    section.set_fact("driver.cuda", match[2], "of the driver, from the log of Ollama")


MAX_MATCHES = 51  # per message

# Each message is preceded by a sample of the project's output. The tests contain one for each.
MESSAGES = (
    # The current PyTorch install supports CUDA capabilities sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90.
    Message("supports CUDA capabilities", r"supports CUDA capabilities ([a-z0-9_ ]{4,400})", _record_architectures),
    # Your installed torch==2.13.0+cu129 does not include kernels for this GPU.
    Message(
        "Your installed torch==",
        r"Your installed torch==(\d[\w.+-]{3,40}) does not include kernels",
        _record_torch_without_kernels,
    ),
    # - 7.5 which supports hardware CC >=7.5,<8.0
    Message(
        "which supports hardware CC",
        r"((?:^|\n)[^\n]{0,60}[-\u2022] \d{1,2}\.\d which supports hardware CC(?:[^\n]{0,80}\n[^\n]{0,60}[-\u2022] "
        r"\d{1,2}\.\d which supports hardware CC){0,15})",
        _record_listed_capabilities,
    ),
    # NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch installation.
    Message(
        "with CUDA capability sm_",
        r"(?m)(?:^\W{0,12}|Warning: |[\"'`])([A-Z][\w /()-]{2,60}) with CUDA capability sm_(\d{2,3})",
        lambda section, match: _record_gpu(section, match[1], dotted_version(match[2])),
    ),
    # Your Tesla V100-PCIE-32GB GPU has compute capability 7.0.
    Message(
        "GPU has compute capability",
        r"[Yy]our ([A-Z][\w /()-]{2,60}) GPU has compute capability (\d{1,2}\.\d)",
        lambda section, match: _record_gpu(section, match[1], match[2]),
    ),
    # The NVIDIA driver on your system is too old (found version 12080).
    Message(
        "(found version ",
        r"\(found version (\d{1,2})0(\d)0\)",
        lambda section, match: section.set_fact("driver.cuda", f"{match[1]}.{match[2]}"),
    ),
    # Initializing a V1 LLM engine (v0.11.0) with config: / vLLM API server version 0.9.2 / v0.6.4.post1
    Message("LLM engine (v", r"LLM engine \(v(\d[\w.+-]{1,50})\)", _distribution_recorder("vllm")),
    Message(
        "vLLM API server version ", r"vLLM API server version v?(\d[\w.+-]{1,50})", _distribution_recorder("vllm")
    ),
    Message(
        "You have version ",
        r"vLLM version.{0,120}You have version (\d[\w.+-]{1,40}) installed",
        _distribution_recorder("vllm"),
    ),
    # vllm 0.6.3 requires torch==2.4.0, but you have torch 2.2.0 which is incompatible.
    Message(
        "which is incompatible",
        r"but you(?:'ll)? have ([\w.-]{2,60}) (\d[\w.+!-]{0,50}) which is incompatible",
        _record_distribution,
    ),
    Message(
        "which is incompatible",
        r"(?m)^(?:ERROR: )?([A-Za-z][\w.-]{1,60}) (\d[\w.+!-]{0,50}) requires ",
        _record_distribution,
    ),
    # huggingface-hub>=0.34.0,<1.0 is required for a normal functioning of this module, but found
    # huggingface-hub==1.2.3.
    Message("but found ", r"but found ([\w-]{2,60})==(\d[\w.+!-]{0,50})", _record_distribution),
    # Skipping import of cpp extensions due to incompatible torch version 2.10.0+cu130 for torchao version 0.14.0
    Message(
        "for torchao version",
        r"torch version (\d[\w.+-]{2,50}) for torchao version (\d[\w.+-]{2,50})",
        _record_torchao,
    ),
    # PyTorch 2.6.0+cu124 with CUDA None (you have 2.5.1+cu121)
    Message(
        "(you have ",
        r"PyTorch \d[\w.+]{2,40}(?: with CUDA .{0,12}| )\(you have (\d[\w.+]{2,40})\)",
        lambda section, match: _record_torch(section, match[1]),
    ),
    #     Python  3.11.0 (you have 3.11.5)
    Message(
        "(you have 3.",
        r"Python\s{1,4}3\.[\d.]{1,6} \(you have (3\.\d{1,2}\.\d{1,2})\)",
        lambda section, match: section.set_fact("stack.python_version", match[1]),
    ),
    # Using Python 3.11.13 environment at: /home/user/miniconda3/envs/nano
    Message(
        "Using Python 3.",
        r"Using Python (3\.\d{1,2}\.\d{1,2}) environment at:? ([^\s:]{1,200})",
        _record_uv_environment,
    ),
    # A module that was compiled using NumPy 1.x cannot be run in NumPy 2.1.0 as it may crash.
    Message(
        "NumPy 1.x cannot be run in", r"cannot be run in\s{1,4}NumPy (\d[\d.]{1,10})", _distribution_recorder("numpy")
    ),
    # CUDA SETUP: PyTorch settings found: CUDA_VERSION=117, Highest Compute Capability: 7.5.
    Message(
        "PyTorch settings found",
        r"CUDA_VERSION=(\d{3}), Highest Compute Capability: \(?(\d{1,2})(?:\.|, )(\d)",
        _record_bitsandbytes,
    ),
    # The detected CUDA version (11.8) mismatches the version that was used to compile PyTorch (12.4).
    Message(
        "The detected CUDA version",
        r"(?s)detected CUDA version \((\d{1,2}\.\d{1,2})\).{0,160}?PyTorch \((\d{1,2}\.\d{1,2})\)",
        _record_detected_cuda,
    ),
    # O^O/ \_/ \    Pytorch: 2.3.1+cu121. CUDA = 8.0. CUDA Toolkit = 12.1.
    Message(
        "CUDA Toolkit",
        r"(?:Pytorch|Torch): (\d[\w.+]{2,40})\. CUDA(?: =|:) (\d{1,2}\.\d)\. CUDA Toolkit(?: =|:) (\d{1,2}\.\d)",
        _record_unsloth,
    ),
    # Found GPU0 NVIDIA GB10 which is of cuda capability 12.1.
    # Found GPU0 NVIDIA GeForce GTX 1070 Ti which is of compute capability (CC) 6.1.
    Message(
        "which is of c",
        r"Found GPU\d{1,2} ([A-Z][\w /()-]{2,60}?) which is of (?:cuda capability|compute capability \(CC\)) "
        r"(\d{1,2}\.\d)",
        lambda section, match: _record_gpu(section, match[1], match[2]),
    ),
    # Ultralytics 8.3.40 Python-3.11.9 torch-2.5.1+cu121 CUDA:0 (NVIDIA GeForce RTX 3060, 12287MiB)
    Message(
        "Ultralytics ",
        r"Ultralytics (?:YOLOv?)?(\d[\w.]{2,12})\W{1,6}Python-3\.",
        _distribution_recorder("ultralytics"),
    ),
    # -- The CUDA compiler identification is NVIDIA 11.5.119
    Message(
        "CUDA compiler identification",
        r"CUDA compiler identification is NVIDIA (\d{1,2}\.\d{1,2}(?:\.\d{1,4})?)",
        _record_toolkit,
    ),
    # -- Found CUDAToolkit: /usr/local/cuda/targets/x86_64-linux/include (found version "12.8.93")
    Message(
        "Found CUDA",
        r"Found CUDA(?:Toolkit)?: [^\n]{2,200}\(found (?:suitable )?version \"(\d{1,2}\.\d{1,2}(?:\.\d{1,4})?)\"",
        _record_toolkit,
    ),
    # /usr/local/cuda-12.4/bin/nvcc -gencode=arch=compute_90,code=sm_90
    Message(
        "/bin/nvcc",
        r"/cuda-(\d{1,2}\.\d)/bin/nvcc\b",
        _record_toolkit,
    ),
    # lrwxrwxrwx 1 root root 22 May  1 10:00 /usr/local/cuda -> /usr/local/cuda-12.8
    Message(
        "/usr/local/cuda -> ",
        r"/usr/local/cuda -> (?:/usr/local/|/etc/alternatives/)?cuda-(\d{1,2}\.\d)",
        _record_toolkit,
    ),
    # msg="inference compute" id=GPU-1 library=cuda compute=8.6 driver=12.4 name="NVIDIA GeForce RTX 3060" (Ollama)
    Message(
        "inference compute",
        r"library=(?i:cuda)\b.{0,120}?\bcompute=(\d{1,2}\.\d) .{0,60}?\bdriver=(\d{1,2}\.\d) .{0,60}?"
        r"\bname=\"?([^\"\n]{4,60})\"",
        _record_ollama,
    ),
    # sh NVIDIA-Linux-x86_64-525.125.06.run --dkms
    Message(
        "NVIDIA-Linux-",
        r"NVIDIA-Linux-\w{5,8}-(\d{3}\.\d{2,3}(?:\.\d{2})?)(?:-[\w-]{2,20})?\.run",
        lambda section, match: section.set_fact("driver.version", match[1], "of its installer"),
    ),
    # Model was trained with torch 1.10.0+cu102, yours is 2.7.1+cu126.
    Message(
        ", yours is ",
        r"trained with torch \d[\w.+]{2,30}, yours is (\d[\w.+]{2,40}?)\.?(?=\s|$)",
        lambda section, match: _record_torch(section, match[1]),
    ),
    # Using CUDA 12.9 driver version 575.51.03 with kernel driver version 570.133.20.
    Message(
        "kernel driver version ",
        r"with kernel driver version (\d{3}\.\d{2,4}(?:\.\d{2,4})?)",
        lambda section, match: section.set_fact("driver.version", match[1]),
    ),
    # version 570.133.20 was detected and compatibility mode is UNAVAILABLE.
    Message(
        "was detected ",
        r"\bversion (\d{3}\.\d{2,4}(?:\.\d{2,4})?) was detected (?:and compatibility|but this container)",
        lambda section, match: section.set_fact("driver.version", match[1]),
    ),
    # DeepSpeed info: version=0.16.5, git-hash=unknown, git-branch=unknown
    Message(
        "DeepSpeed info: version=", r"DeepSpeed info: version=(\d[\w.]{2,20})", _distribution_recorder("deepspeed")
    ),
)
# The paths in a traceback contain the Python version, the kind of environment, and the libraries in use.
SITE = lazy_pattern(
    r"([\w./~\\:+-]{0,200}?)[/\\][Ll]ib(?:[/\\]python(3\.\d{1,2}))?[/\\](?:site|dist)-packages[/\\](\w{2,40})"
)
TRACEBACK_LIBRARIES = frozenset({
    "vllm", "sglang", "verl", "trl", "deepspeed", "xformers", "flash_attn", "bitsandbytes", "unsloth", "lmdeploy",
    "transformers", "accelerate", "peft", "torchao", "flashinfer", "liger_kernel", "openrlhf", "ray",
    "triton", "torchvision", "torchaudio", "tensorrt_llm",
})  # fmt: skip


LIBRARY_SUBSTRINGS = (
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
    ("vllm-cpu", ("detected platform cpu", "running on CpuPlatform")),
    ("torch-xla", ("detected platform tpu", "import torch_xla", "PJRT_DEVICE=TPU")),
    ("habana-torch-plugin", ("detected platform hpu", "habana_frameworks.torch")),
    ("openvino", ("vllm-openvino", "device_config=openvino")),
    ("torch-neuronx", ("detected platform neuron", "aws_neuron", "torch_neuronx", "transformers_neuronx")),
    ("intel-extension-for-pytorch", ("detected platform xpu",)),
)  # fmt: skip


def parse_log_messages(text: str) -> Section | None:
    """Parse known log messages, and the paths in tracebacks."""
    section = Section("log lines")
    for message in MESSAGES:
        if message.substring in text:
            for match in islice(re.finditer(message.pattern, text), MAX_MATCHES):
                message.record(section, match)
    for name, versions in _dist_infos(text).items():
        if len(versions) == 1:  # pip leaves the directory of an older release if an installation fails
            section.add_distribution(name, min(versions))
    for match in _site_packages(text):
        exact = first_group(r"[/\\]versions[/\\](3\.\d{1,2}\.\d{1,2})$", match[1])  # pyenv
        windows = first_group(r"[/\\]Python3(\d{1,2})$", match[1])
        version = exact or match[2] or (f"3.{windows}" if windows else None)
        section.set_fact("stack.python_version", version, "from a path")
        if re.match(r"[A-Za-z]:\\", match[1]):
            section.set_fact("system.os", "Windows", "from a path")
        elif match[1].startswith(("/opt/homebrew/", "/Users/")):
            section.set_fact("system.os", "macOS", "from a path")
        _record_kind(section, match[1])
    return section if section.facts or section.gpus or section.distributions else None


DIST_INFO = lazy_pattern(r"(?<![\w.-])([A-Za-z]\w{1,40}(?:\.\w{1,40})?)-(\d[\w.+!]{0,40})\.dist-info\b")


def _dist_infos(text: str) -> dict[str, set[str]]:
    """The versions in the names of metadata directories: `site-packages/torch-2.7.1+cu126.dist-info`."""
    found: dict[str, set[str]] = {}
    for match in DIST_INFO.finditer(text) if ".dist-info" in text else ():
        found.setdefault(match[1], set()).add(match[2])
    return found


def find_libraries_in_use(text: str) -> tuple[str, ...]:
    """Libraries in use, from log messages and from the paths in tracebacks."""
    used = {match[3].replace("_", "-") for match in _site_packages(text) if match[3] in TRACEBACK_LIBRARIES}
    used.update(name for name, substrings in LIBRARY_SUBSTRINGS if any(substring in text for substring in substrings))
    return tuple(sorted(used))


def _site_packages(text: str) -> list[re.Match[str]]:
    """The first paths into site-packages. SITE is matched near each occurrence only, because searching is slow."""
    matches = []
    for marker in re.finditer(r"(?:site|dist)-packages[/\\]", text):
        start = text.rfind("\n", max(0, marker.start() - 260), marker.start()) + 1 or max(0, marker.start() - 260)
        quote = max(text.rfind('"', start, marker.start()), text.rfind(" ", start, marker.start())) + 1
        match = SITE.match(text, max(start, quote), marker.end() + 60)
        if match:
            matches.append(match)
        if len(matches) >= 400:
            break
    return matches
