"""`envdoctor audit DIRECTORY`: finds the manifests, audits each, and compares them with one another."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.cases import each_case
from support.command import envdoctor
from support.guide_cases import sh
from support.text_files import uv_lock, write_files

from envdoctor.commands import audit_directory
from envdoctor.commands.audit import AuditRequest, AuditsResult, run
from envdoctor.commands.audit_file import FileAudit, audit_text
from envdoctor.commands.audit_repeated import without_repeated
from envdoctor.core.errors import BadInput
from envdoctor.core.records import Finding
from envdoctor.manifests.files import Files
from envdoctor.manifests.inputs.comparison import NamedDocument, files_contradict_each_other
from envdoctor.manifests.inputs.recognition import read_input

DOCKERFILE = "FROM nvidia/cuda:12.8.1-devel-ubuntu22.04\nRUN pip install torch==2.7.1\n"
LOCK = uv_lock({"torch": "2.8.0"}, ">=3.12,<3.13")


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def audit(folder: Path) -> tuple[AuditsResult, int]:
    result = run(AuditRequest(targets=(str(folder),)))
    assert isinstance(result.data, AuditsResult)
    return result.data, result.exit_code


def names(folder: Path, result: AuditsResult) -> list[str]:
    return [os.path.relpath(each.name, folder) for each in result.audits]


def test_each_manifest_is_audited_and_copies_of_other_projects_are_not(tmp_path: Path) -> None:
    write(
        tmp_path, Dockerfile="FROM python:3.12\nRUN pip install torch==2.8.0\n", requirements_txt="torch==2.8.0\n",
        docs__README_md="```bash\npip install torch==2.8.0\n```\n", vendor__requirements_txt="torch==1.0\n",
        node_modules__x__Dockerfile="FROM a\n", main_py="import torch\n", data_txt="torch==1.0\n",
    )  # fmt: skip
    write(tmp_path / "wandb" / "run-20231104_191945-gdudzdar", files__requirements_txt="torch==1.0\n")
    for environment in ("venv", "env"):
        write(tmp_path / environment, requirements_txt="torch==1.0\n", pyvenv_cfg="home = /usr/bin\n")
    write(
        tmp_path / ".github/workflows",
        ci_yml="on: push\njobs:\n  a:\n    steps:\n    - run: pip install torch==2.8.0\n",
    )
    result, exit_code = audit(tmp_path)
    assert names(tmp_path, result) == [
        "Dockerfile", "requirements.txt", ".github/workflows/ci.yml", "docs/README.md",
    ]  # fmt: skip
    assert [os.path.relpath(each, tmp_path) for each in result.omitted] == [
        "env: an environment",
        "venv: an environment",
    ]
    assert (result.findings, exit_code) == ((), 0)


@each_case(("pin", "count"), [("torch==2.7.1+cpu", 0), ("torch==2.7.1", 1)])
def test_a_build_for_the_cpu_is_not_compared_with_a_file_for_a_gpu(pin: str, count: int, tmp_path: Path) -> None:
    page = "--extra-index-url https://download.pytorch.org/whl/cpu"
    write(tmp_path, Dockerfile=DOCKERFILE.replace("torch==2.7.1", f"{pin} {page}"))
    (tmp_path / "requirements_gpu.txt").write_text("torch==2.8.0\n")
    assert len(audit(tmp_path)[0].differences) == count


def test_versions_of_different_files_are_compared(tmp_path: Path) -> None:
    write(
        tmp_path,
        Dockerfile=DOCKERFILE,
        uv_lock=LOCK,
        pyproject_toml='[project]\nname = "project"\ndependencies = ["torch>=2.9"]\n',
    )
    result, exit_code = audit(tmp_path)
    found = {(Path(f.file).name, f.line, f.status, f.message.replace(f"{tmp_path}/", "")) for f in result.differences}
    assert found == {
        ("uv.lock", 11, "warning", "uv.lock has torch 2.8.0, but Dockerfile has torch 2.7.1"),
        ("uv.lock", 11, "error", "uv.lock has torch 2.8.0, but pyproject.toml has torch>=2.9"),
        ("Dockerfile", 2, "error", "Dockerfile has torch 2.7.1, but pyproject.toml has torch>=2.9"),
    }
    assert exit_code == 1
    log = json.loads(envdoctor("audit", ".", "--format", "sarif", home=tmp_path).stdout)
    places = [
        each["locations"][0]["physicalLocation"] for each in log["runs"][0]["results"] if each["ruleId"] == "RUN090"
    ]
    assert {(each["artifactLocation"]["uri"], each["region"]["startLine"]) for each in places} == {
        ("uv.lock", 11), ("Dockerfile", 2),
    }  # fmt: skip


@each_case(
    ("first", "second", "are_compared"),
    [
        ("environment-cuda11_8.yaml", "environment-cuda12_1.yaml", False),
        ("env_cpu.yml", "env_gpu.yml", False),
        ("requirements-cu118.txt", "requirements-cu121.txt", False),
        ("requirements-py3.9.txt", "requirements-py3.11.txt", False),
        ("requirements.txt", "requirements-gpu.txt", True),
        ("requirements.txt", "requirements-dev.txt", True),
        ("requirements-cpu.txt", "environment-gpu.yml", True),
        ("a/requirements-cpu.txt", "requirements-gpu.txt", True),
    ],
)
def test_files_for_several_builds_are_alternatives(first: str, second: str, are_compared: bool) -> None:
    def named(path: str, torch: str) -> NamedDocument:
        text = f"dependencies:\n  - pip:\n    - torch=={torch}\n" if path.endswith("ml") else f"torch=={torch}\n"
        return NamedDocument(path, read_input(text, Path(path).name, Files(None, "x86_64")), None)

    found = list(files_contradict_each_other([named(first, "2.0.1"), named(second, "2.4.1")]))
    assert bool(found) is are_compared


def test_equal_versions_and_the_image_of_a_dockerfile(tmp_path: Path) -> None:
    write(tmp_path, Dockerfile="FROM pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime\n", uv_lock=LOCK)
    assert audit(tmp_path)[0].differences == ()
    write(tmp_path, Dockerfile="FROM pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime\n")
    (finding,) = audit(tmp_path)[0].differences
    assert "has torch 2.8.0, but" in finding.message


def test_what_cannot_be_read_is_an_error_after_the_results(tmp_path: Path) -> None:
    write(
        tmp_path,
        uv_lock="version = 1\n[[broken",
        requirements_txt="torch==2.8.0\n",
        Pipfile='[packages]\nflask = "*"\n',
    )
    done = envdoctor("audit", ".", home=tmp_path)
    assert done.returncode == 2
    assert "✓ requirements.txt  requirements: 1 package read, no problems found" in done.stdout
    assert "✗ not read: uv.lock: is not TOML" in done.stdout
    assert "- Pipfile  skipped: nothing in it can be judged" in done.stdout


def test_a_directory_without_anything_to_judge_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="it contains no manifest"):
        audit(tmp_path / "empty")
    write(tmp_path, Pipfile='[packages]\nflask = "*"\n')
    with pytest.raises(BadInput, match="it contains 1 files with"):
        audit(tmp_path)
    with pytest.raises(BadInput, match="not a directory"):
        run(AuditRequest(targets=(str(tmp_path),), fix=str(tmp_path / "Pipfile")))


def test_the_search_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_directory, "MAX_FILES", 2)
    monkeypatch.setattr(audit_directory, "MAX_DEPTH", 1)
    for name in "abc":
        write(tmp_path / name, requirements_txt="torch==2.8.0\n")
    write(tmp_path / "a/deep", requirements_txt="torch==2.8.0\n")
    result, _ = audit(tmp_path)
    assert names(tmp_path, result) == ["a/requirements.txt", "b/requirements.txt"]
    assert [os.path.relpath(each, tmp_path) for each in result.omitted] == [
        "a/deep: more than 1 directories deep", "c/requirements.txt and later files: more than 2 manifests",
    ]  # fmt: skip


@each_case(
    ("name", "text", "is_audited"),
    [
        ("COMMANDS.md", "```bash\nuv pip install torch==2.8.0\n```\n", True),
        ("TRAINING.md", "```\n$ conda create -n x\n$ pip install torch==2.8.0\n```\n", True),
        ("CHANGELOG.md", "```bash\npip install torch==2.8.0\n```\n", False),
        ("RESULTS.md", "torch 2.8.0 was used; you can pip install it.\n", False),
        ("docs/COMMANDS.md", "```bash\npip install torch==2.8.0\n```\n", False),
    ],
)
def test_a_page_that_installs_is_a_guide(name: str, text: str, is_audited: bool, tmp_path: Path) -> None:
    for old in (*tmp_path.glob("*.md"), *tmp_path.glob("*/*.md")):
        old.unlink()
    (tmp_path / "requirements.txt").write_text("torch==2.8.0\n")
    (tmp_path / "docs").mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    audits = audit_directory.audit_directory(str(tmp_path), None).audits
    assert [Path(each.name).name for each in audits if each.name.endswith(".md")] == ([name] if is_audited else [])


@each_case(
    ("name", "text", "is_audited"),
    [
        ("mk_env.yml", "name: x\nchannels:\n  - pytorch\ndependencies:\n  - pytorch=2.2.1\n", True),
        ("conda.yaml", "channels: [conda-forge]\ndependencies:\n  - pytorch=2.2.1\n", True),
        ("train.yaml", "name: run\nmodel: gpt2\n", False),
        ("Chart.yml", "apiVersion: v2\nname: x\ndependencies:\n  - name: redis\n", False),
    ],
)
def test_a_conda_environment_has_any_name(name: str, text: str, is_audited: bool, tmp_path: Path) -> None:
    for old in tmp_path.glob("*.y*ml"):
        old.unlink()
    (tmp_path / "requirements.txt").write_text("numpy==2.2.0\n")
    (tmp_path / name).write_text(text)
    audits = audit_directory.audit_directory(str(tmp_path), None).audits
    assert [Path(each.name).name for each in audits if ".y" in each.name] == ([name] if is_audited else [])


def test_a_finding_of_a_guide_and_its_manifest_is_listed_once(tmp_path: Path) -> None:
    steps = ("conda install pytorch==2.2.1 pytorch-cuda=12.1 -c pytorch -c nvidia", "pip install -r requirements.txt")
    write(
        tmp_path, README_md=sh(*steps), requirements_txt="transformers==4.57.1\ntorch==2.4.0\n",
        more__requirements_txt="transformers==4.57.1\ntorch==2.4.0\n",
    )  # fmt: skip
    result, code = audit(tmp_path)
    guide, more, own = sorted(result.audits, key=lambda each: each.name)
    assert code == 1
    assert [each.id for each in own.findings if each.status == "error"] == ["RUN010"]
    assert not [each for each in guide.findings if each.id == "RUN010"]
    assert [Path(each).name for each in guide.elsewhere] == ["requirements.txt"]
    assert own.elsewhere == more.elsewhere == ()
    shown = envdoctor("audit", str(tmp_path), home=tmp_path).stdout
    assert shown.count("RUN010") == 1
    assert "README.md  guide: 3 packages and 2 steps read" in shown
    assert f"no problems but those of {tmp_path}/requirements.txt" in " ".join(shown.split())


def test_a_finding_on_a_program_is_that_of_the_guide_that_starts_it(tmp_path: Path) -> None:
    def with_finding(name: str, text: str, line: int) -> FileAudit:
        (tmp_path / name).write_text(text)
        found = audit_text(text, str(tmp_path / name), None, None)
        missing = Finding("RUN181", "", "error", "train.py:2 imports tqdm, and no step installs it", line=line)
        return found._replace(result=replace(found.result, findings=(missing,)))

    pins = with_finding("requirements.txt", "torch==2.4.0\n", 1)
    readme = with_finding("README.md", sh("pip install -r requirements.txt", "python train.py"), 4)
    guide, manifest = without_repeated([readme, pins])
    assert ([each.line for each in guide.findings], guide.elsewhere) == ([4], ())
    assert (manifest.findings, manifest.elsewhere) == ((), (readme.result.name,))
    other = with_finding("other.txt", "torch==2.4.0\n", 1)
    assert without_repeated([readme, other]) == (readme.result, other.result)


def test_many_files_without_findings_are_one_line(tmp_path: Path) -> None:
    names = [f"run{number}.sh" for number in range(5)]
    scripts = dict.fromkeys(names, "python train.py\npython eval.py\n")
    write_files(tmp_path, {"requirements.txt": "torch==2.8.0\n"} | scripts)
    lines = envdoctor("audit", ".", home=tmp_path, cwd=tmp_path).stdout.splitlines()
    assert f"? 5 files  script: 10 steps read, no problems found in that: {', '.join(names)}" in lines
    assert len([line for line in lines if "not read: the packages" in line]) == 1
