"""Rules on single GPUs: health, modes, and other processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from envdoctor.core.records import Evidence, Fact, Gpu, Machine
from envdoctor.core.remedies import steps
from envdoctor.rules.driver_remedies import LIST_PROCESSES, for_gpu, on_host, start_fabric_manager
from envdoctor.rules.facts import gpus_of, is_reported, require_value
from envdoctor.rules.registry import Problem, evidence, rule

GIB = 1 << 30
BAD_THROTTLES = {"hw-slowdown", "hw-thermal", "hw-power-brake", "sw-thermal"}
BUSY_SHARE = 0.05  # of a GPU's memory, used by other processes


def _at_temperature(gpu: Gpu) -> str:
    return "" if gpu.temperature.value is None else f" at {gpu.temperature.value} °C"


def _label(gpu: Gpu) -> str:
    return f"GPU {gpu.index} ({gpu.name.value or 'unknown name'})"


def _shown(gpu: Gpu, name: str) -> Evidence:
    fact: Fact[Any] = getattr(gpu, name)
    return evidence(f"gpus.{gpu.index}.{name}", fact)


@rule("GPU001", kind="machine", severity="error", cause="ecc-or-xid")
def gpu_is_lost(machine: Machine) -> Iterator[Problem]:
    """A GPU has fallen off the bus or requires a reset (NVML errors 15 and 16, Xid 79).

    Software cannot fix it. Drain the machine, reset the GPU or power-cycle the machine, and replace the card if the
    error returns.

    Fix: reset the GPU or power-cycle the machine.

    References:
    https://docs.nvidia.com/deploy/gpu-debug-guidelines/index.html
    """
    for gpu in gpus_of(machine):
        note = gpu.name.note or gpu.memory_total.note
        if any(f"NVML error {code}:" in note for code in (15, 16)):
            yield Problem(
                "error",
                f"GPU {gpu.index} is not available: {note}",
                (_shown(gpu, "name"), _shown(gpu, "memory_total")),
                f"Stop its processes, then reset the GPU{on_host(machine)} or power-cycle the machine; replace a "
                "rented one.",
                for_gpu(gpu, "sudo dmesg | grep -i xid | tail", "sudo nvidia-smi --gpu-reset -i {gpu}"),
            )


@rule("GPU002", kind="machine", severity="error", cause="ecc-or-xid")
def memory_has_uncorrected_errors(machine: Machine) -> Iterator[Problem]:
    """The GPU's memory has had errors since the last reset that ECC could not correct. Results are unreliable.

    Fix: reset the GPU to remap the bad rows; replace the card if errors return.

    References:
    https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html
    """
    for gpu in gpus_of(machine):
        if gpu.ecc_uncorrected.value:
            yield Problem(
                "error",
                f"{_label(gpu)}: {gpu.ecc_uncorrected.value} uncorrectable ECC errors since the last reset",
                (_shown(gpu, "ecc_uncorrected"),),
                f"Stop its processes and reset the GPU{on_host(machine)}, which remaps the bad rows; replace it if "
                "errors return.",
                for_gpu(
                    gpu, "nvidia-smi -q -d ECC,ROW_REMAPPER,PIDS -i {gpu}", "sudo nvidia-smi --gpu-reset -i {gpu}"
                ),
            )


@rule("GPU003", kind="machine", severity=("error", "warning"), cause="ecc-or-xid")
def row_remapping_is_pending_or_failed(machine: Machine) -> Iterator[Problem]:
    """Bad memory rows are remapped at the next reset (pending), or no spare rows are left for them (failed).

    Fix: reset the GPU, or replace it if the remapping failed.

    References:
    https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html
    """
    for gpu in gpus_of(machine):
        rows = gpu.remapped_rows.value
        if rows and rows.failed:
            yield Problem(
                "error",
                f"{_label(gpu)}: row remapping failed because no spare rows are left",
                (_shown(gpu, "remapped_rows"),),
                "Replace the GPU.",
                for_gpu(gpu, "nvidia-smi -q -d ROW_REMAPPER -i {gpu}"),
            )
        elif rows and rows.pending:
            yield Problem(
                "warning",
                f"{_label(gpu)}: row remapping is pending until a reset",
                (_shown(gpu, "remapped_rows"),),
                f"Stop its processes and reset the GPU{on_host(machine)} before a long run.",
                for_gpu(gpu, "nvidia-smi -q -d ROW_REMAPPER,PIDS -i {gpu}", "sudo nvidia-smi --gpu-reset -i {gpu}"),
            )


@rule("GPU004", kind="machine", severity=("warning", "info"), cause="mig-or-compute-mode")
def mig_is_enabled(machine: Machine) -> Iterator[Problem]:
    """MIG divides the GPU into instances. CUDA uses at most one instance, and none if none has been created.

    Multi-GPU runs, NCCL and tensor parallelism do not work over MIG instances, and vLLM does not accept the UUID of
    one.

    Fix: select an instance, preferably in a container that has only this one, or disable MIG to use the full GPU.

    References:
    https://docs.nvidia.com/datacenter/tesla/mig-user-guide/
    https://github.com/vllm-project/vllm/issues/41848
    """
    for gpu in gpus_of(machine):
        if gpu.mig.value:
            shown = f" ({gpu.mig.note})" if gpu.mig.note else ""
            usable = is_reported(machine.gpus) and gpu.mig.note.startswith("instances")
            yield Problem(
                "info" if usable else "warning",
                f"{_label(gpu)}: MIG is enabled{shown}, a process can use one instance at most",
                (_shown(gpu, "mig"),),
                "Set CUDA_VISIBLE_DEVICES to the UUID of one instance, or disable MIG, which removes its instances, "
                "to use the full GPU.",
                (
                    *steps("nvidia-smi -L"),
                    *for_gpu(gpu, "sudo nvidia-smi mig -lgi -i {gpu}", "sudo nvidia-smi -i {gpu} -mig 0"),
                ),
            )


@rule("GPU005", kind="machine", severity=("error", "warning"), cause="mig-or-compute-mode", url="")
def compute_mode_restricts_processes(machine: Machine) -> Iterator[Problem]:
    """The compute mode permits no process (`prohibited`) or only one (`exclusive-process`) on the GPU.

    A trainer and a vLLM server then cannot share it.

    Fix: `nvidia-smi -c DEFAULT`.

    References:
    https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
    """
    for gpu in gpus_of(machine):
        mode = gpu.compute_mode.value
        if mode and mode != "default":
            yield Problem(
                "error" if mode == "prohibited" else "warning",
                f"{_label(gpu)}: compute mode is {mode}",
                (_shown(gpu, "compute_mode"),),
                f"Set the compute mode{on_host(machine)} to default.",
                for_gpu(gpu, "sudo nvidia-smi -i {gpu} -c DEFAULT"),
            )


@rule("GPU006", kind="machine", severity="warning", cause="gpu-throttled")
def gpu_clocks_are_throttled(machine: Machine) -> Iterator[Problem]:
    """The hardware currently reduces the clocks because of heat or the power supply.

    A power cap under load is normal and not reported.

    Fix: check cooling and power supply; replace a rented machine.

    References:
    https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html
    """
    for gpu in gpus_of(machine):
        reasons = sorted(BAD_THROTTLES.intersection(gpu.throttle_reasons.value or ()))
        if reasons:
            yield Problem(
                "warning",
                f"{_label(gpu)}: clocks are reduced ({', '.join(reasons)}){_at_temperature(gpu)}",
                (_shown(gpu, "throttle_reasons"), _shown(gpu, "clocks"), _shown(gpu, "temperature")),
                "Check cooling and power supply; replace a rented machine, because every training step will be slow.",
                for_gpu(gpu, "nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER -i {gpu}"),
            )


@rule("GPU007", kind="machine", severity=("warning", "info"), cause="gpu-oom", url="")
def other_processes_use_gpu_memory(machine: Machine) -> Iterator[Problem]:
    """Other processes use memory of the GPU. vLLM does not start if its share of the memory is not free.

    Fix: end leftover processes, or use another GPU.

    References:
    https://docs.vllm.ai/en/latest/configuration/conserving_memory/
    """
    for gpu in gpus_of(machine):
        total, used = gpu.memory_total.value, gpu.memory_used.value
        processes = gpu.processes.value or ()
        if total and used and processes and used > BUSY_SHARE * total:
            users = ", ".join(
                f"process {p.pid}" + (f" {p.memory / GIB:.1f} GiB" if p.memory else "") for p in processes
            )
            yield Problem(
                "info" if is_reported(gpu.processes) else "warning",  # a report does not contain their owners
                f"{_label(gpu)}: {used / GIB:.1f} of {total / GIB:.1f} GiB are in use by {users}",
                (_shown(gpu, "memory_used"), _shown(gpu, "processes")),
                "End leftover processes, or use another GPU.",
                steps(f"ps -o pid,user,etime,args -p {','.join(str(p.pid) for p in processes)}"),
            )


@rule("GPU008", kind="machine", severity="error", cause="fabric-manager")
def fabric_is_not_ready(machine: Machine) -> Iterator[Problem]:
    """The GPU has not joined the NVSwitch fabric: CUDA fails with error 802, "system not yet initialized".

    The fabric manager is not running, or its version differs from the driver's.

    Fix: install and start the fabric manager of exactly the driver's version.

    References:
    https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/
    """
    for gpu in gpus_of(machine):
        fabric = gpu.fabric.value
        if fabric and fabric.state in ("not started", "in progress"):
            fix, remedies = start_fabric_manager(machine)
            yield Problem(
                "error",
                f"{_label(gpu)}: joining the NVSwitch fabric: {fabric.state}",
                (_shown(gpu, "fabric"),),
                fix,
                remedies,
            )
        elif fabric and fabric.state == "completed" and fabric.status:
            yield Problem(
                "error",
                f"{_label(gpu)}: joining the NVSwitch fabric failed with NVML status {fabric.status}",
                (_shown(gpu, "fabric"),),
                "Read the log of the fabric manager, and restart it when no process uses the GPUs.",
                steps(
                    "sudo tail -50 /var/log/fabricmanager.log",
                    LIST_PROCESSES,
                    "sudo systemctl restart nvidia-fabricmanager",
                ),
            )


@rule("GPU009", kind="machine", severity="warning", cause="ecc-or-xid", url="")
def nvlink_is_down(machine: Machine) -> Iterator[Problem]:
    """Some NVLinks of a GPU are inactive, which reduces the speed of all-reduce.

    Fix: reset the GPU; if the links stay inactive, a card, bridge or cable is faulty.

    References:
    https://docs.nvidia.com/deploy/gpu-debug-guidelines/index.html
    """
    for gpu in gpus_of(machine):
        link = gpu.nvlink.value
        if link and link.active < link.links:
            yield Problem(
                "warning",
                f"{_label(gpu)}: {link.active} of {link.links} NVLinks are active",
                (_shown(gpu, "nvlink"),),
                "Check which links are down; reset the GPU, or check card and cable.",
                for_gpu(gpu, "nvidia-smi nvlink --status -i {gpu}"),
            )


@rule("GPU010", kind="machine", severity="info", cause="gpu-throttled", url="")
def pcie_link_is_narrow(machine: Machine) -> Iterator[Problem]:
    """The PCIe link has fewer lanes than card and slot support. Unlike its speed, the width does not drop when idle.

    Fix: use another slot or riser.

    References:
    https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
    """
    for gpu in gpus_of(machine):
        link = gpu.pcie.value
        if link and 0 < link.width < link.max_width:
            yield Problem(
                "info",
                f"{_label(gpu)}: PCIe runs x{link.width} of x{link.max_width}",
                (_shown(gpu, "pcie"),),
                "Loading and offloading are slower; check slot and riser.",
                for_gpu(gpu, "nvidia-smi -q -i {gpu} | grep -A8 'Link Width'"),
            )


@rule("GPU011", kind="machine", severity="unknown", cause="no-nvidia-gpu", url="")
def gpus_are_unreadable(machine: Machine) -> Iterator[Problem]:
    """The list of GPUs could not be read, so the rules on GPUs cannot be evaluated.

    Fix: see DRV005.

    References:
    https://docs.nvidia.com/deploy/nvml-api/
    """
    require_value("gpus", machine.gpus)
    yield from ()
