"""Run directories: the name of a new one, the one to resume, run.json, and whether a trainer may start in one."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from envdoctor.core.command_line import command_line
from envdoctor.core.errors import BadInput, write_error
from envdoctor.core.files import open_file, read_file, read_file_text
from envdoctor.core.shell_commands import shell_command
from envdoctor.training.runs.events import EVENTS_FILE, EventReader
from envdoctor.training.runs.lock import LOCK_FILE, is_local, read_trainer_status
from envdoctor.training.runs.state import printable_line

RUN_FILE = "run.json"
LOG_FILE = "train.log"
REJECTED_RUN_FILES = (RUN_FILE, EVENTS_FILE, LOG_FILE, LOCK_FILE)  # left by a run whose settings were rejected
START_SECONDS = 300.0  # until the trainer creates its lock: it loads torch before, on a slow disk for minutes

Engine = Literal["grpo", "verl"]


def new_run_directory(recipe: str, base: Path) -> Path:
    """Return the path of a new run; the directory is not created."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    name = re.sub(r"[^\w.-]+", "-", recipe)  # the name in a user's recipe may hold any character
    return base / f"{name}-{stamp}"


def find_run_to_resume(resume: str, recipe: str, base: Path) -> Path:
    """Return the run that --resume means without --run: the checkpoint's run, else the recipe's newest."""
    checkpoint = Path(resume).absolute()
    run = checkpoint.parent.parent
    if (checkpoint / RUN_FILE).is_file():
        hint = shlex.join(["envdoctor", "train", "--run", resume, "--resume", "latest"])
        raise BadInput(
            f"--resume {resume} is a run directory", expected="latest, or a checkpoint of a run", hint=hint
        )
    if checkpoint.is_dir() and (run / RUN_FILE).is_file():
        return run
    return find_newest_run(recipe, base)


def find_newest_run(recipe: str, base: Path) -> Path:
    """Return the newest run of a recipe below `base`, by the recipe and time in run.json."""
    runs = []
    for path in base.glob(f"*/{RUN_FILE}"):
        configuration = read_run_json(path.parent)
        runs.append((str(configuration.get("recipe", "")), str(configuration.get("created", "")), path.parent))
    matching = sorted((created, folder) for name, created, folder in runs if name == recipe)
    if not matching:
        others = sorted({name for name, _, _ in runs if name})
        listed = f" (there are runs of {', '.join(others)})" if others else ""
        hint = shell_command(
            "envdoctor train {} {}", (others or [recipe])[0], ["--resume", "latest"] if others else []
        )
        raise BadInput(f"there is no run of {recipe} below {base}{listed}", expected="a run to resume", hint=hint)
    return matching[-1][1]


def find_run(run: str, *, needs_steps: bool = True) -> Path:
    """Return the directory of a run: the named one, else the run with steps below ./runs that changed last.

    Without `needs_steps`, it may also be a run that is being started.
    """
    if run:
        return require_run_directory(Path(run).absolute())
    base = Path("runs").absolute()
    runs = [file.parent for file in sorted(base.glob(f"*/{RUN_FILE}"), key=_last_change, reverse=True)]
    for folder in runs:
        if has_steps(folder) or (not needs_steps and is_starting(folder)):
            return folder
    if not runs:
        raise BadInput(
            f"there is no run below {base}",
            expected="the directory of a run, or runs below ./runs, where `envdoctor train` writes them",
            hint="envdoctor train",
        )
    raise BadInput(
        f"no run below {base} has steps ({len(runs)} without)",
        expected="a run that was trained",
        hint=shell_command("envdoctor watch {}", runs[0]),
    )


def has_steps(folder: Path) -> bool:
    """Whether a run was trained for a step or longer."""
    return any(
        event.get("event") in ("step", "warmup", "done") for event in EventReader(folder / EVENTS_FILE).read_new()
    )


def is_starting(folder: Path) -> bool:
    """Whether a run without steps may still be trained: its start has not failed."""
    events = list(EventReader(folder / EVENTS_FILE).read_new())
    if events and events[-1].get("event") in ("error", "interrupted"):
        return False
    status, _ = read_trainer_status(folder, local=is_local(folder))
    if status == "not started":  # torch is loaded before the lock is created; a submitted job may be pending for days
        is_submitted = read_run_json(folder).get("launcher") == "slurm"
        return is_submitted or time.time() - _last_change(folder / RUN_FILE) < START_SECONDS
    return status != "gone"


def require_run_directory(folder: Path) -> Path:
    """Return a run directory; raise BadInput with the directory's content where it is not one."""
    expected = f"a run directory with {RUN_FILE}"
    try:
        if folder.is_file():
            raise BadInput(
                f"{folder} is a file", expected=expected, hint=command_line("envdoctor", "watch", folder.parent)
            )
        if (folder / RUN_FILE).is_file():
            return folder
        content = sorted(path.name for path in folder.iterdir())
        runs = sorted(folder.glob(f"*/{RUN_FILE}"), key=_last_change)
    except OSError as error:
        raise BadInput(f"cannot read {folder}: {error.strerror}", expected=expected, hint="ls -d runs/*") from error
    listed = ", ".join(printable_line(name) for name in content[:8])
    listed += f" and {len(content) - 8} more" if len(content) > 8 else ""
    hint = command_line("envdoctor", "watch", runs[-1].parent) if runs else "ls -d runs/*"
    raise BadInput(f"{folder} has no {RUN_FILE} (it contains: {listed or 'nothing'})", expected=expected, hint=hint)


def _last_change(run_json: Path) -> float:
    files = (run_json, run_json.parent / EVENTS_FILE)
    return max((file.stat().st_mtime for file in files if file.exists()), default=0.0)


def read_run_json(directory: Path) -> dict[str, Any]:
    """Read a run's configuration; empty where run.json is missing or damaged."""
    try:
        configuration = json.loads(read_file(directory / RUN_FILE))
    except (OSError, ValueError, RecursionError):
        return {}
    return configuration if isinstance(configuration, dict) else {}


def require_readable_run(directory: Path) -> None:
    """Raise BadInput where run.json, the events or the log of a run cannot be read."""
    try:
        content = read_file(directory / RUN_FILE)
    except OSError as error:
        reason = error.strerror or str(error)
    else:
        reason = "" if is_json_object(content) else "it is no JSON object"
    if reason:
        raise BadInput(
            f"cannot read {directory / RUN_FILE}: {reason}", expected="a run directory", hint="envdoctor watch RUN"
        )
    for name in (EVENTS_FILE, LOG_FILE):
        try:
            open_file(directory / name).close()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise unreadable_events(directory, f"{error.strerror}", "envdoctor watch RUN", name) from error


def is_json_object(content: bytes) -> bool:
    """Whether a file contains a JSON object."""
    try:
        return isinstance(json.loads(content), dict)
    except (ValueError, RecursionError):
        return False


def unreadable_events(directory: Path, reason: str, hint: str, name: str = EVENTS_FILE) -> BadInput:
    """The error for a file of a run that cannot be read."""
    return BadInput(f"cannot read {directory / name}: {reason}", expected="a regular file of a run", hint=hint)


def read_run_settings(directory: Path) -> tuple[str, dict[str, Any], Engine]:
    """Read recipe, settings and engine of a run that is resumed; raises BadInput where run.json lacks them."""
    try:
        configuration = json.loads(read_file(directory / RUN_FILE))
        engine: Engine = "verl" if configuration.get("engine") == "verl" else "grpo"
        return str(configuration["recipe"]), dict(configuration["settings"]), engine
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else error
        raise BadInput(
            f"{directory} has no readable run.json ({reason})",
            expected="a run directory",
            hint="envdoctor train RECIPE --run DIR --resume latest",
        ) from error


def require_empty_directory(directory: Path, recipe: str) -> None:
    """Raise BadInput unless a run directory is new, empty, or left by a run whose settings were rejected."""
    with report_write_errors(directory):
        require_no_trainer(directory)
        used = directory.exists() and any(directory.iterdir()) and not is_rejected_run(directory)
    if used:
        raise BadInput(
            f"{directory} is not empty",
            expected="a new directory for the run",
            hint=f"{command_line('envdoctor', 'train', recipe)} --run NEW_FOLDER, or --resume latest",
        )


@contextlib.contextmanager
def report_write_errors(directory: Path) -> Iterator[None]:
    """Turn an OSError into one line for the user, and remove the run directory if it was created meanwhile."""
    existed = os.path.lexists(directory)
    try:
        yield
    except OSError as error:
        if not existed:
            shutil.rmtree(directory, ignore_errors=True)
        expected, hint = "a writable directory with free space", "envdoctor train RECIPE --run DIR"
        raise write_error(directory, error, expected=expected, hint=hint) from error


def is_rejected_run(directory: Path) -> bool:
    """Whether the trainer rejected this run's settings before it started: only configuration and log exist."""
    try:
        if not {path.name for path in directory.iterdir()} <= set(REJECTED_RUN_FILES):
            return False
        last = json.loads(read_file_text(directory / EVENTS_FILE).splitlines()[-1])
        return (last["event"], last["kind"]) == ("error", "bad-input")
    except (OSError, ValueError, LookupError, TypeError):
        return False


def resume_command(directory: Path, options: Sequence[str] | None = None) -> str:
    """Return the command that continues a run which ended early; without a checkpoint, the one that restarts it.

    `options`: those of the latest start, where known; the default is the first start's, from run.json. A run may be
    resumed in another environment.
    """
    configuration = read_run_json(directory)
    recipe, arguments = str(configuration.get("recipe", "RECIPE")), configuration.get("asked")
    arguments = arguments if isinstance(arguments, dict) else {}
    words = map(str, arguments.get("options", ()) if options is None else options)
    if has_checkpoint(directory):
        return shlex.join(["envdoctor", "train", recipe, "--run", str(directory), "--resume", "latest", *words])
    sets = [part for assignment in arguments.get("assignments", ()) for part in ("--set", str(assignment))]
    return shlex.join(["envdoctor", "train", str(arguments.get("recipe", recipe)), *sets, *words])


def resume_hint(directory: Path, options: Sequence[str] | None = None) -> str:
    """Return `resume_command` with an introduction."""
    introduction = "resume with" if has_checkpoint(directory) else "no checkpoint was saved; start again with"
    return f"{introduction}: {resume_command(directory, options)}"


def has_checkpoint(directory: Path) -> bool:
    """Whether --resume latest finds a checkpoint: a complete one of the bundled trainer, or any of verl."""
    patterns = ("checkpoint-*/complete.json", "global_step_*")
    return any(next((directory / "checkpoints").glob(pattern), None) for pattern in patterns)


def require_checkpoint(directory: Path, resume: str) -> None:
    """Raise BadInput where the checkpoint to resume from does not exist. The trainer checks that it is complete."""
    folder = directory / "checkpoints"
    if resume == "latest" and has_checkpoint(directory):
        return
    paths = (folder / resume, Path(resume))
    if resume != "latest" and any(path.is_dir() and path.resolve().parent == folder.resolve() for path in paths):
        return
    available = sorted(path.name for pattern in ("checkpoint-*", "global_step_*") for path in folder.glob(pattern))
    missing = "no complete checkpoint" if resume == "latest" else "no such checkpoint"
    raise BadInput(
        f"--resume {resume}: {missing} in {folder}",
        expected=f"a checkpoint of this run: {', '.join(available) or 'it has none'}",
        hint=resume_command(directory),
    )


def require_no_trainer(directory: Path) -> None:
    """Raise BadInput where a trainer runs in this directory.

    The trainer's own lock would stop a second trainer too, but only after envdoctor has overwritten files.
    """
    status, process = read_trainer_status(directory, local=is_local(directory))
    if status == "running":
        raise BadInput(
            f"{directory} is being trained by process {process or 'unknown'}",
            expected="one trainer for each run directory",
            hint=f"{command_line('envdoctor', 'watch', directory)}; to stop it: kill -INT {process or 'PROCESS'}",
        )
