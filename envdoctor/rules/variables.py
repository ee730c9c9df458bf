"""Rules on environment variables that select wrong GPUs, interfaces, libraries or packages."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.core.records import Evidence, Machine
from envdoctor.core.remedies import either, steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.cuda import cuda_of_driver
from envdoctor.knowledge.versions import major_minor
from envdoctor.rules.driver_remedies import supports_compat
from envdoctor.rules.facts import is_reported, require_value
from envdoctor.rules.host_remedies import set_path
from envdoctor.rules.registry import Problem, evidence, rule

VIRTUAL = ("lo", "docker", "br-", "veth", "virbr", "cni", "flannel", "cali", "tun", "tailscale", "wg")


def _variable(machine: Machine, name: str) -> str | None:
    return (require_value("environment", machine.environment) or {}).get(name)


COUNTING_REPORTS = ("nvidia-smi", "collect_env (", "dcgmi", "lspci", "topo", "GPU list")  # they list all GPUs


def _shown(name: str, value: str | None) -> Evidence:
    return Evidence(name, value or "(empty)", "environment")


@rule("ENV001", kind="machine", severity="error", cause="cuda-device-selection")
def visible_devices_hide_every_gpu(machine: Machine) -> Iterator[Problem]:
    """CUDA_VISIBLE_DEVICES hides all GPUs: it is empty, -1, or a number that does not exist.

    Fix: unset it, or name GPUs that exist.

    References:
    https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#env-vars
    """
    value = _variable(machine, "CUDA_VISIBLE_DEVICES")
    gpus = machine.gpus.value
    if value is None or not gpus:
        return
    first = value.split(",")[0].strip()
    # `GPU: RTX A6000` of a list or a sentence does not state their number, nor does a name that torch prints.
    is_counted = not is_reported(machine.gpus) or any(kind in machine.gpus.source for kind in COUNTING_REPORTS)
    past = is_counted and first.isdigit() and int(first) >= len(gpus)
    if first in ("", "-1") or past:
        yield Problem(
            "error",
            f"CUDA_VISIBLE_DEVICES={value!r} hides all {len(gpus)} GPUs",
            (_shown("CUDA_VISIBLE_DEVICES", value), evidence("gpus", machine.gpus)),
            "Unset it, or name existing GPUs.",
            either("unset CUDA_VISIBLE_DEVICES", "export CUDA_VISIBLE_DEVICES=0"),
        )


@rule("ENV002", kind="machine", severity="warning", cause="rocr-visible-devices")
def rocr_visible_devices_is_set(machine: Machine) -> Iterator[Problem]:
    """ROCR_VISIBLE_DEVICES is set on an NVIDIA machine: Ray and verl then refuse to choose between AMD and NVIDIA.

    SLURM sets it on some clusters.

    Fix: unset it before Ray starts.

    References:
    https://github.com/volcengine/verl/issues/3174
    """
    value = _variable(machine, "ROCR_VISIBLE_DEVICES")
    if value is not None and machine.gpus.value:
        yield Problem(
            "warning",
            f"ROCR_VISIBLE_DEVICES={value!r} is set on a machine with NVIDIA GPUs",
            (_shown("ROCR_VISIBLE_DEVICES", value),),
            "Unset it before Ray starts.",
            steps("unset ROCR_VISIBLE_DEVICES"),
        )


@rule("ENV003", kind="machine", severity="error", cause="nccl-interface")
def socket_interface_does_not_exist(machine: Machine) -> Iterator[Problem]:
    """NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME names a network interface that this machine does not have.

    NCCL matches prefixes; `=eth0` is exact, `^docker` excludes.

    Fix: set it to an existing interface, or unset it.

    References:
    https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-socket-ifname
    """
    interfaces = require_value("interfaces", machine.interfaces)
    if interfaces is None:
        return
    physical = [each for each in interfaces if not each.startswith(VIRTUAL)]
    physical = physical if len(physical) == 1 else []
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        value = _variable(machine, name)
        if not value or value.startswith("^"):
            continue
        wanted = [part.strip().removeprefix("=") for part in value.removeprefix("=").split(",")]
        if not any(interface.startswith(part) for part in wanted for interface in interfaces):
            yield Problem(
                "error",
                f"{name}={value}, but the interfaces are {', '.join(interfaces)}",
                (_shown(name, value), evidence("interfaces", machine.interfaces)),
                "Unset it, or set it to an existing interface that reaches the other nodes.",
                either(
                    ["ip -br addr", shell_command("unset {}", name)],
                    *(shell_command("export {}={}", name, each) for each in physical),
                ),
            )


@rule("ENV004", kind="machine", severity="warning", cause="cuda-compat-lib-conflict")
def compat_libcuda_comes_first(machine: Machine) -> Iterator[Problem]:
    """LD_LIBRARY_PATH places a forward-compatibility libcuda before the driver's.

    If it is older than the driver, or the GPU is not a data-centre GPU, CUDA fails with error 803 or 804.

    Fix: remove it, unless the driver is older than the environment requires.

    References:
    https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html
    """
    value = _variable(machine, "LD_LIBRARY_PATH") or ""
    compat = [
        part for part in value.split(":") if part.rstrip("/").endswith("compat") and not _is_needed(part, machine)
    ]
    if compat and machine.gpus.value and not is_reported(machine.environment):  # ENV012 covers reports
        yield Problem(
            "warning",
            f"LD_LIBRARY_PATH contains {', '.join(compat)}, whose libcuda is found before the driver's",
            (_shown("LD_LIBRARY_PATH", value),),
            "Remove it unless the driver is older than the environment requires.",
            steps(set_path("LD_LIBRARY_PATH", value, compat)),
        )


@rule("ENV005", kind="machine", severity=("warning", "info"), cause="wrong-python-env", url="")
def python_variables_change_the_import_path(machine: Machine) -> Iterator[Problem]:
    """PYTHONHOME or PYTHONPATH is set: Python imports packages from elsewhere before those of the environment.

    envdoctor unsets both for the programs that it starts; programs that you start inherit them.

    Fix: unset both for this environment.

    References:
    https://docs.python.org/3/using/cmdline.html#environment-variables
    """
    for name in ("PYTHONHOME", "PYTHONPATH"):
        value = _variable(machine, name)
        if value:
            yield Problem(
                "warning" if name == "PYTHONHOME" else "info",
                f"{name}={value}",
                (_shown(name, value),),
                "Unset it for the programs of this environment.",
                steps(shell_command("unset {}", name)),
            )


def _is_needed(compat: str, machine: Machine) -> bool:
    """Whether a directory is for a newer CUDA release than the driver's, and driver and GPUs support its package."""
    release = re.search(r"/cuda-(\d+\.\d+)/compat", compat)
    supported = cuda_of_driver(machine.driver.version.value or "")
    return bool(
        release
        and supported
        and major_minor(supported) < major_minor(release[1])
        and supports_compat(machine, release[1])
    )
