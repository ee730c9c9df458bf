"""Messages about a wrong list of architectures, libraries of the other width, and signals that ended a launcher."""

from __future__ import annotations

from support.cases import each_case
from support.explained import explain_text, first_cause

NVCC = "nvcc fatal   : Unsupported gpu architecture "
OLD_DRIVER = """
level=DEBUG msg="Unable to load nvcuda" error="/usr/lib/libcuda.so.418.74: wrong ELF class: ELFCLASS32"
dlerr: /usr/lib64/libcuda.so.418.74: undefined symbol: cuCtxCreate_v3
"""


@each_case(
    ("text", "cause"),
    [
        (NVCC + "'compute_80+PTX'", "variable-refused"),
        (NVCC + "'compute_'", "variable-refused"),
        (NVCC + "'compute_8.6'", "variable-refused"),
        (NVCC + "'compute_70;75'", "variable-refused"),
        (NVCC + "'compute_120'", "nvcc-too-old"),
        (NVCC + "'compute_native'", "library-too-old"),
        (NVCC + "'compute_37'", "gpu-arch-dropped"),
        (OLD_DRIVER, "driver-too-old"),
        ("ImportError: /cache/main.so: undefined symbol: cuModuleGetFunction", "libcuda-not-found"),
        ("OSError: /usr/lib/libgomp.so.1: wrong ELF class: ELFCLASS32", "platform-no-wheel"),
        ("api.py:719] Received 15 death signal, shutting down workers", "ended-from-outside"),
        ("WARNING:torch.distributed.elastic.agent.server.api:Received 1 death signal", "ended-from-outside"),
        ("server.api:Received 2 death signal, shutting down workers", "ended-from-outside"),
        ("gpu.go:138: CUDA GPU is too old. Falling back to CPU mode. Compute Capability detected: 5.2",
         "gpu-unsupported-by-library"),
        ("sbatch: error: *** Error partition 'h200' is not valid for this job", "job-rejected"),
        ("salloc: error: *** GPU jobs need an account", "job-rejected"),
        ("AssertionError: PyTorch is built with CUDA version: 11.7.\nThe current running CUDA version is: 10.2.89",
         "nvcc-torch-mismatch"),
        ("OSError: We could not connect to https://huggingface.co to load this file", "hub-offline"),
    ],
)  # fmt: skip
def test_messages_have_their_cause(text: str, cause: str) -> None:
    assert first_cause(text) == cause


@each_case(
    "text",
    [
        "-- CUDA architectures: 80;86;89+PTX",
        "PyTorch is built with CUDA version: 12.8. Your driver supports CUDA 13.0.",
        "sbatch: Submitted batch job 4711 to the partition h200",
        "The job handles the signals 1, 2 and 15.",
        "ELF 64-bit LSB shared object, x86-64, version 1 (SYSV), dynamically linked",
        "The value of TCNN_CUDA_ARCHITECTURES is 86.",
    ],
)
def test_healthy_lines_have_none(text: str) -> None:
    assert first_cause(text) is None


UNDEFINED = ": undefined symbol: _ZNK2at6Tensor5dtypeEv"
C1083 = "main.c(12): fatal error C1083: “Python.h”: No such file or directory"


@each_case(
    ("path", "name"),
    [
        ("/venv/lib/python3.11/site-packages/torch_scatter/_version_cuda.so", "torch_scatter was"),
        ("/opt/conda/lib/python3.8/site-packages/mmcv/_ext.cpython-38-x86_64-linux-gnu.so", "mmcv was"),
        ("/usr/lib/python3/dist-packages/pytorch3d/_C.cpython-39-x86_64-linux-gnu.so", "pytorch3d was"),
        ("/build/_C.so", "_C was"),
        ("/venv/lib/python3.11/site-packages/spconv_core.so", "spconv_core was"),
    ],
)
def test_a_compiled_file_is_named_by_its_package(path: str, name: str) -> None:
    (found,) = explain_text(f"ImportError: {path}{UNDEFINED}").causes
    assert found.fix.startswith(name)


def test_an_embedded_python_gets_headers_of_its_release() -> None:
    found = explain_text(f"D:\\sd\\python_embeded>python.exe test.py\n{C1083}\n").causes[0]
    assert (found.cause, "python_embeded" in found.fix) == ("python-headers-missing", True)
    assert "apt" in explain_text(f"/tmp/{C1083}\n").causes[0].fix
