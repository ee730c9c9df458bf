"""The state of SLURM jobs: parsed output of scontrol and sacct, and its effect on a watched run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from support.cases import each_case
from support.command import envdoctor, envelope

from envdoctor.training.launchers.job_state import (
    Job,
    describe_job,
    double_time_limit,
    explain_job_end,
    parse_sacct,
    parse_scontrol,
    pending_job_command,
)

# Output of `scontrol show job`, SLURM 22.05.8, on a cluster of support/slurm_cluster.py on 2026-11-21, without lines
# that contain local paths: a `sleep 300` that SLURM killed at its limit of one minute, and a pending job.
TIMEOUT = """JobId=1 JobName=limited
   UserId=root(0) GroupId=root(0) MCS_label=N/A
   Priority=4294901759 Nice=0 Account=(null) QOS=(null)
   JobState=TIMEOUT Reason=TimeLimit Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:15
   RunTime=00:01:27 TimeLimit=00:01:00 TimeMin=N/A
   SubmitTime=2026-11-21T23:10:01 EligibleTime=2026-11-21T23:10:01
   AccrueTime=2026-11-21T23:10:01
   StartTime=2026-11-21T23:10:03 EndTime=2026-11-21T23:11:30 Deadline=N/A
   SuspendTime=None SecsPreSuspend=0 LastSchedEval=2026-11-21T23:10:03 Scheduler=Main
   Partition=debug AllocNode:Sid=localhost:26236
   ReqNodeList=(null) ExcNodeList=(null)
   NodeList=n1
   BatchHost=n1
   NumNodes=1 NumCPUs=1 NumTasks=1 CPUs/Task=1 ReqB:S:C:T=0:0:*:*
   TRES=cpu=1,node=1,billing=1
   Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=*
   MinCPUsNode=1 MinMemoryNode=0 MinTmpDiskNode=0
   Features=(null) DelayBoot=00:00:00
   OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null)
"""
PENDING = """JobId=2 JobName=waits
   UserId=root(0) GroupId=root(0) MCS_label=N/A
   Priority=4294901758 Nice=0 Account=(null) QOS=(null)
   JobState=PENDING Reason=Resources Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0
   RunTime=00:00:00 TimeLimit=00:01:00 TimeMin=N/A
   SubmitTime=2026-11-21T23:10:01 EligibleTime=2026-11-21T23:10:01
   AccrueTime=2026-11-21T23:10:01
   StartTime=2026-11-21T23:11:03 EndTime=2026-11-21T23:12:03 Deadline=N/A
   SuspendTime=None SecsPreSuspend=0 LastSchedEval=2026-11-21T23:10:06 Scheduler=Main
   Partition=debug AllocNode:Sid=localhost:26236
   ReqNodeList=(null) ExcNodeList=(null)
   NodeList=
   NumNodes=2-2 NumCPUs=2 NumTasks=2 CPUs/Task=1 ReqB:S:C:T=0:0:*:*
   TRES=cpu=2,mem=2M,node=2,billing=2
   Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=*
   MinCPUsNode=1 MinMemoryNode=0 MinTmpDiskNode=0
   Features=(null) DelayBoot=00:00:00
   OverSubscribe=NO Contiguous=0 Licenses=(null) Network=(null)
"""


def job(state: str, **fields: Any) -> Job:
    return Job(number="7", state=state, **fields)


def test_parse_scontrol() -> None:
    assert parse_scontrol(TIMEOUT) == Job(
        number="1", state="TIMEOUT", reason="TimeLimit", exit_code="0:15", time_limit="00:01:00", nodes="n1"
    )
    assert parse_scontrol("slurm_load_jobs error: Invalid job id specified\n") is None
    waiting = parse_scontrol(PENDING)
    assert waiting is not None
    assert waiting.active
    assert describe_job(waiting) == (
        "SLURM's job 2 has not started: it waits for nodes: it is the first in the queue (Resources)"
    )
    assert pending_job_command(waiting) == "squeue --start --jobs 2"


def test_parse_sacct() -> None:
    found = parse_sacct("7", "REQUEUED|None|0:0|01:00:00|n1\nCANCELLED by 0|None|0:0|01:00:00|n[1-2]\n")
    assert found == job("CANCELLED", exit_code="0:0", time_limit="01:00:00", nodes="n[1-2]", cancelled_by="root")
    assert parse_sacct("7", "") is None
    assert parse_sacct("7", "Slurm accounting storage is disabled\n") is None
    other = parse_sacct("7", "CANCELLED by 4294967290|None|0:0|UNLIMITED|None assigned\n")
    assert other == job("CANCELLED", exit_code="0:0", cancelled_by="4294967290")


@each_case(
    ("ended", "message", "command"),
    [
        (
            job("TIMEOUT", time_limit="12:00:00"),
            "at its time limit of 12:00:00 (TIMEOUT)",
            "sbatch --time=1-00:00:00",
        ),
        (job("OUT_OF_MEMORY"), "for using more memory than it had requested", "sbatch --mem=0"),
        (job("NODE_FAIL", nodes="n[1-2]"), "when a node failed (n[1-2])", "sbatch /r/job.sbatch"),
        (job("PREEMPTED"), "in favour of another job", "sbatch /r/job.sbatch"),
        (job("CANCELLED", cancelled_by="anna"), "when anna cancelled it", "sbatch /r/job.sbatch"),
        (
            job("FAILED", exit_code="3:0", reason="NonZeroExitCode"),
            "exit code 3 (FAILED, NonZeroExitCode)",
            "tail -n",
        ),
        (job("FAILED", exit_code="0:9"), "ended with signal 9", "tail -n 40 /r/train.log"),
    ],
)
def test_explain_job_end(ended: Job, message: str, command: str) -> None:
    explanation, next_command = explain_job_end(ended, "/r")
    assert message in explanation
    assert next_command.startswith(command)


@each_case(
    ("limit", "twice"),
    [("00:01:00", "0-00:02:00"), ("1-12:00:00", "3-00:00:00"), ("", "1-00:00:00"), ("Partition_Limit", "1-00:00:00")],
)
def test_double_time_limit(limit: str, twice: str) -> None:
    assert double_time_limit(job("TIMEOUT", time_limit=limit)) == twice


# A watched run, with a fake scontrol that prints recorded output.


def watch(
    tmp_path: Path, scontrol: str, *events: dict[str, Any], lock: str = "", number: str = "1"
) -> dict[str, Any]:
    run, tools = tmp_path / "run", tmp_path / "tools"
    run.mkdir()
    tools.mkdir()
    (run / "run.json").write_text('{"schema": 1, "recipe": "sort", "settings": {}}')
    (run / "slurm-job").write_text(f"{number}\n")
    (run / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    if lock:
        (run / ".lock").write_text(lock)
    (tools / "output").write_text(scontrol)
    (tools / "scontrol").write_text(f'#!/bin/bash\necho "$*" >> {tools}/calls; cat {tools}/output\n')
    (tools / "scontrol").chmod(0o755)
    path = f"{tools}:{os.environ['PATH']}"
    done = envdoctor("watch", run, "--once", "--format", "json", home=tmp_path, PATH=path)
    data: dict[str, Any] = envelope(done)["data"]
    assert (tools / "calls").read_text() == f"show job {number}\n"
    return data


STEP = {"t": 1.0, "event": "step", "step": 40, "steps": 100, "metrics": {}}


def test_killed_run_is_explained_by_its_job(tmp_path: Path) -> None:
    data = watch(tmp_path, TIMEOUT, STEP, lock="99999999")
    assert (data["state"]["ending"], data["job"]["state"]) == ("failed", "TIMEOUT")
    error = data["state"]["error"]
    assert error["message"].startswith("SLURM ended job 1 at its time limit of 00:01:00 (TIMEOUT), at step 40 of 100")
    assert error["hint"] == f"sbatch --time=0-00:02:00 {tmp_path}/run/job.sbatch"


def test_run_that_saved_on_the_warning_stays_interrupted(tmp_path: Path) -> None:
    data = watch(tmp_path, TIMEOUT, STEP, {"t": 2.0, "event": "interrupted", "step": 40}, lock="99999999")
    assert data["state"]["ending"] == "interrupted"
    assert "at its time limit of 00:01:00 (TIMEOUT); resume with: sbatch --time=" in data["state"]["notes"][-1]


def test_pending_run_reports_what_it_waits_for(tmp_path: Path) -> None:
    data = watch(tmp_path, PENDING, number="2")
    assert (data["trainer"], data["state"]["ending"]) == ("not started", "")
    (note,) = data["state"]["notes"]
    assert "job 2 has not started: it waits for nodes: it is the first in the queue (Resources)" in note
    assert note.endswith("; squeue --start --jobs 2")


def test_run_whose_job_slurm_no_longer_knows(tmp_path: Path) -> None:
    data = watch(tmp_path, "", STEP, lock="99999999")
    assert data["job"] is None
    assert "ended without an event" in data["state"]["error"]["message"]
    assert "no checkpoint was saved; start again with: envdoctor train" in data["state"]["error"]["hint"]


def test_invalid_job_number_is_ignored(tmp_path: Path) -> None:
    from envdoctor.training.launchers.job_state import read_job, read_job_number

    for text in ("", "x; rm -rf /", "٣"):
        (tmp_path / "slurm-job").write_text(text)
        assert read_job_number(tmp_path) == ("", False)
    assert read_job(tmp_path) is None
    (tmp_path / "slurm-job").write_text("12 allocation\n")
    assert read_job_number(tmp_path) == ("12", True)
    (tmp_path / "slurm-job").write_text("12\n")
    assert read_job_number(tmp_path) == ("12", False)


def test_the_name_of_the_user_who_cancelled_a_job() -> None:
    root, unknown = (parse_sacct("7", f"CANCELLED by {user}|None|0:0|01:00:00|n1\n") for user in ("0", str(10**30)))
    assert root is not None
    assert unknown is not None
    assert (root.cancelled_by, unknown.cancelled_by, root.nodes) == ("root", str(10**30), "n1")
