"""Puts a launch into effect: files, limits, and the submission of a SLURM job."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from envdoctor.core.errors import BadInput, EnvdoctorError
from envdoctor.core.processes import CompletedProcess, run
from envdoctor.training.launchers.context import SCHEDULER_SECONDS
from envdoctor.training.launchers.node import raise_limits
from envdoctor.training.launchers.records import Launch
from envdoctor.training.launchers.slurm import JOB_FILE, NUMBER_FILE

__all__ = ["check_job", "raise_limits", "submit", "write_files"]


def write_files(launch: Launch, directory: Path) -> None:
    """Write the launch's files into the run directory and remove the number of an earlier job."""
    with contextlib.suppress(OSError):
        (directory / NUMBER_FILE).unlink(missing_ok=True)
    for name, text in launch.files.items():
        (directory / name).write_text(text, encoding="utf-8")


def check_job(launch: Launch) -> None:
    """Let SLURM validate a job before any file is written; raises BadInput with SLURM's reason."""
    done = _run_sbatch(["sbatch", "--test-only"], stdin=launch.files[JOB_FILE].encode())
    if not done.ok:
        raise BadInput(
            f"SLURM rejects the job: {_sbatch_message(done)}",
            expected="a job that this cluster accepts",
            hint="sinfo, then change the option that the message names; --dry-run prints the job file",
        )


def submit(launch: Launch) -> str:
    """Submit a job and return its number."""
    done = _run_sbatch(launch.command)
    number = done.output.strip().splitlines()[-1].partition(";")[0] if done.ok and done.output.strip() else ""
    if not number.isdigit():
        raise EnvdoctorError(
            f"sbatch {done.ending}: {_sbatch_message(done)}", expected="the number of a job", hint="squeue --me"
        )
    # The job writes its number as well, but only when it starts, which may be much later.
    with contextlib.suppress(OSError):
        Path(launch.command[-1]).with_name(NUMBER_FILE).write_text(f"{number}\n", encoding="utf-8")
    return number


def _run_sbatch(argv: list[str] | tuple[str, ...], stdin: bytes = b"") -> CompletedProcess:
    try:
        return run(argv, timeout=SCHEDULER_SECONDS, stdin=stdin)
    except EnvdoctorError as error:
        raise BadInput(
            f"{error.message}: SLURM's commands are not on PATH ({os.environ.get('PATH', '')})",
            expected="a machine from which jobs are submitted",
            hint="print the job file with --dry-run and submit it there",
        ) from error


def _sbatch_message(done: CompletedProcess) -> str:
    lines = [line.strip() for line in done.output.splitlines() if line.strip()]
    return "; ".join(line.removeprefix("sbatch: error: ") for line in lines) or "it printed nothing"
