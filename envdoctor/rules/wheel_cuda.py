"""Rule on wheels whose compiled modules load the libraries of another CUDA than torch brings."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.core.records import Evidence, Machine, Stack
from envdoctor.core.remedies import steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.versions import local_part, satisfies
from envdoctor.knowledge.wheel_cuda import WheelCuda, fitting_wheels, packages_with_cuda, wheel_cuda
from envdoctor.rules.facts import torch_cuda
from envdoctor.rules.registry import Problem, rule
from envdoctor.rules.requirements import version_evidence, versions_of

WHEEL_CUDA = "PKG030"
NAMED_AS_TOOLKIT = ("report: issue form", "report: nvcc --version", "report: handwritten list")
_CUDNN_9 = "2.4"  # torch's builds have cuDNN 9 from this release on: METADATA of its wheels on PyPI


@rule(WHEEL_CUDA, kind="environment", severity="warning", cause="cudart-missing")
def wheel_loads_libraries_of_another_cuda(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """The compiled modules of a wheel load another CUDA or cuDNN than torch or NVIDIA's packages bring.

    Nothing in the metadata of onnxruntime-gpu, CTranslate2 and others requires NVIDIA's libraries: they use those
    that torch brings, those of packages such as nvidia-cublas-cu12, or a toolkit. onnxruntime-gpu of PyPI is for CUDA
    11 up to 1.18, for CUDA 12 up to 1.26, then for CUDA 13. With another CUDA it silently runs on the CPU. Nothing is
    reported if a package of NVIDIA or a toolkit has the version, or if the compiled files are known: their libraries
    are checked instead.

    In a report without torch and such packages, the toolkit that nvcc or the issue form names is compared.

    Fix: install the releases for torch's CUDA, or a torch for theirs.

    References:
    https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html#requirements
    https://github.com/SYSTRAN/faster-whisper/issues/1086
    """
    versions = versions_of(stack)
    cuda = torch_cuda(stack).partition(".")[0] or _cuda_of_packages(versions) or _cuda_of_toolkit(machine, versions)
    if not cuda or stack.extensions.value is not None or _is_on_arm(machine):
        return
    cudnn = _cudnn(versions)
    for name in packages_with_cuda():
        version = versions.get(name, "")
        row = wheel_cuda(name, version) if version and not local_part(version) else None  # of PyPI
        if not row or row.bundled or row.not_with in versions:
            continue
        if not row.fits(cuda, cudnn) and not _is_provided(machine, versions, row):
            yield _problem(stack, row, name, (cuda, cudnn))


def _is_on_arm(machine: Machine) -> bool:
    return machine.system.architecture.value not in (None, "x86_64")


def _cuda_of_packages(versions: dict[str, str]) -> str:
    """The major version of CUDA that NVIDIA's packages are for, without torch; empty for none and for several."""
    found = {match[1] for name in versions if (match := re.fullmatch(r"nvidia-cublas-cu(\d\d)", name))}
    return found.pop() if len(found) == 1 and "torch" not in versions else ""


def _cuda_of_toolkit(machine: Machine, versions: dict[str, str]) -> str:
    """The major version of a report's toolkit, if it names neither torch nor a package of NVIDIA.

    `CUDA: 13.0` in a sentence is often that of the driver.
    """
    toolkit = machine.cuda.nvcc_version
    if "torch" in versions or any(name.startswith("nvidia-") for name in versions):
        return ""
    return (toolkit.value or "").partition(".")[0] if toolkit.source in NAMED_AS_TOOLKIT else ""


def _cudnn(versions: dict[str, str]) -> str:
    """The major version of cuDNN: of its package, else of torch's build."""
    packages = (versions[name] for name in versions if re.fullmatch(r"nvidia-cudnn-cu\d\d", name))
    torch = versions.get("torch", "")
    known = "9" if satisfies(torch, f">={_CUDNN_9}") else "8" if satisfies(torch, ">=1.8") else ""
    return next((version.partition(".")[0] for version in packages if version), known)


def _is_provided(machine: Machine, versions: dict[str, str], row: WheelCuda) -> bool:
    """Whether packages of NVIDIA or of conda, or a toolkit, bring the CUDA of the wheel."""
    toolkits = (machine.cuda.nvcc_version.value or "", versions.get("cudatoolkit", ""))
    if any(text.partition(".")[0] == row.cuda for text in toolkits):
        return True
    cudnn = versions.get(f"nvidia-cudnn-cu{row.cuda}", "").partition(".")[0]
    return f"nvidia-cublas-cu{row.cuda}" in versions and (not row.cudnn or cudnn == row.cudnn)


def _origin(stack: Stack) -> tuple[str, str]:
    """What brings the CUDA libraries, as the start of a sentence and as an owner."""
    if torch_cuda(stack):
        return "torch brings", "torch"
    if _cuda_of_packages(versions_of(stack)):
        return "the installed packages of NVIDIA are", "these packages"
    return "the installed toolkit is", "this toolkit"


def _problem(stack: Stack, row: WheelCuda, name: str, libraries: tuple[str, str]) -> Problem:
    cuda, cudnn = libraries
    wanted = fitting_wheels(name, cuda, cudnn)
    version = versions_of(stack)[name]
    brings = f"CUDA {cuda}" + (f" and cuDNN {cudnn}" if row.cudnn and cudnn else "")
    origin, owner = _origin(stack)
    return Problem(
        "warning",
        f"{name} {version} loads the libraries of {row.libraries}; {origin} {brings}: {row.effect}",
        (
            *version_evidence(stack, name, "torch"),
            *_evidence_of_cuda(stack),
            Evidence(f"{name} {row.versions}", row.libraries, f"{row.source}, {row.date}"),
        ),
        f"Install {name}{wanted}, which is for the CUDA of {owner}."
        if wanted
        else f"Use a torch for {row.libraries}: no release of {name} is for {brings}.",
        steps(shell_command("uv pip install '{}{}'", name, wanted)) if wanted else (),
    )


def _evidence_of_cuda(stack: Stack) -> tuple[Evidence, ...]:
    """The CUDA of torch; without torch the packages of NVIDIA."""
    if torch_cuda(stack):
        return (Evidence("CUDA of torch", torch_cuda(stack), stack.torch.source),)
    names = (name for name in versions_of(stack) if re.fullmatch(r"nvidia-(?:cublas|cudnn)-cu\d\d", name))
    return version_evidence(stack, *names)
