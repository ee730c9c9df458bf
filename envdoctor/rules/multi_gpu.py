"""Rules on several GPUs and on GPUs under load: peer access, order, links, ECC."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.core.records import Gpu, Machine, Stack
from envdoctor.core.remedies import steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.rules.driver_remedies import LIST_PROCESSES, for_gpu, on_host
from envdoctor.rules.facts import first_in_use, gpu_label, gpu_labels, gpus_of, model_of
from envdoctor.rules.registry import Problem, evidence, rule

BUSY_POWER = 0.5  # of the power limit; idle GPUs use less
SLOW_GENERATIONS = 2  # two generations lower is a quarter of the bandwidth


@rule(
    "GPU012",
    kind="machine",
    severity="info",
    cause="nccl-p2p-blocked",
    url="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-p2p-disable",
)
def consumer_gpus_have_no_peer_access(machine: Machine) -> Iterator[Problem]:
    """Several GeForce cards cannot access each other's memory over PCIe, because NVIDIA's driver does not support it.

    NCCL copies through host memory instead, which works but is slower. Old NCCL releases hung on RTX 4090 pairs,
    because the driver reported peer access that it did not support.

    Fix: usually nothing; set `NCCL_P2P_DISABLE=1` if a multi-GPU run hangs at its first collective.

    References:
    https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
    https://github.com/NVIDIA/nccl-tests/issues/117
    """
    gpus_without_peer_access = [gpu for gpu in gpus_of(machine) if (row := model_of(gpu)) and not row.has_peer_access]
    linked = any(gpu.nvlink.value and gpu.nvlink.value.active for gpu in gpus_without_peer_access)
    p2p_disabled = (machine.environment.value or {}).get("NCCL_P2P_DISABLE") == "1"
    if len(gpus_without_peer_access) > 1 and not linked and not p2p_disabled:
        yield Problem(
            "info",
            f"{gpu_labels(gpus_without_peer_access)} have no peer access over PCIe; NCCL copies through host memory",
            (evidence("gpus", machine.gpus),),
            "Disable peer access only if a multi-GPU run hangs.",
            steps("export NCCL_P2P_DISABLE=1"),
        )


@rule("GPU013", kind="environment", severity=("warning", "info"), cause="cuda-device-selection")
def gpu_order_is_ambiguous(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """The machine has different GPU models, and CUDA_DEVICE_ORDER is not set.

    CUDA numbers the fastest GPU first; nvidia-smi and NVML number by PCI bus. Number 0 can therefore be different
    cards. vLLM queries NVML about a GPU that it then uses through CUDA, and so checks the wrong card.

    Fix: CUDA_DEVICE_ORDER=PCI_BUS_ID.

    References:
    https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#env-vars
    """
    names = {gpu.name.value for gpu in gpus_of(machine) if gpu.name.value}
    if len(names) < 2 or (machine.environment.value or {}).get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
        return
    engine = first_in_use(stack, "vllm", "sglang", "ray")
    yield Problem(
        "warning" if engine and machine.environment.value is not None else "info",
        f"different GPU models ({', '.join(sorted(names))}), and CUDA_DEVICE_ORDER is not set"
        + (f": {engine} may use the wrong one" if engine else ""),
        (evidence("gpus", machine.gpus), evidence("environment", machine.environment)),
        "Make CUDA number the GPUs like nvidia-smi.",
        steps("export CUDA_DEVICE_ORDER=PCI_BUS_ID"),
    )


@rule("GPU014", kind="machine", severity=("warning", "info"), cause="gpu-throttled")
def pcie_is_slow_under_load(machine: Machine) -> Iterator[Problem]:
    """The PCIe link of a busy GPU runs at a lower generation than card and slot support.

    Idle links slow down to save power, so the rule only checks GPUs under load. Loading weights, offloading and host
    transfers are slower, and so is all-reduce on machines without NVLink.

    Fix: reseat the card or riser, and check the PCIe setting of the BIOS.

    References:
    https://docs.nvidia.com/deploy/nvml-api/
    """
    for gpu in gpus_of(machine):
        link = gpu.pcie.value
        if link and is_busy(gpu) and 0 < link.generation < link.max_generation:
            yield Problem(
                "warning" if link.max_generation - link.generation >= SLOW_GENERATIONS else "info",
                f"{gpu_label(gpu)} is under load at PCIe generation {link.generation} of {link.max_generation}",
                (evidence(f"gpus.{gpu.index}.pcie", gpu.pcie), evidence(f"gpus.{gpu.index}.power", gpu.power)),
                "Check slot, riser and BIOS setting; replace a rented machine.",
                for_gpu(gpu, "nvidia-smi -q -i {gpu} | grep -A12 'GPU Link Info'"),
            )


@rule("GPU015", kind="machine", severity="info", cause="ecc-or-xid")
def ecc_is_off_on_a_data_centre_gpu(machine: Machine) -> Iterator[Problem]:
    """ECC is disabled on a data-centre GPU: bit errors in its memory can corrupt weights and gradients unnoticed.

    Fix: enable ECC and reset the GPU, unless it was disabled on purpose to gain memory.

    References:
    https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html
    """
    off = [gpu for gpu in gpus_of(machine) if gpu.ecc.value is False and _is_data_centre(gpu)]
    names = [gpu.pci_bus.value or gpu.uuid.value for gpu in off]
    if off:
        yield Problem(
            "info",
            f"ECC is off on {gpu_labels(off)}",
            tuple(evidence(f"gpus.{gpu.index}.ecc", gpu.ecc) for gpu in off),
            f"Enable it{on_host(machine)} to detect memory errors, then stop the GPU's processes and reset it.",
            for_gpu(off[0], LIST_PROCESSES, *(
                shell_command(command, name)
                for command in ("sudo nvidia-smi -i {} -e 1", "sudo nvidia-smi -i {} --gpu-reset")
                for name in (names if all(names) else ["BUS_ID"])
            )),
        )  # fmt: skip


def is_busy(gpu: Gpu) -> bool:
    """Whether the GPU is under load, by its power."""
    return bool(gpu.power.value and gpu.power_limit.value and gpu.power.value > BUSY_POWER * gpu.power_limit.value)


def _is_data_centre(gpu: Gpu) -> bool:
    model = model_of(gpu)
    return bool(model and model.kind == "data-centre" and model.has_ecc)
