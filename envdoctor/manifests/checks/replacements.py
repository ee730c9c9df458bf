"""Checks on the torch build, and on packages that a later step replaces."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Status
from envdoctor.core.remedies import either, steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.guides import cuda_row, guide_tables
from envdoctor.knowledge.releases import (
    optional_specifier,
    required_specifier,
)
from envdoctor.knowledge.torch_builds import install_command, known_builds, torch_releases
from envdoctor.knowledge.versions import is_prerelease, major_minor, minor_of, public_part, satisfies
from envdoctor.manifests.actions import UseRunner, UseWorkflowAction, torch_source
from envdoctor.manifests.checks.evidence import guide_evidence, install_step, line_of, table_evidence
from envdoctor.manifests.checks.kept_releases import keep_or_choose
from envdoctor.manifests.cloned_projects import CLONE_ORIGIN
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.environment_state import IMAGE_ORIGIN
from envdoctor.manifests.interpreter import InstallStep
from envdoctor.manifests.step_packages import has_constraints
from envdoctor.manifests.step_resolution import COMPANIONS, has_other_index
from envdoctor.resolution.resolver import ResolvedPackage
from envdoctor.resolution.torch_sources import TORCH_FAMILY, aarch64_build
from envdoctor.rules.registry import Problem, rule

ARM_TORCH = "https://github.com/pytorch/pytorch/issues/160162"
UV_TORCH = "https://docs.astral.sh/uv/guides/integration/pytorch/"
_DEV_PIN = lazy_pattern(r"===?[^,]*dev")  # `>=2.1.0dev` selects a release on an index without nightly builds
_TORCH_PACKAGES = ("torch", "torchvision", "torchaudio", "triton")
_LIBRARIES = (
    "vllm", "transformers", "trl", "peft", "numpy", "xformers", "flash-attn", "accelerate", "huggingface-hub",
    "bitsandbytes", "diffusers", "sglang",
)  # fmt: skip


_COMPILED = frozenset({"flash-attn", "apex", "causal-conv1d", "mamba-ssm", "transformer-engine", "deepspeed-kernels"})
_REPLACES = lazy_pattern(
    r"\b(?:replac\w+|upgrad\w+|overrid\w+|overwrit\w+|reinstall\w*|rebuil[dt]\w*|resolver\S*|on purpose|deliberate\w*"
    r"|intention\w*|intended|expected|its (?:own|exact))\b(?!.{0,30}\b(?:not|never)\b)",
    re.IGNORECASE,
)


@rule("RUN010", kind="guide", severity=("error", "warning", "info"), cause="dependency-pin-violated", url=UV_TORCH,
      needs=("python",))  # fmt: skip
def later_step_replaces_an_installed_package(context: GuideContext) -> Iterator[Problem]:
    """A later step replaces torch, triton or another pinned package without a warning.

    Extensions compiled for the earlier torch then miss symbols. The new build may be for another CUDA version or CPU.
    """
    for install in context.trace.installs:
        if install.resolution.state == "conflict" or torch_source(install.action).is_for_other_gpus:
            continue  # the step fails, or the guide chooses another GPU
        replaced = [pair for name in (*_TORCH_PACKAGES, *_LIBRARIES) if (pair := _replaced(install, name))]
        torch_is_replaced = any(old.name == "torch" for old, _ in replaced)
        for old, new in replaced:
            # The packages that belong to torch follow it: its own replacement is the reason.
            follows_torch = old.name != "torch" and old.name in _TORCH_PACKAGES and torch_is_replaced
            if old.name == "torch" and old.is_dependency and new.cuda != "cpu" and not _is_built_for(install):
                continue  # the guide did not choose this torch, and nothing depends on it
            if install.before.resolution == "partial" and not is_certain(install, new):
                continue
            if (
                not old.pinned
                and new.is_dependency
                and installs_a_main_branch(install)
                and not _is_built_for(install)
            ):
                continue  # the project requires its torch, and nothing depends on the one before
            if not follows_torch and not (old.origin == IMAGE_ORIGIN and _is_announced(context, install, old, new)):
                yield _replacement(context, install, old, new)


def is_certain(install: InstallStep, new: ResolvedPackage) -> bool:
    """Whether a pin determines the new release, whatever the environment contains: of the step, or of its package."""
    requiring, version = _requiring(new), new.reason.rpartition(" ")[2]
    named = {requirement.name: requirement for requirement in install.action.requirements}
    if new.pinned or not new.is_dependency or requiring not in named:
        return new.pinned
    # Of a package that is not installed yet, installers take the release that they find: on an index that is not
    # read, it can be another one.
    is_new = requiring not in install.before.packages and not has_other_index(install.action)
    stated = required_specifier(requiring, version, new.name) or optional_specifier(requiring, version, new.name)
    return bool(named[requiring].pin) or (is_new and re.fullmatch(r"==[^,*]+", stated) is not None)


def installs_a_main_branch(install: InstallStep) -> bool:
    """Whether a step installs a clone at its main branch, for which the newest release stands."""
    return any(each.origin == CLONE_ORIGIN and not each.version for each in install.resolution.packages.values())


def _is_built_for(install: InstallStep) -> bool:
    """Whether the environment has packages that were compiled for its torch."""
    return bool(_COMPILED & install.before.packages.keys())


def _replaced(install: InstallStep, name: str) -> tuple[ResolvedPackage, ResolvedPackage] | None:
    """A package before and after the step, if the step replaces it."""
    old, new = install.before.packages.get(name), install.after.packages.get(name)
    return (old, new) if old and new and new is not old and _is_replaced(name, old, new, install) else None


def _is_announced(context: GuideContext, install: InstallStep, old: ResolvedPackage, new: ResolvedPackage) -> bool:
    """Whether comments next to the step state that it replaces a package of the image; never by a CPU build."""
    comments = " ".join(_comments_next_to(context.guide.lines, install.action.line))
    names = {"torch": r"(?:py)?torch|abi|stack"}.get(old.name, re.escape(old.name))
    return new.cuda != "cpu" and bool(_REPLACES.search(comments) and re.search(rf"(?i)\b(?:{names})\b", comments))


def _comments_next_to(lines: Sequence[str], line: int) -> Iterator[str]:
    """The comment lines right before a command and right after it."""
    before = takewhile(lambda text: text.lstrip().startswith("#"), reversed(lines[: max(line - 1, 0)]))
    end = next((n for n in range(line, len(lines) + 1) if not lines[n - 1].rstrip().endswith("\\")), line)
    yield from before
    yield from takewhile(lambda text: text.lstrip().startswith("#"), lines[end:])


def _is_replaced(name: str, old: ResolvedPackage, new: ResolvedPackage, install: InstallStep) -> bool:
    if new.wheel or old.wheel or not old.version or not new.version:
        return False
    if name == "torch" and old.cuda not in ("", "cpu") and new.cuda == "cpu":
        return True
    same_version = public_part(old.version) == public_part(new.version)
    if same_version or (old.line == new.line and old.reason == new.reason):
        return False
    violates_specifier = bool(old.specifier) and satisfies(public_part(new.version), old.specifier) is False
    was_chosen = old.pinned or old.origin != "PyPI" or violates_specifier
    if name in _TORCH_PACKAGES:
        return was_chosen or name == "torch" or "torch" in install.before.packages or not old.is_dependency
    return was_chosen and not new.pinned


def _replacement(context: GuideContext, install: InstallStep, old: ResolvedPackage, new: ResolvedPackage) -> Problem:
    line = line_of(context, new.line or install.action.line, "" if new.is_dependency else new.reason)
    to_cpu = old.name == "torch" and old.cuda not in ("", "cpu") and new.cuda == "cpu"
    is_intended = new.pinned and not to_cpu and old.origin == "PyPI"
    replaced_by = f"a dependency ({new.reason})" if new.is_dependency else f"`{new.reason}`"
    breaks_vllm = old.name == "torch" and "vllm" in install.after.packages
    fix, remedies = keep_or_choose(context, install, old, new)
    status: Status = "warning" if is_intended or old.name not in _TORCH_PACKAGES else "error"
    is_guess = old.origin == "conda" and not old.specifier  # conda can have chosen another release
    is_guess |= new.is_dependency and _requiring(new) in _brought_by_conda(context, install)
    # `pip install --upgrade transformers` states what it does.
    is_guess |= install.action.upgrade and not new.is_dependency and old.name not in _TORCH_PACKAGES
    if is_guess or _is_harmless(install, old, new) or (install.resolution.state == "unresolved" and not new.pinned):
        status = "info"
    place = context.guide.line_name(old.line)
    effect = f"{replaced_by} would replace {_describe(old)} of {place} with {_describe(new)}"
    if old.origin == IMAGE_ORIGIN and has_constraints(install.action, install.before, context.guide):
        effect = f"{replaced_by} needs {_describe(new)}, which pip refuses: /etc/pip/constraint.txt of the container "
        effect += f"of {place} pins {old.name} {old.version}"
    return Problem(
        status,
        effect,
        (
            guide_evidence(context, old.name, f"{old.reason} ({old.origin})", old.line),
            guide_evidence(context, new.name, install.action.command, install.action.line),
        ),
        fix,
        remedies,
        line=line,
        cause="torch-cpu-build" if to_cpu else "vllm-torch-mismatch" if breaks_vllm else "",
    )


def _requiring(package: ResolvedPackage) -> str:
    """The package that a dependency is installed for."""
    return package.reason.removeprefix("required by ").partition(" ")[0]


def _brought_by_conda(context: GuideContext, install: InstallStep) -> set[str]:
    """The packages of earlier steps of conda, which pip keeps in releases that are not known."""
    earlier = takewhile(lambda step: step is not install, context.trace.installs)
    return {each.name for step in earlier if step.action.tool == "conda" for each in step.action.requirements}


def _is_harmless(install: InstallStep, old: ResolvedPackage, new: ResolvedPackage) -> bool:
    """Whether a torch of any release is replaced by one for no newer CUDA, with all that was installed for it.

    Or by a pin for the same CUDA as that of its index, before anything was compiled for it.
    """
    if old.name == "torch" and new.pinned and old.origin not in ("PyPI", IMAGE_ORIGIN, "conda"):
        return bool(old.cuda) and old.cuda == new.cuda and not _is_built_for(install)
    is_open = old.name == "torch" and not old.pinned and not old.specifier and not _is_built_for(install)
    is_of_chosen_index = old.origin != "PyPI" and old.origin.endswith(f"cu{old.cuda.replace('.', '')}")
    if not is_open or is_of_chosen_index or "cpu" in (old.cuda, new.cuda) or not (old.cuda and new.cuda):
        return False
    follow = all(name in install.resolution.packages for name in COMPANIONS if name in install.before.packages)
    return follow and major_minor(new.cuda) <= major_minor(old.cuda)


def _describe(package: ResolvedPackage) -> str:
    build = {"": "", "cpu": " (CPU build)"}.get(package.cuda, f" (CUDA {package.cuda})")
    origin = "" if package.origin == "PyPI" else f" from {package.origin}"
    return f"{package.name} {package.version}{build}{origin}"


@rule("RUN011", kind="guide", severity="error", cause="torch-cpu-build", url=ARM_TORCH)
def torch_from_pypi_is_a_cpu_build_on_aarch64(context: GuideContext) -> Iterator[Problem]:
    """On aarch64, torch on PyPI is a CPU build up to 2.10. Packages that need libtorch_cuda.so fail.

    vLLM, FlashAttention and bitsandbytes can be installed with it without a warning.
    """
    if context.platform != "aarch64":
        return
    for install in context.trace.installs:
        old, new = install.before.packages.get("torch"), install.resolution.packages.get("torch")
        is_unchanged = old and new and (old.version, old.cuda) == (new.version, new.cuda)
        if not new or is_unchanged or new.cuda != "cpu" or torch_source(install.action).backend.startswith("cpu"):
            continue
        is_open = install.resolution.state == "partial" or has_other_index(install.action)
        if is_open and not is_certain(install, new):
            continue
        if install.action.tool == "conda":
            continue  # its channels have builds of their own
        row = cuda_row(guide_tables().pypi_torch, new.version)
        build = aarch64_build(new.version, context.trace.driver, context.version("vllm"))
        latest = torch_releases()[build.torch].latest if build else ""
        command = (
            install_command(build).replace(latest, public_part(new.version))
            if build
            else "uv pip install 'torch>=2.11,<2.12'"
        )
        line = line_of(context, new.line, "" if new.is_dependency else new.reason)
        yield Problem(
            "error",
            f"torch {new.version} from PyPI is a CPU build on aarch64 (`{new.reason}`); CUDA builds for aarch64 "
            f"start with 2.11",
            (
                guide_evidence(context, "torch", new.reason, line),
                table_evidence("torch on PyPI, aarch64", "cpu", row.source if row else "", row.date if row else ""),
            ),
            "Install torch from the PyTorch index first"
            + (f" (CUDA {build.cuda})" if build else "")
            + ", and pin it in every later step. Or use torch 2.11 or newer, whose wheel on PyPI has CUDA.",
            steps(command),
            line=line,
        )


@rule(
    "RUN012",
    kind="guide",
    severity=("warning", "info"),
    cause="dependency-pin-violated",
    url="https://pytorch.org/get-started/locally/",
)
def nightly_build_changes_every_day(context: GuideContext) -> Iterator[Problem]:
    """The current nightly build of torch is not the one that the guide was written for. Old builds are deleted.

    A note in a workflow, whose job tests the build of the day, where the guide has the release as an alternative, and
    where it installs nothing that is made for a release of torch.
    """
    named = {each.name for install in context.trace.installs for each in install.action.requirements}
    is_chosen = bool(context.actions(UseWorkflowAction) or context.actions(UseRunner))
    is_chosen |= named <= TORCH_FAMILY
    is_chosen |= any("nightly" in branch.name.lower() for branch in context.guide.branches)
    for install in context.trace.installs:
        source = torch_source(install.action)
        torch = next((package for package in install.action.requirements if package.name == "torch"), None)
        if not torch or source.is_for_other_gpus or not (source.nightly or _DEV_PIN.search(torch.specifier)):
            continue
        line = line_of(context, install.action.line, torch.text)
        release, cuda = _release_for_the_guide(context, source.cuda) if source.cuda != "cpu" else ("", "")
        backend = f"cu{cuda.replace('.', '')}"
        companions = [each.name for each in install.action.requirements if each.name in COMPANIONS]
        command = shell_command("uv pip install torch=={} {} --torch-backend={}", release, companions, backend)
        yield Problem(
            "info" if is_chosen else "warning",
            f"`{install.action.command[:120]}` would install the nightly build of the day; such builds are deleted "
            f"after some weeks",
            (guide_evidence(context, "torch", str(source), line),),
            f"Use a release: torch {release} has a build for CUDA {cuda} on {context.platform}."
            if cuda
            else "Use a release.",
            either(*((command,) if cuda else ())),
            line=line,
        )


def _release_for_the_guide(context: GuideContext, cuda: str) -> tuple[str, str]:
    """The release of torch that the other packages of the guide need, and a CUDA version that it is built for.

    Without such a package, and where the guide permits several releases, it is the newest release for the CUDA
    version of the nightly index. The build runs with the driver and on the GPUs.
    """
    needed = next(
        (
            package.version
            for environment in reversed(context.environments)
            if (package := environment.state.packages.get("torch"))
            and (package.pinned or package.is_dependency)
            and not is_prerelease(package.version)
        ),
        "",
    )
    builds = [row for row in known_builds() if row.platform == context.platform and context.build.runs(row)]
    fitting = [row for row in builds if not needed or row.torch == minor_of(needed)]
    exact = [row for row in fitting if row.cuda == cuda]
    if not (row := next(reversed(exact or fitting), None)):
        return "", ""
    return public_part(needed) or torch_releases()[row.torch].latest, row.cuda


@rule(
    "RUN013",
    kind="guide",
    severity="error",
    cause="dependency-pin-violated",
    url="https://github.com/openai/openai-cookbook/issues/2330",
)
def wheel_requires_a_deleted_nightly(context: GuideContext) -> Iterator[Problem]:
    """vLLM 0.10.1+gptoss requires torch 2.9.0.dev20250804+cu128, a nightly build that no index has any more.

    vLLM 0.10.2 and later releases run gpt-oss with a released torch.
    """
    for install in context.trace.installs:
        for requirement in install.action.requirements:
            if requirement.name == "vllm" and "+gptoss" in requirement.specifier:
                line = line_of(context, requirement.line, requirement.text)
                yield Problem(
                    "error",
                    f"`{requirement.text}` requires the nightly build torch 2.9.0.dev20250804, which was deleted",
                    (
                        guide_evidence(context, "vllm", requirement.text, line),
                        table_evidence(
                            "vllm 0.10.1+gptoss",
                            "torch==2.9.0.dev20250804+cu128",
                            "github.com/openai/openai-cookbook/issues/2330",
                            "2026-11-25",
                        ),
                    ),
                    "Use vLLM 0.10.2 or newer, which runs gpt-oss.",
                    install_step("vllm==0.10.2", "transformers<5"),
                    line=line,
                )
