"""The newest image of the same repository that a machine runs."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.core.records import Stack
from envdoctor.knowledge.architectures import capability_of
from envdoctor.knowledge.cuda import toolkit
from envdoctor.knowledge.image_starts import start_condition
from envdoctor.knowledge.images import image_tables, ngc_images, released_images
from envdoctor.knowledge.published import published_releases
from envdoctor.knowledge.versions import is_prerelease, major_minor, satisfies
from envdoctor.manifests.images.compatibility import driver_compatibility, is_data_centre, start_properties
from envdoctor.manifests.images.records import ImageContext
from envdoctor.manifests.images.sources import of_reference
from envdoctor.rules import RULES
from envdoctor.rules.facts import gpus_of
from envdoctor.rules.registry import run_rule
from envdoctor.rules.torch_build import code_of_torch

GPU_RULES = ("TORCH001", "TORCH002")
PACKAGES = {"vllm/vllm-openai": "vllm"}


def fitting_image(context: ImageContext) -> str:
    """The reference of the newest fitting image; empty if the tables have none."""
    image = context.image
    name = image.reference.partition("@")[0].removesuffix(f":{image.tag}")
    if not image.repository or not name.endswith(image.repository):
        return ""
    for tag in (each for each in _tags(image.repository, image.tag) if each != image.tag):
        read = of_reference(f"{name}:{tag}")
        other = ImageContext(read.image, read.stack, context.machine)
        if _starts(other) and _has_code(other, read.stack):
            return f"{name}:{tag}"
    return ""


def _tags(repository: str, tag: str) -> Iterator[str]:
    """The tags of a repository, newest first."""
    if repository == "nvidia/pytorch":
        yield from (f"{row.tag}-py3" for row in reversed(ngc_images()))
    elif repository == "nvidia/cuda":
        flavour = next((word for word in ("devel", "runtime", "base") if word in tag), "base")
        rows = sorted(image_tables().cuda, key=lambda row: (major_minor(row.build), row.system), reverse=True)
        yield from (f"{row.version}-{flavour}-{row.system}" for row in rows if flavour != "runtime")
    elif package := PACKAGES.get(repository):
        for row in reversed(released_images(repository)):
            versions = (release.version for release in published_releases(package))
            finals = (each for each in versions if not is_prerelease(each) and "post" not in each)
            if newest := next((each for each in finals if satisfies(each, row.versions)), ""):
                yield f"v{newest}"  # not every post-release has an image


def _starts(context: ImageContext) -> bool:
    """Whether the container starts and the driver supports its CUDA, without cuda-compat on other GPUs (IMG004)."""
    machine, image = context.machine, context.image
    kind = driver_compatibility(context).kind
    is_supported = kind in ("full", "forward") or (kind == "minor" and is_data_centre(machine))
    is_for = not image.architectures or machine.system.architecture.value in image.architectures
    holds = start_condition(image.require, start_properties(machine)) if image.require else True
    return is_for and holds is True and is_supported


def _has_code(context: ImageContext, stack: Stack) -> bool:
    """Whether the image has code for all GPUs, by its torch or by its toolkit."""
    if any(run_rule(RULES[name], context.machine, stack) for name in GPU_RULES):
        return False
    kit = toolkit(major_minor(context.image.cuda)) if context.image.cuda else None
    if code_of_torch(context.machine, stack)[0] or kit is None:
        return True
    capabilities = [capability_of(gpu) for gpu in gpus_of(context.machine)]
    return all(c and major_minor(kit.oldest) <= c <= major_minor(kit.newest) for c in capabilities)
