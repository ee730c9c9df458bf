"""The Python that a project states outside of the commands of the audited file, and the place that states it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from support.cases import each_case
from support.fixed_index import FixedIndex
from support.guide_cases import sh
from support.text_files import write_files

from envdoctor.commands.audit_file import audit_text
from envdoctor.knowledge.published import PublishedRelease
from envdoctor.manifests import CorrectedSet
from envdoctor.manifests.assumed_python import other_python, usual_pythons
from envdoctor.manifests.guide import parse_guide
from envdoctor.manifests.stated_machine import parse_machine

TORCH = "torch==2.1.0\n"
CREATE = sh("conda create -n x python=3.9", "conda activate x", "pip install -r requirements.txt")
PROJECT = '[project]\nname = "x"\nrequires-python = "{}"\ndependencies = ["torch==2.1.0"]\n'


class Case(NamedTuple):
    """The files of a project, and the Python of the audited one."""

    label: str
    files: dict[str, str]
    python: str = ""
    origin: str = ""
    name: str = "requirements.txt"


def main_set(folder: Path, name: str, files: dict[str, str]) -> CorrectedSet:
    write_files(folder, files)
    audit = audit_text(files[name], str(folder / name), None, None).audit
    assert audit
    return audit.main


def notebook(**metadata: object) -> str:
    cell = {"cell_type": "code", "source": ["!pip install torch==2.1.0"]}
    return json.dumps({"cells": [cell], "metadata": metadata}, indent=1)


@each_case(
    "case",
    [
        Case("a version file", {".python-version": "3.9.18\n"}, "3.9", ".python-version, line 1"),
        Case("the name of an environment", {".python-version": "my-3.9-env\n"}),
        Case("a version file of Heroku", {"runtime.txt": "python-3.9.18\n"}, "3.9", "runtime.txt, line 1"),
        Case(
            "a version file and a README",
            {".python-version": "3.10\n", "README.md": CREATE},
            "3.10",
            ".python-version, line 1",
        ),
        Case("a command of the README", {"README.md": CREATE}, "3.9", "README.md, line 3"),
        Case("a command of pyenv", {"README.md": sh("pyenv local 3.9.6")}, "3.9", "README.md, line 3"),
        Case(
            "the environment in which the file is installed",
            {"README.md": CREATE + sh("conda create -n y python=3.11", "pip install vllm")},
            "3.9",
            "README.md, line 3",
        ),
        Case(
            "several environments",
            {"README.md": sh("conda create -n y python=3.11", "conda create -n x python=3.9", title="# Python 3.9")},
        ),
        Case("text of the README", {"README.md": "# X\nTested with Python 3.9.\n"}, "3.9", "README.md, line 2"),
        Case(
            "a range of the project",
            {"pyproject.toml": PROJECT.format(">=3.9,<3.10")},
            "3.9",
            "pyproject.toml, line 3",
        ),
        Case(
            "a Python that the project excludes",
            {"pyproject.toml": PROJECT.format(">=3.10"), "README.md": CREATE},
            name="pyproject.toml",
        ),
        Case(
            "an environment.yml",
            {"environment.yml": "dependencies:\n  - python=3.9\n"},
            "3.9",
            "environment.yml, line 2",
        ),
        Case(
            "environment files with other names",
            {f"environment-cu{each}.yaml": "dependencies:\n  - python=3.8.19=h9_0\n" for each in (118, 121)},
            "3.8",
            "environment-cu118.yaml, line 2",
        ),
        Case(
            "environment files that differ",
            {f"env{each}.yml": f"dependencies:\n  - python=3.{each}\n" for each in (8, 9)},
        ),
        Case("another YAML file", {"config.yaml": "dependencies:\n  - python=3.8\n"}),
        Case(
            "a Dockerfile",
            {"Dockerfile": "FROM python:3.9-slim\nRUN pip install -r requirements.txt\n"},
            "3.9",
            "Dockerfile, line 1",
        ),
        Case(
            "a README with a command of its own",
            {"README.md": CREATE, ".python-version": "3.11\n"},
            "3.9",
            name="README.md",
        ),
        Case(
            "the text of a README",
            {"README.md": sh("pip install torch==2.1.0", title="# X for Python 3.9")},
            "3.9",
            "README.md, line 1",
            "README.md",
        ),
        Case(
            "the kernel of a notebook",
            {"x.ipynb": notebook(language_info={"version": "3.9.16"})},
            "3.9",
            "x.ipynb, line 12",
            "x.ipynb",
        ),
        Case(
            "a notebook of Colab",
            {"x.ipynb": notebook(colab={}, language_info={"name": "python"})},
            "3.13",
            "the runtime of Google Colab, 2026-11-26",
            "x.ipynb",
        ),
        Case(
            "a Dockerfile next to a README",
            {"Dockerfile": "FROM x/y:1\nRUN pip install torch==2.1.0\n", "README.md": CREATE},
            name="Dockerfile",
        ),
    ],
)
def test_the_python_is_that_of_the_project(tmp_path: Path, case: Case) -> None:
    found = main_set(tmp_path / case.label, case.name, {"requirements.txt": TORCH} | case.files)
    assert (found.python, found.python_origin) == (case.python, case.origin)


def test_the_python_of_the_user_comes_first(tmp_path: Path) -> None:
    (tmp_path / ".python-version").write_text("3.9\n")
    audit = audit_text(TORCH, str(tmp_path / "requirements.txt"), None, None, python="3.11").audit
    assert audit
    assert (audit.main.python, audit.main.python_origin) == ("3.11", "")


@each_case(
    "line, python",
    [
        ("Tested with Python 3.8 and CUDA 11.8.", "3.8"),
        ("![](https://img.shields.io/badge/-Python_3.10-blue?logo=python)", "3.10"),
        ("![](https://img.shields.io/badge/python-3.10-3776AB.svg)", "3.10"),
        ("- Python version: 3.11", "3.11"),
        ("![](https://img.shields.io/badge/python-3.8%2B-blue)", ""),
        ("![](https://img.shields.io/badge/python-3.8%20%7C%203.9-blue)", ""),
        ("> Tested on Ubuntu 20.04, python 3.8 + cuda 11.1.", "3.8"),
        ("Tested with python3.8+pytorch1.9 on Linux", "3.8"),
        ("Python 3.8+ PyTorch 1.9", ""),
        ("Python 3.8 + is required", ""),
        ("Requires at least Python 3.8", ""),
        ("1. Install Python 3.9+ (3.10 recommended)", "3.10"),
        ("- Python >= 3.8, recommended: 3.11", "3.11"),
        ("* **Python 3.8+** (we recommend 3.12)", "3.12"),
        ("Python 3.10+ recommended", ""),
        ("Python 3.9+ (tested with 3.10+)", ""),
        ("Python 3.8 or newer", ""),
        ("Python 3.8 - 3.11", ""),
        ("Python 3.8, 3.9 and 3.10", ""),
        ("Python 3.10, PyTorch 2.1", "3.10"),
        ("It does not work with Python 3.12", ""),
        ("Use Optional[str] for Python 3.8 compatibility.", ""),
        ("We dropped Python 3.8 support.", ""),
        ("| Software | Version |\n|---|---|\n| Python            | 3.10.4    |", "3.10"),
        ("| Software | Minimum version |\n|---|---|\n| Python | 3.10 |", ""),
        ("| Python | 3.9 | or newer |", ""),
        ("| Task | Python | 3.9 | 12.1 |", ""),
    ],
)
def test_text_states_a_python(line: str, python: str) -> None:
    assert parse_machine(tuple(line.split("\n")), []).python == python


@each_case(
    "text, permitted, pythons",
    [
        ("# Python 3.8\n" + sh("pip install soundfile==0.14.0"), "", ["3.8"]),
        (sh("pip install x"), ">=3.8,<3.10", ["3.9", "3.8"]),
        (sh("pip install x"), ">=3.11.4", ["3.12", "3.11"]),
        (sh("pip install x"), ">=3.13", ["3.13"]),
    ],
)
def test_the_pythons_that_a_guide_can_be_for(text: str, permitted: str, pythons: list[str]) -> None:
    guide = parse_guide(text, "README.md")._replace(permitted_python=permitted)
    assert usual_pythons(guide) == pythons


@each_case("image, pythons", [
    ("pytorch/pytorch:1.8.0-cuda11.1-cudnn8-devel", ["3.9", "3.8", "3.7"]),
    ("anibali/pytorch:1.11.0-cuda11.3-ubuntu20.04", ["3.10", "3.9", "3.8"]),
    ("nvidia/cuda:12.4.1-devel-ubuntu22.04", ["3.12", "3.11", "3.10"]),
])  # fmt: skip
def test_the_torch_of_an_image_limits_its_python(image: str, pythons: list[str]) -> None:
    guide = parse_guide(f"```dockerfile\nFROM {image}\nRUN pip install flask==2.0.3\n```\n", "README.md")
    assert usual_pythons(guide) == pythons


@each_case(
    "steps, pythons, other",
    [
        ("pip install torch==1.7.0 numpy==1.19.0", ["3.8", "3.7", "3.6"], ""),
        ("pip install numpy==1.19.0 torch==2.1.0", ["3.8", "3.11", "3.10"], ""),  # most wheels, then the newest
        ("pip install tqdm==4.46.1", ["3.12", "3.11", "3.10"], "3.10"),  # one wheel for all
        ("pip install torch==1.6.0", ["3.12", "3.11", "3.10"], "3.10"),  # which the index does not list
    ],
)
def test_pins_that_are_older_than_the_tables_are_for_the_pythons_of_their_wheels(
    steps: str, pythons: list[str], other: str
) -> None:
    index = FixedIndex()
    old = (("torch", "1.7.0", "wheels"), ("numpy", "1.19.0", "wheels"), ("tqdm", "4.46.1", "any"))
    index.listed = {
        (name, version): PublishedRelease(version, "2020-10-27", kind, ("3.6", "3.7", "3.8"))
        for name, version, kind in old
    }
    guide = parse_guide(sh(steps), "README.md")
    assert usual_pythons(guide, index) == pythons
    assert other_python(guide, pythons[0], index) == other


def test_a_notebook_reads_the_files_of_the_repository_that_it_clones(tmp_path: Path) -> None:
    commands = ["!git clone https://github.com/me/project.git\n", "!cd project && pip install -r requirements.txt"]
    cells = [{"cell_type": "code", "source": commands}]
    text = json.dumps({"cells": cells, "metadata": {"colab": {}}}, indent=1)
    folder = tmp_path / "project" / "notebooks"
    folder.mkdir(parents=True)
    (folder.parent / "requirements.txt").write_text("numpy==1.24.4\n")
    (found,) = audit_text(text, str(folder / "x.ipynb"), None, None).result.findings
    assert found.id == "RUN005"
    assert not found.remedies  # the Python of Colab cannot be replaced


@each_case("case", [
    Case("a GPU in the text of the README", {"README.md": "# X\nOne A100 is enough.\n"}, "A100", "README.md, line 2"),
    Case("GPUs of two architectures", {"README.md": "# X\nAn A100 or a V100 is enough.\n"}),
    Case("GPUs that the builds of the pinned torch support", {"README.md": "# X\nFor a V100.\n"}),
])  # fmt: skip
def test_the_gpu_is_that_of_the_readme(tmp_path: Path, case: Case) -> None:
    """torch 1.12.1 of PyPI is built for CUDA 10.2, which has no code for an A100."""
    folder = tmp_path / case.label
    folder.mkdir()
    (folder / "README.md").write_text(case.files["README.md"])
    audited = audit_text("torch==1.12.1\n", str(folder / "requirements.txt"), None, None)
    found = [each for each in audited.result.findings if each.id == "RUN057"]
    assert [each.evidence[0].source for each in found] == ([case.origin] if case.origin else [])
    assert audited.audit
    assert audited.audit.main.cuda == ("11.6" if case.origin else "10.2")


CU118 = sh("pip install torch --index-url https://download.pytorch.org/whl/cu118")
IMAGE = "FROM nvidia/cuda:12.1.0-devel-ubuntu22.04\n"
CONDA = sh("conda install pytorch pytorch-cuda=11.8 -c pytorch -c nvidia")


@each_case("text, name, readme, cuda", [
    ("torch\n", "requirements.txt", CU118, ("11.8", "README.md, line 3")),
    ("torch\n", "requirements.txt", CONDA, ("11.8", "README.md, line 3")),
    ("torch\n", "requirements.txt", CU118 + CU118.replace("118", "126"), ("", "")),  # two builds
    ("torch\n", "requirements.txt", CU118.replace("cu118", "cpu"), ("", "")),
    ("torch==2.15.0\n", "requirements.txt", CU118, ("", "")),
    ("torch\n", "requirements.txt", "# X\nTested on CUDA 12.6.\n", ("12.6", "README.md, line 2")),
    ("torch\n", "requirements.txt", f"# X\nCUDA 12.6\n{CU118}", ("11.8", "README.md, line 5")),  # a command
    (f"# X\n| CUDA | 12.6 |\n{sh('pip install torch')}", "README.md", "", ("12.6", "README.md, line 2")),
    *(
        ("torch\n", "requirements.txt", f"# X\n{text}\n", ("", ""))
        for text in (
            "CUDA 12.6 or newer", "CUDA >= 12.6", "CUDA 12.6+", "at least CUDA 12.6", "CUDA 11.8 or 12.6",
            "CUDA 12.6, and CUDA 12.8 for training", "A driver for CUDA 12.6", "If you have CUDA 12.6, it works.",
            "It does not work with CUDA 12.6.", "CUDA 11.8 - 12.6", "CUDA 12.6 and above",
        )
    ),
    ("--index-url https://download.pytorch.org/whl/cu126\ntorch\n", "requirements.txt", CU118, ("", "")),
    (f"{IMAGE}RUN pip install torch\n", "Dockerfile", "", ("12.1", "Dockerfile, line 1")),
    ("FROM python:3.10\nRUN pip install torch -f https://download.pytorch.org/whl/cu118/\n", "Dockerfile", "",
     ("11.8", "Dockerfile, line 2")),
    ("FROM python:3.10\nRUN pip install --pre torch --index-url https://download.pytorch.org/whl/nightly/cu118\n",
     "Dockerfile", "", ("11.8", "Dockerfile, line 2")),
    (f"{IMAGE}RUN pip install torch==2.15.0\n", "Dockerfile", "", ("", "")),
    ("FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-devel\nRUN pip install peft\n", "Dockerfile", "", ("", "")),
])  # fmt: skip
def test_the_cuda_version_is_stated_for_an_open_torch(
    tmp_path: Path, text: str, name: str, readme: str, cuda: tuple[str, str]
) -> None:
    (tmp_path / "README.md").write_text(readme)
    audit = audit_text(text, str(tmp_path / name), None, None).audit
    assert audit
    assert audit.main.stated_cuda == cuda
