"""`docker build .` where the checkout has its Dockerfile in another directory."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cases import each_case
from support.guide_cases import sh
from support.text_files import write_files

from envdoctor.commands.audit_file import audit_text
from envdoctor.resolution.step import NoSolver

FILES = {
    "docker/Dockerfile": "FROM ubuntu:22.04\n",
    "train.py": "\n",
    "compose.yaml": "services: {}\n",
    "apps/a.py": "\n",
    ".git/HEAD": "\n",
}
WRONG: dict[str, tuple[str, ...]] = {  # the last command is the wrong one
    "the root": ("docker build -t <image-name> .",),
    "options after the directory": ("docker build . -t a --no-cache --build-arg A=1",),
    "buildx": ("sudo docker buildx build --platform linux/amd64 --load -t a ./",),
    "after a clone": ("git clone https://github.com/o/Project.git", "cd Project", "docker build -t a ."),
    "a Dockerfile without a directory": ("docker build --rm -t a -f Dockerfile .",),
    "another directory": ("docker image build -t=a apps",),
    "after cd": ("cd apps", "podman build -ta .",),
}  # fmt: skip
SOUND: dict[str, tuple[str, ...]] = {
    "its directory": ("docker build -t a docker", "docker build -t a ./docker/"),
    "after cd": ("cd docker", "docker build -t a .", "docker build -f Dockerfile .."),
    "-f": ("docker build -t a -f docker/Dockerfile .", "docker build --file=docker/Dockerfile -t a ."),
    "a copy": ("cp docker/Dockerfile .", "docker build -t a ."),
    "a link": ("ln -s docker/Dockerfile Dockerfile", "docker build -t a ."),
    "a program that makes it": ("python make_dockerfile.py --gpu", "docker build -t a ."),
    "other contexts": (
        "docker build https://github.com/o/p.git", "docker build -t a - < b", "docker build $DIR", "docker build ..",
    ),
    "a directory that is not known": ("cd $SERVICE", "docker build -t a ."),
    "another project": ("git clone https://github.com/o/other", "cd other", "docker build ."),
    "a download": ("wget https://a.b/Dockerfile", "docker build ."),
    "bake and compose": ("docker buildx bake", "docker compose build .", "docker builder prune"),
}  # fmt: skip
TEXTS = (  # of guides that name the directory, or another Dockerfile
    "Run this in the `docker` directory:", "First go to ./docker/.", "Write a Dockerfile for your service.",
    "Use your own Dockerfile.", "Run `cd docker` first.",
)  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "Project"
    write_files(root, FILES)
    return root


def _found(project: Path, *commands: str, intro: str = "", guide: str = "README.md") -> list[tuple[int, str]]:
    text = f"{intro}\n" + sh("pip install torch==2.6.0", *commands)
    (project / guide).write_text(text)
    found = audit_text(text, str(project / guide), None, NoSolver()).result.findings
    return [(each.line, each.fix) for each in found if each.id == "RUN247"]


@each_case("name", WRONG)
def test_the_directory_has_no_dockerfile(name: str, project: Path) -> None:
    ((line, fix),) = _found(project, *WRONG[name])
    assert line == 4 + len(WRONG[name])
    assert "Use -f docker/Dockerfile in the command" in fix


@each_case("name", SOUND)
def test_the_build_has_a_dockerfile(name: str, project: Path) -> None:
    assert _found(project, *SOUND[name]) == []


@each_case("intro", TEXTS)
def test_a_guide_names_the_directory(intro: str, project: Path) -> None:
    assert _found(project, "docker build -t a .", intro=intro) == []


def test_a_guide_in_the_directory(project: Path) -> None:
    assert _found(project, "docker build -t a .", guide="docker/README.md") == []


@each_case("path", ["dockerfile", "Dockerfile", "services/b/Dockerfile", ".gitmodules"])
def test_the_checkout_has_other_files(path: str, tmp_path: Path) -> None:
    root = tmp_path / path.replace("/", "_").replace("D", "capital_d") / "Project"
    write_files(root, FILES | {path: "FROM ubuntu:22.04\n"})
    assert _found(root, "docker build -t a .") == []


@each_case("path", ["Dockerfile.gpu", "examples/Dockerfile"])
def test_a_dockerfile_of_another_name_or_of_an_example(path: str, tmp_path: Path) -> None:
    root = tmp_path / path.replace("/", "_") / "Project"
    write_files(root, {"train.py": "\n", ".git/HEAD": "\n", path: "FROM ubuntu:22.04\n"})
    assert _found(root, "docker build -t a .") == []
