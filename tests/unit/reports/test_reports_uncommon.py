"""Sound reports of uncommon machines and builds get no error and no warning, and the same facts with a fault do."""

from __future__ import annotations

from support.cases import each_case

from envdoctor.commands.report_findings import diagnose_report
from envdoctor.reports import parse_report

THOR = "GPU 0: NVIDIA Thor\nDriver Version: 580.00\ntorch.cuda.is_available(): True\n"
MI300 = "PyTorch version: 2.8.0a0+gitba56102\nROCM used to build PyTorch: 7.0.51831\nGPU: AMD Instinct MI300X\n"
H100 = "GPU 0: NVIDIA H100 80GB HBM3\nNvidia driver version: 580.95.05\n"
OLDER = H100.replace("580.95.05", "575.57.08")
GRACE = "| NVIDIA-SMI 550.54.15   Driver Version: 550.54.15   CUDA Version: 12.9 |\nGPU 0: NVIDIA GH200 120GB\n"
FEW = "".join(f"{name}==1.0\n" for name in ("einops", "tabulate", "msgspec", "orjson"))
MANY = "".join(f"package-{number}==1.0\n" for number in range(40))
LATER_PATCH = f"{H100}{FEW}torch==2.9.1+cu130\ntorchvision==0.24.1+cu130\nvllm==0.13.0+cu130\n"
PAIR = f"{H100}torch==2.7.1+cu128\nvllm==0.9.2\n\n"
NEWER_VLLM = f"{H100}{FEW}torch==2.10.0\nvllm==0.19.0\ntrl==1.0.0\n"
TORCHAO = f"{H100}{FEW}torch==2.10.0+cu130\ntorchao==0.14.0\n"
T4 = f"GPU 0: Tesla T4\nDriver Version: 560.35.05\n{MANY}torch==2.6.0+cu124\nflash_attn==2.7.4.post1\n"
VLLM_OF_CUDA_12 = f"{H100}{FEW}torch==2.9.0+cu130\nvllm==0.13.0\n"
CONDA = "# packages in environment at /opt/conda:\n# Name   Version   Build   Channel\n"
FORGE = f"{CONDA}pytorch   2.8.0   cuda129_h1   conda-forge\ntorchvision   0.24.0   cuda129_h2   conda-forge\n"
MKL = f"{CONDA}pytorch   2.5.1   cuda126_h1   conda-forge\nmkl   2024.2.2   ha957f24_16   conda-forge\n"
COLAB = f"{H100}{MANY}torch==2.9.0+cu126\npeft==0.18.1\ntorchao==0.10.0\n"
OVERRIDDEN = f"{H100}{MANY}torch==2.10.0\nvllm==0.19.0\ntransformers==5.5.0\n"
XFORMERS = "- PyTorch version (GPU?): 1.13.1 (True)\n- xFormers version: {}\n- GPU: Tesla V100\n"


def blamed(text: str) -> set[str]:
    """The causes of the errors and warnings on a report."""
    return {each.cause for each in diagnose_report(parse_report(text)) if each.status not in ("info", "unknown")}


@each_case(
    ("sound", "faulty", "cause"),
    [
        (f"{THOR}torch==2.9.1+cu130\ntriton==3.5.1\n", f"{THOR}torch==2.9.1+cu126\n", "gpu-arch-not-in-build"),
        (
            f"{MI300}[pip3] vllm==0.10.2rc2.dev118+gabc123d.rocm700\n",
            f"{H100}torch==2.8.0a0+5228986c39.nv25.06\nvllm==0.10.1\n",
            "vllm-torch-mismatch",
        ),
        (
            "No GPU.\ntorch==2.6.0+cpu\nvllm==0.11.0+cpu\n",
            f"{H100}torch==2.6.0\nvllm==0.11.0\n",
            "vllm-torch-mismatch",
        ),
        (
            f"{GRACE}$ ls /usr/local/cuda/compat\nlibcuda.so libcuda.so.1 libcuda.so.575.51.03\n",
            f"{GRACE}$ ls /usr/lib/aarch64-linux-gnu\nlibcuda.so libcuda.so.1 libcuda.so.575.51.03\n",
            "nvml-driver-library-mismatch",
        ),
        (LATER_PATCH, f"{LATER_PATCH}vllm fails: undefined symbol: _ZN3c104cuda\n", "vllm-torch-mismatch"),
        (f"{PAIR}Please add a Helm chart.\n", PAIR, "vllm-torch-mismatch"),
        (NEWER_VLLM, f"{NEWER_VLLM}trl vllm-serve fails since the upgrade\n", "trl-vllm-range"),
        (TORCHAO, f"{TORCHAO}Skipping import of cpp extensions of torchao\n", "torch-companion-mismatch"),
        (
            f"{OLDER}pip freeze\ntorch==2.9.1\nnvidia-cuda-runtime==13.1.80\nnvidia-cuda-runtime-cu12==12.8.90\n",
            f"{OLDER}pip freeze\ntorch==2.9.1+cu130\n",
            "driver-too-old",
        ),
        (f"{H100}{FORGE}", f"{H100}{FORGE.replace('conda-forge', 'pytorch')}", "torch-companion-mismatch"),
        (f"{MKL}", MKL.replace("conda-forge", "pytorch").replace("2.5.1", "2.4.1"), "mkl-too-new"),
        (COLAB, f"{COLAB}ImportError: Found an incompatible version of torchao.\n", "library-too-old"),
        (
            "No GPU.\ntorch==2.9.0+cpu\ntorchao==0.10.0\n" + FEW,
            f"{TORCHAO}torchao==0.10.0\n".replace("cu130", "cu128").replace("torchao==0.14.0\n", ""),
            "torch-companion-mismatch",
        ),
        (f"{VLLM_OF_CUDA_12}It serves fine.\n", VLLM_OF_CUDA_12, "vllm-cuda-variant"),
        (T4, f"{T4}RuntimeError: FlashAttention only supports Ampere GPUs or newer.\n", "gpu-unsupported-by-library"),
        (OVERRIDDEN, f"{OVERRIDDEN}vllm serve crashes at start\n", "transformers-too-new"),
        (
            f"{H100}{FEW}torch==2.11.0\nflash_attn==2.8.1+cu13torch2.10\n",
            f"{H100}{FEW}torch==2.11.0\nflash_attn==2.8.1+cu13torch2.9\n",
            "torch-abi-mismatch",
        ),
        (XFORMERS.format("0.0.18"), XFORMERS.format("0.0.25"), "torch-abi-mismatch"),
    ],
)
def test_uncommon_builds_are_not_blamed(sound: str, faulty: str, cause: str) -> None:
    assert blamed(sound) == set()
    assert cause in blamed(faulty)


@each_case("text", ["AssertionError", "pixi info: __unix=0=0, __linux=6.8.0=0, __glibc=2.39=0, __archspec=1=zen4"])
def test_a_single_word_is_no_description_of_an_error(text: str) -> None:
    assert blamed(f"{H100}torch==2.9.1+cu130\n\n{text}\n") == set()
