"""Files and targets that commands of docker, kubectl, pytest, source and make name, and that do not exist."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cases import each_case
from support.guide_cases import sh
from support.text_files import write_files

from envdoctor.commands.audit_file import audit_text
from envdoctor.resolution.step import NoSolver

FILES = {
    "docker/Dockerfile.gpu": "FROM ubuntu:22.04\n", "deploy/service.yaml": "kind: Service\n",
    "tests/unit/test_a.py": "\n", "notebooks/sampling.ipynb": "{}",
    "scripts/env.sh": "export A=1\n", "docker-compose.yml": "services: {}\n", "train.py": "\n", ".git/HEAD": "\n",
    "Makefile": "A := 1\n.PHONY: install test\ninstall test: a\n\tpip install .\nlint-all:\n\truff check\n",
}  # fmt: skip
WRONG: dict[str, tuple[str, str, str]] = {  # a command, the rule, and a part of the fix
    "docker build": ("docker build -f docker/Dockerfile.cuda -t a .", "RUN247", "Name a file"),
    "docker build with =": ("docker buildx build --file=docker/Dockerfile.cpu .", "RUN247", "Name a file"),
    "docker compose": ("docker compose -f docker-compose.yaml up", "RUN247", "Name docker-compose.yml"),
    "docker-compose": ("sudo docker-compose -f deploy/compose.yaml up -d", "RUN247", "Name a file"),
    "kubectl": ("kubectl apply -f deploy/deployment.yaml", "RUN247", "Name a file"),
    "pytest": ("pytest tests/integration -q", "RUN247", "Name a file"),
    "python -m pytest": ("python -m pytest tests/unit/test_b.py::test_a", "RUN247", "Name tests/unit/test_a.py"),
    "source": ("source scripts/environment.sh", "RUN247", "Name a file"),
    "another folder": (". ./script/env.sh", "RUN247", "Name scripts/env.sh"),
    "a notebook": ("jupyter notebook notebooks/sample.ipynb", "RUN247", "Name notebooks/sampling.ipynb"),
    "a notebook of a folder": ("python -m jupyter nbconvert --execute notebooks/b.ipynb", "RUN247", "Name a file"),
    "make": ("make lint-al", "RUN248", "Use make lint-all"),
    "several targets": ("make install docs", "RUN248", "Use a target"),
}
SOUND: dict[str, tuple[str, ...]] = {
    "files that exist": (
        "docker build -f docker/Dockerfile.gpu .", "docker compose -f docker-compose.yml up", "source scripts/env.sh",
        "kubectl apply -f deploy/service.yaml", "pytest tests/unit -q -k tests/x",
        "pytest tests/unit/test_a.py::test_b", "jupyter lab notebooks/sampling.ipynb", "jupyter notebook",
    ),
    "after cd": ("cd deploy", "kubectl apply -f service.yaml", "cd ../tests", "pytest unit/test_a.py"),
    "addresses": ("kubectl apply -f https://a.b/c.yaml", "docker build -f - .", "kubectl logs -f deploy/web"),
    "files of a reader": ("source venv/bin/activate", "source ~/.bashrc", "source .env", "source $HOME/env.sh"),
    "a file that a step makes": ("cp deploy/service.yaml deploy/mine.yaml", "kubectl apply -f deploy/mine.yaml"),
    "a placeholder": ("kubectl apply -f deploy/your_config.yaml", "pytest tests/path/to/test_x.py"),
    "an example of a test": ("pytest tests/unit/test_file.py", "pytest tests/unit/test_module.py::test_function"),
    "another project": ("git clone https://github.com/o/other", "cd other", "make server", "source scripts/x.sh"),
    "a container": ("docker run a/b:1 -f docker/x", "docker exec a tail -f deploy/log.txt"),
    "targets": ("make", "make install", "make -j8 all", "make CC=gcc server", "sudo make lint-all test"),
}  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "Project"
    write_files(root, FILES)
    return root


def _found(project: Path, *commands: str) -> list[tuple[str, int, str]]:
    text = sh("pip install torch==2.6.0", "make install", *commands)
    (project / "README.md").write_text(text)
    found = audit_text(text, str(project / "README.md"), None, NoSolver()).result.findings
    return [(each.id, each.line, each.fix) for each in found if each.id in ("RUN247", "RUN248")]


@each_case("name", WRONG)
def test_a_tool_reads_a_file_that_does_not_exist(name: str, project: Path) -> None:
    command, rule, fix = WRONG[name]
    ((found_rule, line, found_fix),) = _found(project, command)
    assert (found_rule, line, fix in found_fix) == (rule, 5, True), found_fix


@each_case("name", SOUND)
def test_tools_read_files_that_exist(name: str, project: Path) -> None:
    assert _found(project, *SOUND[name]) == []


@each_case("makefile", ["include a.mk\ninstall:\n", "build-%:\n\tls\ninstall:\n", "$(NAMES): a\ninstall:\n"])
def test_a_makefile_can_have_other_targets(makefile: str, project: Path) -> None:
    (project / "Makefile").write_text(makefile)
    assert _found(project, "make lint") == []
