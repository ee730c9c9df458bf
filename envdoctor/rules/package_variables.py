"""Rules on environment variables that cause problems with some packages."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.version import Version

from envdoctor.core.records import Evidence, Machine, Stack
from envdoctor.core.remedies import either, steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.rules.facts import (
    first_in_use,
    gpus_of,
    installed_version,
    is_reported,
    names_no_gpu,
    parse_major_minor,
    parse_version,
    torch_cuda,
    torch_version,
)
from envdoctor.rules.host_remedies import set_path
from envdoctor.rules.registry import Problem, evidence, rule

# From this release on vLLM disables expandable segments around its memory pool if this variable sets them:
# github.com/vllm-project/vllm/pull/40812, and vllm/device_allocator/cumem.py in the source
# distributions of 0.20.0 to 0.21.0 (measured 2026-11-21).
VLLM_TOGGLES_SEGMENTS, VLLM_READS = "0.20.1", "PYTORCH_CUDA_ALLOC_CONF"
ALLOCATOR_VARIABLES = (VLLM_READS, "PYTORCH_ALLOC_CONF")
NO_DEVICE_NAMES = ("all", "auto", "gpu", "cuda", "cuda:0")  # for CUDA_VISIBLE_DEVICES, CUDA accepts numbers and UUIDs
FIRST_TORCH_WITH_ALLOC_CONF = (2, 10)  # docs.pytorch.org/docs/2.10/cuda_environment_variables.html
DISABLED_PATHS = {
    "NCCL_P2P_DISABLE": "peer access",
    "NCCL_SHM_DISABLE": "shared memory",
    "NCCL_IB_DISABLE": "InfiniBand",
    "NCCL_NVLS_ENABLE": "NVLink SHARP",
}
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")


def _variables(machine: Machine) -> dict[str, str]:
    return machine.environment.value or {}


@rule("ENV006", kind="environment", severity="warning", cause="cuda-device-selection")
def visible_devices_are_uuids(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """CUDA_VISIBLE_DEVICES contains UUIDs of GPUs or MIG instances, and the environment has vLLM.

    CUDA accepts UUIDs, but vLLM and Ray parse them as numbers: "invalid literal for int() with base 10: 'MIG-...'",
    or a message that the model's architecture failed to be inspected.

    Fix: use numbers; for a MIG instance use a container that has only this one, with CUDA_VISIBLE_DEVICES=0.

    References:
    https://github.com/vllm-project/vllm/issues/41848
    https://github.com/vllm-project/vllm/issues/20939
    """
    value = _variables(machine).get("CUDA_VISIBLE_DEVICES", "")
    engine = first_in_use(stack, "vllm", "ray", "sglang")
    if not engine or not re.match(r"\s*(GPU|MIG)-", value):
        return
    mig, names = value.strip().startswith("MIG-"), [name.strip() for name in value.split(",")]
    numbers = [
        str(gpu.index) for name in names for gpu in gpus_of(machine) if (gpu.uuid.value or "").startswith(name)
    ]
    numbers = numbers if len(numbers) == len(names) else []
    yield Problem(
        "warning",
        f"CUDA_VISIBLE_DEVICES={value[:12]}... is a UUID, but {engine} expects numbers",
        (Evidence("CUDA_VISIBLE_DEVICES", value[:12] + "...", machine.environment.source),),
        "Give a container only this instance, which has number 0 in it." if mig else "Use the numbers of the GPUs.",
        steps(
            "nvidia-smi -L",
            *(
                [shell_command("docker run --gpus '\"device={}\"' -e CUDA_VISIBLE_DEVICES=0 ...", names[0])]
                if mig and re.fullmatch(r"[\w/-]+", names[0])
                else [
                    "export CUDA_DEVICE_ORDER=PCI_BUS_ID",
                    shell_command("export CUDA_VISIBLE_DEVICES={}", ",".join(numbers)),
                ]
                if numbers
                else []
            ),
        ),
    )


@rule("ENV017", kind="environment", severity="warning", cause="cuda-device-selection")
def visible_devices_may_name_no_gpu(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """CUDA_VISIBLE_DEVICES of a report is a word such as `all`; or it is empty, -1, or no 0, and torch finds no GPU.

    A number that does not exist hides all GPUs: `CUDA_VISIBLE_DEVICES=1` on a machine with one GPU, or in a worker or
    container with one GPU, where it has the number 0. Unless the report lists the GPUs, torch must have found none.
    `all` is a value of NVIDIA_VISIBLE_DEVICES; CUDA finds no GPU of this name.

    Fix: unset it, or use the numbers that `nvidia-smi -L` lists in the same process.

    References:
    https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#env-vars
    https://github.com/bentoml/BentoML/issues/5443
    """
    value = _variables(machine).get("CUDA_VISIBLE_DEVICES")
    first = (value or "").split(",")[0].strip()
    if value is None or not is_reported(machine.gpus) or stack.cuda_available.value is True:
        return
    if first.lower() in NO_DEVICE_NAMES:
        yield _hidden_devices(machine, stack, value, "it names no GPU; `all` is a value of NVIDIA_VISIBLE_DEVICES")
        return
    if not re.fullmatch(r"|-1|[1-9]\d{0,2}", first):
        return
    number = len(machine.gpus.value or ())
    listed = stack.cuda_available.value is False or "nvidia-smi" in machine.gpus.source  # a person may omit GPUs
    exceeds = listed and names_no_gpu(first, number)
    if not exceeds and (machine.gpus.state != "unreadable" or stack.cuda_available.value is not False):
        return
    reason = (
        f"but the GPUs have the numbers 0 to {number - 1}"
        if exceeds
        else "and torch finds no GPU: it names none, or one that does not exist"
    )
    yield _hidden_devices(machine, stack, value, reason)


def _hidden_devices(machine: Machine, stack: Stack, value: str, reason: str) -> Problem:
    return Problem(
        "warning",
        f"CUDA_VISIBLE_DEVICES={value!r}, {reason}",
        (Evidence("CUDA_VISIBLE_DEVICES", value, machine.environment.source),
         evidence("cuda_available", stack.cuda_available)),
        "Unset it, or use the numbers that the GPUs have in the process.",
        steps("nvidia-smi -L", "unset CUDA_VISIBLE_DEVICES"),
    )  # fmt: skip


@rule("ENV007", kind="environment", severity=("warning", "info"), cause="gpu-oom")
def expandable_segments_with_sleep_mode(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """The allocator uses expandable segments, which are incompatible with vLLM's sleep mode.

    vLLM before 0.20.1 fails with "Expandable segments are not compatible with memory pool" in sleep mode; later
    releases disable them around its pool. Both read only PYTORCH_CUDA_ALLOC_CONF. They do not detect
    PYTORCH_ALLOC_CONF, which torch reads from 2.10 on. Without sleep mode the segments reduce fragmentation.

    Fix: unset it for the process that runs vLLM, or do not use sleep mode.

    References:
    https://github.com/vllm-project/vllm/pull/14189
    https://github.com/vllm-project/vllm/pull/40812
    https://github.com/pytorch/pytorch/issues/147851
    https://github.com/huggingface/trl/pull/5794
    """
    name = next((n for n in ALLOCATOR_VARIABLES if "expandable_segments:True" in _variables(machine).get(n, "")), "")
    if not name or not first_in_use(stack, "vllm"):
        return
    vllm, sleeper = installed_version(stack, "vllm"), first_in_use(stack, "trl", "verl", "openrlhf")
    unseen = name != VLLM_READS and (parse_major_minor(torch_version(stack)) or (0, 0)) >= FIRST_TORCH_WITH_ALLOC_CONF
    toggled = bool(vllm and (limit := parse_version(VLLM_TOGGLES_SEGMENTS)) and vllm >= limit)
    old, toggles = name == VLLM_READS and bool(vllm) and not toggled, unseen and toggled
    others = [part for part in _variables(machine)[name].split(",") if not part.startswith("expandable_segments:")]
    if not (old or unseen or (name == VLLM_READS and not vllm)):
        return
    reads_another = f"vLLM reads only {VLLM_READS}, and frees no memory in sleep mode"
    effect = "sleep mode fails" if old else reads_another if unseen else ""
    yield Problem(
        "warning" if (old or unseen) and sleeper else "info",
        f"{name}={_variables(machine)[name]} with vLLM {vllm or ''}".rstrip()
        + (f" and {sleeper}, which can use its sleep mode" if sleeper else ", whose sleep mode does not work with it")
        + (f": {effect}" if effect and sleeper else ""),
        (Evidence(name, _variables(machine)[name], machine.environment.source),),
        "Unset it for processes that use vLLM's sleep mode"
        + (f", or set {VLLM_READS} instead, which vLLM changes around its pool." if toggles else "."),
        either(
            shell_command("export {}={}", name, ",".join(others)) if others else shell_command("unset {}", name),
            *(
                [
                    [
                        shell_command("unset {}", name),
                        shell_command("export {}={}", VLLM_READS, _variables(machine)[name]),
                    ]
                ]
                if toggles
                else []
            ),
        ),
    )


@rule("ENV008", kind="machine", severity=("warning", "info"), cause="nccl-interface")
def nccl_fast_path_is_disabled(machine: Machine) -> Iterator[Problem]:
    """A variable disables a transport of NCCL that this machine has, so NVLink or InfiniBand is not used.

    NCCL_P2P_DISABLE on a machine with NVLink sends all traffic through host memory, which is many times slower. Such
    settings often remain after the problem that they worked around.

    Fix: unset it, unless this machine is known to need it.

    References:
    https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
    """
    variables, gpus = _variables(machine), gpus_of(machine)
    linked = any(gpu.nvlink.value and gpu.nvlink.value.active for gpu in gpus)
    infiniband = any(name.startswith(("ib", "hsn")) for name in machine.interfaces.value or ())
    for name, path in DISABLED_PATHS.items():
        off = variables.get(name) == ("0" if name.endswith("ENABLE") else "1")
        if not off or len(gpus) < 2:
            continue
        harms = (name == "NCCL_P2P_DISABLE" and linked) or (name == "NCCL_IB_DISABLE" and infiniband)
        if not harms and name in ("NCCL_P2P_DISABLE", "NCCL_IB_DISABLE"):
            continue  # the machine has no such transport, or the setting is needed, as on GeForce cards
        yield Problem(
            "warning" if harms else "info",
            f"{name}={variables[name]} disables {path}"
            + (", and this machine has NVLink" if harms and linked and "P2P" in name else "")
            + (", and this machine has InfiniBand" if harms and "IB" in name else ""),
            (Evidence(name, variables[name], machine.environment.source), evidence("gpus", machine.gpus)),
            "Unset it unless this machine needs it.",
            steps(shell_command("unset {}", name)),
        )


@rule("ENV009", kind="environment", severity=("warning", "info"), cause="cuda-lib-shadowed")
def library_path_shadows_torchs_cuda(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """LD_LIBRARY_PATH places the CUDA libraries of a toolkit or of conda before those of torch.

    Libraries of the same major version have the same file names. The loader then uses an older libnvJitLink.so.12 or
    libcublas.so.12, and the import fails with "undefined symbol: __nvJitLinkComplete_12_4", or cuDNN loads parts of
    another version. A newer toolkit of the same major version usually causes no problem.

    Fix: remove the directory from LD_LIBRARY_PATH; wheels do not need it.

    References:
    https://github.com/pytorch/pytorch/issues/134929
    https://github.com/pytorch/pytorch/issues/111469
    """
    value, cuda = _variables(machine).get("LD_LIBRARY_PATH", ""), parse_major_minor(torch_cuda(stack))
    parts = [part for part in value.split(":") if re.search(r"/cuda(-[\d.]+)?(/|$)|/conda|/envs/|cudnn", part)]
    parts = [part for part in parts if not part.rstrip("/").endswith(("compat", "stubs"))]
    imported = stack.cuda_available.value is not None  # torch of the report was imported, so its libraries were found
    if not parts or not cuda or imported:
        return
    releases = {part: _cuda_of(part, machine) for part in parts}
    older = [part for part, found in releases.items() if found and found[0] == cuda[0] and found < cuda]
    older += [part for part in parts if _is_older_cudnn(part, stack)]
    unknown = [part for part, found in releases.items() if not found and not part.startswith("/usr/local/cuda")]
    parts = older or unknown
    if not parts:
        return
    yield Problem(
        "warning" if older else "info",
        f"LD_LIBRARY_PATH contains {parts[0]}"
        + (f", an older CUDA than torch's {torch_cuda(stack)}" if older else ", whose CUDA libraries may come first"),
        (Evidence("LD_LIBRARY_PATH", value, machine.environment.source),),
        "Remove it; torch's wheels load their own libraries.",
        steps(set_path("LD_LIBRARY_PATH", value, parts)),
    )


def _is_older_cudnn(part: str, stack: Stack) -> bool:
    """Whether a directory is named after a cuDNN of the same major version as the installed one, but older."""
    match = re.search(r"cudnn[-_/]?v?(\d\.\d{1,2})", part)
    named = parse_major_minor(match[1]) if match else None
    versions = [each.version for name, each in (stack.distributions.value or {}).items() if "nvidia-cudnn-cu" in name]
    installed = parse_major_minor(versions[0]) if versions else None
    return named is not None and installed is not None and named[0] == installed[0] and named < installed


@rule("ENV010", kind="machine", severity="info", cause="hub-offline")
def hub_is_offline(machine: Machine) -> Iterator[Problem]:
    """A variable sets the Hugging Face libraries to offline mode: only cached files can be loaded.

    It is meant for machines without a network. Elsewhere it causes "We couldn't connect to the Hub", "outgoing
    traffic has been disabled".

    Fix: unset it, or download the model into the cache first.

    References:
    https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables
    """
    offline = {name: value for name, value in _variables(machine).items() if name in OFFLINE}
    offline = {name: value for name, value in offline.items() if value.lower() in ("1", "true", "yes", "on")}
    if offline:
        yield Problem(
            "info",
            ", ".join(f"{name}={value}" for name, value in offline.items())
            + ": only cached models and datasets can be loaded",
            tuple(Evidence(name, value, machine.environment.source) for name, value in offline.items()),
            f"Unset {'them' if len(offline) > 1 else 'it'} to permit downloads.",
            steps(*(shell_command("unset {}", name) for name in offline)),
        )


@rule("ENV011", kind="environment", severity="info", cause="hub-auth")
def no_token_for_gated_models(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """No Hugging Face token is set in the environment; a stored login is an alternative.

    Only gated and private models need one: "401 Client Error", "Access to model ... is restricted". envdoctor never
    reads or prints the token.

    Fix: log in once, and accept the model's licence on its page.

    References:
    https://huggingface.co/docs/hub/security-tokens
    """
    variables, hub = machine.environment, installed_version(stack, "huggingface-hub")
    if variables.value is None or is_reported(variables) or not first_in_use(stack, "huggingface-hub"):
        return
    if not any(variables.value.get(name) for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE")):
        yield Problem(
            "info",
            "HF_TOKEN is not set: gated models need a login",
            (evidence("environment", variables),),
            "Log in once if you use gated models.",
            steps("hf auth login" if not hub or hub >= Version("0.34") else "huggingface-cli login"),
        )


@rule("ENV012", kind="environment", severity=("error", "info"), cause="cuda-compat-lib-conflict")
def reported_path_has_a_compat_libcuda(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """LD_LIBRARY_PATH of a report contains a forward-compatibility libcuda, which is found before the driver's.

    If CUDA works, this is its purpose. If it does not, this libcuda is the most likely reason: it is older than the
    driver, or the GPU does not support it (error 803, 804).

    Fix: remove it from the path.

    References:
    https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html
    """
    value = _variables(machine).get("LD_LIBRARY_PATH", "")
    compat = [part for part in value.split(":") if re.search(r"/compat(/|$)", part)]
    if not compat or not is_reported(machine.environment):
        return
    fails = stack.cuda_available.value is False and bool(torch_cuda(stack))
    if stack.cuda_available.value:
        return
    yield Problem(
        "error" if fails else "info",
        f"LD_LIBRARY_PATH contains {compat[0]}, whose libcuda is found before the driver's"
        + (", and CUDA does not initialize" if fails else ""),
        (Evidence("LD_LIBRARY_PATH", value, machine.environment.source), evidence("cuda", stack.cuda_available)),
        "Remove it unless the driver is older than the environment requires.",
        steps(set_path("LD_LIBRARY_PATH", value, compat)),
    )


def _cuda_of(part: str, machine: Machine) -> tuple[int, int] | None:
    """The CUDA release of a directory: that in its name for /usr/local/cuda-12.1/lib64, that of nvcc without one."""
    named = parse_major_minor(found[1]) if (found := re.search(r"cuda-(\d+\.\d+)", part)) else None
    plain = part.startswith("/usr/local/cuda/")
    return named or (parse_major_minor(machine.cuda.nvcc_version.value) if plain else None)
