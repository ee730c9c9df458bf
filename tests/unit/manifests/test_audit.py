"""`envdoctor audit` on each kind of target. All contain transformers 5 with vLLM 0.10.2, which resolves but fails."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.cases import each_case
from support.command import envdoctor, envelope
from support.paths import ROOT
from support.release_index import ReleaseIndex

from envdoctor.commands.audit import AuditRequest, run
from envdoctor.commands.audit_file import audit_text
from envdoctor.profiles import read_profiles
from envdoctor.resolution.step import NoSolver

REQUIREMENTS = "torch==2.8.0\nvllm==0.10.2\ntransformers{transformers}\ntrl==0.23.1\n"
LOCKS = sorted((ROOT / "profiles/locks").rglob("*.txt"))
GUIDE = "# Setup\n\n```bash\nuv pip install torch==2.8.0 vllm==0.10.2 'transformers>=4.57.1' trl==0.23.1\n```\n"


def write_lock(folder: Path, transformers: str) -> Path:
    header = "# profile: mine\n# platform: x86_64-manylinux_2_31\n# python: 3.12\n# torch: 12.8\n# made: 2026-11-21\n"
    pins = REQUIREMENTS.format(transformers=f"=={transformers}").splitlines()
    path = folder / "lock.txt"
    path.write_text(header + "".join(f"{pin} --hash=sha256:{'0' * 64}\n" for pin in pins))
    return path


def write_environment(folder: Path, transformers: str) -> Path:
    packages = folder / "venv/lib/python3.12/site-packages"
    packages.mkdir(parents=True)
    (folder / "venv/pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.12.1\n")
    for pin in REQUIREMENTS.format(transformers=f"=={transformers}").splitlines():
        name, _, version = pin.partition("==")
        info = packages / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return folder / "venv"


@pytest.mark.parametrize("kind", ["requirements", "guide", "lock", "environment"])
def test_incompatible_release_is_detected_in_each_kind(kind: str, tmp_path: Path) -> None:
    if kind == "requirements":
        target = tmp_path / "requirements.txt"
        target.write_text(REQUIREMENTS.format(transformers=">=4.57.1"))
    elif kind == "guide":
        target = tmp_path / "SETUP.md"
        target.write_text(GUIDE)
    else:
        target = (write_lock if kind == "lock" else write_environment)(tmp_path, "5.23.0")
    data = envelope(envdoctor("audit", target, "--format", "json", home=tmp_path))
    assert data["exit_code"] == 1
    assert data["data"]["kind"] == kind
    (finding, *_) = [f for f in data["data"]["findings"] if f["cause"] == "transformers-too-new"]
    assert finding["status"] == "error"
    lines = {
        "requirements": (3,),
        "guide": (4,),
        "lock": (8, 9),
        "environment": (0,),
    }  # in a lock: either of the two packages
    assert finding["line"] in lines[kind]


PYPROJECT = """[project]
name = "mine"
dependencies = [
  "torch==2.8.0",
  "vllm==0.10.2",
]
[dependency-groups]
gpu = ["transformers>=4.57.1"]
"""
CONDA = """dependencies:
  - python=3.12
  - pip:
    - torch==2.8.0
    - vllm==0.10.2
    - transformers>=4.57.1
"""
DOCKERFILE = """FROM python:3.12
RUN pip install torch==2.8.0 vllm==0.10.2 \\
  'transformers>=4.57.1'
"""
FILES = {
    "pyproject.toml": (PYPROJECT, "pyproject", {8}),
    "environment.yml": (CONDA, "conda", {6}),
    "Dockerfile": (DOCKERFILE, "Dockerfile", {2, 3}),
    "Containerfile.gpu": (DOCKERFILE, "Dockerfile", {2, 3}),
    "requirements.txt": (REQUIREMENTS.format(transformers=">=4.57.1"), "requirements", {3}),
}


def test_several_files_are_audited_and_each_finding_names_its_file_and_line(tmp_path: Path) -> None:
    for name, (text, _, _) in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "clean.txt").write_text(REQUIREMENTS.format(transformers="==4.57.1"))
    (tmp_path / "empty.txt").write_text("# nothing\n")
    command = ["audit", *FILES, "clean.txt", "empty.txt", "--skip-empty", "--format"]
    data = envelope(envdoctor(*command, "json", home=tmp_path))
    assert data["exit_code"] == 1
    assert data["data"]["skipped"] == ["empty.txt"]
    found = {
        audit["name"]: (audit["kind"], {f["line"] for f in audit["findings"]}) for audit in data["data"]["audits"]
    }
    assert found.pop("clean.txt") == ("requirements", set())
    assert {name: kind for name, (kind, _) in found.items()} == {name: kind for name, (_, kind, _) in FILES.items()}
    annotations = envdoctor(*command, "github", home=tmp_path).stdout
    log = json.loads(envdoctor(*command, "sarif", home=tmp_path).stdout)
    places = [result["locations"][0]["physicalLocation"] for result in log["runs"][0]["results"]]
    for name, (_, _, lines) in FILES.items():
        assert found[name][1] & lines, name
        assert any(f"::error file={name},line={line},title=RUN003" in annotations for line in lines)
        assert {p["region"]["startLine"] for p in places if p["artifactLocation"]["uri"] == name} & lines


def test_a_file_that_installs_nothing_is_skipped_only_on_request(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM ubuntu:24.04\nCOPY . /app\n")
    (tmp_path / "pyproject.toml").write_text("[tool.ruff]\n")
    refused = envdoctor("audit", "pyproject.toml", home=tmp_path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "there is no requirement or install step in pyproject.toml (1 lines)" in refused.stderr
    skipped = envdoctor("audit", "pyproject.toml", "--skip-empty", home=tmp_path)
    assert (skipped.returncode, skipped.stdout) == (0, "- pyproject.toml  skipped: nothing in it can be judged\n")
    assert envdoctor("audit", home=tmp_path).returncode == 2


def test_unknown_findings_alone_decide_nothing(tmp_path: Path) -> None:
    target = tmp_path / "requirements.txt"
    target.write_text("torch==2.99.0\n")
    result = run(AuditRequest(targets=(str(target),), resolve="never"))
    assert ({each.status for each in result.data.findings}, result.exit_code) == ({"unknown"}, 3)


@each_case("path", LOCKS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_bundled_locks_have_no_finding(path: Path) -> None:
    result = run(AuditRequest(targets=(str(path),)))
    assert (result.data.kind, result.data.findings, result.exit_code) == ("lock", (), 0)


def test_each_platform_and_python_has_a_lock() -> None:
    expected = [
        f"{profile.id}/{architecture}-{python}"
        for profile in read_profiles()
        for architecture in profile.when.architectures
        for python in profile.python.versions
    ]
    assert sorted(expected) == sorted(f"{path.parent.name}/{path.stem}" for path in LOCKS)


def fix(index: ReleaseIndex, folder: Path, name: str, text: str, *options: str, **extra: str) -> dict[str, Any]:
    """Run `audit --fix` with the index of the built-in tables."""
    (folder / name).write_text(text)
    variables = index.variables("pypi") | {"PIP_CONFIG_FILE": "/dev/null"} | extra
    data: dict[str, Any] = envelope(
        envdoctor("audit", name, "--fix", ".", "--format", "json", *options, home=folder, **variables)
    )["data"]
    return data


def test_the_command_of_a_trial_is_for_the_same_target(tmp_path: Path, index: ReleaseIndex) -> None:
    options = ("--machine", "gpu:h100", "--python", "3.12", "--fact", "driver.version=570.86.15")
    (solved,) = fix(index, tmp_path, "SETUP.md", GUIDE, *options)["sets"]
    assert solved["trial"] == f"envdoctor audit SETUP.md {' '.join(options)} --fix . --force --trial"


def test_fix_writes_valid_corrections(tmp_path: Path, index: ReleaseIndex) -> None:
    data = fix(index, tmp_path, "SETUP.md", GUIDE)
    assert data["written"] == ["SETUP.requirements.txt", "SETUP.toml", "SETUP.md.patch"]
    (solved,) = data["sets"]
    assert (solved["state"], solved["target"]) == ("solved", "x86_64-manylinux_2_35, Python 3.12, CUDA 12.8")
    written = (tmp_path / "SETUP.requirements.txt").read_text()
    assert "transformers==4.57.1\n" in written
    assert written.startswith("# for x86_64-manylinux_2_35, Python 3.12, CUDA 12.8: solved by uv on ")
    command = "envdoctor audit SETUP.md --fix . --force --trial"
    assert f"\n# not tried: `{command}` installs them and imports the packages\n" in written
    assert data["sets"][0]["trial"] == command
    again = envdoctor("audit", "SETUP.requirements.txt", "--format", "json", home=tmp_path)
    assert envelope(again)["data"]["findings"] == []
    shown = envdoctor("profiles", "show", "./SETUP.toml", "--format", "json", home=tmp_path)
    assert shown.returncode == 0, shown.stderr


def test_fix_writes_a_patch_that_applies_to_the_guide(tmp_path: Path, index: ReleaseIndex) -> None:
    fix(index, tmp_path, "SETUP.md", GUIDE)
    subprocess.run(["patch", "-p1", "-i", "SETUP.md.patch"], cwd=tmp_path, check=True, capture_output=True)
    assert "vllm==0.10.2 'transformers==4.57.1' trl==0.23.1" in (tmp_path / "SETUP.md").read_text()
    assert envdoctor("audit", "SETUP.md", home=tmp_path).returncode == 0


FIXED = {
    "requirements.txt": ("requirements.fixed.txt", "transformers==4.57.1\n"),
    "pyproject.toml": ("pyproject.fixed.toml", 'gpu = ["transformers==4.57.1"]\n'),
    "Dockerfile": ("Dockerfile.fixed", "  'transformers==4.57.1'\n"),
    "environment.yml": ("environment.fixed.yml", "    - transformers==4.57.1\n"),
}


@pytest.mark.parametrize("name", sorted(FIXED))
def test_fix_writes_the_format_that_it_read(name: str, tmp_path: Path, index: ReleaseIndex) -> None:
    original = FILES[name][0]
    data = fix(index, tmp_path, name, original)
    fixed, line = FIXED[name]
    assert fixed in data["written"]
    text = (tmp_path / fixed).read_text()
    assert line in text
    assert (tmp_path / name).read_text() == original
    changed = [(a, b) for a, b in zip(original.splitlines(), text.splitlines(), strict=True) if a != b]
    assert len(changed) == 1
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / name).write_text(text)
    assert envdoctor("audit", f"again/{name}", home=tmp_path).returncode == 0


@each_case("text", ["vllm==0.10.2\ntransformers==4.57.1\n", "vllm==0.10.2\ntransformers<5\n"])
def test_fix_of_a_file_without_problems_corrects_nothing(
    text: str, tmp_path_factory: pytest.TempPathFactory, index: ReleaseIndex
) -> None:
    data = fix(index, tmp_path_factory.mktemp("sound"), "requirements.txt", text)
    assert data["findings"] == []
    assert data["notes"] == ["nothing to correct in requirements.txt: it has no errors or warnings"]
    assert not [name for name in data["written"] if ".fixed." in name]


def test_fix_of_an_image_proposes_no_torch(tmp_path: Path, index: ReleaseIndex) -> None:
    image = "FROM nvcr.io/nvidia/pytorch:25.08-py3\nRUN pip install trl==0.23.1 transformers\n"
    (solved,) = fix(index, tmp_path, "Dockerfile", image)["sets"]
    assert solved["image"] == "nvcr.io/nvidia/pytorch:25.08-py3"
    assert [text.partition("==")[0] for text in solved["requirements"]] == ["trl", "transformers"]
    assert "FROM nvcr.io/nvidia/pytorch:25.08-py3\n" in (tmp_path / "Dockerfile.fixed").read_text()
    assert "torch==" not in (tmp_path / "Dockerfile.requirements.txt").read_text()


def test_fix_prints_the_conflict_where_nothing_solves_it(tmp_path: Path, index: ReleaseIndex) -> None:
    """torch never gives way, and this release has no wheel for the Python."""
    (tmp_path / "requirements.txt").write_text("torch==2.8.0\ntorchvision==0.23.0\nnumpy==1.26.4\n")
    variables = index.variables("pypi") | {"PIP_CONFIG_FILE": "/dev/null"}
    done = envdoctor("audit", "requirements.txt", "--fix", ".", "--python", "3.7", home=tmp_path, **variables)
    assert "No set for x86_64-manylinux_2_35, Python 3.7, CUDA 12.8" in done.stdout
    assert "torch" in done.stdout.partition("No set")[2]
    assert not (tmp_path / "requirements.requirements.txt").exists()


def test_fix_states_a_set_that_no_source_could_verify(tmp_path: Path, index: ReleaseIndex) -> None:
    closed = {"UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple/", "UV_HTTP_RETRIES": "0"}
    (solved,) = fix(index, tmp_path, "requirements.txt", "trl==0.23.1\ntransformers\n", **closed)["sets"]
    assert (solved["state"], solved["requirements"]) == ("not-verified", [])
    assert solved["note"].startswith("not solved: ")
    assert not (tmp_path / "requirements.requirements.txt").exists()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("missing.md", None, "No such file"),
        ("lock.txt", "# profile: x\n# platform: a-manylinux_2_35\ntorch==1.0\n", "line 3"),
        ("lock.txt", "# profile: x\ntorch==1.0 --hash=sha256:" + "0" * 64 + "\n", "platform"),
        ("lock.txt", "# profile: x\n; rm -rf /\n", "line 2"),
        ("binary.txt", "\udcff", "UTF-8"),
    ],
)
def test_invalid_input_is_rejected_with_its_line(name: str, text: str | None, message: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / name).write_text(text, errors="surrogateescape")
    result = envdoctor("audit", name, home=tmp_path)
    assert result.returncode == 2, result.stdout
    assert message in result.stderr


def test_github_annotations_contain_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "SETUP.md").write_text(GUIDE)
    result = envdoctor("audit", "SETUP.md", "--format", "github", home=tmp_path)
    assert "::error" in result.stdout
    assert "line=4" in result.stdout
    assert "file=SETUP.md" in result.stdout
    assert "title=RUN003 open-range-resolves-to-an-incompatible-release::" in result.stdout
    assert "A missing or open bound resolves today to a release that is incompatible" in result.stdout


def test_sarif_contains_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "SETUP.md").write_text(GUIDE)
    log = json.loads(envdoctor("audit", "SETUP.md", "--format", "sarif", home=tmp_path).stdout)
    location = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert location["artifactLocation"]["uri"] == "SETUP.md"
    assert location["region"]["startLine"] == 4
    rules = log["runs"][0]["tool"]["driver"]["rules"]
    described = {rule["id"]: rule for rule in rules}["RUN003"]
    assert described["help"]["text"].startswith("A missing or open bound resolves today")
    assert rules[log["runs"][0]["results"][0]["ruleIndex"]]["id"] == "RUN003"


def test_a_release_that_another_correction_brings_is_no_remedy_if_it_has_the_same_fault() -> None:
    """transformers 4 brings huggingface-hub 0.36, which has no cached_download either."""
    text = "torch==1.12.1\ndiffusers==0.11.1\ntransformers>=4.25.1\nbitsandbytes==0.35.4\naccelerate\n"
    result = audit_text(text, "requirements.txt", None, NoSolver()).result
    (finding,) = (each for each in result.findings if "imports cached_download" in each.message)
    assert "huggingface-hub==0.3" not in finding.fix
    assert "huggingface-hub>=0.23,<0.26" in str(finding.remedies)
