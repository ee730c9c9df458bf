"""Exported forms of a lock with a source package: each carried out by the real uv, pip, shells and C compiler."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import msgspec
import pytest
from export_stack import BUNDLED, UV, Tiny, TinyBuild, sha256_of
from local_packages import PYTHON
from source_packages import SOURCE, write_sdist

from envdoctor.core.errors import BadInput
from envdoctor.export import FORMS, export
from envdoctor.export.images import ROOT
from envdoctor.locking.lock import Lock
from envdoctor.locking.wheel_urls import PackageFile
from envdoctor.profiles import Profile

TWO_JOBS = "2 torch 9.9.0\nbuilt\n"  # two compilers, against the lock's torch, once
STEP = re.compile(
    r"^COPY \S+ (?P<mark><<'LOCK') (?P<file>\S+)\n(?P<body>(?s:.*?))^LOCK$|^RUN (?P<run>.*)$", re.MULTILINE
)
VERL = [case for case in BUNDLED if case.values[0].id == "verl-8gpu"]


@pytest.fixture
def tiny(tmp_path: Path) -> TinyBuild:
    return TinyBuild(tmp_path)


def without_uv(folder: Path) -> str:
    """PATH with the system's tools, the Python of the tests, and no uv."""
    tools = folder / "tools"
    tools.mkdir()
    (tools / f"python{PYTHON}").symlink_to(os.path.realpath(sys.executable))
    return f"{tools}:/usr/bin:/bin"


# The script


def test_the_script_compiles_after_the_wheels_and_against_them(tiny: TinyBuild) -> None:
    done = tiny.run("bash", tiny.write("script"), MAX_JOBS="2")
    assert done.returncode == 0, done.stderr
    assert tiny.seen() == TWO_JOBS
    assert not list(tiny.folder.rglob("pwned"))


def test_the_script_compiles_with_pip_too(tiny: TinyBuild) -> None:
    done = tiny.run("bash", tiny.write("script"), PATH=without_uv(tiny.folder), MAX_JOBS="2")
    assert done.returncode == 0, done.stderr
    assert "Successfully installed fast-1.0" in done.stdout
    assert tiny.seen() == TWO_JOBS


@pytest.mark.parametrize(("memory", "least", "most"), [(0.001, len(os.sched_getaffinity(0)), 999), (99999.5, 1, 1)])
def test_as_many_compilers_run_as_there_are_cores_and_memory_for(
    tiny: TinyBuild, memory: float, least: int, most: int
) -> None:
    build = msgspec.structs.replace(tiny.profile.build, memory_gb_per_job=memory)
    text = export(msgspec.structs.replace(tiny.profile, build=build), tiny.lock, "script").text
    (line,) = [line for line in text.splitlines() if line.startswith("export MAX_JOBS")]
    for shell in ("bash", "sh"):
        done = tiny.run(shell, "-c", f"set -eu; {line}; echo $MAX_JOBS")
        assert (done.returncode, done.stderr) == (0, "")
        assert least <= int(done.stdout) <= most


def test_another_source_under_the_same_name_is_not_compiled(tiny: TinyBuild) -> None:
    write_sdist(tiny.wheels, "fast", "1.0", source=SOURCE + "/* another */")
    done = tiny.run("bash", tiny.write("script"))
    assert done.returncode != 0
    assert "hash mismatch" in done.stderr.lower()
    assert not tiny.counter.exists()
    assert not (tiny.folder / ".venv").exists()


def test_nothing_else_is_compiled(tiny: TinyBuild) -> None:
    (wheel,) = tiny.wheels.glob("trainer-*")
    wheel.unlink()
    source = write_sdist(tiny.wheels, "trainer", "1.2")
    done = tiny.run("bash", tiny.write("script"), BUILD_COUNTER=str(tiny.folder / "count"))
    assert source.exists()
    assert done.returncode != 0
    assert "no usable wheels" in done.stderr
    assert not (tiny.folder / "count").exists()
    assert not (tiny.folder / ".venv").exists()


def test_a_build_that_fails_leaves_nothing(tmp_path: Path) -> None:
    tiny = TinyBuild(tmp_path, source="#error on purpose\n")
    done = tiny.run("bash", tiny.write("script"))
    assert done.returncode != 0
    assert "on purpose" in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_a_requirement_of_what_is_compiled_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    tiny = TinyBuild(tmp_path)
    archive = write_sdist(tiny.wheels, "fast", "1.0", requires=["gamma"])
    packages = (msgspec.structs.replace(tiny.lock.packages[0], sha256=sha256_of(archive)), *tiny.lock.packages[1:])
    done = tiny.run("bash", tiny.write("script", lock=msgspec.structs.replace(tiny.lock, packages=packages)))
    assert done.returncode != 0
    assert "gamma" in done.stdout + done.stderr
    assert not (tmp_path / ".venv").exists()


@pytest.mark.parametrize(
    ("needs", "missing"),
    [("", "g++ or clang++ or c++"), ('needs = ["ninja"]', "ninja"), ('needs = ["nvcc"]', "nvcc")],
)
def test_the_script_looks_for_compilers_before_it_writes(tmp_path: Path, needs: str, missing: str) -> None:
    tiny = TinyBuild(tmp_path, build=needs)
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "uname", "getconf", "sort", "sed", *([] if not needs else ["g++"])):
        (tools / name).symlink_to(f"/usr/bin/{name}")
    done = tiny.run("bash", tiny.write("script"), PATH=str(tools), CUDA_HOME=str(tmp_path))
    assert (done.returncode, done.stderr) == (
        1,
        f"stop: {missing} is not installed, and is needed to compile fast\n",
    )
    assert not (tmp_path / ".venv").exists()


# Requirements


def heading(tiny: Tiny) -> list[str]:
    lines = tiny.write("requirements").read_text().splitlines()
    return [line.removeprefix("#   ") for line in lines if line.startswith("#   ")]


def test_the_requirements_compile_with_uv_as_their_heading_says(tiny: TinyBuild) -> None:
    commands = [line for line in heading(tiny) if "python -m " not in line and not line.startswith("python")]
    done = tiny.run("sh", "-euxc", "\n".join(commands), MAX_JOBS="2")
    assert done.returncode == 0, done.stderr
    assert tiny.seen() == TWO_JOBS


def test_the_headings_commands_for_pip_are_the_scripts(tiny: TinyBuild) -> None:
    """Which another test carries out."""
    (command,) = [line for line in heading(tiny) if "--no-binary" in line and " -m pip " in line]
    words, _, file = command.partition(" -m pip ")[2].rpartition(" -r ")
    assert f' "$venv/bin/python" -m pip {words} -r "$work/{file}"\n' in tiny.write("script").read_text()
    assert f"/fast==/p' requirements.txt > {file}" in "\n".join(heading(tiny))


# Images


def run_image(tiny: TinyBuild, commands: str) -> None:
    """Commands of an image, with a folder in place of the image's and the Python of the tests."""
    (tiny.folder / "stack").mkdir()
    text = commands.replace(ROOT, f"{tiny.folder}/stack")
    text = text.replace(f"/usr/local/bin/python{PYTHON}", os.path.realpath(sys.executable))
    done = tiny.run("sh", "-euc", text, MAX_JOBS="2")
    assert done.returncode == 0, done.stderr
    assert tiny.seen("stack/venv/bin/python") == TWO_JOBS
    assert not list(tiny.folder.rglob("pwned"))


def test_the_dockerfiles_commands_compile(tiny: TinyBuild) -> None:
    text = export(tiny.profile, tiny.lock, "dockerfile").text
    of_user = text.partition("\nUSER ")[2].replace(" \\\n", " ")
    step = re.compile(
        r"^COPY \S+ (?P<mark><<'LOCK') (?P<file>\S+)\n(?P<body>(?s:.*?))^LOCK$|^RUN (?P<run>.*)$", re.MULTILINE
    )
    commands = []
    for found in step.finditer(of_user):
        if found["mark"]:
            commands.append(f"cat > {found['file']} <<'LOCK'\n{found['body']}LOCK")
        elif not found["run"].startswith("["):  # the check of torch, which other tests run
            commands.append(re.sub(r"--mount=\S+ +", "", found["run"]))
    assert [command.split()[0] for command in commands] == ["cat", "uv", "cat", "export"]
    run_image(tiny, "\n".join(commands))


def test_the_definitions_commands_compile(tiny: TinyBuild) -> None:
    post = export(tiny.profile, tiny.lock, "apptainer").text.partition("%post\n")[2].partition("\n%environment")[0]
    system, _, rest = post.partition("    mkdir -p")
    assert "apt-get install" in system
    run_image(tiny, f"mkdir -p{rest}")


@pytest.mark.parametrize("form", ["dockerfile", "apptainer"])
def test_an_image_has_what_the_build_calls(tmp_path: Path, form: str) -> None:
    tiny = TinyBuild(tmp_path, build='needs = ["cmake", "ninja"]')
    (line,) = [each for each in export(tiny.profile, tiny.lock, form).text.splitlines() if "apt-get install" in each]
    assert line.endswith("ca-certificates g++ cmake ninja-build")
    needy = TinyBuild(tmp_path, build='needs = ["nvcc"]')
    with pytest.raises(BadInput, match="needs nvcc, and the image for torch's CPU build has none"):
        export(needy.profile, needy.lock, form)


@pytest.mark.parametrize(("profile", "file"), VERL)
def test_what_is_compiled_with_nvcc_gets_an_image_that_has_it(profile: Profile, file: Lock) -> None:
    assert profile.build
    packages = tuple(package for package in file.packages if package.name != "flashinfer-python")
    file = msgspec.structs.replace(file, packages=packages)
    assert "\nFROM nvidia/cuda:12.8.1-base-" in export(profile, file, "dockerfile").text
    build = msgspec.structs.replace(profile.build, needs=("nvcc",))
    exported = export(msgspec.structs.replace(profile, build=build), file, "dockerfile")
    assert "\nFROM nvidia/cuda:12.8.1-devel-" in exported.text
    assert any("no GPU is visible" in note for note in exported.notes)


# Forms of one command, and the form that has none


def test_uv_syncs_the_project_and_compiles_last(tiny: TinyBuild) -> None:
    tiny.write("uv-project")
    # UV_NO_CONFIG, which the other tests have, would leave [tool.uv] of the project unread.
    settings = {"UV_NO_CONFIG": "0", "XDG_CONFIG_HOME": str(tiny.folder), "MAX_JOBS": "2"}
    done = tiny.run(UV, "sync", "--python", sys.executable, **settings)
    assert done.returncode == 0, done.stderr
    assert tiny.seen() == TWO_JOBS


def test_a_pylock_holds_the_source_and_its_heading_compiles_it_last(tiny: TinyBuild) -> None:
    files = {sha256_of(path): path for path in tiny.wheels.iterdir()}
    places = tuple(PackageFile(files[p.sha256].name, str(files[p.sha256]), p.sha256) for p in tiny.lock.packages)
    exported = export(tiny.profile, tiny.lock, "pylock", places)
    (tiny.folder / exported.file_name).write_text(exported.text)
    packages = {package["name"]: package for package in tomllib.loads(exported.text)["packages"]}
    assert packages["fast"]["sdist"]["hashes"]["sha256"] == tiny.lock.packages[0].sha256
    assert "wheels" not in packages["fast"]
    assert "sdist" not in packages["trainer"]
    assert tiny.run(UV, "venv", "--python", sys.executable, ".venv").returncode == 0
    (command,) = [line.removeprefix("#   ") for line in exported.text.splitlines() if line.startswith("#   uv ")]
    done = tiny.run(*command.split(), BUILD_COUNTER=str(tiny.counter), MAX_JOBS="2")
    assert done.returncode == 0, done.stderr
    assert tiny.seen() == TWO_JOBS
    assert any("set before: BUILD_COUNTER" in note for note in exported.notes)


def test_conda_is_refused_for_a_reason_that_holds(tiny: TinyBuild) -> None:
    with pytest.raises(BadInput, match=r"cannot be compiled from an environment\.yml") as refused:
        export(tiny.profile, tiny.lock, "conda")
    assert refused.value.hint == "envdoctor export --profile mine --format requirements"
    (tiny.folder / "part.txt").write_text("--no-build-isolation\nfast==1.0\n")
    done = tiny.run(sys.executable, "-m", "pip", "install", "--dry-run", "-r", "part.txt")
    assert done.returncode != 0
    assert "no such option: --no-build-isolation" in done.stderr


# What cannot be


@pytest.mark.parametrize("form", FORMS)
def test_a_lock_and_a_profile_that_differ_in_it_are_refused(tiny: TinyBuild, form: str) -> None:
    places = tuple(PackageFile(p.name, f"/{p.name}", p.sha256) for p in tiny.lock.packages)
    wheels = msgspec.structs.replace(tiny.lock, packages=tiny.lock.packages[1:])
    with pytest.raises(BadInput, match=r"differ in fast"):
        export(tiny.profile, wheels, form, places)
    with pytest.raises(BadInput, match=r"differ in fast"):
        export(msgspec.structs.replace(tiny.profile, build=None), tiny.lock, form, places)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "build",
    [{"environment": {"LD_PRELOAD": "x"}}, {"environment": {"A": "x\nRUN y"}}, {"environment": {"a b": "x"}},
     {"memory_gb_per_job": float("inf")}, {"memory_gb_per_job": 0.0}],
)  # fmt: skip
def test_hostile_builds_are_refused(tiny: TinyBuild, form: str, build: dict[str, object]) -> None:
    places = tuple(PackageFile(p.name, f"/{p.name}", p.sha256) for p in tiny.lock.packages)
    profile = msgspec.structs.replace(tiny.profile, build=msgspec.structs.replace(tiny.profile.build, **build))
    with pytest.raises(BadInput, match="build"):
        export(profile, tiny.lock, form, places)


@pytest.mark.parametrize(("profile", "file"), VERL)
def test_verls_second_step_is_antlr_alone(profile: Profile, file: Lock) -> None:
    for form in ("requirements", "script", "dockerfile", "apptainer"):
        text = export(profile, file, form).text
        assert set(re.findall(r"--no-binary (\S+)", text)) == {"antlr4-python3-runtime"}
        assert "setuptools==" in text, "what its build calls comes with a hash"
    checked = subprocess.run(
        ["bash", "-n"], input=export(profile, file, "script").text, capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")
