"""Rules on obsolete environment variables that change the behaviour of installers and libraries."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Evidence, Machine, Stack
from envdoctor.core.remedies import steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.rules.facts import first_in_use, gpu_labels, gpus_of, installed_version, is_reported, parse_version
from envdoctor.rules.registry import Problem, evidence, rule

INDEX_VARIABLES = ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS",
                   "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS")  # fmt: skip
CPU_INDEX = lazy_pattern(r"/whl/(nightly/)?cpu/?(\s|,|$)")
SLOW_VARIABLES = {
    "TORCHDYNAMO_DISABLE": "torch.compile is disabled",
    "TORCH_COMPILE_DISABLE": "torch.compile is disabled",
    "CUDA_LAUNCH_BLOCKING": "the host waits for every kernel",
}
# The first release whose vllm/envs.py does not contain the variable, read from the source distributions (2026-11-21:
# 0.11.0 and 0.11.1; 0.14.0 and 0.16.0, 0.15 has none), and its replacement.
REMOVED_FROM_VLLM = {
    "VLLM_USE_V1": ("0.11.1", "V1 is the only engine"),
    "VLLM_ATTENTION_BACKEND": ("0.16.0", "use the option --attention-backend"),
}
PRELOADED = lazy_pattern(r"lib(cuda|cudart|cublas\w*|cudnn\w*|cusparse\w*|nvrtc|nvJitLink|nccl)\.so")


@rule("ENV013", kind="machine", severity=("warning", "info"), cause="torch-cpu-build")
def installer_is_set_to_cpu_builds(machine: Machine) -> Iterator[Problem]:
    """A variable selects PyTorch's CPU index for uv or pip, and this machine has a GPU.

    The next installation that changes torch replaces a CUDA build with a CPU build without a warning.
    UV_TORCH_BACKEND=auto has the same effect where no driver is found, as on login nodes and in image builds: `auto`
    then selects the CPU index.

    Fix: unset it, or name the CUDA version: UV_TORCH_BACKEND=cu128.

    References:
    https://docs.astral.sh/uv/guides/integration/pytorch/
    """
    variables, gpus = machine.environment.value or {}, gpus_of(machine)
    backend = variables.get("UV_TORCH_BACKEND", "")
    found = next((name for name in INDEX_VARIABLES if CPU_INDEX.search(variables.get(name, ""))), "")
    name = "UV_TORCH_BACKEND" if backend == "cpu" else found
    if name and gpus:
        yield Problem(
            "warning",
            f"{name} selects PyTorch's CPU builds, but this machine has {gpu_labels(gpus)}",
            (Evidence(name, variables[name], machine.environment.source), evidence("gpus", machine.gpus)),
            "Unset it, so that the next installation does not replace torch with a CPU build.",
            steps(shell_command("unset {}", name)),
        )
    elif backend == "auto" and machine.gpus.state == "absent" and not is_reported(machine.gpus):
        yield Problem(
            "info",
            "UV_TORCH_BACKEND=auto selects CPU builds on this machine, because it has no driver",
            (Evidence("UV_TORCH_BACKEND", backend, machine.environment.source), evidence("gpus", machine.gpus)),
            "If the environment is for a machine with GPUs, set the CUDA version instead.",
            steps("export UV_TORCH_BACKEND=cu128"),
        )


@rule("ENV014", kind="machine", severity="info", cause="silent-slow-path")
def debugging_variable_reduces_speed(machine: Machine) -> Iterator[Problem]:
    """TORCHDYNAMO_DISABLE, TORCH_COMPILE_DISABLE or CUDA_LAUNCH_BLOCKING is set, which is only for debugging.

    Training is slower: the first two disable torch.compile, the third waits for each kernel before the next one is
    launched. No later message reports it. (TORCHINDUCTOR_DISABLE, which some guides recommend, has no effect.)

    Fix: unset it for production runs.

    References:
    https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html
    https://docs.pytorch.org/docs/stable/cuda_environment_variables.html
    """
    variables = machine.environment.value or {}
    for name, effect in SLOW_VARIABLES.items():
        if variables.get(name) == "1":
            yield Problem(
                "info",
                f"{name}={variables[name]}: {effect}",
                (Evidence(name, variables[name], machine.environment.source),),
                "Unset it, unless you are debugging.",
                steps(shell_command("unset {}", name)),
            )


@rule("ENV015", kind="environment", severity="info", cause="silent-slow-path")
def vllm_ignores_the_variable(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """A variable that selected vLLM's engine or attention backend is set, but the installed vLLM no longer reads it.

    VLLM_USE_V1 has no effect from 0.11.1 on, VLLM_ATTENTION_BACKEND from 0.16 on: vLLM logs "Unknown vLLM environment
    variable detected" and continues with its own choice. The option --attention-backend exists from 0.13 on.

    Fix: use the option that replaced it.

    References:
    https://docs.vllm.ai/en/latest/configuration/env_vars.html
    """
    variables, vllm = machine.environment.value or {}, installed_version(stack, "vllm")
    for name, (release, instead) in REMOVED_FROM_VLLM.items():
        limit = parse_version(release)
        if name in variables and vllm and limit and vllm >= limit:
            yield Problem(
                "info",
                f"{name}={variables[name]} has no effect: vLLM {vllm} does not read it, {instead}",
                (Evidence(name, variables[name], machine.environment.source),),
                "Unset it, and use the option if you need it.",
                steps(shell_command("unset {}", name)),
            )


@rule("ENV016", kind="environment", severity=("warning", "info"), cause="cuda-lib-shadowed")
def preloaded_library_replaces_torchs(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """LD_PRELOAD or VLLM_NCCL_SO_PATH replaces a CUDA library or NCCL of torch with another one.

    torch is built for the library in its own wheels. An older one lacks functions (`undefined symbol:
    ncclCommRegister`), and two NCCLs in one process hang or fail in the first collective. Such settings were
    recommended for old releases.

    Fix: unset it.

    References:
    https://github.com/pytorch/pytorch/issues/119932
    https://docs.vllm.ai/en/latest/configuration/env_vars.html
    """
    variables = machine.environment.value or {}
    replacements = [part for part in re.split(r"[\s:]+", variables.get("LD_PRELOAD", "")) if PRELOADED.search(part)]
    replacements = [part for part in replacements if "site-packages" not in part]
    name, value = ("LD_PRELOAD", replacements[0]) if replacements else ("", "")
    if not name and first_in_use(stack, "vllm") and variables.get("VLLM_NCCL_SO_PATH"):
        name, value = "VLLM_NCCL_SO_PATH", variables["VLLM_NCCL_SO_PATH"]
    if not name or not first_in_use(stack, "torch", "vllm", "pytorch"):
        return
    works = bool(stack.cuda_available.value)
    others = [part for part in re.split(r"[\s:]+", variables[name]) if part and part not in (value, *replacements)]
    yield Problem(
        "info" if works or name != "LD_PRELOAD" else "warning",
        f"{name} loads {value} instead of torch's library",
        (Evidence(name, variables[name], machine.environment.source),),
        "Remove it; torch's wheels load their own libraries.",
        steps(shell_command("export {}={}", name, ":".join(others)) if others else shell_command("unset {}", name)),
    )
