"""Rules of machines and environments, evaluated on the machine and the variables that a guide states."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import OF_A_GUIDE, Evidence, Gpu, Machine, Stack, known
from envdoctor.knowledge.gpus import compute_capability
from envdoctor.knowledge.versions import dotted_numbers
from envdoctor.manifests.actions import UseRunner
from envdoctor.manifests.checks.evidence import guide_evidence, line_of
from envdoctor.manifests.checks.flags import assignments
from envdoctor.manifests.cloned_projects import CLONE_ORIGIN
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.corrections import CorrectedEnvironment, worded_for_a_guide
from envdoctor.manifests.records import NOT_IN_GUIDE, build_machine, build_stack
from envdoctor.rules.registry import RULES, NotReadableError, Problem, Rule, rule

# Rules on variables, and rules that compare GPUs with the builds of packages.
_VARIABLE_RULES = ("ENV006", "ENV007", "ENV014", "ENV015", "ENV016")
_AMPERE = (8, 0)
_MAX_LINE = 1000
# "an image with PyTorch 1.8.0, CUDA 10.1"
_IMAGE_OF_TORCH = lazy_pattern(
    r"(?:\bimages?\b|\bdocker\b|镜像).*torch|torch.*(?:\bimages?\b|\bdocker\b|镜像)", re.IGNORECASE
)
_OLD_CUDA = lazy_pattern(r"\bCUDA[ :=v]*((?:9|10)\.\d)\b(?! (?:or|and) (?:newer|later|above)|\+)", re.IGNORECASE)
_GPU_RULES = ("TORCH001", "TORCH002", "TORCH011", "VLLM004", "VLLM005", "EXT007")


@rule(
    "RUN024",
    kind="guide",
    severity=("warning", "info"),
    cause="silent-slow-path",
    url="https://docs.vllm.ai/en/latest/configuration/env_vars.html",
)
def variable_does_not_suit_the_packages(context: GuideContext) -> Iterator[Problem]:
    """A variable that the guide sets does nothing, or does harm, with the packages that it installs."""
    lines = {name: line for line, name, _ in assignments(context)}
    variables = {name: value for _, name, value in assignments(context)}
    if not variables:
        return
    machine = replace(build_machine(context.trace), environment=known(variables, OF_A_GUIDE))
    for environment in context.environments:
        stack = build_stack(environment.state)
        for each, problem in _problems(_VARIABLE_RULES, machine, stack):
            name = next((item.fact for item in problem.evidence if item.fact in lines), "")
            if name:
                yield replace(
                    problem,
                    evidence=(guide_evidence(context, name, variables[name], lines[name]),),
                    line=lines[name],
                    cause=each.cause,
                    url=each.url,
                )


@rule(
    "RUN057",
    kind="guide",
    severity=("error", "warning", "info"),
    cause="gpu-arch-not-in-build",
    url="https://github.com/pytorch/pytorch/blob/main/RELEASE.md#pytorch-cuda-support-matrix",
)
def packages_have_no_code_for_the_gpu(context: GuideContext) -> Iterator[Problem]:
    """A package has no code for the GPU that the guide names, or of the machine: torch 2.6 on an RTX 5090.

    A note where the release is open and was not resolved: another package can limit it.
    """
    gpus, label, evidence = _gpus(context)
    if not gpus:
        return
    machine = replace(build_machine(context.trace), gpus=known(gpus, OF_A_GUIDE))
    for environment in context.environments:
        packages = environment.state.packages
        released = {name: each for name, each in packages.items() if each.origin != CLONE_ORIGIN}
        for each, problem in _problems(_GPU_RULES, machine, build_stack(environment.state, released)):
            if problem.status in ("error", "warning"):
                yield _on_gpu(
                    context, environment, each, replace(problem, message=f"{label}: {problem.message}"), evidence
                )


@rule(
    "RUN058",
    kind="guide",
    severity="warning",
    cause="gpu-arch-not-in-build",
    url="https://docs.nvidia.com/cuda/ampere-compatibility-guide/",
)
def image_of_the_text_has_no_code_for_newer_gpus(context: GuideContext) -> Iterator[Problem]:
    """The text describes an image with a CUDA below 11, which has no code for Ampere and newer GPUs, such as H100."""
    if any(each.has_no_gpu for each in context.actions(UseRunner)):
        return
    gpus, label, _ = _gpus(context)
    capabilities = [gpu.compute_capability.value or "" for gpu in gpus]
    if gpus and not any(dotted_numbers(each) >= _AMPERE for each in capabilities):
        return
    for number, text in enumerate(context.guide.lines, 1):
        found = _OLD_CUDA.search(text[:_MAX_LINE])
        if found and _IMAGE_OF_TORCH.search(text[:_MAX_LINE]):
            yield Problem(
                "warning",
                f"the text names an image of CUDA {found[1]}, which has no code for compute capability 8.0 and newer"
                + (f" ({label})" if label else ""),
                (guide_evidence(context, "image", text.strip()[:120], number),),
                "Build the image for a torch of CUDA 11.8 or newer.",
                line=number,
            )
            return


def _gpus(context: GuideContext) -> tuple[tuple[Gpu, ...], str, Evidence]:
    """The GPUs of the machine of the audit, else the one that the guide names; where they are from."""
    stated = context.guide.stated_machine
    gpus = (context.machine.gpus.value or ()) if context.machine else ()
    if gpus:
        name = gpus[0].name.value or "GPU"
        return gpus, f"on the {name} of the machine", Evidence("GPU", name, "the machine of the audit")
    if context.machine or not stated.gpu:
        return (), "", Evidence("GPU", "", "")
    place = f"{stated.gpu_file or context.guide.name}, line {stated.gpu_line}"
    label = f"on the {stated.gpu} of {place if stated.gpu_file else f'line {stated.gpu_line}'}"
    return (_gpu(stated.gpu),), label, Evidence("GPU", stated.gpu, place)


def _on_gpu(
    context: GuideContext, environment: CorrectedEnvironment, each: Rule, problem: Problem, evidence: Evidence
) -> Problem:
    """The problem at the step that installs the package, with the evidence for the GPU."""
    packages = environment.state.packages
    named = next((item.fact for item in problem.evidence if item.fact in packages), "torch")
    package = packages.get("vllm" if each.id.startswith("VLLM") else named) or packages["torch"]
    line = line_of(context, package.line, package.reason)
    is_open = environment.state.resolution == "unresolved" and not package.pinned
    return replace(
        problem,
        status="info" if is_open else problem.status,
        message=f"{problem.message}{' (if nothing else limits the release: not resolved)' if is_open else ''}",
        evidence=(evidence, guide_evidence(context, package.name, package.reason, line)),
        line=line,
        cause=problem.cause or each.cause,
        url=each.url,
    )


def _problems(identifiers: tuple[str, ...], machine: Machine, stack: Stack) -> Iterator[tuple[Rule, Problem]]:
    for each in (RULES[identifier] for identifier in identifiers):
        try:
            problems = list(each.check(machine, stack) if each.needs_environment else each.check(machine))
        except NotReadableError:
            continue
        yield from ((each, worded_for_a_guide(problem)) for problem in problems)


def _gpu(name: str) -> Gpu:
    facts: dict[str, Any] = {field: NOT_IN_GUIDE for field in Gpu.__struct_fields__ if field != "index"}
    capability = compute_capability(name)
    if capability:
        facts["compute_capability"] = known(capability, OF_A_GUIDE)
    return Gpu(index=0, **(facts | {"name": known(f"NVIDIA {name}", OF_A_GUIDE)}))
