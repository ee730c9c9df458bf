"""Converts the state of a guide's environment into the records that the rules examine."""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec.structs import replace

from envdoctor.core.record import Record
from envdoctor.core.records import (
    OF_A_GUIDE,
    CudaToolkit,
    Distribution,
    Driver,
    Fact,
    Limits,
    Machine,
    Memory,
    Stack,
    Storage,
    System,
    TorchBuild,
    absent,
    known,
    unreadable,
)
from envdoctor.knowledge.versions import satisfies
from envdoctor.manifests.environment_state import IMAGE_ORIGIN, EnvironmentState
from envdoctor.manifests.interpreter import GuideTrace
from envdoctor.manifests.step_resolution import COMPANIONS
from envdoctor.resolution.resolver import ResolvedPackage

R = TypeVar("R", bound=Record)

# METADATA of the wheels: 0.5.2 has the engine in its extra srt, 0.5.3 always; read on 2026-11-29.
_SGLANG_WITH_EXTRA = "<0.5.3"
_OF_SGLANG_ENGINE = ("outlines", "sgl-kernel")

NOT_IN_GUIDE: Fact[Any] = unreadable(OF_A_GUIDE, "not in the guide")


def build_stack(state: EnvironmentState, packages: dict[str, ResolvedPackage] | None = None) -> Stack:
    """The environment as a stack. `packages` replaces the packages of the state."""
    packages = state.packages if packages is None else packages
    distributions = {
        name: Distribution(name=name, version=_installed_version(package), source=package.wheel or package.origin)
        for name, package in packages.items()
        if package.version and not _is_client_of_sglang(package, packages)
    }
    return Stack(
        origin=OF_A_GUIDE,
        kind=known("conda" if state.tool == "conda" else "venv" if state.tool else "system", OF_A_GUIDE),
        python=NOT_IN_GUIDE,
        python_version=known(state.python, OF_A_GUIDE) if state.python else NOT_IN_GUIDE,
        headers=NOT_IN_GUIDE,
        distributions=known(distributions, OF_A_GUIDE),
        shadowed=NOT_IN_GUIDE,
        torch=_build_torch(packages["torch"]) if "torch" in packages else absent(OF_A_GUIDE),
        extensions=NOT_IN_GUIDE,
        cuda_available=NOT_IN_GUIDE,
        uses=known((), OF_A_GUIDE),
    )


def _is_client_of_sglang(package: ResolvedPackage, packages: dict[str, ResolvedPackage]) -> bool:
    """Whether SGLang is installed without its engine, whose requirements the tables contain."""
    has_engine = any(name in packages for name in _OF_SGLANG_ENGINE)
    return package.name == "sglang" and not has_engine and satisfies(package.version, _SGLANG_WITH_EXTRA) is True


def _installed_version(package: ResolvedPackage) -> str:
    """The version with the build, as pip lists a torchvision of the PyTorch index: `0.23.0+cpu`.

    For CUDA where a requirement names it: `torchvision==0.23.0+cu126`.
    """
    if package.name not in COMPANIONS or not package.cuda or "+" in package.version:
        return package.version
    build = "cpu" if package.cuda == "cpu" else f"cu{package.cuda.replace('.', '')}"
    is_named = package.reason.endswith(f"+{build}")
    return f"{package.version}+{build}" if build == "cpu" or is_named else package.version


def _build_torch(torch: ResolvedPackage) -> Fact[TorchBuild]:
    version, cuda = torch.version, NOT_IN_GUIDE
    local = ""
    if torch.cuda == "cpu":
        local, cuda = "+cpu", absent(OF_A_GUIDE)
    elif torch.cuda:
        local, cuda = f"+cu{torch.cuda.replace('.', '')}", known(torch.cuda, OF_A_GUIDE)
    if "+" not in version:
        version += local
    facts = {"cuda": cuda, "hip": absent(OF_A_GUIDE), "cxx11_abi": _cxx11_abi(torch)}
    return known(_record(TorchBuild, version=known(version, OF_A_GUIDE), **facts), OF_A_GUIDE)


def _cxx11_abi(torch: ResolvedPackage) -> Fact[bool]:
    if torch.origin in (IMAGE_ORIGIN, "conda") or satisfies(torch.version, "==2.6.*"):
        return NOT_IN_GUIDE
    return known(bool(satisfies(torch.version, ">=2.7")), "PyTorch's builds: the new C++ ABI from 2.7, on PyPI")


def build_machine(trace: GuideTrace) -> Machine:
    """The machine of a guide: its architecture and driver. All other facts are unreadable."""
    driver = {"version": known(trace.driver, OF_A_GUIDE)} if trace.driver else {}
    return Machine(
        origin=OF_A_GUIDE,
        system=_record(System, architecture=known(trace.platform, OF_A_GUIDE), wsl=absent(OF_A_GUIDE)),
        memory=_record(Memory),
        storage=_record(Storage),
        limits=_record(Limits),
        pythons=NOT_IN_GUIDE,
        driver=_record(Driver, **driver),
        gpus=NOT_IN_GUIDE,
        cuda=_record(CudaToolkit),
        environment=NOT_IN_GUIDE,
        interfaces=NOT_IN_GUIDE,
        slurm=NOT_IN_GUIDE,
    )


def with_toolkit(machine: Machine, state: EnvironmentState) -> Machine:
    """The machine with the CUDA toolkit of the image, or the one that a step installs."""
    version = next((text for text in (state.toolkit, state.image_cuda) if text not in ("", "?")), "")
    if not version or machine.cuda.nvcc_version.value:
        return machine
    return replace(machine, cuda=replace(machine.cuda, nvcc_version=known(version, OF_A_GUIDE)))


def _record(kind: type[R], **facts: Any) -> R:
    """A record with these facts. All others are not in the guide."""
    return kind(**dict.fromkeys(kind.__struct_fields__, NOT_IN_GUIDE) | facts)
