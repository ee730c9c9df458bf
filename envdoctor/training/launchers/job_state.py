"""The state of a run's SLURM job: pending, running or ended, the reason, and the next command."""

from __future__ import annotations

import contextlib
import pwd
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from envdoctor.core.errors import EnvdoctorError
from envdoctor.core.processes import run
from envdoctor.core.record import Record
from envdoctor.core.shell_commands import shell_command
from envdoctor.training.launchers.slurm import JOB_FILE, NUMBER_FILE

QUERY_SECONDS = 10.0  # a controller under load responds late
# The states of slurm.schema in which a job has not ended, or will be started again.
ACTIVE_STATES = (
    "PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED",
    "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED", "SPECIAL_EXIT",
)  # fmt: skip
# squeue(1), "JOB REASON CODES": the reasons that the user can change or that are easy to misread.
PENDING_REASONS = {
    "Resources": "for nodes: it is the first in the queue",
    "Priority": "behind jobs of higher priority",
    "Dependency": "for another job",
    "DependencyNeverSatisfied": "for another job that failed: it will never start",
    "BeginTime": "for its begin time; after a requeue some seconds",
    "JobHeldUser": "since its owner holds it",
    "JobHeldAdmin": "since the administrator holds it",
    "ReqNodeNotAvail": "for nodes that are down, drained or reserved",
    "PartitionTimeLimit": "since it requests more time than its partition allows",
    "PartitionNodeLimit": "since it requests more nodes than its partition allows",
    "PartitionDown": "for its partition, which is down",
    "Licenses": "for a licence",
}
NO_VALUE = ("None", "(null)", "None assigned", "N/A", "Unknown", "UNLIMITED")


class Job(Record, frozen=True, kw_only=True):
    """A job as SLURM reports it."""

    number: str
    state: str  # such as TIMEOUT
    reason: str = ""
    exit_code: str = ""  # STATUS:SIGNAL
    time_limit: str = ""
    nodes: str = ""
    cancelled_by: str = ""
    in_allocation: bool = False  # the run was started inside the job, which may run other things as well

    @property
    def active(self) -> bool:
        """Whether the job is pending, runs, or will be requeued."""
        return self.state in ACTIVE_STATES


def read_job_number(folder: Path) -> tuple[str, bool]:
    """Return the number of a run's job, empty where it has none, and whether the run started in an allocation."""
    try:
        words = (folder / NUMBER_FILE).read_text(encoding="utf-8").split()
    except (OSError, ValueError):
        return "", False
    return (words[0], len(words) > 1) if words and words[0].isascii() and words[0].isdigit() else ("", False)


def read_job(folder: Path) -> Job | None:
    """Query a run's job; None where the run has no job, or SLURM is not available or no longer has a record of it.

    `scontrol` first: it needs no accounting and has a job for some minutes after its end (MinJobAge). Then `sacct`,
    which keeps the job and is the only one that reports who cancelled it.
    """
    number, in_allocation = read_job_number(folder)
    if not number:
        return None
    scontrol = query_slurm(["scontrol", "show", "job", number], QUERY_SECONDS)
    job = parse_scontrol(scontrol, in_allocation=in_allocation)
    if job is not None and job.state != "CANCELLED":
        return job
    fields = "State,Reason,ExitCode,Timelimit,NodeList"
    sacct = ["sacct", "--jobs", number, "--allocations", "--noheader", "--parsable2", f"--format={fields}"]
    return parse_sacct(number, query_slurm(sacct, QUERY_SECONDS), in_allocation=in_allocation) or job


def query_slurm(argv: Sequence[str], seconds: float) -> str:
    """Return the output of a SLURM command; empty where it is not installed, fails or takes longer than `seconds`."""
    if shutil.which(argv[0]) is None:
        return ""
    try:
        done = run(argv, timeout=seconds, separate_stderr=True)
    except EnvdoctorError:
        return ""
    return done.output if done.ok else ""


def parse_scontrol(text: str, *, in_allocation: bool = False) -> Job | None:
    r"""Parse a job from `scontrol show job`.

    Sample: "JobId=7 JobName=sort-1\n   JobState=TIMEOUT Reason=TimeLimit Dependency=(null)\n   Requeue=1 Restarts=0
    BatchFlag=1 Reboot=0 ExitCode=0:15\n   RunTime=00:01:02 TimeLimit=00:01:00 TimeMin=N/A\n   NodeList=n1" -> TIMEOUT
    """
    # Only the values of JobName and Comment may contain spaces; neither is read here.
    values = dict(re.findall(r"(?:^|\s)(JobId|JobState|Reason|ExitCode|TimeLimit|NodeList)=(\S*)", text))
    if "JobId" not in values or "JobState" not in values:
        return None
    return Job(
        number=values["JobId"],
        state=values["JobState"],
        reason=_value(values.get("Reason", "")),
        exit_code=values.get("ExitCode", ""),
        time_limit=_value(values.get("TimeLimit", "")),
        nodes=_value(values.get("NodeList", "")),
        in_allocation=in_allocation,
    )


def parse_sacct(number: str, text: str, *, in_allocation: bool = False) -> Job | None:
    r"""Parse a job from the output of sacct.

    Command: `sacct --allocations --noheader --parsable2 --format=State,Reason,ExitCode,Timelimit,NodeList`.
    The last line counts: a requeued job may have one for each start. Sample:
    "CANCELLED by 1000|None|0:0|01:00:00|n[1-2]\n" -> CANCELLED, by 1000
    """
    lines = [line.split("|") for line in text.splitlines() if line.count("|") == 4]
    if not lines or not lines[-1][0]:
        return None
    state, reason, exit_code, limit, nodes = lines[-1]
    word, _, user = state.partition(" by ")
    return Job(
        number=number, state=word.rstrip("+"), reason=_value(reason), exit_code=exit_code, time_limit=_value(limit),
        nodes=_value(nodes), cancelled_by=_user_name(user.strip()), in_allocation=in_allocation,
    )  # fmt: skip


def _value(word: str) -> str:
    return "" if word in NO_VALUE else word


def _user_name(user: str) -> str:
    if user.isdigit():
        with contextlib.suppress(KeyError, OverflowError):
            return pwd.getpwuid(int(user)).pw_name
    return user


def describe_job(job: Job) -> str:
    """Describe a job's state in one line."""
    if job.state != "PENDING":
        return f"SLURM's job {job.number} is {job.state}" + (f" on {job.nodes}" if job.nodes else "")
    reason = f" ({job.reason})" if job.reason else ""
    if job.reason in PENDING_REASONS:
        reason = f": it waits {PENDING_REASONS[job.reason]} ({job.reason})"
    return f"SLURM's job {job.number} has not started{reason}"


def pending_job_command(job: Job) -> str:
    """Return the command to run for a pending job."""
    if job.reason == "JobHeldUser":
        return shell_command("scontrol release {}", job.number)
    return f"squeue --start --jobs {job.number}"


def explain_job_end(job: Job, folder: str) -> tuple[str, str]:
    """Return why a job ended and a command to continue; the job file resumes from the newest checkpoint."""
    job_file = f"{folder}/{JOB_FILE}"
    status, _, signal = job.exit_code.partition(":")
    causes = {
        "TIMEOUT": (
            f"at its time limit of {job.time_limit or 'this job'}",
            f"sbatch --time={double_time_limit(job)} {job_file}",
        ),
        "DEADLINE": ("at its deadline", f"sbatch {job_file}"),
        "OUT_OF_MEMORY": ("for using more memory than it had requested", f"sbatch --mem=0 {job_file}"),
        "NODE_FAIL": (f"when a node failed ({job.nodes})", f"sbatch {job_file}"),
        "BOOT_FAIL": (f"since a node did not boot ({job.nodes})", f"sbatch {job_file}"),
        "PREEMPTED": ("in favour of another job", f"sbatch {job_file}"),
        "CANCELLED": (f"when {job.cancelled_by or 'a user'} cancelled it", f"sbatch {job_file}"),
    }
    if job.state in causes:
        cause, command = causes[job.state]
        return f"SLURM ended job {job.number} {cause} ({job.state})", command
    ending = f"signal {signal}" if signal not in ("", "0") else f"exit code {status or 'unknown'}"
    reason = f", {job.reason}" if job.reason else ""
    message = f"SLURM's job {job.number} ended with {ending} ({job.state}{reason})"
    return message, f"tail -n 40 {folder}/train.log"


def double_time_limit(job: Job) -> str:
    """Return twice a job's time limit for sbatch. Sample: "1-12:00:00" -> "3-00:00:00"."""
    matched = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d\d):(\d\d)", job.time_limit)
    if not matched:
        return "1-00:00:00"
    days, hours, minutes, seconds = (int(part or 0) for part in matched.groups())
    total = 2 * (((days * 24 + hours) * 60 + minutes) * 60 + seconds)
    return f"{total // 86400}-{total // 3600 % 24:02}:{total // 60 % 60:02}:{total % 60:02}"
