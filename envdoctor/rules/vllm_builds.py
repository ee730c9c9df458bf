"""Rules on the builds of vLLM and torch: CUDA version, pre-releases, and conda."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from envdoctor.core.records import Evidence, Machine, Stack
from envdoctor.core.remedies import Remedy, steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.cuda import oldest_driver
from envdoctor.knowledge.releases import releases_of, releases_that_pin, required_specifier, version_range
from envdoctor.knowledge.torch_builds import known_builds
from envdoctor.knowledge.versions import (
    cuda_of_local,
    dotted_numbers,
    is_local_build,
    is_prerelease,
    local_part,
    minor_of,
    public_part,
    satisfies,
)
from envdoctor.rules.facts import (
    first_in_use,
    has_windows_driver,
    is_for_another_platform,
    is_rocm,
    is_without_cuda,
    torch_cuda,
    torch_version,
)
from envdoctor.rules.registry import Problem, evidence, rule
from envdoctor.rules.requirements import specifiers_for, version_evidence, versions_of
from envdoctor.rules.torch_install import install_torch, platform_of

NEW_ENVIRONMENT = "uv venv --python 3.12 vllm-environment"


@rule("VLLM002", kind="environment", severity="warning", cause="vllm-torch-mismatch")
def vllm_runs_on_a_prerelease_torch(machine: Machine, stack: Stack) -> Iterator[Problem]:  # noqa: ARG001
    """vLLM is installed with an alpha or nightly torch.

    NVIDIA's PyTorch containers have such builds (2.5.0a0+e000cf0ad9.nv24.10). vLLM's wheels and its build require a
    released torch: pip replaces the container's torch, or the build fails on names that the alpha lacks. vLLM's own
    images and NVIDIA's vLLM containers are built for their torch and not affected.

    Fix: use a new virtual environment, a container with the required torch, or build vLLM after `python
    use_existing_torch.py`.

    References:
    https://docs.vllm.ai/en/latest/getting_started/installation/gpu.html
    https://github.com/vllm-project/vllm/blob/main/use_existing_torch.py
    """
    torch = versions_of(stack).get("torch", "")
    version = versions_of(stack).get("vllm", "")
    if not torch or not is_prerelease(torch) or not first_in_use(stack, "vllm") or "nv" in local_part(version):
        return
    if is_for_another_platform(stack) or (not version and ".dev" in torch):
        return  # a vLLM next to a nightly torch is built for it
    if is_rocm(stack) or is_local_build(version):
        return  # vLLM's ROCm images build torch; a build from source fits the torch that it was built with
    distribution = (stack.distributions.value or {}).get("vllm")
    if distribution and distribution.requires and "vllm" not in specifiers_for(stack, "torch"):
        return  # built locally for this torch: its metadata does not require one
    pin = required_specifier("vllm", version, "torch") if version else ""
    yield Problem(
        "warning",
        f"vLLM {version} is installed with torch {torch}, which is not a release"
        + (f"; it requires torch{pin}" if pin else ""),
        (evidence("torch", stack.torch), *version_evidence(stack, "vllm")),
        "Install vLLM in a new environment with the torch that it requires, or build it for this torch.",
        steps(NEW_ENVIRONMENT),
    )


CUDA_OF_WHEELS = (("0.20", "13"), ("0.2.2", "12"))  # the first release on PyPI for a CUDA major version


def _cuda_of_vllm(stack: Stack) -> tuple[str, str]:
    """The CUDA major version of the vLLM wheel ("12", "cpu") and its source; empty if unknown.

    PyPI's wheels: VLLM_MAIN_CUDA_VERSION in vllm/envs.py is 12.9 in 0.19.0 and 13.0 in 0.20.0 (measured 2026-11-21).
    """
    for extension in stack.extensions.value or ():
        runtime = next((name for name in extension.needed if name.startswith("libcudart.so.")), "")
        if extension.distribution == "vllm" and runtime:
            return runtime.rpartition(".so.")[2].partition(".")[0], f"{extension.path} needs {runtime}"
    version = versions_of(stack).get("vllm", "")
    label = cuda_of_local(version)
    if label:
        return label.partition(".")[0], f"version {version}"
    if not version or local_part(version) or is_prerelease(version) or version not in releases_of("vllm"):
        return "", ""
    return cuda_of_wheel(version), f"PyPI's wheel of {version} is for CUDA {cuda_of_wheel(version)}"


@rule("VLLM003", kind="environment", severity=("error", "warning"), cause="vllm-cuda-variant")
def vllm_wheel_is_for_another_cuda(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """The vLLM wheel is for another CUDA major version than torch, or for CUDA while torch is a CPU build.

    PyPI has one variant of each release: CUDA 12 up to 0.19, CUDA 13 from 0.20 on. With a torch of the other CUDA
    version the import fails with `libcudart.so.13: cannot open shared object file`. With a CPU torch
    `libcudart.so.12` or `libtorch_cuda.so` is missing, and vLLM finds no platform.

    Fix: install the wheel for torch's CUDA version (the releases on GitHub have +cu129 and +cpu wheels), or change
    both.

    References:
    https://docs.vllm.ai/en/latest/getting_started/installation/gpu.html
    https://github.com/vllm-project/vllm/issues/52300
    """
    if not first_in_use(stack, "vllm") or stack.torch.value is None or is_for_another_platform(stack):
        return
    if "mac" in (machine.system.os.value or "").lower():  # PyPI has no wheel for it: vLLM was built there
        return
    vllm, known_by = _cuda_of_vllm(stack)
    cuda = torch_cuda(stack)
    version = versions_of(stack).get("vllm", "") or "of unknown version"
    torch = versions_of(stack).get("torch", "")
    found = (evidence("torch", stack.torch), Evidence("vLLM", known_by or version, stack.distributions.source))
    without_cuda = is_without_cuda(stack) and not cuda_of_local(torch)
    cpu_build = cuda_of_local(torch) == "cpu" or (without_cuda and not is_rocm(stack))
    if cpu_build and vllm != "cpu" and (vllm or not local_part(versions_of(stack).get("vllm", ""))):
        yield Problem(
            "error" if vllm else "warning",
            f"torch {torch} is a CPU build, but vLLM {version} from PyPI is for CUDA",
            found,
            f"On a machine with an NVIDIA GPU reinstall torch for CUDA {vllm}".rstrip()
            + "; otherwise install vLLM's "
            "CPU build (the +cpu wheel of its release, or VLLM_TARGET_DEVICE=cpu from source).",
            _other_builds_of_torch(machine, stack, vllm or "12"),
        )
    elif vllm and cuda and vllm != cuda.partition(".")[0]:
        major = cuda.partition(".")[0]
        vllm_releases = [
            row for row in releases_that_pin("vllm", "torch", public_part(torch)) if cuda_of_wheel(row) == major
        ]
        wheel = f"vLLM {version} for CUDA {vllm}" if vllm != "cpu" else f"vLLM {version} for CPU"
        yield Problem(
            "error",
            f"{wheel} does not match torch {torch} for CUDA {cuda} ({known_by})",
            found,
            f"Install torch for CUDA {vllm}, if the driver supports it, or vLLM's wheel for CUDA {major}"
            + (
                f": PyPI's {version_range(vllm_releases)}."
                if vllm_releases
                else f" from GitHub, or vLLM {_newest(major)}."
            )
            if vllm != "cpu"
            else f"Install vLLM's wheel for CUDA {major}: {version_range(vllm_releases) or _newest(major)}.",
            (
                *(_other_builds_of_torch(machine, stack, vllm) if vllm != "cpu" else ()),
                *_vllm_for(stack, vllm_releases, major, cuda),
            ),
        )


def cuda_of_wheel(version: str) -> str:
    """The CUDA major version of PyPI's wheel of a vLLM release."""
    return next((major for oldest, major in CUDA_OF_WHEELS if satisfies(version, f">={oldest}")), "11")


def _newest(major: str) -> str:
    """The newest vLLM release whose wheel on PyPI is for this CUDA major version."""
    return next((version for version in releases_of("vllm") if cuda_of_wheel(version) == major), "")


def _other_builds_of_torch(machine: Machine, stack: Stack, major: str) -> tuple[Remedy, ...]:
    """Install the same release of torch with its companions as the newest build for a CUDA version that runs here."""
    torch = public_part(torch_version(stack))
    driver, windows = dotted_numbers(machine.driver.version.value or ""), has_windows_driver(machine)
    usable = [
        row.cuda
        for row in known_builds()
        if (row.torch, row.platform) == (minor_of(torch), platform_of(machine))
        and row.cuda.startswith(f"{major}.")
        and (not driver or driver >= oldest_driver(row.cuda, windows=windows))
    ]
    found = install_torch(stack, torch, usable[-1]) if usable else None
    return steps(*found.steps) if found else ()


def _vllm_for(stack: Stack, releases: Sequence[str], major: str, cuda: str) -> tuple[Remedy, ...]:
    """Install PyPI's wheel of a vLLM release for this CUDA version with the torch that it requires."""
    installed = public_part(versions_of(stack).get("vllm", ""))
    release = installed if installed in releases else releases[0] if releases else _newest(major)
    if not release:
        return ()
    torch = required_specifier("vllm", release, "torch")
    again = ["--reinstall-package", "vllm"] if release == installed else []
    backend = f"--torch-backend=cu{cuda.replace('.', '')}"
    return steps(
        shell_command("uv pip install vllm=={} {} {} {}", release, [f"torch{torch}"] if torch else [], backend, again)
    )


@rule("VLLM008", kind="environment", severity=("warning", "info"), cause="vllm-torch-mismatch")
def vllm_of_pypi_runs_on_condas_torch(machine: Machine, stack: Stack) -> Iterator[Problem]:  # noqa: ARG001
    """vLLM was installed from PyPI, and torch from conda.

    vLLM's wheels are compiled for PyPI's torch. Builds of the same release with other settings have another binary
    interface. conda's torch links NCCL statically, and vLLM loads it a second time. vLLM's documentation advises
    against the combination.

    Fix: create a new environment and install torch and vLLM from one source, in one command.

    References:
    https://github.com/vllm-project/vllm/issues/8420
    https://docs.vllm.ai/en/latest/getting_started/installation/gpu.html
    """
    distributions = stack.distributions.value or {}
    vllm, torch = distributions.get("vllm"), distributions.get("torch") or distributions.get("pytorch")
    if not vllm or not torch or vllm.source.startswith("conda") or not torch.source.startswith("conda"):
        return
    yield Problem(
        "info" if stack.cuda_available.value else "warning",
        f"vLLM {vllm.version} is from PyPI, but torch {torch.version} is from {torch.source}",
        version_evidence(stack, "vllm", torch.name),
        f"Create a new environment and install vllm=={public_part(vllm.version)} in it, which installs PyPI's torch.",
        steps(NEW_ENVIRONMENT),
    )
