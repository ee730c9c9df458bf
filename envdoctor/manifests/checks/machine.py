"""Checks on the CUDA versions of images, drivers, toolkits, indexes and conda channels."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.remedies import Remedy, either, steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.cuda import cuda_releases
from envdoctor.knowledge.guides import cuda_on_pypi, guide_tables
from envdoctor.knowledge.images import first_ngc_image, ngc_images, system_of_image
from envdoctor.knowledge.torch_builds import known_builds
from envdoctor.knowledge.versions import dotted_numbers, major_minor, public_part, satisfies
from envdoctor.manifests.actions import Install, InstallSystemPackages, UseImage, torch_source
from envdoctor.manifests.checks.evidence import (
    guide_evidence,
    install_step,
    install_with,
    line_of,
    table_evidence,
)
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.environment_state import image_state
from envdoctor.manifests.step_resolution import COMPANIONS
from envdoctor.resolution.requirement import InstallRequirement
from envdoctor.resolution.torch_sources import cuda_builds, may_be_on_torch_index, torch_has_build, torch_index
from envdoctor.rules.registry import Problem, rule
from envdoctor.rules.requirements import bounded

NGC = "https://docs.nvidia.com/deeplearning/frameworks/pytorch-release-notes/"
TORCH_MATRIX = "https://github.com/pytorch/pytorch/blob/main/RELEASE.md#pytorch-cuda-support-matrix"
CONDA = "https://github.com/pytorch/pytorch/issues/138506"
_STATED_CUDA = lazy_pattern(r"CUDA[ :=|*`/-]{0,6}(1[1-3]\.\d)\b", re.IGNORECASE)


@rule("RUN050", kind="guide", severity="error", cause="driver-ptx-too-old", url=NGC)
def image_has_a_different_cuda_version_than_stated(context: GuideContext) -> Iterator[Problem]:
    """The image does not exist, or its CUDA version is not the one in the guide.

    NGC 24.10 has CUDA 12.6; 25.01 is the first release with CUDA 12.8.
    """
    for action in context.actions(UseImage):
        line = line_of(context, action.line, action.tag)
        texts = [text.replace(action.tag, "") for text in _texts_about_cuda(context, line)]
        stated = {match[1] for text in texts for match in _STATED_CUDA.finditer(text)}
        state = image_state(action)
        if "nvidia/pytorch" in action.name and (problem := _check_ngc_image(context, action, line, stated)):
            yield problem
        elif action.name.endswith("pytorch/pytorch") and "torch" in state.packages and state.image_cuda:
            version = state.packages["torch"].version
            if torch_has_build(version, state.image_cuda, "x86_64") is False:
                have = ", ".join(cuda_builds(version, "x86_64"))
                yield Problem(
                    "error",
                    f"image {action.name}:{action.tag} does not exist: torch {version} has builds for CUDA {have}",
                    (
                        guide_evidence(context, "image", action.tag, line),
                        table_evidence(f"torch {version}", have, TORCH_MATRIX),
                    ),
                    f"Use a tag with CUDA {have.rpartition(', ')[2]}.",
                    line=line,
                )
        elif (
            action.name.endswith("nvidia/cuda")
            and state.image_cuda
            and state.image_cuda not in cuda_releases()
            and major_minor(state.image_cuda) > (11, 8)
        ):
            yield Problem(
                "error",
                f"CUDA {state.image_cuda} does not exist, so there is no image {action.tag}",
                (
                    guide_evidence(context, "image", action.tag, line),
                    table_evidence("CUDA releases", ", ".join(cuda_releases()), "CUDA toolkit release notes"),
                ),
                "Use the image of an existing CUDA release: 12.6 or 12.8.",
                line=line,
            )


def _texts_about_cuda(context: GuideContext, line: int) -> list[str]:
    """The lines around a command, and table rows and headings that mention CUDA."""
    lines = context.guide.lines
    around = list(lines[max(0, line - 4) : line + 3])
    return around + [text for text in lines if text.startswith(("#", "|")) and "cuda" in text.lower()][:40]


def _check_ngc_image(context: GuideContext, action: UseImage, line: int, stated: set[str]) -> Problem | None:
    tag = action.tag.partition("-")[0]
    row = next((row for row in ngc_images() if row.tag == tag), None)
    if row:
        mismatches = [cuda for cuda in stated if major_minor(cuda) != major_minor(row.cuda)]
        if not mismatches or len(mismatches) < len(stated):
            return None
        system = system_of_image(row.system)
        contents = f"contains CUDA {row.cuda}, torch {row.torch}" + (f", Python {system.python}" if system else "")
        source, day = row.source, row.date
    else:
        rows = {cuda: first_ngc_image(cuda) for cuda in sorted(stated)}
        later = ((cuda, row) for cuda, row in rows.items() if row and dotted_numbers(tag) < dotted_numbers(row.tag))
        mismatch, first = next(later, ("", None))
        if not first or not re.fullmatch(r"\d\d\.\d\d", tag):
            return None
        mismatches, source, day = [mismatch], first.source, first.date
        contents = f"is older than {first.tag}, the first release with CUDA {mismatch}"
    replacement = next((row.tag for cuda in mismatches if (row := first_ngc_image(cuda))), "")
    return Problem(
        "error",
        f"{action.name}:{action.tag} {contents}; the guide states CUDA {', '.join(mismatches)}",
        (guide_evidence(context, "image", action.tag, line), table_evidence(tag, contents, source, day)),
        f"Use {action.name}:{replacement}-py3 or newer."
        if replacement
        else "Use the tag whose release notes name this CUDA version.",
        either(*((shell_command("docker pull {}:{}-py3", action.name, replacement),) if replacement else ())),
        line=line,
    )


@rule(
    "RUN053",
    kind="guide",
    severity="warning",
    cause="nvcc-torch-mismatch",
    url="https://packages.ubuntu.com/search?keywords=nvidia-cuda-toolkit",
)
def distribution_toolkit_has_a_different_cuda_version(context: GuideContext) -> Iterator[Problem]:
    """Ubuntu's nvidia-cuda-toolkit has an old CUDA version (11.5 on 22.04) that cannot build torch extensions."""
    for action in context.actions(InstallSystemPackages):
        if "nvidia-cuda-toolkit" in action.names:
            line = line_of(context, action.line, "nvidia-cuda-toolkit")
            versions = ", ".join(
                f"{row.cuda} on {row.system.replace('ubuntu', 'Ubuntu ')}" for row in guide_tables().ubuntu_cuda
            )
            torch = next(
                (
                    environment.state.packages["torch"]
                    for environment in context.environments
                    if "torch" in environment.state.packages
                ),
                None,
            )
            cuda = torch.cuda if torch and torch.cuda not in ("", "cpu") else "12.8"
            yield Problem(
                "warning",
                f"nvidia-cuda-toolkit from apt is CUDA {versions}; torch in the guide is built for CUDA {cuda}",
                (
                    guide_evidence(context, "package", "nvidia-cuda-toolkit", line),
                    table_evidence("nvidia-cuda-toolkit", versions, "packages.ubuntu.com", "2026-11-21"),
                ),
                f"Wheels need no toolkit. To compile, install cuda-toolkit-{cuda.replace('.', '-')} of NVIDIA.",
                steps(shell_command("sudo apt-get install -y cuda-toolkit-{}", cuda.replace(".", "-"))),
                line=line,
            )


@rule("RUN054", kind="guide", severity=("error", "warning", "info"), cause="platform-no-wheel", url=TORCH_MATRIX)
def index_has_no_build_of_this_torch_release(context: GuideContext) -> Iterator[Problem]:
    """The PyTorch index has no build of this torch release for the CUDA version or the CPU architecture."""
    for install in context.trace.installs:
        source = torch_source(install.action)
        if torch := torch_without_build(install.action, context.platform):
            version = public_part(torch.pin)
            builds = cuda_builds(version, context.platform)
            line = line_of(context, torch.line, torch.text)
            backends = [f"cu{cuda.replace('.', '')}" for cuda in builds]
            available = ", ".join(backends) or "none"
            near = [name for cuda, name in zip(builds, backends, strict=True) if _has_major_of(cuda, source.cuda)]
            best = next(reversed(near), next(iter(backends), ""))
            instead = _build_of_pypi(install.action, torch, context.platform)
            installs = f": {install.action.tool} installs PyPI's build for CUDA {instead}" if instead else ""
            without = f"has no build for CUDA {source.cuda} on {context.platform}, only {available}"
            yield Problem(
                ("info" if _has_major_of(instead, source.cuda) else "warning") if instead else "error",
                f"torch {version} {without}{installs}",
                (
                    guide_evidence(context, "index", source.backend, line),
                    table_evidence(f"torch {version}", available, TORCH_MATRIX, "2026-11-21"),
                ),
                f"Use --torch-backend={best}." if best else "Use a torch release that has a build.",
                either(
                    *(
                        (shell_command("uv pip install 'torch=={}' --torch-backend={}", version, best),)
                        if best
                        else ()
                    )
                ),
                line=line,
            )


def _has_major_of(cuda: str, other: str) -> bool:
    return cuda.partition(".")[0] == other.partition(".")[0]


def _build_of_pypi(action: Install, torch: InstallRequirement, platform: str) -> str:
    """The CUDA version of PyPI's build, if an installer takes it where a further index has none; empty if it fails.

    pip 26.3 skips each page of --extra-index-url and -f that is missing or has no such release. uv 0.13 skips only
    an index that is missing (404; of pytorch.org also 403), and stops at a missing page of -f. Tried on 2026-11-27.
    """
    source = torch_source(action)
    is_missing = all(row.cuda != source.cuda for row in known_builds())
    is_further = any(torch_index(url) for url in action.extra_indexes) and not action.torch_backend
    is_skipped = not source.is_exclusive and (not source.has_priority or (is_missing and is_further))
    cuda = cuda_on_pypi(public_part(torch.pin), platform)
    return cuda if is_skipped and "+" not in torch.pin and cuda != "cpu" else ""


def torch_without_build(action: Install, platform: str) -> InstallRequirement | None:
    """The pinned torch of a step, if the PyTorch index of the step has no build of it."""
    source = torch_source(action)
    torch = next((package for package in action.requirements if package.name == "torch"), None)
    if not torch or not torch.pin or torch.url or source.cuda in ("", "cpu") or source.nightly:
        return None
    return torch if torch_has_build(public_part(torch.pin), source.cuda, platform) is False else None


@rule(
    "RUN055",
    kind="guide",
    severity="error",
    cause="dependency-pin-violated",
    url="https://docs.astral.sh/uv/guides/integration/pytorch/",
)
def index_url_excludes_pypi(context: GuideContext) -> Iterator[Problem]:
    """--index-url replaces PyPI, so packages that are not on the PyTorch index cannot be installed."""
    for install in context.trace.installs:
        source = torch_source(install.action)
        not_on_index = [
            requirement.text
            for requirement in install.action.requirements
            if not requirement.url and not may_be_on_torch_index(requirement.name, source)
        ]
        other_indexes = [url for url in install.action.extra_indexes if not torch_index(url)]
        if (
            source.is_exclusive
            and install.action.index_url
            and not install.action.torch_backend
            and not_on_index
            and not other_indexes
        ):
            line = line_of(context, install.action.line, not_on_index[0])
            if not install.action.command.startswith(("pip", "uv", "python")):  # a key of a manifest
                line = next(
                    (n for n, text in enumerate(context.guide.lines, 1) if install.action.index_url in text), line
                )
            yield Problem(
                "error",
                f"--index-url replaces PyPI by {source}, which does not have {', '.join(not_on_index[:5])}",
                (guide_evidence(context, "--index-url", str(source), line),),
                "Install torch in a separate step, or use --extra-index-url (uv: --torch-backend).",
                install_with(install, backend=source.backend),
                line=line,
            )


@rule("RUN056", kind="guide", severity=("error", "warning", "info"), cause="platform-no-wheel", url=CONDA)
def conda_channel_is_discontinued(context: GuideContext) -> Iterator[Problem]:
    """The conda channel `pytorch` ended with torch 2.5.1, and `cudatoolkit` ended with CUDA 11.8."""
    for install in context.trace.installs:
        if install.action.tool != "conda":
            continue
        for requirement in install.action.requirements:
            line = line_of(context, requirement.line, requirement.text)
            in_channel = "pytorch" in install.action.channels or requirement.text.startswith("pytorch::")
            if requirement.name == "cudatoolkit" and not _selects_build(install.action):
                names = {each.name for each in install.action.requirements}
                yield Problem(  # pytorch-cuda next to it selects the build
                    "warning" if "pytorch" in names and "pytorch-cuda" not in names else "info",
                    f"`{requirement.text}`: cudatoolkit ended with CUDA 11.8 and no longer selects the torch build",
                    (guide_evidence(context, "package", requirement.text, line),),
                    *_without_cudatoolkit(context, names),
                    line=line,
                )
            excludes_last = (
                requirement.specifier
                and satisfies("2.5.1", requirement.specifier) is False
                and satisfies("99", requirement.specifier.replace("==", ">=").replace(".*", "")) is not False
            )
            needs_newer = excludes_last and not _names_old_release(requirement.specifier)
            if requirement.name == "pytorch" and in_channel and needs_newer:
                yield Problem(
                    "error",
                    f"`{requirement.text}`: the channel pytorch has no release newer than 2.5.1",
                    (
                        guide_evidence(context, "package", requirement.text, line),
                        table_evidence("channel pytorch", "ended with 2.5.1", CONDA, "2026-11-21"),
                    ),
                    "Install torch with uv or pip, or install pytorch-gpu of conda-forge.",
                    install_step(f"torch{bounded(requirement.specifier)}", backend="auto"),
                    line=line,
                )


def _without_cudatoolkit(context: GuideContext, names: set[str]) -> tuple[str, tuple[Remedy, ...]]:
    """The fix for `cudatoolkit`: a torch that pip installs needs none. `names` are the packages of the step."""
    torches = [environment.state.packages.get("torch") for environment in context.environments]
    if torch := next((each for each in torches if each and each.origin != "conda"), None):
        return f"Remove it: the wheel of torch {torch.version} contains CUDA.", ()
    fix = "Install torch with uv or pip. Its wheels contain CUDA."
    companions = [each for each in COMPANIONS if each in names]
    return fix, steps(shell_command("uv pip install torch==2.5.1 {} --torch-backend=cu124", companions))


def _selects_build(action: Install) -> bool:
    """Whether cudatoolkit selects the build: of an old torch, or in a list of exact builds.

    In the channel pytorch it does so before torch 1.13, in conda-forge before 2.1.
    """
    torch = next((each for each in action.requirements if each.name == "pytorch"), None)
    number = re.search(r"\d+(?:\.\d+)*", torch.specifier) if torch else None
    first = "2.1" if "conda-forge" in action.channels and "pytorch" not in action.channels else "1.13"
    is_old = bool(number and satisfies(number[0], f"<{first}"))
    return is_old or any(re.search(r"=\w+_\d+$", each.text) for each in action.requirements)


def _names_old_release(specifier: str) -> bool:
    number = re.search(r"\d+(?:\.\d+)*", specifier)
    return bool(number and satisfies(number[0], "<=2.5.1"))
