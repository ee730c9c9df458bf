"""Checks on the builds of PyTorch that conda selects."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.knowledge.torch_builds import known_builds, torch_releases
from envdoctor.knowledge.versions import dotted_numbers, satisfies
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, table_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.interpreter import InstallStep
from envdoctor.manifests.step_resolution import LAST_CONDA_TORCH
from envdoctor.resolution.requirement import InstallRequirement
from envdoctor.resolution.torch_sources import cuda_name
from envdoctor.rules.registry import Problem, rule

MKL = "https://github.com/pytorch/pytorch/issues/123097"
CPU_BUILD = "https://github.com/facebookresearch/DiT/issues/109"
_WITH_OLD_MKL = "<2.5"  # releases of the channel pytorch that certainly do not load with a newer MKL: rule MKL001
# The channel defaults has a NumPy for older Pythons, which bounds MKL.
_WITHOUT_BOUND = ">=3.10"
_LAST_FOR_OLD_PYTHON = ("<3.9", "2.4.1")  # torch 2.5 requires Python 3.9


@rule("RUN189", kind="guide", severity="error", cause="torch-cpu-build", url=CPU_BUILD)
def conda_selects_a_cpu_build(context: GuideContext) -> Iterator[Problem]:
    """`pytorch-cuda=11.7` with an open `pytorch`: conda takes the newest release, of which only a CPU build fits.

    conda maximizes the versions of the packages that a step names. The CPU builds do not depend on pytorch-cuda, and
    the builds for CUDA 11.7 end with torch 2.0.
    """
    for install in context.trace.installs:
        named = {each.name: each for each in install.action.requirements}
        torch, selector = named.get("pytorch"), named.get("pytorch-cuda")
        if not torch or not selector or not _is_open(install, torch):
            continue
        exact = re.fullmatch(r"==(\d+)\.(\d)(?:\.\*|\.0)?", selector.specifier)
        cuda = cuda_name(f"cu{exact[1]}{exact[2]}") if exact else ""
        builds = [row.torch for row in known_builds() if row.cuda == cuda]
        last = torch_releases()[max(builds, key=dotted_numbers)].latest if builds else ""
        newest = _newest(install)
        if not last or satisfies(last, f">={newest}") is not False or not satisfies(newest, torch.specifier):
            continue
        line = line_of(context, torch.line, torch.text)
        yield Problem(
            "error",
            f"conda takes the CPU build of a newer release for `{torch.text}`: builds for CUDA {cuda} end with "
            f"pytorch {last}",
            (
                guide_evidence(context, "pytorch", torch.text, line),
                guide_evidence(
                    context, "pytorch-cuda", selector.text, line_of(context, selector.line, selector.text)
                ),
                table_evidence("pytorch 2.5.1", "cpu with pytorch-cuda=11.7", CPU_BUILD, "2026-11-27"),
            ),
            f"Use pytorch={last}, or a newer CUDA version.",
            line=line,
        )


@rule("RUN292", kind="guide", severity=("unknown",), cause="mkl-too-new", url=MKL)
def conda_can_select_an_mkl_that_torch_does_not_load_with(context: GuideContext) -> Iterator[Problem]:
    """A step pins a pytorch of PyTorch's conda channel, and no step bounds MKL: conda takes the newest one.

    That channel's builds require only `mkl >=2018`, and do not load with MKL 2024.1 or newer: `libtorch_cpu.so:
    undefined symbol: iJIT_NotifyEvent`. A question, as the other packages of the environment can bound MKL. PyPI's
    wheels contain MKL, and the builds of conda-forge have an upper bound.

    Fix: add `mkl<2024.1` to the packages of the step.
    """
    if any(re.search(r"(?i)\bmkl\b", line) for line in context.guide.lines):
        return
    numbered = list(enumerate(context.trace.installs))
    replaced = [number for number, step in numbered if any(each.name == "torch" for each in step.action.requirements)]
    for position, install in numbered:
        torch = next((each for each in install.action.requirements if each.name == "pytorch"), None)
        pinned = re.match(r"==(\d+\.\d+)", torch.specifier) if torch else None
        is_replaced = replaced[-1:] > [position]
        if not torch or not pinned or not satisfies(pinned[1], _WITH_OLD_MKL) or is_replaced:
            continue
        is_unbounded = "conda-forge" in install.action.channels or satisfies(install.after.python, _WITHOUT_BOUND)
        if not _is_of_pytorch(install, torch) or not is_unbounded:
            continue
        line = line_of(context, torch.line, torch.text)
        yield Problem(
            "unknown",
            f"conda takes the newest MKL for `{torch.text}`: this pytorch does not load with MKL 2024.1 or newer "
            "(not certain: other packages can bound MKL)",
            (
                guide_evidence(context, "pytorch", torch.text, line),
                table_evidence("pytorch", "undefined symbol: iJIT_NotifyEvent", MKL, "2026-11-29"),
            ),
            "Add 'mkl<2024.1' to the packages of this step, or install torch with pip.",
            line=line,
        )


def _is_open(install: InstallStep, torch: InstallRequirement) -> bool:
    """Whether conda selects the build of a pytorch from the channel pytorch itself."""
    if not _is_of_pytorch(install, torch):
        return False
    states_build = re.search(r"cuda|=[^=<>!]*=[^=]|build", torch.text)
    return not states_build and "cpuonly" not in {each.name for each in install.action.requirements}


def _is_of_pytorch(install: InstallStep, torch: InstallRequirement) -> bool:
    """Whether the channel pytorch has precedence, and a step does not select a build without CUDA."""
    channels = list(install.action.channels)
    is_first = "pytorch" in channels and "conda-forge" not in channels[: channels.index("pytorch")]
    return is_first and not re.search(r"=[^=]*cpu", torch.text)


def _newest(install: InstallStep) -> str:
    """The newest pytorch of the channel for the Python of the environment."""
    old, last = _LAST_FOR_OLD_PYTHON
    python = install.before.python
    return last if python and satisfies(python, old) else LAST_CONDA_TORCH
