"""What the facts of a machine or a stack say against a cause."""

from __future__ import annotations

from collections.abc import Callable

from envdoctor.core.records import Machine, Stack
from envdoctor.knowledge.architectures import capability_of, runs_native


def refutation(cause: str, machine: Machine, stack: Stack) -> str:
    """Why this cause is unlikely here; empty where nothing is known against it."""
    speak = AGAINST.get(cause)
    return speak(machine, stack) if speak else ""


def _has_gpus(machine: Machine, _: Stack) -> str:
    gpus = machine.gpus.value or ()
    return f"{len(gpus)} GPUs answer on this machine" if gpus else ""


def _cuda_torch(_: Machine, stack: Stack) -> str:
    torch = stack.torch.value
    cuda = torch.cuda.value if torch else None
    return f"the installed torch is a CUDA {cuda} build" if cuda else ""


def _torch_is_there(_: Machine, stack: Stack) -> str:
    return "torch is installed in this environment" if stack.torch.value else ""


def _one_version(machine: Machine, _: Stack) -> str:
    module, library = machine.driver.version.value, machine.driver.library.value
    same = module and library and module == library
    return f"kernel module and libraries are both {module}" if same else ""


def _native_linux(machine: Machine, _: Stack) -> str:
    return "this is native Linux" if machine.system.wsl.state == "absent" else ""


def _mig_off(machine: Machine, _: Stack) -> str:
    gpus = machine.gpus.value or ()
    off = gpus and all(not gpu.mig.value and gpu.compute_mode.value == "default" for gpu in gpus)
    return "MIG is off and the compute mode is default on every GPU" if off else ""


def _fabric_completed(machine: Machine, _: Stack) -> str:
    gpus = machine.gpus.value or ()
    states = {gpu.fabric.value.state for gpu in gpus if gpu.fabric.value}
    return (
        f"the fabric state of every GPU is {', '.join(states)}" if gpus and states <= {"completed"} and states else ""
    )


def _headers_there(_: Machine, stack: Stack) -> str:
    return "this Python has its headers" if stack.headers.value else ""


def _extensions_fit(_: Machine, stack: Stack) -> str:
    extensions = stack.extensions.value
    fit = extensions and not any(extension.missing_symbols for extension in extensions)
    return f"none of the {len(extensions)} compiled files lacks a symbol of torch" if extensions and fit else ""


def _code_for_every_gpu(machine: Machine, stack: Stack) -> str:
    torch, gpus = stack.torch.value, machine.gpus.value or ()
    code = torch.architectures.value or () if torch else ()
    capabilities = [capability_of(gpu) for gpu in gpus]
    covered = code and gpus and all(each and runs_native(code, each) for each in capabilities)
    return f"the installed torch has code for every GPU here ({' '.join(code)})" if covered else ""


AGAINST: dict[str, Callable[[Machine, Stack], str]] = {
    "gpu-arch-not-in-build": _code_for_every_gpu,
    "gpu-arch-dropped": _code_for_every_gpu,
    "no-nvidia-gpu": _has_gpus,
    "container-no-gpu": _has_gpus,
    "driver-not-loaded": _has_gpus,
    "torch-cpu-build": _cuda_torch,
    "wrong-python-env": _torch_is_there,
    "nvml-driver-library-mismatch": _one_version,
    "wsl-multi-gpu-limit": _native_linux,
    "mig-or-compute-mode": _mig_off,
    "fabric-manager": _fabric_completed,
    "python-headers-missing": _headers_there,
    "torch-abi-mismatch": _extensions_fit,
}
