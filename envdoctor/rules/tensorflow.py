"""Rules on TensorFlow: the CUDA that its wheels load, and Windows, for which they have no code for GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.core.records import Evidence, Machine, Stack
from envdoctor.core.remedies import steps
from envdoctor.knowledge.versions import major_minor, public_part, satisfies
from envdoctor.rules.facts import framework_without_torch, gpus_of, is_from_report, on_windows, parse_major_minor
from envdoctor.rules.registry import Problem, evidence, rule
from envdoctor.rules.requirements import version_evidence, versions_of

TESTED_BUILDS = "https://www.tensorflow.org/install/source#gpu"
# The releases of CUDA whose libraries the wheels load by name, from the first one to below the second. Read on
# 2026-11-28 in build_info.py of the wheels: 10.1 in 2.1.0 to 2.3.4, 11.0 in 2.4.0 and 2.4.4, 11.2 in 2.5.0 to 2.11.0,
# 11.8 in 2.12.0 to 2.14.0. Later 11.x have the file names of 11.2: minor-version compatibility. From 2.14 on
# tensorflow[and-cuda] brings the libraries.
LOADED_CUDA = {">=2.1,<2.4": ("10.1", "10.2"), ">=2.4,<2.5": ("11.0", "11.1"), ">=2.5,<2.14": ("11.1", "12.0")}
WHEELS_OF_CUDA = ("nvidia-cuda-runtime-cu11", "nvidia-cuda-runtime-cu12", "cudatoolkit", "cuda-cudart")
WINDOWS_NATIVE = "https://www.tensorflow.org/install/pip#windows-native"
WITHOUT_CUDA_FROM = "2.11"
OTHER_USES = ("torch", "tensorflow-directml-plugin", "tensorflow-cpu", "jax")  # TensorFlow is not the GPU's program


@rule("PY010", kind="environment", severity="warning", cause="platform-no-wheel", url=WINDOWS_NATIVE)
def tensorflow_has_no_cuda_on_windows(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """TensorFlow 2.11 or newer is installed on Windows with an NVIDIA GPU or a CUDA toolkit.

    TensorFlow 2.10 was the last release with CUDA for native Windows. The wheels of later releases run on the CPU:
    `tf.config.list_physical_devices('GPU')` is empty, whatever CUDA and cuDNN are installed. Nothing is reported if
    the environment has torch, because TensorFlow often comes with it for TensorBoard.

    Fix: install `tensorflow[and-cuda]` under WSL2, or TensorFlow 2.10 with Python 3.10.

    References:
    https://www.tensorflow.org/install/pip#windows-native
    https://github.com/tensorflow/tensorflow/issues/62322
    """
    versions, system = versions_of(stack), machine.system.os
    version = public_part(versions.get("tensorflow", ""))
    if not on_windows(machine):
        return
    if satisfies(version, f">={WITHOUT_CUDA_FROM}") is not True or any(name in versions for name in OTHER_USES):
        return
    if not gpus_of(machine) and not machine.cuda.nvcc_version.value:
        return
    yield Problem(
        "warning",
        f"TensorFlow {version} has no CUDA on Windows: it runs on the CPU",
        (
            evidence("system.os", system),
            *version_evidence(stack, "tensorflow"),
            Evidence("last release with CUDA for Windows", "2.10", WINDOWS_NATIVE),
        ),
        "Install tensorflow[and-cuda] under WSL2; TensorFlow 2.10 on Windows needs Python 3.10 or older.",
        steps("wsl --install -d Ubuntu-24.04"),
    )


@rule("PY011", kind="environment", severity="warning", cause="cudart-missing", url=TESTED_BUILDS)
def tensorflow_loads_the_libraries_of_another_cuda(machine: Machine, stack: Stack) -> Iterator[Problem]:
    """A report has the CUDA toolkit of another release than the one whose libraries TensorFlow loads.

    Up to TensorFlow 2.13 the wheels contain no CUDA libraries and load them by name: 2.1 to 2.3 those of CUDA 10.1,
    2.4 those of 11.0, 2.5 to 2.13 those of 11.x from 11.1 on. With another toolkit TensorFlow prints "Could not load
    dynamic library" and runs on the CPU. Nothing is reported where conda or wheels have the libraries, and for an
    environment with torch.

    Fix: install the toolkit and the cuDNN of this TensorFlow, or tensorflow[and-cuda] 2.15 or newer, which has them.

    References:
    https://www.tensorflow.org/install/source#gpu
    """
    versions, toolkit = versions_of(stack), machine.cuda.nvcc_version
    name = next((name for name in ("tensorflow", "tensorflow-gpu") if name in versions), "")
    release = parse_major_minor(toolkit.value)
    if not release or not is_from_report(stack) or not framework_without_torch(stack):
        return
    version = public_part(versions.get(name, ""))
    first, below = next(
        (cuda for range_, cuda in LOADED_CUDA.items() if satisfies(version, range_) is True), ("", "")
    )
    if (
        not first
        or major_minor(first) <= release < major_minor(below)
        or not versions.keys().isdisjoint(WHEELS_OF_CUDA)
    ):
        return
    cuda = f"CUDA {first}" if first in ("10.1", "11.0") else "CUDA 11.2 to 11.8"
    yield Problem(
        "warning",
        f"TensorFlow {version} loads the libraries of {cuda}; the toolkit is {toolkit.value}",
        (
            evidence("cuda.nvcc_version", toolkit),
            *version_evidence(stack, name),
            Evidence("tested builds", cuda, TESTED_BUILDS),
        ),
        f"Install the libraries of {cuda} next to the toolkit. Or, with driver 525 or newer, create an environment"
        " for a TensorFlow that has its own.",
        steps(
            "ls -d /usr/local/cuda-*",
            "uv venv --python 3.12 tensorflow-env",
            "uv pip install --python tensorflow-env 'tensorflow[and-cuda]>=2.18,<3'",
        ),
    )
