"""Settings that change when a run is resumed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from run.resumed_settings import FILE, check_changes
from settings import BadInput, setting_definitions
from support.command import envdoctor
from support.stacks import defaults, isolated_forking
from support.trainer_runs import finish, read_events, read_rows, start, write_run
from test_train_resume import steady
from trl_fields import CONFIGS, fields

RULES = FILE.read_text()


def change(run: Path, **changed: Any) -> None:
    """Change settings in run.json."""
    configuration = json.loads((run / "run.json").read_text())
    configuration["settings"] |= changed
    (run / "run.json").write_text(json.dumps(configuration))


def test_rules_name_settings() -> None:
    import tomllib

    rules = tomllib.loads(RULES)
    known = {*setting_definitions(), *setting_definitions("verl_settings.toml")}
    known |= {name for trainer in CONFIGS for name in fields(trainer)}
    named = [name for names in rules["reasons"].values() for name in names]
    assert {*rules["changeable"], *named} <= known
    assert {*rules["changeable"]} & {*named} == {*rules["fixed_with_examples"]}
    assert len(named) == len(set(named))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"learning_rate": 0.5}, "the checkpoint's optimizer and schedule keep their values"),
        ({"model": "a/c"}, "the checkpoint has the weights and the optimizer state of the former model"),
        ({"prompts_per_step": 4}, "the prompts of the later steps would be other ones"),
        ({"beta": 0.1}, "the steps before the checkpoint were trained with it"),
        ({"adam_beta2": 0.9}, "the checkpoint's optimizer and schedule keep their values"),
    ],
)
def test_a_change_that_has_no_effect_is_refused_with_the_reason(changed: dict[str, Any], reason: str) -> None:
    (name,) = changed
    with pytest.raises(BadInput) as caught:
        check_changes(defaults(), defaults() | changed, "--set")
    assert caught.value.message.startswith(f"--set: {name} = {changed[name]}, but the run was started with ")
    assert caught.value.expected == f"the former value: {reason}"
    assert check_changes(defaults(), defaults(max_steps=9, save_steps=3), "--set") == {
        "max_steps": 9,
        "save_steps": 3,
    }


@pytest.mark.stack
def test_a_run_with_more_steps_equals_one_that_was_started_with_them(stack_python: Path, tmp_path: Path) -> None:
    length = {"sft_steps": 20, "save_steps": 2, "eval_steps": 2, "seed": 7, "learning_rate": 1e-3}
    whole = write_run(tmp_path / "whole", "sort", max_steps=6, **length)
    assert finish(start(stack_python, whole))[0] == 0
    grown = write_run(tmp_path / "grown", "sort", max_steps=4, **length)
    assert finish(start(stack_python, grown))[0] == 0
    python = isolated_forking(stack_python)
    words = ["train", "sort", "--run", grown, "--python", python, "--unverified", "--resume", "latest"]
    done = envdoctor(*words, "--set", "max_steps=6", "--set", "save_steps=3", home=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert steady(grown) == steady(whole)
    assert read_rows(grown / "generations.csv") == read_rows(whole / "generations.csv")
    notes = [event["message"] for event in read_events(grown) if event["event"] == "note"]
    assert {"max_steps = 6, before 4", "save_steps = 3, before 2"} <= set(notes)
    assert not (grown / "checkpoints/checkpoint-5").exists()  # transformers would use the checkpoint's save_steps
    configuration = json.loads((grown / "run.json").read_text())
    assert configuration["settings"]["max_steps"] == 6
    changed = configuration["resumed_with"][0]["settings"]
    assert (changed["max_steps"], changed["save_steps"]) == (6, 3)
    again = envdoctor(*words, "--set", "learning_rate=0.1", home=tmp_path)
    assert (again.returncode, "learning_rate = 0.1, but the run was started with 0.001" in again.stderr) == (2, True)
    less = envdoctor(*words, "--set", "max_steps=5", home=tmp_path)
    assert (less.returncode, "is past max_steps = 5" in less.stderr) == (2, True), less.stderr


@pytest.mark.stack
def test_a_changed_run_json_is_compared_as_well(stack_python: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "sort", max_steps=2, save_steps=1, lr_scheduler_type="linear")
    assert finish(start(stack_python, run))[0] == 0
    for changed, message in (
        ({"learning_rate": 0.5}, "learning_rate = 0.5, but the run was started with"),
        ({"adam_beta2": 0.9}, "adam_beta2 = 0.9, but the run was started with none"),
    ):
        other = tmp_path / next(iter(changed))
        shutil.copytree(run, other)
        change(other, **changed)
        status, output = finish(start(stack_python, other, "--resume", "checkpoint-1"))
        assert (status, message in output) == (2, True), output
    change(run, max_steps=3)
    status, output = finish(start(stack_python, run, "--resume", "latest"))
    assert status == 0, output
    assert "lr_scheduler_type = linear: the learning rate follows the schedule of the new number of steps" in output
