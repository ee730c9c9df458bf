"""Export forms: installs with uv, pip and bash, and profiles with hostile values."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement
from support.command import envdoctor
from support.export_stack import BUNDLED, COMPLETE, TORCH, UV, SmallStack, docker_words, with_environment
from support.local_packages import PYTHON, write_wheel
from support.pip import make_venv_with_pip

from envdoctor.core.errors import BadInput, EnvdoctorError
from envdoctor.export import FORMS, export
from envdoctor.export.text import docker_value, quote
from envdoctor.locking.lock import Lock, Package
from envdoctor.locking.lock_files import lock_folder, read_lock
from envdoctor.profiles import Pin, Profile, read_profile

HOSTILE = '\'; touch pwned; $(touch pwned) `touch pwned` "$HOME" \\ @@LOCK@@\nLOCK\ntouch pwned\n%post\nRUN x #'
ONE_LINE = '\'; touch pwned; $(touch pwned) `touch pwned` "$HOME" \\ @@LOCK@@ RUN x #'
ADDRESS = re.compile(r"https?:|ftp:|\b[a-z0-9-]+\.(org|com|io|dev|net)\b")


@pytest.fixture
def stack(tmp_path: Path) -> SmallStack:
    return SmallStack(tmp_path)


# Every bundled profile


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("profile", "file"), BUNDLED)
def test_export_of_bundled_locks(profile: Profile, file: Lock, form: str) -> None:
    complete = not file.without
    impossible = form == "pylock" or (form == "conda" and file.built)
    if impossible or not (complete or form in ("requirements", "uv-project")):
        with pytest.raises(BadInput) as caught:
            export(profile, file, form)
        assert caught.value.hint == f"envdoctor export {profile.id} --as requirements"
        return
    exported = export(profile, file, form)
    text = exported.text
    assert not ADDRESS.search(text)
    assert all(f"{package.name}=={package.version}" in text for package in file.packages)
    assert all(f"--no-binary {package.name} " in text for package in file.built) or form == "uv-project"
    assert bool(file.built) is any("compiled from source" in note for note in exported.notes)
    hashed = form != "uv-project"
    assert all((package.sha256 in text) is hashed for package in file.packages)
    assert complete or any("partial lock" in note for note in exported.notes)
    variables = [] if form == "uv-project" else list(profile.environment)
    assert all(name in text for name in variables)


def test_unknown_forms_and_locks_of_other_profiles_are_errors(stack: SmallStack) -> None:
    with pytest.raises(BadInput, match="did you mean 'dockerfile'"):
        export(stack.profile, stack.lock, "docker")
    with pytest.raises(BadInput, match="lock is for profile 'mine'"):
        export(read_profile("cpu"), stack.lock, "script")
    with pytest.raises(BadInput, match=r"lock is for profile 'mine' with torch for 12\.8"):
        export(stack.profile, msgspec.structs.replace(stack.lock, torch_build="12.8"), "script")


# Installs with uv and pip


def test_a_machine_selects_the_profile_that_fits_it_best(tmp_path: Path) -> None:
    for machine, profile in (("h100", "x86-cu130: x86_64"), ("gh200-480gb", "gh200-cu130: aarch64")):
        assert envdoctor("export", "--machine", machine, home=tmp_path).stdout.startswith(f"# Profile {profile}")
    for words in ([], ["cpu", "--machine", "h100"]):
        refused = envdoctor("export", *words, home=tmp_path)
        assert refused.returncode == 2
        assert "expected: PROFILE, or --machine NAME" in refused.stderr


def test_uv_commands_in_the_header_install_the_requirements(stack: SmallStack) -> None:
    text = stack.write("requirements").read_text()
    commands = [line.removeprefix("#   ") for line in text.splitlines() if line.startswith("#   uv ")]
    assert len(commands) == 2
    for command in commands:
        done = stack.run(*command.split())
        assert done.returncode == 0, done.stderr
    done = stack.run(stack.folder / ".venv/bin/python", "-c", "import torch, trainer; print(torch.__version__)")
    assert done.stdout == "9.9.0\n"


def test_pip_command_in_the_header_installs_the_requirements(stack: SmallStack) -> None:
    text = stack.write("requirements").read_text()
    (command,) = [line.removeprefix("#   ") for line in text.splitlines() if " -m pip " in line]
    make_venv_with_pip(stack.folder / ".venv")
    done = stack.run(*command.split())
    assert done.returncode == 0, done.stderr
    assert "Successfully installed torch-9.9.0 trainer-1.2" in done.stdout


def test_wheel_with_another_hash_is_not_installed(stack: SmallStack) -> None:
    stack.write("requirements")
    write_wheel(stack.wheels, "trainer", "1.2", files={"trainer/more.py": b"evil = True\n"})
    assert stack.run(UV, "venv", "--python", PYTHON, ".venv").returncode == 0
    done = stack.run(
        UV, "pip", "sync", "--require-hashes", "--python", ".venv/bin/python", "requirements.txt", "--no-index"
    )
    assert done.returncode != 0
    assert "hash" in done.stderr.lower()


def test_header_of_a_partial_lock_installs_the_other_packages_first(tmp_path: Path) -> None:
    profile, file = read_profile("gh200"), read_lock(lock_folder("gh200") / "aarch64-3.12.txt")
    assert file
    without = ("torch", "torchaudio", "torchvision")
    packages = tuple(package for package in file.packages if package.name not in without)
    text = export(profile, msgspec.structs.replace(file, without=without, packages=packages), "requirements").text
    first, second = (line for line in text.splitlines() if line.startswith("#   uv pip install"))
    assert first.endswith("--torch-backend cu129 torch==2.8.0 torchaudio torchvision")
    assert second.endswith("--no-deps --require-hashes -r requirements.txt")
    # Run the same two commands with small wheels and without the PyTorch index, which tests cannot reach.
    stack = SmallStack(tmp_path)
    partial = msgspec.structs.replace(
        stack.lock,
        without=("torch",),
        backend="cpu",
        packages=tuple(p for p in stack.lock.packages if p.name != "torch"),
    )
    text = stack.write("requirements", lock=partial).read_text()
    for line in text.splitlines():
        if line.startswith("#   uv "):
            done = stack.run(*line.removeprefix("#   ").replace(" --torch-backend cpu", "").split())
            assert done.returncode == 0, done.stderr


# The script


def test_script_installs_and_prints_the_torch_version(stack: SmallStack) -> None:
    path = stack.write("script")
    done = stack.run("bash", path, "new folder")
    assert done.returncode == 0, done.stderr
    assert "torch 9.9.0 None" in done.stdout
    venv = stack.folder / "new folder"
    sourced = stack.run("bash", "-c", f". '{venv}/environment.sh'; printf %s \"$OMP_NUM_THREADS\"")
    assert sourced.stdout == "1"
    repeated = stack.run("bash", path, "new folder")
    assert (repeated.returncode, repeated.stderr) == (
        1,
        f"stop: {venv} already exists; use another directory: bash {path} DIR\n",
    )


def test_script_works_without_uv(stack: SmallStack) -> None:
    done = stack.run("bash", stack.write("script"), PATH=stack.path_without_uv())
    assert done.returncode == 0, done.stderr
    assert "Successfully installed torch-9.9.0 trainer-1.2" in done.stdout


def test_script_removes_an_incomplete_environment(stack: SmallStack) -> None:
    shutil.rmtree(stack.wheels)
    stack.wheels.mkdir()
    done = stack.run("bash", stack.write("script"))
    assert done.returncode != 0
    assert "the incomplete" in done.stderr
    assert not (stack.folder / ".venv").exists()


def test_script_removes_the_environment_after_sigterm(stack: SmallStack) -> None:
    path = stack.write("script")
    tools = stack.folder / "tools"
    tools.mkdir()
    # A uv that creates the folder and sends SIGTERM to its caller, as when a terminal is closed.
    (tools / "uv").write_text(
        "#!/bin/sh\n[ $1 = venv ] || exit 3\nfor last; do :; done\nmkdir $last\nkill -TERM $PPID\n"
    )
    (tools / "uv").chmod(0o755)
    done = stack.run("bash", path, PATH=f"{tools}:/usr/bin:/bin")
    assert done.returncode == 143
    assert not (stack.folder / ".venv").exists()


def test_script_rejects_another_build_of_torch(tmp_path: Path) -> None:
    files = {"torch/__init__.py": TORCH["torch/__init__.py"], "torch/version.py": b"cuda = '13.0'\n"}
    stack = SmallStack(tmp_path, files=files)
    done = stack.run("bash", stack.write("script"))
    assert done.returncode == 1
    assert "not the locked torch" in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_script_uses_the_pytorch_index_for_a_local_version_of_torch(tmp_path: Path) -> None:
    stack = SmallStack(tmp_path, torch="9.9.0+cpu")
    path = stack.write("script")
    assert stack.run("bash", path, TORCH_BACKEND="").returncode == 0
    assert stack.run("bash", path, "second").returncode == 0  # offline, uv uses the wheel in the folder
    without_uv = stack.run("bash", path, "third", PATH=_path_with_python_as(stack.folder, f"python{PYTHON}"))
    assert without_uv.returncode == 1
    assert without_uv.stderr == "stop: without uv, PYTORCH_INDEX must contain the URL of the PyTorch index for cpu\n"


def _path_with_python_as(folder: Path, *names: str) -> str:
    """A PATH with symlinks of these names to the Python of the tests, without uv."""
    tools = folder / "only"
    tools.mkdir(exist_ok=True)
    for name in names:
        (tools / name).symlink_to(os.path.realpath(sys.executable))
    return f"{tools}:/usr/bin:/bin"


def _write_tool(folder: Path, name: str, output: str) -> None:
    """A program that prints a fixed text."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\nprintf '%s\\n' '{output}'\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("tool", "output", "message"),
    [
        ("uname", "riscv64", "this machine is riscv64; the wheels are for x86_64"),
        ("getconf", "glibc 2.17", "glibc is 2.17; the wheels need 2.31 or newer"),
        ("getconf", "", "no glibc (getconf GNU_LIBC_VERSION prints nothing); the wheels need 2.31 or newer"),
        ("nvidia-smi", "470.82.01", "the NVIDIA driver is 470.82.01; CUDA 12.8 needs 525.60.13 or newer"),
        ("nvidia-smi", "NVIDIA-SMI has failed", "no NVIDIA driver found"),
        ("df", "x\nfs 1 1 1024 1% /", "has 0 GiB free; 20 GiB are needed"),
    ],
)
def test_script_checks_the_machine_before_it_writes(tmp_path: Path, tool: str, output: str, message: str) -> None:
    if output.startswith("NVIDIA-SMI") and Path("/proc/driver/nvidia/version").exists():
        pytest.skip("this machine has an NVIDIA driver")
    profile, file = read_profile("x86-cu128-vllm"), read_lock(lock_folder("x86-cu128-vllm") / "x86_64-3.12.txt")
    assert file
    path = tmp_path / "install.sh"
    path.write_text(export(profile, file, "script").text)
    outputs = {"uname": "x86_64", "getconf": "glibc 2.35", "nvidia-smi": "550.54.15", "uv": "must not run"}
    for name, text in (outputs | {tool: output}).items():
        _write_tool(tmp_path / "tools", name, text)
    done = subprocess.run(
        ["bash", path], cwd=tmp_path, capture_output=True, text=True, timeout=20, check=False,
        env={"PATH": f"{tmp_path / 'tools'}:/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode == 1
    assert message in done.stderr
    assert "must not run" not in done.stdout
    assert sorted(p.name for p in tmp_path.iterdir()) == ["install.sh", "tools"]


@pytest.mark.parametrize(("profile", "file"), COMPLETE)
def test_script_is_valid_bash(profile: Profile, file: Lock) -> None:
    done = subprocess.run(
        ["bash", "-n"], input=export(profile, file, "script").text, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


# Profiles with hostile values


def test_hostile_variable_is_quoted_in_the_script(stack: SmallStack) -> None:
    profile = with_environment(stack.profile, OMP_NUM_THREADS=HOSTILE)
    profile = msgspec.structs.replace(profile, title=HOSTILE, summary=HOSTILE)
    done = stack.run("bash", stack.write("script", profile))
    assert done.returncode == 0, done.stderr
    sourced = stack.run("bash", "-c", '. .venv/environment.sh; printf "%s" "$OMP_NUM_THREADS"')
    assert sourced.stdout == HOSTILE
    assert not list(stack.folder.rglob("pwned"))


def test_hostile_title_stays_in_a_comment(stack: SmallStack) -> None:
    profile = msgspec.structs.replace(with_environment(stack.profile), title=HOSTILE + "\r\x0b\x85\u2028USER root")
    for form in FORMS:
        if form == "pylock":
            continue
        plain = msgspec.structs.replace(profile, title="plain")
        lines, expected = (export(p, stack.lock, form).text.split("\n") for p in (profile, plain))
        assert len(lines) == len(expected)
        different = [line for line, other in zip(lines, expected, strict=True) if line != other]
        assert len(different) == 1
        assert different[0].startswith("# Profile mine: ")
        assert different[0].isprintable()


def test_hostile_requirement_is_one_argument_in_the_header(stack: SmallStack) -> None:
    spec = 'torch; sys_platform != "$(touch pwned)`touch pwned`; touch pwned"'
    profile = msgspec.structs.replace(stack.profile, requirements=(Pin(spec),))
    partial = msgspec.structs.replace(stack.lock, without=("torch",), backend="cpu", packages=stack.lock.packages[1:])
    text = export(profile, partial, "requirements").text
    (command,) = (line for line in text.splitlines() if line.startswith("#   uv pip") and "torch;" in line)
    done = stack.run("bash", "-c", command.replace("#   uv ", "printf '%s\n' "))
    assert done.stdout.splitlines()[-1] == str(Requirement(spec))
    assert not list(stack.folder.rglob("pwned"))
    assert tomllib.loads(export(profile, partial, "uv-project").text)["project"]["dependencies"] == [
        str(Requirement(spec))
    ]


@pytest.mark.parametrize("form", ["dockerfile", "apptainer", "conda"])
def test_values_that_a_form_cannot_quote_are_errors(stack: SmallStack, form: str) -> None:
    with pytest.raises(BadInput, match="OMP_NUM_THREADS"):
        export(with_environment(stack.profile, OMP_NUM_THREADS=HOSTILE), stack.lock, form)
    exported = export(with_environment(stack.profile, OMP_NUM_THREADS="/data/run 1, a=b"), stack.lock, form)
    assert "/data/run 1, a=b" in exported.text


def test_apptainer_templates_in_values_are_errors(stack: SmallStack) -> None:
    with pytest.raises(BadInput, match="OMP_NUM_THREADS"):
        export(with_environment(stack.profile, OMP_NUM_THREADS="{{ x }}"), stack.lock, "apptainer")


def test_hostile_line_is_one_value_in_images(stack: SmallStack) -> None:
    profile = with_environment(stack.profile, OMP_NUM_THREADS=ONE_LINE)
    (line,) = [
        x for x in export(profile, stack.lock, "dockerfile").text.splitlines() if x.startswith("ENV OMP_NUM_THREADS=")
    ]
    assert docker_words(line.removeprefix("ENV OMP_NUM_THREADS=")) == ONE_LINE
    definition = export(profile, stack.lock, "apptainer").text
    section = definition.partition("%environment\n")[2].partition("\n%test")[0]
    done = stack.run("sh", "-c", f'{section}\n/usr/bin/printf "%s" "$OMP_NUM_THREADS"')
    assert done.stdout == ONE_LINE
    assert not list(stack.folder.rglob("pwned"))


@given(st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=("Cs",))))
def test_quoted_text_is_parsed_to_the_same_text(text: str) -> None:
    assert tomllib.loads(f"a = {quote(text)}")["a"] == text
    assert "\n" not in quote(text)
    assert docker_words(docker_value(text)) == text


DANGEROUS_VARIABLES = (
    "LD_PRELOAD", "BASH_ENV", "PATH", "PIP_INDEX_URL", "UV_INDEX", "PROMPT_COMMAND", "PS1", "PYTHONSTARTUP",
    "https_proxy", "a b", "x;y",
)  # fmt: skip


@pytest.mark.parametrize("name", DANGEROUS_VARIABLES)
@pytest.mark.parametrize("form", FORMS)
def test_variables_that_change_programs_are_errors(stack: SmallStack, form: str, name: str) -> None:
    with pytest.raises(BadInput, match="environment"):
        export(with_environment(stack.profile, **{name: "x"}), stack.lock, form)


@pytest.mark.parametrize(
    ("field", "value"),
    [("platform", "x86_64-manylinux_2_17; rm"), ("python", "3.12\nRUN x"), ("backend", "$(x)"), ("made", "now`x`"),
     ("torch_build", "cpu\n"), ("without", ("a b;",)), ("packages", (Package("x y", "1\nLOCK", "", "0" * 64, ""),))],
)  # fmt: skip
def test_hostile_locks_are_errors(stack: SmallStack, field: str, value: object) -> None:
    for form in FORMS:
        with pytest.raises(EnvdoctorError):
            export(stack.profile, msgspec.structs.replace(stack.lock, **{field: value}), form)


@pytest.mark.parametrize("disk", [float("nan"), float("inf"), -1.0, 1e300])
def test_invalid_disk_sizes_are_errors(stack: SmallStack, disk: float) -> None:
    when = msgspec.structs.replace(stack.profile.when, disk_gb=disk)
    with pytest.raises(BadInput, match="disk_gb"):
        export(msgspec.structs.replace(stack.profile, when=when), stack.lock, "script")
