"""Exported forms: installed for real by uv, pip and bash; and what a stranger's profile may not do."""

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
from export_stack import BUNDLED, TORCH, UV, WHOLE, Tiny, docker_words, with_environment
from hypothesis import given
from hypothesis import strategies as st
from local_packages import PYTHON, write_wheel
from packaging.requirements import Requirement

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
def tiny(tmp_path: Path) -> Tiny:
    return Tiny(tmp_path)


# Every bundled profile


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("profile", "file"), BUNDLED)
def test_every_bundled_lock_is_exported_or_refused_with_the_way_out(profile: Profile, file: Lock, form: str) -> None:
    whole = not file.without
    impossible = form == "pylock" or (form == "conda" and file.built)
    if impossible or not (whole or form in ("requirements", "uv-project")):
        with pytest.raises(BadInput) as refused:
            export(profile, file, form)
        assert refused.value.hint == f"envdoctor export --profile {profile.id} --format requirements"
        return
    exported = export(profile, file, form)
    text = exported.text
    assert not ADDRESS.search(text)
    assert all(f"{package.name}=={package.version}" in text for package in file.packages)
    assert all(f"--no-binary {package.name} " in text for package in file.built) or form == "uv-project"
    assert bool(file.built) is any("compiled from source" in note for note in exported.notes)
    hashed = form != "uv-project"
    assert all((package.sha256 in text) is hashed for package in file.packages)
    assert whole or any("partial lock" in note for note in exported.notes)
    variables = [] if form == "uv-project" else list(profile.environment)
    assert all(name in text for name in variables)


def test_unknown_forms_and_locks_of_others_are_refused(tiny: Tiny) -> None:
    with pytest.raises(BadInput, match="did you mean 'dockerfile'"):
        export(tiny.profile, tiny.lock, "docker")
    with pytest.raises(BadInput, match="lock is for profile 'mine'"):
        export(read_profile("cpu"), tiny.lock, "script")
    with pytest.raises(BadInput, match=r"lock is for profile 'mine' with torch for 12\.8"):
        export(tiny.profile, msgspec.structs.replace(tiny.lock, torch_build="12.8"), "script")


# Installed for real


def test_the_requirements_install_with_uv_as_their_heading_says(tiny: Tiny) -> None:
    text = tiny.write("requirements").read_text()
    commands = [line.removeprefix("#   ") for line in text.splitlines() if line.startswith("#   uv ")]
    assert len(commands) == 2
    for command in commands:
        done = tiny.run(*command.split())
        assert done.returncode == 0, done.stderr
    done = tiny.run(tiny.folder / ".venv/bin/python", "-c", "import torch, trainer; print(torch.__version__)")
    assert done.stdout == "9.9.0\n"


def test_the_requirements_install_with_pip_as_their_heading_says(tiny: Tiny) -> None:
    text = tiny.write("requirements").read_text()
    (command,) = [line.removeprefix("#   ") for line in text.splitlines() if " -m pip " in line]
    assert tiny.run(sys.executable, "-m", "venv", ".venv").returncode == 0
    done = tiny.run(*command.split())
    assert done.returncode == 0, done.stderr
    assert "Successfully installed torch-9.9.0 trainer-1.2" in done.stdout


def test_another_wheel_under_the_same_name_is_not_installed(tiny: Tiny) -> None:
    tiny.write("requirements")
    write_wheel(tiny.wheels, "trainer", "1.2", files={"trainer/more.py": b"evil = True\n"})
    assert tiny.run(UV, "venv", "--python", PYTHON, ".venv").returncode == 0
    done = tiny.run(
        UV, "pip", "sync", "--require-hashes", "--python", ".venv/bin/python", "requirements.txt", "--no-index"
    )
    assert done.returncode != 0
    assert "hash" in done.stderr.lower()


def test_a_part_says_how_the_rest_comes_first(tmp_path: Path) -> None:
    profile, file = read_profile("gh200"), read_lock(lock_folder("gh200") / "aarch64-3.12.txt")
    assert file
    away = ("torch", "torchaudio", "torchvision")
    kept = tuple(package for package in file.packages if package.name not in away)
    text = export(profile, msgspec.structs.replace(file, without=away, packages=kept), "requirements").text
    first, second = (line for line in text.splitlines() if line.startswith("#   uv pip install"))
    assert first.endswith("--torch-backend cu129 torch==2.8.0 torchaudio torchvision")
    assert second.endswith("--no-deps --require-hashes -r requirements.txt")
    # The same two commands, with small wheels and without the index that cannot be reached here.
    tiny = Tiny(tmp_path)
    part = msgspec.structs.replace(
        tiny.lock,
        without=("torch",),
        backend="cpu",
        packages=tuple(p for p in tiny.lock.packages if p.name != "torch"),
    )
    text = tiny.write("requirements", lock=part).read_text()
    for line in text.splitlines():
        if line.startswith("#   uv "):
            done = tiny.run(*line.removeprefix("#   ").replace(" --torch-backend cpu", "").split())
            assert done.returncode == 0, done.stderr


# The script


def test_the_script_installs_and_shows_what_is_there(tiny: Tiny) -> None:
    path = tiny.write("script")
    done = tiny.run("bash", path, "made here")
    assert done.returncode == 0, done.stderr
    assert "torch 9.9.0 None" in done.stdout
    venv = tiny.folder / "made here"
    sourced = tiny.run("bash", "-c", f". '{venv}/environment.sh'; printf %s \"$TRIAL\"")
    assert sourced.stdout == "1"
    again = tiny.run("bash", path, "made here")
    assert (again.returncode, again.stderr) == (
        1,
        f"stop: {venv} already exists; use another folder: bash {path} FOLDER\n",
    )


def test_the_script_works_without_uv(tiny: Tiny) -> None:
    path = tiny.write("script")
    tools = tiny.folder / "tools"
    tools.mkdir()
    (tools / f"python{PYTHON}").symlink_to(os.path.realpath(sys.executable))
    done = tiny.run("bash", path, PATH=f"{tools}:/usr/bin:/bin")
    assert done.returncode == 0, done.stderr
    assert "Successfully installed torch-9.9.0 trainer-1.2" in done.stdout


def test_nothing_half_made_stays(tiny: Tiny) -> None:
    shutil.rmtree(tiny.wheels)
    tiny.wheels.mkdir()
    done = tiny.run("bash", tiny.write("script"))
    assert done.returncode != 0
    assert "the incomplete" in done.stderr
    assert not (tiny.folder / ".venv").exists()


def test_a_script_that_is_stopped_takes_away_what_it_began(tiny: Tiny) -> None:
    path = tiny.write("script")
    tools = tiny.folder / "tools"
    tools.mkdir()
    # A uv that makes the folder and then is interrupted with its caller, as a closed terminal does.
    (tools / "uv").write_text(
        "#!/bin/sh\n[ $1 = venv ] || exit 3\nfor last; do :; done\nmkdir $last\nkill -TERM $PPID\n"
    )
    (tools / "uv").chmod(0o755)
    done = tiny.run("bash", path, PATH=f"{tools}:/usr/bin:/bin")
    assert done.returncode == 143
    assert not (tiny.folder / ".venv").exists()


def test_another_build_of_torch_is_not_taken_for_the_locks(tmp_path: Path) -> None:
    wrong = {"torch/__init__.py": TORCH["torch/__init__.py"], "torch/version.py": b"cuda = '13.0'\n"}
    tiny = Tiny(tmp_path, files=wrong)
    done = tiny.run("bash", tiny.write("script"))
    assert done.returncode == 1
    assert "not the locked torch" in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_a_marked_torch_is_asked_of_the_pytorch_index_unless_it_is_declined(tmp_path: Path) -> None:
    tiny = Tiny(tmp_path, torch="9.9.0+cpu")
    path = tiny.write("script")
    assert tiny.run("bash", path, TORCH_BACKEND="").returncode == 0
    assert tiny.run("bash", path, "second").returncode == 0  # uv, told to stay offline, takes the folder's
    bare = tiny.run("bash", path, "third", PATH=_only(tiny.folder, f"python{PYTHON}"))
    assert bare.returncode == 1
    assert bare.stderr == "stop: without uv, PYTORCH_INDEX must contain the URL of the PyTorch index for cpu\n"


def _only(folder: Path, *names: str) -> str:
    tools = folder / "only"
    tools.mkdir(exist_ok=True)
    for name in names:
        (tools / name).symlink_to(os.path.realpath(sys.executable))
    return f"{tools}:/usr/bin:/bin"


def _tool(folder: Path, name: str, output: str) -> None:
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
def test_the_script_looks_at_the_machine_before_it_writes(
    tmp_path: Path, tool: str, output: str, message: str
) -> None:
    if output.startswith("NVIDIA-SMI") and Path("/proc/driver/nvidia/version").exists():
        pytest.skip("a driver is loaded here")
    profile, file = read_profile("x86-cu128-vllm"), read_lock(lock_folder("x86-cu128-vllm") / "x86_64-3.12.txt")
    assert file
    path = tmp_path / "install.sh"
    path.write_text(export(profile, file, "script").text)
    machine = {"uname": "x86_64", "getconf": "glibc 2.35", "nvidia-smi": "550.54.15", "uv": "must not run"}
    for name, answer in (machine | {tool: output}).items():
        _tool(tmp_path / "tools", name, answer)
    done = subprocess.run(
        ["bash", path], cwd=tmp_path, capture_output=True, text=True, timeout=20, check=False,
        env={"PATH": f"{tmp_path / 'tools'}:/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode == 1
    assert message in done.stderr
    assert "must not run" not in done.stdout
    assert sorted(p.name for p in tmp_path.iterdir()) == ["install.sh", "tools"]


@pytest.mark.parametrize(("profile", "file"), WHOLE)
def test_bash_reads_every_script(profile: Profile, file: Lock) -> None:
    done = subprocess.run(
        ["bash", "-n"], input=export(profile, file, "script").text, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


# Strangers' profiles


def test_a_hostile_value_is_only_a_value_to_the_script(tiny: Tiny) -> None:
    profile = with_environment(tiny.profile, TRIAL=HOSTILE)
    profile = msgspec.structs.replace(profile, title=HOSTILE, summary=HOSTILE)
    done = tiny.run("bash", tiny.write("script", profile))
    assert done.returncode == 0, done.stderr
    read = tiny.run("bash", "-c", '. .venv/environment.sh; printf "%s" "$TRIAL"')
    assert read.stdout == HOSTILE
    assert not list(tiny.folder.rglob("pwned"))


def test_a_hostile_title_is_only_a_comment(tiny: Tiny) -> None:
    profile = msgspec.structs.replace(with_environment(tiny.profile), title=HOSTILE + "\r\x0b\x85\u2028USER root")
    for form in FORMS:
        if form == "pylock":
            continue
        plain = msgspec.structs.replace(profile, title="plain")
        lines, expected = (export(p, tiny.lock, form).text.split("\n") for p in (profile, plain))
        assert len(lines) == len(expected)
        different = [line for line, other in zip(lines, expected, strict=True) if line != other]
        assert len(different) == 1
        assert different[0].startswith("# Profile mine: ")
        assert different[0].isprintable()


def test_a_hostile_requirement_is_one_word_of_the_heading(tiny: Tiny) -> None:
    spec = 'torch; sys_platform != "$(touch pwned)`touch pwned`; touch pwned"'
    profile = msgspec.structs.replace(tiny.profile, requirements=(Pin(spec),))
    part = msgspec.structs.replace(tiny.lock, without=("torch",), backend="cpu", packages=tiny.lock.packages[1:])
    text = export(profile, part, "requirements").text
    (words,) = (line for line in text.splitlines() if line.startswith("#   uv pip") and "torch;" in line)
    done = tiny.run("bash", "-c", words.replace("#   uv ", "printf '%s\n' "))
    assert done.stdout.splitlines()[-1] == str(Requirement(spec))
    assert not list(tiny.folder.rglob("pwned"))
    assert tomllib.loads(export(profile, part, "uv-project").text)["project"]["dependencies"] == [
        str(Requirement(spec))
    ]


@pytest.mark.parametrize("form", ["dockerfile", "apptainer", "conda"])
def test_what_a_form_cannot_quote_is_refused(tiny: Tiny, form: str) -> None:
    with pytest.raises(BadInput, match="TRIAL"):
        export(with_environment(tiny.profile, TRIAL=HOSTILE), tiny.lock, form)
    exported = export(with_environment(tiny.profile, TRIAL="/data/run 1, a=b"), tiny.lock, form)
    assert "/data/run 1, a=b" in exported.text


def test_apptainers_own_templates_are_refused(tiny: Tiny) -> None:
    with pytest.raises(BadInput, match="TRIAL"):
        export(with_environment(tiny.profile, TRIAL="{{ x }}"), tiny.lock, "apptainer")


def test_a_hostile_line_stays_one_value_in_images(tiny: Tiny) -> None:
    profile = with_environment(tiny.profile, TRIAL=ONE_LINE)
    (line,) = [x for x in export(profile, tiny.lock, "dockerfile").text.splitlines() if x.startswith("ENV TRIAL=")]
    assert docker_words(line.removeprefix("ENV TRIAL=")) == ONE_LINE
    definition = export(profile, tiny.lock, "apptainer").text
    section = definition.partition("%environment\n")[2].partition("\n%test")[0]
    done = tiny.run("sh", "-c", f'{section}\n/usr/bin/printf "%s" "$TRIAL"')
    assert done.stdout == ONE_LINE
    assert not list(tiny.folder.rglob("pwned"))


@given(st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=("Cs",))))
def test_quoted_texts_read_back(text: str) -> None:
    assert tomllib.loads(f"a = {quote(text)}")["a"] == text
    assert "\n" not in quote(text)
    assert docker_words(docker_value(text)) == text


STEERING = ("LD_PRELOAD", "BASH_ENV", "PATH", "PIP_INDEX_URL", "UV_INDEX", "PROMPT_COMMAND", "PS1", "PYTHONSTARTUP",
            "https_proxy", "a b", "x;y")  # fmt: skip


@pytest.mark.parametrize("name", STEERING)
@pytest.mark.parametrize("form", FORMS)
def test_variables_that_steer_programs_are_refused(tiny: Tiny, form: str, name: str) -> None:
    with pytest.raises(BadInput, match="environment"):
        export(with_environment(tiny.profile, **{name: "x"}), tiny.lock, form)


@pytest.mark.parametrize(
    ("field", "value"),
    [("platform", "x86_64-manylinux_2_17; rm"), ("python", "3.12\nRUN x"), ("backend", "$(x)"), ("made", "now`x`"),
     ("torch_build", "cpu\n"), ("without", ("a b;",)), ("packages", (Package("x y", "1\nLOCK", "", "0" * 64, ""),))],
)  # fmt: skip
def test_hostile_locks_are_refused(tiny: Tiny, field: str, value: object) -> None:
    for form in FORMS:
        with pytest.raises(EnvdoctorError):
            export(tiny.profile, msgspec.structs.replace(tiny.lock, **{field: value}), form)


@pytest.mark.parametrize("disk", [float("nan"), float("inf"), -1.0, 1e300])
def test_impossible_disks_are_refused(tiny: Tiny, disk: float) -> None:
    when = msgspec.structs.replace(tiny.profile.when, disk_gb=disk)
    with pytest.raises(BadInput, match="disk_gb"):
        export(msgspec.structs.replace(tiny.profile, when=when), tiny.lock, "script")
