"""Putting a launch into effect: limits, files, and the hand-over of a job to SLURM."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from envdoctor.core.errors import BadInput, EnvdoctorError
from envdoctor.core.processes import Finished, run
from envdoctor.training.launchers import node
from envdoctor.training.launchers.records import Launch
from envdoctor.training.launchers.situation import SCHEDULER_SECONDS
from envdoctor.training.launchers.slurm import JOB_FILE, NUMBER_FILE

__all__ = ["raise_limits", "submit", "try_job", "write_files"]


def write_files(launch: Launch, directory: Path) -> None:
    """The launch's files into the run's folder; the number of an earlier job goes."""
    with contextlib.suppress(OSError):
        (directory / NUMBER_FILE).unlink(missing_ok=True)
    for name, text in launch.files.items():
        (directory / name).write_text(text, encoding="utf-8")


def raise_limits() -> None:
    """This process's limits, which its children inherit."""
    node.raise_limits()


def try_job(launch: Launch) -> None:
    """Let SLURM look at a job before anything is written: what it would refuse is told now."""
    done = _sbatch(["sbatch", "--test-only"], stdin=launch.files[JOB_FILE].encode())
    if not done.ok:
        raise BadInput(
            f"SLURM refuses the job: {_said(done)}",
            expected="a job that this cluster takes",
            hint="sinfo, then the option that is named; the file is shown by --dry-run",
        )


def submit(launch: Launch) -> str:
    """Hand the job over; its number."""
    done = _sbatch(launch.command)
    number = done.output.strip().splitlines()[-1].partition(";")[0] if done.ok and done.output.strip() else ""
    if not number.isdigit():
        raise EnvdoctorError(
            f"sbatch {done.ending}: {_said(done)}", expected="the number of a job", hint="squeue --me"
        )
    # The job's file writes it as well, but only when it starts, and it may wait for long.
    with contextlib.suppress(OSError):
        Path(launch.command[-1]).with_name(NUMBER_FILE).write_text(f"{number}\n", encoding="utf-8")
    return number


def _sbatch(argv: list[str] | tuple[str, ...], stdin: bytes = b"") -> Finished:
    try:
        return run(argv, deadline=SCHEDULER_SECONDS, stdin=stdin)
    except EnvdoctorError as error:
        raise BadInput(
            f"{error.message}: SLURM's commands are not on PATH ({os.environ.get('PATH', '')})",
            expected="a machine from which jobs are submitted",
            hint="see the job's file with --dry-run, and submit it there",
        ) from error


def _said(done: Finished) -> str:
    lines = [line.strip() for line in done.output.splitlines() if line.strip()]
    return "; ".join(line.removeprefix("sbatch: error: ") for line in lines) or "it said nothing"
