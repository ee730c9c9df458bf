"""Remedies for the driver, for single GPUs and for containers, by the facts of the machine."""

from __future__ import annotations

import re

from envdoctor.core.records import Gpu, Machine
from envdoctor.core.remedies import Remedy, either, steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.architectures import capability_of
from envdoctor.knowledge.cuda import FIRST_WITH_MINOR_COMPATIBILITY, accepts_compat, oldest_driver
from envdoctor.knowledge.versions import dotted_numbers
from envdoctor.rules.facts import gpus_of, model_of, on_windows

# Branches with packages `nvidia-driver-BRANCH` for Ubuntu; from 590 on NVIDIA's packages have no branch in their
# names: docs.nvidia.com/datacenter/tesla/driver-installation-guide.
PACKAGED_BRANCHES = (535, 550, 570, 580)
# The last branch for GPUs below a compute capability: Kepler, and Maxwell to Volta.
# nvidia.com/en-us/drivers/unix/legacy-gpu, docs.nvidia.com/datacenter/tesla/drivers.
LAST_BRANCHES = (((5, 0), 470), ((7, 5), 580))
FIRST_OPEN_ONLY = (10, 0)  # Blackwell has only open kernel modules
LIST_GPUS = "nvidia-smi --query-gpu=index,pci.bus_id,uuid,name --format=csv"
LIST_PROCESSES = "nvidia-smi --query-compute-apps=gpu_uuid,pid,process_name --format=csv"
MODULE_VERSION = "cat /proc/driver/nvidia/version"
KUBERNETES = ("kubernetes", "kubepods")
APPTAINER = ("apptainer", "singularity")
DPKG = r"(?i)ubuntu|debian"


def for_gpu(gpu: Gpu, *commands: str) -> tuple[Remedy, ...]:
    """One remedy, with the GPU's bus id or UUID in place of `{gpu}`. If both are unknown, they are listed first."""
    if name := gpu.pci_bus.value or gpu.uuid.value:
        return steps(*(_on_gpu(command, name) for command in commands))
    listing = f"{LIST_GPUS}  # BUS_ID: that of GPU {gpu.index}"
    return steps(listing, *(_on_gpu(command, "BUS_ID") for command in commands))


def _on_gpu(command: str, name: str) -> str:
    return shell_command(command.replace("{gpu}", "{}"), *[name] * command.count("{gpu}"))


def container_of(machine: Machine) -> str:
    """The container runtime; empty outside of containers and if unknown."""
    return machine.system.container.value or ""


def on_host(machine: Machine) -> str:
    """Where to run the commands of a container's remedy; empty outside of containers."""
    return " on the host" if container_of(machine) else ""


def reload_driver() -> tuple[Remedy, ...]:
    """Load the installed kernel module in place of the loaded one."""
    return either(
        [
            "sudo lsof /dev/nvidia*",
            "modinfo -F version nvidia",
            "sudo modprobe -r nvidia_uvm nvidia_drm nvidia_modeset nvidia",
            "sudo modprobe -a nvidia nvidia_uvm",
        ],
        ["modinfo -F version nvidia", "sudo reboot"],
    )


def load_driver() -> tuple[Remedy, ...]:
    """Load the kernel module, or build it for the running kernel."""
    return either(
        ["nvidia-smi", "sudo modprobe -a nvidia nvidia_uvm"],
        ["dkms status", "sudo dkms autoinstall", "sudo modprobe -a nvidia nvidia_uvm"],
    )


def upgrade_driver(machine: Machine, minimum: str) -> tuple[str, tuple[Remedy, ...]]:
    """The fix and the remedies for a driver older than `minimum`."""
    needed = dotted_numbers(minimum)[0]
    capabilities = [found for gpu in gpus_of(machine) if (found := capability_of(gpu))]
    oldest = min(capabilities, default=FIRST_OPEN_ONLY)
    last = next((branch for capability, branch in LAST_BRANCHES if oldest < capability), 0)
    if machine.system.wsl.value:
        return "Install a newer NVIDIA driver in Windows; do not install one in WSL.", steps("nvidia-smi")
    if last and needed > last:
        return f"Use another GPU: {last} is the last driver branch for this one.", steps(LIST_GPUS)
    if on_windows(machine):
        return f"Install driver {minimum} or newer from nvidia.com/drivers, and restart Windows.", steps("nvidia-smi")
    if container_of(machine):
        fix = f"Install driver {minimum} or newer on the host, or choose a host that has it."
        return fix, steps(MODULE_VERSION)
    fix = f"Install driver {minimum} or newer and reboot; on a rented machine choose an image with one."
    branch = next((branch for branch in PACKAGED_BRANCHES if branch >= needed), 0)
    system = machine.system.os.value or ""
    if not branch or "ubuntu" not in system.lower():
        return fix, steps("dpkg -l '*nvidia-driver*'" if re.search(DPKG, system) else MODULE_VERSION)
    models = [model_of(gpu) for gpu in gpus_of(machine)]
    server = models and all(model and model.kind == "data-centre" for model in models)
    is_open = machine.driver.module.value == "open" or max(capabilities, default=(0, 0)) >= FIRST_OPEN_ONLY
    package = f"nvidia-driver-{branch}" + ("-server" if server else "") + ("-open" if is_open else "")
    return fix, steps(
        "dpkg -l 'nvidia-driver-*'", shell_command("sudo apt-get install -y {}", package), "sudo reboot"
    )


def is_driver_too_old(machine: Machine, cuda: str, *, windows: bool) -> bool:
    """Whether the driver is too old for a CUDA version, by its version or else by the CUDA that it supports."""
    needed = oldest_driver(cuda, windows=windows) if cuda else ()
    driver = dotted_numbers(machine.driver.version.value or "")
    if driver or not needed:
        return bool(driver) and driver < needed
    supported, required = dotted_numbers(machine.driver.cuda.value or "")[:2], dotted_numbers(cuda)[:2]
    if required[0] >= FIRST_WITH_MINOR_COMPATIBILITY:
        supported, required = supported[:1], required[:1]
    return bool(supported) and supported < required


def supports_compat(machine: Machine, cuda: str) -> bool:
    """Whether the GPUs and the driver support the forward-compatibility package of a CUDA release."""
    models = [model_of(gpu) for gpu in gpus_of(machine)]
    data_centre = bool(models) and all(model and model.kind == "data-centre" for model in models)
    driver = machine.driver.version.value
    return data_centre and bool(driver) and not machine.system.wsl.value and accepts_compat(driver or "", cuda)


def start_fabric_manager(machine: Machine) -> tuple[str, tuple[Remedy, ...]]:
    """The fix and the remedies for a fabric manager that is not running or not of the driver's version."""
    version, status = machine.driver.version.value or "", "systemctl status nvidia-fabricmanager"
    place = on_host(machine)
    fix = f"Start the fabric manager{place}; its version must be equal to the driver's ({version or 'unknown'})."
    if place or not re.fullmatch(r"[\d.]+", version):
        return fix, steps(MODULE_VERSION, status)
    start = either([status, "sudo systemctl enable --now nvidia-fabricmanager"])
    branch = dotted_numbers(version)[0]
    if not re.search(DPKG, machine.system.os.value or "") or branch > PACKAGED_BRANCHES[-1]:
        return fix, start
    install = shell_command(
        "sudo apt-get install -y --allow-downgrades 'nvidia-fabricmanager-{}={}*'", branch, version
    )
    fix += " Install that version if it is missing or another one is installed."
    return fix, (*start, *steps(install, "sudo systemctl restart nvidia-fabricmanager"))


def start_container_with_gpus(container: str) -> tuple[Remedy, ...]:
    """Start a container with GPUs; if that fails, configure the container toolkit on the host."""
    if container in KUBERNETES:
        return steps("kubectl describe node NODE | grep nvidia.com/gpu")
    if container in APPTAINER:
        return steps(f"{container} exec --nv IMAGE nvidia-smi")
    if container == "podman":
        return either(
            "podman run --rm --device nvidia.com/gpu=all IMAGE nvidia-smi",
            "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
        )
    return either(
        "docker run --rm --gpus all IMAGE nvidia-smi",
        ["docker ps", "sudo nvidia-ctk runtime configure --runtime=docker", "sudo systemctl restart docker"],
    )


def restart_container(container: str, *first: str) -> tuple[Remedy, ...]:
    """Start the container again, which mounts the host's devices and driver libraries again; `first` runs in it."""
    if container in KUBERNETES:
        return steps(
            *first, "kubectl get pod POD -o jsonpath='{.metadata.ownerReferences}'", "kubectl delete pod POD"
        )
    if container in APPTAINER:
        return steps(*first, f"{container} exec --nv IMAGE nvidia-smi")
    return steps(*first, f"{'podman' if container == 'podman' else 'docker'} restart CONTAINER")
