"""What one change of a machine would make possible, and the warning on a GPU that no profile uses."""

from __future__ import annotations

import msgspec
import pytest

from envdoctor.commands.check import CheckRequest, run
from envdoctor.core.records import Filesystem, Machine, known
from envdoctor.machine.recorded import override, read_recorded
from envdoctor.profiles import choose, read_profile, read_profiles
from envdoctor.profiles.choice import Choice
from envdoctor.profiles.unused_gpu import unused_gpu

GIB = 1 << 30


def choice_of(name: str, *facts: str) -> tuple[Machine, Choice]:
    machine = override(read_recorded(name), list(facts))
    return machine, choose(machine, read_profiles())


@pytest.mark.parametrize(
    ("machine", "driver", "chosen", "expected"),
    [
        ("gh200-480gb", "550.54.14", "cpu", [("570.148.08", "gh200"), ("580", "gh200-cu130")]),
        ("gh200-480gb", "570.148.08", "gh200", [("580", "gh200-cu130")]),
        ("h100", "470.256.02", "cpu", [("525.60.13", "x86-cu128-vllm"), ("580", "x86-cu130")]),
        ("rtx4090", "550.78", "x86-cu128-vllm", [("580", "x86-cu130")]),
        ("h200", "580.159.04", "x86-cu130", []),
    ],
)
def test_driver_upgrades_that_make_a_better_profile_fit(
    machine: str, driver: str, chosen: str, expected: list[tuple[str, str]]
) -> None:
    choice = choice_of(machine, f"driver.version={driver}")[1]
    assert choice.profile == chosen
    assert [(unlock.minimum, unlock.profile) for unlock in choice.unlocks] == expected
    assert {unlock.change for unlock in choice.unlocks} <= {"driver"}


def test_a_profile_that_needs_two_changes_is_not_offered() -> None:
    machine = with_free_space(override(read_recorded("h100"), ["driver.version=470.256.02"]), 1)
    assert choose(machine, [read_profile("x86-cu130")]).unlocks == ()


def test_disk_space_is_one_change() -> None:
    machine = with_free_space(read_recorded("h200"), 1)
    choice = choose(machine, read_profiles())
    assert choice.profile is None
    assert [(each.change, each.profile) for each in choice.unlocks][-1] == ("disk", "x86-cu130")
    finding = unused_gpu(machine, choice)
    assert finding
    assert finding.cause == "disk-full"


def with_free_space(machine: Machine, gib: int) -> Machine:
    place = Filesystem("/", total=100 * GIB, free=gib * GIB)
    storage = msgspec.structs.replace(machine.storage, places=known({"environments": place}, "df"))
    return msgspec.structs.replace(machine, storage=storage)


def test_cpu_on_a_machine_with_a_gpu_is_a_warning_with_the_driver_that_is_needed() -> None:
    result = run(CheckRequest(machine="gh200-480gb", facts=("driver.version=550.54.14",))).data
    warnings = [finding for finding in result.findings if finding.status == "warning"]
    assert [finding.id for finding in warnings] == ["PROFILE-driver-too-old"]
    assert "gh200 needs driver 570.148.08 or newer, observed 550.54.14" in warnings[0].message
    assert "570.148.08" in warnings[0].fix
    assert result.next_command == "envdoctor explain driver-too-old"


def test_the_warning_is_not_repeated_next_to_a_rule_with_the_same_cause() -> None:
    result = run(CheckRequest(machine="h100", facts=("driver.version=470.256.02",))).data
    assert [finding.id for finding in result.findings if finding.cause == "driver-too-old"] == ["DRV006"]


@pytest.mark.parametrize("machine", ["h200", "cpu-2core", "rtx4090"])
def test_no_warning_where_a_gpu_profile_fits_or_there_is_no_gpu(machine: str) -> None:
    assert unused_gpu(*choice_of(machine)) is None


def test_the_warning_can_be_ignored_by_its_prefix() -> None:
    pascal = CheckRequest(machine="t4", facts=("gpus.0.name=NVIDIA GeForce GTX 1080",))
    ignoring = msgspec.structs.replace(pascal, ignore=("PROFILE",))
    assert not [finding for finding in run(ignoring).data.findings if finding.id.startswith("PROFILE")]
    assert [f.id for f in run(pascal).data.findings if f.id.startswith("PROFILE")]
