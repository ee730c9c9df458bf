"""Lock files: format, comparison with profiles, audit, and the matrix of profiles and machines."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement
from support.command import envdoctor, envelope
from support.install_place import add_known_interpreters
from support.local_packages import write_cpu_torch, write_profile, write_wheel
from support.pip import pip

from envdoctor.core.errors import BadInput
from envdoctor.download.sources import Sources
from envdoctor.knowledge.tables import read_table
from envdoctor.knowledge.torch_builds import published_requires, published_wheels
from envdoctor.locking import lock_files as locks
from envdoctor.locking.audit import audit_lock, audit_messages
from envdoctor.locking.lock import Lock, Package, Target, lock_changes
from envdoctor.locking.lock_files import LOCK_SOURCE
from envdoctor.locking.torch_index import resolve_published
from envdoctor.locking.uv import find_uv
from envdoctor.profiles import Pin, read_profile, read_profiles

HASH = "ab" * 32


def lock_of(**versions: str) -> Lock:
    packages = tuple(
        Package(name.replace("_", "-"), v, "", HASH, LOCK_SOURCE) for name, v in sorted(versions.items())
    )
    return Lock(
        profile="mine",
        platform="x86_64-manylinux_2_31",
        python="3.12",
        backend="",
        torch_build="12.8",
        made="2026-11-21",
        packages=packages,
    )


def test_a_lock_round_trips() -> None:
    made = lock_of(torch="2.8.0", huggingface_hub="0.36.0")
    assert locks.parse_lock(locks.format_lock(made), where="x") == made
    partial = msgspec.structs.replace(made, without=("torchvision",), backend="cu129")
    assert locks.parse_lock(locks.format_lock(partial), where="x") == partial
    on_top = msgspec.structs.replace(lock_of(trl="1.16.0"), preinstalled=("numpy==2.1.3", "torch==2.11.0+cu128"))
    assert locks.parse_lock(locks.format_lock(on_top), where="x") == on_top
    assert on_top.versions == {"numpy": "2.1.3", "torch": "2.11.0+cu128", "trl": "1.16.0"}


def test_sizes_round_trip_and_do_not_change_the_digest() -> None:
    made = lock_of(torch="2.8.0", trl="0.23.1")
    sized = msgspec.structs.replace(
        made, packages=(msgspec.structs.replace(made.packages[0], size=888_073_632), made.packages[1])
    )
    text = locks.format_lock(sized)
    assert f"torch==2.8.0 --hash=sha256:{HASH} # 888073632\ntrl==0.23.1 --hash=sha256:{HASH}\n" in text
    assert locks.parse_lock(text, where="x") == sized
    assert sized.digest == made.digest
    assert (sized.download, made.download) == (0, 0)  # of one the size is not known
    assert lock_changes(made, sized) == []


def test_uv_and_pip_accept_a_lock_with_sizes(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / "wheels", "alpha", "1.0")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    file = tmp_path / "lock.txt"
    file.write_text(f"# profile: mine\nalpha==1.0 --hash=sha256:{digest} # {wheel.stat().st_size}\n")
    wheels = ["--no-index", "--find-links", tmp_path / "wheels", "--require-hashes", "--target"]
    add_known_interpreters(tmp_path / "cache")
    uv = [find_uv(), "pip", "install", "--python", sys.executable, *wheels, tmp_path / "uv", "-r", file]
    subprocess.run(uv, check=True, capture_output=True, env=os.environ | {"UV_CACHE_DIR": str(tmp_path / "cache")})
    has_pip = importlib.util.find_spec("pip")
    if has_pip:
        subprocess.run([*pip(), "install", *wheels, tmp_path / "pip", "-r", file], check=True, capture_output=True)
    for target in ("uv", "pip") if has_pip else ("uv",):
        assert (tmp_path / target / "alpha-1.0.dist-info").is_dir()


def test_a_lock_contains_no_url() -> None:
    for path in sorted(locks.lock_folder("cpu").parent.rglob("*.txt")):
        assert "://" not in path.read_text()


@pytest.mark.parametrize(
    "line", ["torch>=2", "torch @ https://x/y.whl", "--index-url https://x", "torch==2.8.0", "-e ."]
)
def test_an_invalid_line_is_refused_with_its_number(line: str) -> None:
    with pytest.raises(BadInput, match=r"line 8"):
        locks.parse_lock(locks.format_lock(lock_of(torch="2.8.0", trl="0.23.1")) + line + "\n", where="lock.txt")


@given(st.text(max_size=300))
def test_invalid_texts_are_refused(text: str) -> None:
    with pytest.raises(BadInput):
        locks.parse_lock(text, where="lock.txt")


def test_changes_are_listed_as_a_changelog() -> None:
    old, new = (
        lock_of(torch="2.8.0", xformers="0.0.32", trl="0.23.1"),
        lock_of(torch="2.9.0", ray="2.54.0", trl="0.23.1"),
    )
    assert lock_changes(old, new) == ["+ ray 2.54.0", "torch 2.8.0 -> 2.9.0", "- xformers 0.0.32"]
    assert lock_changes(None, lock_of(trl="1.0")) == ["+ trl 1.0"]


def test_a_lock_needs_a_new_enough_glibc() -> None:
    profile = read_profile("x86-cu128-vllm")
    assert locks.find_lock(profile.id, Target("x86_64", "2.35", ("3.12",)), "3.12")
    assert locks.find_lock(profile.id, Target("x86_64", "2.28", ("3.12",)), "3.12") is None
    assert locks.find_lock(profile.id, Target("aarch64", "2.35", ("3.12",)), "3.12") is None


def test_a_profile_is_pinned_to_the_locked_versions() -> None:
    pinned = locks.pin_to_lock(read_profile("x86-cu128-vllm"), lock_of(numpy="2.2.6", ray="2.54.0"))
    assert {"numpy==2.2.6", "ray==2.54.0"} <= {pin.spec for pin in pinned.constraints}


def test_contradicting_locked_versions_are_not_pinned() -> None:
    profile = msgspec.structs.replace(
        read_profile("x86-cu128-vllm"), requirements=(Pin("trl==1.0"),), constraints=(Pin("numpy<2"),)
    )
    pinned = locks.pin_to_lock(profile, lock_of(numpy="2.2.6", ray="2.54.0", trl="0.23.1", torch="2.8.0"))
    assert {pin.spec for pin in pinned.constraints} == {"numpy<2", "ray==2.54.0", "torch==2.8.0"}


def test_a_lock_for_aarch64_is_not_audited_with_requirements_of_x86_64() -> None:
    file = locks.read_lock(locks.lock_path("gh200", "aarch64", "3.12"))
    assert file
    assert list(audit_messages(file)) == []
    elsewhere = msgspec.structs.replace(file, platform="x86_64-manylinux_2_28")
    assert any("not installed: xformers==0.0.32.post1" in problem for problem in audit_messages(elsewhere))
    other = tuple(msgspec.structs.replace(p, version="2.9.0") if p.name == "torch" else p for p in file.packages)
    assert any("torch==2.8.0" in problem for problem in audit_messages(msgspec.structs.replace(file, packages=other)))


def test_incompatible_locked_versions_are_found() -> None:
    causes = {
        finding.cause
        for finding in audit_lock(lock_of(torch="2.9.0", vllm="0.10.2", transformers="5.23.0", trl="0.23.1"))
    }
    assert {"vllm-torch-mismatch", "transformers-too-new"} <= causes


def test_bundled_locks_are_coherent_with_profiles_and_rules(tmp_path: Path) -> None:
    done = envdoctor("lock", "--check", "--format", "json", home=tmp_path)
    data = envelope(done)
    assert done.returncode == 0, [result["problems"] for result in data["data"]["results"]]
    outcomes = {result["profile"]: result["outcome"] for result in data["data"]["results"]}
    assert outcomes.keys() == {profile.id for profile in read_profiles()}
    assert {result["outcome"] for result in data["data"]["results"]} == {"coherent"}
    with_download_size = {result["profile"] for result in data["data"]["results"] if result["download"]}
    assert with_download_size == outcomes.keys() - {"gh200"}  # the PyTorch index has no sizes


def test_the_matrix_needs_no_network(tmp_path: Path) -> None:
    done = envdoctor(
        "resolve", "--all", "--machine", "all", "--format", "json", home=tmp_path, HTTPS_PROXY="http://127.0.0.1:9"
    )
    cells = envelope(done)["data"]["cells"]
    assert done.returncode == 0
    chosen = {cell["machine"]: cell["profile"] for cell in cells if cell["chosen"]}
    assert chosen["h200"] == "x86-cu130"
    assert (chosen["cpu-2core"], chosen["t4"]) == ("cpu", "x86-cu128-torch210")
    assert all(cell["locked"] != "not locked" for cell in cells if cell["fits"])
    assert all(cell["why"] for cell in cells if not cell["fits"])


@pytest.mark.network
def test_locking_again_changes_nothing(tmp_path: Path) -> None:
    data = envelope(envdoctor("lock", "--profile", "x86-cu124-hf", "--format", "json", home=tmp_path))
    assert {result["outcome"] for result in data["data"]["results"]} == {"unchanged"}


# Locks of a user's own profile


class Own:
    """A user profile with one pure Python package, and its sources."""

    def __init__(self, folder: Path, name: str = "mine.toml") -> None:
        self.home = folder
        add_known_interpreters(folder / ".cache/uv")
        write_wheel(folder / "wheels", "alpha", "1.0")
        write_cpu_torch(folder / "wheels")
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        self.file = write_profile(folder / name, "alpha", "torch==9.9.0+cpu", pythons=["3.11"])
        self.locks = self.file.with_suffix(".locks")

    def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        given = {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.home / "wheels")}
        return envdoctor(*arguments, home=self.home, XDG_CONFIG_HOME=str(self.home / "config"), **given)

    def outcomes(self, *arguments: str | Path) -> list[str]:
        done = self.run("lock", *arguments, "--format", "json")
        return [result["outcome"] for result in envelope(done)["data"]["results"]]


@pytest.mark.parametrize("by", ["path", "name"])
def test_locks_of_a_user_profile_are_next_to_it(by: str, tmp_path: Path) -> None:
    own = Own(tmp_path, "mine.toml" if by == "path" else "config/envdoctor/profiles/mine.toml")
    named = ["--profile", "./mine.toml" if by == "path" else "mine"]
    assert own.outcomes("--check", *named) == ["missing", "missing"]
    assert own.outcomes(*named) == ["made", "made"]
    assert sorted(path.name for path in own.locks.iterdir()) == ["aarch64-3.11.txt", "x86_64-3.11.txt"]
    assert own.outcomes("--check", *named) == ["coherent", "coherent"]
    assert own.outcomes(*named) == ["unchanged", "unchanged"]
    write_wheel(tmp_path / "wheels", "alpha", "2.0")
    assert own.outcomes(*named) == ["unchanged", "unchanged"]  # a valid lock is kept without --upgrade
    assert own.outcomes(*named, "--upgrade") == ["changed", "changed"]
    assert "alpha==2.0" in (own.locks / "x86_64-3.11.txt").read_text()


def test_a_lock_that_does_not_meet_its_profile_is_incoherent(tmp_path: Path) -> None:
    own = Own(tmp_path)
    own.run("lock", "--profile", own.file)
    write_profile(own.file, "alpha>=2", "torch==9.9.0+cpu", pythons=["3.11"])
    done = own.run("lock", "--check", "--profile", own.file, "--format", "github")
    assert done.returncode == 1
    assert done.stdout.count("title=mine is incoherent") == 2
    assert "alpha>=2, but the lock has 1.0" in done.stdout
    assert done.stdout.startswith("::error file=")
    other = own.locks / "x86_64-3.11.txt"
    other.write_text(other.read_text().replace("# profile: mine", "# profile: other"))
    assert "it is for profile other, not for mine" in own.run("lock", "--check", "--profile", own.file).stdout


def test_find_lock_of_a_user_profile(tmp_path: Path) -> None:
    own = Own(tmp_path)
    own.run("lock", "--profile", own.file)
    target = Target("x86_64", "2.35", ("3.11",))
    found = locks.find_lock(str(own.file), target, "3.11")
    assert found
    assert found.profile == "mine"
    assert locks.find_lock(str(own.file), target, "3.12") is None
    swapped = own.locks / "x86_64-3.11.txt"
    swapped.write_text((own.locks / "aarch64-3.11.txt").read_text())
    assert locks.find_lock(str(own.file), target, "3.11") is None  # of another architecture


def test_user_profiles_are_in_the_matrix_with_their_locks(tmp_path: Path) -> None:
    own = Own(tmp_path, "config/envdoctor/profiles/mine.toml")
    before = envelope(own.run("resolve", "--all", "--machine", "all", "--format", "json"))
    cells = [cell for cell in before["data"]["cells"] if cell["profile"] == "mine"]
    assert before["exit_code"] == 1
    assert {cell["locked"] for cell in cells} == {"not locked"}
    assert "envdoctor lock mine" in cells[0]["why"][0]
    own.run("lock", "--profile", "mine")
    after = envelope(own.run("resolve", "--all", "--machine", "all", "--format", "json"))
    fitting = [cell for cell in after["data"]["cells"] if cell["profile"] == "mine" and cell["fits"]]
    assert "locked" in {cell["locked"] for cell in fitting}


def test_unreadable_user_profile_is_reported_in_the_matrix(tmp_path: Path) -> None:
    own = Own(tmp_path, "config/envdoctor/profiles/mine.toml")
    own.file.write_text("id = ")
    done = own.run("resolve", "--all", "--machine", "all", "--format", "json")
    assert done.returncode == 1
    assert "mine: " in envelope(done)["data"]["unusable"][0]
    shown = own.run("resolve", "--all", "--machine", "all").stdout
    assert "mine.toml is not TOML" in " ".join(shown.split())  # a long path breaks the line


def test_an_unwritable_folder_is_an_error(tmp_path: Path) -> None:
    own = Own(tmp_path)
    own.locks.write_text("a file where the folder would be")
    done = own.run("lock", "--profile", own.file)
    assert done.returncode == 2
    assert "cannot write" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("head", "value"),
    [
        ("platform", "x"), ("platform", "x86_64-manylinux_2_x"), ("python", "3"), ("profile", "../x"),
        ("made", "\x1b[2J"), ("torch", "\x1b[2J"), ("torch", "12.8\n# without: a" + "a" * 60 + "!"),
    ],
)  # fmt: skip
def test_an_invalid_header_is_refused(head: str, value: str) -> None:
    text = re.sub(rf"# {head}: .*", f"# {head}: {value}", locks.format_lock(lock_of(torch="2.8.0")))
    expected = r"has an invalid header '(platform|python|profile|made|torch|without)'"
    with pytest.raises(BadInput, match=expected) as caught:
        locks.parse_lock(text, where="lock.txt")
    assert caught.value.message.isprintable()


def test_unmet_requirements_of_the_target_are_listed() -> None:
    profile = msgspec.structs.replace(
        read_profile("x86-cu128-vllm"),
        requirements=(Pin("Torch==2.8.0"), Pin("trl>=1"), Pin("ray"), Pin("wandb; python_version < '3.12'")),
        constraints=(Pin("numpy<2"), Pin("ghost==1")),
    )
    file = lock_of(torch="2.8.0", trl="0.23.1", numpy="2.2.6")
    assert list(locks.unmet_requirements(profile, file)) == [
        "trl>=1, but the lock has 0.23.1",
        "ray is not in the lock",
        "numpy<2, but the lock has 2.2.6",
    ]
    assert "ray is not in the lock" not in list(
        locks.unmet_requirements(profile, msgspec.structs.replace(file, without=("ray",)))
    )


def test_an_incompatible_lock_is_not_written(tmp_path: Path) -> None:
    """These requirements resolve, and `uv pip check` passes."""
    for name, version in {"trl": "0.23.1", "transformers": "5.23.0", "torch": "9.9.0+cpu"}.items():
        write_wheel(tmp_path / "wheels", name, version)
    own = Own(tmp_path)
    write_profile(own.file, "trl==0.23.1", "transformers>=4.57", "torch==9.9.0+cpu", pythons=["3.11"])
    done = own.run("lock", "--profile", own.file, "--format", "json")
    assert done.returncode == 1
    results = envelope(done)["data"]["results"]
    assert {result["outcome"] for result in results} == {"incoherent"}
    assert "transformers 5.23.0" in " ".join(results[0]["problems"])
    assert not own.locks.exists()


def test_lock_check_audits_a_lock(tmp_path: Path) -> None:
    own = Own(tmp_path)
    write_profile(own.file, "trl", "transformers", pythons=["3.11"])
    rotten = lock_of(trl="0.23.1", transformers="5.23.0")
    for architecture in ("x86_64", "aarch64"):
        platform = f"{architecture}-manylinux_2_17"
        made = msgspec.structs.replace(rotten, platform=platform, python="3.11", torch_build="cpu")
        locks.write_lock(own.locks / f"{architecture}-3.11.txt", made)
    done = own.run("lock", "--check", "--profile", own.file, "--format", "json")
    assert done.returncode == 1
    problems = envelope(done)["data"]["results"][0]["problems"]
    assert any("transformers 5.23.0" in problem for problem in problems)


def test_sizes_are_added_to_a_lock_that_has_none(tmp_path: Path) -> None:
    own = Own(tmp_path)
    own.run("lock", "--profile", own.file)
    path = own.locks / "x86_64-3.11.txt"
    text = path.read_text()
    size = (tmp_path / "wheels/alpha-1.0-py3-none-any.whl").stat().st_size
    assert re.search(rf"^alpha==1.0 --hash=sha256:[0-9a-f]{{64}} # {size}$", text, re.MULTILINE)
    path.write_text(re.sub(r" # \d+$", "", text, flags=re.MULTILINE).replace("made: 2", "made: 1"))
    results = envelope(own.run("lock", "--profile", own.file, "--format", "json"))["data"]["results"]
    by_platform = {result["platform"].partition("-")[0]: result for result in results}
    assert by_platform["x86_64"]["outcome"] == "changed"
    assert by_platform["x86_64"]["changes"] == ["sizes added"]
    assert by_platform["x86_64"]["download"] == sum(int(each) for each in re.findall(r"# (\d+)$", text, re.MULTILINE))
    assert by_platform["aarch64"]["outcome"] == "unchanged"
    assert path.read_text() == text.replace("made: 2", "made: 1")  # the rest of it is as it was


def test_only_changed_requirements_change_in_the_lock(tmp_path: Path) -> None:
    own = Own(tmp_path)
    write_wheel(tmp_path / "wheels", "beta", "1.0")
    write_profile(own.file, "alpha", "beta", "torch==9.9.0+cpu", pythons=["3.11"])
    own.run("lock", "--profile", own.file)
    for name in ("alpha", "beta"):
        write_wheel(tmp_path / "wheels", name, "2.0")
    write_profile(own.file, "alpha>=2", "beta", "torch==9.9.0+cpu", pythons=["3.11"])
    results = envelope(own.run("lock", "--profile", own.file, "--format", "json"))["data"]["results"]
    assert [result["changes"] for result in results] == [["alpha 1.0 -> 2.0"]] * 2


# The PyTorch index by what it publishes


def test_every_published_wheel_has_its_requirements() -> None:
    rows = read_table("torch_wheels.toml")["wheel"]
    for row in rows:
        assert published_requires(row["name"], row["version"])
        assert re.fullmatch(r"[0-9a-f]{64}", row["sha256"])
    keys = [(row["name"], row["version"], row["backend"], row["python"], row["architecture"]) for row in rows]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("python", ["3.12", "3.11"])
def test_the_lock_of_gh200_has_the_requirements_of_torch_and_no_cuda_library(python: str) -> None:
    file = locks.read_lock(locks.lock_path("gh200", "aarch64", python))
    assert file
    pinned = {package.name: package for package in file.packages}
    target = {"python_version": python, "platform_machine": "aarch64", "platform_system": "Linux"}
    for wheel in published_wheels("cu129", python, "aarch64"):
        assert pinned[wheel.name].sha256 == wheel.sha256
        for requirement in map(Requirement, published_requires(wheel.name, wheel.version)):
            if requirement.marker is None or requirement.marker.evaluate(target):
                assert requirement.specifier.contains(pinned[requirement.name].version)
    assert not [name for name in pinned if name.startswith("nvidia-")]  # they are inside the wheel
    assert (file.without, file.backend) == ((), "cu129")


def test_published_wheels_complete_a_lock_without_the_index(tmp_path: Path) -> None:
    """The lock has the requirements of the placeholder wheels and the hashes of the published wheels."""
    everything = {
        "filelock": "3", "typing_extensions": "4.15", "setuptools": "80", "sympy": "1.14", "networkx": "3",
        "jinja2": "3", "fsspec": "2025", "trl": "0.1",
    }  # fmt: skip
    for name, version in everything.items():
        write_wheel(tmp_path / "wheels", name, version)
    profile = msgspec.structs.replace(
        read_profile("gh200"), requirements=(Pin("torch==2.8.0"), Pin("trl")), constraints=(), exclude_newer=""
    )
    links = (str(tmp_path / "wheels"),)
    sources = Sources(find_links=links, no_index=True, origins={"find-links": "a test", "no-index": "a test"})
    lock = resolve_published(profile, Target("aarch64", "2.28", ("3.12",)), sources)
    assert lock
    assert (lock.backend, lock.torch_build) == ("cu129", "12.9")
    names = {package.name for package in lock.packages}
    assert names == {name.replace("_", "-") for name in everything} | {"torch", "triton"}
    torch = next(package for package in lock.packages if package.name == "torch")
    assert torch.sha256 == "692fe6e513b667f789a543fa9b1baba58e77a46d5c8629764ca0c00a56823e1f"
    # Of a release that the table does not have there is no lock, rather than one of another build.
    other = msgspec.structs.replace(profile, requirements=(Pin("torch==2.9.1"), Pin("trl")))
    assert resolve_published(other, Target("aarch64", "2.28", ("3.12",)), sources) is None
    write_wheel(tmp_path / "wheels", "torchvision", "0.24.0")
    strange = msgspec.structs.replace(profile, requirements=(*profile.requirements, Pin("torchvision>=0.24")))
    assert resolve_published(strange, Target("aarch64", "2.28", ("3.12",)), sources) is None


def test_a_torch_that_does_not_exist_gives_no_partial_lock(tmp_path: Path) -> None:
    """A lock without torch is written only where the index of its builds cannot be reached."""
    own = Own(tmp_path)
    own.file.write_text(own.file.read_text().replace("torch==9.9.0+cpu", "torch==9.9.0+cu999"))
    done = own.run("lock", "./mine.toml", "--format", "json")
    assert [result["outcome"] for result in envelope(done)["data"]["results"]] == ["failed", "failed"]
    assert not own.locks.exists()
