"""What SLURM says of a run's job: whether it waits, runs or has ended, why, and what to do next."""

from __future__ import annotations

import contextlib
import pwd
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from envdoctor.core.errors import EnvdoctorError
from envdoctor.core.processes import run
from envdoctor.core.records import Record
from envdoctor.training.launchers.slurm import JOB_FILE, NUMBER_FILE

WATCH_SECONDS = 10.0  # a controller under load answers late
# slurm.schema's states that are no end: the job comes back, or is on its way out.
ALIVE = ("PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED",
         "RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED", "SPECIAL_EXIT")  # fmt: skip
# squeue(1), "JOB REASON CODES": those that a person can do something about, or would misread.
WAITS = {
    "Resources": "for nodes: it is the first in the queue",
    "Priority": "behind jobs of higher priority",
    "Dependency": "for another job",
    "DependencyNeverSatisfied": "for another job that failed: it will never start",
    "BeginTime": "for its begin time; after a requeue some seconds",
    "JobHeldUser": "since its owner holds it",
    "JobHeldAdmin": "since the administrator holds it",
    "ReqNodeNotAvail": "for nodes that are down, drained or reserved",
    "PartitionTimeLimit": "since it asks for more time than its partition gives",
    "PartitionNodeLimit": "since it asks for more nodes than its partition gives",
    "PartitionDown": "for its partition, which is down",
    "Licenses": "for a licence",
}


class Job(Record, frozen=True, kw_only=True):
    """A job as SLURM tells it."""

    number: str
    state: str  # as TIMEOUT
    reason: str = ""
    exit_code: str = ""  # STATUS:SIGNAL
    time_limit: str = ""
    nodes: str = ""
    by: str = ""  # who cancelled it
    in_allocation: bool = False  # the run is one of several things in it

    @property
    def alive(self) -> bool:
        """Whether it waits, runs or comes back."""
        return self.state in ALIVE


def read_number(folder: Path) -> tuple[str, bool]:
    """The number of a run's job, and whether the run was started inside an allocation; empty where there is none."""
    try:
        words = (folder / NUMBER_FILE).read_text(encoding="utf-8").split()
    except (OSError, ValueError):
        return "", False
    return (words[0], len(words) > 1) if words and words[0].isascii() and words[0].isdigit() else ("", False)


def read_job(folder: Path) -> Job | None:
    """What SLURM says of a run's job; none where the run has none, or SLURM is not here or has forgotten it.

    `scontrol` first, which needs no accounting and knows a job for some minutes after its end (MinJobAge); then
    `sacct`, which keeps it, and alone says who cancelled it.
    """
    number, inside = read_number(folder)
    if not number:
        return None
    shown = parse_scontrol(ask_slurm(["scontrol", "show", "job", number], WATCH_SECONDS), inside=inside)
    if shown is not None and shown.state != "CANCELLED":
        return shown
    fields = "State,Reason,ExitCode,Timelimit,NodeList"
    asked = ["sacct", "--jobs", number, "--allocations", "--noheader", "--parsable2", f"--format={fields}"]
    return parse_sacct(number, ask_slurm(asked, WATCH_SECONDS), inside=inside) or shown


def ask_slurm(argv: Sequence[str], seconds: float) -> str:
    """What a command of SLURM says; nothing where it is not here or does not answer within these seconds."""
    if shutil.which(argv[0]) is None:
        return ""
    try:
        done = run(argv, deadline=seconds, separate_stderr=True)
    except EnvdoctorError:
        return ""
    return done.output if done.ok else ""


def parse_scontrol(text: str, *, inside: bool = False) -> Job | None:
    r"""A job from `scontrol show job`.

    Sample: "JobId=7 JobName=sort-1\n   JobState=TIMEOUT Reason=TimeLimit Dependency=(null)\n   Requeue=1 Restarts=0
    BatchFlag=1 Reboot=0 ExitCode=0:15\n   RunTime=00:01:02 TimeLimit=00:01:00 TimeMin=N/A\n   NodeList=n1" -> TIMEOUT
    """
    # Values may hold spaces in JobName and Comment alone; what is asked for stands elsewhere.
    words = dict(re.findall(r"(?:^|\s)(JobId|JobState|Reason|ExitCode|TimeLimit|NodeList)=(\S*)", text))
    if "JobId" not in words or "JobState" not in words:
        return None
    return Job(
        number=words["JobId"],
        state=words["JobState"],
        reason=_known(words.get("Reason", "")),
        exit_code=words.get("ExitCode", ""),
        time_limit=_known(words.get("TimeLimit", "")),
        nodes=_known(words.get("NodeList", "")),
        in_allocation=inside,
    )


def parse_sacct(number: str, text: str, *, inside: bool = False) -> Job | None:
    r"""A job from `sacct --allocations --noheader --parsable2 --format=State,Reason,ExitCode,Timelimit,NodeList`.

    The last line counts: a requeued job has one for each start where they are asked for. Sample:
    "CANCELLED by 1000|None|0:0|01:00:00|n[1-2]\n" -> CANCELLED, by 1000
    """
    lines = [line.split("|") for line in text.splitlines() if line.count("|") == 4]
    if not lines or not lines[-1][0]:
        return None
    state, reason, exit_code, limit, nodes = lines[-1]
    word, _, by = state.partition(" by ")
    return Job(
        number=number, state=word.rstrip("+"), reason=_known(reason), exit_code=exit_code, time_limit=_known(limit),
        nodes=_known(nodes), by=_name(by.strip()), in_allocation=inside,
    )  # fmt: skip


def _known(word: str) -> str:
    return "" if word in ("None", "(null)", "None assigned", "N/A", "Unknown", "UNLIMITED") else word


def _name(user: str) -> str:
    if user.isdigit():
        with contextlib.suppress(KeyError, OverflowError):
            return pwd.getpwuid(int(user)).pw_name
    return user


def describe(job: Job) -> str:
    """Where a job stands, in one line."""
    if job.state == "PENDING":
        why = f": it waits {WAITS[job.reason]} ({job.reason})" if job.reason in WAITS else f" ({job.reason})"
        return f"SLURM's job {job.number} has not started{why if job.reason else ''}"
    return f"SLURM's job {job.number} is {job.state}" + (f" on {job.nodes}" if job.nodes else "")


def next_command(job: Job) -> str:
    """What to run about a job that waits."""
    if job.reason == "JobHeldUser":
        return f"scontrol release {job.number}"
    return f"squeue --start --jobs {job.number}"


def explain_end(job: Job, folder: str) -> tuple[str, str]:
    """Why a job ended, and one command to go on with; its file goes on from the newest checkpoint by itself."""
    again = f"{folder}/{JOB_FILE}"
    status, _, number = job.exit_code.partition(":")
    said = {
        "TIMEOUT": (f"at its time limit of {job.time_limit or 'this job'}", f"sbatch --time={longer(job)} {again}"),
        "DEADLINE": ("at its deadline", f"sbatch {again}"),
        "OUT_OF_MEMORY": ("for using more memory than it had asked for", f"sbatch --mem=0 {again}"),
        "NODE_FAIL": (f"when a node failed ({job.nodes})", f"sbatch {again}"),
        "BOOT_FAIL": (f"since a node did not boot ({job.nodes})", f"sbatch {again}"),
        "PREEMPTED": ("to make room for another job", f"sbatch {again}"),
        "CANCELLED": (f"when {job.by or 'somebody'} cancelled it", f"sbatch {again}"),
    }
    if job.state in said:
        how, command = said[job.state]
        message = f"SLURM ended job {job.number} {how} ({job.state})"
    else:
        ending = f"signal {number}" if number not in ("", "0") else f"exit code {status or 'unknown'}"
        reason = f", {job.reason}" if job.reason else ""
        message = f"SLURM's job {job.number} ended with {ending} ({job.state}{reason})"
        command = f"tail -n 40 {folder}/train.log"
    return message, command


def longer(job: Job) -> str:
    """Twice a job's time limit, as sbatch takes it. Sample: "1-12:00:00" -> "3-00:00:00"."""
    matched = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d\d):(\d\d)", job.time_limit)
    if not matched:
        return "1-00:00:00"
    days, hours, minutes, seconds = (int(part or 0) for part in matched.groups())
    total = 2 * (((days * 24 + hours) * 60 + minutes) * 60 + seconds)
    return f"{total // 86400}-{total // 3600 % 24:02}:{total // 60 % 60:02}:{total % 60:02}"
