"""Lines that `audit --fix` corrects: the finding is gone, nothing else is reported, and a second run adds nothing."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace
from support.cases import each_case
from support.guide_cases import sh

from envdoctor.commands.audit_draft import Draft, is_better, new_problems, with_corrected_lines
from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Evidence, Finding, Status
from envdoctor.core.remedies import steps
from envdoctor.manifests import GuideAudit, audit_guide
from envdoctor.manifests.files import TextsOfFiles
from envdoctor.manifests.line_corrections import correct_lines
from envdoctor.resolution.step import NoSolver

SLIM, TORCH = "FROM python:3.11-slim\n", "RUN pip install torch==2.6.0\n"
PIP = "pip install torch==2.6.0\n"
LISTS = "&& rm -rf /var/lib/apt/lists/*\n"
CUDA = "FROM nvidia/cuda:12.4.1-devel-ubuntu22.04\nRUN apt-get update && apt-get install -y python3-pip\n"
BUSTER, APT = (
    "FROM python:3.8-buster\n",
    "RUN apt-get update && apt-get install -y git\nRUN pip install torch==2.4.1\n",
)
UBUNTU = "FROM ubuntu:24.04\nRUN apt-get update && apt-get install -y python3-pip\n"
JOBS = ("export CUDA_HOME=/usr/local/cuda-13.0", "pip install torch==2.11.0")
WORKFLOW = (
    "on: push\njobs:\n  a:\n    runs-on: {}\n    steps:\n      - uses: {}\n      - run: pip install torch==2.6.0\n"
)
MINICONDA = "RUN bash Miniconda3-latest-Linux-x86_64.sh # repo.anaconda.com/miniconda/Miniconda3-latest\n"


def cell(*lines: str) -> str:
    """A notebook with one cell that first installs torch."""
    cells = [{"cell_type": "code", "metadata": {}, "source": ["!pip install torch==2.6.0\n", *lines]}]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)


# Name: file, text, corrected text.
VLLM = "RUN pip install vllm==0.10.2 transformers==4.56.2\n"
CASES: dict[str, tuple[str, str, str]] = {
    "a bound without quotes": ("a.sh", PIP + "pip install trl>=0.23\n", PIP + "pip install 'trl>=0.23'\n"),
    "a missing backslash": (
        "a.sh", "pip install torch==2.8.0 \\\n  numpy  \n  trl==0.23.1\n",
        "pip install torch==2.8.0 \\\n  numpy \\\n  trl==0.23.1\n",
    ),
    "options without backslashes": (
        "guide.md", sh("pip install torch==2.8.0", "python x.py  ", "--lr 1e-4 # high", " --bs 2"),
        sh("pip install torch==2.8.0", "# --lr: high", "python x.py \\", "--lr 1e-4 \\", " --bs 2"),
    ),
    "an option that pip lacks": ("a.sh", "pip install -y torch==2.6.0\n", PIP),
    "an address alone": (
        "a.sh", "https://github.com/a/Model.git\ncd Model\n" + PIP,
        "git clone https://github.com/a/Model.git\ncd Model\n" + PIP,
    ),
    "another package": (
        "a.sh", "pip install torch==2.8.0 sklearn\n", "pip install torch==2.8.0 scikit-learn\n",
    ),
    "a version of an empty package": (
        "requirements.txt", "torch==2.8.0\nskimage==0.0\n", "torch==2.8.0\nscikit-image\n",
    ),
    "a build in isolation": (
        "a.sh", PIP + "pip install -q flash-attn==2.7.4\n",
        PIP + "pip install 'setuptools>=70,<82' wheel packaging psutil ninja\n"
        "pip install --no-build-isolation -q flash-attn==2.7.4\n",
    ),
    "a build of a folder": (
        "a.sh", PIP + "git clone https://github.com/graphdeco-inria/diff-gaussian-rasterization\n"
        "pip install ./diff-gaussian-rasterization\n",
        PIP + "git clone https://github.com/graphdeco-inria/diff-gaussian-rasterization\n"
        "pip install 'setuptools>=70,<82' wheel ninja\n"
        "pip install --no-build-isolation ./diff-gaussian-rasterization\n",
    ),
    "a build next to torch": (
        "Dockerfile", (CUDA + "RUN pip install torch==2.6.0 flash-attn==2.7.4 && \\\n    ls\n"),
        (CUDA + "RUN pip install torch==2.6.0 && pip install 'setuptools>=70,<82' wheel packaging psutil ninja && "
        "pip install --no-build-isolation flash-attn==2.7.4 && \\\n    ls\n"),
    ),
    "what a build needs": (
        "a.sh", "uv venv\nuv pip install torch==2.6.0\nuv pip install flash-attn==2.7.4 --no-build-isolation\n",
        ("uv venv\nuv pip install torch==2.6.0\nuv pip install 'setuptools>=70,<82' wheel packaging\n"
        "uv pip install flash-attn==2.7.4 --no-build-isolation\n"),
    ),
    "a removed program": (
        "a.sh", "pip install torch==2.6.0 huggingface-hub==1.0.0\nhuggingface-cli download a --resume-download\n",
        "pip install torch==2.6.0 huggingface-hub==1.0.0\nhf download a\n",
    ),
    "a channel without the release": (
        "a.sh", "conda install -y pytorch=2.6.0 pytorch-cuda=12.4 -c pytorch -c nvidia\n",
        "pip install torch==2.6.0 --index-url https://download.pytorch.org/whl/cu124\n",
    ),
    "a Python without wheels": (
        "guide.md", sh("uv venv --python 3.8", "uv pip install vllm==0.10.2 transformers==4.56.2"),
        sh("uv venv --python 3.12", "uv pip install vllm==0.10.2 transformers==4.56.2"),
    ),
    "an image for that Python": (
        "Dockerfile", f"FROM python:3.8-bullseye\n{VLLM}", f"FROM python:3.12-bullseye\n{VLLM}",
    ),
    "no image for that Python": (
        "Dockerfile", f"FROM python:3.8-slim-buster\n{VLLM}", f"FROM python:3.8-slim-buster\n{VLLM}",
    ),
    "a package that no step installs": (
        "a.sh", PIP + "accelerate launch a.py\n", PIP + "pip install accelerate\naccelerate launch a.py\n",
    ),
    "a blank after a backslash": (
        "a.sh", "pip install torch==2.6.0 \\ \n  numpy==2.2.1\n", "pip install torch==2.6.0 \\\n  numpy==2.2.1\n",
    ),
    "a comment in a command": ("a.sh", "pip install \\\n  # b\n  torch==2.6.0\n", "pip install \\\n  torch==2.6.0\n"),
    "a missing &&": ("a.sh", "pip install torch==2.6.0 \\\npip install numpy\n",
                     "pip install torch==2.6.0 && \\\npip install numpy\n"),
    "a runner and an action": (
        "w.yml", WORKFLOW.format("ubuntu-20.04", "actions/cache@v2"),
        WORKFLOW.format("ubuntu-22.04", "actions/cache@v4"),
    ),
    "a tag of CUDA": (
        "Dockerfile", "FROM nvidia/cuda:12.4.1-cudnn9-devel-ubuntu22.04\n" + TORCH,
        "FROM nvidia/cuda:12.4.1-cudnn-devel-ubuntu22.04\n" + TORCH,
    ),
    "an option of docker": ("a.sh", PIP + "docker run -it my/image:1 --gpus all\n",
                            PIP + "docker run --gpus all -it my/image:1\n"),
    "terms of conda": (
        "Dockerfile", "FROM python:3.11\n" + MINICONDA + "RUN conda create -n a\n" + TORCH,
        "FROM python:3.11\n" + MINICONDA + "ENV CONDA_PLUGINS_AUTO_ACCEPT_TOS=yes\nRUN conda create -n a\n" + TORCH,
    ),
    "pip of the system": ("Dockerfile", UBUNTU + TORCH, UBUNTU + "ENV PIP_BREAK_SYSTEM_PACKAGES=1\n" + TORCH),
    "a command in its own RUN": (
        "Dockerfile", SLIM + "RUN export A=1\nRUN cd /app\nRUN pip install -e .\n" + TORCH,
        SLIM + "ENV A=1\nWORKDIR /app\nRUN pip install -e .\n" + TORCH,
    ),
    "syntax of bash": (
        "Dockerfile", SLIM + "RUN source /v/bin/activate && ls\n" + TORCH,
        SLIM + 'SHELL ["/bin/bash", "-c"]\nRUN source /v/bin/activate && ls\n' + TORCH,
    ),
    "git that is not in the image": (
        "Dockerfile", SLIM + "RUN ls && \\\n    git clone https://a.org/a\n" + TORCH,
        SLIM + "RUN apt-get update && apt-get install -y --no-install-recommends git " + LISTS
        + "RUN ls && \\\n    git clone https://a.org/a\n" + TORCH,
    ),
    "apt-get without lists and -y": (
        "Dockerfile", SLIM + "RUN apt-get install git\n" + TORCH,
        SLIM + "RUN apt-get update && apt-get install -y git\n" + TORCH,
    ),
    "a file that is copied later": (
        "Dockerfile", SLIM + "RUN pip install -r a.txt\nCOPY . .\n" + TORCH,
        SLIM + "COPY a.txt ./\nRUN pip install -r a.txt\nCOPY . .\n" + TORCH,
    ),
    "an argument of another stage": (
        "Dockerfile", "ARG T=2.6.0\n" + SLIM + "RUN pip install torch==${T}\n",
        "ARG T=2.6.0\n" + SLIM + "ARG T\nRUN pip install torch==${T}\n",
    ),
    "servers that are gone": (
        "Dockerfile", BUSTER + APT,
        (BUSTER + "RUN sed -i -e 's#http://\\(deb\\|security\\).debian.org#http://archive.debian.org#' "
        "-e '/-updates/d' /etc/apt/sources.list "
        "&& echo 'Acquire::Check-Valid-Until \"false\";' > /etc/apt/apt.conf.d/99archive\n"
        + APT),
    ),
    "an interpreter for bash": ("a.sh", "#!/bin/sh\nif [[ $A ]]; then\n" + PIP + "fi\n",
                                "#!/bin/bash\nif [[ $A ]]; then\n" + PIP + "fi\n"),
    "ends of lines": ("a.sh", "#!/bin/bash\r\npip install torch==2.6.0\r\n", "#!/bin/bash\n" + PIP),
    "blanks in an assignment": ("a.sh", PIP + "CUDA_VISIBLE_DEVICES=0, 1 python a.py\n",
                                PIP + "CUDA_VISIBLE_DEVICES=0,1 python a.py\n"),
    "python after torchrun": ("a.sh", PIP + "torchrun --nproc_per_node 8 python a.py\n",
                              PIP + "torchrun --nproc_per_node 8 a.py\n"),
    "an option after the script": ("a.sh", PIP + "torchrun a.py --lr 1 --nproc_per_node 8\n",
                                   PIP + "torchrun --nproc_per_node 8 a.py --lr 1\n"),
    "a folder of a cell": ("a.ipynb", cell("!cd a\n"), cell("%cd a\n")),
    "a package that a cell imports": (
        "a.ipynb", cell("import torch\n", "from peft import LoraConfig\n", "print()"),
        cell("import torch\n", "%pip install peft\n", "from peft import LoraConfig\n", "print()"),
    ),
    "a requirement that is not valid": ("requirements.txt", "torch=2.6.0\n", "torch==2.6.0\n"),
    "the name as a version": (
        "requirements.txt", "torch==2.6.0\nrotary_embedding_torch==rotary-embedding-torch\n",
        "torch==2.6.0\nrotary-embedding-torch\n",
    ),
    "an egg with extras": (
        "a.sh", "pip install torch 'git+https://a.org/a#egg=trl[vllm]'\n",
        "pip install torch 'trl[vllm] @ git+https://a.org/a'\n",
    ),
    "packages of the user in an environment": (
        "a.sh", "python -m venv v\nsource v/bin/activate\npip install --user torch==2.6.0\n",
        "python -m venv v\nsource v/bin/activate\npip install torch==2.6.0\n",
    ),
    "uv sync that removes": ("a.sh", "uv sync\nuv pip install torch==2.6.0\nuv sync\n",
                             "uv sync\nuv pip install torch==2.6.0\nuv sync --inexact\n"),
    "two names of a download": ("a.sh", PIP + "curl -LO https://a.org/a -o b\n",
                                PIP + "curl -L https://a.org/a -o b\n"),
    "jobs of a build": (
        "guide.md", sh(*JOBS, "pip install flash-attn==2.5.3 --no-build-isolation"),
        sh(*JOBS, "export MAX_JOBS=4", "pip install flash-attn==2.5.3 --no-build-isolation"),
    ),
    "a variable that nothing reads": ("a.sh", PIP + "export TORCHINDUCTOR_DISABLE=1\n",
                                      PIP + "export TORCH_COMPILE_DISABLE=1\n"),
    "text of a guide": ("guide.md", "# A\n\nRun `pip install flash-attn` after torch.\n",
                        "# A\n\nRun `pip install flash-attn` after torch.\n"),
}  # fmt: skip


def audit(text: str, file: str, on_disk: TextsOfFiles | None = None) -> tuple[GuideAudit, str]:
    audited = audit_text(text, file, None, NoSolver(), on_disk=on_disk)
    assert audited.audit is not None
    return audited.audit, audited.document.kind


def corrected(text: str, file: str) -> tuple[Draft, Draft]:
    """A text with its audit, before and after its correction."""
    audited, kind = audit(text, file)
    before = Draft(text, audited)

    def audit_again(corrected: str, on_disk: TextsOfFiles | None = None) -> GuideAudit:
        return audit(corrected, file, on_disk)[0]

    return before, with_corrected_lines(before, kind, audit_again)


@each_case("name", [*CASES])
def test_a_line_is_corrected_once_and_nothing_else_is_reported(name: str) -> None:
    file, text, expected = CASES[name]
    before, after = corrected(text, file)
    assert after.text == expected
    assert new_problems(before.audit.findings, after.audit.findings) == []
    assert corrected(after.text, file)[1].text == expected


@pytest.mark.parametrize("kind", ["Dockerfile", "script", "requirements"])
def test_system_packages_are_installed_before_the_step_that_needs_them(kind: str) -> None:
    finding = Finding(
        "RUN109", "system-library-missing", "error", "av has no wheel", (Evidence("av", "av==9.0.0", "a, line 2"),),
        "Install them first.", steps("sudo apt-get install -y libavdevice-dev"), line=2,
    )  # fmt: skip
    text = {"Dockerfile": "FROM a\nRUN pip install av==9.0.0", "script": "ls\npip install av", "requirements": "\nav"}
    expected = {
        "Dockerfile": "FROM a\nRUN apt-get update && apt-get install -y --no-install-recommends libavdevice-dev "
        + LISTS + "RUN pip install av==9.0.0",
        "script": "ls\nsudo apt-get install -y libavdevice-dev\npip install av",
        "requirements": "\nav",  # it has no place for a command
    }  # fmt: skip
    assert correct_lines(text[kind], kind, [finding]).text == expected[kind]


def test_the_builds_of_a_requirements_file_use_the_torch_of_the_text() -> None:
    finding = Finding(
        "RUN040", "build-isolation-no-torch", "error", "it is built",
        (Evidence("flash-attn", "flash-attn", ""),), "Install torch first.",
        steps("uv pip install wheel ninja"), line=2,
    )  # fmt: skip
    text = "ls\npip install -q -r a.txt && ls"
    expected = "ls\npip install torch==2.6.0 wheel ninja && pip install --no-build-isolation -q -r a.txt && ls"
    assert correct_lines(text, "script", [finding], torch="torch==2.6.0").text == expected


def test_an_install_without_packages_is_removed() -> None:
    before, after = corrected("pip install \\\npip install torch==2.6.0\n", "a.sh")
    assert [each.id for each in before.audit.findings if each.status == "error"] == ["RUN156"]
    assert after.text == "pip install torch==2.6.0\n"
    assert before.audit.requirements == ("torch==2.6.0",)


def findings_of(*ids: str, message: str = "m", status: Status = "error") -> list[Finding]:
    return [Finding(each, "a", status, message) for each in ids]


SKIPPED = findings_of("RUN017", message="not compared with newer dependencies: 2", status="info")
# What a text reports before and after its correction, and whether that is better.
BETTER: dict[str, tuple[list[Finding], list[Finding], bool]] = {
    "an error is gone": (findings_of("RUN001", "RUN003"), findings_of("RUN001"), True),
    "another became certain": (findings_of("RUN166"), findings_of("RUN181"), True),
    "nothing changed": (findings_of("RUN001"), findings_of("RUN001"), False),
    "what is not compared any more": (findings_of("RUN017"), SKIPPED, False),
    "an error is gone, and others are not compared": (findings_of("RUN003", "RUN017"), SKIPPED, True),
}


@each_case("name", [*BETTER])
def test_a_corrected_text_is_better_without_an_error_that_it_had(name: str) -> None:
    before, after, expected = BETTER[name]
    text = audit_guide("", name="a.md")
    audits = [replace(text, findings=tuple(found)) for found in (before, after)]
    assert is_better(*audits) == expected
