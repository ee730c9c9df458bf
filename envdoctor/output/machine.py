"""Human output of a machine's facts, each with its value and source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from envdoctor.commands.gpus import GpuList
from envdoctor.core.records import Fact, Gpu, Machine
from envdoctor.output.text import Part, Text, facts_table, indent, table

T = TypeVar("T")
GIB = 1 << 30


def machine_tables(machine: Machine) -> list[Part]:
    """The host, the driver and toolkit, and each GPU."""
    title = machine.name or ("Reported machine" if machine.origin.startswith("report") else "This machine")
    return [
        Text.assemble((title, "title"), f"  {machine.origin}" if machine.origin else ""),
        _host(machine),
        Text("\nNVIDIA", style="title"),
        _nvidia(machine),
        *(part for gpu in machine.gpus.value or () for part in _gpu(gpu)),
    ]


def render_gpus(data: GpuList) -> list[Part]:
    """The GPUs of the catalogue."""
    rows = table("GPU", "memory", "GB/s", "capability", "formats", "driver")
    for gpu in data.gpus:
        name = Text.assemble((gpu.id, "title"), (f" {' '.join(gpu.aliases)}" if gpu.aliases else "", "dim"))
        memory = gib(gpu.memory_mib << 20) + (" of the system" if gpu.shares_system_memory else "")
        driver = f">= {gpu.oldest_driver}" if gpu.oldest_driver else "any"
        rows.add_row(name, memory, f"{gpu.bandwidth:g}", gpu.compute_capability, " ".join(gpu.formats), driver)
    return [
        rows,
        Text("\nSeveral GPUs: l4x2, h100-80gbx8. driver: of the first CUDA release for the GPU.", style="dim"),
    ]


def show(fact: Fact[T], render: Callable[[T], str] = str) -> Text:
    """The value of a fact, otherwise its state and note."""
    if fact.state == "known" and fact.value is not None:
        return Text(render(fact.value))
    style = "unknown" if fact.state == "unreadable" else "dim"
    return Text(f"{fact.state}" + (f": {fact.note}" if fact.note else ""), style=style)


def gib(size: int) -> str:
    """Bytes as GiB, below one GiB as MiB."""
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / (1 << 20):.0f} MiB"


def _host(machine: Machine) -> Part:
    table, system = facts_table(), machine.system
    rows: list[tuple[str, Fact[Any], Callable[..., str]]] = [
        ("architecture", system.architecture, str),
        ("system", system.os, str),
        ("kernel", system.kernel, str),
        ("glibc", system.glibc, str),
        ("processor", system.cpu_model, str),
        ("cores", system.cpu_count, str),
        ("memory", machine.memory.total, gib),
        ("available", machine.memory.available, gib),
        ("cgroup limit", machine.memory.cgroup_limit, gib),
        ("container", system.container, str),
        ("WSL", system.wsl, str),
        ("SLURM", machine.slurm, _pairs),
        ("open files", machine.limits.open_files, _limit),
        ("processes", machine.limits.processes, _limit),
        ("locked memory", machine.limits.locked_memory, _memory_limit),
        ("stack", machine.limits.stack, _memory_limit),
    ]
    for name, fact, render in rows:
        if fact.state == "absent" and name in ("cgroup limit", "container", "WSL", "SLURM"):
            continue
        table.add_row(name, show(fact, render), fact.source)
    for role, place in (machine.storage.places.value or {}).items():
        table.add_row(role, f"{gib(place.free)} free of {gib(place.total)}", place.path)
    for python in machine.pythons.value or ():
        table.add_row("Python", python.version + ("" if python.headers else ", no headers"), python.path)
    return indent(table, 2)


def _nvidia(machine: Machine) -> Part:
    table, driver, cuda = facts_table(), machine.driver, machine.cuda
    rows = [
        ("driver", driver.version),
        ("library", driver.library),
        ("CUDA of driver", driver.cuda),
        ("kernel module", driver.module),
        ("nvcc", cuda.nvcc),
        ("nvcc version", cuda.nvcc_version),
        ("ptxas", cuda.ptxas_version),
        ("CUDA_HOME", cuda.cuda_home),
        ("C compiler", cuda.compiler),
    ]
    for name, fact in rows:
        table.add_row(name, show(fact), fact.source)
    table.add_row("GPUs", show(machine.gpus, lambda gpus: str(len(gpus))), machine.gpus.source)
    for name, value in (machine.environment.value or {}).items():
        table.add_row(name, value if len(value) < 100 else f"{value[:100]}…", "environment")
    return indent(table, 2)


def _gpu(gpu: Gpu) -> list[Part]:
    table = facts_table()
    rows: list[tuple[str, Fact[Any], Callable[..., str]]] = [
        ("compute capability", gpu.compute_capability, str),
        ("memory", gpu.memory_total, gib),
        ("in use", gpu.memory_used, gib),
        ("ECC", gpu.ecc, _on),
        ("uncorrected errors", gpu.ecc_uncorrected, str),
        ("MIG", gpu.mig, _on),
        ("compute mode", gpu.compute_mode, str),
        ("clocks", gpu.clocks, lambda c: f"SM {c.sm} of {c.max_sm} MHz, memory {c.memory} MHz"),
        ("clocks limited by", gpu.throttle_reasons, lambda r: ", ".join(r) or "nothing"),
        ("temperature", gpu.temperature, lambda t: f"{t} °C"),
        ("power", gpu.power, lambda p: f"{p:.0f} W"),
        ("power limit", gpu.power_limit, lambda p: f"{p:.0f} W"),
        ("PCIe", gpu.pcie, lambda p: f"gen {p.generation} x{p.width} of gen {p.max_generation} x{p.max_width}"),
        ("NVLink", gpu.nvlink, lambda n: f"{n.active} of {n.links} links"),
        ("fabric", gpu.fabric, lambda f: f.state),
        ("C2C", gpu.c2c, _on),
        ("processes", gpu.processes, lambda ps: ", ".join(f"{p.pid} ({p.kind})" for p in ps) or "none"),
    ]
    for name, fact, render in rows:
        table.add_row(name, show(fact, render), fact.source)
    return [Text.assemble((f"\nGPU {gpu.index}  ", "title"), show(gpu.name)), indent(table, 2)]


def _on(value: bool) -> str:
    return "on" if value else "off"


def _limit(value: int) -> str:
    return "unlimited" if value < 0 else str(value)


def _memory_limit(value: int) -> str:
    return "unlimited" if value < 0 else gib(value)


def _pairs(values: dict[str, str]) -> str:
    return ", ".join(f"{name.removeprefix('SLURM_')}={value}" for name, value in values.items())
