"""Possible causes of a low measurement. Each is supported by a fact, which its text contains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Gpu
from envdoctor.knowledge.gpu_speeds import Measure
from envdoctor.knowledge.gpus import gpu_model
from envdoctor.verify.bench_records import LoadSummary

MIN_THROTTLED_SHARE = 0.2  # of the samples; rarer throttling has little effect
LOW_CLOCK = 0.8  # of the highest clock; a GPU without a power cap runs above it under load
IN_USE_BYTES = 1 << 30  # on an idle GPU; the driver itself uses less
PCIE_LINK = lazy_pattern(r"gen (\d+) x(\d+) of gen (\d+) x(\d+)")

CLOCK_REASONS = {
    "power-cap": "the power cap{limit} limited the clocks{clock}: nvidia-smi -q -d POWER",
    "sw-thermal": "the temperature limited the clocks{clock}, at {heat}: check the cooling",
    "hw-thermal": "the hardware halved the clocks{clock}, at {heat}: the cooling has failed",
    "hw-slowdown": "the hardware reduced the clocks{clock} (temperature or power): nvidia-smi -q -d PERFORMANCE",
    "hw-power-brake": "the power supply requested lower clocks{clock}: it is at its limit",
    "applications-clocks": "the clocks are configured below the maximum{clock}: nvidia-smi -rac; nvidia-smi -rgc",
    "sync-boost": "sync boost limits the clocks to those of a slower GPU{clock}",
}


def likely_causes(
    measure: Measure, gpu: Gpu, load: LoadSummary | None, versions: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Possible causes of a low value, the likeliest first. `gpu` was read before the measurements."""
    causes = [*_shared_gpu(gpu)]
    if measure in ("gemm_burst", "gemm"):
        causes += _clocks(load)
    if measure == "memory":
        causes += [*_memory(gpu), *_clocks(load)]
    if measure in ("h2d", "d2h"):
        causes += _pcie(gpu, load)
    if measure in ("peer", "allreduce_64mb", "allreduce_1gb"):
        causes += [*_links(gpu), *_transport(versions or {})]
    return tuple(causes) or ("no NVML fact indicates a cause",)


def _shared_gpu(gpu: Gpu) -> Iterator[str]:
    """Another process uses the GPU, or only a MIG slice was measured."""
    if gpu.mig.value:
        yield "MIG is enabled: a slice of the GPU was measured, the expected speeds are for the full GPU"
    if processes := gpu.processes.value:
        pids = ", ".join(str(process.pid) for process in processes[:4])
        yield f"the GPU is shared: process {pids} ran on it before the measurement: nvidia-smi"
    elif (used := gpu.memory_used.value or 0) > IN_USE_BYTES:
        size = f"{used / 2**30:.1f} GiB"
        yield f"the GPU is shared: {size} were in use before the measurement, by a process that is not visible"


def _clocks(load: LoadSummary | None) -> Iterator[str]:
    if load is None:
        return
    clock = f" at {load.sm_clock:.0f} of {load.max_sm_clock:.0f} MHz" if load.sm_clock and load.max_sm_clock else ""
    limit = f" of {load.power_limit:.0f} W" if load.power_limit else ""
    heat = f"{load.temperature:.0f} °C" if load.temperature is not None else "an unknown temperature"
    reasons = [name for name in CLOCK_REASONS if load.throttle_reasons.get(name, 0) >= MIN_THROTTLED_SHARE]
    for name in reasons:
        share = f" (in {load.throttle_reasons[name]:.0%} of {load.samples} samples)"
        yield CLOCK_REASONS[name].format(limit=limit, clock=clock, heat=heat) + share
    if not reasons and load.sm_clock and load.max_sm_clock and load.sm_clock < LOW_CLOCK * load.max_sm_clock:
        yield f"the SM clock stayed{clock} for an unknown reason: nvidia-smi -q -d CLOCK,PERFORMANCE"


def is_only_power_capped(load: LoadSummary | None) -> bool:
    """Whether the power limit reduced the clocks during a measurement, and nothing else did."""
    if load is None:
        return False
    reasons = {name for name in CLOCK_REASONS if load.throttle_reasons.get(name, 0) >= MIN_THROTTLED_SHARE}
    return reasons == {"power-cap"}


def _memory(gpu: Gpu) -> Iterator[str]:
    if count := gpu.ecc_uncorrected.value:
        yield f"the memory has {count} uncorrected errors since the last reset: nvidia-smi -q -d ECC"
    if (rows := gpu.remapped_rows.value) and (rows.pending or rows.failed):
        state = "could not be remapped" if rows.failed else "will be remapped at the next reset"
        yield f"memory rows {state}: nvidia-smi -q -d ROW_REMAPPER"
    model = gpu_model(gpu.name.value or "")
    if gpu.ecc.value and model and model.capability in ("7.5", "8.6", "8.9", "12.0"):
        yield "ECC is enabled: on a GPU with GDDR memory it costs 6 to 12 % of the bandwidth"


def _pcie(gpu: Gpu, load: LoadSummary | None) -> Iterator[str]:
    """Links slow down at idle, so only the link under load is checked."""
    link = PCIE_LINK.search(load.pcie) if load else None
    if link:
        generation, width, max_generation, max_width = map(int, link.groups())
        if width < max_width:
            yield f"the PCIe link has {width} of {max_width} lanes: check the slot and riser: lspci -vv"
        if generation < max_generation:
            speed = f"generation {generation} of {max_generation}"
            yield f"the PCIe link ran at {speed} under load: check the BIOS and riser: lspci -vv"
    if not link and gpu.pcie.value is None:
        yield "the PCIe link is unknown: a virtual machine may hide it"


def _links(gpu: Gpu) -> Iterator[str]:
    if (links := gpu.nvlink.value) and links.active < links.links:
        yield f"{links.active} of {links.links} NVLinks are active: nvidia-smi nvlink --status"
    if (fabric := gpu.fabric.value) and fabric.state in ("not started", "in progress"):
        yield f"the NVSwitch fabric is {fabric.state}: systemctl status nvidia-fabricmanager"


def _transport(versions: Mapping[str, str]) -> Iterator[str]:
    transport = versions.get("transport", "")
    if transport and "P2P" not in transport and "NVLS" not in transport:
        yield f"NCCL used {transport} instead of peer-to-peer: NCCL_P2P_DISABLE, IOMMU or ACS: nvidia-smi topo -m"
    if versions.get("peer_access") == "no":
        yield "the GPUs have no peer access, so copies go through the host: nvidia-smi topo -p2p r"
