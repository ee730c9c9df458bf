"""The collect_env scripts of PyTorch and vLLM.

What they print when something is missing (torch/utils/collect_env.py, `pretty_str`):
`N/A` where torch cannot be imported; `Could not collect` where one tool gave nothing; `No CUDA` where torch came up,
cuda.is_available() is False, and nvcc, nvidia-smi's GPU list and its driver version are all missing.
"""

from __future__ import annotations

import re

from envdoctor.reports.section import Line, Said, find, is_nothing, is_version

# Keys that no other tool prints (in lower case): one of them makes a text this report.
OWN_KEYS = frozenset({
    "pytorch version", "is debug build", "cuda used to build pytorch", "rocm used to build pytorch",
    "xpu used to build pytorch", "is cuda available", "is xpu available", "cuda runtime version",
    "cuda_module_loading set to", "gpu models and configuration", "nvidia driver version", "cudnn version",
    "hip runtime version", "miopen runtime version", "is xnnpack available", "intel gpu driver version",
    "intel gpu models onboard", "intel gpu models detected", "libc version", "python platform",
    "versions of relevant libraries", "caching allocator config",
})  # fmt: skip
VLLM_KEYS = frozenset({
    "vllm version", "vllm build flags", "cuda archs", "neuron sdk version", "aws neuron", "gpu topology",
    "tpu topology",
})  # fmt: skip
SHARED_KEYS = frozenset(
    {"os", "gcc version", "clang version", "cmake version", "python version", "rocm version", "cpu"}
)
HEADINGS = frozenset({
    "system info", "pytorch info", "python environment", "cuda / gpu info", "cpu info", "vllm info",
    "environment variables", "versions of relevant libraries", "collecting environment information...", "uv is set",
})  # fmt: skip
CPU_KEYS = frozenset({
    "architecture", "cpu op-mode(s)", "byte order", "address sizes", "cpu(s)", "on-line cpu(s) list",
    "off-line cpu(s) list", "thread(s) per core", "core(s) per socket", "core(s) per cluster", "socket(s)",
    "cluster(s)", "numa node(s)", "vendor id", "cpu family", "model", "model name", "stepping", "frequency boost",
    "cpu mhz", "cpu max mhz", "cpu min mhz", "cpu(s) scaling mhz", "bogomips", "virtualization",
    "hypervisor vendor", "virtualization type", "flags", "l1d cache", "l1i cache", "l2 cache", "l3 cache",
    "l1d", "l1i", "l2", "l3", "l1d cache (sum of all)", "bios vendor id", "bios model name", "bios cpu family",
    "caches (sum of all)", "microcode version", "drawer(s)", "book(s)", "name", "manufacturer", "family",
})  # fmt: skip
WINDOWS_CPU = re.compile(
    r"(?:Architecture|CurrentClockSpeed|DeviceID|Family|L2CacheSize|L2CacheSpeed|Manufacturer|MaxClockSpeed"
    r"|Name|ProcessorType|Revision)=(.*)"
)
DRIVER = re.compile(r"\d{2,4}\.\d{1,4}(?:\.\d{1,4})?$")


def parse_collect_env(lines: list[Line]) -> Said | None:
    """The facts of a collect_env report, whole or in pieces; None where nothing of one is there.

    ```
    PyTorch version: 2.4.0+cu121                       |  PyTorch version              : 2.9.0+cu128
    CUDA used to build PyTorch: 12.1                   |  ==============================
    OS: Ubuntu 20.04.6 LTS (x86_64)                    |         CUDA / GPU Info
    Is CUDA available: False                           |  ==============================
    GPU models and configuration: No CUDA              |  GPU models and configuration : GPU 0: NVIDIA H100
    ```
    """
    wanted = OWN_KEYS | VLLM_KEYS
    own = [line for line in lines if _is_own(line, wanted)]
    began = any(line.text.startswith("Collecting environment information") for line in lines)
    if not own and not began:
        return None
    said = Said("collect_env (vLLM)" if is_vllm(lines) else "collect_env (PyTorch)")
    fields = _read_fields(lines, said)
    _tell_torch(said, fields)
    _tell_system(said, fields)
    _tell_cuda(said, fields)
    _tell_gpus(said, fields)
    version = fields.get("vllm version", "").split(" ")[0].split("@")[0]
    if version and not is_nothing(version):
        said.add_distribution("vllm", version)
    return said


def is_vllm(lines: list[Line]) -> bool:
    """Whether the layout is that of vLLM's own copy, or vLLM's log lines stand in it."""
    return any(
        line.key in VLLM_KEYS
        or (line.key in OWN_KEYS and " :" in line.text[:40])
        or line.text.strip("# ").lower() in ("pytorch info", "cuda / gpu info", "vllm info")
        or "Automatically detected platform" in line.text
        or "vllm/collect_env.py" in line.text
        or "_custom_ops.py:" in line.text
        for line in lines
    )


def _is_own(line: Line, wanted: frozenset[str]) -> bool:
    """TRL and transformers print `- PyTorch version: ...` as an item of a list; that is theirs."""
    return line.key in wanted and not (line.key == "pytorch version" and line.text[0] in "-*\u2022")


def _read_fields(lines: list[Line], said: Said) -> dict[str, str]:
    """The first clear value under each key; the lines of the layout are claimed."""
    fields: dict[str, str] = {}
    inside = ""  # the key whose value runs over several lines
    for line in lines:
        text = line.text
        if line.key in OWN_KEYS or line.key in VLLM_KEYS or line.key in SHARED_KEYS:
            if text[0] in "-*\u2022":
                continue  # an item of another tool's list
            _keep(fields, line.key, line.value)
            said.lines.add(line.number)
            inside = line.key
        elif line.key in CPU_KEYS or line.key.startswith(("numa node", "vulnerability ")):
            _keep(fields, "cpu " + line.key, line.value)
            said.lines.add(line.number)
        elif found := WINDOWS_CPU.match(text):
            _keep(fields, "cpu " + text.partition("=")[0].lower(), found[1])
            said.lines.add(line.number)
        elif _is_filler(text, inside):
            if inside == "nvidia driver version" and DRIVER.match(text):
                _keep(fields, inside, text)
            said.lines.add(line.number)
        elif inside == "cpu" and text.startswith("Apple "):
            _keep(fields, "cpu model name", text)
            said.lines.add(line.number)
        elif inside == "os" and "os" in fields and not fields["os"]:
            fields["os"] = text  # a name that begins on the next line (Windows' wmic)
            inside = ""
    return fields


def _keep(fields: dict[str, str], key: str, value: str) -> None:
    if not fields.get(key) or (is_nothing(fields[key]) and not is_nothing(value)):
        fields[key] = value


def _is_filler(text: str, inside: str) -> bool:
    """Rules, headings, the files under `cuDNN version`, and what stands under the driver's key."""
    if text[0] == "=" and not text.strip("="):
        return True
    if text.strip("# :").lower() in HEADINGS:
        return True
    if inside == "cudnn version" and (text.startswith(("/usr", "/opt", "/lib", "C:\\")) or "cudnn" in text):
        return "error" not in text.lower()
    return inside == "nvidia driver version" and bool(DRIVER.match(text))


def _tell_torch(said: Said, fields: dict[str, str]) -> None:
    version = fields.get("pytorch version", "")
    if version.upper() == "N/A":
        said.deny("stack.torch", "torch cannot be imported (PyTorch version: N/A)")
    elif is_version(version):
        said.tell("stack.torch.version", version)
    cuda, hip = fields.get("cuda used to build pytorch", ""), fields.get("rocm used to build pytorch", "")
    if hip and not is_nothing(hip):
        said.tell("stack.torch.hip", hip.split(" ")[0])
        said.deny("stack.torch.cuda", "a ROCm build")
    elif found := find(r"^(\d{1,2}\.\d{1,2})", cuda):
        said.tell("stack.torch.cuda", found)
        said.deny("stack.torch.hip", "a CUDA build")
    elif cuda in ("None", "Could not collect"):
        said.deny("stack.torch.cuda", f"a build without CUDA (CUDA used to build PyTorch: {cuda})")
        said.deny("stack.torch.hip", "a build without CUDA")
    available = fields.get("is cuda available", "")
    if available in ("True", "False"):
        said.tell("stack.cuda_available", available == "True")


def _tell_system(said: Said, fields: dict[str, str]) -> None:
    system = fields.get("os", "")
    if not is_nothing(system):
        found = re.search(r"\s*\(([^()]{3,12})\)$", system)
        architecture = found[1] if found else ""
        said.tell("system.os", system[: found.start()] if found else system)
        if architecture in ("x86_64", "aarch64", "ppc64le", "arm64", "riscv64"):
            said.tell("system.architecture", architecture)
    if found := re.match(r"glibc-(\d\.\d{1,3})", fields.get("libc version", "")):
        said.tell("system.glibc", found[1])
    elif fields.get("libc version") == "N/A":
        said.deny("system.glibc", "not glibc (Libc version: N/A)")
    tell_platform(said, fields.get("python platform", ""))
    tell_python(said, fields.get("python version", ""))
    said.tell("system.architecture", fields.get("cpu architecture") if "cpu byte order" in fields else None)
    said.tell("system.cpu_model", fields.get("cpu model name") or fields.get("cpu name"))
    if (count := fields.get("cpu cpu(s)", "")).isdigit():
        said.tell("system.cpu_count", int(count[:6]))


def tell_platform(said: Said, platform: str) -> None:
    """Kernel, architecture, WSL and a C library from Python's `platform.platform()`.

    `Linux-5.15.167.4-microsoft-standard-WSL2-x86_64-with-glibc2.39`, `Windows-10-10.0.22631-SP0`,
    `macOS-14.5-arm64-arm-64bit`
    """
    found = re.match(r"Linux-(.{1,90}?)-(x86_64|aarch64|ppc64le|s390x)(?:-|$)", platform)
    if found:
        said.tell("system.kernel", found[1])
        said.tell("system.architecture", found[2])
        tell_wsl(said, found[1])
    elif platform.startswith(("Windows", "macOS", "Darwin")):
        said.tell("system.os", platform.replace("-", " ", 1).split("-")[0])
        said.deny("system.wsl", "not Linux")
        if "arm64" in platform:
            said.tell("system.architecture", "arm64")
    # Python's own build may be older than the system's library, so only where nothing better stands.
    said.tell("system.glibc", find(r"-with-glibc(\d\.\d{1,3})", platform))


def tell_wsl(said: Said, kernel: str) -> None:
    """WSL kernels are named like `5.15.153.1-microsoft-standard-WSL2`."""
    if "microsoft" in kernel.lower() or "WSL" in kernel:
        said.tell("system.wsl", kernel)
    else:
        said.deny("system.wsl", f"kernel {kernel}")


def tell_python(said: Said, text: str) -> None:
    """Version and packager: `3.12.9 | packaged by Anaconda, Inc. | (main, ...) [GCC 11.2.0] (64-bit runtime)`."""
    said.tell("stack.python_version", find(r"^(\d\.\d{1,2}(?:\.\d{1,2})?)(?!\d)", text))
    if "conda" in text.lower():
        said.tell("stack.kind", "conda", "Python is packaged by conda")
    if "AMD64" in text:
        said.tell("system.architecture", "x86_64")
    elif "ARM64" in text:
        said.tell("system.architecture", "arm64")


def _tell_cuda(said: Said, fields: dict[str, str]) -> None:
    runtime = fields.get("cuda runtime version", "")
    if version := find(r"^(\d{1,2}\.\d{1,2}(?:\.\d{1,4})?)", runtime):
        said.tell("cuda.nvcc_version", version)
    elif runtime in ("No CUDA", "Could not collect"):
        said.deny("cuda.nvcc_version", f"nvcc not found (CUDA runtime version: {runtime})")
        said.deny("cuda.nvcc", f"nvcc not found (CUDA runtime version: {runtime})")
    gcc, clang = fields.get("gcc version", ""), fields.get("clang version", "")
    if gcc and not is_nothing(gcc):
        said.tell("cuda.compiler", f"gcc {gcc}")
    elif clang and not is_nothing(clang):
        said.tell("cuda.compiler", f"clang {clang}")
    elif gcc == clang == "Could not collect" and "Windows" not in fields.get("os", "Windows"):
        said.deny("cuda.compiler", "neither gcc nor clang found (GCC version: Could not collect)")
    driver = fields.get("nvidia driver version", "")
    if DRIVER.match(driver):
        said.tell("driver.version", driver)
    elif driver in ("No CUDA", "Could not collect"):
        said.deny("driver.version", f"nvidia-smi gave none (Nvidia driver version: {driver})")


def _tell_gpus(said: Said, fields: dict[str, str]) -> None:
    """The list itself is read by `parse_gpu_list`; here stands what is said in its place."""
    shown = fields.get("gpu models and configuration", "")
    driver = fields.get("nvidia driver version", "")
    if "AMD" in shown or "gfx" in shown:
        said.deny("gpus", f"no NVIDIA GPU, but {shown[:80]}")
    elif shown == "No CUDA":
        said.deny("gpus", "nvidia-smi is not there and torch sees no GPU (No CUDA)")
    elif shown == "Could not collect":
        if "tegra" in fields.get("python platform", "").lower():
            said.fail("gpus", "a Jetson's nvidia-smi does not list its GPU (Could not collect)")
        elif fields.get("is cuda available") == "True" or DRIVER.match(driver):
            said.fail("gpus", "nvidia-smi gave no list (Could not collect)")
        else:
            said.deny("gpus", "nvidia-smi is not there or gave nothing (Could not collect)")
