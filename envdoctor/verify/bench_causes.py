"""Why a measurement may be low: only what a fact speaks for, with the fact."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from envdoctor.core.records import Gpu
from envdoctor.knowledge.gpu_speeds import Measure
from envdoctor.knowledge.gpus import gpu_model
from envdoctor.verify.bench_records import LoadSummary

OFTEN = 0.2  # of the samples: what holds the clocks more seldom explains little
LOW_CLOCK = 0.8  # of the highest: below it a GPU without a power cap does not run under load
IN_USE = 1 << 30  # bytes on an idle GPU that the driver's own share does not explain
LANES = re.compile(r"gen (\d+) x(\d+) of gen (\d+) x(\d+)")

CLOCK_REASONS = {
    "power-cap": "the power cap{limit} held the clocks{clock}: nvidia-smi -q -d POWER",
    "sw-thermal": "heat held the clocks{clock}, at {heat}: cooling, dust, a full rack",
    "hw-thermal": "heat made the hardware halve the clocks{clock}, at {heat}: cooling has failed",
    "hw-slowdown": "the hardware slowed itself down{clock} (heat, or its power supply): nvidia-smi -q -d PERFORMANCE",
    "hw-power-brake": "the power supply told the GPU to brake{clock}: the machine's supply is at its limit",
    "applications-clocks": "the clocks are set to less than the GPU can do{clock}: nvidia-smi -rac; nvidia-smi -rgc",
    "sync-boost": "sync boost ties the clocks to a slower GPU{clock}",
}


def likely_causes(
    measure: Measure, gpu: Gpu, load: LoadSummary | None, versions: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """What may be behind a low number, the likeliest first. `gpu` was read before the measurements began."""
    found = [*_shared(gpu)]
    if measure == "gemm":
        found += _clocks(load)
    if measure == "memory":
        found += [*_memory(gpu), *_clocks(load)]
    if measure in ("h2d", "d2h"):
        found += _pcie(gpu, load)
    if measure in ("peer", "allreduce_64mb", "allreduce_1gb"):
        found += [*_links(gpu), *_transport(versions or {})]
    return tuple(found) or ("no fact that NVML tells speaks for a cause",)


def _shared(gpu: Gpu) -> Iterator[str]:
    """Somebody else on it, or only a slice of it."""
    if gpu.mig.value:
        yield "MIG is on: a slice of the GPU was measured, the numbers are for all of it"
    if processes := gpu.processes.value:
        pids = ", ".join(str(process.pid) for process in processes[:4])
        yield f"the GPU is shared: process {pids} ran on it before the measurement: nvidia-smi"
    elif (used := gpu.memory_used.value or 0) > IN_USE:
        yield f"the GPU is shared: {used / 2**30:.1f} GiB were in use before, by a process that is not seen from here"


def _clocks(load: LoadSummary | None) -> Iterator[str]:
    if load is None:
        return
    clock = f" at {load.sm_clock:.0f} of {load.max_sm_clock:.0f} MHz" if load.sm_clock and load.max_sm_clock else ""
    limit = f" of {load.power_limit:.0f} W" if load.power_limit else ""
    heat = f"{load.temperature:.0f} °C" if load.temperature is not None else "a temperature that it does not tell"
    told = [name for name in CLOCK_REASONS if load.throttle_reasons.get(name, 0) >= OFTEN]
    for name in told:
        share = f" (in {load.throttle_reasons[name]:.0%} of {load.samples} samples)"
        yield CLOCK_REASONS[name].format(limit=limit, clock=clock, heat=heat) + share
    if not told and load.sm_clock and load.max_sm_clock and load.sm_clock < LOW_CLOCK * load.max_sm_clock:
        yield f"the SM clock stayed{clock}, and no reason was told: nvidia-smi -q -d CLOCK,PERFORMANCE"


def _memory(gpu: Gpu) -> Iterator[str]:
    if count := gpu.ecc_uncorrected.value:
        yield f"the memory has {count} uncorrected errors since the last reset: nvidia-smi -q -d ECC"
    if (rows := gpu.remapped_rows.value) and (rows.pending or rows.failed):
        state = "could not be remapped" if rows.failed else "wait for a reset to be remapped"
        yield f"memory rows {state}: nvidia-smi -q -d ROW_REMAPPER"
    model = gpu_model(gpu.name.value or "")
    if gpu.ecc.value and model and model.capability in ("7.5", "8.6", "8.9", "12.0"):
        yield "ECC is on: on a GPU with GDDR memory it takes 6 to 12 % of the bandwidth"


def _pcie(gpu: Gpu, load: LoadSummary | None) -> Iterator[str]:
    """Links downshift at idle, so the link that counts is the one seen under load."""
    seen = LANES.search(load.pcie) if load else None
    if seen:
        generation, width, top, widest = map(int, seen.groups())
        if width < widest:
            yield f"the PCIe link has {width} of {widest} lanes: the slot, a riser, or dirt: lspci -vv"
        if generation < top:
            yield f"the PCIe link ran at generation {generation} of {top} under load: BIOS, riser: lspci -vv"
    if not seen and gpu.pcie.value is None:
        yield "the PCIe link is not told: a virtual machine may hide it"


def _links(gpu: Gpu) -> Iterator[str]:
    if (links := gpu.nvlink.value) and links.active < links.links:
        yield f"{links.active} of {links.links} NVLinks are active: nvidia-smi nvlink --status"
    if (fabric := gpu.fabric.value) and fabric.state in ("not started", "in progress"):
        yield f"the NVSwitch fabric is {fabric.state}: systemctl status nvidia-fabricmanager"


def _transport(versions: Mapping[str, str]) -> Iterator[str]:
    transport = versions.get("transport", "")
    if transport and "P2P" not in transport and "NVLS" not in transport:
        yield f"NCCL went by {transport}, not from GPU to GPU: NCCL_P2P_DISABLE, IOMMU or ACS: nvidia-smi topo -m"
    if versions.get("peer_access") == "no":
        yield "the GPUs cannot reach each other's memory: copies go through the host: nvidia-smi topo -p2p r"
