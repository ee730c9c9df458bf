"""Rules on WSL2, in which Windows has the driver: too many GPUs, a hidden libcuda, a GPU that Windows keeps."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.core.records import Gpu, Machine, Stack
from envdoctor.core.remedies import either, steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.rules.cuda_initialization import cuda_fails, driver_is_too_old, finds_no_driver, shown_facts
from envdoctor.rules.facts import gpu_labels, gpus_of, torch_cuda, torch_label
from envdoctor.rules.registry import Problem, evidence, rule

# With four or more, cuInit fails with error 2: github.com/microsoft/WSL/issues/12467 and
# github.com/mlcommons/ck/issues/916.
WSL_GPUS = 3


@rule("DRV011", kind="environment", severity=("error", "warning"), cause="wsl-multi-gpu-limit")
def wsl_fails_with_many_gpus(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """CUDA does not initialize under WSL2 with many GPUs: error 2, "out of memory", regardless of the free memory.

    With few GPUs the usual reason is that libcuda is not found. The Windows driver installs it in /usr/lib/wsl/lib.

    Fix: make at most three GPUs visible to a process, or use native Linux.

    References:
    https://github.com/microsoft/WSL/issues/12467
    https://github.com/pytorch/pytorch/issues/150048
    https://docs.nvidia.com/cuda/wsl-user-guide/index.html
    """
    gpus = gpus_of(machine)
    if not machine.system.wsl.value or len(gpus) <= WSL_GPUS:
        return
    fails = stack.cuda_available.value is False and bool(torch_cuda(stack))
    if not fails and stack.cuda_available.value:
        return
    yield Problem(
        "error" if fails else "warning",
        f"{len(gpus)} GPUs under WSL2"
        + (", and CUDA does not initialize" if fails else ": CUDA may not initialize with more than three"),
        (evidence("system.wsl", machine.system.wsl), evidence("gpus", machine.gpus)),
        f"Make at most {WSL_GPUS} GPUs visible before Python starts, or use native Linux.",
        steps("export CUDA_VISIBLE_DEVICES=0,1"),
    )


@rule("DRV012", kind="environment", severity="warning", cause="libcuda-not-found")
def wsl_does_not_find_libcuda(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """A CUDA build of torch finds no GPU under WSL.

    libcuda of the Windows driver is not found, or a Linux driver hides it. The Windows driver installs libcuda.so.1
    in /usr/lib/wsl/lib. Do not install a Linux driver inside WSL.

    WSL 1 has no access to GPUs at all.

    Fix: add that directory to the loader's path, update the Windows driver, and remove Linux drivers from WSL.

    References:
    https://docs.nvidia.com/cuda/wsl-user-guide/index.html
    https://github.com/microsoft/WSL/issues/8587
    """
    if not machine.system.wsl.value or len(gpus_of(machine)) > WSL_GPUS or driver_is_too_old(machine, stack):
        return
    fails = not _in_tcc_mode(machine) and (cuda_fails(machine, stack) or finds_no_driver(machine, stack))
    if fails and _is_wsl_1(machine):
        yield Problem(
            "warning",
            f"{torch_label(stack)} for CUDA {torch_cuda(stack)} finds no GPU under WSL 1, which cannot use GPUs",
            (evidence("system.wsl", machine.system.wsl), *shown_facts(machine, stack)),
            "Convert the distribution to WSL 2, which takes minutes and ends its sessions, or use native Linux.",
            steps(
                "wsl --list --verbose  # in Windows", "wsl --set-version DISTRIBUTION 2  # in Windows", "nvidia-smi"
            ),
        )
    elif fails:
        yield Problem(
            "warning",
            f"{torch_label(stack)} for CUDA {torch_cuda(stack)} finds no GPU under WSL2",
            (evidence("system.wsl", machine.system.wsl), *shown_facts(machine, stack)),
            "Remove Linux drivers from WSL and place WSL's libcuda first; if it is missing, update the Windows "
            "driver and WSL, which ends its sessions.",
            either(
                [
                    "ls -l /usr/lib/wsl/lib/libcuda.so.1",
                    "dpkg -l | grep -E 'nvidia-driver|libcuda|libnvidia-compute'",
                    "export LD_LIBRARY_PATH=/usr/lib/wsl/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}",
                ],
                ["wsl --update  # in Windows", "wsl --shutdown  # in Windows"],
            ),
        )


@rule("DRV016", kind="environment", severity="error", cause="mig-or-compute-mode")
def windows_keeps_the_gpu_from_wsl(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """nvidia-smi of Windows lists a GPU in TCC mode, which Windows does not pass to WSL2.

    Only the driver models WDDM and MCDM share a GPU with WSL. Tesla and some Quadro cards start in TCC mode.

    Fix: switch the card to WDDM in Windows (`nvidia-smi -dm 0` as administrator) and restart. A card that supports
    only TCC needs Windows or Linux itself.

    References:
    https://docs.nvidia.com/cuda/wsl-user-guide/index.html
    """
    gpus = _in_tcc_mode(machine)
    if machine.system.wsl.value and gpus and stack.cuda_available.value is not True:
        yield Problem(
            "error",
            f"{gpu_labels(gpus)} runs in TCC mode, which WSL2 does not pass to Linux",
            (evidence("system.wsl", machine.system.wsl), evidence("gpus", machine.gpus)),
            "Switch the card to WDDM in Windows, as administrator, and restart. With a card that supports only TCC "
            "use Windows or Linux itself.",
            steps(shell_command("nvidia-smi -g {} -dm 0  # in Windows, as administrator", gpus[0].index)),
        )


def _is_wsl_1(machine: Machine) -> bool:
    """Whether the kernel is that of WSL 1, which translates system calls: `4.4.0-19041-Microsoft`."""
    kernel = machine.system.kernel.value or machine.system.wsl.value or ""
    return kernel.startswith("4.4.0-") and kernel.endswith("-Microsoft")


def _in_tcc_mode(machine: Machine) -> list[Gpu]:
    """The GPUs that Windows drives in TCC mode."""
    return [gpu for gpu in gpus_of(machine) if "driver model TCC" in gpu.name.note]
