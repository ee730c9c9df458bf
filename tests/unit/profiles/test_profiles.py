"""Bundled profiles, and the selection of a profile for each recorded machine."""

from __future__ import annotations

import msgspec
import pytest
from support.recorded_results import assert_as_recorded

from envdoctor.core.records import Filesystem, Storage, known, unreadable
from envdoctor.machine.recorded import machine_names, override, read_recorded
from envdoctor.profiles import (
    DISK,
    GPU_MEMORY,
    candidate_for,
    choose,
    profile_names,
    read_profile,
    read_profiles,
    violations,
)
from envdoctor.profiles.notebooks import adds_to_notebook

GIB = 1 << 30
# The profile that each recorded machine gets. Adding a machine or a profile means saying so here.
CHOSEN = {"cpu-2core": "cpu", "h100": "x86-cu130", "h200": "x86-cu130"}
# Drivers that machines with GPUs of the catalogue had in published reports, and the profile for them.
OLDER_DRIVERS = {
    ("a100", "535.129.03"): "x86-cu128-vllm",
    ("gh200-480gb", "570.148.08"): "gh200",
    ("h100x8", "570.133.20"): "x86-cu128-vllm",
    ("rtx4090", "550.78"): "x86-cu128-vllm",
    ("rtx5090", "575.57.08"): "x86-cu128-vllm",
    ("t4", "535.104.05"): "x86-cu128-torch210",
}


@pytest.mark.parametrize(("machine", "driver"), OLDER_DRIVERS)
def test_profile_for_a_gpu_with_an_older_driver(machine: str, driver: str) -> None:
    older = override(read_recorded(machine), [f"driver.version={driver}"])
    assert choose(older, read_profiles()).profile == OLDER_DRIVERS[machine, driver]


@pytest.mark.parametrize("machine", machine_names())
def test_each_recorded_machine_gets_its_profile(machine: str) -> None:
    assert choose(read_recorded(machine), read_profiles()).profile == CHOSEN[machine]


@pytest.mark.parametrize(
    ("variables", "profile"),
    [
        ({"COLAB_RELEASE_TAG": "release-colab-external_20260819"}, "colab"),
        ({"COLAB_RELEASE_TAG": "release-colab-external_20260819", "KAGGLE_KERNEL_RUN_TYPE": "Batch"}, "kaggle"),
        ({}, "x86-cu128-torch210"),
    ],
)
def test_a_notebook_gets_the_profile_of_its_service(variables: dict[str, str], profile: str) -> None:
    machine = msgspec.structs.replace(read_recorded("t4"), environment=known(variables, "environment"))
    choice = choose(machine, read_profiles())
    assert choice.profile == profile
    in_notebook = [name for name in ("colab", "kaggle") if name == profile]
    assert [each.profile for each in choice.candidates if adds_to_notebook(each)] == in_notebook
    other = candidate_for(machine, read_profile("kaggle" if profile == "colab" else "colab"))
    assert not other.accepted
    assert [each.name for each in violations(other) if each.holds is False] == ["notebook service"]


@pytest.mark.parametrize("name", profile_names())
def test_every_bundled_profile_is_complete(name: str) -> None:
    from envdoctor.training.recipes import recipe_names
    from envdoctor.verify.probe_scripts import bundled_probes

    profile = read_profile(name)
    assert profile.id == name
    assert set(profile.verify.required) <= {probe.name for probe in bundled_probes()}
    assert profile.train.recipe in recipe_names()
    assert len({pin.spec for pin in profile.requirements}) == len(profile.requirements)


def test_every_candidate_has_every_reason() -> None:
    machine = override(read_recorded("t4"), ["driver.version=535.104.05"])
    choice = choose(machine, read_profiles())
    rejected = {c.profile: [v.name for v in violations(c) if v.holds is False] for c in choice.candidates}
    assert rejected["gh200"] == [
        "architecture", "compute capability of GPU 0", "memory of GPU 0", "driver for this stack",
    ]  # fmt: skip
    assert rejected["x86-cu128-vllm"] == ["compute capability of GPU 0", "memory of GPU 0"]
    assert rejected["cpu"] == []


def test_old_driver_is_reported_with_the_required_version() -> None:
    machine = override(read_recorded("a100"), ["driver.version=470.256.02"])
    choice = choose(machine, [read_profile("x86-cu128-vllm")])
    assert choice.profile is None
    assert "driver: 470.256.02, required >= 525.60.13 for CUDA 12.8" in choice.reason


def test_one_weak_gpu_rejects_the_profile_and_is_reported() -> None:
    machine = override(read_recorded("h100x8"), ["gpus.5.compute_capability=7.0"])
    (candidate,) = choose(machine, [read_profile("x86-cu128-vllm")]).candidates
    assert [(v.name, v.observed) for v in violations(candidate) if v.holds is False] == [
        ("compute capability of GPU 5", "7.0")
    ]


def test_unreadable_gpus_are_unknown() -> None:
    machine = read_recorded("h100x8")
    from envdoctor.core.records import unreadable

    blind = msgspec.structs.replace(
        machine, gpus=unreadable("nvmlInit", "NVML error 18: Driver/library version mismatch")
    )
    (candidate,) = choose(blind, [read_profile("x86-cu128-vllm")]).candidates
    assert not candidate.accepted
    (gpus,) = [c for c in candidate.conditions if c.name == "GPUs"]
    assert gpus.holds is None
    assert "error 18" in gpus.observed


def test_a_full_disk_rejects_and_an_unknown_one_does_not() -> None:
    machine = read_recorded("cpu-2core")
    full = override(machine, ['storage.places={"environments": {"path": "/", "total": 100, "free": 50}}'])
    assert choose(full, [read_profile("cpu")]).profile is None
    unknown = msgspec.structs.replace(machine, storage=Storage(places=unreadable("statvfs", "not recorded")))
    choice = choose(unknown, [read_profile("cpu")])
    assert choice.profile == "cpu"
    assert "as far as known: disk" in choice.reason


def test_exactly_the_required_disk_and_gpu_memory_suffice() -> None:
    profile = read_profile("x86-cu130")
    memory, disk = int(profile.when.gpu_memory_gb * GIB), int(profile.when.disk_gb * GIB)
    for less in (0, 1):
        (gpu,) = read_recorded("h200").gpus.value or ()
        gpus = (msgspec.structs.replace(gpu, memory_total=known(memory - less, "test")),)
        place = Filesystem(path="/", total=disk * 2, free=disk - less)
        storage = Storage(places=known({"environments": place}, "test"))
        machine = msgspec.structs.replace(read_recorded("h200"), gpus=known(gpus, "test"), storage=storage)
        (candidate,) = choose(machine, [profile]).candidates
        holds = {each.name: each.holds for each in candidate.conditions if each.name in (DISK, f"{GPU_MEMORY} 0")}
        assert holds == {DISK: not less, f"{GPU_MEMORY} 0": not less}
        assert next(each.source for each in candidate.conditions if each.name == DISK) == "/"


def test_exactly_the_oldest_driver_of_a_cuda_version_suffices() -> None:
    profile = read_profile("x86-cu128-vllm")
    for version, holds in (("525.60.13", True), ("525.60.12", False)):
        machine = override(read_recorded("h100x8"), [f"driver.version={version}"])
        (candidate,) = choose(machine, [profile]).candidates
        (condition,) = [each for each in candidate.conditions if each.name == "driver"]
        assert (condition.holds, condition.observed) == (holds, version), condition.expected


def test_choices_are_as_recorded() -> None:
    found = {}
    for name in machine_names():
        choice = choose(read_recorded(name), read_profiles())
        reasons = {
            candidate.profile: [
                [each.name, each.expected, each.observed, each.holds] for each in violations(candidate)
            ]
            for candidate in choice.candidates
        }
        found[name] = [choice.profile, choice.reason, reasons]
    assert_as_recorded("profiles", found)
