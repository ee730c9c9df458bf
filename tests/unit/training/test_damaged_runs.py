"""Runs whose files cannot be read: `watch` ends, and `pack` packs nothing without its events."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.command import envdoctor

STEP = {"t": time.time(), "event": "step", "step": 1, "steps": 2, "metrics": {"reward": 0.5}}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with one step and without a trainer."""
    run = tmp_path / "runs/a"
    run.mkdir(parents=True)
    (run / "run.json").write_text('{"schema": 1, "recipe": "sort", "settings": {}}')
    (run / "events.jsonl").write_text(json.dumps(STEP) + "\n")
    (run / "train.log").write_text("step 1\n")
    (run / "metrics.csv").write_text("step,reward\n1,0.5\n")
    return run


UNREADABLE: dict[str, Callable[[Path], Any]] = {
    "fifo": os.mkfifo, "directory": Path.mkdir, "loop": lambda path: path.symlink_to(path.name),
    "device": lambda path: path.symlink_to("/dev/zero"),
}  # fmt: skip


@pytest.mark.parametrize("kind", UNREADABLE)
@pytest.mark.parametrize("name", ["events.jsonl", "train.log"])
def test_unreadable_files_end_watch_and_pack(run: Path, name: str, kind: str) -> None:
    (run / name).unlink()
    UNREADABLE[kind](run / name)
    for command in ("watch", "pack"):
        done = envdoctor(command, run, home=run.parents[1])
        assert (done.returncode, f"cannot read {run / name}: " in done.stderr) == (2, True), done.stderr
    assert not list(run.parent.glob("*.zip"))


@pytest.mark.parametrize("text", ["", "[" * 1000, '["a"]', "\x00"])
def test_watch_ends_at_a_damaged_run_json(run: Path, text: str) -> None:
    (run / "run.json").write_text(text)
    done = envdoctor("watch", run, home=run.parents[1])
    assert (done.returncode, "run.json: it is no JSON object" in done.stderr) == (2, True), done.stderr


def test_watch_ends_at_a_run_that_no_trainer_will_continue(run: Path) -> None:
    old = time.time() - 3600
    (run / "events.jsonl").write_text(json.dumps(STEP | {"t": old}) + "\n")
    done = envdoctor("watch", run, home=run.parents[1])
    assert done.returncode == 1
    assert "it has no trainer on this machine, and no event for 36" in done.stdout + done.stderr
    (run / "events.jsonl").unlink()
    os.utime(run / "run.json", (old, old))
    done = envdoctor("watch", run, home=run.parents[1])
    assert done.returncode == 1
    assert "no trainer started in it within 300 s" in done.stdout + done.stderr


def test_other_special_files_are_counted(run: Path) -> None:
    os.mkfifo(run / "pipe")
    done = envdoctor("pack", run, "--format", "json", home=run.parents[1])
    assert json.loads(done.stdout)["data"]["manifest"]["left_out"] == {"not regular files": 1}


def test_a_driver_version_of_thousands_of_digits_is_no_version(tmp_path: Path) -> None:
    for version in ("9" * 5000, "abc"):
        done = envdoctor("check", "--machine", "h100", "--fact", f"driver.version={version}", home=tmp_path)
        assert "rule failed" not in done.stdout
        assert "check skipped: " in done.stdout
