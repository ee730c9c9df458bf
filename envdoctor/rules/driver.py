"""Rules on the NVIDIA driver: whether it is loaded, consistent and new enough."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.core.records import Machine, unreadable
from envdoctor.core.remedies import steps
from envdoctor.knowledge.cuda import cuda_releases
from envdoctor.knowledge.versions import dotted_numbers
from envdoctor.rules.driver_remedies import (
    container_of,
    load_driver,
    on_host,
    reload_driver,
    restart_container,
    start_container_with_gpus,
    upgrade_driver,
)
from envdoctor.rules.facts import is_reported
from envdoctor.rules.registry import NotReadableError, Problem, evidence, rule

UNKNOWN_ERROR = "NVML error 999"


@rule("DRV001", kind="machine", severity="error", cause="nvml-driver-library-mismatch")
def driver_and_library_differ(machine: Machine) -> Iterator[Problem]:
    """The loaded kernel module and the installed driver libraries have different versions.

    The driver was upgraded while the old module stayed loaded (NVML error 18, CUDA error 803). Every CUDA program
    fails until the new module is loaded.

    Fix: unload and load the modules while no process uses the GPUs, or reboot. In a container the module is that of
    the host: restart the container, and remove driver libraries from its image.

    References:
    https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html
    """
    module, library, container = machine.driver.version, machine.driver.library, container_of(machine)
    if _differ(module.value, library.value) or "NVML error 18" in machine.gpus.note:
        yield Problem(
            "error",
            f"kernel module {module.value or 'unknown'}, driver libraries {library.value or 'another version'}",
            (evidence("driver.version", module), evidence("driver.library", library), evidence("gpus", machine.gpus)),
            "Remove driver libraries from the image and restart the container: it mounts those of the host."
            if container
            else "Stop the programs that use the driver (also a desktop session and nvidia-persistenced), then load "
            f"the installed module; modinfo must print {library.value or 'the version of the libraries'}.",
            restart_container(container, "ldconfig -p | grep -E 'libcuda|libnvidia-ml'")
            if container
            else reload_driver(),
        )


@rule("DRV002", kind="machine", severity="error", cause="driver-not-loaded", url="")
def driver_is_not_loaded(machine: Machine) -> Iterator[Problem]:
    """The driver's libraries are installed, but the kernel module is not loaded (NVML error 9).

    Possible reasons: the module was not rebuilt after a kernel upgrade, Secure Boot rejected it, or it was not loaded
    at boot.

    Fix: `modprobe nvidia`; if that fails, rebuild the module with DKMS for the running kernel.

    References:
    https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/index.html
    """
    if "NVML error 9:" in machine.gpus.note:
        yield Problem(
            "error",
            "the NVIDIA libraries are installed, but the kernel module is not loaded",
            (evidence("gpus", machine.gpus), evidence("driver.version", machine.driver.version)),
            "Load the module" + (on_host(machine)) + "; if that fails, build it for the running kernel.",
            load_driver(),
        )


@rule("DRV003", kind="machine", severity="info", cause="no-nvidia-gpu", url="")
def machine_has_no_gpu(machine: Machine) -> Iterator[Problem]:
    """The machine has no NVIDIA driver and no GPU, so a CUDA environment cannot run. The CPU profile can.

    Fix: use the CPU profile, or another machine.

    References:
    https://docs.pytorch.org/docs/stable/notes/cuda.html
    """
    if machine.gpus.state == "absent" and not _requested_gpus(machine):
        yield Problem(
            "info",
            "no NVIDIA GPU",
            (evidence("gpus", machine.gpus),),
            "Use the CPU profile, or a machine with a GPU.",
            steps("envdoctor install cpu"),
        )


@rule("DRV004", kind="machine", severity="error", cause="container-no-gpu")
def container_lost_its_gpu(machine: Machine) -> Iterator[Problem]:
    """A container that requests GPUs has none.

    It was started without `--gpus all` (or the CDI device), or it lost the devices when systemd was reloaded on the
    host. This cannot be fixed inside the container.

    Fix: restart the container with GPUs, and configure the container toolkit on the host.

    References:
    https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html
    """
    if machine.gpus.state == "absent" and _requested_gpus(machine):
        yield Problem(
            "error",
            f"this container ({machine.system.container.value}) requests GPUs "
            f"(NVIDIA_VISIBLE_DEVICES={_requested_gpus(machine)}) and has none",
            (evidence("gpus", machine.gpus), evidence("system.container", machine.system.container)),
            "Start the container with GPUs. If that fails, configure the container toolkit on the host; a restart of "
            "Docker stops its containers.",
            start_container_with_gpus(container_of(machine)),
        )


@rule("DRV005", kind="machine", severity="error", cause="driver-not-loaded", url="")
def nvml_fails(machine: Machine) -> Iterator[Problem]:
    """NVML fails for a reason that no other rule covers: missing permissions, a timeout, or an unknown error.

    Fix: read the output of nvidia-smi and the kernel log; reboot if the driver hangs.

    References:
    https://docs.nvidia.com/deploy/xid-errors/index.html
    """
    note = machine.gpus.note
    other_rules = ("NVML error 18", "NVML error 9:")
    if UNKNOWN_ERROR in note and machine.system.container.value:
        return  # DRV014
    if (
        machine.gpus.state == "unreadable"
        and not is_reported(machine.gpus)
        and not any(error in note for error in other_rules)
    ):
        yield Problem(
            "error",
            f"the GPUs cannot be read: {note}",
            (evidence("gpus", machine.gpus), evidence("driver.version", machine.driver.version)),
            "Run nvidia-smi and read the kernel log; reboot if the driver hangs.",
            steps("nvidia-smi", "sudo dmesg | grep -iE 'nvrm|xid' | tail -20"),
        )


@rule("DRV006", kind="machine", severity="error", cause="driver-too-old")
def driver_is_older_than_cuda_12(machine: Machine) -> Iterator[Problem]:
    """The driver is older than every CUDA 12 build of torch requires, and current torch has no wheels for CUDA 11.

    CUDA fails with error 35 or "The NVIDIA driver on your system is too old", and torch then reports no GPU.

    Fix: install a newer driver; on a rented machine choose an image with one.

    References:
    https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
    """
    driver, oldest = machine.driver.version, cuda_releases()["12.0"].minimum
    if is_reported(driver):
        return  # TORCH004 compares it with the torch of the report
    if not (machine.gpus.value and driver.value):
        return
    if not (numbers := dotted_numbers(driver.value)):
        raise NotReadableError("driver.version", unreadable(driver.source, f"{driver.value[:40]!a} is not a version"))
    if numbers < dotted_numbers(oldest):
        fix, remedies = upgrade_driver(machine, oldest)
        yield Problem(
            "error",
            f"driver {driver.value}; CUDA 12 builds need {oldest} or newer",
            (evidence("driver.version", driver), evidence("driver.cuda", machine.driver.cuda)),
            fix,
            remedies,
        )


@rule("DRV014", kind="machine", severity=("error", "warning"), cause="container-no-gpu")
def container_lost_its_devices(machine: Machine) -> Iterator[Problem]:
    """NVML returns "Unknown Error" (999) in a container: the container has lost its GPUs.

    A `systemctl daemon-reload` on the host removes the devices from containers whose cgroups systemd manages. Package
    upgrades run it automatically. nvidia-smi still works on the host. This cannot be fixed inside the container.
    Outside of containers the same error is a driver problem, see DRV005.

    Fix: restart the container. To prevent it, use CDI devices, or Docker with `native.cgroupdriver=cgroupfs`.

    References:
    https://github.com/NVIDIA/nvidia-container-toolkit/issues/48
    https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html
    """
    container = machine.system.container
    maybe = is_reported(machine.gpus) and container.state == "unreadable"
    if UNKNOWN_ERROR not in machine.gpus.note or not (container.value or maybe):
        return
    yield Problem(
        "error" if container.value else "warning",
        f"{machine.gpus.note.partition(' (')[0]}: "
        + (f"this container ({container.value}) lost its GPUs" if container.value else "a container lost its GPUs"),
        (evidence("gpus", machine.gpus), evidence("system.container", container)),
        "Restart the container. To prevent it, use CDI devices of the container toolkit on the host, or set Docker's "
        "cgroup driver to cgroupfs.",
        restart_container(container.value or ""),
    )


def _differ(module: str | None, library: str | None) -> bool:
    """Whether two versions differ in the parts that both have: some sources omit the last one."""
    if not module or not library:
        return False
    pairs = zip(module.split("."), library.split("."), strict=False)
    return any(one != other for one, other in pairs)


def _requested_gpus(machine: Machine) -> str:
    """The GPUs that a container requests; empty outside of containers."""
    if machine.system.container.state != "known":
        return ""
    devices = (machine.environment.value or {}).get("NVIDIA_VISIBLE_DEVICES", "")
    return "" if devices in ("void", "none") else devices
