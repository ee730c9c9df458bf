"""The rule on a driver that does not support the CUDA version of torch."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.core.records import Evidence, Machine, Stack
from envdoctor.core.remedies import steps
from envdoctor.knowledge.architectures import capability_of
from envdoctor.knowledge.cuda import driver_of_cuda, oldest_driver, toolkit
from envdoctor.knowledge.images import ngc_image_of, ngc_images
from envdoctor.knowledge.versions import dotted_numbers, is_prerelease, major_minor
from envdoctor.rules.driver_remedies import is_driver_too_old, supports_compat, upgrade_driver
from envdoctor.rules.facts import gpus_of, has_windows_driver, model_of, torch_cuda, torch_label, torch_version
from envdoctor.rules.registry import Problem, evidence, rule
from envdoctor.rules.torch_build import OLDEST_ALWAYS_SUPPORTED, possible_builds
from envdoctor.rules.torch_install import best_torch, driver_of_gpus


@rule("TORCH004", kind="environment", severity=("error", "warning", "info"), cause="driver-too-old")
def driver_is_too_old_for_torch(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """The driver is older than the CUDA version of torch requires.

    CUDA 11 builds need driver 450.80.02, CUDA 12 builds 525.60.13, CUDA 13 builds 580; before CUDA 11 each release
    needs its own driver (10.0: 410.48, 10.1: 418.39, 10.2: 440.33). With an older driver torch prints "The NVIDIA
    driver on your system is too old" and finds no GPU. From CUDA 11 on an older driver is enough within a major
    version (minor-version compatibility). Where a report does not name the CUDA version of torch, the oldest one for
    which the release has a build decides.

    Fix: install a newer driver, or torch for an older CUDA version. On data-centre GPUs the `cuda-compat` package of
    the newer CUDA version works with an older driver of a supported branch (forward compatibility).

    References:
    https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
    https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html
    """
    cuda, driver = torch_cuda(stack) or _oldest_cuda(machine, stack), machine.driver.version.value or ""
    if not cuda or not is_driver_too_old(machine, cuda, windows=has_windows_driver(machine)):
        return
    needed = oldest_driver(cuda, windows=has_windows_driver(machine))
    label = driver or f"for CUDA {machine.driver.cuda.value}"
    minimum = ".".join(f"{part:02}" for part in needed)
    shown = (evidence("driver.version", machine.driver.version), Evidence("torch.cuda", cuda, stack.torch.source))
    built = f"CUDA {cuda}" if torch_cuda(stack) else f"CUDA {cuda} or newer"
    container = ngc_image_of(torch_version(stack))
    untested = bool(container) and stack.cuda_available.state != "known"
    compatible = untested and supports_compat(machine, cuda)
    if stack.cuda_available.value or compatible:
        works = "NVIDIA's container has libraries for" if compatible else "CUDA works by"
        yield Problem(
            "info",
            f"driver {label} is older than CUDA {cuda} requires ({minimum}); {works} forward compatibility",
            shown,
            "Keep the cuda-compat libraries first on the path, or upgrade the driver.",
            steps("ls /usr/local/cuda/compat"),
        )
        return
    advice = None if container else best_torch(machine, stack)
    upgrade, remedies = upgrade_driver(
        machine, ".".join(f"{part:02}" for part in max(needed, driver_of_gpus(machine)))
    )
    # NVIDIA's table has only the driver branches that are still supported; the container may work with others.
    may_work = untested and {model.kind for gpu in gpus_of(machine) if (model := model_of(gpu))} == {"data-centre"}
    yield Problem(
        "warning" if may_work else "error",
        f"driver {label}; {torch_label(stack)} is built for {built}, which requires {minimum} or newer",
        shown,
        (f"Install {advice}, which this driver supports. Or: {upgrade}" if advice else upgrade)
        + (_older_container(machine, driver) if container else _forward_advice(machine, cuda)),
        (*(steps(*advice.steps) if advice else ()), *remedies),
    )


def _oldest_cuda(machine: Machine, stack: Stack) -> str:
    """The oldest CUDA version for which a reported release of torch has a build, if the report does not name it."""
    if not torch_version(stack) or is_prerelease(torch_version(stack)):
        return ""
    return min((row.cuda for row in possible_builds(machine, stack)), key=major_minor, default="")


def _older_container(machine: Machine, driver: str) -> str:
    """The newest of NVIDIA's containers whose CUDA version the driver and the GPUs support, as a sentence."""
    capabilities = [capability_of(gpu) for gpu in gpus_of(machine)]
    for row in reversed(ngc_images()):
        kit, oldest = toolkit(major_minor(row.cuda)), oldest_driver(row.cuda)
        has_code = kit and all(c and OLDEST_ALWAYS_SUPPORTED <= c <= major_minor(kit.newest) for c in capabilities)
        if has_code and capabilities and oldest and dotted_numbers(driver) >= oldest:
            return f" Or use nvcr.io/nvidia/pytorch:{row.tag}-py3, whose CUDA version is {row.cuda}."
    return ""


def _forward_advice(machine: Machine, cuda: str) -> str:
    kinds = {model.kind for gpu in gpus_of(machine) if (model := model_of(gpu))}
    if kinds != {"data-centre"} or major_minor(cuda)[0] < 12:
        return ""
    package = f"cuda-compat-{cuda.replace('.', '-')}"
    return f" On these data-centre GPUs {package} (libcuda of {driver_of_cuda(cuda)}) is an alternative."
