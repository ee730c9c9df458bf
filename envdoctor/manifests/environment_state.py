"""The state of an environment in a guide, and the initial state of a container."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.guides import cuda_on_pypi
from envdoctor.knowledge.images import image_contents, image_tables, is_bare_image, known_repository
from envdoctor.knowledge.published import find_release
from envdoctor.knowledge.releases import releases_that_pin
from envdoctor.knowledge.torch_builds import setuptools_of_builds
from envdoctor.knowledge.versions import public_part, satisfies
from envdoctor.manifests.actions import UseImage
from envdoctor.resolution.requirement import InstallRequirement
from envdoctor.resolution.resolver import ResolutionState, ResolvedPackage, Resolver, ResolverTarget

IMAGE_ORIGIN = "the container"  # origin of packages that an image contains
_WITH_TORCH = (  # at each tag
    "nvidia/pytorch", "pytorch/pytorch", "runpod/pytorch", "cnstark/pytorch", "anibali/pytorch", "vastai/pytorch",
)  # fmt: skip


_OTHER_PYTHON = lazy_pattern(
    r"python-?3\.\d|conda|mamba|pyenv|deadsnakes|update-alternatives|\buvx?\b|pixi|\brye\b|get-pip|--from=|venv"
    r"|\.sh\b|make (?:alt)?install",
    re.IGNORECASE,
)
OLDEST_SOLVED = "3.7"  # for which uv solves requirements


class EnvironmentState(NamedTuple):
    """An environment after a step of the guide."""

    name: str = ""
    tool: str = ""  # uv, venv, conda, image; empty: the system's Python
    python: str = ""
    python_line: int = 0
    seeded: bool = True  # contains pip and setuptools
    pip: str = ""  # the release of pip that the environment starts with, if it is stated
    image: str = ""
    image_line: int = 0
    in_dockerfile: bool = False  # an image build has no access to the driver
    system: str = ""
    glibc: str = ""
    toolkit: str = ""  # CUDA toolkit with nvcc: "12.8"; "?" if its version is unknown; empty: none
    image_cuda: str = ""  # CUDA version in the name of the image
    packages: dict[str, ResolvedPackage] = {}
    requested: dict[str, ResolvedPackage] = {}  # packages that the guide names, also if a later step removed them
    resolution: ResolutionState = "solved"  # of all its steps: the least certain one
    is_superseded: bool = False  # a later step replaces packages after a program has used them


def of_another_file(state: EnvironmentState) -> EnvironmentState:
    """The state with negative lines, which are those of another file."""
    return state._replace(
        packages={name: package._replace(line=-package.line) for name, package in state.packages.items()},
        requested={name: package._replace(line=-package.line) for name, package in state.requested.items()},
        python_line=-state.python_line,
        image_line=-state.image_line,
    )


def image_state(action: UseImage) -> EnvironmentState:
    """The initial state of a container, as far as the name and tag of its image determine it."""
    image = f"{action.name}:{action.tag}"
    contents = image_contents(action.name, action.tag)
    system = contents.system
    state = EnvironmentState(image, "image", image=image, image_line=action.line, in_dockerfile=action.in_dockerfile)
    # Images on systems with an older Python contain another Python, whose version is not known.
    python = system.python if system and satisfies(system.python, ">=3.10") else ""
    if python or contents.python:
        state = state._replace(python=contents.python or python, python_line=action.line)
    if system:
        state = state._replace(system=system.name, glibc=system.glibc)
    match = re.search(r"cuda-?(\d{2})\.(\d)", image)
    cuda = f"{match[1]}.{match[2]}" if match else ".".join(contents.cuda.split(".")[:2])
    packages = {
        name: ResolvedPackage(name, version, action.line, image, True, cuda if name == "torch" else "", IMAGE_ORIGIN)
        for name, version in contents.versions.items()
    }
    if "torch" not in packages and known_repository(action.name) in _WITH_TORCH:
        packages["torch"] = ResolvedPackage("torch", "", action.line, image, False, "", IMAGE_ORIGIN)
    packages |= _torch_companions(packages, action)
    packages |= _engine_requirements(packages, state)
    has_nvcc = contents.has_nvcc or any(part in action.name for part in ("nvidia/pytorch", "vllm", "verl"))
    # docker/Dockerfile of SGLang: all images but those named runtime are built on a devel image, 2026-11-26.
    has_nvcc |= "lmsysorg/sglang" in action.name and "runtime" not in action.tag
    toolkit = cuda or "?" if has_nvcc else ""
    return state._replace(toolkit=toolkit, image_cuda=cuda, packages=packages, requested=packages)


def _torch_companions(packages: dict[str, ResolvedPackage], action: UseImage) -> dict[str, ResolvedPackage]:
    """torchvision and torchaudio, which the images of PyTorch and NVIDIA contain for their torch."""
    torch = packages.get("torch")
    if not torch or not action.name.endswith(("pytorch/pytorch", "nvidia/pytorch")):
        return {}
    version = re.match(r"\d+(?:\.\d+)+", torch.version)
    names = ("torchvision",) if action.name.endswith("nvidia/pytorch") else ("torchvision", "torchaudio")
    found = {name: releases_that_pin(name, "torch", version[0] if version else "") for name in names}
    return {
        name: torch._replace(
            name=name, version=releases[0] if releases else "", reason=f"required by {torch.reason}", pinned=False
        )
        for name, releases in found.items()
    }


def _engine_requirements(packages: dict[str, ResolvedPackage], state: EnvironmentState) -> dict[str, ResolvedPackage]:
    """The requirements of the inference engine in an image, as of the day of its release."""
    engine = next((packages[name] for name in ("vllm", "sglang") if name in packages), None)
    release = find_release(engine.name, engine.version) if engine else None
    if not engine or not release:
        return {}
    target = ResolverTarget(python=state.python, exclude_newer=release.date)
    resolver = Resolver(target, packages, upgrade=False, with_dependencies=True)
    requirement = InstallRequirement(engine.name, f"=={engine.version}", line=engine.line)
    found = resolver.resolve([requirement]).packages
    cuda = cuda_on_pypi(found["torch"].version, "x86_64") if "torch" in found else ""
    return {
        name: package._replace(origin=IMAGE_ORIGIN, cuda=cuda if name == "torch" else "")
        for name, package in found.items()
        if name not in packages
    }


def python_of_system(state: EnvironmentState, lines: Sequence[str]) -> str:
    """The Python of python3-pip in an image of an operating system, where no line can install another one."""
    is_of_system = state.in_dockerfile and state.tool == "image" and not state.python and is_bare_image(state.image)
    if not is_of_system or any(map(_OTHER_PYTHON.search, lines)):
        return ""
    row = next((row for row in image_tables().system if row.name == state.system), None)
    return row.python if row and satisfies(row.python, f">={OLDEST_SOLVED}") else ""


def setuptools_for(state: EnvironmentState, torch: str = "") -> str:
    """The requirement on setuptools for the torch of an environment, or for one that a step installs first.

    A pinned setuptools that can build with it stays.
    """
    installed = state.packages["torch"].version if "torch" in state.packages else torch
    requirement = setuptools_of_builds(public_part(installed), state.python)
    own = state.packages.get("setuptools")
    is_usable = (
        own
        and own.pinned
        and any(satisfies(own.version, bound) for bound in ("<70", requirement.removeprefix("setuptools")))
    )
    return f"setuptools=={own.version}" if own and is_usable else requirement
