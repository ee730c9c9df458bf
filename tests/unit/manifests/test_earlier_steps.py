"""A manifest in the environment that the guide of its project creates before it installs the manifest."""

from __future__ import annotations

from pathlib import Path

from support.cases import each_case
from support.guide_cases import sh
from support.text_files import write_files

from envdoctor.commands.audit import AuditRequest, run
from envdoctor.commands.audit_file import FileAudit, audit_text
from envdoctor.manifests.actions import Install
from envdoctor.manifests.inputs.earlier_steps import earlier_steps
from envdoctor.manifests.inputs.records import Document

PINS = "bitsandbytes==0.43.1\ntransformers==4.40.1\n"
CREATE = ("conda create -n x python=3.10", "conda activate x")
TORCH = "conda install pytorch==2.2.1 pytorch-cuda=12.1 -c pytorch -c nvidia"
INSTALL = "pip install -r requirements.txt"
IMAGE = "FROM pytorch/pytorch:2.2.1-cuda12.1-cudnn8-runtime\nCOPY . .\nRUN pip install -r requirements.txt\n"
WITH_TORCH = sh(*CREATE, TORCH, INSTALL)
PROJECT = '[project]\nname = "x"\nversion = "1"\ndependencies = ["bitsandbytes==0.43.1"]\n'


def audited(folder: Path, name: str, files: dict[str, str]) -> FileAudit:
    write_files(folder, files)
    return audit_text(files[name], str(folder / name), None, None)


def torch_of(audit: FileAudit) -> str:
    torch = audit.stack and audit.stack.torch.value
    return (torch.version.value if torch else "") or ""


@each_case(
    ("label", "files", "torch"),
    [
        ("alone", {}, ""),
        ("after conda", {"README.md": WITH_TORCH}, "2.2.1+cu121"),
        ("a path with a dot", {"README.md": sh(TORCH, "pip install -r ./requirements.txt")}, "2.2.1+cu121"),
        ("of another file", {"README.md": sh(TORCH, "pip install -r others.txt")}, ""),
        ("torch afterwards", {"README.md": sh(*CREATE, INSTALL, "pip install torch==2.2.1")}, ""),
        ("without torch", {"README.md": sh(*CREATE, "pip install wheel", INSTALL)}, ""),
        (
            "another way without torch",
            {"README.md": sh(TORCH, INSTALL, title="## Option A: conda") + sh(INSTALL, title="## Option B: pip")},
            "",
        ),
        (
            "two ways with torch",
            {
                "README.md": sh(TORCH, INSTALL, title="## Option A: conda")
                + sh("pip install torch==2.3.0", INSTALL, title="## Option B: pip")
            },
            "2.2.1+cu121",
        ),
        ("in an image", {"Dockerfile": IMAGE}, "2.2.1+cu121"),
        ("next to a README without steps", {"Dockerfile": IMAGE, "README.md": sh("docker build .")}, "2.2.1+cu121"),
        ("next to a README with others", {"Dockerfile": IMAGE, "README.md": sh("pip install -r require.txt")}, ""),
        ("the README before the Dockerfile", {"Dockerfile": IMAGE, "README.md": sh(*CREATE, INSTALL)}, ""),
        ("a README that cannot be read", {"README.md": "```bash\npip install '-r requirements.txt\n```\n"}, ""),
    ],
)
def test_the_steps_before_the_file_fill_its_environment(
    tmp_path: Path, label: str, files: dict[str, str], torch: str
) -> None:
    audit = audited(tmp_path / label, "requirements.txt", {"requirements.txt": PINS} | files)
    assert torch_of(audit) == torch


@each_case(
    ("label", "path", "files", "torch"),
    [
        ("a project", "pyproject.toml", {"README.md": sh(TORCH, "pip install -e .")}, "2.2.1"),
        ("extras", "pyproject.toml", {"README.md": sh(TORCH, "pip install '.[a]'")}, "2.2.1"),
        (
            "another project",
            "pyproject.toml",
            {"README.md": sh(TORCH, "pip install ./other")},
            "",
        ),
        (
            "a folder of a repository",
            "train/requirements.txt",
            {
                "train/requirements.txt": PINS, "train/run.py": "", "LICENSE": "", "setup.py": "",
                "README.md": sh(TORCH, "pip install -r train/requirements.txt"),
            },
            "2.2.1",
        ),
    ],
)  # fmt: skip
def test_the_guide_names_the_manifest(
    tmp_path: Path, label: str, path: str, files: dict[str, str], torch: str
) -> None:
    assert torch_of(audited(tmp_path / label, path, {"pyproject.toml": PROJECT} | files)).partition("+")[0] == torch


def test_findings_are_those_of_the_file_in_that_environment(tmp_path: Path) -> None:
    """Alone, pip installs today's torch for CUDA 13, which bitsandbytes 0.43.1 does not support."""
    pins = f"torch\n{PINS}"
    alone = audited(tmp_path / "alone", "requirements.txt", {"requirements.txt": pins}).result.findings
    assert {each.id for each in alone if each.status == "error"} == {"RUN003"}
    files = {"requirements.txt": pins, "README.md": WITH_TORCH}
    found = audited(tmp_path / "guide", "requirements.txt", files).result.findings
    assert not [each for each in found if each.status in ("error", "warning")]


def test_a_replaced_package_has_the_place_of_its_step(tmp_path: Path) -> None:
    files = {"requirements.txt": "torch==2.4.0\n", "README.md": WITH_TORCH}
    (found,) = [each for each in audited(tmp_path, "requirements.txt", files).result.findings if each.id == "RUN010"]
    line = WITH_TORCH.split("\n").index(TORCH) + 1
    assert f"torch 2.2.1 (CUDA 12.1) from conda of line {line} of README.md" in found.message
    assert found.line == 1
    assert f"README.md, line {line}" in {each.source for each in found.evidence}


def test_the_steps_end_before_the_file(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(sh(*CREATE, TORCH, INSTALL, "pip install vllm"))
    earlier = earlier_steps(tmp_path / "requirements.txt", Document("requirements"), ("x86_64",))
    assert earlier
    assert [each.tool for each in earlier.actions if isinstance(each, Install)] == ["conda"]
    assert earlier_steps(tmp_path / "requirements.txt", Document("conda"), ("x86_64",)) is None


def test_the_python_of_the_user_comes_before_that_of_the_guide(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(WITH_TORCH)
    stated = [audit_text(PINS, str(tmp_path / "requirements.txt"), None, None, python=each) for each in ("", "3.11")]
    assert [each.audit.main.python for each in stated if each.audit] == ["3.10", "3.11"]
    assert torch_of(stated[1]) == "2.2.1+cu121"


def test_a_later_command_reads_the_files_of_the_guide_again(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(sh("pip install -r first.txt", INSTALL))
    (tmp_path / "requirements.txt").write_text(PINS)

    def pinned(first: str) -> list[str]:
        (tmp_path / "first.txt").write_text(first)
        run(AuditRequest(targets=(str(tmp_path / "requirements.txt"),), resolve="never"))
        earlier = earlier_steps(tmp_path / "requirements.txt", Document("requirements"), ("x86_64", "aarch64"))
        steps = [each for each in earlier.actions if isinstance(each, Install)] if earlier else []
        return [requirement.pin for step in steps for requirement in step.requirements]

    assert pinned("torch==2.2.1\n") == ["2.2.1"]
    assert pinned("torch==2.3.0\n") == ["2.3.0"]


def test_a_project_for_one_python_is_installed_in_the_environment_of_the_guide(tmp_path: Path) -> None:
    project = PROJECT.replace("[project]\n", '[project]\nrequires-python = ">=3.12,<3.13"\n')
    audit = audited(
        tmp_path, "pyproject.toml", {"pyproject.toml": project, "README.md": sh(TORCH, "pip install .")}
    ).audit
    assert audit
    ((_, trace),) = audit.traces
    assert ["torch" in each.before.packages for each in trace.installs] == [True]
    assert {each.before.python for each in trace.installs} == {"3.12"}


BASE = "FROM nvidia/cuda:12.4.1-devel-ubuntu22.04\nRUN pip3 install torch==2.4.0\n"
BUILD = "#!/bin/bash\ndocker build -t lab/base \\\n  -f docker/base.Dockerfile .\ndocker build -t app .\n"
OWN_IMAGES: dict[str, tuple[str, dict[str, str], str]] = {  # the Dockerfile, other files, and the torch
    "a script builds the base image": ("FROM lab/base:latest\nRUN pip3 install tqdm\n", {"build.sh": BUILD}, "2.4.0"),
    "a stage of it": ("FROM lab/base AS one\nFROM one\nRUN pip3 install tqdm\n", {"build.sh": BUILD}, "2.4.0"),
    "another tag": ("FROM lab/base:v2\nRUN pip3 install tqdm\n", {"build.sh": BUILD}, ""),
    "another image": ("FROM other/base\nRUN pip3 install tqdm\n", {"build.sh": BUILD}, ""),
    "a later torch": ("FROM lab/base\nRUN pip3 install torch==2.5.0\n", {"build.sh": BUILD}, "2.5.0"),
    "an environment of its own": (
        "FROM lab/base\nRUN python3 -m venv /env\nRUN /env/bin/pip install tqdm\n", {"build.sh": BUILD}, "2.4.0",
    ),
    "a folder": (
        "FROM lab/base\nRUN pip3 install tqdm\n", {"Makefile": "x:\n\tdocker build --tag=lab/base base\n"}, "2.4.0",
    ),
}  # fmt: skip


@each_case("name", [*OWN_IMAGES])
def test_a_dockerfile_starts_from_an_image_that_the_project_builds(name: str, tmp_path: Path) -> None:
    text, files, torch = OWN_IMAGES[name]
    others = {".git/HEAD": "", "docker/base.Dockerfile": BASE, "base/Dockerfile": BASE}
    audit = audited(tmp_path / name.replace(" ", "-"), "Dockerfile", {**files, **others, "Dockerfile": text})
    assert torch_of(audit).partition("+")[0] == torch


def test_a_step_replaces_torch_of_an_image_that_the_project_builds(tmp_path: Path) -> None:
    files = {".git/HEAD": "", "docker/base.Dockerfile": BASE, "build.sh": BUILD}
    audit = audited(tmp_path, "Dockerfile", {**files, "Dockerfile": "FROM lab/base\nRUN pip3 install torch==2.5.0\n"})
    assert [each.id for each in audit.result.findings] == ["RUN010"]
