"""What the services of a compose file name, and the checkout does not have."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.guide_cases import sh
from support.text_files import write_files

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.records import Finding
from envdoctor.resolution.step import NoSolver

UP = "docker compose up --build"
FILES = {"api/Dockerfile": "FROM ubuntu:22.04\n", "web/Dockerfile.dev": "FROM ubuntu:22.04\n", ".git/HEAD": "\n"}
WRONG: dict[str, tuple[str, str, str]] = {  # a service, the status, and a part of the message
    "a context": ("build: ./backend", "error", "the build context backend of the service a"),
    "a Dockerfile": (
        "build: {context: ./api, dockerfile: Dockerfile.gpu}",
        "error",
        "the Dockerfile api/Dockerfile.gpu",
    ),
    "the usual Dockerfile": ("build: {context: web}", "error", "the Dockerfile web/Dockerfile"),
    "an env file": ("env_file: .env.prod", "warning", "the env file .env.prod"),
    "one of several": ("env_file: [{path: ./.env, required: false}, api/.env]", "warning", "the env file api/.env"),
}  # fmt: skip
SOUND: dict[str, tuple[str, tuple[str, ...]]] = {
    "files that exist": ("build: {context: ./web, dockerfile: Dockerfile.dev}", (UP,)),
    "a context with its Dockerfile": ("build: api/", ("docker-compose up -d",)),
    "an image": ("image: redis", (UP,)),
    "a variable": ("build: ${CONTEXT}", (UP,)),
    "an address": ("build: https://github.com/o/p.git", (UP,)),
    "a file that a step makes": ("env_file: .env", ("cp a .env", UP)),
    "a file that the text names": ("env_file: .env", ("# put the keys in .env", UP)),
    "no start": ("build: ./backend", ("docker compose logs",)),
    "another file": ("build: ./backend", ("docker compose -f other.yml up",)),
}


@each_case("name", WRONG)
def test_a_service_names_what_does_not_exist(name: str, tmp_path: Path) -> None:
    service, status, message = WRONG[name]
    (found,) = _audit(tmp_path, {"docker-compose.yml": f"services:\n  a:\n    {service}\n"}, UP)
    assert (found.status, found.line, message in found.message) == (status, 4, True), found.message


@each_case("name", SOUND)
def test_services_with_what_exists(name: str, tmp_path: Path) -> None:
    service, commands = SOUND[name]
    assert _audit(tmp_path, {"docker-compose.yml": f"services:\n  a:\n    {service}\n"}, *commands) == []


def test_a_directory_without_a_compose_file(tmp_path: Path) -> None:
    (found,) = _audit(tmp_path, {}, UP)
    assert (found.status, "has no compose file" in found.message) == ("warning", True)
    other = {"deploy/compose.yaml": "services: {}\n"}
    (found,) = _audit(tmp_path, other, UP)
    assert (found.status, found.fix) == ("warning", "Run cd deploy first.")
    assert _audit(tmp_path, other, "cd deploy", UP) == []


def _audit(folder: Path, files: dict[str, str], *commands: str) -> list[Finding]:
    root = folder / "Project"
    write_files(root, FILES | files)
    text = sh("pip install torch==2.6.0", *commands)
    (root / "README.md").write_text(text)
    found = audit_text(text, str(root / "README.md"), None, NoSolver()).result.findings
    return [each for each in found if each.id == "RUN247"]
