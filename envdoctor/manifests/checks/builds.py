"""Checks on what is compiled on the spot: build isolation, tools that must be there before, CUDA toolkit, memory."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.knowledge.versions import minor_of, public_part, satisfies
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, table_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.flash_attn_wheels import has_release_wheel
from envdoctor.manifests.interpreter import InstallStep
from envdoctor.manifests.requirement import InstallRequirement
from envdoctor.rules.registry import Problem, rule

FLASH = "https://github.com/Dao-AILab/flash-attention#installation-and-features"
ISOLATION = "https://docs.astral.sh/uv/concepts/projects/config/#build-isolation"
# Packages whose build imports torch: flash-attn has no wheel on PyPI, the others none for many combinations.
_BUILT = frozenset(
    {"flash-attn", "flash-attn-3", "apex", "causal-conv1d", "mamba-ssm", "transformer-engine", "deepspeed-kernels"}
)
_SOURCE_NAMES = {"flash-attention": "flash-attn", "hopper": "flash-attn-3"}
_BRING_HELPERS = frozenset({"accelerate", "transformers", "vllm", "datasets"})


def _built(install: InstallStep) -> Iterator[InstallRequirement]:
    """What a step compiles or may compile: flash-attn from PyPI, repositories and folders of the like."""
    for requirement in install.action.requirements:
        if requirement.wheel:
            continue
        name = _SOURCE_NAMES.get(requirement.name, requirement.name)
        if name in _BUILT or (requirement.url and name == "vllm"):
            yield requirement._replace(name=name)
        elif requirement.url in (".", "./") and install.action.no_build_isolation:
            yield requirement


@rule("RUN040", kind="guide", severity="error", cause="build-isolation-no-torch", url=ISOLATION)
def build_cannot_see_torch(context: GuideContext) -> Iterator[Problem]:
    """flash-attn's build imports torch: in pip's isolated build there is none, and it ends in ModuleNotFoundError."""
    for install in context.trace.installs:
        if install.action.no_build_isolation or install.action.tool == "conda":
            continue
        for requirement in _built(install):
            if (
                requirement.name not in _BUILT
                or satisfies(requirement.pin or "2.8", ">=3")
                or requirement.name == "flash-attn-3"
            ):
                continue
            line = line_of(context, requirement.line, requirement.text)
            yield Problem(
                "error",
                f"`{requirement.text}` is built from source in an isolated environment without torch",
                (
                    guide_evidence(context, requirement.name, install.action.command, line),
                    table_evidence(requirement.name, "source only on PyPI", "release list of PyPI", "2026-11-21"),
                ),
                "Install torch, setuptools, wheel, packaging, psutil and ninja first, then add --no-build-isolation.",
                (
                    "uv pip install setuptools wheel packaging psutil ninja",
                    f"uv pip install '{requirement.text}' --no-build-isolation",
                ),
                line=line,
            )


@rule("RUN041", kind="guide", severity=("error", "warning"), cause="build-isolation-no-torch", url=ISOLATION)
def prerequisite_of_the_build_is_missing(context: GuideContext) -> Iterator[Problem]:
    """--no-build-isolation builds with what is installed: torch, setuptools, wheel, packaging, psutil and ninja
    first.
    """
    for install in context.trace.installs:
        for requirement in _built(install) if install.action.no_build_isolation else ():
            missing = _missing(install)
            if not missing:
                continue
            line = line_of(context, requirement.line, requirement.text)
            fatal = [name for name in missing if name in ("torch", "setuptools", "wheel", "packaging")]
            yield Problem(
                "error" if fatal else "warning",
                f"--no-build-isolation for {requirement.name} without {', '.join(missing)} installed before",
                (guide_evidence(context, "command", install.action.command, line),),
                "Install them first, in a step of their own.",
                (f"uv pip install {' '.join(missing)}",),
                line=line,
                cause="" if "torch" in missing else "compiler-missing",
            )


def _missing(install: InstallStep) -> list[str]:
    state = install.before
    available = set(state.packages)
    if state.image and (
        "nvidia/pytorch" in state.image
        or "pytorch/pytorch" in state.image
        or "vllm" in state.image
        or "verl" in state.image
    ):
        available |= {"torch", "setuptools", "wheel", "packaging", "psutil", "ninja"}
    if state.seeded:
        available |= (
            {"setuptools", "wheel"} if state.tool == "conda" or satisfies(state.python or "3.11", "<3.12") else set()
        )
    available |= {"packaging", "psutil"} if available & _BRING_HELPERS else set()
    available |= {"ninja"} if install.system_packages & {"ninja-build", "ninja"} else set()
    if "torch" in available and satisfies(
        public_part(state.packages["torch"].version) if "torch" in state.packages else "0", ">=2.5"
    ):
        available |= (
            {"setuptools"} if satisfies(state.python or "3.0", ">=3.12") else set()
        )  # torch requires it there
    return [
        name for name in ("torch", "setuptools", "wheel", "packaging", "psutil", "ninja") if name not in available
    ]


def _compiles(context: GuideContext, install: InstallStep, requirement: InstallRequirement) -> bool:
    """Whether the step really compiles: a repository or a folder, or a flash-attn without a release wheel for
    this torch.
    """
    if requirement.url:
        return True
    torch = install.before.packages.get("torch") or install.after.packages.get("torch")
    if requirement.name != "flash-attn" or not torch or not torch.version:
        return False
    package = install.resolution.packages.get("flash-attn")
    version = requirement.pin or (package.version if package else "")
    return has_release_wheel(version, minor_of(torch.version), install.before.python, context.platform) is False


@rule(
    "RUN042",
    kind="guide",
    severity="warning",
    cause="flash-attn-no-wheel",
    url="https://github.com/Dao-AILab/flash-attention/releases",
)
def flash_attn_is_compiled_for_hours(context: GuideContext) -> Iterator[Problem]:
    """The flash-attn release has no wheel for the guide's torch, Python or processor: the install compiles for
    hours.
    """
    for install in context.trace.installs:
        for requirement in _built(install):
            if (
                requirement.name != "flash-attn"
                or requirement.url
                or not _compiles(context, install, requirement)
                or satisfies(requirement.pin or "2", ">=3")
            ):
                continue
            line = line_of(context, requirement.line, requirement.text)
            torch = install.before.packages.get("torch") or install.after.packages["torch"]
            package = install.resolution.packages.get("flash-attn")
            version = requirement.pin or (package.version if package else "")
            yield Problem(
                "warning",
                f"flash-attn {version} has no release wheel for torch {torch.version}, "
                f"Python {install.before.python or '(not named)'}, "
                f"{context.platform}: it is compiled here, for hours",
                (
                    guide_evidence(context, "flash-attn", requirement.text, line),
                    table_evidence(
                        "wheels of the release",
                        "torch 2.4 to 2.8, Python 3.9 to 3.13",
                        "assets of the release v2.8.3",
                        "2026-11-21",
                    ),
                ),
                'Leave it out (attn_implementation="sdpa"; vLLM carries its own), or take a torch with a wheel.',
                line=line,
            )


@rule(
    "RUN043",
    kind="guide",
    severity=("error", "warning"),
    cause="cuda-home-missing",
    url="https://docs.nvidia.com/cuda/cuda-installation-guide-linux/",
)
def source_build_without_a_toolkit(context: GuideContext) -> Iterator[Problem]:
    """Something is compiled reason there is no nvcc: a runtime image, or a machine on which no step brings a
    toolkit.
    """
    for install in context.trace.installs:
        state = install.before
        if state.toolkit or "CUDA_HOME" in install.variables:
            continue
        for requirement in _built(install):
            if requirement.name not in _BUILT | {"vllm"} or not (
                _compiles(context, install, requirement) or (state.image and requirement.name != "flash-attn")
            ):
                continue
            line = line_of(context, requirement.line, requirement.text)
            reason = f"{state.image} has no nvcc" if state.image else "no step installs or names a CUDA toolkit"
            yield Problem(
                "error" if state.image else "warning",
                f"{requirement.name} is compiled here, and {reason}",
                (guide_evidence(context, requirement.name, install.action.command, line),),
                "Use a -devel image, or install the toolkit of torch's CUDA and set CUDA_HOME.",
                ("export CUDA_HOME=/usr/local/cuda-12.8",),
                line=line,
            )


@rule("RUN044", kind="guide", severity="warning", cause="host-oom-build", url=FLASH)
def build_jobs_are_not_limited(context: GuideContext) -> Iterator[Problem]:
    """A source build of flash-attn takes about 5 GB a job: without MAX_JOBS it runs out of memory."""
    for install in context.trace.installs:
        for requirement in _built(install):
            if (
                requirement.name in _BUILT
                and _compiles(context, install, requirement)
                and "MAX_JOBS" not in install.variables
                and not _skips(install)
            ):
                line = line_of(context, requirement.line, requirement.text)
                yield Problem(
                    "warning",
                    f"{requirement.name} is compiled without MAX_JOBS: one job for each processor, about 5 GB each",
                    (guide_evidence(context, requirement.name, install.action.command, line),),
                    "Set MAX_JOBS to the memory in GB divided by 5.",
                    (f"MAX_JOBS=4 {install.action.command}",),
                    line=line,
                )


def _skips(install: InstallStep) -> bool:
    return install.variables.get("FLASH_ATTENTION_SKIP_CUDA_BUILD", "").upper() in ("TRUE", "1")


@rule("RUN045", kind="guide", severity="error", cause="flash-attn-no-wheel", url=FLASH)
def kernels_are_skipped_without_a_wheel(context: GuideContext) -> Iterator[Problem]:
    """FLASH_ATTENTION_SKIP_CUDA_BUILD=TRUE with no wheel behind it installs a package without kernels."""
    for install in context.trace.installs:
        for requirement in _built(install) if _skips(install) else ():
            torch = install.before.packages.get("torch")
            package = install.resolution.packages.get("flash-attn")
            version = requirement.pin or (package.version if package else "")
            there = (
                not requirement.url
                and requirement.name == "flash-attn"
                and torch
                and has_release_wheel(version, minor_of(torch.version), install.before.python, context.platform)
            )
            if there and install.before.python:
                continue
            line = line_of(context, requirement.line, requirement.text)
            yield Problem(
                "error",
                f"FLASH_ATTENTION_SKIP_CUDA_BUILD with `{requirement.text}`: no wheel stands behind it here, so the "
                f"package has no kernels",
                (guide_evidence(context, "FLASH_ATTENTION_SKIP_CUDA_BUILD", "TRUE", line),),
                "Install a wheel built for this torch under its own name, or drop the variable and build.",
                line=line,
            )


@rule(
    "RUN046",
    kind="guide",
    severity="error",
    cause="nvcc-torch-mismatch",
    url="https://github.com/pytorch/pytorch/blob/main/torch/utils/cpp_extension.py",
)
def nvcc_is_of_another_cuda_than_torch(context: GuideContext) -> Iterator[Problem]:
    """The toolkit that compiles has another major CUDA version than torch: torch's build helper refuses it."""
    for install in context.trace.installs:
        torch = install.before.packages.get("torch") or install.after.packages.get("torch")
        toolkit = install.before.toolkit
        if not torch or torch.cuda in ("", "cpu") or "." not in toolkit:
            continue
        for requirement in _built(install):
            if toolkit.partition(".")[0] != torch.cuda.partition(".")[0] and (
                _compiles(context, install, requirement) or install.action.no_build_isolation
            ):
                line = line_of(context, requirement.line, requirement.text)
                yield Problem(
                    "error",
                    f"{requirement.name} would be compiled with CUDA {toolkit}, torch is built for CUDA {torch.cuda}",
                    (guide_evidence(context, requirement.name, install.action.command, line),),
                    f"Use a toolkit of CUDA {torch.cuda}.",
                    (f"export CUDA_HOME=/usr/local/cuda-{torch.cuda}",),
                    line=line,
                )
