"""Rules on libraries that several packages share: NumPy, MKL, NCCL, cuDNN and the Python module of NVML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Machine, Stack, Status
from envdoctor.core.remedies import either, steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.published import published_releases, releases_in_range
from envdoctor.knowledge.releases import numpy2_releases
from envdoctor.knowledge.versions import is_prerelease, minor_of, public_part, satisfies
from envdoctor.rules.facts import is_from_conda, is_from_report, torch_cuda
from envdoctor.rules.registry import Problem, rule
from envdoctor.rules.requirements import specifiers_for, version_evidence, versions_of
from envdoctor.rules.torch_install import conda_command, install_library, pin_of_torch


@rule("NPY001", kind="environment", severity=("error", "warning"), cause="numpy2-abi")
def module_was_built_for_numpy_1(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """NumPy 2 is installed with a torch, pandas, pyarrow or other compiled package from before NumPy 2.

    Its modules were compiled for NumPy 1: `A module that was compiled using NumPy 1.x cannot be run in NumPy 2.x as
    it may crash`, `_ARRAY_API not found`, and with torch below 2.3 (on Windows 2.4.1) `RuntimeError: Numpy is not
    available`.

    Fix: `numpy<2`, or a release of the package built for NumPy 2.

    References:
    https://github.com/numpy/numpy/issues/26191
    https://github.com/pytorch/pytorch/issues/107302
    https://github.com/pytorch/pytorch/issues/131668
    """
    versions = versions_of(stack)
    numpy = versions.get("numpy", "")
    if not satisfies(numpy, ">=2.0.0a1"):
        return
    windows = "Windows" in (machine.system.os.value or "")
    firsts = {
        row.package: row.first_windows if windows and row.first_windows else row.first for row in numpy2_releases()
    }
    old = [
        (name, first)
        for name, first in firsts.items()
        if name in versions
        and not is_prerelease(versions[name])
        and satisfies(public_part(versions[name]), f"<{first}")
    ]
    if old:
        listed = ", ".join(f"{name} {versions[name]} (first for NumPy 2: {first})" for name, first in old)
        numpy1 = _numpy_1(stack)
        status: Status = (
            "error"
            if any(name in ("torch", "pandas", "pyarrow", "numba", "jaxlib") for name, _ in old)
            else "warning"
        )
        yield Problem(
            status,
            f"numpy {numpy} is installed with packages built for NumPy 1: {listed}",
            version_evidence(stack, "numpy", *[name for name, _ in old]),
            f"Install numpy {numpy1}, or releases of these packages that support NumPy 2."
            if numpy1
            else "Install releases of these packages that support NumPy 2.",
            either(
                *([shell_command("uv pip install numpy=={}", numpy1)] if numpy1 else []), *_for_numpy_2(stack, old)
            ),
        )


def _numpy_1(stack: Stack) -> str:
    """The newest NumPy 1 with wheels for this Python, if no installed package requires NumPy 2."""
    python = minor_of(stack.python_version.value or "")
    release = next((row.version for row in releases_in_range("numpy", "<2") if row.has_wheel(python=python)), "")
    specifiers = specifiers_for(stack, "numpy").values()
    return "" if any(satisfies(release, each) is False for each in specifiers) else release


def _for_numpy_2(stack: Stack, old: list[tuple[str, str]]) -> list[str]:
    """One step with the first releases for NumPy 2; none with torch or jaxlib, which others need in their release."""
    python = minor_of(stack.python_version.value or "")
    packages = []
    for name, first in old:
        newer = [row.version for row in releases_in_range(name, f">={first}") if row.has_wheel(python=python)]
        packages.append(f"{name}=={newer[-1] if newer else first}")
    is_alone = not any(name in ("torch", "jaxlib") for name, _ in old)
    return [shell_command("uv pip install {}", packages)] if is_alone else []


@rule("MKL001", kind="environment", severity=("error", "warning"), cause="mkl-too-new")
def mkl_is_too_new_for_condas_torch(machine: Machine, stack: Stack) -> Iterator[Problem]:  # noqa: ARG001
    """A torch of PyTorch's conda channel is installed with MKL 2024.1 or newer, which lacks a symbol of torch.

    The import fails with `libtorch_cpu.so: undefined symbol: iJIT_NotifyEvent`. That channel's recipes build with MKL
    2020.2 or 2023.1 and require only `mkl >=2018`, up to its last release, 2.5.1; reports on 2.5 contradict each
    other. PyPI's wheels link MKL statically and conda-forge has an upper bound, so neither is affected.

    Fix: install MKL below 2024.1, or torch from PyPI.

    References:
    https://github.com/pytorch/pytorch/issues/123097
    https://github.com/pytorch/builder/blob/release/2.5/conda/pytorch-nightly/meta.yaml
    https://github.com/deepchem/deepchem/pull/4744
    """
    distributions = stack.distributions.value or {}
    torch = distributions.get("pytorch") or distributions.get("torch")
    mkl = distributions.get("mkl")
    by_conda = torch and (torch.name == "pytorch" or is_from_conda(torch))
    if not torch or not mkl or not by_conda or "conda-forge" in torch.source:
        return
    if satisfies(mkl.version, ">=2024.1") and satisfies(public_part(torch.version), "<2.6"):
        certain = satisfies(public_part(torch.version), "<2.5")
        yield Problem(
            "error" if certain else "warning",
            f"torch {torch.version} of conda {'cannot' if certain else 'may not'} load with MKL {mkl.version}; "
            "it was built for MKL below 2024.1",
            version_evidence(stack, torch.name, "mkl"),
            "Install MKL below 2024.1.",
            steps(conda_command(stack, "install 'mkl>=2023.1,<2024.1'")),
        )


@rule("NCCL001", kind="environment", severity=("error", "warning"), cause="nccl-lib-mismatch")
def nccl_is_installed_twice_or_too_old(machine: Machine, stack: Stack) -> Iterator[Problem]:  # noqa: ARG001
    """Two nvidia-nccl packages are installed, or the only one is older than the NCCL that torch was built with.

    `nvidia-nccl-cu12` and `nvidia-nccl-cu13` contain the same file, nvidia/nccl/lib/libnccl.so.2: the one installed
    last overwrites it. An older NCCL lacks functions that torch links: `undefined symbol: ncclCommResume`,
    `ncclCommWindowRegister`. A newer one of the same major version works.

    Fix: install one package only, in the version that torch requires.

    References:
    https://github.com/pytorch/pytorch/issues/119932
    https://github.com/pytorch/pytorch/issues/186591
    https://docs.nvidia.com/deeplearning/nccl/release-notes/index.html
    """
    versions = versions_of(stack)
    names = [name for name in ("nvidia-nccl-cu11", "nvidia-nccl-cu12", "nvidia-nccl-cu13") if name in versions]
    if not names or "torch" not in versions:
        return
    right = _nccl_of_torch(stack, names)
    if not right:
        yield Problem(
            "warning",
            f"{' and '.join(f'{name} {versions[name]}' for name in names)} install the same libnccl.so.2",
            version_evidence(stack, "torch", *names),
            "Find out the CUDA version of torch, uninstall the other package, and reinstall the right one.",
            steps("python -c 'import torch; print(torch.version.cuda)'"),
        )
        return
    pin = pin_of_torch(stack, right)
    wrong = [name for name in names if name != right]
    fix = f"{right}=={pin}" if pin else right
    if len(names) > 1:
        yield Problem(
            "error" if _older(versions[wrong[0]], pin) else "warning",
            f"{' and '.join(f'{name} {versions[name]}' for name in names)} install the same libnccl.so.2; "
            f"torch {versions['torch']} needs {fix}",
            version_evidence(stack, "torch", *names),
            f"Remove {', '.join(wrong)} and reinstall {fix}.",
            steps(shell_command("uv pip uninstall {}", wrong), install_library(stack, right, "2")),
        )
    elif pin and names == [right] and _older(versions[right], pin):
        yield Problem(
            "warning",
            f"{right} {versions[right]} is older than the {pin} that torch {versions['torch']} was built with",
            version_evidence(stack, "torch", right),
            f"Install the NCCL that torch requires: {pin}.",
            steps(install_library(stack, right, "2")),
        )


def _nccl_of_torch(stack: Stack, names: Sequence[str]) -> str:
    """The package of NCCL that torch requires. If its CUDA version is unknown: the only one, or its pin."""
    if cuda := torch_cuda(stack):
        return f"nvidia-nccl-cu{cuda.partition('.')[0]}"
    versions = versions_of(stack)
    pinned = [name for name in names if len(names) == 1 or pin_of_torch(stack, name) == versions[name]]
    return pinned[0] if len(pinned) == 1 else ""


def _older(version: str, pin: str) -> bool:
    return bool(pin) and minor_of(version) != minor_of(pin) and satisfies(version, f"<{pin}") is True


# Packages, how torch fails with an older release, and whether it fails at `import torch`. NCCL001 is about NCCL.
CUDNN = lazy_pattern(r"nvidia-cudnn-cu\d\d")
OLDER_LIBRARIES = (
    (CUDNN, "torch.backends.cudnn raises 'cuDNN version incompatibility'", False),
    (lazy_pattern(r"nvidia-nvjitlink(?:-cu12)?"), "libcusparse lacks a symbol of it: import torch fails", True),
    (lazy_pattern(r"nvidia-cuda-runtime(?:-cu1\d)?"), "functions that torch uses may be missing", False),
)


@rule("CUDNN005", kind="environment", severity=("error", "warning"), cause="cuda-lib-shadowed")
def library_is_older_than_torch_was_built_with(machine: Machine, stack: Stack) -> Iterator[Problem]:  # noqa: ARG001
    """cuDNN, nvJitLink or the CUDA runtime is older than the one that the installed torch was built with.

    A newer minor release of these libraries works with torch, an older one does not. torch.backends.cudnn compares
    the releases and raises `cuDNN version incompatibility: PyTorch was compiled against (9, 10, 2) but found runtime
    version (9, 8, 0)`. An older nvJitLink lacks symbols that libcusparse needs: `undefined symbol:
    __nvJitLinkComplete_12_8`. Another major release of cuDNN has another file name, so that torch does not find it.

    Fix: install the version that torch requires.

    References:
    https://github.com/pytorch/pytorch/blob/main/torch/backends/cudnn/__init__.py
    https://github.com/pytorch/pytorch/issues/134929
    https://docs.nvidia.com/deeplearning/cudnn/backend/latest/developer/forward-compatibility.html
    """
    versions = versions_of(stack)
    torch = (stack.distributions.value or {}).get("torch")
    if not torch or is_from_conda(torch):
        return
    for pattern, consequence, at_import in OLDER_LIBRARIES:
        for name in filter(pattern.fullmatch, versions):
            pin = pin_of_torch(stack, name)
            other_major = bool(pin) and pattern is CUDNN and _major(versions[name]) != _major(pin)
            if not (other_major or _older(versions[name], pin)):
                continue
            effect = f"import torch does not find libcudnn.so.{_major(pin)}" if other_major else consequence
            yield Problem(
                "error" if at_import or other_major else "warning",
                f"{name} is {versions[name]}, and torch {versions['torch']} was built with {pin}: {effect}",
                version_evidence(stack, "torch", name),
                f"Install the version that torch requires: {pin}.",
                steps(install_library(stack, name, _major(pin))),
            )


def _major(version: str) -> str:
    return version.partition(".")[0]


@rule("NVML001", kind="environment", severity=("warning", "info"), cause="nvml-python-conflict")
def pynvml_replaces_nvidia_ml_py(machine: Machine, stack: Stack) -> Iterator[Problem]:  # noqa: ARG001
    """`pynvml` below 12 is installed, whose module has the same name as that of nvidia-ml-py.

    Both install a module `pynvml`, and the package installed last overwrites the other. The old one lacks newer
    functions and structures. vLLM then finds no CUDA platform (`Failed to infer device type`, `UnspecifiedPlatform`)
    although CUDA works. `pynvml` 12 and newer only depends on nvidia-ml-py and causes no problem.

    Fix: remove pynvml and reinstall nvidia-ml-py.

    References:
    https://github.com/vllm-project/vllm/issues/12977
    https://github.com/vllm-project/vllm/issues/12847
    """
    versions = versions_of(stack)
    if satisfies(versions.get("pynvml", ""), "<12") is not True:
        return
    users = [name for name in ("vllm", "sglang", "lmdeploy", "torch") if name in versions]
    doubled = "nvidia-ml-py" in versions
    only_pynvml = not doubled and not is_from_report(stack)
    module = versions.get("nvidia-ml-py") or published_releases("nvidia-ml-py")[0].version
    harmful = users and users[0] != "torch" and (doubled or only_pynvml)
    yield Problem(
        "warning" if harmful or (doubled and users) else "info",
        f"pynvml {versions['pynvml']} "
        + (f"and nvidia-ml-py {versions['nvidia-ml-py']} are installed: both contain the module pynvml" if doubled
           else "is installed instead of nvidia-ml-py"),
        version_evidence(stack, "pynvml", "nvidia-ml-py", *users[:1]),
        "Remove pynvml and reinstall nvidia-ml-py.",
        steps(
            "uv pip uninstall pynvml",
            shell_command("uv pip install nvidia-ml-py=={} --reinstall-package nvidia-ml-py", module),
        ),
    )  # fmt: skip


@rule("CUDNN003", kind="environment", severity="warning", cause="cuda-lib-shadowed")
def libraries_of_two_cuda_versions_share_one_directory(machine: Machine, stack: Stack) -> Iterator[Problem]:  # noqa: ARG001
    """cuDNN or NVSHMEM is installed twice, for CUDA 12 and for CUDA 13, in the same directory.

    `nvidia-cudnn-cu12` and `nvidia-cudnn-cu13` both install to nvidia/cudnn/lib. torch loads the one installed last,
    and removing one package removes the files of both. Most other libraries of CUDA 13 have a separate directory.
    NCCL has the same problem, see NCCL001.

    Fix: remove the package that torch does not use, and reinstall the other.

    References:
    https://github.com/pytorch/pytorch/issues/186591
    """
    versions = versions_of(stack)
    major = torch_cuda(stack).partition(".")[0]
    for library in ("nvidia-cudnn", "nvidia-nvshmem"):
        both = (f"{library}-cu12", f"{library}-cu13")
        if major in ("12", "13") and all(name in versions for name in both):
            right, wrong = (both[0], both[1]) if major == "12" else (both[1], both[0])
            yield Problem(
                "warning",
                f"{both[0]} {versions[both[0]]} and {both[1]} {versions[both[1]]} install to the same directory",
                version_evidence(stack, "torch", *both),
                f"Remove {wrong} and reinstall {right}, which torch for CUDA {torch_cuda(stack)} needs.",
                steps(
                    shell_command("uv pip uninstall {}", wrong),
                    shell_command(
                        "uv pip install {}=={} --no-deps --reinstall-package {}", right, versions[right], right
                    ),
                ),
            )
