"""Reports of few packages whose releases, builds or origins exclude each other."""

from __future__ import annotations

from support.cases import each_case
from support.report_samples import blamed_causes, versions

from envdoctor.reports import parse_report

CONDA = """$ conda list
pytorch                   2.5.1              py3.12_cpu_0    pytorch
pytorch-cuda              11.7                 h778d358_5    pytorch
torchvision               0.20.1                py312_cpu    pytorch
"""


@each_case(
    ("text", "cause"),
    [
        (CONDA, "torch-cpu-build"),
        ("Python 3.12\nvllm 0.17.1 (failed to install)\ntransformers 5.3.0\n", "transformers-too-new"),
        ("- torch 1.10.1+cu113\n- torchaudio 0.10.1+rocm4.1\n", "torch-companion-mismatch"),
        (
            "> pip install vllm==0.7.3\n> pip install transformers==4.47.1\n\nThese two do not work together",
            "library-too-old",
        ),
        ("PyTorch: 2.7.1+cu128\nsglang: 0.4.9.post2\nsgl_kernel: 0.1.2.post1\n", "dependency-pin-violated"),
    ],
)
def test_a_pair_is_blamed(text: str, cause: str) -> None:
    assert cause in blamed_causes(text)


@each_case(
    "text",
    [
        CONDA.replace("pytorch-cuda ", "cuda-cccl    "),
        CONDA.replace("py3.12_cpu_0", "py3.12_cuda11.7_cudnn8_0"),
        "Python 3.12\nvllm 0.17.1 (not installed)\ntransformers 5.3.0\n",
        "- torch 1.10.1+rocm4.2\n- torchaudio 0.10.1+rocm4.1\n",
        "pip install vllm==0.7.3\npip install transformers==4.47.1\npip install transformers==4.48.2\n",
        "PyTorch: 2.7.1+cu128\nsglang: 0.4.9.post2\nsgl_kernel: 0.2.6\n",
    ],
)
def test_a_sound_pair_is_not_blamed(text: str) -> None:
    assert not blamed_causes(text)


def test_pins_of_one_command_are_not_installed() -> None:
    assert "vllm" not in versions(parse_report("pip install transformers==4.47.1 vllm==0.7.3"))
