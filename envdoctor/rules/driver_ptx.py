"""Rules on minor-version compatibility: an older driver cannot compile the PTX of a newer CUDA release."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.core.records import Evidence, Extension, Gpu, Machine, Stack
from envdoctor.core.remedies import steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.architectures import (
    PTX_OF_CUDA,
    PTX_SHARE,
    Capability,
    capability_of,
    runs_as_ptx,
    runs_native,
)
from envdoctor.knowledge.cuda import cuda_of_driver, driver_of_cuda, oldest_driver
from envdoctor.knowledge.versions import dotted_numbers, major_minor
from envdoctor.rules.driver_remedies import supports_compat, upgrade_driver
from envdoctor.rules.facts import (
    cuda_minor,
    first_in_use,
    gpu_labels,
    gpus_of,
    has_windows_driver,
    installed_version,
    is_from_report,
    parse_major_minor,
    torch_cuda,
    torch_version,
)
from envdoctor.rules.registry import Problem, evidence, rule

# From vLLM 0.7.2 (torch 2.5.1) on its FlashAttention 2 contains only sm_80 code and compute_80 PTX, which the driver
# compiles for sm_90 and newer. github.com/vllm-project/vllm/issues/28030; measured.
FIRST_PTX_TORCH = (2, 5)
FIRST_PTX_GPU: Capability = (9, 0)


@rule("TORCH005", kind="environment", severity="warning", cause="driver-ptx-too-old")
def driver_cannot_compile_the_ptx(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """A library contains only PTX for this GPU, from a newer CUDA release than the driver's compiler supports.

    torch itself works (minor-version compatibility), but a kernel fails with "the provided PTX was compiled with an
    unsupported toolchain". This affects vLLM on Hopper and newer, whose FlashAttention 2 has native code only for
    `sm_80`. The rule reads the compiled files if possible, else it uses a table of vLLM's wheels. A vLLM is not
    reported if TORCH_CUDA_ARCH_LIST shows a build of its own for this GPU.

    Fix: install a driver of that CUDA release, or a release of the library for an older CUDA. On data-centre GPUs the
    `cuda-compat` package of that release is an alternative.

    References:
    https://github.com/vllm-project/vllm/issues/28030
    https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
    """
    driver = machine.driver.version.value or ""
    driver_cuda = cuda_minor(machine.driver.cuda.value) or cuda_of_driver(driver)
    if not driver_cuda or not gpus_of(machine):
        return
    found = _from_files(machine, stack, driver_cuda) or _from_names(machine, stack, driver_cuda)
    if not found:
        return
    library, cuda, gpus = found
    bundled = driver_of_cuda(cuda)
    package = f"cuda-compat-{cuda.replace('.', '-')}"
    fix, remedies = upgrade_driver(machine, bundled)
    compat = (
        steps(
            shell_command("sudo apt-get install -y {}", package),
            shell_command(
                "export LD_LIBRARY_PATH=/usr/local/cuda-{}/compat${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}", cuda
            ),
        )
        if supports_compat(machine, cuda)
        else ()
    )
    yield Problem(
        "warning",
        f"{library} has only PTX of CUDA {cuda} for {gpu_labels(gpus)}; driver {driver} compiles up to {driver_cuda}",
        (
            evidence("driver.version", machine.driver.version),
            evidence("driver.cuda", machine.driver.cuda),
            Evidence("torch.cuda", torch_cuda(stack), stack.torch.source),
        ),
        fix + (f" Or place {package} (data-centre GPUs only) first on the path." if compat else "")
        + " Or install a build for an older CUDA.",
        (*remedies, *compat),
    )  # fmt: skip


@rule("TORCH006", kind="environment", severity=("warning", "info"), cause="driver-ptx-too-old")
def torch_runs_by_minor_version_compatibility(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """The driver is older than torch's CUDA release, but of the same major version, which is supported.

    torch's own kernels are native code and run. PTX of that release, which CuPy and Numba generate, cannot be
    compiled by the driver. No other library of this environment is known to need it on these GPUs. For an installed
    environment the rule reports this only if one of the two is installed.

    References:
    https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
    """
    cuda, driver = torch_cuda(stack), machine.driver.version.value or ""
    driver_cuda = cuda_minor(machine.driver.cuda.value) or cuda_of_driver(driver)
    if (
        not cuda
        or not driver_cuda
        or not dotted_numbers(driver)
        or next(driver_cannot_compile_the_ptx(machine, stack), None)
    ):
        return
    ptx_packages = [name for name in stack.distributions.value or {} if name.startswith(("cupy", "numba-cuda"))]
    if not ptx_packages and not is_from_report(stack):
        return
    if major_minor(driver_cuda) < major_minor(cuda) and dotted_numbers(driver) >= oldest_driver(
        cuda, windows=has_windows_driver(machine)
    ):
        yield Problem(
            "info",
            f"driver {driver} supports CUDA {driver_cuda}, torch is built for {cuda}: only its native code runs",
            (evidence("driver.version", machine.driver.version),),
            f"No action needed; driver {driver_of_cuda(cuda)} and newer supports all of it.",
        )


def _from_files(machine: Machine, stack: Stack, driver_cuda: str) -> tuple[str, str, list[Gpu]] | None:
    """The first compiled file whose PTX is needed and too new: its name, its CUDA, the GPUs."""
    newest_ptx = PTX_OF_CUDA.get(driver_cuda)
    if not newest_ptx:
        return None
    for extension in stack.extensions.value or ():
        code = extension.code
        if not code or not code.ptx_isa or extension.distribution in ("", "torch") or _is_nvidias(extension):
            continue
        gpus = [gpu for gpu in gpus_of(machine) if (c := capability_of(gpu)) and _needs_ptx(extension, c)]
        if gpus and major_minor(code.ptx_isa) > major_minor(newest_ptx):
            cuda = next(
                (name for name, isa in PTX_OF_CUDA.items() if major_minor(isa) >= major_minor(code.ptx_isa)),
                driver_cuda,
            )
            return f"{extension.path} of {extension.distribution}", cuda, gpus
    return None


def _needs_ptx(extension: Extension, gpu: Capability) -> bool:
    """Whether a considerable share of the file's kernels is available for this GPU only as PTX."""
    code = extension.code
    if not code:
        return False
    all_code = {" ".join((*code.native, *code.ptx)): 1}
    containers = {kinds: number for kinds, number in (code.containers or all_code).items() if number}
    compiled = sum(
        number
        for kinds, number in containers.items()
        if not runs_native(kinds.split(), gpu) and runs_as_ptx(kinds.split(), gpu)
    )
    return compiled >= PTX_SHARE * sum(containers.values()) > 0


def _is_nvidias(extension: Extension) -> bool:
    """Whether the file is one of NVIDIA's libraries, which select among their kernels and do not need their PTX."""
    return extension.distribution.startswith(("nvidia-", "cuda-", "cupy", "triton"))


def _from_names(machine: Machine, stack: Stack, driver_cuda: str) -> tuple[str, str, list[Gpu]] | None:
    """The same for vLLM's wheels by its table, if no file was read."""
    cuda, line = torch_cuda(stack), parse_major_minor(torch_version(stack))
    if any(extension.code for extension in stack.extensions.value or ()) or not first_in_use(stack, "vllm"):
        return None
    if first_in_use(stack, "sglang"):  # it uses a few kernels of vLLM, not its attention
        return None
    if (
        not cuda
        or not line
        or line < FIRST_PTX_TORCH
        or major_minor(driver_cuda)[0] != major_minor(cuda)[0]
        or major_minor(driver_cuda) >= major_minor(cuda)
    ):
        return None
    if ";" in (built_for := (machine.environment.value or {}).get("TORCH_CUDA_ARCH_LIST", "")):
        # The list of a build from source; images of NVIDIA have one of their own, separated by spaces.
        native = ["sm_" + text.removesuffix("+PTX").replace(".", "") for text in built_for.split(";")]
        if all((found := capability_of(gpu)) and runs_native(native, found) for gpu in gpus_of(machine)):
            return None
    gpus = [gpu for gpu in gpus_of(machine) if (capability_of(gpu) or (0, 0)) >= FIRST_PTX_GPU]
    version = installed_version(stack, "vllm")
    return (f"vLLM {version or 'of torch ' + torch_version(stack)}", cuda, gpus) if gpus else None
