"""Profiles: minimum driver, builds, fallbacks, and system packages."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from support.user_profiles import BUILD, FALLBACKS, WHEEL, Home, built, own

from envdoctor.core.directories import bundled_directory
from envdoctor.core.errors import BadInput
from envdoctor.core.records import absent, unreadable
from envdoctor.knowledge.system_packages import system_packages
from envdoctor.locking.lock_files import read_lock
from envdoctor.machine.recorded import override, read_recorded
from envdoctor.profiles import advice, choose, profile_names, read_profile, violations

GH200 = "gh200-480gb"
DRIVER = "driver for this stack"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def of_driver(version: str) -> tuple[bool | None, str, str]:
    """The driver condition of the profile gh200 for a driver version."""
    machine = override(read_recorded(GH200), [f"driver.version={version}"])
    (candidate,) = choose(machine, [read_profile("gh200")]).candidates
    (condition,) = [c for c in candidate.conditions if c.name == DRIVER]
    assert candidate.accepted == (condition.holds is True)
    return condition.holds, condition.observed, condition.expected


# The driver


@pytest.mark.parametrize(
    ("version", "holds"),
    [("570.148.08", True), ("570.148.07", False), ("570.86.15", False), ("565.57.01", False), ("580.65.06", True)],
)
def test_a_minimum_driver_is_a_separate_condition(version: str, holds: bool) -> None:
    found, observed, expected = of_driver(version)
    assert (found, observed) == (holds, version)
    assert expected.startswith(">= 570.148.08 (on Hopper, vLLM 0.10.2's FlashAttention 2 is PTX")


def test_an_unreadable_driver_is_unknown() -> None:
    machine = read_recorded(GH200)
    for fact, holds in ((unreadable("nvml", "error 9"), None), (absent("nvml"), False)):
        driver = msgspec.structs.replace(machine.driver, version=fact)
        (candidate,) = choose(msgspec.structs.replace(machine, driver=driver), [read_profile("gh200")]).candidates
        found = {c.name: c.holds for c in violations(candidate) if c.name != "disk"}  # which was not recorded
        assert found == {DRIVER: holds, "driver": holds}
        assert not candidate.accepted


def test_a_profile_without_a_minimum_driver() -> None:
    (candidate,) = choose(read_recorded("h100x8"), [read_profile("x86-cu128-vllm")]).candidates
    assert DRIVER not in {condition.name for condition in candidate.conditions}


# Invalid profiles: lines added to a valid profile, and the expected error

BAD = {
    "driver": ("", 'driver = "new"', "when.driver = 'new'"),
    "driver of too many parts": ("", 'driver = "570.1.2.3"', "when.driver = '570.1.2.3'"),
    "driver with an option": ("", 'driver = ">=570"', "when.driver = '>=570'"),
    "recommended driver": ("", 'driver_recommended = "new"', "when.driver_recommended = 'new'"),
    "source of the driver": ("", 'driver_url = "javascript:x"', "when.driver_url"),
    "unknown need": ("", 'system = ["c-compilr"]', "did you mean 'c-compiler'"),
    "need with a command": ("", 'system = ["gcc; rm -rf ~"]', "'gcc; rm -rf ~'"),
    "fallback without a wheel": ("", '[fallbacks]\nflash-attn = "sdpa"', "'flash-attn', which is not in [[wheels]]"),
    "fallback to nothing": (WHEEL, '[fallbacks]\nflash-attn = "spda"', "did you mean 'sdpa'"),
    "fallback of another spelling": (
        WHEEL,
        '[fallbacks]\nFlash_Attn = "sdpa"',
        "'Flash_Attn', which is not in [[wheels]]",
    ),
    "no package": ("", "[build]\npackages = []", "build.packages = []"),
    "no list": ("", '[build]\npackages = "flash-attn"', "build.packages"),
    "spelling": ("", '[build]\npackages = ["Flash_Attn"]', "'flash-attn'"),
    "option": ("", '[build]\npackages = ["--index-url"]', "'--index-url'"),
    "requirement": ("", '[build]\npackages = ["flash-attn==2.8.3"]', "'flash-attn==2.8.3'"),
    "no memory": ("", '[build]\npackages = ["x"]\nmemory_gb_per_job = 0', "memory_gb_per_job = 0"),
    "negative memory": ("", '[build]\npackages = ["x"]\nmemory_gb_per_job = -1.0', "memory_gb_per_job = -1"),
    "negative minutes": ("", '[build]\npackages = ["x"]\ncore_minutes = -1', "core_minutes = -1"),
    "unknown tool": ("", '[build]\npackages = ["x"]\nneeds = ["ninjas"]', "did you mean 'ninja'"),
    "misspelt": ("", '[build]\npackages = ["x"]\nneed = ["ninja"]', "'needs'"),
    "loader": ("", '[build]\npackages = ["x"]\nenvironment = { LD_PRELOAD = "x" }', "LD_PRELOAD cannot be set"),
    "compiler": ("", '[build]\npackages = ["x"]\nenvironment = { CC = "/tmp/x" }', "environment.CC cannot be set"),
    "flags": ("", '[build]\npackages = ["x"]\nenvironment = { NVCC_APPEND_FLAGS = "x" }', "FLAGS cannot be set"),
    "expansion": ("", '[build]\npackages = ["x"]\nenvironment = { A = "$(id)" }', "'$(id)'"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_with_its_line(case: str, home: Home) -> None:
    before, added, message = BAD[case]
    text = own("mine")
    if added.startswith("driver"):
        key = added.partition(" =")[0]
        text = "".join(line for line in text.splitlines(keepends=True) if not line.startswith(f"{key} ="))
        text = text.replace("[when]\n", f"[when]\n{added}\n")
    elif added.startswith("system"):
        text = text.replace("\nsystem = ", "\n# system = ").replace("\n[when]", f"\n{added}\n[when]")
    else:
        text += f"{before}\n{added}\n"
    path = home.write("mine", text)
    error = home.refusal("mine")
    assert message in error.message + error.expected
    number = int(error.message.removeprefix(f"{path}, line ").partition(":")[0])
    first = next(n for n, line in enumerate(text.split("\n"), 1) if line == added.split("\n")[0])
    assert first <= number <= first + added.count("\n")


# What one profile takes over from another


def test_tables_of_builds_and_fallbacks_are_merged_key_by_key(home: Home) -> None:
    home.write("base", built("base") + WHEEL + BUILD + FALLBACKS)
    home.write("mine", 'extends = "base"\n[build]\nmemory_gb_per_job = 9.0\n[fallbacks]\nflash-attn = "eager"')
    base, mine = home.read("base"), home.read("mine")
    assert base.build
    assert mine.build == msgspec.structs.replace(base.build, memory_gb_per_job=9.0)
    assert mine.build.environment == {"NVCC_THREADS": "2"}
    assert (base.fallbacks, mine.fallbacks) == ({"flash-attn": "sdpa"}, {"flash-attn": "eager"})
    assert mine.system == base.system


def test_dropped_packages_are_removed_from_build_and_fallbacks(home: Home) -> None:
    home.write("base", built("base") + WHEEL + BUILD + FALLBACKS)
    home.write("mine", 'extends = "base"\ndrop = ["flash-attn"]\nsystem = []')
    mine = home.read("mine")
    assert (mine.wheels, mine.build, mine.fallbacks, mine.system) == ((), None, {}, ())
    # A requirement takes the wheels' place, not the build's: that is how it is then made.
    home.write("mine", 'extends = "base"\nrequirements = [{ spec = "flash-attn==2.8.3" }]')
    mine = home.read("mine")
    assert (mine.wheels, mine.fallbacks) == ((), {})
    assert mine.build
    assert mine.build.packages == ("flash-attn",)


# What the bundled profiles say


@pytest.mark.parametrize("name", profile_names())
def test_a_stack_that_compiles_at_run_time_needs_a_compiler(name: str) -> None:
    """triton compiles its launcher in C; without triton, torch.compile generates C++."""
    profile = read_profile(name)
    locked = [read_lock(path) for path in sorted((bundled_directory("profiles") / "locks" / name).glob("*.txt"))]
    files = [file for file in locked if file and not file.without]
    with_triton = any("triton" in file.versions for file in files)
    requested = {"c-compiler"} if with_triton or name == "gh200" else {"cxx-compiler"}
    assert {*requested, "python-headers"} <= set(profile.system)
    assert all(name in system_packages() for name in profile.system)


@pytest.mark.parametrize("name", sorted(system_packages()))
def test_every_need_has_an_indicator_and_a_source(name: str) -> None:
    row = system_packages()[name]
    assert row.provides
    assert all(sum(map(bool, (p.program, p.header, p.library))) == 1 for p in row.provides)
    assert row.source
    assert row.date == "2026-11-21"
    assert row.why
    assert row.apt or row.conda
    for manager in ("apt", "dnf", "apk", "conda"):
        assert all("{" not in package for package in row.packages(manager, "3.12"))


def test_system_packages_depend_on_the_python_version() -> None:
    headers = system_packages()["python-headers"]
    assert headers.packages("apt", "3.12") == ("python3.12-dev",)
    assert headers.packages("yast", "3.12") == ()


def test_a_problem_contains_no_password(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    wheel = (
        '[[wheels]]\nname = "a"\nfile = "a-1.0-py3-none-any.whl"\nurl = "https://user:hunter2@example.org/a.whl"\n'
    )
    path.write_text(f'extends = "cpu"\n{wheel}sha256 = "{"0" * 64}"\n')
    with pytest.raises(BadInput) as caught:
        read_profile(str(path))
    assert "url" in caught.value.message
    assert "hunter2" not in caught.value.message


def test_a_recommended_driver_gives_advice_only() -> None:
    profile = read_profile("x86-cu128-vllm")
    old, new = (override(read_recorded("h100x8"), [f"driver.version={v}"]) for v in ("550.90.07", "570.26"))
    (candidate,) = choose(old, [profile]).candidates
    assert candidate.accepted
    assert [c.name for c in violations(candidate)] == ["disk"]
    (output,) = advice(candidate)
    assert (output.observed, output.expected[:9]) == ("550.90.07", ">= 570.26")
    assert "recommended >= 570.26 (older drivers from 525 on run CUDA 12.8" in choose(old, [profile]).reason
    assert advice(choose(new, [profile]).candidates[0]) == []
    assert "recommended" not in choose(new, [profile]).reason
