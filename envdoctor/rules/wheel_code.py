"""Rule on wheels of PyPI that have no GPU code for a GPU, by the table of their contents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envdoctor.core.records import Evidence, Gpu, Machine, Stack
from envdoctor.core.remedies import Remedy, steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.architectures import Capability, architecture, capability_of
from envdoctor.knowledge.versions import local_part, public_part
from envdoctor.knowledge.wheel_code import (
    WheelCode,
    packages_with_code,
    releases_with_code,
    wheel_code,
    wheel_code_rows,
)
from envdoctor.rules.facts import gpu_label, gpus_of
from envdoctor.rules.registry import Problem, rule
from envdoctor.rules.requirements import version_evidence, versions_of
from envdoctor.rules.torch_build import runs_on_torch
from envdoctor.rules.torch_install import is_windows, platform_of, rebuild

WHEEL_CODE = "EXT007"
# Sources of a distribution with which its wheel can be that of PyPI; not conda, an image, a clone or a direct URL.
_SOURCES = frozenset({"", "pip", "uv", "report", "PyPI"})


@rule(WHEEL_CODE, kind="environment", severity="warning", cause="ext-arch-not-in-build")
def wheel_has_no_code_for_the_gpu(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """The wheel of this release on PyPI has neither native code nor PTX for the GPU, which torch supports.

    "no kernel image is available for execution on the device" from LMCache, LMDeploy, sgl-kernel or FAISS, while a
    matrix product in torch works. The table has what the wheels contain; a build from source with the same version
    can have other code. Compiled files that were read have precedence: EXT004 and EXT005 report them.

    Fix: install a release whose wheel has the architecture, or build it from source with TORCH_CUDA_ARCH_LIST.

    References:
    https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#binary-compatibility
    https://github.com/pytorch/pytorch/blob/main/RELEASE.md#pytorch-cuda-support-matrix
    """
    if stack.extensions.value is not None or is_windows(machine):
        return
    platform, packages = platform_of(machine), stack.distributions.value or {}
    gpus = [gpu for gpu in gpus_of(machine) if runs_on_torch(machine, stack, gpu) is not False]
    for name in packages_with_code():
        package = packages.get(name)
        if package is None or package.source not in _SOURCES or local_part(package.version):
            continue
        row = wheel_code(name, package.version, platform)
        without = [gpu for gpu in gpus if row and (found := capability_of(gpu)) and not row.runs_on(found)]
        if row and without:
            yield _problem(machine, stack, row, without)


def _problem(machine: Machine, stack: Stack, row: WheelCode, without: Sequence[Gpu]) -> Problem:
    name, gpu = row.package, without[0]
    capability = capability_of(gpu) or (0, 0)
    version, wanted = versions_of(stack)[name], releases_with_code(name, capability, row.platform)
    code = " ".join(row.code)
    others = f", {name}{wanted} has it" if wanted else ""
    return Problem(
        "warning",
        f"the wheel of {name} {version} on PyPI has no code for {gpu_label(gpu)}; it has {code}{others}",
        (
            *version_evidence(stack, name),
            Evidence(f"GPU {gpu.index}", gpu_label(gpu), machine.gpus.source),
            Evidence(f"{name} {row.versions}", code, f"{row.source}, {row.date}"),
        ),
        f"Install {name}{wanted}, whose wheel has code for this GPU."
        if wanted
        else f"Use another GPU, or build {name} from its source for compute capability "
        f"{capability[0]}.{capability[1]}: no wheel on PyPI has code for it.",
        _remedies(name, version, wanted, gpu),
        cause=_cause(row, capability),
    )


def _cause(row: WheelCode, gpu: Capability) -> str:
    """The cause: the GPU is newer than the code, an older release had code for it, or no release has."""
    built = sorted(parsed[0] for text in row.code if (parsed := architecture(text)))
    if gpu > built[0]:
        return ""  # that of the rule
    had_code = any(older.runs_on(gpu) for older in wheel_code_rows(row.package, row.platform))
    return "gpu-arch-dropped" if had_code else "gpu-unsupported-by-library"


def _remedies(name: str, version: str, wanted: str, gpu: Gpu) -> tuple[Remedy, ...]:
    if wanted:
        return steps(shell_command("uv pip install '{}{}'", name, wanted))
    return steps(rebuild(name, public_part(version), gpu.compute_capability.value or ""))
