"""The steps that install a build of torch into an environment, with the packages that belong to it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from envdoctor.core.record import Record
from envdoctor.core.records import Distribution, Machine, Stack, known
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.architectures import Capability, capability_of, runs_as_ptx, runs_native
from envdoctor.knowledge.cuda import driver_of_cuda, first_toolkit, oldest_driver
from envdoctor.knowledge.guides import cuda_on_pypi
from envdoctor.knowledge.published import find_release, releases_in_range
from envdoctor.knowledge.releases import (
    parse_requirement,
    releases_of,
    releases_that_pin,
    required_specifier,
    requirements_of_release,
    torch_pairings,
)
from envdoctor.knowledge.torch_builds import KnownBuild, known_builds, libraries_of_torch, torch_releases
from envdoctor.knowledge.versions import cuda_of_local, dotted_numbers, major_minor, minor_of, public_part, satisfies
from envdoctor.rules.facts import (
    gpus_of,
    has_windows_driver,
    is_without_cuda,
    parse_major_minor,
    torch_cuda,
    torch_version,
)
from envdoctor.rules.requirements import specifiers_for, versions_of

COMPANIONS = ("torchvision", "torchaudio")  # packages that the PyTorch index has in the same builds
# Libraries whose packages for CUDA 12 and 13 have the same files; torch needs those of its own CUDA version.
SHARED = ("nvidia-cudnn", "nvidia-nccl", "nvidia-nvshmem", "nvidia-cusparselt")
# Packages with CUDA code whose source is on PyPI under this name.
WITH_SOURCE = ("flash-attn", "vllm", "xformers", "causal-conv1d", "mamba-ssm", "torch-scatter", "torch-sparse",
               "torch-cluster", "transformer-engine-torch")  # fmt: skip
BLACKWELL = (10, 0)
LEAST_OF_VLLM = (7, 0)  # compute capability
FIRST_VLLM_FOR_CUDA_13 = "0.20"  # of the wheels on PyPI


class TorchInstall(Record, frozen=True):
    """A build of torch, and the steps that install it with its companions."""

    release: str  # "2.9.1"
    cuda: str  # "12.8", "cpu"; empty: uv chooses it by the driver
    steps: tuple[str, ...]

    def __str__(self) -> str:
        """The build in words: `torch 2.9.1 for CUDA 12.8`."""
        build = "CPUs" if self.cuda == "cpu" else f"CUDA {self.cuda}"
        return f"torch {self.release}" + (f" for {build}" if self.cuda else "")


def install_torch(stack: Stack, release: str, cuda: str) -> TorchInstall | None:
    """Install a release of torch for a CUDA version ("12.8") or "cpu"; None if an installed package prevents it.

    Packages that require one release of torch move with it. uv keeps an installed version whatever its build, so a
    package whose version stays is reinstalled.
    """
    if cuda != "cpu" and not any((row.torch, row.cuda) == (minor_of(release), cuda) for row in known_builds()):
        return None
    versions = versions_of(stack)
    packages = {"torch": release}
    packages |= {name: companion_release(stack, name, release) for name in COMPANIONS if name in versions}
    for name, moved in _dependents(stack, release, cuda):
        if not moved:
            return None
        packages[name] = moved
        packages |= _transformers(stack, name, moved)
    same = [name for name in packages if public_part(versions.get(name, "")) == packages[name]]
    words = [f"{name}=={version}" if version else name for name, version in packages.items()]
    words.append(f"--torch-backend={backend_of(cuda)}")
    words += [word for name in same for word in ("--reinstall-package", name)]
    remove = other_cuda(stack, cuda)
    uninstall = (shell_command("uv pip uninstall {}", remove),) if remove else ()
    return TorchInstall(release, cuda, (*uninstall, shell_command("uv pip install {}", words)))


def best_torch(
    machine: Machine, stack: Stack, *, same_release: bool = False, specifier: str = ""
) -> TorchInstall | None:
    """The build nearest to the installed one with code for all GPUs, for this driver, Python and glibc.

    Without an installed torch it is the newest. `specifier` limits the releases.
    """
    pin = specifier.removeprefix("==") if specifier.startswith("==") else ""
    wanted = [capability for gpu in gpus_of(machine) if (capability := capability_of(gpu))]
    rows = [row for row in known_builds() if row.platform == platform_of(machine) and covers(row, wanted)]
    near = minor_of(torch_version(stack))
    if same_release and (same := [row for row in rows if row.torch == near]):
        rows = same
    for row in _rank(rows, machine, stack):
        release = pin if minor_of(pin) == row.torch else release_of(row, stack)
        if satisfies(release, specifier) is False or not _has_wheel(machine, stack, row, release):
            continue
        if found := install_torch(stack, release, row.cuda):
            return found if not is_too_old_for_vllm(machine) else _without_vllm(stack, found)
    return None


def is_too_old_for_vllm(machine: Machine) -> bool:
    """Whether no GPU is supported by any vLLM."""
    capabilities = [capability for gpu in gpus_of(machine) if (capability := capability_of(gpu))]
    return bool(capabilities) and max(capabilities) < LEAST_OF_VLLM


def _without_vllm(stack: Stack, found: TorchInstall) -> TorchInstall:
    """The same build of torch, with vLLM removed if it would have to move: it does not run on these GPUs."""
    packages = stack.distributions.value or {}
    if not any("vllm==" in step for step in found.steps):
        return found
    left = {name: package for name, package in packages.items() if name != "vllm"}
    other = msgspec.structs.replace(stack, distributions=known(left, stack.distributions.source))
    without = install_torch(other, found.release, found.cuda)
    if without is None:
        return found
    return msgspec.structs.replace(without, steps=("uv pip uninstall vllm", *without.steps))


def driver_for(machine: Machine) -> tuple[int, ...]:
    """The oldest driver that supports all GPUs and a build of torch with code for them; else empty."""
    wanted = [capability for gpu in gpus_of(machine) if (capability := capability_of(gpu))]
    rows = [row for row in known_builds() if row.platform == platform_of(machine) and covers(row, wanted)]
    drivers = [oldest_driver(row.cuda, windows=has_windows_driver(machine)) for row in rows]
    return max(min(drivers), driver_of_gpus(machine)) if drivers else ()


def driver_of_gpus(machine: Machine) -> tuple[int, ...]:
    """The driver of the CUDA release that introduced the GPUs, from Blackwell on; older drivers do not start them."""
    capabilities = [capability for gpu in gpus_of(machine) if (capability := capability_of(gpu))]
    kits = [first_toolkit(capability) for capability in capabilities if capability >= BLACKWELL]
    return max((dotted_numbers(driver_of_cuda(kit.cuda)) for kit in kits if kit), default=())


def backend_of(cuda: str) -> str:
    """The backend for a CUDA version: `12.8` gives cu128, `cpu` cpu."""
    return "cpu" if cuda == "cpu" else f"cu{cuda.replace('.', '')}"


def backend_of_torch(stack: Stack) -> str:
    """The backend of the installed torch; empty if unknown."""
    build = stack.torch.value
    if build and build.hip.value:
        return ""
    if (local := torch_version(stack).partition("+")[2]).startswith("rocm"):
        return local
    if cuda := torch_cuda(stack):
        return backend_of(cuda)
    return "cpu" if is_without_cuda(stack) else ""


def reinstall(stack: Stack, name: str, version: str) -> str:
    """The step that installs a package again, in the build of the installed torch."""
    backend = backend_of_torch(stack)
    option = [f"--torch-backend={backend}"] if backend else []
    return shell_command("uv pip install {}=={} {} --reinstall-package {}", name, version, option, name)


def rebuild(name: str, version: str, capabilities: str = "") -> str:
    """The step that compiles a package for the installed torch; empty if PyPI has no source of it.

    uv's cache can contain a build for another torch. flash-attn's build downloads a wheel unless it is forced.
    """
    if name not in WITH_SOURCE:
        return ""
    variables = "TORCH_CUDA_ARCH_LIST={} " if capabilities else ""
    if name == "flash-attn" and capabilities:
        variables = "FLASH_ATTENTION_FORCE_BUILD=TRUE FLASH_ATTN_CUDA_ARCHS={} "
        capabilities = capabilities.replace(".", "")
    value = [capabilities] if capabilities else []
    install = "uv pip install {}=={} --no-build-isolation --no-binary {} --reinstall-package {}"
    return shell_command(f"UV_NO_CACHE=1 {variables}{install}", *value, name, version, name, name)


def install_library(stack: Stack, package: str, number: str) -> str:
    """The step that installs one of NVIDIA's packages again: the version that torch requires, or by its SONAME."""
    pin = pin_of_torch(stack, package)
    major = int(number.partition(".")[0] or 0)
    requirement = f"{package}=={pin}" if pin else f"{package}>={major},<{major + 1}"
    return shell_command("uv pip install {} --no-deps --reinstall-package {}", requirement, package)


def pin_of_torch(stack: Stack, package: str) -> str:
    """The version of one of NVIDIA's packages that the installed torch requires; empty if unknown or not for CUDA."""
    if is_without_cuda(stack):
        return ""
    torch = (stack.distributions.value or {}).get("torch")
    version = torch_version(stack)
    lines = (torch.requires if torch else ()) or (
        *requirements_of_release("torch", version),
        *libraries_of_torch(public_part(version), torch_cuda(stack)),
    )
    specifiers = (each.specifier for each in map(parse_requirement, lines) if each and each.name == package)
    return next((each.removeprefix("==") for each in specifiers if re.fullmatch(r"==[\d.]+", each)), "")


def python_option(stack: Stack) -> tuple[str, ...]:
    """The option that makes a command of uv examine this environment; empty if its interpreter is unknown."""
    return ("--python", stack.python.value) if stack.python.value else ()


def show_files(stack: Stack, name: str) -> str:
    """The command that shows the files and the origin of a package."""
    return shell_command("uv pip show --files {} {}", name, python_option(stack))


def conda_command(stack: Stack, template: str, *values: str) -> str:
    """A command of conda for the examined environment, as shell_command makes it of a template."""
    folder = (stack.python.value or "").partition("/bin/python")[0]
    verb, _, rest = template.partition(" ")
    return shell_command(" ".join(("conda", verb, "{}", rest)), ["-p", folder] if folder else [], *values)


def companion_release(stack: Stack, name: str, torch: str) -> str:
    """The release of torchvision or torchaudio for a release of torch; empty if the tables do not contain it.

    The installed one has precedence.
    """
    installed = public_part(versions_of(stack).get(name, ""))
    accepted = releases_that_pin(name, "torch", torch) or [
        release for release in releases_of(name) if satisfies(torch, required_specifier(name, release, "torch"))
    ]
    return installed if installed in accepted else next(iter(accepted), "")


def covers(row: KnownBuild, capabilities: list[Capability]) -> bool:
    """Whether a build has code for these GPUs."""
    return all(runs_native(row.architectures, gpu) or runs_as_ptx(row.ptx, gpu) for gpu in capabilities)


def release_of(row: KnownBuild, stack: Stack) -> str:
    """The release of a build: the installed one if it is of the same line, otherwise the latest of the line."""
    installed = public_part(torch_version(stack))
    same = minor_of(installed) == row.torch and re.fullmatch(r"[\d.]+", installed)
    return installed if same else torch_releases()[row.torch].latest


def platform_of(machine: Machine) -> str:
    """The platform in the tables of builds."""
    name = (machine.system.architecture.value or "x86_64").lower()
    return "aarch64" if name in ("aarch64", "arm64") else "x86_64"


def _rank(rows: list[KnownBuild], machine: Machine, stack: Stack) -> list[KnownBuild]:
    """The builds that run on this driver, best first.

    The installed release comes first, because other packages depend on it. Builds that the driver fully supports come
    before those that need minor-version compatibility, with which only native code runs. Among them the nearest torch
    release comes first, newer before older, then the CUDA major version of the installed torch, the CUDA version that
    PyPI's packages are compiled for, and the CUDA version nearest to the driver's.
    """
    near = parse_major_minor(torch_version(stack))
    driver = dotted_numbers(machine.driver.version.value or driver_of_cuda(machine.driver.cuda.value or ""))
    windows, wanted = has_windows_driver(machine), near or (99, 0)
    oldest = driver_of_gpus(machine)
    supported = [row for row in rows if not driver or driver >= max(oldest, oldest_driver(row.cuda, windows=windows))]

    gpus = [capability for gpu in gpus_of(machine) if (capability := capability_of(gpu))]

    def is_compatible_only(row: KnownBuild) -> bool:
        return bool(driver) and dotted_numbers(driver_of_cuda(row.cuda)) > driver

    def rank(row: KnownBuild) -> tuple[bool, bool, bool, int, bool, bool, tuple[int, int]]:
        release, cuda = major_minor(row.torch), major_minor(row.cuda)
        pypi = cuda_on_pypi(release_of(row, stack), row.platform)
        major = (torch_cuda(stack) or pypi).partition(".")[0]
        return (
            release != wanted,
            is_compatible_only(row),
            release < wanted,
            abs((release[0] - wanted[0]) * 100 + release[1] - wanted[1]),
            row.cuda.partition(".")[0] != major,
            row.cuda != pypi,
            cuda if is_compatible_only(row) else (-cuda[0], -cuda[1]),
        )

    native = (row for row in supported if all(runs_native(row.architectures, gpu) for gpu in gpus))
    return sorted({*native, *(row for row in supported if not is_compatible_only(row))}, key=rank)


def _has_wheel(machine: Machine, stack: Stack, row: KnownBuild, release: str) -> bool:
    """Whether the release has a wheel for the environment's Python and the system's glibc, as far as it is known."""
    python, published = minor_of(stack.python_version.value or ""), find_release("torch", release)
    if release == public_part(torch_version(stack)):
        return True
    if published:
        return published.has_wheel(row.platform, python, machine.system.glibc.value or "")
    limits = torch_releases()[row.torch].python
    return not python or not limits or major_minor(limits[0]) <= major_minor(python) <= major_minor(limits[1])


def _dependents(stack: Stack, torch: str, cuda: str) -> Iterator[tuple[str, str]]:
    """Installed packages that a build of torch breaks, each with a release for it; empty if there is none."""
    versions = versions_of(stack)
    moved = public_part(versions.get("torch", "")) != torch
    for name, package in (stack.distributions.value or {}).items():
        if name in ("torch", "pytorch", *COMPANIONS):
            continue
        if name == "torchao":
            if moved and not satisfies(torch, _torch_of_torchao(package.version)):
                yield name, _torchao_for(torch)
        elif _is_broken_by(package, torch, versions) or (name == "vllm" and not _vllm_fits(package.version, cuda)):
            candidates = releases_that_pin(name, "torch", torch)
            candidates = tuple(each for each in candidates if name != "vllm" or _vllm_fits(each, cuda))
            yield name, next((each for each in candidates if _accepts(name, each, versions)), "".join(candidates[:1]))


def _is_broken_by(package: Distribution, torch: str, versions: dict[str, str]) -> bool:
    """Whether a package accepts the installed torch and not the new one."""
    lines = package.requires or requirements_of_release(package.name, package.version)
    specifiers = [found.specifier for found in map(parse_requirement, lines) if found and found.name == "torch"]
    before = public_part(versions.get("torch", ""))
    return any(satisfies(before, each) and satisfies(torch, each) is False for each in specifiers)


def _accepts(name: str, release: str, versions: dict[str, str]) -> bool:
    """Whether a release accepts all installed packages except those of torch."""
    found = (parse_requirement(line) for line in requirements_of_release(name, release))
    return all(
        satisfies(public_part(versions.get(each.name, "")), each.specifier) is not False
        for each in found
        if each and each.name not in ("torch", "triton", "xformers", *COMPANIONS)
    )


def _transformers(stack: Stack, name: str, release: str) -> dict[str, str]:
    """The oldest transformers that a moved package accepts, unless a newer release of it accepts the installed one.

    uv would install the newest or keep the installed one, which older packages do not support.
    """
    versions, specifier = versions_of(stack), required_specifier(name, release, "transformers")
    is_newer = satisfies(release, f">={public_part(versions.get(name, ''))}")
    if not specifier or (is_newer and satisfies(versions.get("transformers", ""), specifier)):
        return {}
    others = [each for other, each in specifiers_for(stack, "transformers").items() if other != name]
    accepted = [
        row
        for row in releases_in_range("transformers", specifier)
        if all(satisfies(row.version, each) is not False for each in others)
    ]
    return {"transformers": accepted[-1].version} if accepted else {}


def _vllm_fits(version: str, cuda: str) -> bool:
    own = cuda_of_local(version) or ("13" if satisfies(version, f">={FIRST_VLLM_FOR_CUDA_13}") else "12")
    return own.partition(".")[0] == cuda.partition(".")[0]


def _torch_of_torchao(version: str) -> str:
    """The releases of torch that a torchao has kernels for; all, if it is not in the tables."""
    rows = torch_pairings("torchao")
    return next((row.torch for row in rows if satisfies(public_part(version), row.versions)), ">=0")


def _torchao_for(torch: str) -> str:
    """The newest torchao with kernels for a torch, `0.15.*`; empty if there is none in the tables."""
    rows = (row for row in reversed(torch_pairings("torchao")) if satisfies(torch, row.torch))
    return next((row.versions.removeprefix("==") for row in rows), "")


def other_cuda(stack: Stack, cuda: str) -> list[str]:
    """Installed packages of another CUDA major version that torch's new ones overwrite, and nothing else requires."""
    major = cuda.partition(".")[0]
    packages = stack.distributions.value or {}
    if not major.isdigit():
        return []
    required = {
        found.name
        for package in packages.values()
        if package.name != "torch" and not package.name.startswith("nvidia-")
        for found in map(parse_requirement, package.requires)
        if found
    }
    pattern = rf"(?:{'|'.join(SHARED)})-cu(?!{major}$)\d+"
    return [name for name in packages if re.fullmatch(pattern, name) and name not in required]
