"""Checks on source builds: build isolation, build requirements, CUDA toolkit, memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Status
from envdoctor.core.remedies import steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.cxx_standards import rejecting_headers, standard_of_build
from envdoctor.knowledge.versions import minor_of, public_part, satisfies
from envdoctor.manifests.actions import Clone, directory_of_clone
from envdoctor.manifests.built_repositories import built_repositories
from envdoctor.manifests.certain_packages import is_conda_base
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, table_evidence
from envdoctor.manifests.checks.torch_of_builds import build_requirements
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.flash_attn_wheels import has_release_wheel, without_compiling
from envdoctor.manifests.interpreter import InstallStep
from envdoctor.resolution.requirement import InstallRequirement
from envdoctor.resolution.resolver import ResolvedPackage
from envdoctor.rules.registry import Problem, rule

FLASH = "https://github.com/Dao-AILab/flash-attention#installation-and-features"
ISOLATION = "https://docs.astral.sh/uv/concepts/projects/config/#build-isolation"
# Packages whose build imports torch. flash-attn has no wheel on PyPI; the others lack wheels for many combinations.
BUILT_WITH_TORCH = frozenset(
    {"flash-attn", "flash-attn-3", "apex", "causal-conv1d", "mamba-ssm", "transformer-engine", "deepspeed-kernels"}
)
_REPOSITORY_NAMES = {"flash-attention": "flash-attn", "hopper": "flash-attn-3"}
_RELEASE_TAG = lazy_pattern(r"flash-attention(?:\.git)?@v(\d+(?:\.\d+)+(?:\.post\d+)?)(?:#|$)")
_WITH_COMPILER = ("Use an image with nvcc, such as a -devel image of nvidia/cuda or pytorch/pytorch.", steps())
_FIND_COMPILER = (
    "Check whether the machine has nvcc. If not, install the toolkit of torch's CUDA version and set CUDA_HOME.",
    steps("nvcc --version"),
)
_CUDA_IN_TEXT = lazy_pattern(
    r"\bCUDA(?: toolkit| version|-toolkit)?[ :=|*`_(]{0,6}(?:>=?\s*)?1[1-3]\.\d|\bnvcc\b", re.IGNORECASE
)
_IMAGE_IN_TEXT = lazy_pattern(r"(?:镜像|\bimages?\b|\btemplate\b).{0,80}\b1[1-3]\.\d\b", re.IGNORECASE)
_BUILD_REQUIREMENTS = ("torch", "setuptools", "wheel", "packaging", "psutil", "ninja")
_IMAGES_WITH_BUILD_REQUIREMENTS = ("nvidia/pytorch", "pytorch/pytorch", "vllm", "verl")
# From this release on, flash-attn's setup.py limits its jobs by the memory, for which it imports psutil: setup.py of
# the tags v2.5.3 and v2.5.4, 2026-11-26.
_LIMITS_ITS_JOBS = ">=2.5.4"
# Later setuptools add their own packaging and wheel to sys.path of a build: wheels of 70.3.0 and 71.0.0, 2026-11-26.
_WITHOUT_COPIES = "<71"
# Commands that install the project of the guide with its lock.
_SYNCS = frozenset({
    ("uv", "sync"), ("poetry", "install"), ("poetry", "sync"), ("pdm", "install"), ("pdm", "sync"),
    ("pixi", "install"),
})  # fmt: skip
_UBUNTU_SETUPTOOLS = "68.1.2"  # of 24.04, the newest of 20.04 to 24.04: packages.ubuntu.com, 2026-11-26
_PIP_OF_UBUNTU = "python3-pip"
_VLLM_WITH_NINJA = ">=0.8.5"  # requires it, resolved with uv 2026-11-25: 0.8.5, 0.10.2, 0.12.0, 0.19.0, 0.31.0
_PROJECTS = frozenset({"verl"})  # whose own requirements have no torch: setup.py of verl 0.2 to 0.9
_REQUIRING_PSUTIL = frozenset({"accelerate", "transformers", "vllm", "datasets", "deepspeed", "peft", "wandb"})
_REQUIRING_PACKAGING = frozenset({"tensorboardx", "tensorboard", "wandb", "huggingface-hub", "pytest", "black"})

SourceBuild = tuple[InstallStep, InstallRequirement, int]  # with the line of the requirement


def possible_builds(context: GuideContext) -> Iterator[SourceBuild]:
    """Requirements that are compiled if there is no wheel: flash-attn from PyPI, repositories and directories."""
    for install in context.trace.installs:
        for requirement in install.action.requirements:
            if requirement.wheel or install.action.no_index:
                continue  # the content of a local folder is not known
            line = line_of(context, requirement.line, requirement.text)
            name = _REPOSITORY_NAMES.get(requirement.name, requirement.name)
            if name in BUILT_WITH_TORCH or (requirement.url and name == "vllm"):
                yield install, requirement._replace(name=name), line
            elif requirement.url in (".", "./") and install.action.no_build_isolation:
                cloned = _cloned_project(context, install)
                if cloned in BUILT_WITH_TORCH or "setup.py" not in install.action.command:
                    yield install, requirement, line


def _cloned_project(context: GuideContext, install: InstallStep) -> str:
    """The project that a step builds in the directory of the last clone; empty if none is known."""
    urls = [clone.url for clone in context.actions(Clone) if clone.url and clone.line <= install.action.line]
    name = directory_of_clone(urls[-1]) if urls else ""
    return _REPOSITORY_NAMES.get(name, name)


def torch_of_step(install: InstallStep) -> ResolvedPackage | None:
    """The torch that is installed before a step, else the one that it installs."""
    return install.before.packages.get("torch") or install.after.packages.get("torch")


def _flash_attn_version(install: InstallStep, requirement: InstallRequirement) -> str:
    package = install.resolution.packages.get("flash-attn")
    tag = _RELEASE_TAG.search(requirement.url)
    return requirement.pin or (tag[1] if tag else package.version if package else "")


def _is_compiled(context: GuideContext, install: InstallStep, requirement: InstallRequirement) -> bool:
    """Whether the step compiles: a repository, a directory, or flash-attn without a release wheel for this torch."""
    if install.before.resolution == "partial" and not requirement.url:
        return False  # a project or a file that the guide does not show can install another torch
    has_wheel = has_wheel_of_release(context, install, requirement)
    return has_wheel is False or (bool(requirement.url) and has_wheel is None)


def has_wheel_of_release(context: GuideContext, install: InstallStep, requirement: InstallRequirement) -> bool | None:
    """Whether a release of flash-attn has a wheel for the torch of the step; None if unknown, or for others."""
    torch = torch_of_step(install)
    is_release = not requirement.url or _RELEASE_TAG.search(requirement.url)  # its setup.py downloads the wheel
    if not is_release or requirement.name != "flash-attn" or not torch or not torch.version:
        return None
    if "FLASH_ATTENTION_FORCE_BUILD" in install.variables:
        return False
    version = _flash_attn_version(install, requirement)
    return has_release_wheel(version, minor_of(torch.version), install.before.python, context.platform)


@rule("RUN041", kind="guide", severity=("error", "warning", "info", "unknown"), cause="build-isolation-no-torch",
      url=ISOLATION)  # fmt: skip
def build_requirement_is_missing(context: GuideContext) -> Iterator[Problem]:
    """With --no-build-isolation, torch, setuptools, wheel, packaging, psutil and ninja must be installed before.

    A note if only ninja is missing, without which the build is slow, or if a wheel may make the build needless.
    """
    for install, requirement, line in possible_builds(context):
        missing = _missing_build_requirements(install, requirement) if install.action.no_build_isolation else []
        if "MAX_JOBS" in install.variables or not _limits_its_jobs(install, requirement):
            missing = [name for name in missing if name != "psutil"]
        if requirement.url in (".", "./") and _cloned_project(context, install) not in BUILT_WITH_TORCH:
            missing = [name for name in missing if name in ("torch", "setuptools", "wheel")]  # of any extension
        has_wheel = has_wheel_of_release(context, install, requirement)
        if has_wheel:  # its setup.py downloads it
            missing = [name for name in missing if name not in ("psutil", "ninja")]
        if missing and not _installs_unknown_packages(context, install):
            needed = build_requirements(context, install, requirement, missing)
            is_presupposed = "torch" in missing and _presupposes_torch(context, install)
            doubt = " (not certain: the environment is not new, and can have torch)" if is_presupposed else ""
            yield Problem(
                "unknown" if is_presupposed else _status_without(missing, is_compiled=has_wheel is False),
                f"the build of {requirement.name or requirement.text} {_uses_installed(install)} {', '.join(missing)}"
                f", and no earlier step installs {'it' if len(missing) == 1 else 'them'}{doubt}",
                (guide_evidence(context, "command", install.action.command, line),),
                f"Install {'it' if len(missing) == 1 else 'them'} first, in a separate step.",
                steps(shell_command("uv pip install {}", needed)),
                line=line,
                cause="" if "torch" in missing else "compiler-missing",
            )


def _presupposes_torch(context: GuideContext, install: InstallStep) -> bool:
    """Whether a guide installs no torch and creates no environment: README files of extensions require both."""
    named = {each.name for step in context.trace.installs for each in step.action.requirements}
    return not (install.before.name or install.before.image or "torch" in named)


def _status_without(missing: list[str], *, is_compiled: bool) -> Status:
    """How severe it is that build requirements are missing: only a build that compiles imports psutil."""
    if not set(missing) <= {"psutil", "ninja"}:
        return "error"
    return "warning" if "psutil" in missing and is_compiled else "info"


def _installs_unknown_packages(context: GuideContext, install: InstallStep) -> bool:
    """Whether an earlier step installs a project or a requirements file that the guide does not show.

    A package of conda can bring torch and build tools: transformer-engine-torch of conda-forge does.
    """
    earlier = takewhile(lambda step: step is not install, context.trace.installs)
    if any(command.words[:1] == ("cd",) and command.words[-1] in _PROJECTS for command in context.guide.commands):
        return False
    if any(command.words[:2] in _SYNCS for command in context.guide.commands if command.line <= install.action.line):
        return True
    return any(
        any(each.url.startswith(".") and not each.wheel for each in step.action.requirements)
        or (not step.action.requirements and re.search(r" -r\b| --requirement", step.action.command))
        or (step.action.tool == "conda" and not all(is_conda_base(each.name) for each in step.action.requirements))
        for step in earlier
        if not step.action.no_deps
    )


def _uses_installed(install: InstallStep) -> str:
    """Why the build needs the packages of the environment."""
    if "--no-build-isolation" in install.action.command:
        return "with --no-build-isolation needs"
    return "by `setup.py` needs" if "setup.py" in install.action.command else "without isolation needs"


def _missing_build_requirements(install: InstallStep, requirement: InstallRequirement) -> list[str]:
    # uv builds the packages of no-build-isolation-package last: measured with uv 0.8.22 and 0.13.9, 2026-11-28.
    is_last = requirement.name in install.action.built_with_torch
    state, system = install.after if is_last else install.before, install.system_packages
    available = set(state.packages)
    if state.image and any(name in state.image for name in _IMAGES_WITH_BUILD_REQUIREMENTS):
        available.update(_BUILD_REQUIREMENTS)
    if state.seeded and (state.tool == "conda" or satisfies(state.python or "3.11", "<3.12")):
        available.update(("setuptools", "wheel"))
    if available & _REQUIRING_PSUTIL:
        available.update(("packaging", "psutil"))
    if (available | set(state.requested)) & _REQUIRING_PACKAGING:
        available.add("packaging")
    torch = public_part(state.packages["torch"].version) if "torch" in state.packages else "0"
    # torch 2.5 and newer requires setuptools on Python 3.12 and newer.
    if satisfies(torch, ">=2.5") and satisfies(state.python or "3.0", ">=3.12"):
        available.add("setuptools")
    setuptools = state.packages.get("setuptools")
    of_ubuntu = _UBUNTU_SETUPTOOLS if state.system.startswith("ubuntu") and _PIP_OF_UBUNTU in system else ""
    is_old = satisfies(setuptools.version if setuptools else of_ubuntu, _WITHOUT_COPIES)
    if "setuptools" in available and not is_old:
        available.update(("packaging", "wheel"))
    vllm = state.packages.get("vllm")
    if system & {"ninja-build", "ninja"} or (vllm and satisfies(vllm.version, _VLLM_WITH_NINJA)):
        available.add("ninja")
    return [name for name in _BUILD_REQUIREMENTS if name not in available]


@rule(
    "RUN042",
    kind="guide",
    severity="info",
    cause="flash-attn-no-wheel",
    url="https://github.com/Dao-AILab/flash-attention/releases",
)
def flash_attn_is_compiled_from_source(context: GuideContext) -> Iterator[Problem]:
    """flash-attn has no wheel for the torch, Python or CPU architecture of the guide. Compiling takes hours.

    The build works where there is a CUDA toolkit; RUN043, RUN046 and RUN290 report those that fail.
    """
    for install, requirement, line in possible_builds(context):
        torch = torch_of_step(install)
        if requirement.name != "flash-attn" or requirement.url or satisfies(requirement.pin or "2", ">=3"):
            continue
        if _fails_isolated(install) or not torch or not _is_compiled(context, install, requirement):
            continue
        row = standard_of_build("flash-attn", _flash_attn_version(install, requirement))
        if row and rejecting_headers(row.standard, torch.version):
            continue  # RUN290
        yield Problem(
            "info",
            f"flash-attn {_flash_attn_version(install, requirement)} has no release wheel for torch {torch.version}, "
            f"Python {install.before.python or '(not named)'}, {context.platform}: compiling it takes hours",
            (
                guide_evidence(context, "flash-attn", requirement.text, line),
                table_evidence(
                    "wheels of the release",
                    "torch 2.4 to 2.8, Python 3.9 to 3.13",
                    "assets of the release v2.8.3",
                    "2026-11-21",
                ),
            ),
            without_compiling(torch, install.before.python, context.platform),
            line=line,
        )


@rule(
    "RUN043",
    kind="guide",
    severity=("error", "warning"),
    cause="cuda-home-missing",
    url="https://docs.nvidia.com/cuda/cuda-installation-guide-linux/",
    needs=("toolkit",),
)
def source_build_has_no_cuda_toolkit(context: GuideContext) -> Iterator[Problem]:
    """A package is compiled without nvcc: in a runtime image, or although no step installs a CUDA toolkit."""
    for install, requirement, line in possible_builds(context):
        state = install.before
        if _fails_isolated(install):
            continue
        if state.toolkit or "CUDA_HOME" in install.variables or requirement.name not in BUILT_WITH_TORCH | {"vllm"}:
            continue
        if not state.image and _text_names_cuda(context):
            continue
        if _is_compiled(context, install, requirement) or (state.image and requirement.name != "flash-attn"):
            reason = f"{state.image} has no nvcc" if state.image else "no step installs or names a CUDA toolkit"
            yield Problem(
                "error" if state.image else "warning",
                f"{requirement.name} is compiled from source, but {reason}",
                (guide_evidence(context, requirement.name, install.action.command, line),),
                *(_WITH_COMPILER if state.image else _FIND_COMPILER),
                line=line,
            )
    yield from _repositories_without_toolkit(context)


def _repositories_without_toolkit(context: GuideContext) -> Iterator[Problem]:
    """Repositories of CUDA extensions that are compiled in an image without nvcc."""
    for built in built_repositories(context):
        state, variables = built.install.before, built.install.variables
        is_compiled = built.row.without_gpu == "stops" and not _fails_isolated(built.install)
        if not is_compiled or not state.image or state.toolkit or "CUDA_HOME" in variables:
            continue
        if not re.search(r"-(?:runtime|base)\b|^python:|^ubuntu:|^debian:", state.image):
            continue
        line = line_of(context, built.requirement.line, built.requirement.text)
        yield Problem(
            "error",
            f"{built.title} is compiled from source, but {state.image} has no nvcc",
            (
                guide_evidence(context, built.row.package, built.install.action.command, line),
                table_evidence("setup.py", "CUDAExtension", built.row.source, built.row.date),
            ),
            *_WITH_COMPILER,
            line=line,
        )


def _text_names_cuda(context: GuideContext) -> bool:
    """Whether the text names the CUDA version of the machine, or of an image: "image: PyTorch 2.1, CUDA 12.1"."""
    code = {number for block in context.guide.blocks for number, _ in block.lines}
    texts = (text for number, text in enumerate(context.guide.lines, 1) if number not in code)
    return any(_CUDA_IN_TEXT.search(text) or _IMAGE_IN_TEXT.search(text) for text in texts)


@rule("RUN044", kind="guide", severity="warning", cause="host-oom-build", url=FLASH)
def build_jobs_are_not_limited(context: GuideContext) -> Iterator[Problem]:
    """A source build of flash-attn needs about 5 GB of memory for each job. MAX_JOBS limits the jobs.

    flash-attn 2.5.4 and newer limits them itself, by the free memory.
    """
    for install, requirement, line in possible_builds(context):
        if "MAX_JOBS" in install.variables or _skips_cuda_build(install) or _fails_isolated(install):
            continue
        if _limits_its_jobs(install, requirement):
            continue
        if requirement.name in BUILT_WITH_TORCH and _is_compiled(context, install, requirement):
            yield Problem(
                "warning",
                f"{requirement.name} is compiled without MAX_JOBS: one job for each CPU, about 5 GB each",
                (guide_evidence(context, requirement.name, install.action.command, line),),
                "Set MAX_JOBS to the memory in GB divided by 5.",
                steps("export MAX_JOBS=4"),
                line=line,
            )


def _limits_its_jobs(install: InstallStep, requirement: InstallRequirement) -> bool:
    """Whether the setup.py of flash-attn determines the number of jobs; the main branch does."""
    version = _flash_attn_version(install, requirement)
    return requirement.name == "flash-attn" and satisfies(version or "99", _LIMITS_ITS_JOBS) is not False


def _fails_isolated(install: InstallStep) -> bool:
    """Whether the build stops without torch, before it compiles anything (RUN040)."""
    return not install.action.no_build_isolation and install.action.tool != "conda"


def _skips_cuda_build(install: InstallStep) -> bool:
    return install.variables.get("FLASH_ATTENTION_SKIP_CUDA_BUILD", "").upper() in ("TRUE", "1")


@rule("RUN045", kind="guide", severity="error", cause="flash-attn-no-wheel", url=FLASH)
def cuda_build_is_skipped_without_a_wheel(context: GuideContext) -> Iterator[Problem]:
    """If there is no wheel, FLASH_ATTENTION_SKIP_CUDA_BUILD=TRUE installs a package without kernels."""
    for install, requirement, line in possible_builds(context):
        if not _skips_cuda_build(install):
            continue
        torch = install.before.packages.get("torch")
        if torch and install.before.python and not requirement.url and requirement.name == "flash-attn":
            version, torch_release = _flash_attn_version(install, requirement), minor_of(torch.version)
            if has_release_wheel(version, torch_release, install.before.python, context.platform):
                continue
        yield Problem(
            "error",
            f"FLASH_ATTENTION_SKIP_CUDA_BUILD with `{requirement.text}`: there is no wheel for this environment, so "
            f"the package has no kernels",
            (guide_evidence(context, "FLASH_ATTENTION_SKIP_CUDA_BUILD", "TRUE", line),),
            "Install a wheel built for this torch release by its URL, or unset the variable and compile.",
            line=line,
        )


@rule(
    "RUN046",
    kind="guide",
    severity="error",
    cause="nvcc-torch-mismatch",
    url="https://github.com/pytorch/pytorch/blob/main/torch/utils/cpp_extension.py",
)
def nvcc_and_torch_differ_in_cuda_version(context: GuideContext) -> Iterator[Problem]:
    """The CUDA toolkit and torch differ in the major CUDA version. torch.utils.cpp_extension rejects the build."""
    for install, requirement, line in possible_builds(context):
        name, torch, toolkit = requirement.name or requirement.text, torch_of_step(install), install.before.toolkit
        if not torch or torch.cuda in ("", "cpu") or "." not in toolkit:
            continue
        if toolkit.partition(".")[0] == torch.cuda.partition(".")[0]:
            continue
        if install.action.no_build_isolation or _is_compiled(context, install, requirement):
            yield Problem(
                "error",
                f"{name} is compiled with CUDA {toolkit}, but torch is built for CUDA {torch.cuda}",
                (guide_evidence(context, name, install.action.command, line),),
                f"Use {'an image with the' if install.before.image else 'a'} toolkit of CUDA {torch.cuda}.",
                steps("ls -d /usr/local/cuda*", shell_command("export CUDA_HOME=/usr/local/cuda-{}", torch.cuda))
                if not install.before.image
                else (),
                line=line,
            )
