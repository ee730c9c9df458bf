"""Checks on the driver: of the CUDA build of torch, of the PTX code in vLLM, and of the package cuda-compat."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Evidence
from envdoctor.knowledge.cuda import accepts_compat, driver_of_cuda, oldest_driver
from envdoctor.knowledge.gpus import gpu_model
from envdoctor.knowledge.image_starts import image_base
from envdoctor.knowledge.images import known_repository
from envdoctor.knowledge.releases import parse_requirement, requirements_of_release
from envdoctor.knowledge.versions import dotted_numbers, is_prerelease, major_minor, public_part, satisfies
from envdoctor.manifests.actions import InstallSystemPackages
from envdoctor.manifests.checks.evidence import guide_evidence, install_step, line_of, table_evidence
from envdoctor.manifests.cloned_projects import CLONE_ORIGIN
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.environment_state import EnvironmentState
from envdoctor.manifests.imports_of_guide import hosted_notebook, presupposed_module
from envdoctor.resolution.resolver import ResolvedPackage
from envdoctor.rules.registry import Problem, rule

COMPATIBILITY = "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html"
# CUDA version of the PTX code of FlashAttention 2 in vLLM's wheels. A driver of this CUDA version can compile it.
_VLLM_PTX = (("==0.10.2", "12.8"), ("==0.12.0", "12.9"))
# NVIDIA's images contain cuda-compat of their CUDA release, which the container toolkit uses on data-centre GPUs.
_IMAGES_WITH_COMPAT = lazy_pattern(r"(?:^|/)nvidia/")


@rule("RUN051", kind="guide", severity=("error", "warning", "unknown"), cause="driver-too-old", url=COMPATIBILITY,
      needs=("python",))  # fmt: skip
def driver_is_too_old_for_the_cuda_build(context: GuideContext) -> Iterator[Problem]:
    """The driver in the guide is older than the CUDA build of torch, or the PTX code in vLLM, requires."""
    driver = context.trace.driver
    if not dotted_numbers(driver):
        return
    for environment in context.environments:
        torch = environment.state.packages.get("torch")
        cuda = torch.cuda if torch and torch.cuda not in ("", "cpu") else ""
        required = oldest_driver(cuda) if cuda else ()
        is_older = bool(required) and dotted_numbers(driver) < required[: len(dotted_numbers(driver))]
        if torch and is_older and _is_final(environment.state, torch) and not _has_compat(context, environment.state):
            line = line_of(context, torch.line, torch.reason)
            minimum = ".".join(f"{part:02}" for part in required)
            # vLLM's own libraries are for the CUDA version of torch on PyPI.
            has_vllm = "vllm" in environment.state.packages
            is_replaceable = not has_vllm and not is_prerelease(torch.version)  # no index has the torch of an image
            backend = _fitting_backend(context, public_part(torch.version), cuda) if is_replaceable else ""
            alternative = f"the build {backend}" if backend else f"a torch for CUDA {major_minor(cuda)[0] - 1}"
            whose = "the guide states" if _is_stated(context) else "the machine has"
            presupposed = presupposed_module(context, environment.state.packages) if torch.is_dependency else ""
            presupposed = presupposed and f"the code also imports {presupposed}, which no step installs"
            if not torch.pinned and not _is_exact(torch) and (service := hosted_notebook(context)):
                presupposed = f"{service} has a torch of its own, which pip keeps"
            reason = f" (not certain: {presupposed})"
            yield Problem(
                "unknown" if presupposed else "error",
                f"torch {torch.version} is for CUDA {cuda}, which needs driver {minimum}; {whose} {driver}"
                + (reason if presupposed else ""),
                (_driver_evidence(context), table_evidence(f"CUDA {cuda}", minimum, COMPATIBILITY)),
                f"Upgrade the driver to {minimum} or newer, or use {alternative}.",
                install_step(f"torch=={public_part(torch.version)}", backend=backend) if backend else (),
                line=line,
            )
        vllm = environment.state.packages.get("vllm")
        if vllm and vllm.origin != CLONE_ORIGIN:  # compiled for the GPU of the machine
            yield from _check_ptx(context, vllm, driver)


def _is_final(state: EnvironmentState, torch: ResolvedPackage) -> bool:
    """Whether this torch stays: a project or a file that the guide does not show can require another one."""
    requiring = state.requested.get(torch.reason.removeprefix("required by ").partition(" ")[0])
    is_required = bool(torch.is_dependency and requiring and requiring.pinned)
    return state.resolution not in ("partial", "unresolved") or torch.pinned or is_required


def _is_exact(torch: ResolvedPackage) -> bool:
    """Whether a package requires exactly this torch, as vLLM does, so that a step replaces the one that is there."""
    name, _, version = torch.reason.removeprefix("required by ").partition(" ")
    bounds = (parse_requirement(text) for text in requirements_of_release(name, public_part(version)))
    return any(bound and bound.name == "torch" and bound.specifier.startswith("==") for bound in bounds)


def _has_compat(context: GuideContext, state: EnvironmentState) -> bool:
    """Whether the image can have a newer libcuda than the driver, for the CUDA version of its torch."""
    gpus = (context.machine.gpus.value or ()) if context.machine else ()
    names = [gpu.name.value or "" for gpu in gpus] or [context.guide.stated_machine.gpu]
    kinds = {model.kind for name in names if name and (model := gpu_model(name))}
    torch = state.packages["torch"]
    is_as_new = bool(state.image_cuda) and major_minor(torch.cuda)[0] <= major_minor(state.image_cuda)[0]
    name, _, tag = state.image.partition(":")
    base = image_base(known_repository(name), tag)
    has_package = _IMAGES_WITH_COMPAT.search(name) or (base and context.platform in base.compat)
    is_in_image = bool(has_package) and is_as_new
    return is_in_image and kinds <= {"data-centre"} and accepts_compat(context.trace.driver, state.image_cuda)


def _is_stated(context: GuideContext) -> bool:
    """Whether the driver is that of the guide, not of the machine that the audit is for."""
    return context.trace.driver == context.guide.stated_machine.driver


def _driver_evidence(context: GuideContext) -> Evidence:
    driver = context.trace.driver
    if not _is_stated(context):
        return Evidence("driver", driver, "the machine of the audit")
    return guide_evidence(context, "driver", driver, context.guide.stated_machine.driver_line)


def _fitting_backend(context: GuideContext, version: str, cuda: str) -> str:
    """The build of a release of torch that the driver runs; empty without one."""
    fitting = context.build.fitting_cuda(version, cuda)
    return f"cu{fitting.replace('.', '')}" if fitting not in ("", cuda) else ""


def _check_ptx(context: GuideContext, vllm: ResolvedPackage | None, driver: str) -> Iterator[Problem]:
    if not vllm or not vllm.version:
        return
    cuda = next((cuda for release, cuda in _VLLM_PTX if satisfies(public_part(vllm.version), release)), "")
    required = driver_of_cuda(cuda) if cuda else ""
    if not required or dotted_numbers(driver) >= dotted_numbers(required)[: len(dotted_numbers(driver))]:
        return
    yield Problem(
        "warning",
        f"vLLM {vllm.version} contains PTX of CUDA {cuda} for FlashAttention 2; driver {driver} is too old for it",
        (
            _driver_evidence(context),
            table_evidence(
                f"vLLM {vllm.version}",
                f"PTX of CUDA {cuda}",
                "measured in the wheel; github.com/vllm-project/vllm/issues/28030",
                "2026-11-21",
            ),
        ),
        f"On Hopper, upgrade the driver to {required} or newer, or put cuda-compat of CUDA {cuda} first.",
        line=line_of(context, vllm.line, "vllm"),
        cause="driver-ptx-too-old",
        url="https://github.com/vllm-project/vllm/issues/28030",
    )


@rule(
    "RUN052",
    kind="guide",
    severity="warning",
    cause="cuda-compat-lib-conflict",
    url="https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html",
)
def compat_package_is_older_than_the_driver(context: GuideContext) -> Iterator[Problem]:
    """A cuda-compat package must be newer than the driver. Otherwise CUDA fails with error 803."""
    driver = dotted_numbers(context.trace.driver)
    for action in context.actions(InstallSystemPackages):
        for name in action.names:
            match = re.match(r"cuda-compat-(\d+)-(\d+)", name)
            library = driver_of_cuda(f"{match[1]}.{match[2]}") if match else ""
            if library and driver and dotted_numbers(library) <= driver:
                line = line_of(context, action.line, name)
                yield Problem(
                    "warning",
                    f"{name} contains libcuda {library}, which must be newer than the driver {context.trace.driver}",
                    (
                        guide_evidence(context, "package", name, line),
                        table_evidence(name, library, "CUDA toolkit release notes"),
                    ),
                    "Remove it. The driver supports this CUDA version without it.",
                    line=line,
                )
