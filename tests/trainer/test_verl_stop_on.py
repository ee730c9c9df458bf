"""A verl run on the CPU that an alarm of stop_on ends: a tiny model with a NaN weight."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from support.verl_formats import needs_verl
from support.verl_on_cpu import SETTINGS, make_model, program, train_on_cpu, write_rows

pytestmark = [pytest.mark.stack, needs_verl]


def test_not_a_number_stops_a_run(tmp_path: Path) -> None:
    settings = SETTINGS | {
        "model": str(make_model(tmp_path / "model", weight=float("nan"))), "num_train_epochs": 50, "save_steps": 0,
        "data": str(write_rows(tmp_path / "rows.jsonl", range(200))), "stop_on": ["not-a-number"],
    }  # fmt: skip
    request = json.dumps({"recipe": "verl-sft", "settings": settings})
    checked = subprocess.run([*program(), "--check"], input=request, capture_output=True, text=True, check=True)
    run = tmp_path / "run"
    train_on_cpu(run, json.loads(checked.stdout)["settings"])
    result = json.loads((run / "result.json").read_text())
    assert (result["status"], result["stopped_by"]) == ("stopped", "not-a-number")
    assert result["steps"] < 4000  # of 4,500
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    alarm = next(event for event in events if event["event"] == "alarm")
    assert (alarm["name"], alarm["step"]) == ("not-a-number", 1)
    notes = [event["message"] for event in events if event["event"] == "note"]
    assert any(
        note.startswith("alarms: no-signal, collapse, overfitting, truncation are not raised") for note in notes
    )
    assert any("ended by stop_on: not-a-number" in note and "no checkpoint was saved" in note for note in notes)
    assert events[-1]["event"] == "done"
    processes = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(run) not in processes  # torchrun and its processes have ended
