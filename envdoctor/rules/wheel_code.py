"""Rules on wheels of PyPI without code for a GPU, or for another C++ ABI, by the table of their contents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envdoctor.core.records import Evidence, Gpu, Machine, Stack
from envdoctor.core.remedies import Remedy, steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.architectures import Capability, architecture, capability_of
from envdoctor.knowledge.versions import is_local_build, local_part, public_part, satisfies
from envdoctor.knowledge.wheel_code import (
    LINUX,
    WheelCode,
    newest_capabilities,
    packages_with_code,
    releases_with_code,
    wheel_abis,
    wheel_code,
    wheel_code_rows,
)
from envdoctor.knowledge.wheel_cuda import wheel_cuda
from envdoctor.rules.facts import (
    gpu_label,
    gpus_of,
    is_from_conda,
    on_windows,
    torch_cuda,
    torch_label,
    torch_version,
)
from envdoctor.rules.registry import Problem, rule
from envdoctor.rules.requirements import version_evidence, versions_of
from envdoctor.rules.torch_build import runs_on_torch
from envdoctor.rules.torch_install import platform_of, rebuild

WHEEL_CODE = "EXT007"
# Sources of a distribution with which its wheel can be that of PyPI; not conda, an image, a clone or a direct URL.
_SOURCES = frozenset({"", "pip", "uv", "report", "PyPI"})


@rule(WHEEL_CODE, kind="environment", severity="warning", cause="ext-arch-not-in-build")
def wheel_has_no_code_for_the_gpu(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """The wheel of this release on PyPI has neither native code nor PTX for the GPU, which torch supports.

    "no kernel image is available for execution on the device" from LMCache, LMDeploy, sgl-kernel or FAISS, while a
    matrix product in torch works. CTranslate2's wheels for aarch64 have no GPU code at all. The table has what the
    wheels contain; a build from source with the same version can have other code. Compiled files that were read have
    precedence: EXT004 and EXT005 report them.

    Fix: install a release whose wheel has the architecture, or build it from source with TORCH_CUDA_ARCH_LIST.

    References:
    https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#binary-compatibility
    https://github.com/pytorch/pytorch/blob/main/RELEASE.md#pytorch-cuda-support-matrix
    """
    if stack.extensions.value is not None:
        return
    platform, packages = _platform(machine), stack.distributions.value or {}
    gpus = [gpu for gpu in gpus_of(machine) if runs_on_torch(machine, stack, gpu) is not False]
    for name in packages_with_code():
        package = packages.get(name)
        if package is None or package.source not in _SOURCES or local_part(package.version):
            continue
        loaded, cuda = wheel_cuda(name, package.version), torch_cuda(stack).partition(".")[0]
        if loaded and cuda not in ("", loaded.cuda):
            continue  # a build of the project for this CUDA, or PKG030 reports it
        row = wheel_code(name, package.version, platform)
        without = [gpu for gpu in gpus if row and (found := capability_of(gpu)) and not row.runs_on(found)]
        if row and without:
            yield _problem(machine, stack, row, without)
    yield from _releases_before_the_gpu(machine, stack)


@rule("EXT008", kind="environment", severity="warning", cause="torch-abi-mismatch")
def wheel_is_for_another_cxx_abi(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """The wheel of this release on PyPI requires symbols of torch in another C++ ABI than the installed one has.

    The builds of torch on PyPI and on the PyTorch index have the old ABI up to 2.5 and the new one from 2.7 on. A
    wheel of AutoGPTQ was compiled for the old one: its import fails with "undefined symbol: _ZN3c10...RKSs" next to
    torch 2.7, and its kernels are not used. Builds of conda and of NVIDIA's containers are not judged.

    Fix: install a release for the ABI, a torch with the other one, or the package that replaces it.

    References:
    https://docs.pytorch.org/docs/stable/generated/torch.compiled_with_cxx11_abi.html
    https://github.com/pytorch/pytorch/releases/tag/v2.7.0
    """
    if stack.extensions.value is not None or _platform(machine) != LINUX:
        return
    has_new, packages = _has_new_abi(stack), stack.distributions.value or {}
    for row in wheel_abis():
        package = packages.get(row.package)
        if has_new in (None, row.cxx11) or package is None or package.source not in _SOURCES:
            continue
        if local_part(package.version) or not satisfies(package.version, row.versions):
            continue
        old, new = "torch 2.5 or older", "torch 2.7 or newer"
        yield Problem(
            "warning",
            f"the wheel of {row.package} {package.version} on PyPI has the C++ ABI of {new if row.cxx11 else old}; "
            f"{torch_label(stack)} is installed: {row.effect}",
            (
                *version_evidence(stack, row.package, "torch"),
                Evidence(f"{row.package} {row.versions}", new if row.cxx11 else old, f"{row.source}, {row.date}"),
            ),
            f"Use {new if row.cxx11 else old} with it, or remove it.",
            steps(shell_command("uv pip uninstall {}", row.package)),
        )


def _releases_before_the_gpu(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """Releases of which no build, of whatever index, has code for a later GPU."""
    for row in newest_capabilities():
        version = versions_of(stack).get(row.package, "")
        newer = [gpu for gpu in gpus_of(machine) if (capability_of(gpu) or (0, 0)) > row.capability]
        if newer and version and satisfies(public_part(version), row.versions):
            yield Problem(
                "warning",
                f"no build of {row.package} {version} has code for {gpu_label(newer[0])}; {row.first} is the "
                f"first, in {row.build}",
                (
                    *version_evidence(stack, row.package),
                    Evidence(f"GPU {newer[0].index}", gpu_label(newer[0]), machine.gpus.source),
                    Evidence(f"{row.package} {row.versions}", f"up to {row.newest}", f"{row.source}, {row.date}"),
                ),
                f"Install {row.package} {row.first} or newer, of {row.build}.",
                steps(
                    shell_command("uv pip show {}", row.package),
                    "nvidia-smi --query-gpu=name,compute_cap --format=csv",
                ),
            )


def _platform(machine: Machine) -> str:
    """The platform of the wheels that pip installs; WSL uses those for Linux."""
    return "windows" if on_windows(machine) else platform_of(machine)


def _has_new_abi(stack: Stack) -> bool | None:
    """Whether torch has the new C++ ABI; None for 2.6, which had both, and for builds that are not of PyTorch."""
    build, package = stack.torch.value, (stack.distributions.value or {}).get("torch")
    if build and build.cxx11_abi.value is not None:
        return build.cxx11_abi.value
    version = torch_version(stack)
    if not version or is_local_build(version) or (package and is_from_conda(package)):
        return None
    return True if satisfies(version, ">=2.7") else False if satisfies(version, "<2.6") else None


def _problem(machine: Machine, stack: Stack, row: WheelCode, without: Sequence[Gpu]) -> Problem:
    name, gpu = row.package, without[0]
    capability, cuda = capability_of(gpu) or (0, 0), torch_cuda(stack).partition(".")[0]
    version, code = versions_of(stack)[name], " ".join(row.code) or "none for any GPU"
    wanted = releases_with_code(name, capability, cuda, row.platform)
    for_other_cuda = "" if wanted else releases_with_code(name, capability, "", row.platform)
    others = wanted or for_other_cuda
    needed = f"build {name} from its source for compute capability {capability[0]}.{capability[1]}"
    return Problem(
        "warning",
        f"the wheel of {name} {version} on PyPI has no code for {gpu_label(gpu)}; it has {code}"
        + (f", {name}{others} has it" if others else ""),
        (
            *version_evidence(stack, name),
            Evidence(f"GPU {gpu.index}", gpu_label(gpu), machine.gpus.source),
            Evidence(f"{name} {row.versions}", code, f"{row.source}, {row.date}"),
        ),
        f"Install {name}{wanted}, whose wheel has code for this GPU."
        if wanted
        else f"Use {name}{others} with a torch for another CUDA than {cuda}, or {needed}."
        if others
        else f"Use another GPU, a wheel of the project's own index, or {needed}: no wheel on PyPI has code for it.",
        _remedies(name, version, wanted, gpu),
        cause=_cause(row, capability),
    )


def _cause(row: WheelCode, gpu: Capability) -> str:
    """The cause: the GPU is newer than the code, an older release had code for it, or no release has."""
    if not row.code:
        return "platform-no-wheel"
    built = sorted(parsed[0] for text in row.code if (parsed := architecture(text)))
    if gpu > built[0]:
        return ""  # that of the rule
    had_code = any(older.runs_on(gpu) for older in wheel_code_rows(row.package, row.platform))
    return "gpu-arch-dropped" if had_code else "gpu-unsupported-by-library"


def _remedies(name: str, version: str, wanted: str, gpu: Gpu) -> tuple[Remedy, ...]:
    if wanted:
        return steps(shell_command("uv pip install '{}{}'", name, wanted))
    build = rebuild(name, public_part(version), gpu.compute_capability.value or "")
    return steps(build) if build else ()
