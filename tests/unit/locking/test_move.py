"""`envdoctor move`: with a folder of wheels for two architectures, and with the index for eight real locks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from support.command import envdoctor
from support.local_packages import write_wheel
from support.paths import ROOT
from support.sample_environments import (
    add_distribution,
    compile_with_fatbin,
    fatbin_container,
    fatbin_entry,
    make_venv,
)
from support.source_packages import write_sdist

from envdoctor.locking.lock_files import parse_lock

X86 = "cp312-cp312-manylinux_2_28_x86_64"
ARM = "cp312-cp312-manylinux_2_28_aarch64"
ANY = "py3-none-any"


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """An index: some wheels exist for one architecture only, and torch requires the CUDA runtime."""
    folder = tmp_path / "wheels"
    for version in ("1.0", "2.0"):
        write_wheel(folder, "pure", version, tag=ANY)
    write_wheel(folder, "both", "1.0", tag=X86)
    write_wheel(folder, "both", "1.0", tag=ARM)
    write_wheel(folder, "both", "3.0", tag=ARM)
    write_wheel(folder, "newer", "1.0", tag=X86)
    write_wheel(folder, "newer", "1.5", tag=ARM)
    write_wheel(folder, "older", "1.0", tag=ARM)
    write_wheel(folder, "older", "2.0", tag=X86)
    write_wheel(folder, "onlyx86", "1.0", tag=X86)
    for tag in (X86, ARM):
        requires = ["nvidia-cuda-runtime==13.0.96", "triton==3.6.0"]
        write_wheel(folder, "torch", "2.11.0", tag=tag, requires=requires)
        write_wheel(folder, "nvidia-cuda-runtime", "13.0.96", tag=tag)
        write_wheel(folder, "triton", "3.6.0", tag=tag)
    return folder


def move(source: Path, target: str, wheels: Path, home: Path, *words: str) -> tuple[dict[str, Any], int, str]:
    variables = {"PIP_FIND_LINKS": str(wheels), "PIP_NO_INDEX": "1", "UV_CACHE_DIR": str(home / "cache")}
    done = envdoctor("move", source, "--to", target, "--format", "json", *words, home=home, **variables)
    assert done.stdout, done.stderr
    document = json.loads(done.stdout)
    return document["data"], done.returncode, done.stderr


def requirements(folder: Path, *lines: str) -> Path:
    path = folder / "requirements.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_what_stays_changes_and_is_lost(wheels: Path, tmp_path: Path) -> None:
    source = requirements(
        tmp_path, "pure==1.0", "both==1.0", "newer==1.0", "older==2.0", "onlyx86==1.0", "torch==2.11.0"
    )
    output = tmp_path / "gh200.txt"
    data, code, _ = move(source, "gh200", wheels, tmp_path, "--output", str(output))
    moved = data["move"]
    assert (code, data["platform"], data["python"]) == (0, "aarch64-manylinux_2_35", "3.12")
    assert set(moved["kept"]) == {"pure", "both", "torch"}, "a newer release is not a reason to change"
    changed = {each["name"]: (each["before"], each["after"], each["why"]) for each in moved["changed"]}
    assert changed == {
        "newer": ("1.0", "1.5", "newer 1.0 has no wheel for aarch64 and Python 3.12"),
        "older": ("2.0", "1.0", "older 2.0 has no wheel for aarch64 and Python 3.12"),
    }
    assert [(each["name"], each["why"]) for each in moved["lost"]] == [
        ("onlyx86", "no release has a wheel for aarch64 and Python 3.12")
    ]
    assert (moved["torch_before"], moved["torch_after"]) == ("2.11.0 for CUDA 13.0", "2.11.0 for CUDA 13.0")
    assert data["code"][0]["name"] == "torch 2.11.0"
    assert data["code"][0]["state"] == "native"
    lock = parse_lock(output.read_text(), where="test")
    assert (lock.architecture, lock.torch_build, lock.version_of("newer")) == ("aarch64", "13.0", "1.5")
    assert all(package.sha256 for package in lock.packages)
    assert "--require-hashes" in data["install"][1]
    assert str(output) in data["install"][1]


def test_the_new_lock_can_be_moved_back(wheels: Path, tmp_path: Path) -> None:
    source, output = requirements(tmp_path, "pure==1.0", "both==1.0", "torch==2.11.0"), tmp_path / "gh200.txt"
    move(source, "gh200", wheels, tmp_path, "--output", str(output))
    data, code, _ = move(output, "h100", wheels, tmp_path)
    assert (code, data["kind"], data["platform"].partition("-")[0]) == (0, "lock", "x86_64")
    assert set(data["move"]["kept"]) == {"pure", "both", "torch", "nvidia-cuda-runtime", "triton"}
    assert (data["move"]["changed"], data["move"]["lost"]) == ([], [])


def test_a_dependency_without_a_wheel_is_compiled(wheels: Path, tmp_path: Path) -> None:
    write_sdist(wheels, "sourceonly", "1.0")
    write_wheel(wheels, "needs", "1.0", tag=ANY, requires=["sourceonly==1.0"])
    source = requirements(tmp_path, "needs==1.0", "sourceonly==1.0")
    output = tmp_path / "lock.txt"
    data, code, _ = move(source, "gh200", wheels, tmp_path, "--output", str(output))
    assert (code, data["move"]["lost"]) == (0, [])
    assert [package.name for package in parse_lock(output.read_text(), where="test").built] == ["sourceonly"]
    assert any("--no-binary sourceonly" in line for line in data["install"])


def test_an_environment_is_moved(wheels: Path, tmp_path: Path) -> None:
    uv = Path(sys.executable).with_name("uv")
    venv, cache = tmp_path / "venv", tmp_path / "cache"
    offline = os.environ | {"UV_CACHE_DIR": str(cache), "UV_NO_CONFIG": "1"}
    subprocess.run([uv, "venv", "-q", "--python", sys.executable, venv], check=True, env=offline)
    command = [uv, "pip", "install", "-q", "--python", venv / "bin/python", "--no-index", "--find-links", wheels]
    subprocess.run([*command, "pure==1.0"], check=True, env=offline)
    data, code, _ = move(venv, "b200", wheels, tmp_path)
    assert (code, data["kind"], data["move"]["kept"]) == (0, "environment", ["pure"])
    assert data["python"] == f"{sys.version_info[0]}.{sys.version_info[1]}"


def test_the_code_of_each_kept_file_is_judged_for_the_new_gpu(wheels: Path, tmp_path: Path) -> None:
    """Files of an environment that stays on its architecture: native code of sm_80 and PTX of compute_80."""
    site = make_venv(tmp_path / "venv")
    for name, entries in {
        "native": [fatbin_entry(2, 80)],
        "compiled": [fatbin_entry(2, 80), fatbin_entry(1, 80)],
    }.items():
        compile_with_fatbin(site / f"{name}/_C.so", fatbin_container(*entries))
        add_distribution(site, name, "1.0", files=(f"{name}/_C.so",))
        write_wheel(wheels, name, "1.0", tag=ANY)
    states = {}
    for gpu in ("a100-80gb", "b200"):
        data, code, _ = move(tmp_path / "venv", gpu, wheels, tmp_path)
        assert (code, set(data["move"]["kept"])) == (0, {"native", "compiled"})
        states[gpu] = {each["name"]: (each["state"], each["detail"]) for each in data["code"]}
    assert states == {
        "a100-80gb": {
            "compiled: compiled/_C.so": ("native", "sm_80 compute_80"), "native: native/_C.so": ("native", "sm_80"),
        },
        "b200": {"compiled: compiled/_C.so": ("ptx", "sm_80 compute_80"), "native: native/_C.so": ("none", "sm_80")},
    }  # fmt: skip


def test_a_guide_is_moved(wheels: Path, tmp_path: Path) -> None:
    guide = tmp_path / "SETUP.md"
    guide.write_text("# Setup\n```bash\nuv venv --python 3.12\nuv pip install torch==2.11.0 'both<3'\n```\n")
    data, code, _ = move(guide, "gb10", wheels, tmp_path)
    versions = {package["name"]: package["version"] for package in data["move"]["lock"]["packages"]}
    assert (code, data["kind"], versions["both"]) == (0, "guide", "1.0")


def test_a_gpu_without_a_build(wheels: Path, tmp_path: Path) -> None:
    source = requirements(tmp_path, "torch==2.11.0")
    data, code, _ = move(source, "v100", wheels, tmp_path, "--driver", "450.80.02")
    assert (code, data["move"]["lock"], data["install"]) == (1, None, [])
    assert "no build of torch" in data["move"]["reason"]


def test_a_conflict_has_no_lock(wheels: Path, tmp_path: Path) -> None:
    write_wheel(wheels, "strict", "1.0", tag=ANY, requires=["pure==1.0"])
    data, code, _ = move(requirements(tmp_path, "strict==1.0", "pure==2.0"), "gh200", wheels, tmp_path)
    assert (code, data["move"]["lock"]) == (1, None)
    assert "strict" in data["move"]["reason"]


def test_an_unreachable_index_decides_nothing(tmp_path: Path) -> None:
    index = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "UV_CACHE_DIR": str(tmp_path / "cache")}
    words = ("move", requirements(tmp_path, "absent==1.0"), "--to", "gh200")
    done = envdoctor(*words, home=tmp_path, **index)
    assert done.returncode == 3, done.stdout + done.stderr
    assert done.stdout.startswith("? ")
    assert "has no solution" not in done.stdout


def test_other_inputs_are_rejected(wheels: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    source = requirements(tmp_path, "pure==1.0")
    for words in (
        [tmp_path / "empty", "--to", "gh200"], [tmp_path / "missing.txt", "--to", "gh200"], [source, "--to", "h9000"],
        [source, "--to", "gh200", "--python", "3"], [source, "--to", "gh200", "--driver", "new"],
    ):  # fmt: skip
        done = envdoctor("move", *words, home=tmp_path)
        assert (done.returncode, "hint: " in done.stderr) == (2, True), words


# Locks of the bundled profiles, with the package index.

LOCKS = (
    "x86-cu128-vllm/x86_64-3.11", "x86-cu128-vllm/x86_64-3.12", "x86-cu130/x86_64-3.12", "x86-cu130/x86_64-3.13",
    "x86-cu130-torch213/x86_64-3.12", "x86-cu124-hf/x86_64-3.12", "x86-trl027-vllm/x86_64-3.12",
    "verl-8gpu/x86_64-3.12",
)  # fmt: skip


@pytest.mark.network
@pytest.mark.parametrize("name", LOCKS)
def test_a_real_lock_moves_to_aarch64(name: str, tmp_path: Path) -> None:
    source = ROOT / "profiles/locks" / f"{name}.txt"
    before = parse_lock(source.read_text(), where=name)
    output = tmp_path / "moved.txt"
    variables = {"PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull}
    done = envdoctor(
        "move", source, "--to", "gh200", "--output", output, "--format", "json", home=tmp_path, **variables
    )
    moved = json.loads(done.stdout)["data"]["move"]
    lock = parse_lock(output.read_text(), where="moved")
    assert lock.architecture == "aarch64"
    torch = before.version_of("torch").partition("+")[0]
    assert moved["torch_after"].startswith(f"{torch} for CUDA ")
    # A partial lock, where the PyTorch index is not reachable, leaves only torch and its family out.
    assert set(lock.without) <= {"torch", "torchvision", "torchaudio", "triton"}
    assert done.returncode == (1 if lock.without else 0)
    assert {each["name"] for each in moved["lost"]} <= {"xformers"}
    names = {
        package.name for package in before.packages if not package.name.startswith(("nvidia-", "triton", "cuda-"))
    }
    kept = names & set(moved["kept"])
    assert len(kept) >= len(names) - 3, sorted(names - kept)
    for package in lock.packages:
        assert package.sha256
    assert tomllib.loads(f'lock = "{lock.digest}"')["lock"]


@pytest.mark.network
def test_a_guide_moves_with_the_releases_of_its_period(tmp_path: Path) -> None:
    guide = tmp_path / "SETUP.md"
    pins = "torch==2.8.0 vllm==0.10.2 transformers==4.57.1 trl==0.23.1"
    guide.write_text(f"# Setup\n```bash\nuv venv --python 3.12\nuv pip install {pins}\n```\n")
    output = tmp_path / "moved.txt"
    variables = {"PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull}
    done = envdoctor(
        "move", guide, "--to", "gh200", "--output", output, "--format", "json", home=tmp_path, **variables
    )
    moved = json.loads(done.stdout)["data"]["move"]
    assert moved["exclude_newer"].startswith("2025-1")
    lock = parse_lock(output.read_text(), where="moved")
    assert lock.version_of("transformers") == "4.57.1"
    assert lock.version_of("openai").startswith("2."), "not a release of today"
    assert moved["changed"] == []
