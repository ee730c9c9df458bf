"""Rules on torch's build: CUDA support, code for the GPUs, and a driver that supports it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from envdoctor.core.records import Evidence, Gpu, Machine, Stack, known
from envdoctor.core.remedies import Remedy, either, steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.architectures import TEGRA, Capability, architecture, capability_of, runs_as_ptx, runs_native
from envdoctor.knowledge.cuda import first_toolkit_of_generation
from envdoctor.knowledge.torch_builds import KnownBuild, known_build, known_builds
from envdoctor.knowledge.versions import dotted_numbers, major_minor, satisfies
from envdoctor.rules.driver_remedies import upgrade_driver
from envdoctor.rules.facts import (
    first_in_use,
    gpu_label,
    gpu_labels,
    gpus_of,
    is_reported,
    parse_major_minor,
    torch_cuda,
    torch_label,
    torch_version,
)
from envdoctor.rules.registry import Problem, evidence, rule
from envdoctor.rules.requirements import version_evidence, versions_of
from envdoctor.rules.torch_install import best_torch, covers, driver_for, platform_of

SUPPORT_MATRIX = "https://github.com/pytorch/pytorch/blob/main/RELEASE.md#pytorch-cuda-support-matrix"
OTHER_GPU = r"(?i)\b(amd|radeon|instinct|gfx\w+|intel|arc)\b"
CUDA_ONLY = ("xformers", "flash-attn")  # of no use without a GPU
OLDEST_ALWAYS_SUPPORTED = (7, 5)  # builds have dropped Maxwell, Pascal and Volta, but not yet Turing and later


@rule("TORCH001", kind="environment", severity=("error", "warning"), cause="gpu-arch-not-in-build")
def torch_has_no_code_for_a_newer_gpu(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """The installed torch has no code for a GPU that is newer than the build.

    torch prints "sm_120 is not compatible with the current PyTorch installation", and the first kernel fails with "no
    kernel image is available for execution on the device". Native code runs on later chips of the same major version
    (`sm_86` on 8.9), but not on the next one. On a machine with different GPU models each one is checked. A
    release that no table has is judged by its CUDA version: nvcc has no code for later generations of GPUs.

    Fix: install a build for a newer CUDA version that the driver supports; the finding names one.

    References:
    https://github.com/pytorch/pytorch/blob/main/RELEASE.md#pytorch-cuda-support-matrix
    https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#binary-compatibility
    """
    yield from _uncovered(machine, stack, newer=True)


@rule("TORCH002", kind="environment", severity="error", cause="gpu-arch-dropped", url=SUPPORT_MATRIX)
def torch_dropped_an_older_gpu(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """A GPU is older than the oldest one that the installed torch has code for.

    Builds for CUDA 12.8 have no code for Maxwell and Pascal (and Volta in 2.7 and from 2.11 on), builds for CUDA 13
    none for GPUs before Turing. A newer torch does not help.

    Fix: install the build of the same release for CUDA 12.6, or an older torch; the finding names one. From torch
    2.15 on no build supports these GPUs.

    References:
    https://github.com/pytorch/pytorch/issues/157517
    https://github.com/pytorch/pytorch/issues/172352
    https://github.com/pytorch/pytorch/issues/190385
    """
    yield from _uncovered(machine, stack, newer=False)


@rule(
    "TORCH003",
    kind="environment",
    severity=("error", "warning"),
    cause="torch-cpu-build",
    url="https://docs.astral.sh/uv/guides/integration/pytorch/",
)
def torch_is_built_without_cuda(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """torch is a CPU (or ROCm) build on a machine with an NVIDIA GPU.

    `torch.cuda.is_available()` is False, and programs run on the CPU or fail. Such builds come from a CPU index, from
    PyPI on Windows, from PyPI on Arm servers (up to torch 2.10 a CPU build), or from a later installation that
    replaced the CUDA build without a warning.

    Fix: reinstall torch, torchvision and torchaudio from a CUDA index that the driver supports.

    References:
    https://github.com/pytorch/pytorch/issues/160162
    https://docs.astral.sh/uv/guides/integration/pytorch/
    """
    build = stack.torch.value
    if not build or not is_without_cuda(stack) or "mac" in (machine.system.os.value or "").lower():
        return
    gpus, driver = nvidia_gpus(machine), machine.driver.version.value
    if build.hip.value and not (gpus and driver):  # a text compares the machine with another one
        return
    hip = f"ROCm {build.hip.value}" if build.hip.value else "CPU"
    shown = (evidence("torch.version", build.version), evidence("torch.cuda", build.cuda))
    if gpus or driver:
        reason = f"this machine has {gpu_labels(gpus) if gpus else f'an NVIDIA driver ({driver})'}"
        status = "warning" if _is_chosen_cpu_build(machine, stack) else "error"
    elif machine.cuda.nvcc_version.value and is_reported(machine.gpus) and not first_in_use(stack, "vllm"):
        reason = f"this machine has a CUDA toolkit ({machine.cuda.nvcc_version.value})"
        status = "warning"
    elif "with a request for GPUs" in machine.system.container.note and is_reported(machine.gpus):
        reason = "its container was started with a request for GPUs"
        status = "warning"
    elif (kernels := first_in_use(stack, *CUDA_ONLY)) and is_reported(machine.gpus):
        reason = f"{kernels} is installed, which has kernels for CUDA only"
        status = "warning"
    elif replaced := re.search(r"replaced (torch \S+?(?:\+cu\d|cuda)\S*)", build.cuda.note):
        reason = f"it replaced {replaced[1]}"
        status = "error"
    else:
        return
    advice = best_torch(machine, stack, same_release=True)
    without = _without_build(machine, stack, "the GPUs")
    certain = build.cuda.state == "absent" or bool(build.hip.value) or "+" in (build.version.value or "")
    name = f"torch {build.version.value or ''}".rstrip()
    yield Problem(
        "error" if status == "error" and certain else "warning",
        f"{name} is a {hip} build, but {reason}"
        if certain
        else f"{name} finds no CUDA, but {reason}: it is not a CUDA build, or the driver fails",
        (*shown, evidence("gpus", machine.gpus)),
        f"Reinstall torch with CUDA: {advice}." if advice else without[0],
        steps(*advice.steps) if advice else without[1] or steps("nvidia-smi"),
    )


def _is_chosen_cpu_build(machine: Machine, stack: Stack) -> bool:
    """Whether a report has the build `+cpu` for Linux and x86_64, which only PyTorch's CPU index has."""
    system = (machine.system.os.value or "windows").lower()  # PyPI's build for Windows has this name as well
    linux = (bool(machine.system.wsl.value) or "windows" not in system) and platform_of(machine) == "x86_64"
    return is_reported(machine.gpus) and linux and "+cpu" in torch_version(stack)


def nvidia_gpus(machine: Machine) -> tuple[Gpu, ...]:
    """The GPUs, without those that a report of a ROCm or XPU build lists."""
    return tuple(gpu for gpu in gpus_of(machine) if not re.search(OTHER_GPU, gpu.name.value or ""))


def is_without_cuda(stack: Stack) -> bool:
    """Whether torch is a CPU or ROCm build, according to its files or a report."""
    build = stack.torch.value
    if not build:
        return False
    if build.hip.value or re.search(r"\+(cpu|rocm)", build.version.value or ""):
        return True
    if torch_cuda(stack):
        return False
    reported = is_reported(build.cuda) and stack.cuda_available.value is False  # "Could not collect" on Windows
    return build.cuda.state == "absent" or reported


def code_of_torch(machine: Machine, stack: Stack) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    """Native code and PTX of torch, and their source; empty if unknown.

    The compiled files have precedence over the tables. Code with a suffix does not count, because torch contains a
    few kernels for specific chips (`sm_90a`, `sm_121a`) that do not make a GPU supported.
    """
    build = stack.torch.value
    if build and build.architectures.value:
        names = build.architectures.value
        plain = tuple(name for name in names if re.fullmatch(r"(sm|compute)_\d+", name)) or names
        native = tuple(name for name in plain if name.startswith("sm_"))
        return native, tuple(set(plain) - set(native)), build.architectures.source
    version, cuda = torch_version(stack), torch_cuda(stack)
    line = parse_major_minor(version)
    if not line or re.search(r"\d(a0|\.nv|\.dev|\+git)", version):
        return (), (), ""  # NVIDIA's, nightly and local builds differ from the tables
    row = known_build(f"{line[0]}.{line[1]}", cuda, platform_of(machine)) if cuda else None
    return (row.architectures, row.ptx, f"table of PyTorch builds: {row.source}") if row else ((), (), "")


def runs_on_torch(machine: Machine, stack: Stack, gpu: Gpu) -> bool | None:
    """Whether torch has code for a GPU; None if its code or the GPU's capability is unknown."""
    native, ptx, _ = code_of_torch(machine, stack)
    if not native or not (capability := capability_of(gpu)):
        return None
    return runs_native(native, capability) or runs_as_ptx(ptx, capability)


def has_code_for_every_gpu(machine: Machine, stack: Stack) -> bool:
    """Whether the machine has GPUs and torch has code for all of them."""
    gpus = gpus_of(machine)
    return bool(gpus) and all(runs_on_torch(machine, stack, gpu) for gpu in gpus)


def _uncovered(machine: Machine, stack: Stack, *, newer: bool) -> Iterator[Problem]:
    native, ptx, source = code_of_torch(machine, stack)
    rows = () if native else possible_builds(machine, stack)
    for gpu in _visible(machine):
        if not (capability := capability_of(gpu)):
            continue
        if rows and capability not in TEGRA and all(not covers(row, [capability]) for row in rows):
            native, ptx, source = rows[-1].architectures, rows[-1].ptx, f"table of PyTorch builds: {rows[-1].source}"
        elif rows or not native:
            if newer and not rows:
                yield from _too_old_compiler(machine, stack, gpu, capability)
            continue
        if runs_native(native, capability) or runs_as_ptx(ptx, capability):
            continue
        if _is_newer(native, capability) == newer:
            yield _uncovered_problem(machine, stack, gpu, (native, source))


def _visible(machine: Machine) -> tuple[Gpu, ...]:
    """The GPUs that CUDA may use; CUDA_VISIBLE_DEVICES counts in nvidia-smi's order only with CUDA_DEVICE_ORDER."""
    variables = machine.environment.value or {}
    chosen = variables.get("CUDA_VISIBLE_DEVICES", "")
    if variables.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID" or not re.fullmatch(r"\d+(,\d+)*", chosen):
        return gpus_of(machine)
    return tuple(gpu for gpu in gpus_of(machine) if str(gpu.index) in chosen.split(","))


def _is_newer(native: tuple[str, ...], gpu: Capability) -> bool:
    """Whether a GPU without code is newer than the build; otherwise the build dropped it."""
    built = sorted(parsed[0] for name in native if (parsed := architecture(name)))
    if not built or gpu > built[-1]:
        return True
    return gpu > built[0] and (gpu >= OLDEST_ALWAYS_SUPPORTED or gpu in TEGRA)


def possible_builds(machine: Machine, stack: Stack) -> list[KnownBuild]:
    """PyTorch's builds that match a report with only a release, only a CUDA version, or a nightly build.

    A nightly build matches the releases before and after it for the same CUDA version.
    """
    build, version, cuda = stack.torch.value, torch_version(stack), torch_cuda(stack)
    line = parse_major_minor(version)
    if (
        not build
        or not is_reported(stack.torch)
        or is_without_cuda(stack)
        or re.search(r"\d(a0|\.nv|\+git)", version)
    ):
        return []
    rows = [row for row in known_builds() if row.platform == platform_of(machine) and cuda in ("", row.cuda)]
    if ".dev" in version and line:
        before = [row for row in rows if major_minor(row.torch) < line][-1:]
        return [*before, *[row for row in rows if major_minor(row.torch) >= line][:1]] if cuda else []
    return [row for row in rows if line in (None, major_minor(row.torch))] if line or cuda else []


def _too_old_compiler(machine: Machine, stack: Stack, gpu: Gpu, capability: Capability) -> Iterator[Problem]:
    """Report a build of an unknown release by its CUDA version, whose nvcc has no code for this GPU's generation."""
    cuda, first = parse_major_minor(torch_cuda(stack)), first_toolkit_of_generation(capability)
    if not cuda or not first or cuda >= major_minor(first.cuda) or ".nv" in torch_version(stack):  # .nv: TORCH011
        return
    advice = best_torch(machine, stack)
    yield Problem(
        "warning" if re.search(r"\d(a0|\.dev|\+git)", torch_version(stack)) else "error",  # these may have PTX
        f"{torch_label(stack)} is built with CUDA {torch_cuda(stack)}, which has no native code for "
        f"{gpu_label(gpu)}; CUDA {first.cuda} is the first that does",
        (_capability(gpu), Evidence("torch.cuda", torch_cuda(stack), stack.torch.source)),
        f"Install {advice or 'a torch for a newer CUDA version'}.",
        steps(*advice.steps) if advice else (),
    )


def _capability(gpu: Gpu) -> Evidence:
    return evidence(f"gpus.{gpu.index}.compute_capability", gpu.compute_capability)


def _uncovered_problem(machine: Machine, stack: Stack, gpu: Gpu, code: tuple[tuple[str, ...], str]) -> Problem:
    native, source = code
    advice = best_torch(machine, stack)
    shown = (_capability(gpu), Evidence("torch.architectures", " ".join(native), source))
    name = torch_label(stack) + (f" (CUDA {cuda})" if (cuda := torch_cuda(stack)) else "")
    message = f"{name} has no code for {gpu_label(gpu)}; it has {' '.join(native)}"
    others = "all GPUs" if len(gpus_of(machine)) > 1 else "this GPU"
    if advice:
        return Problem(
            "error", message, shown, f"Install {advice}, which has code for {others}.", steps(*advice.steps)
        )
    fix, remedies = _without_build(machine, stack, others)
    if len(gpus_of(machine)) > 1:
        visible = ",".join(str(other.index) for other in gpus_of(machine) if other != gpu)
        fix += " Or hide this GPU from CUDA."
        remedies += steps(
            "export CUDA_DEVICE_ORDER=PCI_BUS_ID", shell_command("export CUDA_VISIBLE_DEVICES={}", visible)
        )
    return Problem("error", message, shown, fix, remedies)


def _without_build(machine: Machine, stack: Stack, gpus: str) -> tuple[str, tuple[Remedy, ...]]:
    """The fix and the remedies where no build has code for the GPUs and runs on the driver."""
    needed, driver = driver_for(machine), dotted_numbers(machine.driver.version.value or "")
    if not needed or not driver or driver >= needed:
        return f"No build of torch fits {gpus}, this Python and the installed packages.", ()
    oldest = ".".join(f"{part:02}" for part in needed)
    upgraded = msgspec.structs.replace(machine.driver, version=known(oldest, "after the upgrade"))
    after = best_torch(msgspec.structs.replace(machine, driver=upgraded), stack)
    upgrade, remedies = upgrade_driver(machine, oldest)
    fix = f"Driver {machine.driver.version.value} is too old for every build of torch with code for {gpus}. {upgrade}"
    then = after.steps if after else ()
    return fix + (f" Then install {after}." if after else ""), either(*((*row.commands, *then) for row in remedies))


@rule("TORCH010", kind="environment", severity="warning", cause="cublas-known-fault")
def cublas_divides_by_zero_on_h20(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """torch uses cuBLAS 12.1 on an H20.

    cuBLAS before 12.3.4.1 divides by zero on this GPU for some matrix sizes, often in the first training step:
    `Signal 8 (SIGFPE)`, `Floating point exception (core dumped)`, exit code -8. The cu121 builds include 12.1.3.1.

    Fix: install a newer cuBLAS for CUDA 12 next to torch, or a torch for CUDA 12.4 or newer.

    References:
    https://github.com/pytorch/pytorch/issues/152017
    https://github.com/vllm-project/vllm/issues/4392
    """
    gpus = [gpu for gpu in gpus_of(machine) if re.search(r"\bH20\b", gpu.name.value or "")]
    cublas = versions_of(stack).get("nvidia-cublas-cu12", "")
    if gpus and torch_cuda(stack) == "12.1" and satisfies(cublas, ">=12.3.4.1") is not True:
        yield Problem(
            "warning",
            f"{torch_label(stack)} uses cuBLAS {cublas or '12.1'}, which divides by zero for some sizes of "
            f"matrices on {gpu_labels(gpus)}",
            version_evidence(stack, "torch", "nvidia-cublas-cu12"),
            "Install cuBLAS 12.4, or a torch for CUDA 12.4 or newer.",
            steps("uv pip install --no-deps nvidia-cublas-cu12==12.4.5.8"),
        )
