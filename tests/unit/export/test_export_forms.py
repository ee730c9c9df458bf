"""Export forms for other tools: projects for uv, environment.yml for conda, images."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import msgspec
import pytest
from support.cases import each_case
from support.export_stack import BUNDLED, COMPLETE, UV, WITHOUT_BUILDS, SmallStack
from support.pip import make_venv_with_pip
from support.recorded_results import assert_as_recorded

from envdoctor.core.errors import BadInput
from envdoctor.export import FORMS, export
from envdoctor.knowledge.images import image_tables
from envdoctor.locking.lock import Lock
from envdoctor.locking.lock_files import lock_folder, read_lock
from envdoctor.profiles import Profile, read_profile


@pytest.fixture
def stack(tmp_path: Path) -> SmallStack:
    return SmallStack(tmp_path)


# Projects and conda


def test_uv_locks_and_syncs_the_project(stack: SmallStack) -> None:
    stack.write("uv-project")
    done = stack.run(UV, "sync", "--python", sys.executable)
    assert done.returncode == 0, done.stderr
    assert stack.run(".venv/bin/python", "-c", "import trainer, torch").returncode == 0


def test_project_uses_the_configured_index_for_a_local_version_of_torch(tmp_path: Path) -> None:
    stack = SmallStack(tmp_path, torch="9.9.0+cpu")
    path = stack.write("uv-project")
    assert 'UV_INDEX="pytorch=$PYTORCH_INDEX" uv sync' in path.read_text()
    page = tmp_path / "index/torch/index.html"
    page.parent.mkdir(parents=True)
    (wheel,) = stack.wheels.glob("torch-*")
    shutil.move(wheel, page.parent / wheel.name)
    page.write_text(f'<a href="{wheel.name.replace("+", "%2B")}">{wheel.name}</a>')
    without = stack.run(UV, "lock", "--python", sys.executable)
    assert without.returncode != 0
    assert "pytorch" in without.stderr
    done = stack.run(UV, "lock", "--python", sys.executable, UV_INDEX=f"pytorch=file://{tmp_path}/index")
    assert done.returncode == 0, done.stderr
    locked = {p["name"]: p["version"] for p in tomllib.loads((tmp_path / "uv.lock").read_text())["package"]}
    assert locked["torch"] == "9.9.0+cpu"


@pytest.mark.parametrize(("profile", "file"), BUNDLED)
def test_project_constrains_the_locked_versions(profile: Profile, file: Lock) -> None:
    project = tomllib.loads(export(profile, file, "uv-project").text)
    pinned = project["tool"]["uv"]["constraint-dependencies"]
    assert pinned == [f"{package.name}=={package.version}" for package in file.packages]
    assert project["tool"]["uv"].get("no-binary-package", []) == [package.name for package in file.built]
    assert project["tool"]["uv"]["required-environments"] == project["tool"]["uv"]["environments"]
    sources = project["tool"]["uv"].get("sources", {})
    assert set(sources) == {*file.without, *(p.name for p in file.packages if "+" in p.version)}
    direct = {re.split(r"[^a-z0-9-]", spec)[0] for spec in project["project"]["dependencies"]}
    assert set(sources) <= direct


@pytest.mark.parametrize(("profile", "file"), WITHOUT_BUILDS)
def test_conda_file_is_yaml_with_a_pip_section(profile: Profile, file: Lock, tmp_path: Path) -> None:
    data = _plain_yaml(export(profile, file, "conda").text)
    assert data["name"] == profile.id
    assert data["dependencies"][:2] == [f"python={file.python}", "pip"]
    assert data.get("variables", {}) == profile.environment
    pip = [line for line in data["pip"] if not line.startswith("--")]
    assert "".join(f"{line}\n" for line in pip) == file.text
    options = [line for line in data["pip"] if line.startswith("--")]
    assert options[:2] == ["--require-hashes", "--only-binary :all:"]
    assert options[2:] == (["--extra-index-url ${PYTORCH_INDEX}"] if profile.id in ("cpu", "gh200") else [])


def test_pip_installs_the_pip_section_of_the_conda_file(stack: SmallStack) -> None:
    data = _plain_yaml(stack.write("conda").read_text())
    (stack.folder / "part.txt").write_text("\n".join(data["pip"]))
    make_venv_with_pip(stack.folder / ".venv")
    done = stack.run(".venv/bin/python", "-m", "pip", "install", "-r", "part.txt")
    assert done.returncode == 0, done.stderr
    assert "Successfully installed torch-9.9.0 trainer-1.2" in done.stdout


def _plain_yaml(text: str) -> dict[str, object]:  # type: ignore[explicit-any]
    """Parse the subset of YAML that the form uses; any other line fails."""
    data: dict = {"dependencies": [], "channels": [], "pip": []}
    section = ""
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        if found := re.fullmatch(r"(channels|dependencies|variables):", line):
            section = found[1]
            data.setdefault(section, {})
        elif found := re.fullmatch(r'name: (".*")', line):
            data["name"] = json.loads(found[1])
        elif line == "  - pip:":
            section = "pip"
        elif found := re.fullmatch(r'      - (".*")', line):
            assert section == "pip"
            data["pip"].append(json.loads(found[1]))
        elif found := re.fullmatch(r'  - (?:(".*")|([a-z-]+))', line):
            data[section].append(json.loads(found[1]) if found[1] else found[2])
        elif found := re.fullmatch(r'  ([A-Za-z_]\w*): (".*")', line):
            assert section == "variables"
            data["variables"][found[1]] = json.loads(found[2])
        else:
            raise AssertionError(line)
    return data


# Images


@pytest.mark.parametrize(("profile", "file"), COMPLETE)
def test_base_image_matches_the_cuda_build(profile: Profile, file: Lock) -> None:
    first = re.findall(r"^FROM (.*)$", export(profile, file, "dockerfile").text, re.MULTILINE)
    definition = export(profile, file, "apptainer").text
    assert first == [re.findall(r"^From: (.*)$", definition, re.MULTILINE)[1]]
    if profile.cuda is None:
        assert first == [f"python:{file.python}-slim-bookworm"]
        return
    found = re.fullmatch(r"nvidia/cuda:(\d+\.\d+)\.\d+-(base|devel)-ubuntu(\d\d)\.04", first[0])
    assert found
    assert found[1] == profile.cuda.build
    assert int(file.platform.rpartition("_")[2]) <= {"22": 35, "24": 39}[found[3]]
    compiling = {row.name for row in image_tables().nvcc} & {package.name for package in file.packages}
    assert (found[2] == "devel") == bool(compiling)


def test_base_image_has_the_required_glibc() -> None:
    profile, file = read_profile("x86-cu130"), read_lock(lock_folder("x86-cu130") / "x86_64-3.12.txt")
    assert file
    newer = msgspec.structs.replace(file, platform="x86_64-manylinux_2_38")
    assert "\nFROM nvidia/cuda:13.0.1-devel-ubuntu24.04\n" in export(profile, newer, "dockerfile").text
    newest = msgspec.structs.replace(file, platform="x86_64-manylinux_2_41")
    with pytest.raises(BadInput, match=r"no known image has CUDA 13\.0 and glibc 2\.41"):
        export(profile, newest, "dockerfile")


INSTRUCTIONS = {"FROM", "COPY", "RUN", "USER", "WORKDIR", "ENV", "HEALTHCHECK", "CMD"}


@pytest.mark.parametrize(("profile", "file"), COMPLETE)
def test_structure_of_the_dockerfile(profile: Profile, file: Lock) -> None:
    text = export(profile, file, "dockerfile").text
    assert text.startswith("# syntax=docker/dockerfile:1\n")  # here-documents and cache mounts
    steps = _instructions(text)
    words = [step.split()[0] for step in steps]
    assert set(words) <= INSTRUCTIONS  # no ADD, no SHELL, no ARG before FROM
    assert words[0] == "FROM"
    assert words[-1] == "CMD"
    users = [step for step in steps if step.startswith("USER")]
    assert users == ["USER 10001:10001"]
    create_user = next(i for i, step in enumerate(steps) if "useradd" in step)
    install = next(i for i, step in enumerate(steps) if "uv pip sync" in step)
    lock = next(i for i, step in enumerate(steps) if "<<'LOCK'" in step)
    check = next(i for i, step in enumerate(steps) if step.startswith("RUN ["))
    assert create_user < steps.index(users[0]) < lock < install < check
    assert "--mount=type=cache,target=/home/stack/.cache/uv,uid=10001,gid=10001" in steps[install]
    assert "--require-hashes --only-binary :all:" in steps[install]
    images_used = re.findall(r"(?:FROM |--from=)(\S+)", text)
    assert all(
        re.fullmatch(r"[a-z/]+:\d+\.\d+[a-z0-9.-]*", image) for image in images_used
    )  # a version, not `latest`
    health = next(step for step in steps if step.startswith("HEALTHCHECK"))
    command = json.loads(health.partition(" CMD ")[2])
    assert json.loads(steps[check].removeprefix("RUN ")) == command
    compile(command[2], "check", "exec")


def _instructions(text: str) -> list[str]:
    """The instructions of a Dockerfile, with joined lines, without here-documents and comments."""
    steps: list[str] = []
    end, joined = "", False
    for line in text.splitlines():
        if end:
            end = "" if line == end else end
            continue
        if not joined and (not line.strip() or line.startswith("#")):
            continue
        body = line.removesuffix("\\").strip()
        if joined:
            steps[-1] += f" {body}"
        else:
            steps.append(body)
        joined = line.endswith("\\")
        if found := re.search(r"<<'(\w+)'", line):
            end = found[1]
    assert not end
    assert not joined
    return steps


@pytest.mark.parametrize(("profile", "file"), COMPLETE)
def test_sections_of_the_apptainer_definition_are_valid_shell(profile: Profile, file: Lock) -> None:
    text = export(profile, file, "apptainer").text
    parts = re.split(r"^(%\w+.*)$", text, flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert list(sections) == ["%files from uv", "%post", "%environment", "%test", "%runscript"]
    assert sections["%post"].lstrip().startswith("set -eu\n")
    for name in ("%post", "%environment", "%test", "%runscript"):
        done = subprocess.run(["sh", "-n"], input=sections[name], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), name


HASH = re.compile(r".*[0-9a-f]{64}.*\n?")


@each_case("form", FORMS)
def test_exports_are_as_recorded(form: str) -> None:
    """One lock of each profile, without the lines that hashes are in."""
    found: dict[str, object] = {}
    for profile, lock in {case.values[0].id: case.values for case in WITHOUT_BUILDS}.values():
        try:
            exported = export(profile, lock, form)
        except BadInput as error:
            found[profile.id] = [error.message, error.expected, error.hint]
            continue
        lines = HASH.sub("", exported.text).splitlines()
        found[profile.id] = [exported.file_name, [line for line in lines if "==" not in line], exported.notes]
    assert_as_recorded(f"exports/{form}", found)
