"""Rules on a CUDA build of torch that finds no GPU: the likely causes, by the facts that a report contains."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from envdoctor.core.records import Evidence, Machine, Stack
from envdoctor.core.remedies import steps
from envdoctor.knowledge.versions import is_prerelease, public_part
from envdoctor.rules.driver_remedies import (
    container_of,
    is_driver_too_old,
    load_driver,
    on_host,
    start_container_with_gpus,
    start_fabric_manager,
)
from envdoctor.rules.facts import (
    gpu_labels,
    gpus_of,
    has_windows_driver,
    is_for_another_platform,
    is_without_cuda,
    model_of,
    names_no_gpu,
    on_windows,
    torch_cuda,
    torch_label,
    torch_version,
)
from envdoctor.rules.host_remedies import set_path
from envdoctor.rules.registry import Problem, evidence, rule
from envdoctor.rules.torch_install import install_torch

HGX_GPUS = 4
NO_NVIDIA_GPU = "no NVIDIA GPU, but"  # the note on the GPUs of a report that names one of another vendor
# Kernels that Ubuntu and Debian do not provide: such a system runs in a container on another host.
FOREIGN_KERNEL = r"\.(el\d|amzn|fc\d|cm\d|azl)|-(cos|gke|bottlerocket|lts-anolis|tlinux|velinux)|fbk\d"
UBUNTU_KERNELS = {"18.04": ((4, 15), (5, 4)), "20.04": ((5, 4), (5, 15)), "22.04": ((5, 15), (6, 8)),
                  "24.04": ((6, 8), (6, 17))}  # fmt: skip


@rule("DRV007", kind="environment", severity=("error", "warning"), cause="no-nvidia-gpu")
def cuda_torch_finds_no_gpu(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """torch is a CUDA build, but neither a GPU nor a driver was found.

    This is expected on a machine without an NVIDIA GPU, where a CPU environment is the right one. Other rules cover
    containers, WSL and machines with an installed driver.

    Fix: use a machine with a GPU, or the CPU build of torch.

    References:
    https://docs.pytorch.org/docs/stable/notes/cuda.html
    """
    if not finds_no_driver(machine, stack) or machine.system.container.value or _foreign_kernel(machine):
        return
    if machine.cuda.nvcc_version.value or machine.system.wsl.value:
        return  # DRV009 covers machines with a toolkit, DRV012 WSL
    unknown = {machine.gpus.state, machine.driver.version.state} == {"unreadable"} and machine.gpus.source == "report"
    windows = on_windows(machine)
    if unknown and not windows:
        return  # the part of the report with the GPU and the driver is missing; DRV008
    release = public_part(torch_version(stack))
    cpu = install_torch(stack, release, "cpu") if release and not is_prerelease(release) else None
    listing = "the Device Manager" if windows else "lspci"
    yield Problem(
        "warning" if unknown else "error",
        f"{torch_label(stack)} is built for CUDA {torch_cuda(stack)}, but "
        + ("finds no GPU" if unknown else "no NVIDIA GPU or driver was found"),
        shown_facts(machine, stack),
        f"Use a machine with an NVIDIA GPU, and install the driver if {listing} lists one."
        + (f" Otherwise install {cpu}." if cpu else ""),
        steps("nvidia-smi" if windows else "lspci | grep -i nvidia", *(cpu.steps if cpu else ())),
    )


@rule("DRV008", kind="environment", severity=("error", "warning"), cause="container-no-gpu")
def container_was_started_without_gpus(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """A container with a CUDA build of torch has no GPU.

    It was started without the NVIDIA runtime or without requesting GPUs. A report shows that it comes from a
    container by its prompt, its paths, or a kernel that does not belong to its distribution. Without these the
    finding is only a warning. GPUs that only a description names are those of the host.

    Fix: start it with `--gpus all` (Docker), the device plugin's resource (Kubernetes) or `--nv` (Apptainer), and
    configure the container toolkit on the host.

    References:
    https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/troubleshooting.html
    https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html
    """
    if not (finds_no_driver(machine, stack) or _only_host_has_gpus(machine, stack)) or machine.system.wsl.value:
        return
    container = machine.system.container
    container_name = container.value or _foreign_kernel(machine)
    possible = container.state == "unreadable" and not on_windows(machine)
    possible = possible and not machine.gpus.note.startswith(NO_NVIDIA_GPU)  # DRV007
    if not container_name and not possible:
        return
    yield Problem(
        "error" if container_name else "warning",
        f"{torch_label(stack)} for CUDA {torch_cuda(stack)} finds no GPU in a container ({container_name})"
        if container_name
        else "no GPU was found; if this is a container, it was started without access to the GPUs",
        (*shown_facts(machine, stack), evidence("system.container", container)),
        "Start the container with GPUs. If that fails, configure the container toolkit on the host; a restart of "
        "Docker stops its containers.",
        start_container_with_gpus(container_of(machine)),
    )


@rule("DRV015", kind="environment", severity="error", cause="container-no-gpu")
def container_requests_no_gpus(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """torch finds no GPU, and the command or compose file that starts the container requests none.

    Without the request a container sees neither GPU nor driver, although both work on the host.

    Fix: `docker run --gpus all`, a reservation of devices in the compose file, or `apptainer exec --nv`.

    References:
    https://docs.docker.com/compose/how-tos/gpu-support/
    https://docs.docker.com/engine/containers/gpu/
    """
    container = machine.system.container
    is_unrequested = "without a request for GPUs" in container.note and stack.cuda_available.value is False
    if not is_unrequested or is_without_cuda(stack):
        return
    if not finds_no_driver(machine, stack):  # DRV008
        yield Problem(
            "error",
            "torch finds no GPU in a container that was started without a request for GPUs",
            (evidence("system.container", container), evidence("cuda_available", stack.cuda_available)),
            "Start the container with GPUs. If that fails, configure the container toolkit on the host.",
            start_container_with_gpus(container_of(machine)),
        )


@rule(
    "DRV009",
    kind="environment",
    severity=("error", "warning"),
    cause="driver-not-loaded",
    url="https://docs.nvidia.com/deploy/xid-errors/index.html",
)
def driver_does_not_start_cuda(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """CUDA does not initialize although its components are installed.

    Either nvidia-smi reports nothing on a machine with a CUDA toolkit: the kernel module is not loaded, or is
    outdated after an upgrade. Or nvidia-smi lists GPUs and torch finds none: nvidia_uvm is missing (error 999, after
    a suspend or a kernel upgrade), or the loader finds a wrong libcuda first (error 803, 804).

    Fix: load or rebuild the module; after an upgrade a reboot is enough.

    References:
    https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/index.html
    https://github.com/pytorch/pytorch/issues/49081
    """
    if finds_no_driver(machine, stack) and machine.cuda.nvcc_version.value and not machine.system.wsl.value:
        container = machine.system.container.value or _foreign_kernel(machine)
        yield Problem(
            "warning" if container else "error",
            f"CUDA toolkit {machine.cuda.nvcc_version.value} and torch for CUDA {torch_cuda(stack)} are installed, "
            "but nvidia-smi reports no driver: not installed, not loaded, or of another version than its libraries",
            shown_facts(machine, stack),
            "Run nvidia-smi, which prints the reason, and install NVIDIA's driver again."
            if on_windows(machine)
            else "Run nvidia-smi, which prints the reason; load the module or build it for this kernel"
            + (" on the host." if container else "."),
            steps("nvidia-smi") if on_windows(machine) else load_driver(),
        )
    elif cuda_fails(machine, stack) and not _has_other_reason(machine, stack):
        gpus = gpu_labels(gpus_of(machine))
        is_written = machine.gpus.source.endswith(("handwritten list", "sentences"))
        lists = "the report names" if is_written else "nvidia-smi lists"
        described = not machine.driver.version.value and _are_described(machine)
        yield Problem(
            "warning" if described else "error",
            f"torch for CUDA {torch_cuda(stack)} finds no GPU, although the machine has {gpus}; the output of "
            "nvidia-smi is missing"
            if described
            else f"{lists} {gpus or 'a driver'}, but CUDA does not initialize in torch",
            shown_facts(machine, stack),
            "Unset CUDA_VISIBLE_DEVICES; if that does not help, install NVIDIA's driver again and restart Windows."
            if on_windows(machine)
            else f"Load nvidia_uvm again{on_host(machine)}; if it is in use or that does not help, reboot. Remove "
            "other libcuda files from LD_LIBRARY_PATH.",
            steps("nvidia-smi", 'python -c "import torch; torch.cuda.init()"')
            if on_windows(machine)
            else steps(
                "ldconfig -p | grep libcuda; echo $LD_LIBRARY_PATH $CUDA_VISIBLE_DEVICES",
                f"{shlex.quote(stack.python.value or 'python')} -c 'import torch; torch.cuda.init()'",
                "sudo lsof /dev/nvidia-uvm",
                "sudo modprobe -r nvidia_uvm && sudo modprobe nvidia_uvm",
            ),
        )


@rule("DRV010", kind="environment", severity="error", cause="fabric-manager")
def nvswitch_machine_does_not_start_cuda(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """CUDA does not initialize on a machine with NVSwitch (HGX, DGX), although its GPUs are listed.

    CUDA requires the fabric manager on these machines: error 802, "system not yet initialized". The fabric manager is
    not installed, not running, or its version differs from the driver's.

    Fix: install and start the fabric manager of exactly the driver's version.

    References:
    https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/
    """
    gpus = [gpu for gpu in gpus_of(machine) if (model := model_of(gpu)) and model.nvswitch]
    if not cuda_fails(machine, stack) or len(gpus) < HGX_GPUS or driver_is_too_old(machine, stack):
        return
    fix, remedies = start_fabric_manager(machine)
    yield Problem(
        "error",
        f"CUDA does not initialize on an NVSwitch board with {gpu_labels(gpus)}: check the fabric manager first",
        shown_facts(machine, stack),
        fix,
        remedies,
    )


@rule("DRV013", kind="environment", severity="warning", cause="cuda-compat-lib-conflict")
def image_may_hide_the_drivers_libcuda(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """CUDA does not initialize in a container with GPUs and a driver.

    The image's cuda-compat libraries may be found first. Images contain a libcuda for forward compatibility in
    /usr/local/cuda/compat. If it is older than the host's driver, or the GPU is not a data-centre GPU, CUDA fails
    with error 803 or 804.

    Fix: remove the compat directory from the loader's path.

    References:
    https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html
    """
    container = machine.system.container.value or _foreign_kernel(machine)
    path = (machine.environment.value or {}).get("LD_LIBRARY_PATH", "")
    compat = [part for part in path.split(":") if re.search(r"/compat(/|$)", part)]
    fails = cuda_fails(machine, stack) and not _only_host_has_gpus(machine, stack)
    if not container or not fails or driver_is_too_old(machine, stack):
        return
    yield Problem(
        "warning",
        f"CUDA does not initialize in a container ({container}) "
        f"with driver {machine.driver.version.value or 'unknown'} and {gpu_labels(gpus_of(machine)) or 'no GPU'}",
        shown_facts(machine, stack),
        "If ldconfig lists a libcuda.so.1 in a compat directory first, move the file that grep lists away, and run "
        "ldconfig. Remove such directories from LD_LIBRARY_PATH.",
        steps(
            "ldconfig -p | grep libcuda.so.1",
            "grep -l 'cuda.*/compat' /etc/ld.so.conf.d/*.conf",
            *([set_path("LD_LIBRARY_PATH", path, compat)] if compat else []),
        ),
    )


def finds_no_driver(machine: Machine, stack: Stack) -> bool:
    """Whether a CUDA build of torch runs without GPU and driver."""
    no_driver = not gpus_of(machine) and not machine.driver.version.value and not machine.driver.library.value
    if is_for_another_platform(stack):
        return False
    no_driver = no_driver and "NVML error" not in machine.gpus.note  # covered by the rules on the driver
    fails = stack.cuda_available.value is False or machine.gpus.note.startswith(NO_NVIDIA_GPU)
    return bool(torch_cuda(stack)) and fails and no_driver and not _jetson(machine)


def cuda_fails(machine: Machine, stack: Stack) -> bool:
    """Whether a CUDA build of torch does not initialize CUDA although a driver or GPUs are listed."""
    detected = gpus_of(machine) or machine.driver.version.value
    return bool(torch_cuda(stack)) and stack.cuda_available.value is False and bool(detected)


def _only_host_has_gpus(machine: Machine, stack: Stack) -> bool:
    """Whether torch in a container finds none of the GPUs that a description names, which are those of the host."""
    requested = "with a request for GPUs" in machine.system.container.note
    fails = cuda_fails(machine, stack) and not driver_is_too_old(machine, stack)
    return bool(machine.system.container.value) and _are_described(machine) and not requested and fails


def _are_described(machine: Machine) -> bool:
    """Whether sentences name the GPUs of a report, and no tool lists them."""
    return all(gpu.name.note == "from a sentence" for gpu in gpus_of(machine))


def _has_other_reason(machine: Machine, stack: Stack) -> bool:
    """Whether another rule reports the reason."""
    switched = [gpu for gpu in gpus_of(machine) if (model := model_of(gpu)) and model.nvswitch]
    visible = (machine.environment.value or {}).get("CUDA_VISIBLE_DEVICES")
    return bool(
        machine.system.wsl.value
        or "NVML error 9:" in machine.gpus.note  # DRV002
        or _only_host_has_gpus(machine, stack)  # DRV008
        or "without a request for GPUs" in machine.system.container.note  # DRV015
        or len(switched) >= HGX_GPUS
        or driver_is_too_old(machine, stack)
        or any(gpu.mig.value for gpu in gpus_of(machine))
        or visible in ("", "-1")
        or names_no_gpu(visible or "", len(gpus_of(machine)))
    )


def driver_is_too_old(machine: Machine, stack: Stack) -> bool:
    """Whether the driver is too old for the CUDA version of torch."""
    return is_driver_too_old(machine, torch_cuda(stack), windows=has_windows_driver(machine))


def _foreign_kernel(machine: Machine) -> str:
    """The kernel, if it does not belong to the distribution of a report, which then comes from a container."""
    kernel, system = machine.system.kernel.value or "", machine.system.os.value or ""
    if not re.search(r"ubuntu|debian", system, re.IGNORECASE) or machine.system.wsl.value or _jetson(machine):
        return ""
    release = re.search(r"Ubuntu (\d\d\.\d\d)", system)
    number = re.match(r"(\d+)\.(\d+)", kernel)
    limits = UBUNTU_KERNELS.get(release[1]) if release else None
    outside = bool(limits and number) and not (limits[0] <= (int(number[1]), int(number[2])) <= limits[1])  # type: ignore[index]
    return f"kernel {kernel} under {system}" if outside or re.search(FOREIGN_KERNEL, kernel) else ""


def _jetson(machine: Machine) -> bool:
    return "tegra" in (machine.system.kernel.value or "")


def shown_facts(machine: Machine, stack: Stack) -> tuple[Evidence, ...]:
    """The facts that show that torch finds no GPU."""
    return (
        evidence("cuda_available", stack.cuda_available),
        evidence("gpus", machine.gpus),
        evidence("driver.version", machine.driver.version),
    )
