"""Rules on vLLM and its torch, CUDA version and GPU."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.core.records import Evidence, Gpu, Machine, Stack
from envdoctor.core.remedies import either, steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.architectures import capability_of
from envdoctor.knowledge.releases import (
    releases_that_accept,
    releases_that_pin,
    version_range,
)
from envdoctor.knowledge.versions import is_prerelease, local_part, public_part, satisfies
from envdoctor.knowledge.wheel_code import minimum_capabilities
from envdoctor.rules.facts import first_in_use, gpu_label, gpus_of, is_for_another_platform, is_rocm, torch_cuda
from envdoctor.rules.packages import version_conflict
from envdoctor.rules.registry import Problem, rule
from envdoctor.rules.requirements import (
    Violation,
    between,
    requirements_of,
    specifiers_for,
    version_evidence,
    versions_of,
)
from envdoctor.rules.torch_install import LEAST_OF_VLLM
from envdoctor.rules.violations import cause_of


def _vllm(stack: Stack) -> str:
    return versions_of(stack).get("vllm", "")


def _backend_of(stack: Stack) -> str:
    cuda = torch_cuda(stack)
    return f"--torch-backend=cu{cuda.replace('.', '')}" if cuda else "--torch-backend=auto"


@rule("VLLM001", kind="environment", severity=("error", "warning", "info"), cause="vllm-torch-mismatch")
def vllm_requires_another_torch(machine: Machine, stack: Stack) -> Iterator[Problem]:  # noqa: ARG001
    """vLLM and the installed torch are incompatible, or another package next to vLLM requires a different torch.

    Each vLLM release is compiled for one torch release and requires exactly this one. Another torch causes undefined
    symbols in `vllm/_C.abi3.so`, a segmentation fault, or a `torch.ops._C` without its operators. The reason is an
    installation after vLLM that changed torch, or two projects with different pins in one environment.

    Fix: install the torch that vLLM requires, the vLLM for the installed torch, or use separate environments.

    References:
    https://github.com/vllm-project/vllm/releases
    https://docs.vllm.ai/en/latest/getting_started/installation/gpu.html
    """
    versions = versions_of(stack)
    torch = versions.get("torch", "")
    if not torch or is_prerelease(torch) or is_for_another_platform(stack) or is_rocm(stack):
        return
    violations = requirements_of(stack).violations
    found = [violation for violation in violations if cause_of(violation, versions) == "vllm-torch-mismatch"]
    if not found:
        return
    vllm_violation = next((violation for violation in found if violation.requirer == "vllm"), None)
    problem = version_conflict(stack, "torch", found)
    vllm_releases = releases_that_pin("vllm", "torch", public_part(torch))
    if vllm_violation and _is_unneeded(stack):
        fix = (
            f"SGLang {versions['sglang']} uses vLLM only for some quantized models, and this vLLM does not load: "
            "remove it, or install vLLM in a separate environment."
        )
        yield Problem("warning", problem.message, problem.evidence, fix, steps("uv pip uninstall vllm"))
        return
    if vllm_violation:
        pin = vllm_violation.specifier
        instead = f", or for torch {public_part(torch)} vLLM {version_range(vllm_releases)}" if vllm_releases else ""
        commands = [
            shell_command(
                "uv pip install 'torch{}' 'vllm=={}' {}", pin, vllm_violation.requirer_version, _backend_of(stack)
            )
        ]
        if vllm_releases:
            commands.append(shell_command("uv pip install 'vllm{}' {}", between(vllm_releases), _backend_of(stack)))
        fix = f"Install torch{pin}, which vLLM {vllm_violation.requirer_version} is compiled for{instead}."
        yield Problem(problem.status, problem.message, problem.evidence, fix, either(*commands))
        return
    users = ", ".join(sorted({violation.requirer for violation in found}))
    fix = f"Keep torch {torch} for vLLM {_vllm(stack)} and change {users} to releases that accept it"
    yield Problem(
        problem.status,
        problem.message + f"; vLLM {_vllm(stack)} requires torch{specifiers_for(stack, 'torch').get('vllm', '')}",
        problem.evidence,
        f"{fix}, or to a separate environment.",
        either(*(shell_command("uv pip install {}=={}", name, release) for name, release in _releases_for(found))),
    )


def _is_unneeded(stack: Stack) -> bool:
    """Whether vLLM is next to an SGLang that accepts the torch and does not require vLLM.

    SGLang from 0.4.4.post3 on imports operators of vLLM for some quantizations, and runs without them otherwise
    (METADATA and code of 0.4.4.post3, 0.4.7 and 0.5.2, read on 2026-11-29).
    """
    torch = specifiers_for(stack, "torch").get("sglang", "")
    return (
        "sglang" in versions_of(stack)
        and "sglang" not in specifiers_for(stack, "vllm")
        and satisfies(public_part(versions_of(stack)["torch"]), torch) is not False
    )


def _releases_for(violations: list[Violation]) -> Iterator[tuple[str, str]]:
    """The newest release of each package that accepts the installed torch."""
    for violation in violations:
        releases = releases_that_accept(violation.requirer, "torch", public_part(violation.installed))
        yield from ((violation.requirer, release) for release in releases[:1])


# The model runner refuses older GPUs: "SGLang only supports sm75 and above".
LEAST_OF_SGLANG = (7, 5)
HOPPER = (9, 0)
# Read from vllm/_C.abi3.so of PyPI's wheels: no code for 12.0 in 0.9.0 and 0.9.1, 0.9.2 has it for some kernels
# (github.com/vllm-project/vllm/issues/20748).
FIRST_WITH_SM_120 = "0.9.2"
FIRST_COMPLETE_ON_SM_120 = "0.10.0"


@rule("VLLM004", kind="environment", severity=("error", "warning"), cause="ext-arch-not-in-build")
def vllm_has_no_code_for_blackwell(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """The vLLM release has no kernels for this Blackwell GPU, even if torch supports it.

    torch for CUDA 12.8 runs on an RTX 5090 (sm_120). vLLM's own kernels have no code for it before 0.9.2, and 0.9.2
    has code for only some: `no kernel image is available for execution on the device` from RMSNorm, quantized layers
    or the attention. Reinstalling torch does not help. If a report contains no vLLM version, the rule checks the
    releases that require the installed torch.

    Fix: install a newer vLLM, or build it from source with TORCH_CUDA_ARCH_LIST.

    References:
    https://github.com/vllm-project/vllm/issues/16901
    https://github.com/vllm-project/vllm/issues/20748
    https://docs.vllm.ai/en/latest/getting_started/installation/gpu.html
    """
    versions = versions_of(stack)
    binaries = any(release.distribution == "vllm" and release.code for release in stack.extensions.value or ())
    if not first_in_use(stack, "vllm") or binaries:  # the EXT rules check the binaries
        return
    blackwell_gpus = [gpu for gpu in gpus_of(machine) if (capability_of(gpu) or (0, 0))[0] == 12]
    releases = tuple(version for version in [_vllm(stack)] if version) or _possible_releases(
        versions.get("torch", "")
    )
    old = [row for row in releases if satisfies(row, f"<{FIRST_COMPLETE_ON_SM_120}") and not local_part(row)]
    if blackwell_gpus and old and len(old) == len(releases):
        no_code = [release for release in old if satisfies(release, f"<{FIRST_WITH_SM_120}")]
        version = _vllm(stack)
        name = f"vLLM {version}" if version else f"vLLM {version_range(releases)}, the releases for this torch,"
        yield Problem(
            "error" if no_code == old else "warning",
            f"{name} on {gpu_label(blackwell_gpus[0])}: no native code before {FIRST_WITH_SM_120}, in that release "
            f"only for some kernels; PyPI's wheels from {FIRST_COMPLETE_ON_SM_120} on have it",
            (
                Evidence(f"GPU {blackwell_gpus[0].index}", gpu_label(blackwell_gpus[0]), machine.gpus.source),
                *version_evidence(stack, "torch", "vllm"),
            ),
            "Install vLLM 0.10.2 or newer with its torch, or build it with TORCH_CUDA_ARCH_LIST=12.0; "
            "reinstalling torch does not help.",
            steps("uv pip install 'vllm>=0.10.2,<0.12' --torch-backend=auto"),
        )


def _possible_releases(torch: str) -> tuple[str, ...]:
    """The vLLM releases that require this torch release, for reports without a vLLM version."""
    if not torch or is_prerelease(torch):
        return ()
    return releases_that_pin("vllm", "torch", public_part(torch))


@rule("VLLM005", kind="environment", severity=("error", "warning"), cause="gpu-unsupported-by-library")
def gpu_is_too_old_for_the_library(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """The GPU's compute capability is below the minimum of vLLM, SGLang, FlashAttention or another library.

    No build supports it. vLLM needs compute capability 7.0 (7.5 from 0.20 on, because CUDA 13 does not support
    Volta), SGLang 7.5, FlashAttention 2 needs 8.0, FlashAttention 3 Hopper, ExLlamaV3 up to 0.0.25 Ampere, TensorRT
    10.5 Turing. vLLM selects another attention backend automatically; transformers with
    `attn_implementation="flash_attention_2"` raises `FlashAttention only supports Ampere GPUs or newer`. A report
    that states that one of them fails needs no version of it. LMDeploy has kernels for FP8 weights from Hopper on:
    "No feasible kernel found for the problem".

    Fix: use another engine (llama.cpp, exllamav2) or GPU; for attention use `sdpa`, or in vLLM TRITON_ATTN or
    XFORMERS.

    References:
    https://docs.vllm.ai/en/latest/getting_started/installation/gpu.html
    https://github.com/Dao-AILab/flash-attention#installation-and-features
    https://github.com/InternLM/lmdeploy/issues/4863
    """
    versions = versions_of(stack)
    below = [(gpu, capability) for gpu in gpus_of(machine) if (capability := capability_of(gpu))]
    newest = max((capability for _, capability in below), default=(99, 0))
    used_without_version = "flash-attn" not in versions and bool(first_in_use(stack, "flash-attn"))
    flash_attn_2 = used_without_version or satisfies(versions.get("flash-attn", ""), ">=2")
    if first_in_use(stack, "sglang") and newest < LEAST_OF_SGLANG:
        yield _too_old(machine, stack, below[0][0], "SGLang", LEAST_OF_SGLANG, on_all_gpus=True)
    if first_in_use(stack, "vllm"):
        least = (7, 5) if satisfies(versions.get("vllm", "0"), ">=0.20") else LEAST_OF_VLLM
        for gpu, capability in below:
            if capability < least:
                yield _too_old(machine, stack, gpu, "vLLM", least, on_all_gpus=newest < least)
                break
    if flash_attn_2 and newest < (8, 0):
        yield _too_old(machine, stack, below[0][0], "FlashAttention 2", (8, 0), on_all_gpus=False)
    if satisfies(versions.get("flash-attn-3", ""), ">0.0.0") and (newest < (8, 0) or newest[0] >= 10) and below:
        yield _too_old(machine, stack, below[0][0], "FlashAttention 3", HOPPER, on_all_gpus=False)
    if stack.dtype.value == "fp8" and first_in_use(stack, "lmdeploy") and newest < HOPPER:
        yield _too_old(machine, stack, below[0][0], "LMDeploy for FP8 weights", HOPPER, on_all_gpus=False)
    for row in minimum_capabilities():
        if satisfies(versions.get(row.package, ""), row.versions) and newest < row.capability:
            yield _too_old(machine, stack, below[0][0], row.package, row.capability, on_all_gpus=False)


def _too_old(
    machine: Machine, stack: Stack, gpu: Gpu, library: str, least: tuple[int, int], *, on_all_gpus: bool
) -> Problem:
    needs = f"{least[0]}.{least[1]}" if library != "FlashAttention 3" else "9.0 (Hopper)"
    fixes = {
        "FlashAttention": 'Use attn_implementation="sdpa", in vLLM the TRITON_ATTN or XFORMERS backend.',
        "LMDeploy": "Use a checkpoint in float16 or AWQ format on this GPU.",
        "tensorrt": "Use a newer GPU, or a release of TensorRT for this one.",
        "flashinfer": "Install FlashInfer 0.1.6 or newer, or select another attention backend (Triton in SGLang).",
    }
    engine = (
        f"Use llama.cpp, exllamav2 or another engine on this GPU, or a newer GPU; no {library} wheel supports it."
    )
    fix = fixes.get(library.partition(" ")[0], engine)
    return Problem(
        "error" if on_all_gpus else "warning",
        f"{library} needs compute capability {needs}; {gpu_label(gpu)} has {gpu.compute_capability.value}",
        (
            Evidence(f"GPU {gpu.index}", gpu_label(gpu), machine.gpus.source),
            *version_evidence(stack, "vllm", "sglang", "flash-attn", library),
        ),
        fix,
        steps("nvidia-smi --query-gpu=index,name,compute_cap --format=csv"),
    )


@rule("VLLM006", kind="environment", severity=("error", "info"), cause="dtype-unsupported-gpu")
def gpu_has_no_bfloat16(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """The GPU is older than Ampere and does not support bfloat16, the data type of most released models.

    vLLM fails with `Bfloat16 is only supported on GPUs with compute capability of at least 8.0`, Triton's compiler
    with `Feature '.bf16' requires .target sm_80 or higher`. Models run in float16.

    Fix: `--dtype half`, `torch_dtype=torch.float16`, `fp16=True, bf16=False`.

    References:
    https://docs.vllm.ai/en/latest/features/quantization/supported_hardware.html
    """
    old = [gpu for gpu in gpus_of(machine) if (7, 0) <= (capability_of(gpu) or (99, 0)) < (8, 0)]
    if old and first_in_use(stack, "vllm", "trl", "transformers"):
        selected = stack.dtype.value == "bfloat16" and first_in_use(stack, "vllm") == "vllm"
        yield Problem(
            "error" if selected else "info",
            f"{gpu_label(old[0])} does not support bfloat16 (compute capability 8.0 is required)",
            (Evidence(f"GPU {old[0].index}", gpu_label(old[0]), machine.gpus.source),),
            "Use float16: --dtype half in vLLM, fp16=True and bf16=False in the trainer.",
            steps("vllm serve MODEL --dtype half") if selected else (),
        )


@rule("VLLM007", kind="environment", severity=("warning", "info"), cause="silent-slow-path")
def triton_kernels_is_an_unrelated_package(machine: Machine, stack: Stack) -> Iterator[Problem]:  # noqa: ARG001
    """The installed `triton-kernels` is an unrelated package, not the one of the Triton repository.

    vLLM up to 0.11 and transformers import a module `triton_kernels` for MXFP4 (gpt-oss). 0.1.0 on PyPI is an
    unrelated project: pip check reports nothing, vLLM logs `Failed to import Triton kernels` and uses slower code.
    vLLM 0.12 and newer includes the right one.

    Fix: remove it; for vLLM below 0.12 install the package from the Triton repository.

    References:
    https://github.com/triton-lang/triton/tree/main/python/triton_kernels
    """
    package = (stack.distributions.value or {}).get("triton-kernels")
    other_project = (
        package and package.home and "triton-lang/triton" not in package.home and "openai/triton" not in package.home
    )
    from_index = package and package.source in ("", "pip", "uv", "report") and package.version == "0.1.0"
    if package and (other_project or from_index):
        yield Problem(
            "warning" if first_in_use(stack, "vllm", "transformers") else "info",
            f"triton-kernels {package.version} is not the package of the Triton repository"
            + (f" (its home page is {package.home})" if package.home else ""),
            version_evidence(stack, "triton-kernels", "vllm"),
            "Remove it; vLLM 0.12 and newer includes it, older releases need that of the Triton repository.",
            steps("uv pip uninstall triton-kernels"),
        )
