"""Settings of a resumed run: which may differ from those of its start. Standard library only."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from run.directory import RunDirectory
from settings import GRPO, BadInput, format_value, setting_definitions, shorten, trainer_of

FILE = Path(__file__).parent / "resumed_settings.toml"
LENGTHS = ("max_steps", "num_train_epochs")


@functools.cache
def _rules() -> dict[str, Any]:
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def check_changes(before: Mapping[str, Any], now: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The settings that differ from those of the run's start; BadInput for one that a resumed run cannot change."""
    defaults = setting_definitions(trainer=trainer_of(now))  # of a setting that an earlier version did not have
    former = {name: setting.default for name, setting in defaults.items()} | dict(before)
    names = [name for name in {**before, **now} if former.get(name) != now.get(name)]
    fixed = () if trainer_of(now) == GRPO else _rules()["fixed_with_examples"]
    for name in names:
        if name not in _rules()["changeable"] or name in fixed:
            raise BadInput(
                f"{source}: {name} = {shorten(format_value(now.get(name)))}, but the run was started with "
                f"{shorten(format_value(before.get(name)))}",
                expected=f"the former value: {_reason(name)}",
                hint=f"leave {name} out, or start a new run without --resume",
            )
    return {name: now.get(name) for name in names}


def _reason(name: str) -> str:
    reasons: dict[str, list[str]] = _rules()["reasons"]
    return next((reason for reason, names in reasons.items() if name in names), next(iter(reasons)))


def record_settings(run: RunDirectory, settings: Mapping[str, Any], source: str, *, resumed: bool) -> None:
    """Record the settings of a start; on resume, compare them with the former ones and note the changes."""
    former = run.read_events("settings")
    changes = check_changes(former[-1]["settings"], settings, source) if resumed and former else {}
    if former and resumed and not changes:
        return
    for name, value in changes.items():
        run.note(f"{name} = {format_value(value)}, before {format_value(former[-1]['settings'].get(name))}")
    schedule = settings.get("lr_scheduler_type", "constant")
    if changes.keys() & set(LENGTHS) and not schedule.startswith("constant"):
        run.note(f"lr_scheduler_type = {schedule}: the learning rate follows the schedule of the new number of steps")
    run.write_event("settings", settings=dict(settings))
