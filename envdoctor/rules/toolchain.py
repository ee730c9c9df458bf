"""Rules on the CUDA toolkit and the host compiler, compared with torch and the GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.core.records import Evidence, Machine, Stack, Status
from envdoctor.core.remedies import either, steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.architectures import capability_of
from envdoctor.knowledge.cuda import first_toolkit, toolkit, toolkits_for
from envdoctor.knowledge.versions import major_minor, satisfies
from envdoctor.rules.facts import (
    first_in_use,
    framework_without_torch,
    gpu_label,
    gpus_of,
    is_from_report,
    parse_major_minor,
    torch_cuda,
    torch_label,
)
from envdoctor.rules.host_remedies import install_packages, install_toolkit
from envdoctor.rules.registry import Problem, evidence, rule
from envdoctor.rules.torch_build import is_without_cuda

# Libraries that compile CUDA code on the machine: at run time, or at installation from source.
AT_RUN_TIME = ("flashinfer-python", "deepspeed", "deep-gemm")
GCC_TOOLSET = "/opt/rh/gcc-toolset-{}/root/usr/bin/"  # of RHEL and its rebuilds
# flashinfer/compilation_context.py: 0.6.6 has no limit, 0.6.7 to 0.6.14 raise "SM 12.x requires CUDA >= 12.9".
FLASHINFER_WITH_LIMIT, FLASHINFER_ON_SM_12 = "0.6.7", (12, 9)
FROM_SOURCE = ("flash-attn", "causal-conv1d", "mamba-ssm", "apex", "transformer-engine", "grouped-gemm")
BUILT_FROM_SOURCE = (*FROM_SOURCE, "vllm", "xformers", "sgl-kernel")
GIB = 1 << 30
LEAST_AVAILABLE = 0.02  # of the memory, while compilers run
WITHOUT_WHEELS = ("detectron2", "pytorch3d")  # current releases


@rule("CUDA001", kind="environment", severity=("warning", "info"), cause="nvcc-torch-mismatch")
def nvcc_and_torch_are_of_different_cuda(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """nvcc and torch have different CUDA major versions: torch refuses to build extensions with it.

    "The detected CUDA version (11.7) mismatches the version that was used to compile PyTorch (12.1)". Source builds
    (flash-attn, vLLM, apex) and DeepSpeed's kernels fail. Wheels are not affected, so the rule reports this only for
    environments with such a library. A different minor version is compatible; torch only prints a warning.

    Fix: set CUDA_HOME to a toolkit of torch's CUDA version, or use wheels.

    References:
    https://docs.pytorch.org/docs/stable/cpp_extension.html
    https://github.com/pytorch/pytorch/blob/main/torch/utils/cpp_extension.py
    """
    cuda, nvcc = torch_cuda(stack), machine.cuda.nvcc_version
    torch_release, nvcc_release = parse_major_minor(cuda), parse_major_minor(nvcc.value)
    if not torch_release or not nvcc_release or torch_release[0] == nvcc_release[0] or not _uses_nvcc(stack):
        return
    yield Problem(
        _severity(stack),
        f"nvcc is {nvcc.value}, {torch_label(stack)} is built for CUDA {cuda}",
        (evidence("cuda.nvcc_version", nvcc), Evidence("torch.cuda", cuda, stack.torch.source)),
        f"Install the CUDA {cuda} toolkit and set CUDA_HOME to it before a source build, or install wheels.",
        install_toolkit(machine, cuda),
    )


@rule("CUDA002", kind="environment", severity=("warning", "info"), cause="nvcc-too-old")
def nvcc_does_not_support_the_gpu(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """nvcc is too old for the GPU, or no longer supports it: "Unsupported gpu architecture 'compute_90'".

    Compilation of CUDA code for this GPU fails: source builds, and the run-time compilation of FlashInfer and
    DeepSpeed. Wheels are not affected, nor is Triton, which includes its own ptxas. FlashInfer from 0.6.7 on requires
    CUDA 12.9 for compute capability 12.x: "FlashInfer requires GPUs with sm75 or higher".

    Fix: set CUDA_HOME to a toolkit that supports the GPU.

    References:
    https://docs.nvidia.com/cuda/cuda-compiler-driver-nvcc/#gpu-feature-list
    https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/index.html
    """
    nvcc = machine.cuda.nvcc_version
    nvcc_release = parse_major_minor(nvcc.value)
    row = toolkit(nvcc_release) if nvcc_release else None
    for gpu in gpus_of(machine) if row and nvcc_release and _uses_nvcc(stack) else ():
        capability = capability_of(gpu)
        supported = toolkits_for(capability) if capability else ()
        if not capability or not supported or not nvcc_release:
            continue
        by_flashinfer = capability[0] == 12 and nvcc_release < FLASHINFER_ON_SM_12 and _is_new_flashinfer(stack)
        if by_flashinfer:
            supported = tuple(each for each in supported if major_minor(each.cuda) >= FLASHINFER_ON_SM_12)
        elif row in supported:
            continue
        too_old = by_flashinfer or nvcc_release < major_minor(supported[0].cuda)
        of_torch = parse_major_minor(torch_cuda(stack))
        limit = (
            f"{supported[0].cuda} is the first that does"
            if too_old
            else f"{supported[-1].cuda} is the last that does"
        )
        if by_flashinfer:
            limit = f"{supported[0].cuda} is the first with which {_flashinfer(stack)} does"
        cuda = supported[0 if too_old else -1].cuda
        cuda = torch_cuda(stack) if of_torch and toolkit(of_torch) in supported else cuda
        yield Problem(
            _severity(stack),
            f"nvcc {nvcc.value} does not compile for {gpu_label(gpu)}; CUDA {limit}",
            (evidence("cuda.nvcc_version", nvcc), evidence(f"gpus.{gpu.index}.compute_capability",
                                                           gpu.compute_capability)),
            f"Install the toolkit of CUDA {cuda} and set CUDA_HOME to it; wheels do not need it.",
            install_toolkit(machine, cuda),
        )  # fmt: skip
        return


@rule("CUDA003", kind="environment", severity=("warning", "info"), cause="gcc-too-new-for-nvcc")
def gcc_is_too_new_for_nvcc(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """The host compiler is newer than this nvcc supports: "unsupported GNU version! gcc versions later than ...".

    Source builds and run-time compilation of CUDA code fail. Wheels are not affected.

    Fix: use an older gcc for nvcc (`NVCC_PREPEND_FLAGS='-ccbin g++-12'`, CC and CXX), or a newer toolkit.

    References:
    https://docs.nvidia.com/cuda/cuda-installation-guide-linux/#host-compiler-support-policy
    """
    nvcc, compiler = machine.cuda.nvcc_version, machine.cuda.compiler
    nvcc_release, gcc = parse_major_minor(nvcc.value), gcc_major(compiler.value or "")
    row = toolkit(nvcc_release) if nvcc_release else None
    if not row or not gcc or gcc <= row.gcc or not _uses_nvcc(stack) or _is_nvcc_of_ubuntu(machine):
        return
    yield Problem(
        _severity(stack),
        f"gcc {gcc} is newer than nvcc {nvcc.value} supports (up to gcc {row.gcc})",
        (evidence("cuda.compiler", compiler), evidence("cuda.nvcc_version", nvcc)),
        f"Configure nvcc to use gcc {row.gcc}, or install a newer toolkit.",
        either(
            *(
                [
                    line,
                    shell_command("export CC={}gcc{}", folder, suffix),
                    shell_command("export CXX={}g++{}", folder, suffix),
                    shell_command("export NVCC_PREPEND_FLAGS='-ccbin {}g++{}'", folder, suffix),
                ]
                for line in install_packages(machine, f"gcc-{row.gcc} g++-{row.gcc}", f"gcc-toolset-{row.gcc}")
                for folder, suffix in [
                    ("", f"-{row.gcc}") if " apt-get " in line else (GCC_TOOLSET.format(row.gcc), "")
                ]
            )
        ),
    )


@rule("CUDA004", kind="environment", severity="info", cause="cuda-home-missing")
def toolkit_is_missing_for_compilation(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """nvcc is not installed, and the environment has a library that may compile CUDA code at run time.

    Wheels include their CUDA libraries and need no toolkit. FlashInfer's run-time compilation, DeepSpeed's kernels
    and source builds do: "CUDA_HOME environment variable is not set".

    Fix: if this error occurs, install the toolkit of torch's CUDA version.

    References:
    https://docs.flashinfer.ai/installation.html
    https://docs.pytorch.org/docs/stable/cpp_extension.html
    """
    nvcc, cuda = machine.cuda.nvcc, torch_cuda(stack)
    library = first_in_use(stack, *AT_RUN_TIME)
    if library == "flashinfer-python" and first_in_use(stack, "flashinfer-jit-cache"):
        return  # precompiled
    if nvcc.state == "absent" and library and cuda and gpus_of(machine):
        yield Problem(
            "info",
            f"nvcc is not installed; {library} needs it only to compile kernels at run time",
            (evidence("cuda.nvcc", nvcc),),
            f"If a build requires CUDA_HOME, install the CUDA {cuda} toolkit.",
            install_toolkit(machine, cuda),
        )


@rule("CUDA005", kind="machine", severity="warning", cause="ptxas-too-old")
def ptxas_of_triton_is_replaced_by_an_older_one(machine: Machine) -> Iterator[Problem]:
    """TRITON_PTXAS_PATH selects a ptxas that does not support the GPU.

    "Value 'sm_121a' is not defined for option 'gpu-name'": no Triton kernel compiles. The variable replaces the ptxas
    that Triton includes.

    Fix: unset the variable, or set it to the ptxas of a toolkit that supports the GPU.

    References:
    https://github.com/triton-lang/triton/issues/8539
    """
    path = (machine.environment.value or {}).get("TRITON_PTXAS_PATH")
    version = machine.cuda.ptxas_version
    ptxas_release = parse_major_minor(version.value)
    row = toolkit(ptxas_release) if ptxas_release else None
    for gpu in gpus_of(machine) if path and row else ():
        capability = capability_of(gpu)
        newest = parse_major_minor(row.newest) if row else None
        first = first_toolkit(capability) if capability else None
        if capability and newest and first and capability > newest:
            yield Problem(
                "warning",
                f"TRITON_PTXAS_PATH={path} is from CUDA {version.value}, which does not support {gpu_label(gpu)}",
                (evidence("cuda.ptxas_version", version), Evidence("TRITON_PTXAS_PATH", path or "", "environment")),
                f"Unset it, or set it to the ptxas of CUDA {first.cuda} or newer.",
                steps("unset TRITON_PTXAS_PATH"),
            )
            return


@rule("HOST012", kind="environment", severity="warning", cause="host-oom-build")
def host_memory_is_exhausted_during_a_build(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """Nearly no host memory is left, and the report is about a package that is compiled from source.

    ninja starts one compiler per processor, and nvcc needs about 5 GiB for each file of flash-attn. The kernel then
    ends a compiler, or the machine no longer responds.

    Fix: set MAX_JOBS according to the memory, or install a wheel.

    References:
    https://github.com/Dao-AILab/flash-attention#installation-and-features
    """
    total, available = machine.memory.total.value, machine.memory.available.value
    built = next((name for name in stack.requested.value or {} if name in BUILT_FROM_SOURCE), "")
    if built and total and available is not None and available < min(GIB, total * LEAST_AVAILABLE):
        jobs = max(1, total // (5 * GIB) // 2)
        yield Problem(
            "warning",
            f"{available / GIB:.1f} of {total / GIB:.0f} GiB of host memory are available while {built} is built",
            (evidence("memory.available", machine.memory.available), evidence("memory.total", machine.memory.total)),
            "Limit the number of compilers, or install a wheel.",
            steps(shell_command("export MAX_JOBS={}", jobs), "export NVCC_THREADS=1"),
        )


def compiles_cuda_code(stack: Stack) -> bool:
    """Whether the environment has a library that compiles CUDA code: at run time, or when it was installed.

    SGLang uses FlashInfer, whose package had the name flashinfer until 0.2.0 and contained compiled kernels.
    """
    return bool(first_in_use(stack, *AT_RUN_TIME, *FROM_SOURCE, *WITHOUT_WHEELS)) or (
        bool(first_in_use(stack, "sglang")) and not first_in_use(stack, "flashinfer")
    )


def _flashinfer(stack: Stack) -> str:
    return f"FlashInfer {(stack.distributions.value or {})['flashinfer-python'].version}"


def _is_new_flashinfer(stack: Stack) -> bool:
    """Whether FlashInfer is a release that compiles for compute capability 12.x with CUDA 12.9 only."""
    installed = (stack.distributions.value or {}).get("flashinfer-python")
    return bool(installed and satisfies(installed.version, f">={FLASHINFER_WITH_LIMIT}"))


def _uses_nvcc(stack: Stack) -> bool:
    """Whether nvcc is used: wheels do not call it, but a pasted report may be about a build."""
    # TensorFlow and JAX compile without nvcc.
    if (is_without_cuda(stack) or framework_without_torch(stack)) and not first_in_use(
        stack, *FROM_SOURCE, *AT_RUN_TIME
    ):
        return False
    return is_from_report(stack) or bool(first_in_use(stack, *AT_RUN_TIME, *FROM_SOURCE))


def _is_nvcc_of_ubuntu(machine: Machine) -> bool:
    """Whether nvcc is the one of Ubuntu's package, a script that selects the gcc on which the package depends.

    The packages of Debian and Ubuntu configure nvcc to use the gcc that they depend on. That this is g++-12 for
    12.0.140 was not read from the package, which was not reachable on 2026-11-25.
    """
    return machine.cuda.nvcc_version.value == "12.0.140" and "Ubuntu 24.04" in (machine.system.os.value or "")


def _severity(stack: Stack) -> Status:
    """Warning if a library compiles CUDA code or for a report, else info."""
    return "warning" if is_from_report(stack) or first_in_use(stack, *AT_RUN_TIME) else "info"


def gcc_major(compiler: str) -> int | None:
    """The major version of gcc in the output of `--version`; None for clang and others.

    `gcc (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0`, `(GCC) 11.5.0 20240719 (Red Hat 11.5.0-9)`, `gcc 13.3.0`.
    """
    if "clang" in compiler.lower() or "icc" in compiler.lower() or "msvc" in compiler.lower():
        return None
    found = re.search(r"\b(\d{1,2})\.\d+(?:\.\d+)?\b", re.sub(r"\([^()]*\)", " ", compiler))
    return int(found[1]) if found else None
