"""A newer TRL than the tested ones: changed defaults are reported, and a missing metric is an error."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version
from support.paths import TRAIN
from support.stacks import run_code
from support.trainer_runs import finish, read_events, start, write_run
from trl_config.defaults import COMPUTED, TESTED, changed_defaults
from trl_fields import fields

NEWER = {"trl": Version("1.17.0"), "transformers": Version("5.17.0")}


@dataclass
class Config:
    """A part of GRPOConfig in some later version."""

    top_k: int = 50  # was 0
    adam_beta1: float = 0.9
    seed: int = 7  # set by the run
    new_penalty: float = 0.5
    generation_kwargs: dict[str, Any] | None = field(default_factory=dict)


def test_changed_and_new_defaults_are_reported() -> None:
    assert changed_defaults(Config, {"seed"}, NEWER) == [
        (
            "trl 1.17.0 is newer than the tested 1.16.0, and has other defaults of fields that this run does not "
            "set: generation_kwargs = computed (tested: none), new_penalty = 0.5 (tested: no such field), "
            "top_k = 50 (tested: 0)"
        )
    ]


def test_tested_versions_are_not_compared() -> None:
    tested = {name: Version(version) for name, version in TESTED.items()}
    assert changed_defaults(Config, (), tested) == []
    assert changed_defaults(Config, (), tested | {"trl": Version("0.22.2")}) == []


def test_a_newer_version_without_changes_is_named() -> None:
    kept = dataclasses.make_dataclass("Kept", [("adam_beta1", float, 0.9)])
    assert changed_defaults(kept, (), NEWER) == [
        "trl 1.17.0 is newer than the tested 1.16.0; its defaults of fields that this run does not set are the same"
    ]


INSTALLED = """
import importlib.metadata
import trl
from trl_config.defaults import TESTED, defaults_of
from trl_fields import CONFIGS
report(
    versions={name: importlib.metadata.version(name) for name in TESTED},
    defaults={trainer: dict(defaults_of(getattr(trl, name))) for trainer, name in CONFIGS.items()},
)
"""


@pytest.mark.stack
def test_the_table_has_the_defaults_of_the_tested_versions(stack_python: Path) -> None:
    found = run_code(stack_python, INSTALLED)
    if found["versions"] != TESTED:
        pytest.skip(f"needs {TESTED}")
    for trainer, defaults in found["defaults"].items():
        table = {name: field.default for name, field in fields(trainer).items() if name in defaults}
        known = {name for name, default in table.items() if COMPUTED not in (default, defaults[name])}
        assert len(known) > 100
        assert {name: table[name] for name in known} == {name: defaults[name] for name in known}


RENAMES = """
import sys
sys.path.insert(0, TRAIN)
import grpo
prepared = grpo.prepare_process
def prepare(*arguments):
    prepared(*arguments)
    from trl import GRPOTrainer
    log = GRPOTrainer.log
    def renamed(self, logs, *arguments, **named):
        for names in self._metrics.values():
            if "completions/clipped_ratio" in names:
                names["completions/truncated"] = names.pop("completions/clipped_ratio")
        log(self, logs, *arguments, **named)
    GRPOTrainer.log = renamed
grpo.prepare_process = prepare
sys.exit(grpo.main())
"""


@pytest.mark.stack
def test_a_metric_that_is_not_logged_ends_the_run_at_its_first_step(stack_python: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "sort", max_steps=4)
    (tmp_path / "renames.py").write_text(f"TRAIN = {str(TRAIN)!r}\n{RENAMES}")
    status, output = finish(start(stack_python, run, program=tmp_path / "renames.py"))
    assert status == 2, output
    assert "logs no completions/clipped_ratio at step 1" in output
    assert "completions/truncated" in output  # what it logs instead
    assert [event for event in read_events(run) if event["event"] == "step"] == []
