"""The CUDA version that a guide or its project is for, where its steps leave the build of torch open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.torch_builds import known_builds
from envdoctor.manifests.actions import Action, Install, torch_source
from envdoctor.manifests.environment_state import IMAGE_ORIGIN, EnvironmentState
from envdoctor.manifests.guide import Guide
from envdoctor.manifests.stated_machine import cuda_of_text
from envdoctor.resolution.torch_sources import cuda_name

_CONDA = ("pytorch-cuda", "cudatoolkit")
_VERSION = lazy_pattern(r"=+(1\d\.\d)")


class StatedCuda(NamedTuple):
    """A CUDA version and the place that states it; both are empty without one."""

    version: str = ""
    origin: str = ""  # "README.md, line 20"


def cuda_of_commands(actions: Sequence[Action], name: str) -> StatedCuda:
    """The CUDA version of the only build of torch that commands name: an index of PyTorch, or a package of conda."""
    found: dict[str, int] = {}
    for action in actions:
        if isinstance(action, Install):
            named = {each.name: each.specifier for each in action.requirements}
            versions = [match[1] for each in _CONDA if (match := _VERSION.match(named.get(each, "")))]
            source = torch_source(action).cuda if "torch" in named else ""
            for version in (*versions, *([source] if source not in ("", "cpu") else [])):
                found.setdefault(version, action.line)
    version, line = next(iter(found.items())) if len(found) == 1 else ("", 0)
    return StatedCuda(version, f"{name}, line {line}") if version else StatedCuda()


def cuda_of_guide(guide: Guide) -> StatedCuda:
    """The CUDA version of the text of a guide, for steps that name none: an exact one, as a bound permits others."""
    version, line = cuda_of_text(guide.lines, {number for block in guide.blocks for number, _ in block.lines})
    return StatedCuda(version, f"{guide.name}, line {line}") if version else StatedCuda()


def stated_cuda(guide: Guide, state: EnvironmentState, cuda: str) -> StatedCuda:
    """The CUDA version for an open torch of PyPI.

    That of its index, of the image, of the README's commands, or of the text of the README or the guide.

    Releases of one major version of CUDA run on the same drivers: only another one than that of `cuda`, which the set
    would have, counts.
    """
    torch = state.packages.get("torch")
    if torch is None or torch.pinned or torch.origin == IMAGE_ORIGIN or not cuda:
        return StatedCuda()
    found = StatedCuda(guide.cuda, guide.cuda_origin)
    if torch.origin == "conda":  # `cudatoolkit`, which does not select the build of today's torch
        of_commands = cuda_of_commands(guide.actions, guide.name)
        found = of_commands if of_commands.version else found
    elif torch.origin != "PyPI":  # `-f`, which has no effect where PyPI has a newer release
        found = StatedCuda(cuda_name(torch.origin.rpartition(" ")[2]), guide.place(torch.line))
    elif state.in_dockerfile:
        found = StatedCuda(state.image_cuda, guide.place(state.image_line))
    is_built = any(row.cuda == found.version for row in known_builds())
    is_other = found.version.partition(".")[0] != cuda.partition(".")[0]
    return found if is_built and is_other else StatedCuda()
