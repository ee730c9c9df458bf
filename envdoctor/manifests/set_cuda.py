"""The CUDA version of the torch of a set."""

from __future__ import annotations

from envdoctor.knowledge.cuda import cuda_releases
from envdoctor.knowledge.guides import cuda_on_pypi
from envdoctor.knowledge.torch_builds import known_builds
from envdoctor.knowledge.versions import public_part
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.corrections import CorrectedEnvironment
from envdoctor.manifests.environment_state import IMAGE_ORIGIN
from envdoctor.resolution.resolver import ResolvedPackage
from envdoctor.resolution.torch_sources import aarch64_build, torch_has_build


def cuda_build(context: GuideContext, torch: ResolvedPackage | None) -> str:
    """The CUDA version of the torch build: the one of the guide, or one that fits the machine."""
    wanted = _wanted_cuda(context, torch)
    if torch is None or not wanted or torch.origin == IMAGE_ORIGIN:
        return wanted
    cuda = context.build.fitting_cuda(public_part(torch.version), wanted) or wanted
    return _known_cuda(cuda)


def unfit_torch(context: GuideContext, environment: CorrectedEnvironment) -> str:
    """The reason for which no build of torch's release runs on the machine of the guide; empty if one does."""
    torch = environment.packages.get("torch")
    wanted = _wanted_cuda(context, torch)
    if torch is None or not wanted or torch.origin == IMAGE_ORIGIN:
        return ""
    version = public_part(torch.version)
    if context.build.fitting_cuda(version, wanted):
        return ""
    older = next(iter(context.build.older_releases(version)), "")
    newest = f"; the newest release with one is {older}" if older else ""
    return f"torch {version} has no build for {context.build}{newest}"


def _wanted_cuda(context: GuideContext, torch: ResolvedPackage | None) -> str:
    """The CUDA version that the guide installs. If it gets the CPU build of PyPI, that of the PyTorch index."""
    if torch is None:
        return ""
    cuda = torch.cuda
    if cuda == "cpu" and torch.origin.startswith("the PyTorch"):
        return ""
    version = public_part(torch.version)
    if torch.origin == "conda" and not cuda:
        cuda = cuda_on_pypi(version, context.platform)  # no step selects one, and the set has wheels
    if torch.origin == IMAGE_ORIGIN:
        return _known_cuda(cuda)
    if context.platform == "aarch64" and (cuda == "cpu" or not torch_has_build(version, cuda, "aarch64")):
        build = aarch64_build(version, context.trace.driver, context.version("vllm"))
        cuda = build.cuda if build else ""
    elif torch_has_build(version, cuda, context.platform) is False:
        cuda = cuda_on_pypi(version, context.platform)
    return _known_cuda(cuda)


def _known_cuda(cuda: str) -> str:
    """The CUDA version of a build of torch; empty for the CPU build and for others."""
    return cuda if any(cuda == row.cuda for row in known_builds()) or cuda in cuda_releases() else ""
