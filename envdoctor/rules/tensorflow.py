"""Rule on TensorFlow, whose wheels for Windows have no code for GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.core.records import Evidence, Machine, Stack
from envdoctor.core.remedies import steps
from envdoctor.knowledge.versions import public_part, satisfies
from envdoctor.rules.facts import gpus_of, on_windows
from envdoctor.rules.registry import Problem, evidence, rule
from envdoctor.rules.requirements import version_evidence, versions_of

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
