"""Features of the formats: vLLM 0.10.2 with transformers 5.1.0 is an error in each file, with 4.57.6 it is sound."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envdoctor.commands.audit_file import AuditResult, audit_file, audit_text
from envdoctor.core.results import CommandResult
from envdoctor.manifests.inputs.records import STANDARD_INPUT
from envdoctor.output.github import to_github
from envdoctor.output.sarif import to_sarif
from envdoctor.resolution.step import NoSolver

FAULTY, SOUND = "5.1.0", "4.57.6"
VLLM = "pip install vllm==0.10.2"
PIP = "pip install transformers==TRANSFORMERS"

EXTRA = '[project]\nname = "hf"\n[project.optional-dependencies]\nmodels = ["transformers==TRANSFORMERS"]\n'

# The file to audit -> its text, then the files next to it.
FEATURES: dict[str, dict[str, str]] = {
    "numbered lines of a page": {"page.txt": f"Set up the trainer\n\n1  $ {VLLM}\n2  $ {PIP}\n"},
    "numbers without prompts": {"page.txt": f"Set up\nCopy\n01 {VLLM}\n02 {PIP}\n"},
    "a pin before another package": {"page.txt": f"Install\n{VLLM} transformers==TRANSFORMERS\n"},
    "prompts of hosts": {
        "page.txt": f"Install\n(train) user@host:~$ {VLLM}\nCollecting vllm==0.10.2\n[user@login01 ~]$ {PIP}\n"
    },
    "prompts of root and of PowerShell": {
        "page.txt": f"Install\nroot@node1:/workspace# {VLLM}\nPS C:\\Users\\me> {PIP}\n"
    },
    "a prompt before the first command only": {
        "page.html": f'<html><pre><code class="language-bash"><span>$ </span>{VLLM}\n{PIP}</code></pre></html>'
    },
    "conda specifications with blanks": {
        "environment.yaml": (
            "channels: [conda-forge, nodefaults]\ndependencies:\n  - python >=3.11,<3.12\n"
            '  - "conda-forge::vllm ==0.10.2"\n  - transformers ==TRANSFORMERS py311h64a7726_0\n'
        )
    },
    "setup.cfg with files": {
        "setup.cfg": (
            "[options]\ninstall_requires = file: requirements.txt\n[options.extras_require]\nhf = file: hf.txt\n"
        ),
        "requirements.txt": "vllm==0.10.2\n",
        "hf.txt": "transformers==TRANSFORMERS\n",
    },
    "dynamic dependencies of setuptools": {
        "pyproject.toml": (
            '[project]\nname = "train"\ndynamic = ["dependencies", "optional-dependencies"]\n'
            '[tool.setuptools.dynamic]\ndependencies = { file = ["requirements.txt"] }\n'
            'optional-dependencies.hf = { file = "hf.txt" }\n'
        ),
        "requirements.txt": "vllm==0.10.2\n",
        "hf.txt": "transformers==TRANSFORMERS\n",
    },
    "a folder that a script installs": {
        "setup.sh": f'cd "$(dirname "$0")"\n{VLLM}\ncd packages\npip install "./hf[models]"\n',
        "packages/hf/pyproject.toml": EXTRA,
    },
    "the project of a Dockerfile": {
        "docker/Dockerfile": f"FROM python:3.12\nCOPY . /app\nWORKDIR /app\nRUN {VLLM} && pip install -e .[models]\n",
        "pyproject.toml": EXTRA,
    },
    "a project in an included file": {
        "requirements.txt": "vllm==0.10.2\n-r more.txt\n",
        "more.txt": "-e ./hf\n",
        "hf/setup.cfg": "[options]\ninstall_requires =\n  transformers==TRANSFORMERS\n",
    },
    "a project whose setup.cfg is for other tools": {
        "setup.sh": f"{VLLM}\npip install ./hf\n",
        "hf/setup.cfg": "[flake8]\nmax_line_length = 99\n",
        "hf/setup.py": (
            "from setuptools import setup\nsetup(name='hf', install_requires=open('requirements.txt').readlines())\n"
        ),
        "hf/requirements.txt": "# models\ntransformers==TRANSFORMERS\n",
    },
    "a file that COPY writes": {
        "Dockerfile": (
            "FROM python:3.12\nCOPY <<EOF /tmp/requirements.txt\nvllm==0.10.2\ntransformers==TRANSFORMERS\nEOF\n"
            "RUN pip install -r /tmp/requirements.txt\n"
        )
    },
    "a trigger of an image": {
        "Containerfile": (f"FROM python:3.12\nONBUILD RUN {PIP}\nSTOPSIGNAL SIGINT\nRUN {VLLM} 'transformers<5'\n")
    },
    "arguments of Apptainer": {
        "train.def": (
            f"Bootstrap: docker\nFrom: python:3.12\n\n%post\n    {VLLM} transformers=={{{{ HF }}}}\n"
            "%arguments\n    HF=TRANSFORMERS\n"
        )
    },
    "constraints next to the file that names them": {
        "requirements.txt": "vllm==0.10.2\n-r base/more.txt\n",
        "base/more.txt": "transformers\n-c limits.txt\n",
        "base/limits.txt": "transformers==TRANSFORMERS\n",
    },
    "a matrix of a workflow": {
        "ci.yml": """jobs:
  test:
    strategy:
      matrix:
        os: [ubuntu-24.04, ubuntu-22.04]
        vllm: ['0.10.2']
        hf: ['4.56.2', TRANSFORMERS]
        include:
          - torch: 2.8.0
    steps:
      - run: pip install torch==${{ matrix.torch }} vllm==${{ matrix.vllm }}
      - run: pip install transformers==${{ matrix.hf }}
"""
    },
    "default inputs of an action": {
        "action.yml": (
            "inputs:\n  hf:\n    default: TRANSFORMERS\nruns:\n  using: composite\n  steps:\n    - shell: bash\n"
            f"      run: {VLLM} transformers==${{{{ inputs.hf }}}}\n"
        )
    },
    "the project of a workflow": {
        ".github/workflows/ci.yml": (
            f"on: push\njobs:\n  test:\n    steps:\n      - run: {VLLM}\n      - run: pip install .[models]\n"
        ),
        "pyproject.toml": EXTRA,
    },
    "variables of a notebook": {
        "train.ipynb": json.dumps(
            {
                "cells": [
                    {"cell_type": "code", "source": ["HF = 'TRANSFORMERS'\n", f"!{VLLM} transformers=={{HF}}"]},
                ]
            }
        )
    },
    "a package list in JSON": {
        "list.txt": (
            '[{"name": "torch", "version": "2.8.0"}, {"name": "vllm", "version": "0.10.2"},'
            ' {"name": "transformers", "version": "TRANSFORMERS"}]'
        )
    },
    "an action of the repository": {
        ".github/workflows/ci.yml": f"""on: push
jobs:
  test:
    steps:
      - uses: ./actions/hf
        with:
          hf: TRANSFORMERS
      - run: {VLLM}
""",
        "actions/hf/action.yml": """runs:
  using: composite
  steps:
    - shell: bash
      run: pip install transformers==${{ inputs.hf }}
""",
    },
    "a renamed copy in an image": {
        "Dockerfile": """FROM mambaorg/micromamba
COPY environment.yml /tmp/env.yaml
RUN micromamba install -f /tmp/env.yaml
""",
        "environment.yml": "dependencies:\n  - pip:\n    - vllm==0.10.2\n    - transformers==TRANSFORMERS\n",
    },
    "a copy of another folder in an image": {
        "Dockerfile": (
            "FROM python:3.12\nCOPY builder/requirements.txt /requirements.txt\nCOPY requirements.txt /app/\n"
            "RUN pip install -r /requirements.txt\n"
        ),
        "builder/requirements.txt": "vllm==0.10.2\ntransformers==TRANSFORMERS\n",
        "requirements.txt": "numpy\n",
    },
    "a copy of another folder in the directory of an image": {
        "Dockerfile": (
            "FROM python:3.12\nWORKDIR /app\nCOPY builder/requirements.txt .\nRUN pip install -r requirements.txt\n"
        ),
        "builder/requirements.txt": "vllm==0.10.2\ntransformers==TRANSFORMERS\n",
    },
    "a program in a container": {
        "job.sbatch": (
            f'#!/bin/bash\n#SBATCH -N1\napptainer exec --nv docker://python:3.12 bash -c "{VLLM} && {PIP}"\n'
        )
    },
    "a file that a notebook writes": {
        "train.ipynb": json.dumps(
            {
                "cells": [
                    {"cell_type": "code", "source": "%%writefile hf.txt\ntransformers==TRANSFORMERS"},
                    {"cell_type": "code", "source": f"!{VLLM} -r hf.txt"},
                ]
            }
        )
    },
    "a file that cat prints": {
        "setup.sh": f"{VLLM}\npip install $(cat hf.txt)\n",
        "hf.txt": "transformers==TRANSFORMERS\n",
    },
    "prompts of fish and zsh": {
        "page.txt": f"Install\nuser@host ~> {VLLM}\n(train) \u279c  project git:(main) \u2717 {PIP}\n"
    },
    "an exported notebook": {"page.txt": f"Install\nIn [1]: !{VLLM}\nIn [2]: %{PIP}\n"},
    "an index for each extra of uv": {
        "pyproject.toml": (
            '[project]\nname = "train"\nrequires-python = ">=3.12"\ndependencies = ["transformers==TRANSFORMERS"]\n'
            '[project.optional-dependencies]\ncpu = ["torch==2.8.0"]\ncu128 = ["torch==2.8.0", "vllm==0.10.2"]\n'
            '[tool.uv]\nconflicts = [[{ extra = "cpu" }, { extra = "cu128" }]]\n[tool.uv.sources]\n'
            'torch = [{ index = "cpu", extra = "cpu" }, { index = "cu128", extra = "cu128" }]\n'
            '[[tool.uv.index]]\nname = "cpu"\nurl = "https://download.pytorch.org/whl/cpu"\nexplicit = true\n'
            '[[tool.uv.index]]\nname = "cu128"\nurl = "https://download.pytorch.org/whl/cu128"\nexplicit = true\n'
        )
    },
}


def audit(folder: Path, files: dict[str, str], transformers: str) -> AuditResult:
    """The audit of the first of the files."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("TRANSFORMERS", transformers))
    return audit_file(str(folder / next(iter(files))), None, NoSolver()).result


def errors(result: AuditResult) -> list[str]:
    return [finding.message for finding in result.findings if finding.status == "error"]


@pytest.mark.parametrize("feature", FEATURES)
def test_a_fault_is_found_and_a_sound_file_has_none(feature: str, tmp_path: Path) -> None:
    faulty = audit(tmp_path, FEATURES[feature], FAULTY)
    assert any("transformers" in message for message in errors(faulty)), faulty
    assert errors(audit(tmp_path, FEATURES[feature], SOUND)) == []


@pytest.mark.parametrize(
    "script",
    [
        "git clone https://github.com/example/other\ncd other\npip install -e .\n",
        "cd /opt/other && pip install .\n",
        "pip install ./absent\n",
    ],
)
def test_the_project_of_another_folder_is_listed_as_not_read(script: str, tmp_path: Path) -> None:
    files = {"setup.sh": f"{VLLM} transformers==4.57.6\n{script}", "pyproject.toml": EXTRA}
    result = audit(tmp_path, files, FAULTY)
    assert errors(result) == []
    assert [each for each in result.coverage.unread if "whose release is not in the file" in each]


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("requirements.txt", "torch==2.8.0\n-r base.txt\n", 2),
        ("requirements.txt", "torch\n\n-c limits.txt\n", 3),
        ("setup.cfg", "[options]\ninstall_requires = file: base.txt\n", 2),
        (
            "pyproject.toml",
            '[project]\ndynamic = ["dependencies"]\n[tool.setuptools.dynamic]\ndependencies = {file = "base.txt"}\n',
            4,
        ),
    ],
)
def test_an_included_file_that_does_not_exist_is_an_error(name: str, text: str, line: int, tmp_path: Path) -> None:
    (finding,) = audit(tmp_path, {name: text}, SOUND).findings
    assert (finding.id, finding.status, finding.line) == ("RUN091", "error", line)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("requirements.txt", "torch==2.8.0\n-c https://example.org/limits.txt\n-r $FOLDER/base.txt\n"),
        ("setup.sh", "pip install torch==2.8.0 -r base.txt\n"),
        ("Dockerfile", "FROM python:3.12\nRUN pip install torch==2.8.0 && pip install -r /tmp/base.txt\n"),
        ("requirements.txt", "torch==2.8.0\n-e git+https://example.org/a/b\n"),
        ("setup.sh", "pip install torch==2.8.0\ncat names.txt | xargs pip install\n"),
        ("ci.yml", "jobs:\n  a:\n    uses: ./b.yml\n  c:\n    steps:\n      - run: pip install torch==2.8.0\n"),
        ("ci.yml", "jobs:\n  a:\n    steps:\n      - uses: ./gone\n      - run: pip install torch==2.8.0\n"),
    ],
)
def test_what_may_come_from_elsewhere_is_a_notice(name: str, text: str, tmp_path: Path) -> None:
    result = audit(tmp_path, {name: text}, SOUND)
    assert errors(result) == []
    assert result.coverage.unread
    annotations = to_github("audit", CommandResult(result))
    assert f"::notice title=not all parts were read::{result.name}: " in annotations
    (run,) = json.loads(to_sarif("audit", CommandResult(result)))["runs"]
    assert (run["results"], len(run["invocations"][0]["toolExecutionNotifications"])) == (
        [],
        len(result.coverage.unread),
    )


def test_a_matrix_of_too_many_combinations_is_unknown(tmp_path: Path) -> None:
    values = ", ".join(map(str, range(3000)))
    axes = "".join(f"        {name}: [{values}]\n" for name in "abc")
    used = "".join(f"==${{{{ matrix.{name} }}}}" for name in "abc")
    text = f"jobs:\n  a:\n    strategy:\n      matrix:\n{axes}    steps:\n      - run: pip install torch vllm{used}\n"
    assert any(
        "its value is not in the file" in each for each in audit(tmp_path, {"ci.yml": text}, SOUND).coverage.unread
    )


def test_a_variable_that_a_notebook_sets_again_is_unknown(tmp_path: Path) -> None:
    code = ["HF = '5.1.0'\n", "if True:\n", "    HF = '4.57.6'\n", f"!{VLLM} transformers=={{HF}}"]
    cells = {"train.ipynb": json.dumps({"cells": [{"cell_type": "code", "source": code}]})}
    result = audit(tmp_path, cells, SOUND)
    assert errors(result) == []
    assert result.coverage.unread


def test_the_build_of_an_installed_torch_is_no_error() -> None:
    frozen = "torch==2.8.0+cu128\ntransformers==4.57.6\nvllm==0.10.2\n"
    assert errors(audit_text(frozen, STANDARD_INPUT, None, NoSolver()).result) == []
    assert errors(audit_text(frozen, "requirements.txt", None, NoSolver()).result)
