"""Programs, Python and libraries that images lack, and packages that nothing installs."""

from __future__ import annotations

from support.cases import each_case
from support.fixed_index import FixedIndex, FixedSolver, findings
from support.guide_cases import sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.manifests.actions import UseImage
from envdoctor.manifests.environment_state import image_state

SLIM, FULL, UBUNTU = "FROM python:3.11-slim\n", "FROM python:3.11\n", "FROM ubuntu:22.04\n"
RUNTIME = "FROM nvidia/cuda:12.4.1-runtime-ubuntu22.04\n"
DEVEL = "FROM nvidia/cuda:12.4.1-devel-ubuntu22.04\n"
PYTORCH = "FROM pytorch/pytorch:2.6.0-cuda12.4-cudnn9-runtime\n"
TORCH = "RUN pip3 install torch==2.6.0\n"
APT = "RUN apt-get update && apt-get install -y --no-install-recommends "
PIP = f"{APT}python3-pip\n"
CV2 = "RUN pip3 install torch==2.6.0 opencv-python\n"


def lines(text: str, rule: str) -> list[int | None]:
    return [each.line for each in audit_text(text, "Dockerfile", None, None).result.findings if each.id == rule]


@each_case(
    ("text", "expected"),
    [
        (SLIM + "RUN unzip a.zip\n" + TORCH, [2]),
        (FULL + "RUN unzip a.zip && gcc a.c && make\n" + TORCH, []),
        (FULL + "RUN git lfs install\n" + TORCH, [2]),
        (FULL + "RUN cmake -B build\n" + TORCH, [2]),
        (FULL + "RUN pip install cmake && cmake -B build\n" + TORCH, []),
        (SLIM + "RUN uv pip install --system torch==2.6.0\n", [2]),
        (SLIM + "RUN pip install uv && uv pip install --system torch==2.6.0\n", []),
        (SLIM + "COPY --from=ghcr.io/astral-sh/uv:latest /uv /bin/\nRUN uv pip install --system torch==2.6.0\n", []),
        (SLIM + "RUN conda create -n a\n" + TORCH, [2]),
        (PYTORCH + "RUN git clone https://a.org/a\n" + TORCH, [2]),
        (PYTORCH + "RUN conda install -y git && git clone https://a.org/a\n" + TORCH, []),
        ("FROM pytorch/pytorch:1.0.1-cuda10.0-cudnn7-devel\nRUN git clone https://a.org/a\n" + TORCH, []),
        (RUNTIME + "RUN nvcc --version\n" + TORCH, [2]),
        (DEVEL + "RUN nvcc --version && make && gcc a.c\n" + TORCH, []),
        (UBUNTU + "COPY a.sh .\nRUN bash a.sh\nRUN git clone https://a.org/a\n" + TORCH, []),  # it may install git
        (UBUNTU + "COPY . /app\nRUN git clone https://a.org/a\n" + TORCH, [3]),
        (UBUNTU + "RUN apt-get update && apt-get install -y $PACKAGES\nRUN git clone https://a.org/a\n" + TORCH, []),
    ],
)
def test_a_program_that_an_image_lacks(text: str, expected: list[int]) -> None:
    assert lines(text, "RUN152") == expected


@each_case(
    ("text", "expected"),
    [
        (UBUNTU + TORCH, [2]),
        (UBUNTU + f"{APT}git curl\n" + TORCH, [3]),
        (UBUNTU + f"{APT}supervisor\n" + TORCH, []),  # depends on Python
        (UBUNTU + f"{APT}python3\n" + TORCH, [3]),
        (UBUNTU + f"{APT}python3 && pip3 install torch==2.6.0\n", [2]),
        (UBUNTU + PIP + TORCH, []),
        (UBUNTU + PIP + TORCH + "RUN python a.py\n", [4]),
        (UBUNTU + PIP + TORCH + 'CMD ["python", "a.py"]\n', [4]),
        (UBUNTU + PIP + TORCH + 'CMD ["python3", "a.py"]\n', []),
        (UBUNTU + PIP + "RUN ln -s /usr/bin/python3 /usr/bin/python\n" + TORCH + "RUN python a.py\n", []),
        (
            UBUNTU
            + f"{APT}python3-venv && python3 -m venv /v\nENV PATH=/v/bin:$PATH\nRUN pip install torch==2.6.0\n",
            [],
        ),
        (SLIM + TORCH + "RUN python a.py\n", []),
        ("FROM acme/base:1\n" + TORCH, []),
    ],
)
def test_python_that_an_image_lacks(text: str, expected: list[int]) -> None:
    assert lines(text, "RUN116") == expected


@each_case(
    ("text", "expected"),
    [
        (SLIM + CV2, [2]),
        (FULL + CV2, [2]),
        (PYTORCH + CV2, [2]),
        (RUNTIME + PIP + CV2, [3]),
        (SLIM + f"{APT}libgl1\n" + CV2, []),
        (SLIM + f"{APT}ffmpeg\n" + CV2, []),  # depends on libgl1
        (SLIM + f"{APT}libsm6 libxext6\n" + CV2, [3]),
        (SLIM + CV2.replace("python\n", "python-headless\n"), []),
        (SLIM + CV2.replace("opencv-python", "opencv-python opencv-python-headless"), []),
        (SLIM.replace("\n", " AS a\n") + CV2 + SLIM + f"{APT}libgl1\nCOPY --from=a /usr /usr\n", []),
        (SLIM.replace("\n", " AS a\n") + CV2 + "FROM acme/gui:1\nCOPY --from=a /usr /usr\n", []),
        ("FROM acme/base:1\n" + CV2, []),
        (SLIM + "RUN pip install torch==2.6.0 lightgbm\n", [2]),
        (DEVEL + PIP + "RUN pip3 install torch==2.6.0 lightgbm\n", []),  # gcc brings libgomp
        (SLIM + "RUN pip install torch==2.6.0 openai-whisper ffmpeg-python\n", [2]),
        (SLIM + f"{APT}ffmpeg\nRUN pip install torch==2.6.0 openai-whisper ffmpeg-python\n", []),
        (SLIM + "RUN pip install torch==2.8.0 vllm==0.11.0\n", [2]),
        (SLIM + f"{APT}build-essential\nRUN pip install torch==2.8.0 vllm==0.11.0\n", []),
    ],
)
def test_a_library_that_an_image_lacks(text: str, expected: list[int]) -> None:
    assert lines(text, "RUN117") == expected


@each_case(
    ("steps", "expected"),
    [
        (("pip install openslide-python",), [3]),
        (("pip install openslide-python openslide-bin",), []),
        (("apt-get install -y openslide-tools", "pip install openslide-python"), []),
        (("conda install -c conda-forge openslide", "pip install openslide-python"), []),
        (("conda install -c conda-forge openslide-python",), []),
        (("pip install opencv-python",), []),  # a usual machine has libGL
        (("pip install sounddevice",), [3]),
    ],
)
def test_a_library_that_a_usual_machine_lacks(steps: tuple[str, ...], expected: list[int]) -> None:
    found = findings(sh(*steps), FixedSolver(FixedIndex(), {}), "RUN117")
    assert [(each.line, each.status) for each in found] == [(line, "unknown") for line in expected]


@each_case(
    ("steps", "versions", "expected"),
    [
        (("pip install rembg",), {"rembg": "2.0.67"}, [3]),
        (("pip install 'rembg[cpu]'",), {"rembg": "2.0.67"}, []),
        (("pip install rembg==2.0.59",), {"rembg": "2.0.59"}, []),  # requires onnxruntime
        (("pip install rembg onnxruntime-gpu",), {"rembg": "2.0.67", "onnxruntime-gpu": "1.20.0"}, []),
        (("pip install rembg", "pip install onnxruntime"), {"rembg": "2.0.67", "onnxruntime": "1.20.0"}, []),
    ],
)
def test_a_package_without_its_backend(steps: tuple[str, ...], versions: dict[str, str], expected: list[int]) -> None:
    found = findings(sh(*steps), FixedSolver(FixedIndex(), versions), "RUN118")
    assert [each.line for each in found] == expected


def test_a_program_of_a_package_that_nothing_installs() -> None:
    solver = FixedSolver(FixedIndex(), {"numpy": "2.2.0"})
    steps = ("uv venv --python 3.12", "uv pip install numpy", "torchrun a.py", "echo tensorboard --logdir a")
    assert [each.line for each in findings(sh(*steps), solver, "RUN066")] == [5]
    assert findings("Install PyTorch first.\n" + sh(*steps), solver, "RUN066") == []
    assert findings(sh(*steps[1:]), solver, "RUN066") == []  # an environment that exists can have it
    for unknown in ("module load pytorch/2.5", "uv pip install $PACKAGES", "uv pip install git+https://a.org/a"):
        assert findings(sh(steps[0], unknown, *steps[1:]), solver, "RUN066") == [], unknown


@each_case(
    "case",
    [
        ("runpod/pytorch:2.1.0-py3.10-cuda11.8.0-devel-ubuntu22.04", "2.1.0", "3.10", "11.8"),
        ("cnstark/pytorch:2.0.1-py3.9.17-cuda11.8.0-ubuntu20.04", "2.0.1", "3.9", "11.8"),
        ("anibali/pytorch:1.11.0-cuda11.3-ubuntu20.04", "1.11.0", "", "11.3"),
        ("vastai/pytorch:2.5.1-cuda-12.1.1", "2.5.1", "", "12.1"),
        ("pytorch/pytorch:1.10.0-cuda11.3-cudnn8-devel", "1.10.0", "3.7", "11.3"),
        ("pytorch/pytorch:1.11.0-cuda11.3-cudnn8-devel", "1.11.0", "3.8", "11.3"),
        ("runpod/pytorch:1.0.3-cu1290-torch260-ubuntu2204", "", "", ""),  # a torch whose build the tag does not name
        ("pytorch/pytorch:1.10.0-cuda11.3-cudnn8-devel", "1.10.0", "3.7", "11.3"),
        ("pytorch/pytorch:1.11.0-cuda11.3-cudnn8-runtime", "1.11.0", "3.8", "11.3"),
        ("someone/pytorch:2.1.0-py3.10-cuda11.8.0", None, "", "11.8"),
    ],
)
def test_the_tag_of_an_image_with_torch_names_its_versions(case: tuple[str, str | None, str, str]) -> None:
    image, torch, python, cuda = case
    name, _, tag = image.partition(":")
    state = image_state(UseImage(1, "", name, tag))
    found = state.packages.get("torch")
    assert (found.version if found else None) == torch
    assert (python in ("", state.python), state.image_cuda) == (True, cuda)


@each_case(
    ("line", "python"),
    [
        ("RUN apt-get update && apt-get install -y python3-pip git", "3.8"),
        ("RUN apt-get update && apt-get install -y python3-pip python3.9", "3.9"),
        ("RUN apt-get install -y python3-pip && bash Miniconda3.sh -b", ""),
        ("RUN apt-get install -y git", ""),
    ],
)
def test_the_python_of_the_system_of_an_image(line: str, python: str) -> None:
    text = f"FROM nvidia/cuda:12.1.0-cudnn8-runtime-ubuntu20.04\n{line}\nRUN pip3 install torch==2.4.1\n"
    audit = audit_text(text, "Dockerfile", None, None).audit
    assert audit
    main = audit.main
    assert ("" if main.is_python_assumed else main.python) == python


def test_pip_keeps_the_torch_of_an_image() -> None:
    step = "RUN pip install transformers==4.44.2 accelerate==0.33.0 bitsandbytes==0.41.3\n"
    assert lines("FROM runpod/pytorch:2.1.0-py3.10-cuda11.8.0-devel-ubuntu22.04\n" + step, "RUN003") == []
    assert 3 in lines("FROM nvidia/cuda:11.8.0-devel-ubuntu22.04\n" + PIP + step, "RUN003")


def test_a_build_in_an_image_gets_no_toolkit_of_the_machine() -> None:
    """`export` ends with its RUN instruction, and the image has one toolkit."""
    build = "RUN pip install torch==2.6.0 ninja packaging\nRUN pip install flash-attn --no-build-isolation\n"
    text = f"FROM nvidia/cuda:11.7.1-cudnn8-devel-ubuntu20.04\n{PIP}{build}"
    audit = audit_text(text, "Dockerfile", None, None).audit
    assert audit
    (found,) = (each for each in audit.findings if each.id == "RUN046")
    assert (found.fix, found.remedies) == ("Use an image with the toolkit of CUDA 12.4.", ())
