"""Whether a driver supports the CUDA release of an image: fully, by minor-version or by forward compatibility."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from envdoctor.core.records import Machine
from envdoctor.knowledge.cuda import accepts_compat, cuda_of_driver, driver_of_cuda, oldest_driver
from envdoctor.knowledge.image_starts import BRANDS
from envdoctor.knowledge.versions import dotted_numbers, major_minor
from envdoctor.manifests.images.records import ImageContext
from envdoctor.rules.facts import gpus_of, model_of

Support = Literal["full", "minor", "forward", "none", "unknown"]


class Compatibility(NamedTuple):
    """How a driver supports a CUDA release; `reason` if it does not."""

    kind: Support
    reason: str = ""


def driver_compatibility(context: ImageContext) -> Compatibility:
    """The compatibility of a machine's driver with the CUDA release of an image."""
    image, machine = context.image, context.machine
    driver = dotted_numbers(machine.driver.version.value or "")
    oldest = oldest_driver(image.cuda) if image.cuda else ()
    if not driver or not oldest:
        return Compatibility("unknown")
    bundled = dotted_numbers(driver_of_cuda(image.cuda))
    if bundled and driver >= bundled:
        return Compatibility("full")
    if can_use_compat(context):
        return Compatibility("forward")
    if driver >= oldest:
        return Compatibility("minor" if bundled else "unknown")
    minimum = ".".join(f"{part:02}" for part in oldest)
    return Compatibility("none", f"it requires {minimum} or newer{_why_no_compat(context)}")


def can_use_compat(context: ImageContext) -> bool:
    """Whether cuda-compat in the image supports the driver's branch, on data-centre GPUs alone."""
    image, machine = context.image, context.machine
    if not is_data_centre(machine) or machine.system.wsl.value:
        return False
    if image.compat is not None and (machine.system.architecture.value or "") not in image.compat:
        return False
    if major_minor(image.compat_cuda or "0") < major_minor(image.cuda):
        return False
    driver = machine.driver.version.value or ""
    branch = dotted_numbers(driver)[:1]
    # The image lists the branches that its package supported at its release; NVIDIA's page only those of today.
    listed = bool(branch) and f"brand=tesla,driver>={branch[0]},driver<{branch[0] + 1}" in image.require.split()
    return listed or (image.compat is not None and accepts_compat(driver, image.cuda))


def _why_no_compat(context: ImageContext) -> str:
    if not is_data_centre(context.machine):
        return "; forward compatibility needs data-centre GPUs"
    if context.image.compat is None or not context.image.compat:
        return "; it is not known whether the image contains cuda-compat"
    if major_minor(context.image.compat_cuda or "0") < major_minor(context.image.cuda):
        return f"; its cuda-compat is that of CUDA {context.image.compat_cuda or 'an unknown release'}"
    branch = (context.machine.driver.version.value or "").partition(".")[0]
    return f"; its cuda-compat does not support branch {branch}"


def is_data_centre(machine: Machine) -> bool:
    """Whether all GPUs are data-centre models."""
    models = [model_of(gpu) for gpu in gpus_of(machine)]
    return bool(models) and all(model and model.kind == "data-centre" for model in models)


def start_properties(machine: Machine) -> dict[str, str | tuple[str, ...]]:
    """What the container runtime compares with NVIDIA_REQUIRE_CUDA."""
    driver = machine.driver.version.value or ""
    cuda = machine.driver.cuda.value or cuda_of_driver(driver)
    kinds = {model.kind for gpu in gpus_of(machine) if (model := model_of(gpu))}
    found = re.match(r"\d+\.\d+", cuda or "")
    properties: dict[str, str | tuple[str, ...]] = {"driver": driver, "cuda": found[0] if found else ""}
    brands = tuple(brand for kind in sorted(kinds) for brand in BRANDS.get(kind, ()))
    capabilities = [gpu.compute_capability.value for gpu in gpus_of(machine) if gpu.compute_capability.value]
    return properties | {"brand": brands, "arch": min(capabilities, key=major_minor, default="")}
