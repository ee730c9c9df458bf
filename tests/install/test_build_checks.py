"""Checks of a source build: CUDA version of nvcc, compiler version, memory, and estimated duration."""

from __future__ import annotations

import msgspec
import pytest
from support.install_place import Place

from envdoctor.core.errors import BadInput
from envdoctor.core.records import absent, known
from envdoctor.install.build_checks import check_memory, check_toolchain
from envdoctor.install.build_jobs import BuildJobs, count_jobs, estimated_time
from envdoctor.install.plan import Plan
from envdoctor.machine.recorded import override, read_recorded
from envdoctor.profiles import Build

BUILD = Build(packages=("fast",), memory_gb_per_job=4, core_minutes=90)


def planned(place: Place, cuda: str = "12.8") -> Plan:
    plan = place.plan()
    return msgspec.structs.replace(plan, lock=msgspec.structs.replace(plan.lock, torch_build=cuda))


@pytest.mark.parametrize(
    ("nvcc", "gcc", "message"),
    [
        ("12.4.131", "gcc (Debian 12.2.0-14) 12.2.0", ""),
        ("12.4.131", "gcc (GCC) 14.1.0", "gcc 14 (test) is newer than nvcc 12.4.131 accepts"),
        ("11.8.89", "gcc (GCC) 11.4.0", "nvcc is 11.8.89 (/cuda/bin/nvcc), and fast is compiled for CUDA 12.8"),
        ("13.0.88", "gcc (GCC) 11.4.0", "nvcc is 13.0.88"),
        ("", "gcc (GCC) 11.4.0", "there is no nvcc (searched in PATH)"),
    ],
)
def test_nvcc_must_match_torch_and_gcc_must_match_nvcc(nvcc: str, gcc: str, message: str, place: Place) -> None:
    cuda = msgspec.structs.replace(
        read_recorded("cpu-2core").cuda,
        nvcc=known("/cuda/bin/nvcc", "test") if nvcc else absent("PATH"),
        nvcc_version=known(nvcc, "test") if nvcc else absent("PATH"),
        compiler=known(gcc, "test"),
    )
    build = msgspec.structs.replace(BUILD, needs=("nvcc",))
    plan = planned(place)
    check_toolchain(["fast"], BUILD, plan, cuda, {})  # without a need of nvcc none of this matters
    if not message:
        check_toolchain(["fast"], build, plan, cuda, {})
        return
    with pytest.raises(BadInput) as caught:
        check_toolchain(["fast"], build, plan, cuda, {})
    assert message in caught.value.message
    assert "apt-get install" in caught.value.hint
    if "newer" in message:
        check_toolchain(["fast"], build, plan, cuda, {"NVCC_PREPEND_FLAGS": "-ccbin g++-13"})


def test_memory_for_one_compiler_is_required() -> None:
    memory = read_recorded("cpu-2core").memory
    gib = 1 << 30
    cases = ((8, None, True), (8, 3, False), (3, None, False), (8, 5, True), (None, None, True))
    for available, limit, enough in cases:
        here = msgspec.structs.replace(
            memory,
            available=known(available * gib, "meminfo") if available else absent("meminfo"),
            cgroup_limit=known(limit * gib, "cgroup") if limit else absent("cgroup"),
        )
        if enough:
            check_memory(["fast"], BUILD, here)
        else:
            with pytest.raises(BadInput, match=r"3\.0 GiB of memory are available to compile fast"):
                check_memory(["fast"], BUILD, here)


@pytest.mark.parametrize(
    ("cores", "available", "limit", "count"),
    [(64, 512, 0, 64), (64, 64, 0, 16), (64, 512, 10, 2), (2, 512, 0, 2), (8, 1, 0, 1), (8, 0, 0, 1)],
)
def test_jobs_depend_on_cores_and_memory(cores: int, available: int, limit: int, count: int) -> None:
    machine = override(read_recorded("cpu-2core"), [f"system.cpu_count={cores}"])
    memory = msgspec.structs.replace(
        machine.memory,
        available=known(available << 30, "test") if available else absent("test"),
        cgroup_limit=known(limit << 30, "test") if limit else absent("test"),
    )
    machine = msgspec.structs.replace(machine, memory=memory, environment=known({}, "test"))
    assert count_jobs(BUILD, machine).count == count
    own = msgspec.structs.replace(machine, environment=known({"MAX_JOBS": "5"}, "test"))
    assert count_jobs(BUILD, own).count == 5


def test_the_estimate_names_its_basis() -> None:
    assert estimated_time(BUILD, BuildJobs(2)) == "about 45 min: 90 core-minutes measured, 2 jobs"
    assert "duration unknown" in estimated_time(msgspec.structs.replace(BUILD, core_minutes=0), BuildJobs(1))
