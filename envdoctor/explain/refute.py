"""Facts of the machine or the environment that contradict a cause."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Machine, Stack
from envdoctor.knowledge.architectures import capability_of, runs_native
from envdoctor.knowledge.versions import satisfies

_BOUND = lazy_pattern(r"[<>=!~]=?=?\s*[\w.*+]+")


def refutation(cause: str, machine: Machine, stack: Stack) -> str:
    """The fact that contradicts this cause; empty if there is none."""
    check = CONTRADICTIONS.get(cause)
    return check(machine, stack) if check else ""


def is_below_its_bounds(groups: Mapping[str, str]) -> bool:
    """Whether a line on transformers that is too new states one that its upper bounds accept: it is too old.

    `transformers<5,>=4.20.1, but you have transformers 4.16.2` for the groups `requirement` and `transformers`.
    """
    bounds = [each for each in _BOUND.findall(groups.get("requirement", "")) if each[0] in "<=~"]
    installed = groups.get("transformers", "")
    return bool(bounds and installed) and all(satisfies(installed, each) is True for each in bounds)


def _has_gpus(machine: Machine, _: Stack) -> str:
    gpus = machine.gpus.value or ()
    return f"{len(gpus)} GPUs are available on this machine" if gpus else ""


def _cuda_torch(_: Machine, stack: Stack) -> str:
    torch = stack.torch.value
    cuda = torch.cuda.value if torch else None
    return f"the installed torch is a CUDA {cuda} build" if cuda else ""


def _same_driver_versions(machine: Machine, _: Stack) -> str:
    module, library = machine.driver.version.value, machine.driver.library.value
    same = module and library and module == library
    return f"kernel module and libraries are both {module}" if same else ""


def _mig_off(machine: Machine, _: Stack) -> str:
    gpus = machine.gpus.value or ()
    off = gpus and all(not gpu.mig.value and gpu.compute_mode.value == "default" for gpu in gpus)
    return "MIG is off and the compute mode is default on every GPU" if off else ""


def _fabric_completed(machine: Machine, _: Stack) -> str:
    gpus = machine.gpus.value or ()
    states = {gpu.fabric.value.state for gpu in gpus if gpu.fabric.value}
    return f"the fabric state of every GPU is {', '.join(states)}" if states and states <= {"completed"} else ""


def _extensions_compatible(_: Machine, stack: Stack) -> str:
    extensions = stack.extensions.value
    if not extensions or any(extension.missing_symbols for extension in extensions):
        return ""
    return f"none of the {len(extensions)} compiled files lacks a symbol of torch"


def _code_for_every_gpu(machine: Machine, stack: Stack) -> str:
    torch, gpus = stack.torch.value, machine.gpus.value or ()
    code = torch.architectures.value or () if torch else ()
    capabilities = [capability_of(gpu) for gpu in gpus]
    covered = code and gpus and all(capability and runs_native(code, capability) for capability in capabilities)
    return f"the installed torch has code for every GPU here ({' '.join(code)})" if covered else ""


CONTRADICTIONS: dict[str, Callable[[Machine, Stack], str]] = {
    "gpu-arch-not-in-build": _code_for_every_gpu,
    "gpu-arch-dropped": _code_for_every_gpu,
    "no-nvidia-gpu": _has_gpus,
    "container-no-gpu": _has_gpus,
    "driver-not-loaded": _has_gpus,
    "torch-cpu-build": _cuda_torch,
    "wrong-python-env": lambda _, stack: "torch is installed in this environment" if stack.torch.value else "",
    "nvml-driver-library-mismatch": _same_driver_versions,
    "wsl-multi-gpu-limit": lambda machine, _: "this is native Linux" if machine.system.wsl.state == "absent" else "",
    "mig-or-compute-mode": _mig_off,
    "fabric-manager": _fabric_completed,
    "python-headers-missing": lambda _, stack: (
        "the headers of this Python are installed" if stack.headers.value else ""
    ),
    "torch-abi-mismatch": _extensions_compatible,
}
