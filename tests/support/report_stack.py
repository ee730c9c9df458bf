"""Machines and environments for tests: from a pasted report, and read from this machine."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from support.remedies import commands_of

from envdoctor.core.records import (
    CudaToolkit,
    Distribution,
    Driver,
    Extension,
    Fact,
    Finding,
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

UNREPORTED: Fact[Any] = unreadable("report", "not in the report")


def reported(value: Any) -> Fact[Any]:
    """A fact of a report; None: the report does not contain it."""
    return UNREPORTED if value is None else known(value, "report")


def make_gpu(index: int, name: str, **facts: Fact[Any]) -> Gpu:
    """A GPU as a report names it: a name, a compute capability, and these facts."""
    fields = {field: UNREPORTED for field in Gpu.__struct_fields__ if field != "index"}
    capability = reported(compute_capability(name))
    return Gpu(index=index, **(fields | {"name": reported(name), "compute_capability": capability} | facts))


def make_machine(
    gpus: list[str] | list[Gpu] | None = None, *, driver: str | None = None, driver_cuda: str | None = None,
    os: str | None = "Ubuntu 22.04.4 LTS", kernel: str | None = "6.8.0-59-generic", glibc: str | None = "2.35",
    arch: str = "x86_64", nvcc: str | None = None, gcc: str | None = None, container: str | None = None,
    wsl: bool = False, environment: dict[str, str] | None = None, source: str = "report", **replaced: Any,
) -> Machine:  # fmt: skip
    """A machine of a report; `gpus` None: the report contains none."""
    cards = [make_gpu(i, each) if isinstance(each, str) else each for i, each in enumerate(gpus or [])]
    fields: dict[str, Any] = {
        "system": System(
            architecture=reported(arch), os=reported(os), kernel=reported(kernel), glibc=reported(glibc),
            cpu_model=UNREPORTED, cpu_count=UNREPORTED, container=reported(container),
            wsl=reported(kernel) if wsl else absent(source),
        ),
        "memory": Memory(total=UNREPORTED, available=UNREPORTED, cgroup_limit=UNREPORTED),
        "storage": Storage(places=UNREPORTED),
        "limits": Limits(open_files=UNREPORTED, processes=UNREPORTED, locked_memory=UNREPORTED, stack=UNREPORTED),
        "pythons": UNREPORTED,
        "driver": Driver(version=reported(driver), library=UNREPORTED, cuda=reported(driver_cuda), module=UNREPORTED),
        "gpus": known(tuple(cards), source) if cards else absent(source, "No CUDA"),
        "cuda": CudaToolkit(nvcc=UNREPORTED, nvcc_version=reported(nvcc), cuda_home=UNREPORTED,
                            ptxas_version=UNREPORTED, compiler=reported(gcc)),
        "environment": reported(environment),
        "interfaces": UNREPORTED,
        "slurm": UNREPORTED,
    }  # fmt: skip
    return Machine(**(fields | replaced))


def make_stack(
    torch: str | None = None, *, cuda: str | None = None, python: str = "3.12.11", available: bool | None = True,
    uses: tuple[str, ...] = (), packages: dict[str, str] | None = None, source: str = "report",
    architectures: tuple[str, ...] | None = None, extensions: tuple[Extension, ...] | None = None,
    hip: str | None = None, shadowed: tuple[Distribution, ...] | None = None, headers: bool | None = None,
    distributions: tuple[Distribution, ...] = (), cuda_unread: bool = False, requested: dict[str, str] | None = None,
) -> Stack:  # fmt: skip
    """An environment of a report, or of files with another `source`."""
    fact = lambda value: UNREPORTED if value is None else known(value, source)  # noqa: E731
    build = TorchBuild(
        version=fact(torch),
        cuda=fact(cuda) if cuda else UNREPORTED if cuda_unread else absent(source),
        hip=fact(hip) if hip else absent(source),
        cxx11_abi=UNREPORTED,
        architectures=fact(architectures),
    )
    listed = {name: Distribution(name=name, version=text) for name, text in (packages or {}).items()}
    listed |= {each.name: each for each in distributions}
    return Stack(
        kind=UNREPORTED, python=UNREPORTED, python_version=fact(python), headers=fact(headers),
        distributions=known(listed, source), shadowed=fact(shadowed),
        torch=known(build, source) if torch else absent(source),
        extensions=fact(extensions),
        cuda_available=reported(available), uses=known(uses, source), requested=fact(requested),
    )  # fmt: skip


def torch_stack(version: str = "2.8.0+cu128", **fields: Any) -> Stack:
    """An environment of a report with this torch; the local version gives its CUDA."""
    local = version.partition("+cu")[2]
    return make_stack(version, cuda=f"{local[:-1]}.{local[-1]}" if local else None, **fields)


def file_stack(version: str = "2.8.0+cu128", packages: dict[str, str] | None = None, **fields: Any) -> Stack:
    """The same environment, read from files."""
    return torch_stack(version, source="files", available=None, packages=packages, **fields)


def pinned_stack(text: str) -> Stack:
    """A pasted list, `torch 2.8.0, vllm 0.10.2`, without a torch build. The later of two versions is used."""
    named = dict(part.split() for part in text.split(","))
    return make_stack(named.get("torch"), packages=named)


def local_machine(gpus: list[str] | None = None, **facts: Any) -> Machine:
    """A machine that was examined directly, not one of a report."""
    return msgspec.structs.replace(make_machine(gpus, source="NVML", driver="580.95.05"), **facts)


def make_toolkit(**facts: str) -> CudaToolkit:
    """A CUDA toolkit with these facts; all others are absent."""
    fields = {
        name: known(facts[name], "PATH") if name in facts else absent("PATH")
        for name in CudaToolkit.__struct_fields__
    }
    return CudaToolkit(**fields)


def with_variables(machine: Machine, **values: str) -> Machine:
    """The machine with these environment variables."""
    return msgspec.structs.replace(machine, environment=known(values, "environment"))


def failing_nvml(note: str, container: str | None = "docker", source: str = "nvmlInit") -> Machine:
    """A machine whose NVML fails."""
    machine = make_machine(None, container=container)
    system = msgspec.structs.replace(
        machine.system, container=known(container, "file") if container else absent("file")
    )
    return msgspec.structs.replace(machine, gpus=unreadable(source, note), system=system)


def with_memory(machine: Machine, total: int) -> Machine:
    """The machine with this much memory, in bytes."""
    sizes = Memory(
        total=known(total, "meminfo"), available=known(total, "meminfo"), cgroup_limit=absent("memory.max")
    )
    return msgspec.structs.replace(machine, memory=sizes)


class Case(NamedTuple):
    """A rule with the subjects that it must report, and the same subjects with one fact changed."""

    rule: str
    status: str
    sees: tuple[Machine, Stack]
    misses: tuple[Machine, Stack]

    def findings(self) -> list[Finding]:
        """What the rule reports for the subjects."""
        return [finding for finding in evaluate(*self.sees) if finding.id == self.rule]

    def check(self) -> None:
        """The rule reports the problem once with all fields, and nothing for the other subjects."""
        of_both = [evaluate(*self.sees), evaluate(*self.misses)]
        assert [each for findings in of_both for each in findings if each.status == "crashed"] == []
        spoken, silent = ([each for each in findings if each.id == self.rule] for findings in of_both)
        assert [each.status for each in spoken] == [self.status]
        (finding,) = spoken
        assert finding.cause == RULES[self.rule].cause
        assert finding.message
        assert finding.evidence
        assert finding.fix
        assert "None" not in f"{finding.message} {finding.fix} {commands_of(finding)}"
        if self.status != "info":
            assert commands_of(finding)
        assert [each.message for each in silent] == []


# Families of the rules on builds and machines; rules on packages have their own tests.
FAMILIES = ("TORCH", "EXT", "CUDA", "PY", "DRV", "GPU", "HOST", "ENV")


def error_causes(machine: Machine, stack: Stack) -> set[str]:
    """Causes of the errors and warnings."""
    found = [finding for finding in evaluate(machine, stack) if finding.id.startswith(FAMILIES)]
    assert [finding for finding in found if finding.status == "crashed"] == []
    return {finding.cause for finding in found if finding.status in ("error", "warning")}
