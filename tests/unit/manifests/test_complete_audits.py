"""Spellings of an incompatible pin that the audit must not pass over."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from support.cases import each_case

from envdoctor.commands.audit import AuditRequest, run
from envdoctor.core.records import Finding
from envdoctor.manifests.inputs.records import NothingToAudit

STACK = "transformers==4.57.6\nvllm==0.10.2\n"  # vllm 0.10.2 requires torch==2.8.0
INDEX = "https://download.pytorch.org/whl/cu128"
CONFLICTS = {
    "a local version": ("requirements.txt", f"{STACK}torch==2.9.0+cu128\n", 3),
    "a local version in upper case": ("requirements.txt", f"{STACK}torch==2.9.0+CU128\n", 3),
    "the index of a local version": (
        "requirements.txt", f"--extra-index-url {INDEX}\n{STACK}torch==2.9.0+cu128\n", 4,
    ),
    "a local version in pyproject.toml": (
        "pyproject.toml",
        '[project]\nname = "a"\nversion = "1"\ndependencies = ["vllm==0.10.2", "torch==2.9.0+cu128"]\n',
        4,
    ),
    "an override": (
        "pyproject.toml",
        '[project]\ndependencies = ["vllm==0.10.2"]\n[tool.uv]\noverride-dependencies = ["torch==2.9.0"]\n',
        4,
    ),
    "a local version in a Dockerfile": (
        "Dockerfile",
        f"FROM python:3.12\nRUN pip install vllm==0.10.2 torch==2.9.0+cu128 --extra-index-url {INDEX}\n",
        2,
    ),
    "a continued line": ("requirements.txt", f"{STACK}torch \\\n  ==2.9.0\n", 3),
    "a continued line with carriage returns": (
        "requirements.txt", f"{STACK}torch \\\n  ==2.9.0\n".replace("\n", "\r\n"), 3,
    ),
    "a continued line with hashes": (
        "requirements.txt",
        f"{STACK}torch==2.9.0 \\\n" + " \\\n".join(f"    --hash=sha256:{n:064x}" for n in range(12)) + "\n",
        3,
    ),
    "a continued line after a comment": ("requirements.txt", f"{STACK}# end \\\ntorch==2.9.0\n", 4),
    "an empty line in an instruction": (
        "Dockerfile", "FROM python:3.12\nRUN pip install vllm==0.10.2 \\\n\n  # torch\n\n  torch==2.9.0\n", 2,
    ),
}  # fmt: skip
UNREAD = {
    "an editable project": ("requirements.txt", "torch==2.8.0\n-e ./pkg\n", "pkg (line 2)"),
    "a folder": ("requirements.txt", "torch==2.8.0\n./pkg\n", "pkg (line 2)"),
    "a repository": (
        "requirements.txt", "vllm==0.10.2\ntorch @ git+https://TOKEN@github.com/pytorch/pytorch\n", "torch (line 2)",
    ),
    "the URL of a file without tags": (
        "requirements.txt", "vllm==0.10.2\nhttps://example.org/torch-2.9.0.whl?key=TOKEN\n", "torch (line 2)",
    ),
    "an included file in environment.yml": (
        "environment.yml", "dependencies:\n- vllm=0.10.2\n- pip:\n  - -r gone.txt\n", "gone.txt (line",
    ),
    "dynamic dependencies": (
        "pyproject.toml",
        '[project]\nname = "a"\ndynamic = ["dependencies"]\noptional-dependencies.x = ["torch==2.8.0"]\n',
        "dependencies: it is dynamic",
    ),
    "an invalid item": (
        "pyproject.toml", '[project]\nname = "a"\ndependencies = ["torch==2.8.0", "vllm 0.10", 3]\n', "`vllm 0.10`",
    ),
    "a path of Poetry": (
        "pyproject.toml",
        '[tool.poetry.dependencies]\ntorch = "2.8.0"\nvllm = { path = "../vllm" }\n',
        "vllm (line 3)",
    ),
    "a null in a lock": (
        "Pipfile.lock", '{"_meta": {}, "default": {"torch": {"version": "==2.8.0"}, "vllm": null}}', "vllm: its row",
    ),
    "a repository in a lock": (
        "Pipfile.lock",
        '{"_meta": {}, "default": {"torch": {"version": "==2.8.0"}, "vllm": {"git": "https://example.org/v"}}}',
        "vllm: its row",
    ),
    "a missing file in environment.yml": (
        "environment.yml",
        "dependencies:\n- python=3.12\n- pip:\n  - torch==2.8.0\n  - -r gone.txt\n",
        "gone.txt (line",
    ),
}  # fmt: skip
PACKAGES = "vllm==0.10.2 torch==2.9.0"
CALLS = {
    "os.system": f'import os\nos.system("pip install {PACKAGES}")',
    "an alias": f'from os import system as run\nrun("pip install -q {PACKAGES}")',
    "a list": f'import subprocess\nsubprocess.run(["pip", "install", {str(PACKAGES.split())[1:-1]}], check=True)',
    "the interpreter": (
        "import subprocess, sys\n"
        f'subprocess.check_call([sys.executable, "-m", "pip", "install", *{PACKAGES!r}.split()])'
    ),
    "get_ipython": f'\nget_ipython().system("pip install {PACKAGES}")',
    "a line magic": f'\nget_ipython().run_line_magic("pip", "install {PACKAGES}")',
    "a block with a command": f'if True:\n  !nvidia-smi\nimport os; os.system("pip install {PACKAGES}")',
}


def notebook(code: str) -> str:
    cell = {"cell_type": "code", "metadata": {}, "outputs": [], "source": code.splitlines(keepends=True)}
    return json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)


@each_case("part", UNREAD)
def test_what_is_not_judged_is_named(part: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    name, text, start = UNREAD[part]
    path = tmp_path_factory.mktemp("unread") / name
    path.write_text(text)
    unread = run(AuditRequest(targets=(str(path),))).data.coverage.unread
    assert [each for each in unread if each.startswith(start)], unread
    assert "TOKEN" not in str(unread)


@each_case("call", CALLS)
def test_a_call_of_python_code_is_an_install_step(call: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("notebook") / "train.ipynb"
    path.write_text(notebook(CALLS[call]))
    data = run(AuditRequest(targets=(str(path),))).data
    assert [name for name, _ in conflicts(data.findings)] == ["RUN002"], data
    assert data.coverage.packages == 2


def test_a_value_of_python_code_that_is_not_a_literal_is_named(tmp_path: Path) -> None:
    path = tmp_path / "train.ipynb"
    path.write_text(notebook('import os\nos.system(f"pip install torch==2.8.0 vllm=={version}")'))
    (unread,) = run(AuditRequest(targets=(str(path),))).data.coverage.unread
    assert "`vllm==${version}`" in unread


@pytest.mark.parametrize("code", ["print(1)", "import os\nos.system('ls')", "os.system('pip install torch' +"])
def test_a_notebook_of_which_nothing_can_be_judged_is_an_error(code: str, tmp_path: Path) -> None:
    path = tmp_path / "train.ipynb"
    path.write_text(notebook(code))
    with pytest.raises(NothingToAudit):
        run(AuditRequest(targets=(str(path),)))


def conflicts(findings: tuple[Finding, ...]) -> list[tuple[str, int]]:
    return [(finding.id, finding.line) for finding in findings if finding.cause == "vllm-torch-mismatch"]


@each_case("spelling", CONFLICTS)
def test_a_conflict_is_found_in_each_spelling(spelling: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    name, text, line = CONFLICTS[spelling]
    path = tmp_path_factory.mktemp("conflict") / name
    path.write_bytes(text.encode())
    data = run(AuditRequest(targets=(str(path),))).data
    assert conflicts(data.findings) == [("RUN002", line)], data.findings


def test_the_wheel_of_a_url_with_a_query_is_judged(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    wheel = "torch-2.9.0-cp312-cp312-linux_x86_64.whl?key=1"
    path.write_text(f"{STACK}torch @ https://example.org/{wheel}\n")
    assert conflicts(run(AuditRequest(targets=(str(path),))).data.findings) == [("RUN004", 3)]


def test_a_local_version_is_compared_on_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"{STACK}torch==2.9.0+cu128\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert conflicts(run(AuditRequest(targets=("-",))).data.findings) == [("RUN002", 3)]


def test_a_local_version_of_the_required_release_is_no_conflict(tmp_path: Path) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(f"--extra-index-url {INDEX}\n{STACK}torch==2.8.0+cu128\n")
    assert [f.id for f in run(AuditRequest(targets=(str(path),))).data.findings if f.status == "error"] == []
