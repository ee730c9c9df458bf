"""Commands that a shell, Docker, SLURM, pip or uv refuses, or that change nothing."""

from __future__ import annotations

import json
from pathlib import Path

from support.cases import each_case
from support.guide_cases import sh

from envdoctor.commands.audit_file import audit_file, audit_text
from envdoctor.resolution.step import NoSolver

SLIM, CUDA = "FROM python:3.11-slim\n", "FROM nvidia/cuda:12.4.1-devel-ubuntu22.04\n"
TORCH = "RUN pip install torch==2.6.0\n"
CONDA_LIST = "dependencies:\n- python=3.10\n- pip:\n{}    - torch==2.5.1+cu121\n" + "".join(
    f"    - x{number}==1.0\n" for number in range(25)
)
JOB = "#!/bin/bash\n#SBATCH -N 1\n"


def cell(*lines: str) -> str:
    """A notebook with one cell, a line of the file for each line of code."""
    cells = [{"cell_type": "code", "metadata": {}, "source": [f"{line}\n" for line in lines]}]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)


CASES: dict[str, tuple[str, str, str, list[int]]] = {
    # RUN of a Dockerfile has a shell of its own: RUN150
    "export in its own RUN": ("Dockerfile", SLIM + "RUN export A=1\n" + TORCH, "RUN150", [2]),
    "export after another command": ("Dockerfile", SLIM + "RUN ls && export A=1\n" + TORCH, "RUN150", [2]),
    "a folder in its own RUN": ("Dockerfile", SLIM + "RUN cd /app\nRUN pip install -e .\n" + TORCH, "RUN150", [2]),
    "an activation in its own RUN": ("Dockerfile", SLIM + "RUN . /v/bin/activate\n" + TORCH, "RUN150", [2]),
    "export before a command": ("Dockerfile", SLIM + "RUN export A=1 && ls\n" + TORCH, "RUN150", []),
    "a folder before WORKDIR": (
        "Dockerfile", SLIM + "RUN cd /app\nWORKDIR /a\nRUN pip install .\n" + TORCH, "RUN150", [],
    ),
    "back to the first folder": (
        "Dockerfile", SLIM + "RUN make && cd ..\nRUN pip install -e .\n" + TORCH, "RUN150", [],
    ),
    "export as the last step": ("Dockerfile", SLIM + TORCH + "RUN export A=1\n", "RUN150", []),
    # dash: RUN151
    "source in RUN": ("Dockerfile", SLIM + "RUN source /v/bin/activate && ls\n" + TORCH, "RUN151", [2]),
    "a test of bash in RUN": ("Dockerfile", SLIM + 'RUN if [[ -n "$A" ]]; then ls; fi\n' + TORCH, "RUN151", [2]),
    "conda activate in RUN": (
        "Dockerfile", "FROM condaforge/miniforge3:24.3.0-0\nRUN conda activate a && ls\n" + TORCH, "RUN151", [2],
    ),
    "SHELL is bash": (
        "Dockerfile", SLIM + 'SHELL ["/bin/bash", "-c"]\nRUN source /v/bin/activate && ls\n' + TORCH, "RUN151", [],
    ),
    "source for bash": ("Dockerfile", SLIM + "RUN bash -c 'source /v/bin/activate'\n" + TORCH, "RUN151", []),
    "an image with bash as sh": (
        "Dockerfile", "FROM rockylinux:9\nRUN source /v/bin/activate\n" + TORCH, "RUN151", [],
    ),
    # programs of an image: RUN152, RUN171
    "a repository without git": (
        "Dockerfile", SLIM + "RUN pip install a@git+https://a.org/a\n" + TORCH, "RUN152", [2],
    ),
    "a clone without git": ("Dockerfile", CUDA + "RUN git clone https://a.org/a\n" + TORCH, "RUN152", [2]),
    "curl into a shell": ("Dockerfile", SLIM + "RUN curl -L https://a.org/a | sh\n" + TORCH, "RUN152", [2]),
    "sudo in an image": ("Dockerfile", CUDA + "RUN sudo ls\n" + TORCH, "RUN152", [2]),
    "git of apt": ("Dockerfile", SLIM + "RUN apt-get update && apt-get install -y \\\n    git \\\n    vim\n"
                   "RUN git clone https://a.org/a\n" + TORCH, "RUN152", []),
    "git of the full image": (
        "Dockerfile", "FROM python:3.11\nRUN git clone https://a.org/a\n" + TORCH, "RUN152", [],
    ),
    "git of an earlier stage": (
        "Dockerfile", SLIM.replace("\n", " AS a\n") + "RUN apt-get update && apt-get install -y git\nFROM a\n"
        "RUN git clone https://a.org/a\n" + TORCH, "RUN152", [],
    ),
    "venv without its package": (
        "Dockerfile", CUDA + "RUN apt-get update && apt-get install -y python3\nRUN python3 -m venv /v\n" + TORCH,
        "RUN171", [3],
    ),
    "venv with its package": (
        "Dockerfile", CUDA + "RUN apt-get update && apt-get install -y python3-venv\nRUN python3 -m venv /v\n",
        "RUN171", [],
    ),
    # apt: RUN153
    "apt-get without -y": ("Dockerfile", SLIM + "RUN apt-get update && apt-get install git\n" + TORCH, "RUN153", [2]),
    "conda without -y": ("Dockerfile", "FROM condaforge/miniforge3\nRUN conda create -n a\n" + TORCH, "RUN153", []),
    "lists that are removed": (
        "Dockerfile", SLIM + "RUN apt-get update && apt-get install -y git && rm -rf /var/lib/apt/lists/*\n"
        "RUN apt-get install -y vim\n" + TORCH, "RUN153", [3],
    ),
    "no lists": ("Dockerfile", CUDA + "RUN apt-get install -y git\n" + TORCH, "RUN153", [2]),
    "lists of an earlier step": (
        "Dockerfile", CUDA + "RUN apt-get update\nRUN apt-get install -yq git\n" + TORCH, "RUN153", [],
    ),
    "an unknown image": ("Dockerfile", "FROM acme/base:1\nRUN apt-get install -qq git\n" + TORCH, "RUN153", []),
    # RUN154, RUN155, RUN156
    "a command in ENV": ("Dockerfile", SLIM + "ENV A=$(pwd)\n" + TORCH, "RUN154", [2]),
    "a variable in ENV": ("Dockerfile", SLIM + "ENV A=${B}/lib\n" + TORCH, "RUN154", []),
    # instructions of Docker: RUN267, RUN268
    "ENV without a value": ("Dockerfile", SLIM + "ENV PYTHONPATH\n" + TORCH, "RUN267", [2]),
    "ENV with a value for one name": ("Dockerfile", SLIM + "ENV A=1 \\\n  B\n" + TORCH, "RUN267", [2]),
    "ENV with a comment": ("Dockerfile", SLIM + "ENV A=1  # for tests\n" + TORCH, "RUN267", [2]),
    "ENV with an empty value": ("Dockerfile", SLIM + "ENV A= B=\"c d\" \\\n  C=1\nENV D e f\n" + TORCH, "RUN267", []),
    "a variable without a shell": ("Dockerfile", SLIM + TORCH + 'CMD ["python", "--port=$PORT"]', "RUN268", [3]),
    "a variable of Kubernetes": ("Dockerfile", SLIM + TORCH + "ENTRYPOINT python a.py $(VERSION)\n", "RUN268", [3]),
    "a variable with a shell": (
        "Dockerfile", SLIM + TORCH + 'CMD ["bash", "-c", "python $PORT"]\n', "RUN268", [],
    ),
    "a variable for an entry point": (
        "Dockerfile", SLIM + TORCH + 'ENTRYPOINT python $PORT $(pwd)\nCMD ["$PORT"]\n', "RUN268", [],
    ),
    "no variable": ("Dockerfile", SLIM + TORCH + 'CMD ["python", "a.py", "$5"]\nENTRYPOINT ["a"\n', "RUN268", []),
    "a file that is copied later": (
        "Dockerfile", SLIM + "RUN pip install -r a.txt\nCOPY . .\n" + TORCH, "RUN155", [2],
    ),
    "a file that is copied before": (
        "Dockerfile", SLIM + "COPY a.txt .\nRUN pip install -r a.txt\nCOPY . .\n" + TORCH,
                                     "RUN155", []),
    "apt-get without &&": (
        "Dockerfile", SLIM + "RUN apt-get update \\\n  apt-get install -y git\n" + TORCH, "RUN156", [3],
    ),
    "pip without &&": ("a.sh", "pip install torch==2.6.0 \\\npip install numpy\n", "RUN156", [2]),
    "variables before pip": ("Dockerfile", SLIM + "RUN A=1 \\\n    pip install torch==2.6.0\n", "RUN156", []),
    "commands with &&": ("a.sh", "pip install torch==2.6.0 && \\\n pip install numpy\n", "RUN156", []),
    "pip of a conda environment": ("a.sh", "conda run -n a pip install torch==2.6.0\n", "RUN156", []),
    "pip without packages": (
        "a.sh", "pip install \\\npip install torch==2.6.0 numpy --index-url https://download.pytorch.org/whl/cu124\n",
        "RUN055", [],
    ),
    "pip within conda": ("a.sh", "conda install pip install torch==2.6.0\n", "RUN156", [1]),
    # tags of images: RUN176
    "a torch without a release": ("Dockerfile", "FROM pytorch/pytorch:2.6.1-cuda12.4-cudnn9-devel", "RUN176", [1]),
    "a vLLM that was not released": ("Dockerfile", "FROM vllm/vllm-openai:v0.10.9\n" + TORCH, "RUN176", [1]),
    "a month above 12": ("Dockerfile", "FROM nvcr.io/nvidia/pytorch:25.13-py3\n" + TORCH, "RUN176", [1]),
    "CUDA without a tag": ("Dockerfile", "FROM nvidia/cuda\n" + TORCH, "RUN176", [1]),
    "a torch image": ("Dockerfile", "FROM pytorch/pytorch:2.6.0-cuda12.4-cudnn9-devel\n" + TORCH, "RUN176", []),
    "a vLLM image": ("Dockerfile", "FROM vllm/vllm-openai:v0.10.2\n" + TORCH, "RUN176", []),
    "a newer vLLM image": ("Dockerfile", "FROM vllm/vllm-openai:v9.1.0\n" + TORCH, "RUN176", []),
    "the newest vLLM image": ("Dockerfile", "FROM vllm/vllm-openai:latest\n" + TORCH, "RUN176", []),
    "a tag in a variable": ("Dockerfile", "FROM nvidia/cuda:$TAG\n" + TORCH, "RUN176", []),
    # arguments of a stage: RUN175
    "an argument above FROM": ("Dockerfile", "ARG T=2.6.0\n" + SLIM + "RUN pip install torch==${T}\n", "RUN175", [3]),
    "an argument of a stage": ("Dockerfile", SLIM + "ARG T=1\n" + SLIM + TORCH + "RUN echo $T\n", "RUN175", [5]),
    "an argument declared again": (
        "Dockerfile",
        "ARG T=2.6.0\n" + SLIM + "ARG T\nRUN pip install torch==$T\n",
        "RUN175",
        [],
    ),
    "an argument of the base stage": (
        "Dockerfile",
        SLIM.replace("\n", " AS a\n") + "ARG T=2.6.0\nFROM a\nRUN pip install torch==$T\n",
        "RUN175",
        [],
    ),
    "a variable of the shell": (
        "Dockerfile",
        "ARG T=1\n" + SLIM + "RUN T=2 && echo $T ${T:-1} && pip install torch==2.6.0\n",
        "RUN175",
        [],
    ),
    # scripts: RUN081, RUN157 to RUN160
    "a comment after a backslash": ("a.sh", "pip install torch==2.6.0 \\ # new\n  numpy\n", "RUN081", [1]),
    "an empty line in a command": ("a.sh", "pip install torch==2.6.0 \\\n\n  --upgrade\n", "RUN081", [2]),
    "a quoted backslash": ("a.sh", "pip install torch==2.6.0\necho 'a \\ # b'\nls\n", "RUN081", []),
    "sh with a test of bash": ("a.sh", "#!/bin/sh\nif [[ $1 ]]; then pip install torch==2.6.0; fi\n", "RUN157", [2]),
    "sh with an array": ("a.sh", "#!/bin/sh\nA=(torch==2.6.0)\npip install ${A[@]}\n", "RUN157", [2]),
    "sh with pipefail": ("a.sh", "#!/usr/bin/env sh\nset -euo pipefail\npip install torch==2.6.0\n", "RUN157", [2]),
    "sh alone": ("a.sh", '#!/bin/sh\nset -eu\n[ "$1" = a ] && pip install torch==2.6.0\n. ./a\n', "RUN157", []),
    "bash": ("a.sh", "#!/bin/bash\n[[ $1 ]] && pip install torch==2.6.0\n", "RUN157", []),
    "line ends of Windows": ("a.sh", "#!/bin/bash\r\npip install torch==2.6.0\r\n", "RUN158", [1]),
    "a job without conda's function": ("a.sh", JOB + "conda activate a\nsrun python a.py\n", "RUN159", [3]),
    "a job with a login shell": (
        "a.sh", JOB.replace("bash", "bash -l") + "conda activate a\nsrun ls\n", "RUN159", [],
    ),
    "a job with a module": ("a.sh", JOB + "module load conda\nconda activate a\nsrun python a.py\n", "RUN159", []),
    "blanks around =": ("a.sh", "CUDA_HOME = /usr/local/cuda\npip install torch==2.6.0\n", "RUN160", [1]),
    "blanks after export": ("a.sh", "export CUDA_HOME = /usr/local/cuda\npip install torch==2.6.0\n", "RUN160", [1]),
    "a blank between devices": (
        "a.sh", "pip install torch==2.6.0\nCUDA_VISIBLE_DEVICES=0, 1 python a.py\n", "RUN160", [2],
    ),
    "a test": ("a.sh", 'pip install torch==2.6.0\n[ "$A" = b ] && ls\n', "RUN160", []),
    # launchers: RUN161
    "a late option": ("a.sh", "pip install torch==2.6.0\ntorchrun a.py --nproc_per_node 8\n", "RUN161", [2]),
    "python after torchrun": (
        "a.sh", "pip install torch==2.6.0\ntorchrun --nproc_per_node 8 python a.py\n", "RUN161", [2],
    ),
    "a file as a module": ("a.sh", "pip install torch==2.6.0\ntorchrun -m train/a.py\n", "RUN161", [2]),
    "a late option of accelerate": ("a.sh", "pip install torch==2.6.0\naccelerate launch a.py --num_processes 8\n",
                                    "RUN161", [2]),
    "options in their place": (
        "a.sh", "pip install torch==2.6.0\ntorchrun --nproc_per_node 8 a.py --lr 1\n", "RUN161", [],
    ),
    # jobs: RUN162, RUN163
    "a folder that the job creates": ("a.sh", JOB + "#SBATCH --output=logs/%j.out\nmkdir -p logs\nsrun python a.py\n",
                                      "RUN162", [3]),
    "a folder that may exist": ("a.sh", JOB + "#SBATCH -o logs/%j.out\nsrun python a.py\n", "RUN162", [3]),
    "no folder": ("a.sh", JOB + "#SBATCH -o %j.out\nsrun python a.py\n", "RUN162", []),
    "a directive after a command": ("a.sh", JOB + "ls\n#SBATCH --time=1\nsrun python a.py\n", "RUN163", [4]),
    "a variable in a directive": ("a.sh", JOB + "#SBATCH --chdir=$HOME/a\nsrun python a.py\n", "RUN163", [3]),
    "directives after a comment": ("a.sh", JOB + "# text\n\n#SBATCH --time=1\nsrun python a.py\n", "RUN163", []),
    # notebooks: RUN164, RUN165
    "a folder in a cell": ("a.ipynb", cell("!pip install torch==2.6.0", "!cd a", "!ls"), "RUN164", [8]),
    "a variable in a cell": ("a.ipynb", cell("!pip install torch==2.6.0", "!export A=1"), "RUN164", [8]),
    "a folder for one command": ("a.ipynb", cell("!pip install torch==2.6.0", "!cd a && ls", "%cd a"), "RUN164", []),
    "a constant condition": (
        "a.ipynb", cell("!pip install torch==2.6.0", "if a:='b':", "    print(a)"), "RUN165", [8],
    ),
    "a condition": ("a.ipynb", cell("!pip install torch==2.6.0", "if (a := f()):", "    print(a)"), "RUN165", []),
    # requirements: RUN166, RUN167
    "one = in a file": ("requirements.txt", "torch=2.6.0\nnumpy==1.26.4\n", "RUN166", [1]),
    "a list of conda for pip": (
        "requirements.txt", "# platform: linux-64\n_libgcc_mutex=0.1=main\ntorch=2.0.1=pypi_0\n", "RUN166", [2, 3],
    ),
    "a build of conda": ("a.sh", "conda install numpy=1.26.4=py310h1_0 -y\n", "RUN166", []),
    "extras after the version": ("a.sh", "pip install axolotl==0.8.0[vllm]\n", "RUN166", [1]),
    "values of columns": (
        "README.md", "```text\na == False\nreward == 0.0\nb == \"\"\n```\n" + sh("pip install torch"), "RUN166", [],
    ),
    "requirements in a block of text": (
        "README.md", "```text\ntorch == 2.6.0\nnumpy >= 1.26 <2\npeft == 0.15.0\n```\n", "RUN166", [3],
    ),
    "a comma after a name": ("a.sh", "pip install torch, numpy\n", "RUN166", [1]),
    "two requirements in a line": ("requirements.txt", "torch==2.6.0 numpy==1.26.4\n", "RUN166", [1]),
    "two bounds without a comma": ("requirements.txt", "torch==2.6.0\nnumpy>=1.20<2\n", "RUN166", [2]),
    "another operator": ("a.sh", "pip install 'torch=>2.0'\n", "RUN166", [1]),
    "a placeholder": ("a.sh", "pip install torch==$TORCH numpy==${A:-1}\n", "RUN166", []),
    "conda's operator": ("a.sh", "conda install pytorch=2.3.0\n", "RUN166", []),
    "parentheses": ("requirements.txt", "torch (>=2.0)\nnumpy >= 1.20, <2 # text\n", "RUN166", []),
    "a file without -r": ("a.sh", "pip install torch\npip install requirements.txt\n", "RUN166", [2]),
    "an open bracket": ("requirements.txt", "torch==2.6.0\nverl[gpu\n", "RUN166", [2]),
    "an egg with extras": ("a.sh", "pip install torch 'git+https://a.org/a#egg=trl[vllm]'\n", "RUN167", [1]),
    "an egg with a version": ("requirements.txt", "torch\ngit+https://a.org/a#egg=trl>=0.5\n", "RUN167", [2]),
    "an egg": ("requirements.txt", "torch\ngit+https://a.org/a#egg=trl&subdirectory=b\n", "RUN167", []),
    "an egg for uv": ("a.sh", "uv pip install torch 'git+https://a.org/a#egg=trl[vllm]'\n", "RUN167", []),
    # what another machine lacks: RUN172, RUN014
    "a wheel of the author": ("requirements.txt", "torch\nx @ file:///home/jane/x-1.0.whl\n", "RUN172", [2]),
    "a folder on Windows": ("requirements.txt", "torch\nx @ file:///C:/Users/jane/x\n", "RUN172", [2]),
    "a folder above the clone": (
        "requirements.txt",
        "torch\n-e git+https://a.org/x@abc#egg=x&subdirectory=../../x\n",
        "RUN172",
        [2],
    ),
    "a folder within the clone": ("requirements.txt", "torch\ngit+https://a.org/x#subdirectory=x\n", "RUN172", []),
    "a wheel of the image": ("Dockerfile", SLIM + TORCH + "RUN pip install file:///wheels/x-1.0.whl\n", "RUN172", []),
    "a build of a long file": (
        "requirements.txt",
        "torch==2.5.1+cu121\n" + "".join(f"x{number}==1.0\n" for number in range(25)),
        "RUN014",
        [1],
    ),
    "a build of an environment": (
        "pip-list.txt",
        "torch==2.5.1+cu121\n" + "".join(f"x{number}==1.0\n" for number in range(25)),
        "RUN014",
        [],
    ),
    "a build of an environment.yml": ("environment.yml", CONDA_LIST.format(""), "RUN014", [4]),
    "a build of an environment.yml with its index": (
        "environment.yml",
        CONDA_LIST.format("    - --extra-index-url https://download.pytorch.org/whl/cu121\n"),
        "RUN014",
        [],
    ),
    # pins without an index: RUN174
    "a pin that another one excludes": (
        "requirements.txt",
        "torch\nfastapi==0.100.0\nstarlette==0.36.3\n",
        "RUN174",
        [3],
    ),
    "a pin of a command": ("a.sh", "pip install torch openai==1.40.0 httpx==0.20.0\n", "RUN174", [1]),
    "pins that fit": ("requirements.txt", "torch\nfastapi==0.110.0\nstarlette==0.36.3\n", "RUN174", []),
    "pins without dependencies": (
        "a.sh",
        "pip install torch\npip install --no-deps fastapi==0.100.0 starlette==0.36.3\n",
        "RUN174",
        [],
    ),
    # environments: RUN168, RUN169, RUN107
    "the user's packages in a venv": (
        "a.sh", "python -m venv v\nsource v/bin/activate\npip install --user torch==2.6.0\n", "RUN168", [3],
    ),
    "sudo in an environment": (
        "a.sh", "conda create -n a\nconda activate a\nsudo pip install torch==2.6.0\n", "RUN168", [3],
    ),
    "the user's packages": ("a.sh", "pip install --user torch==2.6.0\n", "RUN168", []),
    "sudo before an environment": (
        "a.sh", "sudo pip install torch==2.6.0\npython -m venv v\nsource v/bin/activate\n", "RUN168", [],
    ),
    "uv sync after uv pip": ("a.sh", "uv sync\nuv pip install torch==2.6.0\nuv sync\n", "RUN169", [3]),
    "uv run after another index": (
        "a.sh", "uv sync\nuv pip install torch==2.6.0 --torch-backend=cu124\nuv run python a.py\n", "RUN169", [3],
    ),
    "uv run that keeps": (
        "a.sh", "uv sync\nuv pip install torch==2.6.0\nuv run --no-sync python a.py\n", "RUN169", [],
    ),
    "uv sync before uv pip": ("a.sh", "uv sync\nuv pip install torch==2.6.0\npython a.py\n", "RUN169", []),
    "uv in the Python of the system": (
        "Dockerfile", ("FROM ubuntu:24.04\nRUN apt-get update && apt-get install -y python3 curl\n"
        "RUN uv pip install --system torch==2.6.0\n"), "RUN107", [3],
    ),
    # curl: RUN170
    "two names for a download": ("a.sh", "pip install torch\ncurl -LO https://a.org/a -o b/a\n", "RUN170", [2]),
    "the name after -o": ("a.sh", "pip install torch\ncurl -o a https://a.org/a -O\n", "RUN170", []),
    "two addresses": ("a.sh", "pip install torch\ncurl -LO https://a.org/a -o b https://a.org/b\n", "RUN170", []),
    "one name": ("a.sh", "pip install torch\ncurl -Lo a https://a.org/a\n", "RUN170", []),
}  # fmt: skip


@each_case("name", [*CASES])
def test_a_command_without_effect(name: str) -> None:
    file, text, rule, lines = CASES[name]
    found = [each for each in audit_text(text, file, None, NoSolver()).result.findings if each.id == rule]
    assert [each.line for each in found] == lines


def test_a_build_of_a_list_gets_its_index_there_and_that_of_a_command_in_it() -> None:
    workflow = "jobs:\n  a:\n    steps:\n    - run: pip install torch==2.5.1+cu121\n"
    fixes = {
        "environment.yml": "Add `- --extra-index-url ",
        "ci.yml": "Use the PyTorch index: --torch-backend=cu121.",
    }
    for name, text in (("environment.yml", CONDA_LIST.format("")), ("ci.yml", workflow)):
        (found,) = [each for each in audit_text(text, name, None, NoSolver()).result.findings if each.id == "RUN014"]
        assert found.fix.startswith(fixes[name])


def test_packages_of_pip_in_a_list_for_conda(tmp_path: Path) -> None:
    """`conda list --export` marks them with the build pypi_0."""
    step = "conda create -n x --file packages.txt\nconda activate x\n"
    for text, expected in (("numpy=1.26.4=py310h1_0\ntorch=2.0.1=pypi_0\n", [1]), ("numpy=1.26.4=py310h1_0\n", [])):
        (tmp_path / "packages.txt").write_text(text)
        (tmp_path / "setup.sh").write_text(f"{step}pip install peft==0.19.0\n")
        result = audit_file(str(tmp_path / "setup.sh"), None, NoSolver()).result
        assert [each.line for each in result.findings if each.id == "RUN166"] == expected
