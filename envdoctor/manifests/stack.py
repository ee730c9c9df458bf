"""What a guide ends up with, as the records of an installed stack and of a machine, so that all rules can judge
it.
"""

from __future__ import annotations

from typing import Any

from envdoctor.core.records import (
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
from envdoctor.manifests.choose import Chosen
from envdoctor.manifests.journey import Journey, State

# Rules treat it as a pasted list: versions are known, files are not.
SOURCE = "report of a guide"


def stack_of(state: State, packages: dict[str, Chosen] | None = None) -> Stack:
    """The environment as a stack; `packages` stand in for its own."""
    held = state.packages if packages is None else packages
    listed = {
        name: Distribution(name=name, version=each.version, source=each.label or each.origin)
        for name, each in held.items()
        if each.version
    }
    unsaid: Fact[Any] = unreadable(SOURCE, "not in the guide")
    kind: Fact[str] = known("conda" if state.tool == "conda" else "venv" if state.tool else "system", SOURCE)
    return Stack(
        origin=SOURCE,
        kind=kind,
        python=unsaid,
        python_version=known(state.python, SOURCE) if state.python else unsaid,
        headers=unsaid,
        distributions=known(listed, SOURCE),
        shadowed=unsaid,
        torch=_torch(held["torch"]) if "torch" in held else absent(SOURCE),
        extensions=unsaid,
        cuda_available=unsaid,
        uses=known((), SOURCE),
    )


def _torch(torch: Chosen) -> Fact[TorchBuild]:
    label = (
        f"+cu{torch.cuda.replace('.', '')}"
        if torch.cuda not in ("", "cpu")
        else "+cpu"
        if torch.cuda == "cpu"
        else ""
    )
    version = torch.version if "+" in torch.version else torch.version + label
    unsaid: Fact[Any] = unreadable(SOURCE, "not in the guide")
    cuda: Fact[str] = absent(SOURCE) if torch.cuda == "cpu" else known(torch.cuda, SOURCE) if torch.cuda else unsaid
    build = TorchBuild(
        version=known(version, SOURCE), cuda=cuda, hip=absent(SOURCE), cxx11_abi=_abi(torch), architectures=unsaid
    )
    return known(build, SOURCE)


def _abi(torch: Chosen) -> Fact[bool]:
    from envdoctor.knowledge.versions import satisfies

    if torch.origin in ("the container", "conda") or satisfies(torch.version, "==2.6.*"):
        return unreadable(SOURCE, "not in the guide")
    return known(bool(satisfies(torch.version, ">=2.7")), "PyTorch's builds: the new C++ ABI from 2.7, on PyPI")


def machine_of(journey: Journey) -> Machine:
    """The machine as far as a guide tells: its architecture and its driver."""
    unsaid: Fact[Any] = unreadable(SOURCE, "not in the guide")
    driver = known(journey.driver, SOURCE) if journey.driver else unsaid
    return Machine(
        origin=SOURCE,
        system=System(
            architecture=known(journey.platform, SOURCE),
            os=unsaid,
            kernel=unsaid,
            glibc=unsaid,
            cpu_model=unsaid,
            cpu_count=unsaid,
            container=unsaid,
            wsl=absent(SOURCE),
        ),
        memory=Memory(total=unsaid, available=unsaid, cgroup_limit=unsaid),
        storage=Storage(places=unsaid),
        limits=Limits(open_files=unsaid, processes=unsaid, locked_memory=unsaid, stack=unsaid),
        pythons=unsaid,
        driver=Driver(version=driver, library=unsaid, cuda=unsaid, module=unsaid),
        gpus=unsaid,
        cuda=CudaToolkit(nvcc=unsaid, nvcc_version=unsaid, cuda_home=unsaid, ptxas_version=unsaid, compiler=unsaid),
        environment=unsaid,
        interfaces=unsaid,
        slurm=unsaid,
    )
