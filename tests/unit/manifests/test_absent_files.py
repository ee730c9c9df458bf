"""Files that install commands and COPY name, and that the checkout does not have."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cases import each_case
from support.guide_cases import sh
from support.text_files import write_files

from envdoctor.commands.audit_file import audit_text
from envdoctor.resolution.step import NoSolver

INSTALL = "pip install -r requirements/gpu.txt torch==2.8.0"
NEAREST = "requirements/gpu.txt is not in the checkout; requirements/cuda.txt is"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    for name in ("requirements/cuda.txt", "src/train.py", "tools/setup.sh"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("numpy\n" if name.endswith(".txt") else "\n")
    return tmp_path


def _found(folder: Path, text: str, name: str = "README.md") -> list[tuple[str, str, int, str]]:
    findings = audit_text(text, str(folder / name), None, NoSolver()).result.findings
    return [
        (each.id, each.status, each.line, each.message)
        for each in findings
        if each.id in ("RUN091", "RUN207", "RUN208")
    ]


def test_a_file_that_a_step_names(clone: Path) -> None:
    assert _found(clone, sh(INSTALL)) == [("RUN207", "error", 3, NEAREST)]
    (clone / "requirements/gpu.txt").write_text("numpy\n")
    assert not _found(clone, sh(INSTALL))


COMMANDS: dict[str, tuple[str, str]] = {  # to the status and the message; no finding for empty ones
    "conda env create -f environment.yml": ("error", "environment.yml is not in the checkout"),
    "pip install -c limits.txt torch==2.8.0": ("error", "limits.txt is not in the checkout"),
    "export HF_HOME=cache\npip install -c limits.txt torch==2.8.0": ("error", "limits.txt is not in the checkout"),
    "pip install -r cuda.txt": (
        "warning",
        "cuda.txt is not in the checkout; requirements/cuda.txt is, and was read in its place",
    ),
}


@each_case("command", [*COMMANDS])
def test_commands_with_an_absent_file(command: str, clone: Path) -> None:
    status, message = COMMANDS[command]
    line = 4 + command.count("\n")
    assert _found(clone, sh("pip install torch==2.8.0", command)) == [("RUN207", status, line, message)]


OTHER_STEPS: dict[str, tuple[str, ...]] = {
    "the clone of another project": ("git clone https://github.com/a/other", "cd other", INSTALL),
    "a path of such a clone": ("git clone https://github.com/a/other", "pip install -r other/gpu.txt"),
    "a download": ("wget https://a.b/gpu.txt -O gpu.txt", "pip install -r gpu.txt"),
    "a copy": ("cp requirements/cuda.txt gpu.txt", "pip install -r gpu.txt"),
    "a compiled list": ("pip-compile requirements.in", "pip install -r requirements.txt"),
    "an exported list": ("poetry export -o gpu.txt", "pip install -r gpu.txt"),
    "a placeholder": ("pip install -r path/to/requirements.txt",),
    "an absolute path": ("pip install -r /workspace/requirements.txt",),
    "a URL": ("pip install -r https://a.b/requirements.txt",),
    "a directory that is left without a step": ("cd src", "cd nowhere", "pip install -r cuda.txt"),
}


@each_case("name", [*OTHER_STEPS])
def test_files_that_other_steps_make(name: str, clone: Path) -> None:
    assert not _found(clone, sh("pip install torch==2.8.0", *OTHER_STEPS[name]))


@each_case("repository, status", [("https://github.com/a/other", "warning"), ("https://github.com/a/own", "error")])
def test_a_file_of_another_project_that_no_step_enters(repository: str, status: str, clone: Path) -> None:
    (clone / "pyproject.toml").write_text("[project]\nname = 'own'\n")
    found = _found(clone, sh(f"git clone {repository}", "pip install -r needs.txt torch==2.8.0"))
    assert [(each[1], "no step enters other" in each[3]) for each in found] == [(status, status == "warning")]


def test_ignored_files_and_folders_without_git(clone: Path) -> None:
    (clone / ".gitignore").write_text("gpu.txt\n")
    assert not _found(clone, sh(INSTALL))
    (clone / ".gitignore").unlink()
    (clone / ".git").rmdir()
    assert not _found(clone, sh(INSTALL))


def test_the_source_of_copy(clone: Path) -> None:
    text = "FROM python:3.11\nCOPY requirement/cuda.txt src/ ./\nRUN pip install torch==2.8.0\n"
    message = "requirement/cuda.txt is not in the checkout; requirements/cuda.txt is: the build stops"
    assert _found(clone, text, "Dockerfile") == [("RUN208", "error", 2, message)]


def test_another_source_of_copy(clone: Path) -> None:
    text = "FROM python:3.11\nCOPY viewer/assets /srv/\nRUN pip install torch==2.8.0\n"
    message = "viewer/assets is not in the checkout: the build stops"
    assert _found(clone, text, "Dockerfile") == [("RUN208", "warning", 2, message)]
    (clone / "build.sh").write_text("make viewer assets\n")
    assert not _found(clone, text, "Dockerfile")


def test_a_source_that_two_stages_copy(clone: Path) -> None:
    stage = "FROM python:3.11\nCOPY --chown=a:a requirement/cuda.txt /tmp/cuda.txt\n"
    assert [each[2] for each in _found(clone, stage + stage, "Dockerfile")] == [2, 4]


COPIES = (
    "COPY requirements/cuda.txt /srv/",
    "COPY cuda.txt /srv/",  # the build can be started in its directory
    "COPY ./src/train.py src/",
    "COPY --from=build /app/main.py /app/",
    "COPY *.py $CODE/main.py /app/",
    "COPY weights.pth dist/project.whl https://a.b/c.py /app/",
    "ADD build/config.yaml data/labels.yaml /app/",
    "ONBUILD COPY viewer/assets /srv/",
    "COPY <<EOF /app/main.py\nprint()\nEOF",
)


@each_case("line", COPIES)
def test_sources_that_are_there_or_can_be_made(line: str, clone: Path) -> None:
    assert not _found(clone, f"FROM python:3.11\n{line}\nRUN pip install torch==2.8.0\n", "Dockerfile")


PROJECT = "[project]\nname = 'own'\nversion = '1'\ndependencies = ['trainer', 'numpy']\n[tool.uv.sources]\n"
MEMBERS = "[tool.uv.workspace]\nmembers = ['packages/*']\n"
MEMBER = "[project]\nname = 'trainer'\n"
SOURCES: dict[str, tuple[str, dict[str, str], str]] = {  # the project, other files, and a part of the message
    "no member": (f"trainer = {{ workspace = true }}\n{MEMBERS}", {}, "no member of the workspace"),
    "another member": (
        f"trainer = {{ workspace = true }}\n{MEMBERS}",
        {"packages/a/pyproject.toml": "[project]\nname = 'other'\n"}, "no member of the workspace",
    ),
    "no directory": ("trainer = { path = 'libs/trainer', editable = true }\n", {}, "has no libs/trainer"),
    "a submodule": (
        f"trainer = {{ workspace = true }}\n{MEMBERS}", {".gitmodules": "[submodule 'a']\n\tpath = packages/a\n"}, "",
    ),
    "a member of another name of its folder": (
        f"trainer = {{ workspace = true }}\n{MEMBERS}", {"packages/a/pyproject.toml": MEMBER}, "",
    ),
    "a directory": ("trainer = { path = 'libs/trainer' }\n", {"libs/trainer/pyproject.toml": MEMBER}, ""),
    "a member whose name is not known": (
        f"trainer = {{ workspace = true }}\n{MEMBERS}", {"packages/a/pyproject.toml": "[tool.poetry]\n"}, "",
    ),
    "the source of a package that is no dependency": ("flash = { path = 'libs/flash' }\n", {}, ""),
    "a repository": ("trainer = { git = 'https://github.com/a/trainer' }\n", {}, ""),
    "a directory next to the checkout": ("trainer = { path = '../trainer' }\n", {}, ""),
    "no source": ("", {}, ""),
}  # fmt: skip


@each_case("name", [*SOURCES])
def test_sources_of_a_project(name: str, tmp_path: Path) -> None:
    text, files, message = SOURCES[name]
    folder = tmp_path / name.replace(" ", "_")
    for path, content in {".git/HEAD": "", "pyproject.toml": PROJECT + text, "src/own.py": "", **files}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(content)
    of_project = _found(folder, PROJECT + text, "pyproject.toml")
    of_guide = _found(folder, sh("uv sync", "uv pip install torch==2.8.0"))
    for found, line in ((of_project, 6), (of_guide, 3)):
        sources = [each for each in found if each[3].startswith("uv finds no source of trainer")]
        assert [each[:3] for each in sources] == ([("RUN207", "error", line)] if message else [])
        assert all(message in each[3] for each in sources)
    assert not _found(folder, sh("pip install torch==2.8.0"))


PROJECTS = {  # steps, and the messages
    "a directory": (("pip install -e third/kernels",), ["the directory third/kernels is not in the checkout"]),
    "a directory in prose": (("pip install './nn[gpu]'",), ["the directory nn is not in the checkout"]),
    "another letter": (
        ("uv pip install -e lib/ops2",),
        ["the directory lib/ops2 is not in the checkout; lib/ops is"],
    ),
    "a directory that is there": (("pip install -e lib/ops",), []),
    "a directory elsewhere": (("pip install -e ops_of_lib", "pip install -e inner"), []),
    "a clone": (("git clone https://github.com/a/third", "pip install -e third/kernels"), []),
    "the own project": (("pip install -e .", "pip install -e ./own"), []),
    "a wheel": (("pip install ./torch-2.8.0-cp312-cp312-linux_x86_64.whl",), []),
    "an archive": (("tar xf a.tar.gz", "pip install -e third/kernels"), []),
    "a placeholder": (("pip install -e path/to/ops",), []),
}


@each_case("name", [*PROJECTS])
def test_the_directory_of_a_project(name: str, clone: Path) -> None:
    write_files(clone, {"lib/ops/setup.py": "", "lib/inner/ops_of_lib/a.py": "", "pyproject.toml": OWN})
    steps, messages = PROJECTS[name]
    assert [each[3] for each in _found(clone, sh("pip install torch==2.8.0", *steps))] == messages


OWN = '[project]\nname = "own"\nversion = "1"\n'


def test_a_section_links_the_project_of_a_file(clone: Path) -> None:
    steps = sh("# first", "pip install torch==2.8.0", "pip install -r runtime/python/gpu.txt", title="")
    text = f"## Sandbox\nInstall it by [these steps](https://github.com/a/other).\n\n{steps}"
    assert _found(clone, text) == []
    assert _found(clone, text.replace(".\n\n", ".\n\n## Training\n")) != []
