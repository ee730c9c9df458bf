"""Export forms of a lock with a source package, tested with uv, pip, shells and a C compiler."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import msgspec
import pytest
from support.export_stack import BUNDLED, UV, SmallStack, SmallStackWithBuild, sha256_of
from support.local_packages import PYTHON
from support.pip import pip
from support.source_packages import SOURCE, write_sdist

from envdoctor.core.errors import BadInput
from envdoctor.export import FORMS, export
from envdoctor.export.images import ROOT
from envdoctor.locking.lock import Lock
from envdoctor.locking.wheel_urls import PackageFile
from envdoctor.profiles import Profile

TWO_JOBS = "2 torch 9.9.0\nbuilt\n"  # two compilers, the locked torch, one build
STEP = re.compile(
    r"^COPY \S+ (?P<here><<'LOCK') (?P<file>\S+)\n(?P<body>(?s:.*?))^LOCK$|^RUN (?P<run>.*)$", re.MULTILINE
)
VERL = [case for case in BUNDLED if case.values[0].id == "verl-8gpu"]


@pytest.fixture
def stack(tmp_path: Path) -> SmallStackWithBuild:
    return SmallStackWithBuild(tmp_path)


def without_uv(folder: Path) -> str:
    """PATH with the system's tools, the Python of the tests, and no uv."""
    tools = folder / "tools"
    tools.mkdir()
    (tools / f"python{PYTHON}").symlink_to(os.path.realpath(sys.executable))
    return f"{tools}:/usr/bin:/bin"


# The script


def test_script_installs_wheels_then_compiles(stack: SmallStackWithBuild) -> None:
    done = stack.run("bash", stack.write("script"), MAX_JOBS="2")
    assert done.returncode == 0, done.stderr
    assert stack.build_report() == TWO_JOBS
    assert not list(stack.folder.rglob("pwned"))


def test_script_compiles_with_pip(stack: SmallStackWithBuild) -> None:
    compile_with_pip(stack, stack.path_without_uv())


@pytest.mark.long  # differs from the test above only in the program that creates the environment
def test_script_compiles_with_pip_of_ensurepip(stack: SmallStackWithBuild) -> None:
    compile_with_pip(stack, without_uv(stack.folder))


def compile_with_pip(stack: SmallStackWithBuild, path: str) -> None:
    done = stack.run("bash", stack.write("script"), PATH=path, MAX_JOBS="2")
    assert done.returncode == 0, done.stderr
    assert "Successfully installed fast-1.0" in done.stdout
    assert stack.build_report() == TWO_JOBS


@pytest.mark.parametrize(("memory", "least", "most"), [(0.001, len(os.sched_getaffinity(0)), 999), (99999.5, 1, 1)])
def test_compiler_count_is_limited_by_cores_and_memory(
    stack: SmallStackWithBuild, memory: float, least: int, most: int
) -> None:
    build = msgspec.structs.replace(stack.profile.build, memory_gb_per_job=memory)
    text = export(msgspec.structs.replace(stack.profile, build=build), stack.lock, "script").text
    (line,) = [line for line in text.splitlines() if line.startswith("export MAX_JOBS")]
    for shell in ("bash", "sh"):
        done = stack.run(shell, "-c", f"set -eu; {line}; echo $MAX_JOBS")
        assert (done.returncode, done.stderr) == (0, "")
        assert least <= int(done.stdout) <= most


def test_source_with_another_hash_is_not_compiled(stack: SmallStackWithBuild) -> None:
    write_sdist(stack.wheels, "fast", "1.0", source=SOURCE + "/* another */")
    done = stack.run("bash", stack.write("script"))
    assert done.returncode != 0
    assert "hash mismatch" in done.stderr.lower()
    assert not stack.counter.exists()
    assert not (stack.folder / ".venv").exists()


def test_other_packages_are_not_compiled(stack: SmallStackWithBuild) -> None:
    (wheel,) = stack.wheels.glob("trainer-*")
    wheel.unlink()
    source = write_sdist(stack.wheels, "trainer", "1.2")
    done = stack.run("bash", stack.write("script"), BUILD_COUNTER=str(stack.folder / "count"))
    assert source.exists()
    assert done.returncode != 0
    assert "no usable wheels" in done.stderr
    assert not (stack.folder / "count").exists()
    assert not (stack.folder / ".venv").exists()


def test_failed_build_leaves_no_environment(tmp_path: Path) -> None:
    stack = SmallStackWithBuild(tmp_path, source="#error on purpose\n")
    done = stack.run("bash", stack.write("script"))
    assert done.returncode != 0
    assert "on purpose" in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_missing_requirement_of_the_source_package_is_an_error(tmp_path: Path) -> None:
    stack = SmallStackWithBuild(tmp_path)
    archive = write_sdist(stack.wheels, "fast", "1.0", requires=["gamma"])
    packages = (msgspec.structs.replace(stack.lock.packages[0], sha256=sha256_of(archive)), *stack.lock.packages[1:])
    done = stack.run("bash", stack.write("script", lock=msgspec.structs.replace(stack.lock, packages=packages)))
    assert done.returncode != 0
    assert "gamma" in done.stdout + done.stderr
    assert not (tmp_path / ".venv").exists()


@pytest.mark.parametrize(
    ("needs", "missing"),
    [("", "g++ or clang++ or c++"), ('needs = ["ninja"]', "ninja"), ('needs = ["nvcc"]', "nvcc")],
)
def test_script_checks_for_compilers_before_it_writes(tmp_path: Path, needs: str, missing: str) -> None:
    stack = SmallStackWithBuild(tmp_path, build=needs)
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "uname", "getconf", "sort", "sed", *([] if not needs else ["g++"])):
        (tools / name).symlink_to(f"/usr/bin/{name}")
    done = stack.run("bash", stack.write("script"), PATH=str(tools), CUDA_HOME=str(tmp_path))
    assert (done.returncode, done.stderr) == (
        1,
        f"stop: {missing} is not installed, and is needed to compile fast\n",
    )
    assert not (tmp_path / ".venv").exists()


# Requirements


def header_commands(stack: SmallStack) -> list[str]:
    lines = stack.write("requirements").read_text().splitlines()
    return [line.removeprefix("#   ") for line in lines if line.startswith("#   ")]


def test_uv_commands_in_the_header_compile(stack: SmallStackWithBuild) -> None:
    commands = [line for line in header_commands(stack) if "python -m " not in line and not line.startswith("python")]
    done = stack.run("sh", "-euxc", "\n".join(commands), MAX_JOBS="2")
    assert done.returncode == 0, done.stderr
    assert stack.build_report() == TWO_JOBS


def test_pip_commands_in_the_header_equal_those_of_the_script(stack: SmallStackWithBuild) -> None:
    """test_script_compiles_with_pip runs the commands of the script."""
    (command,) = [line for line in header_commands(stack) if "--no-binary" in line and " -m pip " in line]
    arguments, _, file = command.partition(" -m pip ")[2].rpartition(" -r ")
    assert f' "$venv/bin/python" -m pip {arguments} -r "$work/{file}"\n' in stack.write("script").read_text()
    assert f"/fast==/p' requirements.txt > {file}" in "\n".join(header_commands(stack))


# Images


def run_image(stack: SmallStackWithBuild, commands: str) -> None:
    """Run the commands of an image in a folder, with the Python of the tests."""
    (stack.folder / "stack").mkdir()
    text = commands.replace(ROOT, f"{stack.folder}/stack")
    text = text.replace(f"/usr/local/bin/python{PYTHON}", os.path.realpath(sys.executable))
    done = stack.run("sh", "-euc", text, MAX_JOBS="2")
    assert done.returncode == 0, done.stderr
    assert stack.build_report("stack/venv/bin/python") == TWO_JOBS
    assert not list(stack.folder.rglob("pwned"))


def test_commands_of_the_dockerfile_compile(stack: SmallStackWithBuild) -> None:
    text = export(stack.profile, stack.lock, "dockerfile").text
    user_steps = text.partition("\nUSER ")[2].replace(" \\\n", " ")
    commands = []
    for step in STEP.finditer(user_steps):
        if step["here"]:
            commands.append(f"cat > {step['file']} <<'LOCK'\n{step['body']}LOCK")
        elif not step["run"].startswith("["):  # the check of torch, which other tests run
            commands.append(re.sub(r"--mount=\S+ +", "", step["run"]))
    assert [command.split()[0] for command in commands] == ["cat", "uv", "cat", "export"]
    run_image(stack, "\n".join(commands))


def test_commands_of_the_apptainer_definition_compile(stack: SmallStackWithBuild) -> None:
    post = export(stack.profile, stack.lock, "apptainer").text.partition("%post\n")[2].partition("\n%environment")[0]
    system, _, rest = post.partition("    mkdir -p")
    assert "apt-get install" in system
    run_image(stack, f"mkdir -p{rest}")


@pytest.mark.parametrize("form", ["dockerfile", "apptainer"])
def test_image_contains_the_build_tools(tmp_path: Path, form: str) -> None:
    stack = SmallStackWithBuild(tmp_path, build='needs = ["cmake", "ninja"]')
    (line,) = [x for x in export(stack.profile, stack.lock, form).text.splitlines() if "apt-get install" in x]
    assert line.endswith("ca-certificates g++ cmake ninja-build")
    cuda_stack = SmallStackWithBuild(tmp_path, build='needs = ["nvcc"]')
    with pytest.raises(BadInput, match="needs nvcc, and the image for torch's CPU build has none"):
        export(cuda_stack.profile, cuda_stack.lock, form)


@pytest.mark.parametrize(("profile", "file"), VERL)
def test_build_with_nvcc_uses_a_devel_image(profile: Profile, file: Lock) -> None:
    assert profile.build
    packages = tuple(package for package in file.packages if package.name != "flashinfer-python")
    file = msgspec.structs.replace(file, packages=packages)
    assert "\nFROM nvidia/cuda:12.8.1-base-" in export(profile, file, "dockerfile").text
    build = msgspec.structs.replace(profile.build, needs=("nvcc",))
    exported = export(msgspec.structs.replace(profile, build=build), file, "dockerfile")
    assert "\nFROM nvidia/cuda:12.8.1-devel-" in exported.text
    assert any("no GPU is visible" in note for note in exported.notes)


# uv-project, pylock and conda


def test_uv_sync_of_the_project_compiles_last(stack: SmallStackWithBuild) -> None:
    stack.write("uv-project")
    # The UV_NO_CONFIG of the other tests would make uv ignore [tool.uv] of the project.
    settings = {"UV_NO_CONFIG": "0", "XDG_CONFIG_HOME": str(stack.folder), "MAX_JOBS": "2"}
    done = stack.run(UV, "sync", "--python", sys.executable, **settings)
    assert done.returncode == 0, done.stderr
    assert stack.build_report() == TWO_JOBS


def test_pylock_contains_the_source_and_its_header_compiles_last(stack: SmallStackWithBuild) -> None:
    files = {sha256_of(path): path for path in stack.wheels.iterdir()}
    locations = tuple(PackageFile(files[p.sha256].name, str(files[p.sha256]), p.sha256) for p in stack.lock.packages)
    exported = export(stack.profile, stack.lock, "pylock", locations)
    (stack.folder / exported.file_name).write_text(exported.text)
    packages = {package["name"]: package for package in tomllib.loads(exported.text)["packages"]}
    assert packages["fast"]["sdist"]["hashes"]["sha256"] == stack.lock.packages[0].sha256
    assert "wheels" not in packages["fast"]
    assert "sdist" not in packages["trainer"]
    assert stack.run(UV, "venv", "--python", sys.executable, ".venv").returncode == 0
    (command,) = [line.removeprefix("#   ") for line in exported.text.splitlines() if line.startswith("#   uv ")]
    done = stack.run(*command.split(), BUILD_COUNTER=str(stack.counter), MAX_JOBS="2")
    assert done.returncode == 0, done.stderr
    assert stack.build_report() == TWO_JOBS
    assert any("set before: BUILD_COUNTER" in note for note in exported.notes)


def test_conda_is_an_error_since_pip_rejects_the_option_in_a_file(stack: SmallStackWithBuild) -> None:
    with pytest.raises(BadInput, match=r"cannot be compiled from an environment\.yml") as caught:
        export(stack.profile, stack.lock, "conda")
    assert caught.value.hint == "envdoctor export mine --as requirements"
    (stack.folder / "part.txt").write_text("--no-build-isolation\nfast==1.0\n")
    done = stack.run(*pip(), "install", "--dry-run", "-r", "part.txt")
    assert done.returncode != 0
    assert "no such option: --no-build-isolation" in done.stderr


# Invalid input


@pytest.mark.parametrize("form", FORMS)
def test_source_package_only_in_the_lock_or_the_profile_is_an_error(stack: SmallStackWithBuild, form: str) -> None:
    locations = tuple(PackageFile(p.name, f"/{p.name}", p.sha256) for p in stack.lock.packages)
    wheels = msgspec.structs.replace(stack.lock, packages=stack.lock.packages[1:])
    with pytest.raises(BadInput, match=r"differ in fast"):
        export(stack.profile, wheels, form, locations)
    with pytest.raises(BadInput, match=r"differ in fast"):
        export(msgspec.structs.replace(stack.profile, build=None), stack.lock, form, locations)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "build",
    [{"environment": {"LD_PRELOAD": "x"}}, {"environment": {"A": "x\nRUN y"}}, {"environment": {"a b": "x"}},
     {"memory_gb_per_job": float("inf")}, {"memory_gb_per_job": 0.0}],
)  # fmt: skip
def test_hostile_builds_are_errors(stack: SmallStackWithBuild, form: str, build: dict[str, object]) -> None:
    locations = tuple(PackageFile(p.name, f"/{p.name}", p.sha256) for p in stack.lock.packages)
    profile = msgspec.structs.replace(stack.profile, build=msgspec.structs.replace(stack.profile.build, **build))
    with pytest.raises(BadInput, match="build"):
        export(profile, stack.lock, form, locations)


@pytest.mark.parametrize(("profile", "file"), VERL)
def test_verl_profile_compiles_only_antlr(profile: Profile, file: Lock) -> None:
    for form in ("requirements", "script", "dockerfile", "apptainer"):
        text = export(profile, file, form).text
        assert set(re.findall(r"--no-binary (\S+)", text)) == {"antlr4-python3-runtime"}
        assert "setuptools==" in text, "the build requirement needs a hash"
    done = subprocess.run(
        ["bash", "-n"], input=export(profile, file, "script").text, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
