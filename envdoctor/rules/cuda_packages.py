"""Rules on packages whose names state their CUDA, such as cupy-cuda12x, in environments with or without torch."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Evidence, Gpu, Machine, Stack
from envdoctor.core.remedies import steps
from envdoctor.core.wording import join_words
from envdoctor.knowledge.architectures import capability_of
from envdoctor.knowledge.cuda import oldest_driver, toolkit
from envdoctor.knowledge.versions import local_part, major_minor, satisfies
from envdoctor.rules.driver_remedies import is_driver_too_old, upgrade_driver
from envdoctor.rules.facts import (
    framework_without_torch,
    gpu_label,
    gpu_labels,
    gpus_of,
    has_windows_driver,
    on_windows,
    torch_cuda,
)
from envdoctor.rules.registry import Problem, evidence, rule
from envdoctor.rules.requirements import version_evidence, versions_of

MINOR_VERSIONS = "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html"
CUDA_13 = "https://docs.nvidia.com/cuda/archive/13.0.0/cuda-toolkit-release-notes/index.html"
# The libraries of NVIDIA come with torch and others, which are judged by themselves.
_NAME = lazy_pattern(r"(?!nvidia-|torch).*?-cu(?:da)?(1\d)(?:\d|x)?(?:-plugin|-pjrt)?")
# METADATA of tensorflow 2.14.1 to 2.21.0, extra and-cuda; before, build_info.py of the wheels. 2026-11-28
_TENSORFLOW = {"10.1": ">=2.1,<2.4", "11": ">=2.4,<2.15", "12": ">=2.15,<=2.21.0"}
_LOCAL = lazy_pattern(r"cuda(1\d)\b")  # jaxlib 0.4.25+cuda12.cudnn89
_PADDLE = lazy_pattern(r"\.post(1\d)(\d)$")  # paddlepaddle-gpu 2.4.2.post112 of Paddle's index: CUDA 11.2


@rule("DRV017", kind="environment", severity="error", cause="driver-too-old", url=MINOR_VERSIONS)
def driver_is_too_old_for_packages(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """The driver is older than the CUDA major version of a package requires.

    The names of cupy-cuda12x, jax-cuda13-plugin, cudf-cu12 and others state their CUDA. CUDA 11 needs driver
    450.80.02, CUDA 12 525.60.13, CUDA 13 580. With an older driver CuPy stops with cudaErrorInsufficientDriver, and
    JAX and TensorFlow run on the CPU. Nothing is reported where TORCH004 reports the same CUDA for torch.

    Fix: install a newer driver, or the packages for the CUDA of the driver.

    References:
    https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html
    https://docs.jax.dev/en/latest/installation.html
    https://docs.cupy.dev/en/stable/install.html
    """
    windows = has_windows_driver(machine)
    packages = {
        cuda: names
        for cuda, names in _packages_by_cuda(machine, stack).items()
        if cuda != torch_cuda(stack).partition(".")[0] and is_driver_too_old(machine, f"{cuda}.0", windows=windows)
    }
    cuda = max(packages, default="")
    if not cuda or (cuda == "13" and _older_than_cuda_13(machine)):  # GPU016 reports it
        return
    minimum = ".".join(f"{part:02}" for part in oldest_driver(f"{cuda}.0", windows=windows))
    driver = machine.driver.version.value or f"for CUDA {machine.driver.cuda.value}"
    fix, remedies = upgrade_driver(machine, minimum)
    is_for_cuda_12 = cuda == "13" and not is_driver_too_old(machine, "12.0", windows=windows)
    yield Problem(
        "error",
        f"driver {driver}; {_listed(packages[cuda])} for CUDA {cuda}, which requires {minimum} or newer",
        (evidence("driver.version", machine.driver.version), *version_evidence(stack, *packages[cuda])),
        fix + (" Or install the same packages for CUDA 12." if is_for_cuda_12 else ""),
        remedies,
    )


@rule("GPU016", kind="environment", severity="error", cause="gpu-arch-dropped", url=CUDA_13)
def packages_for_cuda_13_have_no_code_for_the_gpu(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """A package for CUDA 13 is installed, and a GPU is older than Turing.

    The compilers and libraries of CUDA 13 have no code for Maxwell, Pascal and Volta: cupy-cuda13x, jax-cuda13-plugin
    and the packages of RAPIDS with -cu13 cannot run there. The packages for CUDA 12 can.

    Fix: install the packages for CUDA 12.

    References:
    https://docs.nvidia.com/cuda/archive/13.0.0/cuda-toolkit-release-notes/index.html
    https://docs.jax.dev/en/latest/installation.html
    """
    names, limits = _packages_by_cuda(machine, stack).get("13", []), toolkit((13, 0))
    old = _older_than_cuda_13(machine)
    if not names or not limits or not old or torch_cuda(stack).startswith("13."):  # TORCH002 reports it
        return
    yield Problem(
        "error",
        f"{gpu_labels(old)} is older than compute capability {limits.oldest}; {_listed(names)} for CUDA 13, which "
        "has no code for it",
        (
            *(Evidence(f"GPU {gpu.index}", gpu_label(gpu), machine.gpus.source) for gpu in old),
            *version_evidence(stack, *names),
            Evidence("oldest GPU of CUDA 13", limits.oldest, f"{limits.source}, {limits.date}"),
        ),
        f"Remove {', '.join(names)}, and install the same packages for CUDA 12.",
        steps("nvidia-smi --query-gpu=name,compute_cap --format=csv"),
    )


def _older_than_cuda_13(machine: Machine) -> list[Gpu]:
    limits = toolkit((13, 0))
    found = ((gpu, capability_of(gpu)) for gpu in gpus_of(machine) if limits)
    return [gpu for gpu, capability in found if limits and capability and capability < major_minor(limits.oldest)]


def _packages_by_cuda(machine: Machine, stack: Stack) -> dict[str, list[str]]:
    """The packages by the major version of their CUDA: of the name, else of the local version, else of the table.

    TensorFlow next to torch is often there for TensorBoard alone, and on Windows it has no CUDA (PY010).
    """
    is_judged = bool(framework_without_torch(stack)) and not on_windows(machine)
    found: dict[str, list[str]] = {}
    for name, version in sorted(versions_of(stack).items()):
        if match := _NAME.fullmatch(name) or _LOCAL.match(local_part(version)):
            found.setdefault(match[1], []).append(name)
        elif name == "paddlepaddle-gpu" and (post := _PADDLE.search(version)):
            found.setdefault(post[1] if int(post[1]) > 10 else f"{post[1]}.{post[2]}", []).append(name)
        elif name in ("tensorflow", "tensorflow-gpu") and is_judged:
            rows = (cuda for cuda, versions in _TENSORFLOW.items() if satisfies(version, versions) is True)
            found.setdefault(next(rows, ""), []).append(name)
    return {cuda: names for cuda, names in found.items() if cuda}


def _listed(names: list[str]) -> str:
    """`cupy-cuda12x is`, `cudf-cu12, cuml-cu12 and 2 more are`, before "for CUDA 12"."""
    more = f" and {len(names) - 2} more" if len(names) > 3 else ""
    shown = names[:2] if more else names
    text = ", ".join(shown) + more if more else join_words(shown)
    return f"{text} {'is' if len(names) == 1 else 'are'}"
