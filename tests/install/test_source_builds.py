"""Packages that are compiled on the machine, with real sources and the real C compiler."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import pytest
from support.command import envdoctor, envelope
from support.direct_wheels import entry
from support.environment_commands import run_lines
from support.install_place import FIRST, Place
from support.local_packages import PYTHON, write_profile, write_wheel
from support.source_builds import ask_for, compiled_place, seen
from support.source_packages import SOURCE, write_sdist
from support.wheel_server import Files

from envdoctor.core.errors import BadInput, EnvdoctorError
from envdoctor.download.sources import read_sources
from envdoctor.environment.managed import read_install_record
from envdoctor.install.build_checks import survey_builds
from envdoctor.install.lock_check import drift
from envdoctor.install.wheelhouse import MANIFEST
from envdoctor.locking.lock import Target
from envdoctor.locking.lock_files import format_lock, parse_lock, unmet_requirements
from envdoctor.locking.resolve import resolve
from envdoctor.profiles import Build, read_profile

BUILT = FIRST | {"fast": "1.0"}
BUILD = Build(packages=("fast",), memory_gb_per_job=4, core_minutes=90)


# What is locked


def test_the_source_is_locked_with_its_hash_and_not_built(place: Place, tmp_path: Path) -> None:
    write_sdist(place.wheels, "fast", "1.0", source="#error never compiled\n")
    write_wheel(place.wheels, "fast", "1.0")  # of [build] no wheel is taken from an index
    ask_for(place)
    lock = place.plan().lock
    (package,) = lock.built
    source = place.wheels / "fast-1.0.tar.gz"
    assert (package.name, package.version, package.wheel) == ("fast", "1.0", source.name)
    assert package.sha256 == hashlib.sha256(source.read_bytes()).hexdigest()
    assert package.source == f"find-links {place.wheels}"
    assert f"# built: fast==1.0 --hash=sha256:{package.sha256}" in lock.text.splitlines()
    file = parse_lock(format_lock(lock), where="here")
    assert (file.text, file.digest) == (lock.text, lock.digest)
    assert [each.name for each in file.built] == ["fast"]
    assert list(unmet_requirements(read_profile(str(place.profile)), file)) == []
    write_profile(place.profile, "alpha", "torch==9.9.0+cpu", "fast==1.0")
    assert list(unmet_requirements(read_profile(str(place.profile)), file)) == [
        "fast is built in the lock, not in the profile"
    ]


def test_a_version_without_a_source_has_no_solution(place: Place) -> None:
    ask_for(place, "fast==2.0")
    sources = read_sources({"HOME": str(place.home)} | place.settings)
    resolution = resolve(read_profile(str(place.profile)), Target("x86_64", "2.35", (PYTHON,)), sources)
    assert resolution.lock is None
    assert resolution.attempts[0].outcome == "no solution"
    assert "fast==2.0" in resolution.attempts[0].reason


@pytest.mark.parametrize(
    ("requirement", "message"),
    [
        ("fast>=1.0", "requirement 'fast>=1.0' is in build.packages"),
        ("fast==1.*", "requirement 'fast==1.*' is in build.packages"),
        ("fast[more]==1.0", "is in build.packages"),
        ("other==1.0", "build.packages has 'fast', which is not in requirements"),
    ],
)
def test_a_package_to_build_is_pinned_exactly(requirement: str, message: str, place: Place) -> None:
    ask_for(place, requirement)
    with pytest.raises(BadInput) as caught:
        read_profile(str(place.profile))
    assert message in caught.value.message
    assert f"{place.profile}, line " in caught.value.message
    assert "fast==1.0" in caught.value.expected


# What is installed


def test_a_package_is_compiled_against_the_environment(place: Place) -> None:
    ask_for(place, build='environment = { USE_FLAVOUR = "1" }')
    counter = place.home / "counter"
    done = place.install(MAX_JOBS="3", BUILD_COUNTER=str(counter))
    assert done.returncode == 0, done.stdout
    data = envelope(done)["data"]
    assert [step["name"] for step in data["steps"]] == ["venv", "sync", "build fast", "check"]
    assert place.packages() == BUILT
    assert seen(place) == (3, "torch 9.9.0+cpu")
    assert any(
        note.startswith("compiled here: fast, duration unknown, with 3 jobs") for note in data["survey"]["notes"]
    )
    plan = place.plan()
    assert [step.deadline for step in plan.steps if step.built] == [24 * 3600.0]
    assert drift(place.venv, plan.lock) == []
    assert envelope(place.install(BUILD_COUNTER=str(counter)))["data"]["unchanged"] is True
    assert counter.read_text() == "built\n"
    (site,) = place.venv.glob("lib/python*/site-packages")
    (site / "fast-1.0.dist-info").rename(site / "fast-0.9.dist-info")
    assert drift(place.venv, place.plan().lock) == ["fast: 0.9, locked 1.0"]
    again = place.install(MAX_JOBS="3", BUILD_COUNTER=str(counter))
    assert envelope(again)["data"]["unchanged"] is False
    assert place.packages() == BUILT
    assert counter.read_text() == "built\n", "what was compiled is kept"


def test_another_torch_gets_another_build(place: Place) -> None:
    """uv's cache only distinguishes sources, and would return the build against the previous torch."""
    place.copy_files(compiled_place())
    write_wheel(place.wheels, "torch", "9.9.1+cpu")
    place.profile.write_text(place.profile.read_text().replace("torch==9.9.0+cpu", "torch==9.9.1+cpu"))
    done = place.install(MAX_JOBS="1")
    assert done.returncode == 0, done.stdout
    assert seen(place) == (1, "torch 9.9.1+cpu")


def test_the_printed_commands_compile(place: Place) -> None:
    ask_for(place)
    data = envelope(place.install("--dry-run", MAX_JOBS="2"))["data"]
    assert not place.venv.exists()
    (line,) = [line for line in data["commands"] if "--no-binary fast" in line]
    assert line.startswith("MAX_JOBS=2 uv pip install ")
    assert "--require-hashes" in line
    run_lines(data["commands"], place)
    assert place.packages() == BUILT
    assert seen(place) == (2, "torch 9.9.0+cpu")


# A wheel that fits is taken instead


def test_with_a_compatible_wheel_nothing_is_compiled(place: Place, web: Files) -> None:
    offer_both(place, web, torch="9.9")
    bare = place.home / "bin"
    bare.mkdir()
    (bare / f"python{PYTHON}").symlink_to(Path(sys.executable).resolve())
    done = place.install(PATH=str(bare))  # no compiler, and none is needed
    assert done.returncode == 0, done.stdout
    data = envelope(done)["data"]
    assert [step["name"] for step in data["steps"]] == ["venv", "sync", "wheel flash-attn", "check"]
    assert data["survey"]["notes"] == [
        "flash_attn-2.0-py3-none-any.whl is installed if it can be downloaded; flash-attn is then not compiled"
    ]
    assert data["installed"]["packages"] == 4
    assert place.packages() == FIRST | {"flash-attn": "2.0"}
    assert envelope(place.install(PATH=str(bare)))["data"]["unchanged"] is True


def test_without_a_compatible_wheel_it_is_compiled(place: Place, web: Files) -> None:
    offer_both(place, web, torch="2.8")
    done = place.install(MAX_JOBS="2")
    assert done.returncode == 0, done.stdout
    data = envelope(done)["data"]
    assert "build flash-attn" in [step["name"] for step in data["steps"]]
    assert data["wheels"][0]["rejected"] == ["flash_attn-2.0-py3-none-any.whl: built for torch 2.8, here is 9.9"]
    installed = read_install_record(place.venv)
    assert installed
    assert (installed.wheels, installed.fallbacks, installed.packages) == ((), {}, 4)
    assert place.packages() == FIRST | {"flash-attn": "2.0"}


def test_for_an_unavailable_wheel_the_tools_are_checked_before_the_build(place: Place, web: Files) -> None:
    place.copy_installed()
    offer_both(place, web, torch="9.9")
    (web.folder / "flash_attn-2.0-py3-none-any.whl").unlink()
    bare = place.home / "bin"
    bare.mkdir()
    (bare / f"python{PYTHON}").symlink_to(Path(sys.executable).resolve())
    done = place.install(PATH=str(bare))
    assert done.returncode == 1, done.stdout
    assert "flash-attn cannot be compiled here: cxx-compiler is missing" in envelope(done)["error"]["message"]
    assert place.packages() == FIRST
    assert place.remaining_files() == ["mine"]
    assert place.install().returncode == 0
    assert place.packages() == FIRST | {"flash-attn": "2.0"}


def offer_both(place: Place, web: Files, torch: str) -> None:
    """The profile with flash-attn as a wheel for one torch, and as a source."""
    write_sdist(place.wheels, "flash-attn", "2.0")
    write_profile(place.profile, "alpha", "torch==9.9.0+cpu", "flash-attn==2.0")
    table = '[build]\npackages = ["flash-attn"]\nmemory_gb_per_job = 0.1\n'
    place.profile.write_text(place.profile.read_text() + entry(web, "2.0", torch=torch) + table)


# What goes wrong


def test_a_modified_source_is_not_built(place: Place) -> None:
    place.copy_installed()
    ask_for(place)
    plan = place.plan()
    write_sdist(place.wheels, "fast", "1.0", source=SOURCE + "/* not what was locked */\n")
    with pytest.raises(EnvdoctorError, match=r"Compile fast 1\.0 here") as caught:
        place.install_plan(plan)
    assert "Hash mismatch" in caught.value.message
    assert place.packages() == FIRST
    assert place.remaining_files() == ["mine"]


def test_a_compile_error_names_the_log_and_keeps_the_environment(place: Place) -> None:
    place.copy_installed()
    write_sdist(place.wheels, "fast", "1.0", source="#include <cuda_runtime.h>\n" + SOURCE)
    ask_for(place)
    done = place.install()
    assert done.returncode == 3, done.stdout
    error = envelope(done)["error"]
    assert error["message"].startswith("Compile fast 1.0 here: uv ended with exit code 1")
    log = Path(error["hint"].removeprefix("read the log ").partition(";")[0])
    assert "fatal error: cuda_runtime.h: No such file or directory" in log.read_text()
    assert error["causes"], error
    assert place.packages() == FIRST
    assert place.remaining_files() == ["mine"]


def test_requirements_of_a_built_package_must_be_in_the_profile(place: Place) -> None:
    write_sdist(place.wheels, "fast", "1.0", requires=["gamma"])
    ask_for(place)
    done = place.install()
    assert done.returncode == 3
    assert "gamma" in envelope(done)["error"]["message"]
    assert place.remaining_files() == []


@pytest.mark.parametrize(
    ("build", "missing"),
    [("", "cxx-compiler is missing"), ('needs = ["ninja"]', "ninja is missing"), ('needs = ["nvcc"]', "")],
)
def test_without_its_tools_nothing_is_written(build: str, missing: str, place: Place) -> None:
    ask_for(place, build=build)
    bare = place.home / "bin"
    bare.mkdir()
    (bare / f"python{PYTHON}").symlink_to(Path(sys.executable).resolve())
    done = place.install(PATH=str(bare))
    assert done.returncode == 2, done.stdout
    error = envelope(done)["error"]
    assert error["message"].startswith("fast cannot be compiled here: ")
    assert missing in error["message"]
    assert "cxx-compiler is missing" in error["message"]
    assert not place.venv.parent.exists()


def test_ninja_of_the_lock_is_sufficient(place: Place) -> None:
    write_wheel(place.wheels, "ninja", "1.0")
    ask_for(place, "fast==1.0", "ninja==1.0", build='needs = ["ninja"]')
    bare = place.home / "bin"
    bare.mkdir()
    for tool in ("g++", "gcc"):
        (bare / tool).symlink_to(f"/usr/bin/{tool}")
    found = survey_builds(place.plan(), None, "apt", {"PATH": str(bare)})
    assert found.needs == ()


def test_a_missing_source_is_reported_first(place: Place) -> None:
    ask_for(place)
    plan = place.plan()
    (place.wheels / "fast-1.0.tar.gz").unlink()
    with pytest.raises(EnvdoctorError, match="the source of fast cannot be downloaded"):
        place.install_plan(plan)
    assert not place.venv.parent.exists()


# Elsewhere: wheelhouses and exports


def test_a_wheelhouse_contains_the_source_and_builds_without_a_network(place: Place) -> None:
    ask_for(place)
    house = place.home / "house"
    done = envdoctor("fetch", "--profile", place.profile, "--dest", house, "--format", "json", home=place.home,
                     **place.settings)  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert sorted(path.name for path in house.glob("fast*")) == ["fast-1.0.tar.gz"]
    offline = {"PIP_FIND_LINKS": "", "UV_CACHE_DIR": str(place.home / "empty"), "MAX_JOBS": "1"}
    done = place.install("--from", str(house), **offline)
    assert done.returncode == 0, done.stdout
    assert place.packages() == BUILT
    manifest = json.loads((house / MANIFEST).read_text())
    (entry,) = [file for file in manifest["files"] if file["name"].startswith("fast")]
    (house / entry["name"]).rename(house / "fast-1.0.txt")
    entry["name"] = "fast-1.0.txt"
    (house / MANIFEST).write_text(json.dumps(manifest))
    done = place.install("--from", str(house), "--venv", str(place.home / "envs/other"))
    assert done.returncode == 2
    assert "fast-1.0.txt" in envelope(done)["error"]["message"]


def test_export_formats_compile_or_give_the_reason(place: Place) -> None:
    ask_for(place)
    lock = envdoctor("lock", "--profile", place.profile, home=place.home, **place.settings)
    assert lock.returncode == 0, lock.stdout + lock.stderr
    for form in ("requirements", "uv-project", "script", "conda"):
        done = envdoctor("export", "--profile", place.profile, "--as", form, home=place.home, **place.settings)
        output = " ".join((done.stdout + done.stderr).split())
        if form == "conda":
            assert done.returncode == 2
            assert "cannot be compiled from an environment.yml" in output
        else:
            assert done.returncode == 0, output
            assert "fast 1.0: compiled from source" in output
