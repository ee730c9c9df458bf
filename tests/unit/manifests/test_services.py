"""What public services no longer offer, and steps that fail in an image."""

from __future__ import annotations

import re

from support.cases import each_case
from support.guide_cases import sh

from envdoctor.commands.audit_file import audit_text
from envdoctor.knowledge.services import unlisted_cuda_tag
from envdoctor.resolution.step import NoSolver


def workflow(runs_on: str, *steps: str, matrix: str = "") -> str:
    strategy = f"    strategy:\n      matrix:\n        os: {matrix}\n" if matrix else ""
    lines = "".join(f"      - uses: {step}\n" for step in steps)
    run = "      - run: pip install trl==0.23.1\n"
    return f"on: push\njobs:\n  build:\n    runs-on: {runs_on}\n{strategy}    steps:\n{lines}{run}"


def dockerfile(image: str, *lines: str) -> str:
    return "\n".join([f"FROM {image}", *lines, "RUN pip install trl==0.23.1", ""])


def guide(command: str) -> str:
    return sh(command, "pip install trl==0.23.1")


MATRIX = "${{ matrix.os }}"
PPA = "add-apt-repository -y ppa:deadsnakes/ppa"
MINICONDA = "RUN wget https://repo.anaconda.com/miniconda/Miniconda3-latest-Linux-x86_64.sh && bash Miniconda3*.sh -b"
OLD_KEY = "RUN apt-key adv --fetch-keys https://developer.download.nvidia.com/compute/cuda/repos/ubuntu1804/x86_64/7fa2af80.pub"
APT = "RUN apt-get update && apt-get install -y python3-pip"

# Name of the file, text, and the findings of RUN1xx: rule, status, line.
CASES: dict[str, tuple[str, str, list[tuple[str, str, int]]]] = {
    "removed runner": ("w.yml", workflow("ubuntu-20.04"), [("RUN100", "error", 4)]),
    "removed runner of a matrix": (
        "w.yml",
        workflow(MATRIX, matrix="[ubuntu-24.04, macos-13]"),
        [("RUN100", "error", 7)],
    ),
    "announced removal": ("w.yml", workflow("macos-14"), [("RUN100", "warning", 4)]),
    "present runner": ("w.yml", workflow("ubuntu-24.04"), []),
    "self-hosted runner": ("w.yml", workflow("[self-hosted, ubuntu-20.04]"), []),
    "expression": ("w.yml", workflow("${{ inputs.os }}"), []),
    "disabled action": (
        "w.yml",
        workflow("ubuntu-24.04", "actions/upload-artifact@v3.1.2"),
        [("RUN101", "error", 6)],
    ),
    "disabled cache": ("w.yml", workflow("ubuntu-24.04", "actions/cache@v2"), [("RUN101", "error", 6)]),
    "working actions": (
        "w.yml",
        workflow("ubuntu-24.04", "actions/upload-artifact@v4", "actions/cache@v3", "actions/checkout@v2"),
        [],
    ),
    "action at a commit": (
        "w.yml",
        workflow("ubuntu-24.04", "actions/cache@13aacd865c20de90d75de3b17ebe84f7a17d57d2"),
        [],
    ),
    "renamed tag": (
        "Dockerfile",
        dockerfile("nvidia/cuda:12.4.1-cudnn9-devel-ubuntu22.04"),
        [("RUN102", "error", 1)],
    ),
    "deleted tag": ("Dockerfile", dockerfile("nvidia/cuda:10.2-devel-ubuntu18.04"), [("RUN102", "error", 1)]),
    "unlisted tag": ("Dockerfile", dockerfile("nvidia/cuda:11.3.0-devel-ubuntu20.04"), [("RUN102", "warning", 1)]),
    "listed tag": ("Dockerfile", dockerfile("nvidia/cuda:12.9.1-cudnn-devel-ubuntu22.04"), []),
    "archived Debian": (
        "Dockerfile",
        dockerfile("python:3.9-slim-buster", "RUN apt-get update"),
        [("RUN103", "error", 1)],
    ),
    "archived Ubuntu": ("Dockerfile", dockerfile("ubuntu:23.10", "RUN apt-get update"), [("RUN103", "error", 1)]),
    "archived CentOS": (
        "Dockerfile",
        dockerfile("nvidia/cuda:11.8.0-devel-centos7", "RUN yum install -y git"),
        [("RUN103", "error", 1)],
    ),
    "archive in use": (
        "Dockerfile",
        dockerfile(
            "debian:buster", "RUN sed -i s/deb.debian.org/archive.debian.org/ /etc/apt/sources.list && apt-get update"
        ),
        [],
    ),
    "archived system without its packages": ("Dockerfile", dockerfile("python:3.9-buster"), []),
    "terms of conda": (
        "Dockerfile",
        dockerfile("ubuntu:22.04", MINICONDA, "RUN /opt/conda/bin/conda create -n x python=3.11"),
        [("RUN106", "error", 3)],
    ),
    "terms with another channel": (
        "Dockerfile",
        dockerfile("ubuntu:22.04", MINICONDA, "RUN conda install -c conda-forge numpy"),
        [("RUN106", "warning", 3)],
    ),
    "conda of an image": ("Dockerfile", dockerfile("continuumio/miniconda3", "RUN conda install -y numpy"), []),
    "accepted terms": (
        "Dockerfile",
        dockerfile("ubuntu:22.04", MINICONDA, "RUN conda tos accept", "RUN conda create -n x python=3.11"),
        [],
    ),
    "conda-forge alone": (
        "Dockerfile",
        dockerfile("ubuntu:22.04", MINICONDA, "RUN conda install --override-channels -c conda-forge numpy"),
        [],
    ),
    "externally managed": (
        "Dockerfile",
        dockerfile("nvidia/cuda:12.9.1-devel-ubuntu24.04", APT),
        [("RUN107", "error", 3)],
    ),
    "permitted system packages": (
        "Dockerfile",
        dockerfile("ubuntu:24.04", "ENV PIP_BREAK_SYSTEM_PACKAGES=1", APT),
        [],
    ),
    "virtual environment": ("Dockerfile", dockerfile("ubuntu:24.04", "RUN python3 -m venv /opt/env", APT), []),
    "Python of the image": ("Dockerfile", dockerfile("python:3.12-slim-bookworm"), []),
    "older Ubuntu": ("Dockerfile", dockerfile("ubuntu:22.04", APT), []),
    "replaced key": ("Dockerfile", dockerfile("ubuntu:22.04", OLD_KEY), [("RUN108", "error", 2)]),
    "key of another repository": (
        "Dockerfile",
        dockerfile("ubuntu:22.04", OLD_KEY.replace("compute/cuda", "compute/machine-learning")),
        [],
    ),
    "no such Python": (
        "Dockerfile",
        dockerfile("ubuntu:24.04", "RUN apt-get install -y git python3.10 python3.10-venv"),
        [("RUN110", "error", 2)],
    ),
    "the Python of the system": (
        "Dockerfile",
        dockerfile("ubuntu:22.04", "RUN apt-get install -y python3.11-dev"),
        [],
    ),
    "a PPA": (
        "Dockerfile",
        dockerfile("ubuntu:22.04", "RUN add-apt-repository ppa:deadsnakes/ppa", "RUN apt-get install -y python3.12"),
        [],
    ),
    "a PPA without packages": (
        "Dockerfile",
        dockerfile("nvidia/cuda:11.8.0-base-ubuntu20.04", f"RUN {PPA} && apt-get install -y python3.10-dev"),
        [("RUN110", "error", 2)],
    ),
    "distutils of 3.12": (
        "Dockerfile",
        dockerfile("ubuntu:22.04", f"RUN {PPA} && apt-get install -y python3.12-distutils"),
        [("RUN110", "error", 2)],
    ),
    "a stage": (
        "Dockerfile",
        dockerfile("ubuntu:24.04 AS base", "FROM base", "RUN apt-get install -y python3.11"),
        [("RUN110", "error", 3)],
    ),
    "an image with a Python": (
        "Dockerfile",
        dockerfile("python:3.11-bookworm", "RUN apt-get install -y python3.12"),
        [],
    ),
    "cuDNN of another torch": (
        "Dockerfile",
        dockerfile("pytorch/pytorch:2.6.0-cuda12.4-cudnn8-devel"),
        [("RUN111", "error", 1)],
    ),
    "cuDNN of torch": ("Dockerfile", dockerfile("pytorch/pytorch:2.3.0-cuda12.1-cudnn8-runtime"), []),
    "option after the image": ("S.md", guide("sudo docker run -it my/image:1 --gpus all"), [("RUN104", "error", 3)]),
    "option without an image": ("S.md", guide("docker run --rm -v <image:tag>"), [("RUN104", "error", 3)]),
    "option of the program": ("S.md", guide("docker run --gpus all vllm/vllm-openai:v0.11.0 --gpus 4 --rm-logs"), []),
    "volume in one word": ("S.md", guide("docker run -v/a:/a --gpus=all -p 80:80 my/image:1 bash"), []),
    "discontinued command": ("S.md", guide("nvidia-docker run -it my/image:1"), [("RUN105", "warning", 3)]),
}


@each_case("name", [*CASES])
def test_what_a_service_no_longer_offers(name: str) -> None:
    file, text, expected = CASES[name]
    name = f".github/workflows/{file}" if file == "w.yml" else file
    found = audit_text(text, name, None, NoSolver()).result.findings
    assert [(each.id, each.status, each.line) for each in found if re.match("RUN1(?:0|1[0-5])", each.id)] == expected


@each_case(
    "tag, reason, listed",
    [
        ("12.6.3-cudnn8-runtime-ubuntu22.04", "cudnn", "12.6.3-cudnn-runtime-ubuntu22.04"),
        ("12.1.1-devel-ubuntu24.04", "system", "12.1.1-devel-ubuntu22.04"),
        ("11.7.0-devel-ubuntu20.04", "release", "11.7.1-devel-ubuntu20.04"),
        ("9.0-devel-ubuntu16.04", "release", ""),
        ("13.1.0-devel-ubuntu24.04", "", ""),
        ("13.0.9-devel-ubuntu24.04", "", ""),  # newer than the lists
        ("99.1.0-devel-ubuntu24.04", "", ""),
        ("${VERSION}-devel-ubuntu24.04", "", ""),
    ],
)
def test_a_tag_of_the_lists_is_proposed(tag: str, reason: str, listed: str) -> None:
    found = unlisted_cuda_tag(tag)
    assert (found.reason if found else "", found.listed if found else "") == (reason, listed)
