"""Checks on containers, drivers, toolkits and indexes against the CUDA of the guide."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.knowledge.cuda import cuda_releases, driver_key, driver_of_cuda, oldest_driver
from envdoctor.knowledge.guides import guide_tables
from envdoctor.knowledge.versions import major_minor, public_part, satisfies
from envdoctor.manifests.actions import InstallSystemPackages, UseImage
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, table_evidence
from envdoctor.manifests.checks.replacements import requirement_arguments
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.interpreter import image_state
from envdoctor.manifests.torch_sources import ON_TORCH_INDEX, cuda_builds, torch_has_build, torch_source
from envdoctor.rules.registry import Problem, rule

COMPATIBILITY = "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html"
NGC = "https://docs.nvidia.com/deeplearning/frameworks/pytorch-release-notes/"
TORCH_MATRIX = "https://github.com/pytorch/pytorch/blob/main/RELEASE.md#pytorch-cuda-support-matrix"
CONDA = "https://github.com/pytorch/pytorch/issues/138506"
_CLAIM = re.compile(r"CUDA[ :=|*`/-]{0,6}(1[1-3]\.\d)\b", re.IGNORECASE)
# PTX of vLLM's FlashAttention 2, read from the wheels: the CUDA release whose driver compiles it.
_VLLM_PTX = (("==0.10.2", "12.8"), ("==0.12.0", "12.9"))


@rule("RUN050", kind="guide", severity="error", cause="driver-ptx-too-old", url=NGC)
def container_has_another_cuda_than_said(context: GuideContext) -> Iterator[Problem]:
    """A container's tag and the CUDA that the guide gives it do not fit: NGC 24.10 is CUDA 12.6, 25.01 the first
    12.8.
    """
    for action in context.guide.actions:
        if not isinstance(action, UseImage):
            continue
        line = line_of(context, action.line, action.tag)
        claims = {
            found[1] for text in _near(context, line) for found in _CLAIM.finditer(text.replace(action.tag, ""))
        }
        state = image_state(action)
        if "nvidia/pytorch" in action.name and (problem := _ngc(context, action, line, claims)):
            yield problem
        elif action.name.endswith("pytorch/pytorch") and "torch" in state.packages and state.image_cuda:
            version = state.packages["torch"].version
            if torch_has_build(version, state.image_cuda, "x86_64") is False:
                have = ", ".join(cuda_builds(version, "x86_64"))
                yield Problem(
                    "error",
                    f"there is no {action.name}:{action.tag}: torch {version} has builds for CUDA {have}",
                    (
                        guide_evidence(context, "image", action.tag, line),
                        table_evidence(f"torch {version}", have, TORCH_MATRIX),
                    ),
                    f"Take a tag with CUDA {have.rpartition(', ')[2]}.",
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
                f"there is no CUDA {state.image_cuda}, so no image {action.tag}",
                (
                    guide_evidence(context, "image", action.tag, line),
                    table_evidence("CUDA releases", ", ".join(cuda_releases()), "CUDA toolkit release notes"),
                ),
                "Take the image of a CUDA release that exists: 12.6 or 12.8.",
                line=line,
            )


def _near(context: GuideContext, line: int) -> list[str]:
    """The lines around a command, and table rows and titles that speak of CUDA."""
    lines = context.guide.lines
    around = list(lines[max(0, line - 4) : line + 3])
    return around + [text for text in lines if text.startswith(("#", "|")) and "cuda" in text.lower()][:40]


def _ngc(context: GuideContext, action: UseImage, line: int, claims: set[str]) -> Problem | None:
    tag = action.tag.partition("-")[0]
    row = next((row for row in guide_tables().ngc if row.tag == tag), None)
    if row:
        wrong = [claim for claim in claims if major_minor(claim) != major_minor(row.cuda)]
        if not wrong or major_minor(row.cuda) in {major_minor(claim) for claim in claims}:
            return None
        real, source, day = f"CUDA {row.cuda}, torch {row.torch}, Python {row.python}", row.source, row.date
    else:
        first = next(
            (row for row in guide_tables().ngc_first if row.cuda in claims and _tag(tag) < _tag(row.tag)), None
        )
        if not first or not re.fullmatch(r"\d\d\.\d\d", tag):
            return None
        wrong, real, source, day = (
            [first.cuda],
            f"older than {first.tag}, the first with CUDA {first.cuda}",
            first.source,
            first.date,
        )
    better = next((row.tag for row in guide_tables().ngc_first if row.cuda in wrong), "")
    return Problem(
        "error",
        f"{action.name}:{action.tag} is {real}; the guide says CUDA {', '.join(wrong)}",
        (guide_evidence(context, "image", action.tag, line), table_evidence(tag, real, source, day)),
        f"Take {action.name}:{better}-py3 or newer."
        if better
        else "Take the tag whose release notes name that CUDA.",
        (f"docker pull {action.name}:{better}-py3",) if better else (),
        line=line,
    )


def _tag(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())


@rule("RUN051", kind="guide", severity=("error", "warning"), cause="driver-too-old", url=COMPATIBILITY)
def driver_is_below_what_the_build_needs(context: GuideContext) -> Iterator[Problem]:
    """The driver that the guide states is older than the CUDA build of its torch or image needs."""
    driver = context.trace.driver
    if not driver_key(driver):
        return
    for environment in context.environments:
        torch = environment.state.packages.get("torch")
        cuda = torch.cuda if torch and torch.cuda not in ("", "cpu") else ""
        needed = oldest_driver(cuda) if cuda else ()
        if torch and needed and driver_key(driver) < needed[: len(driver_key(driver))]:
            line = line_of(context, torch.line, torch.reason)
            words = ".".join(f"{part:02}" for part in needed)
            yield Problem(
                "error",
                f"torch {torch.version} is for CUDA {cuda}, which needs driver {words}; the guide says {driver}",
                (
                    guide_evidence(context, "driver", driver, context.guide.stated_machine.driver_line),
                    table_evidence(f"CUDA {cuda}", words, COMPATIBILITY),
                ),
                f"Upgrade the driver to {words} or newer, or take a torch build for CUDA {major_minor(cuda)[0] - 1}.",
                line=line,
            )
        yield from _ptx(context, environment.state.packages.get("vllm"), driver)


def _ptx(context: GuideContext, vllm: object, driver: str) -> Iterator[Problem]:
    version, line = getattr(vllm, "version", ""), getattr(vllm, "line", 0)
    cuda = next((cuda for release, cuda in _VLLM_PTX if version and satisfies(public_part(version), release)), "")
    needed = driver_of_cuda(cuda) if cuda else ""
    ours = driver_key(driver)
    if not needed or ours >= driver_key(needed)[: len(ours)]:
        return
    yield Problem(
        "warning",
        f"vLLM {version} carries FlashAttention 2 as PTX of CUDA {cuda}; driver {driver} compiles only older PTX",
        (
            guide_evidence(context, "driver", driver, context.guide.stated_machine.driver_line),
            table_evidence(
                f"vLLM {version}",
                f"PTX of CUDA {cuda}",
                "measured in the wheel; github.com/vllm-project/vllm/issues/28030",
                "2026-11-21",
            ),
        ),
        f"On Hopper upgrade the driver to {needed} or newer, or put cuda-compat of CUDA {cuda} first.",
        line=line_of(context, line, "vllm"),
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
    """A cuda-compat package that is not newer than the driver is not supported and ends in error 803."""
    driver = driver_key(context.trace.driver)
    for action in context.guide.actions:
        for name in action.names if isinstance(action, InstallSystemPackages) else ():
            found = re.match(r"cuda-compat-(\d+)-(\d+)", name)
            library = driver_of_cuda(f"{found[1]}.{found[2]}") if found else ""
            if library and driver and driver_key(library) <= driver:
                line = line_of(context, action.line, name)
                yield Problem(
                    "warning",
                    f"{name} contains libcuda {library}, which must be newer than the driver {context.trace.driver}",
                    (
                        guide_evidence(context, "package", name, line),
                        table_evidence(name, library, "CUDA toolkit release notes"),
                    ),
                    "Leave it out: this driver runs that CUDA by itself.",
                    line=line,
                )


@rule(
    "RUN053",
    kind="guide",
    severity="warning",
    cause="nvcc-torch-mismatch",
    url="https://packages.ubuntu.com/search?keywords=nvidia-cuda-toolkit",
)
def distribution_toolkit_is_another_cuda(context: GuideContext) -> Iterator[Problem]:
    """Ubuntu's nvidia-cuda-toolkit is an old CUDA (11.5 on 22.04) beside torch's: extensions do not compile with
    it.
    """
    for action in context.guide.actions:
        if isinstance(action, InstallSystemPackages) and "nvidia-cuda-toolkit" in action.names:
            line = line_of(context, action.line, "nvidia-cuda-toolkit")
            rows = ", ".join(
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
                f"apt's nvidia-cuda-toolkit is CUDA {rows}; the guide's torch is for CUDA {cuda}",
                (
                    guide_evidence(context, "package", "nvidia-cuda-toolkit", line),
                    table_evidence("nvidia-cuda-toolkit", rows, "packages.ubuntu.com", "2026-11-21"),
                ),
                f"Wheels need no toolkit; to compile, install NVIDIA's cuda-toolkit-{cuda.replace('.', '-')}.",
                (f"sudo apt-get install -y cuda-toolkit-{cuda.replace('.', '-')}",),
                line=line,
            )


@rule("RUN054", kind="guide", severity="error", cause="platform-no-wheel", url=TORCH_MATRIX)
def index_has_no_such_build_of_torch(context: GuideContext) -> Iterator[Problem]:
    """The PyTorch index has no build of this torch for that CUDA, or none for this processor."""
    for install in context.trace.installs:
        source, torch = (
            torch_source(install.action),
            next((requirement for requirement in install.action.requirements if requirement.name == "torch"), None),
        )
        if not torch or not torch.pin or not source.cuda or source.cuda == "cpu" or source.nightly or torch.url:
            continue
        version = public_part(torch.pin)
        if torch_has_build(version, source.cuda, context.platform) is False:
            have = cuda_builds(version, context.platform)
            line = line_of(context, torch.line, torch.text)
            names = ", ".join(f"cu{each.replace('.', '')}" for each in have) or "none"
            yield Problem(
                "error",
                f"torch {version} has no build for CUDA {source.cuda} on {context.platform}; the index has {names}",
                (
                    guide_evidence(context, "index", source.backend, line),
                    table_evidence(f"torch {version}", names, TORCH_MATRIX, "2026-11-21"),
                ),
                f"Use --torch-backend=cu{have[-1].replace('.', '')}." if have else "Take a torch that has one.",
                (f"uv pip install 'torch=={version}' --torch-backend=cu{have[-1].replace('.', '')}",) if have else (),
                line=line,
            )


@rule(
    "RUN055",
    kind="guide",
    severity="error",
    cause="dependency-pin-violated",
    url="https://docs.astral.sh/uv/guides/integration/pytorch/",
)
def index_hides_all_other_packages(context: GuideContext) -> Iterator[Problem]:
    """--index-url replaces PyPI: what the PyTorch index does not hold cannot be found in that step."""
    for install in context.trace.installs:
        source = torch_source(install.action)
        outside = [
            requirement.text
            for requirement in install.action.requirements
            if not requirement.url and requirement.name not in ON_TORCH_INDEX
        ]
        extra = [address for address in install.action.extra_indexes if "whl/" not in address]
        if (
            source.is_exclusive
            and install.action.index_url
            and not install.action.torch_backend
            and outside
            and not extra
        ):
            line = line_of(context, install.action.line, outside[0])
            yield Problem(
                "error",
                f"--index-url replaces PyPI by {source}, which does not hold {', '.join(outside[:5])}",
                (guide_evidence(context, "--index-url", str(source), line),),
                "Install torch in a step of its own, or name the index with --extra-index-url (uv: --torch-backend).",
                (f"uv pip install {requirement_arguments(install)} --torch-backend={source.backend}",),
                line=line,
            )


@rule("RUN056", kind="guide", severity=("error", "warning"), cause="platform-no-wheel", url=CONDA)
def conda_channel_has_ended(context: GuideContext) -> Iterator[Problem]:
    """The conda channel `pytorch` ended with 2.5.1; `cudatoolkit=` belongs to builds before CUDA 12."""
    for install in context.trace.installs:
        if install.action.tool != "conda":
            continue
        for requirement in install.action.requirements:
            line = line_of(context, requirement.line, requirement.text)
            environment = "::" in requirement.text and requirement.text.startswith("pytorch::")
            if requirement.name == "cudatoolkit":
                yield Problem(
                    "warning",
                    f"`{requirement.text}`: cudatoolkit ended with CUDA 11.8 and no longer selects the torch build",
                    (guide_evidence(context, "package", requirement.text, line),),
                    "Install torch's wheels with uv or pip, which bring CUDA along.",
                    ("uv pip install torch==2.5.1 --torch-backend=cu124",),
                    line=line,
                )
            newer = (
                requirement.specifier
                and satisfies("2.5.1", requirement.specifier) is False
                and satisfies("99", requirement.specifier.replace("==", ">=").replace(".*", "")) is not False
            )
            if (
                requirement.name == "pytorch"
                and ("pytorch" in install.action.channels or environment)
                and newer
                and not _is_old(requirement.specifier)
            ):
                yield Problem(
                    "error",
                    f"`{requirement.text}`: the channel pytorch has nothing newer than 2.5.1",
                    (
                        guide_evidence(context, "package", requirement.text, line),
                        table_evidence("channel pytorch", "ended with 2.5.1", CONDA, "2026-11-21"),
                    ),
                    "Take torch's wheels with uv or pip, or conda-forge's pytorch-gpu.",
                    (f"uv pip install 'torch{requirement.specifier}' --torch-backend=auto",),
                    line=line,
                )


def _is_old(specifier: str) -> bool:
    number = re.search(r"\d+(?:\.\d+)*", specifier)
    return bool(number and satisfies(number[0], "<=2.5.1"))
