"""Rules on the C and C++ libraries of the system: glibc and libstdc++."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.core.records import Extension, Machine, Stack
from envdoctor.core.remedies import Remedy, steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.images import image_tables
from envdoctor.knowledge.kernel_files import is_optional
from envdoctor.knowledge.published import find_release
from envdoctor.knowledge.versions import dotted_numbers, public_part
from envdoctor.rules.facts import (
    first_in_use,
    gpus_of,
    installed_version,
    is_from_conda,
    is_from_report,
    parse_major_minor,
    torch_cuda,
    torch_version,
)
from envdoctor.rules.host_remedies import set_path
from envdoctor.rules.registry import Problem, evidence, rule
from envdoctor.rules.torch_install import platform_of

# glibc that vLLM's wheels need, from their tags (aarch64 wheels, 2026-11-21). The tags before 0.12 are too low:
# vllm/_moe_C.abi3.so of 0.10.2 and 0.9.2 needs 2.29. torch 2.7, which 0.9 requires, needs 2.28. All files of the
# x86_64 wheels of 0.5.5, 0.7.2 and 0.8.3 need 2.14 (read on 2026-11-26), and their torch 2.17.
GCC_OF_GLIBCXX = {"3.4.29": 11, "3.4.30": 12, "3.4.31": 13, "3.4.32": 13, "3.4.33": 14, "3.4.34": 15}
NEWEST_SYSTEM = "ubuntu24.04"  # of the images in images.toml; glibc 2.39
# glibc of systems that a list names without it: the package of each release (distrowatch.com, 2026-11-28).
SYSTEM_GLIBC = (
    (r"(?:centos|red hat|rhel|scientific linux|oracle)\D{0,30}7\b", "2.17"),
    (r"ubuntu\D{0,10}16\.04", "2.23"),
    (r"ubuntu\D{0,10}18\.04", "2.27"),
)
VLLM_GLIBC = (
    ((0, 22), (2, 28)), ((0, 21), (2, 28)), ((0, 20), (2, 35)), ((0, 12), (2, 31)), ((0, 10), (2, 29)),
    ((0, 9), (2, 28)), ((0, 0), (2, 17)),
)  # fmt: skip


@rule(
    "PY006",
    kind="environment",
    severity="error",
    cause="glibc-too-old",
    url="https://github.com/mayeut/pep600_compliance",
)
def glibc_is_older_than_wheels_need(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """The system's C library is older than compiled files of the environment require.

    "version `GLIBC_2.32' not found". vLLM's wheels need 2.28 or newer from 0.9 on, torch from 2.7 on needs 2.28;
    CentOS 7 has 2.17. The rule reads the compiled files if possible, else it uses a table of releases. In a list that
    names an old system without its glibc, the glibc of that system is compared, unless a container is named or torch
    was imported.

    Fix: use a newer distribution or a container. Do not replace glibc manually: this breaks the system.

    References:
    https://github.com/pypa/manylinux
    """
    glibc = machine.system.glibc.value or _glibc_of_system(machine, stack)
    installed = parse_major_minor(glibc)
    if not installed:
        return
    loaded = [extension for extension in stack.extensions.value or () if not is_optional(extension)]
    files = [extension for extension in loaded if (needs := parse_major_minor(extension.glibc)) and needs > installed]
    shown = (evidence("system.glibc", machine.system.glibc), evidence("system.os", machine.system.os))
    wheels = _message_of_wheels(stack, installed) or _required_glibc(machine, stack, installed)
    what = _message_of_files(files) or wheels
    if what:
        yield Problem(
            "error",
            f"glibc {glibc}; {what}",
            shown,
            "Use a container with a newer system, or a newer distribution; do not replace glibc.",
            steps(_newer_system(machine, stack)),
        )  # fmt: skip


@rule("PY008", kind="environment", severity="error", cause="libstdcxx-too-old")
def libstdcxx_is_older_than_files_need(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """The C++ library that this environment's Python loads is older than its compiled files require.

    "version `GLIBCXX_3.4.30' not found". An old conda libstdcxx-ng in the environment, or an old copy on
    LD_LIBRARY_PATH, is found before the system's newer one; or the system itself is old.

    Fix: in a conda environment install a newer libstdcxx-ng from conda-forge. Otherwise remove the old copy from the
    path, or use a newer distribution or container.

    References:
    https://gcc.gnu.org/onlinedocs/libstdc++/manual/abi.html
    """
    provided = dotted_numbers(stack.libstdcxx.value or "")
    loaded = [extension for extension in stack.extensions.value or () if not is_optional(extension)]
    incompatible = [extension for extension in loaded if provided and dotted_numbers(extension.glibcxx) > provided]
    if incompatible:
        worst = max(incompatible, key=lambda extension: dotted_numbers(extension.glibcxx))
        yield Problem(
            "error",
            f"{worst.path} needs GLIBCXX_{worst.glibcxx}, {stack.libstdcxx.source} has up to {stack.libstdcxx.value}"
            + (f"; {len(incompatible) - 1} more files need it as well" if len(incompatible) > 1 else ""),
            (evidence("stack.libstdcxx", stack.libstdcxx),),
            *_newer_libstdcxx(machine, stack, worst.glibcxx),
        )


def _newer_libstdcxx(machine: Machine, stack: Stack, needed: str) -> tuple[str, tuple[Remedy, ...]]:
    """The fix and its remedy, by the place of the library that is loaded."""
    folder = stack.libstdcxx.source.rpartition("/")[0]
    path = (machine.environment.value or {}).get("LD_LIBRARY_PATH", "")
    listed = [part for part in path.split(":") if part and part.rstrip("/") == folder]
    if listed:
        return f"Remove {folder} from LD_LIBRARY_PATH.", steps(set_path("LD_LIBRARY_PATH", path, listed))
    if stack.kind.value == "conda" and not folder.startswith(("/usr/", "/lib")):
        gcc = GCC_OF_GLIBCXX.get(needed, max(GCC_OF_GLIBCXX.values()))
        command = shell_command(
            "conda install -p {} -c conda-forge 'libstdcxx-ng>={}'", folder.rpartition("/")[0], gcc
        )
        return "Install a newer libstdcxx-ng from conda-forge.", steps(command)
    return "Use a container with a newer system, or a newer distribution.", steps(_newer_system(machine, stack))


def _newer_system(machine: Machine, stack: Stack) -> str:
    """The command that starts a container with a newer system: that of the installed vLLM, or of torch's CUDA."""
    options = ["--rm", "-it", *(["--gpus", "all"] if gpus_of(machine) else [])]
    vllm = installed_version(stack, "vllm")
    if vllm and not vllm.is_prerelease:
        return shell_command(
            "docker run {} --ipc=host --entrypoint bash vllm/vllm-openai:v{}", options, vllm.base_version
        )
    rows = [row for row in image_tables().cuda if row.system == NEWEST_SYSTEM]
    image = next((row for row in rows if row.build == torch_cuda(stack)), rows[0])
    return shell_command("docker run {} nvidia/cuda:{}-base-{}", options, image.version, image.system)


def _message_of_files(files: list[Extension]) -> str:
    if not files:
        return ""
    worst = max(files, key=lambda extension: parse_major_minor(extension.glibc) or (0, 0))
    return f"{worst.path} of {worst.distribution} needs {worst.glibc}"


def _message_of_wheels(stack: Stack, installed: tuple[int, int]) -> str:
    """A wheel whose name requires a newer glibc: `vllm-0.30.0-cp38-abi3-manylinux_2_39_x86_64.whl`."""
    for distribution in (stack.distributions.value or {}).values():
        tags = [
            (int(major), int(minor)) for major, minor in re.findall(r"manylinux_(\d)_(\d{1,2})_", distribution.source)
        ]
        if tags and min(tags) > installed:
            return f"{distribution.source} needs {min(tags)[0]}.{min(tags)[1]} or newer"
    return ""


def _required_glibc(machine: Machine, stack: Stack, installed: tuple[int, int]) -> str:
    """The glibc that vLLM or torch of a report needs, if it is newer than the system's."""
    if first_in_use(stack, "vllm"):
        found = installed_version(stack, "vllm")  # an unknown one is probably recent
        line = (found.release[0], found.release[1]) if found and len(found.release) > 1 else (0, 9)
        needs = next(needs for first, needs in VLLM_GLIBC if line >= first)
        if installed < needs:
            return f"vLLM {found or ''} needs {needs[0]}.{needs[1]} or newer".replace("  ", " ")
    return _required_by_torch(machine, stack, installed)


def _glibc_of_system(machine: Machine, stack: Stack) -> str:
    """The glibc of an old system that a list names; empty for others, in a container and where torch runs."""
    if not is_from_report(stack) or machine.system.container.value or machine.system.wsl.value:
        return ""
    name = (machine.system.os.value or "").lower()
    return next((glibc for pattern, glibc in SYSTEM_GLIBC if re.match(pattern, name)), "")


def _required_by_torch(machine: Machine, stack: Stack, installed: tuple[int, int]) -> str:
    """The glibc of PyPI's wheel of torch, for a report where torch was not imported; conda's builds need less."""
    of_conda = stack.kind.value == "conda" or any(map(is_from_conda, (stack.distributions.value or {}).values()))
    if not is_from_report(stack) or of_conda or stack.cuda_available.state == "known":
        return ""
    version = public_part(torch_version(stack))
    release = find_release("torch", version) if version else None
    needs = parse_major_minor(release.glibc.get(platform_of(machine))) if release else None
    return f"torch {version} needs {needs[0]}.{needs[1]} or newer" if needs and installed < needs else ""
