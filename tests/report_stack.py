"""Machines and stacks, built by hand: as a pasted report gives them, and as they are read on the spot."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from envdoctor.core.records import (
    CudaToolkit,
    Distribution,
    Driver,
    Extension,
    Fact,
    Gpu,
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
from envdoctor.knowledge.gpus import compute_capability
from envdoctor.rules import RULES, evaluate

UNSAID: Fact[Any] = unreadable("report", "not in the report")


def said(value: Any) -> Fact[Any]:
    """A fact of the report; None: the report does not say."""
    return UNSAID if value is None else known(value, "report")


def gpu_named(index: int, name: str, **facts: Fact[Any]) -> Gpu:
    fields = {field: UNSAID for field in Gpu.__struct_fields__ if field != "index"}
    capability = said(compute_capability(name))
    return Gpu(index=index, **(fields | {"name": said(name), "compute_capability": capability} | facts))


def machine_with(
    gpus: list[str] | list[Gpu] | None = None, *, driver: str | None = None, driver_cuda: str | None = None,
    os: str | None = "Ubuntu 22.04.4 LTS", kernel: str | None = "6.8.0-59-generic", glibc: str | None = "2.35",
    arch: str = "x86_64", nvcc: str | None = None, gcc: str | None = None, container: str | None = None,
    wsl: bool = False, environment: dict[str, str] | None = None, source: str = "report", **replaced: Any,
) -> Machine:  # fmt: skip
    """A machine of a report; `gpus` None: the report shows none."""
    cards = [gpu_named(i, each) if isinstance(each, str) else each for i, each in enumerate(gpus or [])]
    fields: dict[str, Any] = {
        "system": System(
            architecture=said(arch), os=said(os), kernel=said(kernel), glibc=said(glibc), cpu_model=UNSAID,
            cpu_count=UNSAID, container=said(container),
            wsl=said(kernel) if wsl else absent(source),
        ),
        "memory": Memory(total=UNSAID, available=UNSAID, cgroup_limit=UNSAID),
        "storage": Storage(places=UNSAID),
        "limits": Limits(open_files=UNSAID, processes=UNSAID, locked_memory=UNSAID, stack=UNSAID),
        "pythons": UNSAID,
        "driver": Driver(version=said(driver), library=UNSAID, cuda=said(driver_cuda), module=UNSAID),
        "gpus": known(tuple(cards), source) if cards else absent(source, "No CUDA"),
        "cuda": CudaToolkit(nvcc=UNSAID, nvcc_version=said(nvcc), cuda_home=UNSAID, ptxas_version=UNSAID,
                            compiler=said(gcc)),
        "environment": said(environment),
        "interfaces": UNSAID,
        "slurm": UNSAID,
    }  # fmt: skip
    return Machine(**(fields | replaced))


def stack_with(
    torch: str | None = None, *, cuda: str | None = None, python: str = "3.12.11", available: bool | None = True,
    uses: tuple[str, ...] = (), packages: dict[str, str] | None = None, source: str = "report",
    architectures: tuple[str, ...] | None = None, extensions: tuple[Extension, ...] | None = None,
    hip: str | None = None, shadowed: tuple[Distribution, ...] | None = None, headers: bool | None = None,
    distributions: tuple[Distribution, ...] = (), cuda_unread: bool = False,
) -> Stack:  # fmt: skip
    """A stack of a report; with `source` another word, one that was read from files."""
    fact = lambda value: UNSAID if value is None else known(value, source)  # noqa: E731
    build = TorchBuild(
        version=fact(torch),
        cuda=fact(cuda) if cuda else UNSAID if cuda_unread else absent(source),
        hip=fact(hip) if hip else absent(source),
        cxx11_abi=UNSAID,
        architectures=fact(architectures),
    )
    listed = {name: Distribution(name=name, version=text) for name, text in (packages or {}).items()}
    listed |= {each.name: each for each in distributions}
    return Stack(
        kind=UNSAID, python=UNSAID, python_version=fact(python), headers=fact(headers),
        distributions=known(listed, source), shadowed=fact(shadowed),
        torch=known(build, source) if torch else absent(source),
        extensions=fact(extensions),
        cuda_available=said(available), uses=known(uses, source),
    )  # fmt: skip


def torch(version: str = "2.8.0+cu128", **fields: Any) -> Stack:
    """A stack of a report with this torch, whose local part names its CUDA."""
    local = version.partition("+cu")[2]
    return stack_with(version, cuda=f"{local[:-1]}.{local[-1]}" if local else None, **fields)


def files(version: str = "2.8.0+cu128", packages: dict[str, str] | None = None, **fields: Any) -> Stack:
    """The same, read from files."""
    return torch(version, source="files", available=None, packages=packages, **fields)


def pins(text: str) -> Stack:
    """A pasted list, `torch 2.8.0, vllm 0.10.2`, without a torch build; of two versions the later one holds."""
    named = dict(part.split() for part in text.split(","))
    return stack_with(named.get("torch"), packages=named)


def live(gpus: list[str] | None = None, **facts: Any) -> Machine:
    """A machine that was looked at, not one of a report."""
    return msgspec.structs.replace(machine_with(gpus, source="NVML", driver="580.95.05"), **facts)


def toolkit(**facts: str) -> CudaToolkit:
    """CUDA's toolkit as it was read; what is not named is not there."""
    fields = {
        name: known(facts[name], "PATH") if name in facts else absent("PATH")
        for name in CudaToolkit.__struct_fields__
    }
    return CudaToolkit(**fields)


def variables(machine: Machine, **values: str) -> Machine:
    return msgspec.structs.replace(machine, environment=known(values, "environment"))


def failing(note: str, container: str | None = "docker", source: str = "nvmlInit") -> Machine:
    """A machine whose NVML fails."""
    machine = machine_with(None, container=container)
    system = msgspec.structs.replace(
        machine.system, container=known(container, "file") if container else absent("file")
    )
    return msgspec.structs.replace(machine, gpus=unreadable(source, note), system=system)


def memory(machine: Machine, total: int) -> Machine:
    sizes = Memory(
        total=known(total, "meminfo"), available=known(total, "meminfo"), cgroup_limit=absent("memory.max")
    )
    return msgspec.structs.replace(machine, memory=sizes)


class Case(NamedTuple):
    """A rule, what it must say of a machine and stack, and the near miss: the same with one fact changed."""

    rule: str
    status: str
    sees: tuple[Machine, Stack]
    misses: tuple[Machine, Stack]

    def check(self) -> None:
        """The rule speaks once, with all that a finding needs; of the near miss it says nothing; none crashes."""
        of_both = [evaluate(*self.sees), evaluate(*self.misses)]
        assert [each for findings in of_both for each in findings if each.status == "crashed"] == []
        spoken, silent = ([each for each in findings if each.id == self.rule] for findings in of_both)
        assert [each.status for each in spoken] == [self.status]
        (finding,) = spoken
        assert finding.cause == RULES[self.rule].cause
        assert finding.message
        assert finding.evidence
        assert finding.fix
        assert "None" not in f"{finding.message} {finding.fix} {finding.commands}"
        if self.status != "info":
            assert finding.commands
        assert [each.message for each in silent] == []


# Families of the rules on builds and machines; what others say of the packages is tested elsewhere.
FAMILIES = ("TORCH", "EXT", "CUDA", "PY", "DRV", "GPU", "HOST", "ENV")


def bad(machine: Machine, stack: Stack) -> set[str]:
    """Causes of the errors and warnings."""
    found = [finding for finding in evaluate(machine, stack) if finding.id.startswith(FAMILIES)]
    assert [finding for finding in found if finding.status == "crashed"] == []
    return {finding.cause for finding in found if finding.status in ("error", "warning")}
