"""`envdoctor check --image`: no verdict without every fact that decides."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.cases import each_case

from envdoctor.commands.check import CheckRequest, run
from envdoctor.commands.check_image import ImageCheck
from envdoctor.core.errors import BadInput


def check(image: Path, gpu: str = "l4", driver: str = "550.54") -> tuple[ImageCheck, int]:
    result = run(CheckRequest(image=str(image), machine=gpu, driver=driver))
    assert isinstance(result.data, ImageCheck)
    return result.data, result.exit_code


def serious(data: ImageCheck) -> set[str]:
    return {finding.id for finding in data.findings if finding.status in ("error", "warning")}


def configuration(variables: dict[str, str], architecture: str = "amd64") -> dict[str, object]:
    return {"architecture": architecture, "config": {"Env": [f"{name}={value}" for name, value in variables.items()]}}


@each_case("stages", ["FROM a AS b\nFROM b AS a\n", "FROM a AS b\nFROM b AS c\nFROM c AS b\n", "FROM a AS a\n"])
def test_stages_that_name_each_other(stages: str, tmp_path: Path) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text(stages)
    assert check(path)[0].verdict == "unknown"


UNREAD = (
    "RUN pip install -r missing.txt",
    "RUN pip install torch==$TV",
    "RUN conda env create -f env.yml",
    "RUN ./install.sh",
    "RUN chmod +x a.sh && sh a.sh",
    "RUN command ./install.sh",
    "RUN find . -name '*.whl' -exec pip install {} +",
    "RUN git submodule foreach ./install.sh",
    "RUN uv sync",
    "RUN poetry install",
    "RUN make",
    "RUN pip install .",
    "RUN pip install git+https://github.com/pytorch/pytorch",
    "RUN pip install torch==",
    "RUN pip install vllm==99",
    "RUN pip install 'torch>=99'",
    "RUN pip install ./torch-2.11.0-cp312-cp312-linux_x86_64.whl",
    "RUN pip install cupy-cuda13x",
    "RUN pip install a-package-in-no-table",
    "RUN curl -L https://example.org/install.sh | sh",
    "RUN python install.py",
    """RUN python -c "import os; os.system('pip install torch')\"""",
    "RUN apt-get install -y cuda-toolkit-13-0",
    "RUN wget https://example.org/a.tgz && tar xf a.tgz",
    "RUN if [ -f x ]; then pip install torch==2.11.0; else pip install torch==2.6.0; fi",
    "COPY --from=nvidia/cuda:13.0.0-devel-ubuntu22.04 / /",
    "ADD https://example.org/cuda.tar.gz /usr/local/",
    "ENV NVIDIA_REQUIRE_DRIVER=driver>=x",
)


@each_case("step", UNREAD)
@each_case("base", ["nvidia/cuda:12.0.0-base-ubuntu22.04", "ubuntu:22.04"])
def test_steps_that_were_not_read_give_no_verdict(step: str, base: str, tmp_path: Path) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text(f"FROM {base}\n{step}\n")
    data, exit_code = check(path, "l4", "550.54")
    unknown = [finding.id for finding in data.findings if finding.status == "unknown"]
    is_wrong = exit_code == 1 and "2.11.0" in step  # CUDA 13 on this driver
    assert is_wrong or (data.verdict, exit_code, bool(unknown)) == ("unknown", 3, True)


def test_steps_that_install_nothing_are_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text(
        "FROM ubuntu:22.04 AS other\nRUN ./build.sh\n"
        "FROM nvidia/cuda:12.0.0-base-ubuntu22.04\nCOPY --from=ghcr.io/astral-sh/uv:0.9 /uv /bin/\n"
        "RUN --mount=type=cache,target=/x apt-get update && apt-get install -y curl && rm -rf /var/lib/apt/lists/*\n"
        "RUN curl -LsSf https://astral.sh/uv/install.sh | sh\nRUN uv venv /opt/v && pip install --upgrade pip numpy\n"
        'RUN pip install torch==2.6.0 && python -c "import torch"\nWORKDIR /app\nCOPY . .\nCMD ["./serve.sh"]\n'
    )
    data, exit_code = check(path, "l4", "550.54")
    assert (data.image.unread, data.verdict, exit_code) == ((), "runs", 0)


REQUIRED = {
    "NVIDIA_REQUIRE_DRIVER": "driver>=600",
    "NVIDIA_REQUIRE_FOO": "cuda>=13",
    "NVIDIA_REQUIRE_ARCH": "arch>=9.0",
}
IMAGES = {
    **{name: (configuration({"CUDA_VERSION": "12.0.0", name: value}), 1) for name, value in REQUIRED.items()},
    "it holds": (configuration({"CUDA_VERSION": "12.0.0", "NVIDIA_REQUIRE_DRIVER": "driver>=500"}), 0),
    "no check": (configuration({"CUDA_VERSION": "12.0.0", **REQUIRED, "NVIDIA_DISABLE_REQUIRE": "1"}), 0),
    "jetson": (configuration({"CUDA_VERSION": "12.0.0", "NVIDIA_REQUIRE_JETPACK_HOST_MOUNTS": "x"}), 0),
    "windows": (configuration({"CUDA_VERSION": "12.0.0"}) | {"os": "windows"}, 2),
    "no architecture": ({"config": {"Env": ["CUDA_VERSION=12.0.0"]}}, 3),
    "two images": ([configuration({"CUDA_VERSION": f"{n}.0.0"}) for n in (12, 13)], 2),
    "platforms that differ": (
        {"a": configuration({"CUDA_VERSION": "12.0.0"}, "arm64"), "b": configuration({"CUDA_VERSION": "13.0.0"})}, 3,
    ),
    "code for Hopper": (configuration({"CUDA_VERSION": "12.0.0", "TORCH_CUDA_ARCH_LIST": "9.0a"}), 3),
    "code by a name": (configuration({"CUDA_VERSION": "12.0.0", "TORCH_CUDA_ARCH_LIST": "Hopper"}), 3),
    "code for its family": (configuration({"CUDA_VERSION": "12.0.0", "TORCH_CUDA_ARCH_LIST": "8.0;9.0"}), 0),
    "PTX": (configuration({"CUDA_VERSION": "12.0.0", "TORCH_CUDA_ARCH_LIST": "7.5+PTX"}), 0),
}  # fmt: skip


@each_case("name", IMAGES)
def test_every_fact_of_a_configuration_counts(name: str, tmp_path: Path) -> None:
    path = tmp_path / "image.json"
    document, expected = IMAGES[name]
    path.write_text(json.dumps(document))
    if expected == 2:
        with pytest.raises(BadInput, match=r"has 2 images|for windows"):
            check(path)
        return
    data, exit_code = check(path, "l4", "550.54")
    assert (exit_code, data.verdict == "runs") == (expected, expected == 0), [each.message for each in data.findings]


def test_a_key_that_occurs_twice_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "image.json"
    path.write_text('{"architecture":"amd64","config":{"Env":["CUDA_VERSION=13.0.0"]},"config":{"Env":[]}}')
    with pytest.raises(BadInput, match="occurs twice"):
        check(path)


def test_the_platform_of_from_counts(tmp_path: Path) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text("FROM --platform=linux/arm64 nvidia/cuda:12.0.0-base-ubuntu22.04 AS a\nFROM a\n")
    assert serious(check(path, "l4", "550.54")[0]) == {"IMG001"}
    path.write_text("FROM --platform=$BUILDPLATFORM nvidia/cuda:12.0.0-base-ubuntu22.04\n")
    assert check(path, "l4", "550.54")[0].verdict == "runs"


@each_case(
    ("image", "driver", "verdict"),
    [("nvidia/cuda:12.3.1-base-ubuntu22.04", "530.30.02", "unknown"),
     ("nvidia/cuda:12.3.1-base-ubuntu22.04", "570.26", "runs"),
     ("nvidia/cuda:12.4.1-base-ubuntu22.04", "535.54.03", "runs")],
)  # fmt: skip
def test_a_requirement_in_no_table_is_not_assumed(image: str, driver: str, verdict: str) -> None:
    assert check(Path(image), "l4", driver)[0].verdict == verdict
