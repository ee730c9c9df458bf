"""Exit code 3 and no check mark where a decisive fact could not be read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from envdoctor.commands import check, health, plan
from envdoctor.core.errors import EnvdoctorError
from envdoctor.core.records import Driver, Machine, unreadable
from envdoctor.core.results import CommandResult
from envdoctor.machine.recorded import read_recorded

NO_DRIVER = Driver(*(unreadable("nvmlInit", "NVML error 18") for _ in range(4)))
HIDDEN: dict[str, Callable[[Machine], Machine]] = {
    "driver": lambda machine: msgspec.structs.replace(machine, driver=NO_DRIVER),
    "GPU": lambda machine: msgspec.structs.replace(machine, gpus=unreadable("nvmlInit", "NVML error 18")),
}
COMMANDS: dict[str, Callable[[str], CommandResult]] = {
    "check": lambda file: check.run(check.CheckRequest(machine=file)),
    "check with one rule": lambda file: check.run(check.CheckRequest(machine=file, select=("EXT001",))),
    "health": lambda file: health.run(health.HealthRequest(machine=file)),
    "plan": lambda file: plan.run(plan.PlanRequest(recipe="sort", machine=file)),
}


@pytest.mark.parametrize("name", HIDDEN)
@pytest.mark.parametrize("command", COMMANDS)
def test_an_unread_fact_is_no_all_clear(command: str, name: str, tmp_path: Path) -> None:
    if (command, name) == ("plan", "driver"):
        pytest.skip("the plan needs the GPU only")
    file = tmp_path / "machine.json"
    file.write_bytes(msgspec.json.encode(HIDDEN[name](read_recorded("h200"))))
    try:
        code = COMMANDS[command](str(file)).exit_code
    except EnvdoctorError as error:
        code = error.exit_code
    assert code in ((1, 3) if command in ("check", "health") else (3,))  # 1: it is an error by itself


def test_what_is_not_selected_needs_no_facts(tmp_path: Path) -> None:
    file = tmp_path / "machine.json"
    file.write_bytes(msgspec.json.encode(HIDDEN["driver"](read_recorded("h200"))))
    assert check.run(check.CheckRequest(machine=str(file), select=("HOST",))).exit_code == 0
