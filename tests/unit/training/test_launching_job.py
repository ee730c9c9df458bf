"""SLURM job files run by bash: first start, resume from a checkpoint, and requeue."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import msgspec
import pytest
from support.launch_specs import SFT, SPEC, job_text

# Fakes of srun and scontrol that record their arguments.
SRUN = """#!/bin/bash
echo "srun $*" >> "$CALLS"
[ -n "$CHECKPOINT" ] && mkdir -p "$RUN/checkpoints/$CHECKPOINT" && touch "$RUN/checkpoints/$CHECKPOINT/complete.json"
[ -n "$EVENT" ] && echo "{\\"t\\": 1.0, \\"event\\": \\"$EVENT\\", \\"step\\": 5}" >> "$RUN/events.jsonl"
exit $STATUS
"""
SCONTROL = '#!/bin/bash\necho "scontrol $*" >> "$CALLS"; exit 1\n'


def run_job(
    tmp_path: Path, *, resume: str = "", status: int = 0, engine: str = "grpo", **variables: str
) -> tuple[int, str]:
    """Run the job file with bash; return its exit code and the recorded calls."""
    run, tools = tmp_path / "run", tmp_path / "tools"
    run.mkdir(exist_ok=True)
    tools.mkdir()
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    base = SPEC if engine == "grpo" else SFT
    spec = msgspec.structs.replace(base, directory=str(run), program=("/grpo.py", str(run)), resume=resume)
    fixed = {"PATH": f"{tools}:{os.environ['PATH']}", "CALLS": str(tmp_path / "calls"), "RUN": str(run),
             "SLURM_JOB_ID": "123456", "STATUS": str(status)}  # fmt: skip
    done = subprocess.run(
        ["bash"], input=job_text(spec=spec), capture_output=True, text=True, env=fixed | variables, check=False
    )
    assert done.stderr == ""
    return done.returncode, (tmp_path / "calls").read_text()


def write_checkpoint(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "run/checkpoints" / name
    folder.mkdir(parents=True)
    (folder / "complete.json").touch()


def test_first_start_does_not_resume_and_done_run_is_not_requeued(tmp_path: Path) -> None:
    code, calls = run_job(tmp_path, EVENT="done", CHECKPOINT="checkpoint-5")
    assert code == 0
    assert "--resume" not in calls
    assert "scontrol requeue" not in calls
    assert f"--rdzv-endpoint={os.uname().nodename}:23456 --rdzv-id=123456-0 " in calls


def test_requeued_job_resumes_from_its_checkpoint(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, "checkpoint-5")
    _, calls = run_job(tmp_path, EVENT="done", SLURM_RESTART_COUNT="1")
    assert calls.rstrip().endswith("--resume latest")
    assert "--rdzv-id=123456-1 " in calls


def test_resume_option_applies_to_the_first_start_only(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, "checkpoint-5")
    _, calls = run_job(tmp_path, resume="/x/checkpoint-2", EVENT="done")
    assert calls.rstrip().endswith("--resume /x/checkpoint-2")


def test_requeue_without_checkpoint_starts_again(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/metrics.csv").write_text("step,reward\n1,0.5\n")
    _, calls = run_job(tmp_path, EVENT="done", SLURM_RESTART_COUNT="1")
    assert "--resume" not in calls
    assert not (tmp_path / "run/metrics.csv").exists()  # the trainer rejects a directory with metrics of a run


def test_job_that_saved_before_its_time_limit_is_requeued(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, "checkpoint-9")
    code, calls = run_job(tmp_path, status=1, EVENT="interrupted", CHECKPOINT="checkpoint-10")
    assert code == 1
    assert calls.splitlines()[-1] == "scontrol requeue 123456"


def test_verl_resumes_from_its_periodic_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "run/checkpoints").mkdir(parents=True)
    (tmp_path / "run/checkpoints/latest_checkpointed_iteration.txt").write_text("40")
    _, calls = run_job(tmp_path, engine="verl", status=130, EVENT="interrupted", SLURM_RESTART_COUNT="1")
    assert calls.rstrip().endswith("--resume latest")  # no new checkpoint: it would requeue forever
    assert "scontrol requeue" not in calls


@pytest.mark.parametrize(
    "variables", [{"EVENT": "interrupted"}, {"EVENT": "error", "CHECKPOINT": "checkpoint-10"}, {}]
)
def test_job_without_progress_or_after_a_crash_is_not_requeued(tmp_path: Path, variables: dict[str, str]) -> None:
    write_checkpoint(tmp_path, "checkpoint-9")
    code, calls = run_job(tmp_path, status=137, **variables)
    assert code == 137
    assert "scontrol requeue" not in calls
