"""The folders of runs: the name of a new one, the one to go on with, and whether a trainer may begin in one."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from envdoctor.core.errors import BadInput, cannot_write
from envdoctor.training.run_lock import find_trainer, is_local

LOG = "train.log"
REFUSED = ("run.json", "events.jsonl", LOG, ".lock")  # all that a run leaves that was refused at its start

Engine = Literal["grpo", "verl"]


def new_run_directory(recipe: str, base: Path) -> Path:
    """A name for a new run; nothing is made yet."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    name = re.sub(r"[^\w.-]+", "-", recipe)  # a recipe of one's own has any name
    return base / f"{name}-{stamp}"


def resumed_run(resume: str, recipe: str, base: Path) -> Path:
    """The run that --resume means where no folder is named: the one that holds the checkpoint, else the newest."""
    checkpoint = Path(resume).absolute()
    run = checkpoint.parent.parent
    if (checkpoint / "run.json").is_file():
        hint = shlex.join(["envdoctor", "train", "--run", resume, "--resume", "latest"])
        raise BadInput(f"--resume {resume}: it is a run", expected="latest, or a checkpoint of a run", hint=hint)
    if checkpoint.is_dir() and (run / "run.json").is_file():
        return run
    return newest_run(recipe, base)


def newest_run(recipe: str, base: Path) -> Path:
    """The newest run of a recipe below `base`, to resume it: by what run.json says, since a folder has any name."""
    runs = [(_created(path), path.parent) for path in base.glob("*/run.json")]
    found = sorted((created, folder) for (of, created), folder in runs if of == recipe)
    if not found:
        others = sorted({of for (of, _), _ in runs if of})
        seen = f" (there are runs of {', '.join(others)})" if others else ""
        hint = f"envdoctor train {shlex.quote((others or [recipe])[0])}{' --resume latest' if others else ''}"
        raise BadInput(
            f"there is no run of {recipe} below {base}{seen}",
            expected="a run to resume",
            hint=hint,
        )
    return found[-1][1]


def _created(run_json: Path) -> tuple[str, str]:
    """Recipe and time of a run; empty where its file is damaged."""
    configuration = _read_object(run_json)
    return str(configuration.get("recipe", "")), str(configuration.get("created", ""))


def _read_object(file: Path) -> dict[str, Any]:
    """A file's JSON object; empty where there is none."""
    try:
        read = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return read if isinstance(read, dict) else {}


def require_new(directory: Path, recipe: str) -> None:
    """Refuse a run's folder that holds something, unless it is what a run left that was turned away."""
    with writing_into(directory):
        refuse_a_trained_run(directory)
        used = directory.exists() and any(directory.iterdir()) and not was_refused(directory)
    if used:
        raise BadInput(
            f"{directory} is not empty",
            expected="a new folder for the run",
            hint=f"envdoctor train {recipe} --run NEW_FOLDER, or --resume latest",
        )


@contextlib.contextmanager
def writing_into(directory: Path) -> Iterator[None]:
    """Say in one line why a run's folder cannot be written; one that was made for it goes again."""
    there = os.path.lexists(directory)
    try:
        yield
    except OSError as error:
        if not there:
            shutil.rmtree(directory, ignore_errors=True)
        expected, hint = "a folder of yours for the run, with room in it", "envdoctor train RECIPE --run FOLDER"
        raise cannot_write(directory, error, expected=expected, hint=hint) from error


def was_refused(directory: Path) -> bool:
    """Whether a run was turned away here before it did anything: it left its settings and the reason, no more."""
    try:
        if not {path.name for path in directory.iterdir()} <= set(REFUSED):
            return False
        last = json.loads((directory / "events.jsonl").read_text(encoding="utf-8").splitlines()[-1])
        return (last["event"], last["kind"]) == ("error", "bad-input")
    except (OSError, ValueError, LookupError, TypeError):
        return False


def go_on(directory: Path, options: Sequence[str] | None = None) -> str:
    """What to do next with a run that ended early: the command to paste, as it was started, by run.json.

    `options` of the start that ended, where they are known: a run may be resumed in another environment.
    """
    run_json = _read_object(directory / "run.json")
    recipe, asked = str(run_json.get("recipe", "RECIPE")), run_json.get("asked")
    asked = asked if isinstance(asked, dict) else {}
    words = map(str, asked.get("options", ()) if options is None else options)
    if has_checkpoint(directory):
        again = ["envdoctor", "train", recipe, "--run", str(directory), "--resume", "latest", *words]
        return f"go on with: {shlex.join(again)}"
    sets = [part for each in asked.get("assignments", ()) for part in ("--set", str(each))]
    again = ["envdoctor", "train", str(asked.get("recipe", recipe)), *sets, *words]
    return f"no checkpoint was saved; begin again with: {shlex.join(again)}"


def has_checkpoint(directory: Path) -> bool:
    """Whether --resume latest finds something: of the bundled trainer a marked checkpoint, of verl any."""
    places = ("checkpoint-*/complete.json", "global_step_*")
    return any(next((directory / "checkpoints").glob(place), None) for place in places)


def require_checkpoint(directory: Path, resume: str) -> None:
    """Refuse to go on from what is not there; whether a checkpoint is whole, the trainer sees."""
    folder = directory / "checkpoints"
    if resume == "latest" and has_checkpoint(directory):
        return
    places = (folder / resume, Path(resume))
    if resume != "latest" and any(place.is_dir() and place.resolve().parent == folder.resolve() for place in places):
        return
    there = sorted(path.name for pattern in ("checkpoint-*", "global_step_*") for path in folder.glob(pattern))
    missing = "no complete checkpoint" if resume == "latest" else "no such checkpoint"
    raise BadInput(
        f"--resume {resume}: {missing} in {folder}",
        expected=f"a checkpoint of this run: {', '.join(there) or 'it has none'}",
        hint=go_on(directory).partition(": ")[2],
    )


def refuse_a_trained_run(directory: Path) -> None:
    """A second trainer would be refused by the first one's lock, but files would have been written by then."""
    trainer, process = find_trainer(directory, local=is_local(directory))
    if trainer == "running":
        raise BadInput(
            f"{directory} is being trained by process {process or 'unknown'}",
            expected="one trainer for a run",
            hint=f"envdoctor watch {directory}; to end it: kill -INT {process or 'PROCESS'}",
        )


def read_run(directory: Path) -> tuple[str, dict[str, Any], Engine]:
    """Recipe, settings and trainer of a run that is there, to be gone on with."""
    try:
        configuration = json.loads((directory / "run.json").read_text())
        engine: Engine = "verl" if configuration.get("engine") == "verl" else "grpo"
        return str(configuration["recipe"]), dict(configuration["settings"]), engine
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        reason = f"it says no {error}" if isinstance(error, KeyError) else error
        raise BadInput(
            f"{directory} holds no run.json that can be read ({reason})",
            expected="the folder of a run",
            hint="envdoctor train RECIPE --run FOLDER --resume latest",
        ) from error
