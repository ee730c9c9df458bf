"""Operating system, CPU and container, from files of the kernel."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from envdoctor.core.paths import exists
from envdoctor.core.records import Fact, System, absent, known, unreadable

# MIDR implementer and part numbers of Arm server cores (Linux arch/arm64/include/asm/cputype.h).
ARM_CORES = {
    ("0x41", "0xd4f"): "Arm Neoverse-V2 (NVIDIA Grace, AWS Graviton4)",
    ("0x41", "0xd40"): "Arm Neoverse-V1",
    ("0x41", "0xd0c"): "Arm Neoverse-N1",
    ("0x41", "0xd49"): "Arm Neoverse-N2",
}


def read_system(root: Path = Path("/")) -> System:
    """Read the facts of the operating system under `root`."""
    uname = os.uname()
    return System(
        architecture=known(uname.machine, "uname -m"),
        os=_read_parsed(root / "etc/os-release", parse_os_release),
        kernel=known(uname.release, "uname -r"),
        glibc=_read_glibc(),
        cpu_model=_read_parsed(root / "proc/cpuinfo", parse_cpu_model),
        cpu_count=known(len(os.sched_getaffinity(0)), "sched_getaffinity"),
        container=read_container(root, os.environ),
        # WSL kernels have names such as 5.15.153.1-microsoft-standard-WSL2.
        wsl=known(uname.release, "uname -r") if "microsoft" in uname.release.lower() else absent("uname -r"),
    )


def parse_os_release(text: str) -> str:
    """The name of the distribution, from `PRETTY_NAME="Ubuntu 24.04.3 LTS"`."""
    found = re.search(r'^PRETTY_NAME="?([^"\n]*)"?$', text, re.MULTILINE)
    return str(found[1]) if found else ""


def parse_cpu_model(text: str) -> str:
    """The CPU model from /proc/cpuinfo.

    x86: `model name      : AMD EPYC 9654 96-Core Processor`. Arm has only the numbers
    `CPU implementer : 0x41` and `CPU part        : 0xd4f`.
    """
    fields: dict[str, str] = dict(re.findall(r"^([\w ]+?)\s*: (.*)$", text, re.MULTILINE))
    if name := fields.get("model name"):
        return name.strip()
    core = (fields.get("CPU implementer", ""), fields.get("CPU part", ""))
    fallback = f"Arm implementer {core[0]} part {core[1]}" if all(core) else ""
    return ARM_CORES.get(core, fallback)


def read_container(root: Path, environ: Mapping[str, str]) -> Fact[str]:
    """The container runtime, from its marker file, its environment variables or the cgroup names."""
    for marker, runtime in ((".dockerenv", "docker"), ("run/.containerenv", "podman")):
        if exists(root / marker):
            return known(runtime, f"/{marker}")
    for variable, runtime in (
        ("APPTAINER_CONTAINER", "apptainer"),
        ("SINGULARITY_CONTAINER", "singularity"),
        ("KUBERNETES_SERVICE_HOST", "kubernetes"),
    ):
        if environ.get(variable):
            return known(runtime, variable)
    source = root / "proc/1/cgroup"
    try:
        found = re.search(r"docker|kubepods|containerd|lxc", source.read_text())
    except OSError as error:
        return unreadable("/proc/1/cgroup", str(error.strerror))
    return known(found[0], "/proc/1/cgroup") if found else absent("/proc/1/cgroup")


def _read_parsed(path: Path, parse: Callable[[str], str]) -> Fact[str]:
    try:
        value = parse(path.read_text(errors="replace"))
    except OSError as error:
        return unreadable(str(path), str(error.strerror))
    return known(value, str(path)) if value else absent(str(path))


def _read_glibc() -> Fact[str]:
    """`confstr` returns "glibc 2.39". Other C libraries (musl) do not define the name and cannot use glibc wheels."""
    source = "confstr CS_GNU_LIBC_VERSION"
    try:
        text = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        return absent(source, "not glibc")
    return known(text.removeprefix("glibc "), source) if text else absent(source)
