"""Files that commands name in a clone of their own project, on the target machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.cases import each_case
from support.guide_cases import sh
from support.text_files import write_files

from envdoctor.commands.audit_file import audit_text
from envdoctor.manifests.inputs.records import NothingToAudit

CLONE = "git clone https://github.com/org/zero-fit"
FILE = "zero-fit/parts/app/all.txt"


def _notebook(*lines: str) -> str:
    cells = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": line} for line in lines]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def _lines(*lines: str) -> str:
    return "\n".join((*lines, ""))


READ: dict[str, tuple[str, str]] = {
    "after %cd": ("nb/a.ipynb", _notebook("%cd /content", f"!{CLONE}", f"!pip install -r /content/{FILE}")),
    "without %cd": ("nb/a.ipynb", _notebook(f"!{CLONE}", f"!pip install -r /content/{FILE}")),
    "relative": ("nb/a.ipynb", _notebook(f"!{CLONE}", f"!pip install -r {FILE}")),
    "home": ("setup.sh", _lines("cd $HOME", CLONE, f"pip install --requirement=$HOME/{FILE}")),
    "another home": ("setup.sh", _lines(f"{CLONE} ~/zero-fit", f"pip install -r ~/{FILE}")),
    "an image": (
        "Dockerfile",
        _lines("FROM python:3.12", "WORKDIR /srv", f"RUN {CLONE}", f"RUN pip install -r /srv/{FILE}"),
    ),
    "another name": (
        "Dockerfile",
        _lines("FROM python:3.12", f"RUN {CLONE} /opt/z", "RUN pip install -r /opt/z/parts/app/all.txt"),
    ),
    "a script of a folder": ("tools/setup.sh", _lines(CLONE, "cd zero-fit", "pip install -r parts/app/all.txt")),
    "an image of a folder": (
        "docker/Dockerfile",
        _lines("FROM python:3.12", f"RUN {CLONE} /opt/z", "WORKDIR /opt/z", "RUN pip install -r parts/app/all.txt"),
    ),
    "a guide": ("README.md", sh("cd /opt", CLONE, f"pip install -r /opt/{FILE}")),
    "a relative path of a guide": ("README.md", sh(CLONE, f"pip install -r {FILE}")),
}
UNREAD: dict[str, tuple[str, str]] = {
    "no clone": ("nb/a.ipynb", _notebook(f"!pip install -r /content/{FILE}")),
    "the clone of another project": (
        "nb/a.ipynb",
        _notebook(f"!{CLONE}", "!git clone https://github.com/b/c", "!pip install -r c/parts/app/all.txt"),
    ),
    "a folder of another name": ("nb/a.ipynb", _notebook(f"!{CLONE}", "!pip install -r /data/parts/app/all.txt")),
    "a later directory": (
        "README.md",
        sh(f"{CLONE} /opt/zero-fit", f"cat /opt/{FILE}", "cd /opt", "pip install -r parts/app/all.txt"),
    ),
}


def _packages(file: str, text: str, folder: Path) -> int:
    root = folder / "zero-fit"
    (root / ".git").mkdir(parents=True)
    files = {"parts/app/all.txt": "-r more.txt\ntqdm\n", "parts/app/more.txt": "numpy==1.26.4\n", "fit.py": "\n"}
    write_files(root, {"README.md": "# Fit\n", **files, file: text})
    return audit_text(text, str(root / file), None, None, python="3.12").result.coverage.packages


@each_case("name", [*READ])
def test_a_command_names_a_file_of_its_own_clone(name: str, tmp_path: Path) -> None:
    assert _packages(*READ[name], tmp_path / name) == 2


@each_case("name", [*UNREAD])
def test_a_file_of_another_directory_is_not_read(name: str, tmp_path: Path) -> None:
    with pytest.raises(NothingToAudit):
        _packages(*UNREAD[name], tmp_path / name)
