"""Checks on what is compiled on the spot: build isolation, tools that must be there before, CUDA toolkit, memory."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.knowledge.versions import minor_of, public_part, satisfies
from envdoctor.manifests.case import Case
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, table_evidence
from envdoctor.manifests.flash import has_release_wheel
from envdoctor.manifests.journey import Installed
from envdoctor.manifests.requirement import Wanted
from envdoctor.rules.registry import Problem, rule

FLASH = "https://github.com/Dao-AILab/flash-attention#installation-and-features"
ISOLATION = "https://docs.astral.sh/uv/concepts/projects/config/#build-isolation"
# Packages whose build imports torch: flash-attn has no wheel on PyPI, the others none for many combinations.
_BUILT = frozenset(
    {"flash-attn", "flash-attn-3", "apex", "causal-conv1d", "mamba-ssm", "transformer-engine", "deepspeed-kernels"}
)
_SOURCE_NAMES = {"flash-attention": "flash-attn", "hopper": "flash-attn-3"}
_BRING_HELPERS = frozenset({"accelerate", "transformers", "vllm", "datasets"})


def _built(done: Installed) -> Iterator[Wanted]:
    """What a step compiles or may compile: flash-attn from PyPI, repositories and folders of the like."""
    for each in done.step.wanted:
        if each.wheel:
            continue
        name = _SOURCE_NAMES.get(each.name, each.name)
        if name in _BUILT or (each.address and name == "vllm"):
            yield each._replace(name=name)
        elif each.address in (".", "./") and done.step.no_isolation:
            yield each


@rule("RUN040", kind="guide", severity="error", cause="build-isolation-no-torch", url=ISOLATION)
def build_cannot_see_torch(case: Case) -> Iterator[Problem]:
    """flash-attn's build imports torch: in pip's isolated build there is none, and it ends in ModuleNotFoundError."""
    for done in case.journey.installed:
        if done.step.no_isolation or done.step.tool == "conda":
            continue
        for each in _built(done):
            if each.name not in _BUILT or satisfies(each.pin or "2.8", ">=3") or each.name == "flash-attn-3":
                continue
            line = line_of(case, each.line, each.text)
            yield Problem(
                "error",
                f"`{each.text}` is built from source in an isolated environment without torch",
                (
                    guide_evidence(case, each.name, done.step.command, line),
                    table_evidence(each.name, "source only on PyPI", "release list of PyPI", "2026-11-21"),
                ),
                "Install torch, setuptools, wheel, packaging, psutil and ninja first, then add --no-build-isolation.",
                (
                    "uv pip install setuptools wheel packaging psutil ninja",
                    f"uv pip install '{each.text}' --no-build-isolation",
                ),
                line=line,
            )


@rule("RUN041", kind="guide", severity=("error", "warning"), cause="build-isolation-no-torch", url=ISOLATION)
def prerequisite_of_the_build_is_missing(case: Case) -> Iterator[Problem]:
    """--no-build-isolation builds with what is installed: torch, setuptools, wheel, packaging, psutil and ninja
    first.
    """
    for done in case.journey.installed:
        for each in _built(done) if done.step.no_isolation else ():
            missing = _missing(done)
            if not missing:
                continue
            line = line_of(case, each.line, each.text)
            fatal = [name for name in missing if name in ("torch", "setuptools", "wheel", "packaging")]
            yield Problem(
                "error" if fatal else "warning",
                f"--no-build-isolation for {each.name} without {', '.join(missing)} installed before",
                (guide_evidence(case, "command", done.step.command, line),),
                "Install them first, in a step of their own.",
                (f"uv pip install {' '.join(missing)}",),
                line=line,
                cause="" if "torch" in missing else "compiler-missing",
            )


def _missing(done: Installed) -> list[str]:
    state = done.before
    held = set(state.packages)
    if state.image and (
        "nvidia/pytorch" in state.image
        or "pytorch/pytorch" in state.image
        or "vllm" in state.image
        or "verl" in state.image
    ):
        held |= {"torch", "setuptools", "wheel", "packaging", "psutil", "ninja"}
    if state.seeded:
        held |= (
            {"setuptools", "wheel"} if state.tool == "conda" or satisfies(state.python or "3.11", "<3.12") else set()
        )
    held |= {"packaging", "psutil"} if held & _BRING_HELPERS else set()
    held |= {"ninja"} if done.build_helpers & {"ninja-build", "ninja"} else set()
    if "torch" in held and satisfies(
        public_part(state.packages["torch"].version) if "torch" in state.packages else "0", ">=2.5"
    ):
        held |= {"setuptools"} if satisfies(state.python or "3.0", ">=3.12") else set()  # torch requires it there
    return [name for name in ("torch", "setuptools", "wheel", "packaging", "psutil", "ninja") if name not in held]


def _compiles(case: Case, done: Installed, each: Wanted) -> bool:
    """Whether the step really compiles: a repository or a folder, or a flash-attn without a release wheel for
    this torch.
    """
    if each.address:
        return True
    torch = done.before.packages.get("torch") or done.after.packages.get("torch")
    if each.name != "flash-attn" or not torch or not torch.version:
        return False
    pick = done.choice.picks.get("flash-attn")
    version = each.pin or (pick.version if pick else "")
    return has_release_wheel(version, minor_of(torch.version), done.before.python, case.platform) is False


@rule(
    "RUN042",
    kind="guide",
    severity="warning",
    cause="flash-attn-no-wheel",
    url="https://github.com/Dao-AILab/flash-attention/releases",
)
def flash_attn_is_compiled_for_hours(case: Case) -> Iterator[Problem]:
    """The flash-attn release has no wheel for the guide's torch, Python or processor: the install compiles for
    hours.
    """
    for done in case.journey.installed:
        for each in _built(done):
            if (
                each.name != "flash-attn"
                or each.address
                or not _compiles(case, done, each)
                or satisfies(each.pin or "2", ">=3")
            ):
                continue
            line = line_of(case, each.line, each.text)
            torch = done.before.packages.get("torch") or done.after.packages["torch"]
            pick = done.choice.picks.get("flash-attn")
            version = each.pin or (pick.version if pick else "")
            yield Problem(
                "warning",
                f"flash-attn {version} has no release wheel for torch {torch.version}, "
                f"Python {done.before.python or '(not named)'}, "
                f"{case.platform}: it is compiled here, for hours",
                (
                    guide_evidence(case, "flash-attn", each.text, line),
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
def source_build_without_a_toolkit(case: Case) -> Iterator[Problem]:
    """Something is compiled where there is no nvcc: a runtime image, or a machine on which no step brings a
    toolkit.
    """
    for done in case.journey.installed:
        state = done.before
        if state.toolkit or "CUDA_HOME" in done.variables:
            continue
        for each in _built(done):
            if each.name not in _BUILT | {"vllm"} or not (
                _compiles(case, done, each) or (state.image and each.name != "flash-attn")
            ):
                continue
            line = line_of(case, each.line, each.text)
            where = f"{state.image} has no nvcc" if state.image else "no step installs or names a CUDA toolkit"
            yield Problem(
                "error" if state.image else "warning",
                f"{each.name} is compiled here, and {where}",
                (guide_evidence(case, each.name, done.step.command, line),),
                "Use a -devel image, or install the toolkit of torch's CUDA and set CUDA_HOME.",
                ("export CUDA_HOME=/usr/local/cuda-12.8",),
                line=line,
            )


@rule("RUN044", kind="guide", severity="warning", cause="host-oom-build", url=FLASH)
def build_jobs_are_not_limited(case: Case) -> Iterator[Problem]:
    """A source build of flash-attn takes about 5 GB a job: without MAX_JOBS it runs out of memory."""
    for done in case.journey.installed:
        for each in _built(done):
            if (
                each.name in _BUILT
                and _compiles(case, done, each)
                and "MAX_JOBS" not in done.variables
                and not _skips(done)
            ):
                line = line_of(case, each.line, each.text)
                yield Problem(
                    "warning",
                    f"{each.name} is compiled without MAX_JOBS: one job for each processor, about 5 GB each",
                    (guide_evidence(case, each.name, done.step.command, line),),
                    "Set MAX_JOBS to the memory in GB divided by 5.",
                    (f"MAX_JOBS=4 {done.step.command}",),
                    line=line,
                )


def _skips(done: Installed) -> bool:
    return done.variables.get("FLASH_ATTENTION_SKIP_CUDA_BUILD", "").upper() in ("TRUE", "1")


@rule("RUN045", kind="guide", severity="error", cause="flash-attn-no-wheel", url=FLASH)
def kernels_are_skipped_without_a_wheel(case: Case) -> Iterator[Problem]:
    """FLASH_ATTENTION_SKIP_CUDA_BUILD=TRUE with no wheel behind it installs a package without kernels."""
    for done in case.journey.installed:
        for each in _built(done) if _skips(done) else ():
            torch = done.before.packages.get("torch")
            pick = done.choice.picks.get("flash-attn")
            version = each.pin or (pick.version if pick else "")
            there = (
                not each.address
                and each.name == "flash-attn"
                and torch
                and has_release_wheel(version, minor_of(torch.version), done.before.python, case.platform)
            )
            if there and done.before.python:
                continue
            line = line_of(case, each.line, each.text)
            yield Problem(
                "error",
                f"FLASH_ATTENTION_SKIP_CUDA_BUILD with `{each.text}`: no wheel stands behind it here, so the "
                f"package has no kernels",
                (guide_evidence(case, "FLASH_ATTENTION_SKIP_CUDA_BUILD", "TRUE", line),),
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
def nvcc_is_of_another_cuda_than_torch(case: Case) -> Iterator[Problem]:
    """The toolkit that compiles has another major CUDA version than torch: torch's build helper refuses it."""
    for done in case.journey.installed:
        torch = done.before.packages.get("torch") or done.after.packages.get("torch")
        toolkit = done.before.toolkit
        if not torch or torch.cuda in ("", "cpu") or "." not in toolkit:
            continue
        for each in _built(done):
            if toolkit.partition(".")[0] != torch.cuda.partition(".")[0] and (
                _compiles(case, done, each) or done.step.no_isolation
            ):
                line = line_of(case, each.line, each.text)
                yield Problem(
                    "error",
                    f"{each.name} would be compiled with CUDA {toolkit}, torch is built for CUDA {torch.cuda}",
                    (guide_evidence(case, each.name, done.step.command, line),),
                    f"Use a toolkit of CUDA {torch.cuda}.",
                    (f"export CUDA_HOME=/usr/local/cuda-{torch.cuda}",),
                    line=line,
                )
