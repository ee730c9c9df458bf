"""Parser for the collect_env scripts of PyTorch and vLLM.

Placeholders for missing values (torch/utils/collect_env.py, `pretty_str`):
- `N/A`: torch cannot be imported.
- `Could not collect`: one tool returned nothing.
- `No CUDA`: torch was imported, `torch.cuda.is_available()` is False, and nvcc, the GPU list of nvidia-smi and the
  driver version are all missing.
"""

from __future__ import annotations

import re

from envdoctor.core.patterns import lazy_pattern
from envdoctor.reports.section import Line, Section, first_group, is_missing, is_version, truth_of

# Keys that only collect_env prints, in lower case. One of them is enough to recognise the report.
COLLECT_ENV_KEYS = frozenset({
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
WINDOWS_CPU = lazy_pattern(
    r"(?:Architecture|CurrentClockSpeed|DeviceID|Family|L2CacheSize|L2CacheSpeed|Manufacturer|MaxClockSpeed"
    r"|Name|ProcessorType|Revision)=(.*)"
)
WINDOWS_11 = 22000
DRIVER_VERSION = lazy_pattern(r"\d{2,4}\.\d{2,4}(?:\.\d{2,4})?$")  # a shorter number is the start of one


def parse_collect_env(lines: list[Line]) -> Section | None:
    """Parse a complete or partial collect_env report; None if the text contains none.

    ```
    PyTorch version: 2.4.0+cu121                       |  PyTorch version              : 2.9.0+cu128
    CUDA used to build PyTorch: 12.1                   |  ==============================
    OS: Ubuntu 20.04.6 LTS (x86_64)                    |         CUDA / GPU Info
    Is CUDA available: False                           |  ==============================
    GPU models and configuration: No CUDA              |  GPU models and configuration : GPU 0: NVIDIA H100
    ```
    """
    keys = COLLECT_ENV_KEYS | VLLM_KEYS
    own_lines = [line for line in lines if _is_collect_env_line(line, keys)]
    has_heading = any(line.text.startswith("Collecting environment information") for line in lines)
    if not own_lines and not has_heading:
        return None
    section = Section("collect_env (vLLM)" if _is_vllm(lines) else "collect_env (PyTorch)")
    fields = _read_fields(lines, section)
    _record_torch(section, fields)
    _record_system(section, fields)
    _record_cuda(section, fields)
    _record_gpus(section, fields)
    version = fields.get("vllm version", "").split(" ")[0].split("@")[0]
    if version and not is_missing(version):
        section.add_distribution("vllm", version)
    return section


def _is_vllm(lines: list[Line]) -> bool:
    """Whether the report is from vLLM's version of collect_env, or contains log lines of vLLM."""
    return any(
        line.key in VLLM_KEYS
        or (line.key in COLLECT_ENV_KEYS and " :" in line.text[:40])
        or line.text.strip("# ").lower() in ("pytorch info", "cuda / gpu info", "vllm info")
        or "Automatically detected platform" in line.text
        or "vllm/collect_env.py" in line.text
        or "_custom_ops.py:" in line.text
        for line in lines
    )


def _is_collect_env_line(line: Line, keys: frozenset[str]) -> bool:
    """Whether a line belongs to collect_env.

    TRL and transformers print `- PyTorch version: ...` as a list item, and ComfyUI `pytorch version: ...`.
    """
    return line.key in keys and not (line.key == "pytorch version" and line.text[0] in "-*\u2022p")


def _read_fields(lines: list[Line], section: Section) -> dict[str, str]:
    """The first meaningful value of each key. Marks all lines of the report as consumed."""
    fields: dict[str, str] = {}
    current_key = ""  # the key of a value with several lines
    for line in lines:
        text = line.text
        if line.key in COLLECT_ENV_KEYS or line.key in VLLM_KEYS or line.key in SHARED_KEYS:
            if text[0] in "-*\u2022":
                continue  # a list item of another tool
            _set_field(fields, line.key, line.value)
            section.consumed.add(line.number)
            current_key = line.key
        elif line.key in CPU_KEYS or line.key.startswith(("numa node", "vulnerability ")):
            _set_field(fields, "cpu " + line.key, line.value)
            section.consumed.add(line.number)
        elif match := WINDOWS_CPU.match(text):
            _set_field(fields, "cpu " + text.partition("=")[0].lower(), match[1])
            section.consumed.add(line.number)
        elif _is_layout_line(text, current_key):
            if current_key == "nvidia driver version" and DRIVER_VERSION.match(text):
                _set_field(fields, current_key, text)
            section.consumed.add(line.number)
        elif current_key == "cpu" and text.startswith("Apple "):
            _set_field(fields, "cpu model name", text)
            section.consumed.add(line.number)
        elif current_key == "os" and "os" in fields and not fields["os"]:
            fields["os"] = text  # on Windows, wmic prints the name on the next line
            current_key = ""
    return fields


def _set_field(fields: dict[str, str], key: str, value: str) -> None:
    if not fields.get(key) or (is_missing(fields[key]) and not is_missing(value)):
        fields[key] = value


def _is_layout_line(text: str, current_key: str) -> bool:
    """Whether a line is a rule, a heading, a file below `cuDNN version`, or a version below the driver's key."""
    if text[0] == "=" and not text.strip("="):
        return True
    if text.strip("# :").lower() in HEADINGS:
        return True
    if current_key == "cudnn version" and (text.startswith(("/usr", "/opt", "/lib", "C:\\")) or "cudnn" in text):
        return "error" not in text.lower()
    return current_key == "nvidia driver version" and bool(DRIVER_VERSION.match(text))


def _record_torch(section: Section, fields: dict[str, str]) -> None:
    version = fields.get("pytorch version", "")
    if version.upper() == "N/A":
        section.set_absent("stack.torch", "torch cannot be imported (PyTorch version: N/A)")
    elif is_version(version):
        section.set_fact("stack.torch.version", version)
    cuda, hip = fields.get("cuda used to build pytorch", ""), fields.get("rocm used to build pytorch", "")
    if hip[:1].isdigit():
        section.set_fact("stack.torch.hip", hip.split(" ")[0])
        section.set_absent("stack.torch.cuda", "a ROCm build")
    elif cuda_release := first_group(r"^(\d{1,2}\.\d{1,2})", cuda):
        section.set_fact("stack.torch.cuda", cuda_release)
        section.set_absent("stack.torch.hip", "a CUDA build")
    elif cuda in ("None", "Could not collect"):
        section.set_absent("stack.torch.cuda", f"a build without CUDA (CUDA used to build PyTorch: {cuda})")
        section.set_absent("stack.torch.hip", "a build without CUDA")
    section.set_fact("stack.cuda_available", truth_of(fields.get("is cuda available", "")))


def _record_system(section: Section, fields: dict[str, str]) -> None:
    system = fields.get("os", "")
    if not is_missing(system):
        match = re.search(r"\s*\(([^()]{3,12})\)$", system)
        architecture = match[1] if match else ""
        name = system[: match.start()] if match else system
        section.set_fact("system.os", re.sub(r"(?i)^win ?(?=1[01]\b)", "Windows ", name))  # `OS: Win11` of a person
        if architecture in ("x86_64", "aarch64", "ppc64le", "arm64", "riscv64"):
            section.set_fact("system.architecture", architecture)
    if match := re.match(r"glibc-(2\.\d{2,3})", fields.get("libc version", "")):
        section.set_fact("system.glibc", match[1])
    elif fields.get("libc version") == "N/A":
        section.set_absent("system.glibc", "not glibc (Libc version: N/A)")
    record_platform(section, fields.get("python platform", ""))
    record_python_version(section, fields.get("python version", ""))
    section.set_fact("system.architecture", fields.get("cpu architecture") if "cpu byte order" in fields else None)
    section.set_fact("system.cpu_model", fields.get("cpu model name") or fields.get("cpu name"))
    if (count := fields.get("cpu cpu(s)", "")).isdigit():
        section.set_fact("system.cpu_count", int(count[:6]))


def record_platform(section: Section, platform: str) -> None:
    """Record kernel, architecture, WSL and glibc from the output of `platform.platform()`.

    `Linux-5.15.167.4-microsoft-standard-WSL2-x86_64-with-glibc2.39`, `Windows-10-10.0.22631-SP0`,
    `macOS-14.5-arm64-arm-64bit`
    """
    match = re.match(r"Linux-(.{1,90}?)-(x86_64|aarch64|ppc64le|s390x)(?:-|$)", platform)
    if match:
        section.set_fact("system.kernel", match[1])
        section.set_fact("system.architecture", match[2])
        record_wsl(section, match[1])
    elif platform.startswith(("Windows", "macOS", "Darwin")):
        section.set_fact("system.os", _name_of_platform(platform))
        section.set_absent("system.wsl", "not Linux")
        if "arm64" in platform:
            section.set_fact("system.architecture", "arm64")
    # Python may have been built with an older glibc than the system has; a value read earlier has precedence.
    section.set_fact("system.glibc", first_group(r"-with-glibc(2\.\d{2,3})", platform))


def _name_of_platform(platform: str) -> str:
    """`macOS 14.5`, `Windows 11`. Windows 11 has builds from 22000 on, and Python's older releases name it 10."""
    build = re.match(r"Windows-10-10\.0\.(\d{5})", platform)
    return "Windows 11" if build and int(build[1]) >= WINDOWS_11 else platform.replace("-", " ", 1).split("-")[0]


def record_wsl(section: Section, kernel: str) -> None:
    """Record whether the kernel is one of WSL, such as `5.15.153.1-microsoft-standard-WSL2`."""
    if "microsoft" in kernel.lower() or "WSL" in kernel:
        section.set_fact("system.wsl", kernel)
    else:
        section.set_absent("system.wsl", f"kernel {kernel}")


def record_python_version(section: Section, text: str) -> None:
    """Record version and distributor of `3.12.9 | packaged by Anaconda, Inc. | (main, ...) [GCC 11.2.0]`."""
    section.set_fact("stack.python_version", first_group(r"^(\d\.\d{1,2}(?:\.\d{1,2})?)(?!\d)", text))
    if "conda" in text.lower():
        section.set_fact("stack.kind", "conda", "Python is packaged by conda")
    if "AMD64" in text:
        section.set_fact("system.architecture", "x86_64")
    elif "ARM64" in text:
        section.set_fact("system.architecture", "arm64")
    if "MSC v." in text:
        section.set_fact("system.os", "Windows", "from Python's compiler")


def _record_cuda(section: Section, fields: dict[str, str]) -> None:
    runtime = fields.get("cuda runtime version", "")
    if version := first_group(r"^(\d{1,2}\.\d{1,2}(?:\.\d{1,4})?)", runtime):
        section.set_fact("cuda.nvcc_version", version)
    elif runtime in ("No CUDA", "Could not collect"):
        section.set_absent("cuda.nvcc_version", f"nvcc not found (CUDA runtime version: {runtime})")
        section.set_absent("cuda.nvcc", f"nvcc not found (CUDA runtime version: {runtime})")
    gcc, clang = fields.get("gcc version", ""), fields.get("clang version", "")
    if gcc and not is_missing(gcc):
        section.set_fact("cuda.compiler", f"gcc {gcc}")
    elif clang and not is_missing(clang):
        section.set_fact("cuda.compiler", f"clang {clang}")
    elif gcc == clang == "Could not collect" and "Windows" not in fields.get("os", "Windows"):
        section.set_absent("cuda.compiler", "neither gcc nor clang found (GCC version: Could not collect)")
    driver = fields.get("nvidia driver version", "")
    if DRIVER_VERSION.match(driver):
        section.set_fact("driver.version", driver)
    elif driver in ("No CUDA", "Could not collect"):
        section.set_absent("driver.version", f"nvidia-smi returned no version (Nvidia driver version: {driver})")


def _record_gpus(section: Section, fields: dict[str, str]) -> None:
    """Record the placeholders that replace the GPU list. `parse_gpu_list` reads the list itself."""
    gpu_models = fields.get("gpu models and configuration", "")
    driver = fields.get("nvidia driver version", "")
    if "AMD" in gpu_models or "gfx" in gpu_models:
        section.set_absent("gpus", f"no NVIDIA GPU, but {gpu_models[:80]}")
    elif gpu_models == "No CUDA":
        section.set_absent("gpus", "nvidia-smi was not found and torch detects no GPU (No CUDA)")
    elif gpu_models == "Could not collect":
        if "tegra" in fields.get("python platform", "").lower():
            section.set_unreadable("gpus", "nvidia-smi on Jetson does not list the GPU (Could not collect)")
        elif truth_of(fields.get("is cuda available", "")) or DRIVER_VERSION.match(driver):
            section.set_unreadable("gpus", "nvidia-smi returned no list (Could not collect)")
        else:
            section.set_absent("gpus", "nvidia-smi was not found or returned nothing (Could not collect)")


def record_compiler(section: Section, value: str) -> bool:
    """`13.2.0` of gcc, `gcc 11.4`, `gcc (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0` in lists of people."""
    text = f"gcc {value}" if value[:1].isdigit() else value
    compiler = first_group(r"(?i)^((?:gcc|g\+\+)(?: ?\([^()]{2,40}\))? v?\d{1,2}\.\d[\d.]{0,6})", text)
    section.set_fact("cuda.compiler", compiler)
    return bool(compiler)
