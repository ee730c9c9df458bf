"""SLURM: the job file of a run, with a reason for each line, and the parsing of its options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from envdoctor.core.errors import BadInput
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.shell_commands import CONTROL, quote
from envdoctor.redact.output import without_secrets
from envdoctor.training.launchers import commands
from envdoctor.training.launchers.environment import SAVE_SECONDS, SHUTDOWN, plan_reporters
from envdoctor.training.launchers.records import JobOptions, Partition, RunSpec, Variable

JOB_FILE = "job.sbatch"
NUMBER_FILE = "slurm-job"  # in the run directory: the job's number, for `envdoctor watch`
WAIT_SECONDS = 600  # for the other nodes after one has ended: the first node evaluates, saves and merges alone
# minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS (sbatch(1), --time)
TIME = lazy_pattern(r"\d+|\d+:\d\d|\d+:\d\d:\d\d|\d+-\d\d?(:\d\d){0,2}|UNLIMITED|infinite", re.IGNORECASE)
LONG_LINE = 56  # characters; the reason of a longer line is written above it
# The bundled trainer saves on this signal. verl cannot, and resumes from its last periodic checkpoint.
WARNING_SIGNAL = {
    "grpo": (f"USR1@{SAVE_SECONDS}", "seconds before the end (up to 60 more): finish the step, save, exit"),
    "verl": (
        "TERM@60",
        "seconds before the end (up to 60 more): exit cleanly; verl saves only every save_steps steps",
    ),
}
Row = tuple[str, str]  # line, reason


def job_file(
    spec: RunSpec, job: JobOptions, *, nodes: int, processes: int, gpus: int, partition: Partition | None
) -> str:
    """Return the content of RUN/job.sbatch. `gpus` per node is 0 for several processes on CPUs."""
    path = shlex.quote(f"{spec.directory}/{JOB_FILE}")
    resume = shlex.join(["--resume", spec.resume] if spec.resume else [])
    several, has_cpus = _several(spec, nodes, processes), bool(_cpus(gpus, partition))
    return "\n".join([
        "#!/bin/bash -l" if job.modules else "#!/bin/bash",
        f"# Written by envdoctor for one run. To submit it again: sbatch {path}",
        *align_reasons(header_rows(spec, job, nodes=nodes, gpus=gpus, partition=partition)),
        "",
        *align_reasons(preparation_rows(spec, job, several=several, cpus=has_cpus)),
        "",
        RESUME.format(run=shlex.quote(spec.directory), resume=resume, newest=NEWEST[spec.engine]),
        *align_reasons(start_rows(spec, job, nodes=nodes, processes=processes, gpus=gpus)),
        "",
        ENDING,
    ])  # fmt: skip


def header_rows(spec: RunSpec, job: JobOptions, *, nodes: int, gpus: int, partition: Partition | None) -> list[Row]:
    """Return the #SBATCH lines; an option of the user replaces the generated one."""
    cpus = _cpus(gpus, partition)
    rows = [
        ("job-name", quote(spec.directory.rstrip("/").rpartition("/")[2]), "the run's directory, for squeue"),
        ("partition", job.partition, "as requested"),
        ("account", job.account, "as requested"),
        ("time", job.time, "as requested; the job is killed after it"),
        ("nodes", str(nodes), "machines"),
        ("nodelist", job.nodelist, "as requested"),
        ("ntasks-per-node", "1", "node.py, which then becomes the parent of the node's processes"),
        ("gres", f"gpu:{gpus}" if gpus else "", "GPUs of each node"),
        (
            "cpus-per-task",
            str(cpus) if cpus else "",
            f"this job's share of a node's {partition.cpus} CPUs" if partition else "",
        ),
        ("output", shlex.quote(f"{spec.directory}/train.log".replace("%", "%%")), "both streams of all nodes"),
        ("open-mode", "append", "a requeued job appends to the same file"),
        ("signal", *WARNING_SIGNAL[spec.engine]),
        ("requeue", None, "after a node failure, and by the last lines of this file"),
        ("export", "ALL", "HF_TOKEN, WANDB_API_KEY and others come from the caller; no secret is written here"),
    ]
    custom = dict(parse_option(option) for option in job.options)
    generated = [(key, value, reason) for key, value, reason in rows if value != "" and key not in custom]
    requested = [(key, value, "as requested") for key, value in custom.items()]
    return [
        (f"#SBATCH --{key}" + ("" if value is None else f"={value}"), reason)
        for key, value, reason in [*generated, *requested]
    ]


def preparation_rows(spec: RunSpec, job: JobOptions, *, several: bool, cpus: bool) -> list[Row]:
    """Return the lines that load modules and set variables."""
    rows: list[Row] = [(f"module load {shlex.quote(name)}", "as requested") for name in job.modules]
    profile = [Variable(name, value, "the environment's profile") for name, value in spec.environment.items()]
    variables = [*profile, *([SHUTDOWN] if several and SHUTDOWN.name not in spec.environment else [])]
    rows += [(variable.line.partition("  # ")[0], variable.reason) for variable in variables]
    rows += [
        # --export=ALL passes the submitter's variables, which take precedence.
        (f"export {tracker.name}=${{{tracker.name}:-{shlex.quote(str(tracker.value))}}}", tracker.reason)
        for tracker in plan_reporters(spec, spec.environment)
    ]
    if cpus or any(parse_option(option)[0] == "cpus-per-task" for option in job.options):
        rows.append(
            (
                "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK",
                "srun ignores --cpus-per-task of the job since SLURM 22.05",
            )
        )
    rows += [
        ("export TOKENIZERS_PARALLELISM=false", "otherwise tokenizers print a warning after each fork"),
        ("export PYTHONUNBUFFERED=1", "write log lines as they are printed"),
        (
            f"echo $SLURM_JOB_ID > {shlex.quote(f'{spec.directory}/{NUMBER_FILE}')}",
            "for envdoctor watch, which queries SLURM for the job",
        ),
        ("first=$(hostname)", "where this script runs"),
        (
            "port=$((20000 + SLURM_JOB_ID % 10000))",
            "below Linux's ephemeral ports (from 32768), a different one for each job",
        ),
    ]
    return rows


# The newest complete checkpoint, as each trainer marks it.
NEWEST = {
    "grpo": 'ls "$run"/checkpoints/checkpoint-*/complete.json 2>/dev/null | sort -V | tail -n 1',
    "verl": 'cat "$run/checkpoints/latest_checkpointed_iteration.txt" 2>/dev/null',
}
RESUME = """\
# Resume from a complete checkpoint: after a requeue, and when this file is submitted again.
run={run}
newest() {{ {newest}; }}
before=$(newest)
resume=({resume})
if [ -n "$before" ]; then
    [ ${{#resume[@]}} -gt 0 ] && [ -z "$SLURM_RESTART_COUNT" ] || resume=(--resume latest)
elif [ -n "$SLURM_RESTART_COUNT" ]; then
    rm -f "$run/metrics.csv"  # a start without a checkpoint: its steps are repeated
fi
"""

ENDING = """\
# Saved and stopped by the signal before completion: requeue. Not without a new checkpoint: it would requeue forever.
last=$(tail -n 1 "$run/events.jsonl" 2>/dev/null)
if [[ $status -ne 0 && $last == *'"event": "interrupted"'* ]]; then
    if [ "$(newest)" != "$before" ]; then
        echo "job $SLURM_JOB_ID: saved before its time limit; requeued to resume from $(newest)"
        scontrol requeue "$SLURM_JOB_ID" && sleep 60     # SLURM ends this script during the sleep
    else
        echo "job $SLURM_JOB_ID: no step was saved before the time limit: not requeued; request more --time"
    fi
fi
exit $status
"""


def start_rows(spec: RunSpec, job: JobOptions, *, nodes: int, processes: int, gpus: int) -> list[Row]:
    """Return the srun line and the commands that it starts."""
    several = _several(spec, nodes, processes)
    network = nodes * processes > 1
    node = shlex.join(commands.node_prefix(spec, toward="FIRST", interface="", processes=processes, several=network))
    node = node.replace("FIRST", '"$first"')
    rows = [(f"node=({node})", "on each node: set its interface, threads, limits")]
    if several:
        name = "$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}"
        start = commands.torchrun_nodes(spec, nodes, processes, endpoint="ENDPOINT", name="NAME")
        line = shlex.join(start).replace("ENDPOINT", '"$first:$port"').replace("NAME", name, 1)
        line = line.replace(f"--rdzv-id={name}", f'--rdzv-id="{name}"')
        rows.append((f"start=({line})", "one process per GPU; rendezvous on the first node"))
    elif spec.on_ray and nodes > 1:
        rows.append(
            (
                'names=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | paste -sd,)',
                "all nodes in order: Ray's head waits for them and reports those that do not join",
            )
        )
        start = commands.ray_nodes(spec, head="FIRST", port="PORT", names="NAMES", gpus=gpus)
        line = shlex.join(start).replace("FIRST", '"$first"').replace("PORT", '"$port"').replace("NAMES", '"$names"')
        reason = "Ray on each node until the job ends; its head starts the trainer when all nodes have joined"
        rows.append((f"start=({line})", reason))
    else:
        rows.append((f"start=({shlex.quote(spec.python)})", "one process"))
    rows.append((f'trainer=({shlex.join(spec.program)} "${{resume[@]}}")', "the run's trainer"))
    srun_options, wrapper = container_arguments(spec, job.container)
    srun = ["srun", f"--wait={WAIT_SECONDS}", *srun_options]
    inner = shlex.join(wrapper) + " " if wrapper else ""
    line = f'{shlex.join(srun)} {inner}"${{node[@]}}" "${{start[@]}}" "${{trainer[@]}}"'
    rows += [
        (line, f"{WAIT_SECONDS} s after one node's end srun kills the others: the first node saves and merges alone"),
        ("status=$?", ""),
    ]
    return rows


def container_arguments(spec: RunSpec, image: str) -> tuple[list[str], list[str]]:
    """Return srun options and a command prefix for a container: apptainer for a .sif file, else pyxis."""
    if not image:
        return [], []
    if image.endswith(".sif"):
        bound = ",".join(spec.folders)
        return [], ["apptainer", "exec", "--nv", "--bind", bound, image]
    return [
        f"--container-image={image}",
        "--container-mounts=" + ",".join(f"{folder}:{folder}" for folder in spec.folders),
    ], []


def srun_command(
    spec: RunSpec, first: str, *, nodes: int, processes: int, job: str, interface: str, image: str,
    names: Sequence[str] = (), gpus: int = 0,
) -> list[str]:  # fmt: skip
    """Return the srun command for a run inside an allocation."""
    several = _several(spec, nodes, processes)
    port = 20000 + int(job) % 10000 if job.isdigit() else commands.PORT
    options, wrapper = container_arguments(spec, image)
    prefix = commands.node_prefix(
        spec, toward=first, interface=interface, processes=processes, several=nodes * processes > 1
    )
    name = f"{job}-{spec.directory.rpartition('/')[2]}"
    torchrun = commands.torchrun_nodes(spec, nodes, processes, endpoint=f"{first}:{port}", name=name)
    srun = ["srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", f"--wait={WAIT_SECONDS}"]
    start = torchrun if several else [spec.python]
    if spec.on_ray and nodes > 1:
        nodelist = ",".join(names[:nodes])
        srun.append(f"--nodelist={nodelist}")
        start = commands.ray_nodes(spec, head=first, port=str(port), names=nodelist, gpus=gpus)
    return [*srun, *options, *wrapper, *prefix, *start, *commands.trainer(spec)]


def parse_option(text: str) -> tuple[str, str | None]:
    """Parse an option of sbatch into its name and value.

    Samples: "qos=high" -> ("qos", "high"); "exclusive" -> ("exclusive", None)
    """
    key, equals, value = text.lstrip("-").partition("=")
    if not re.fullmatch(r"[a-z][a-z0-9-]*", key) or (equals and not re.fullmatch(r"\S+", value)):
        raise BadInput(
            f"--slurm-option {text}", expected="an option of sbatch as KEY=VALUE or KEY", hint="man sbatch"
        )
    if key == "export" and "=" in value:
        raise BadInput(
            f"--slurm-option {key}=... contains a value, which other users could read in {JOB_FILE}",
            expected="names only, such as export=ALL or export=HF_TOKEN,PATH",
            hint="export HF_TOKEN in the shell that submits",
        )
    return key, value if equals else None


def validate_job(job: JobOptions) -> None:
    """Raise BadInput for option values that would break the job file."""
    for text in (*job.options, *job.modules, job.container, job.partition, job.account, job.nodelist, job.time):
        if CONTROL.search(text):
            raise BadInput(f"{text!a} has control characters", expected="options of one line", hint="man sbatch")
    for option in job.options:
        parse_option(option)
    if any(without_secrets(text) != text for text in (*job.options, job.account, job.container)):
        raise BadInput(
            f"an option of the job contains a secret, which other users could read in {JOB_FILE} and squeue",
            expected="options without secrets",
            hint="export HF_TOKEN in the shell that submits; the job gets its variables",
        )
    if job.time and not TIME.fullmatch(job.time):
        raise BadInput(
            f"--time {job.time}",
            expected="minutes, HH:MM:SS or DAYS-HH:MM:SS, such as 1-12:00:00",
            hint="--time 12:00:00",
        )
    values = {"--partition": job.partition, "--account": job.account, "--nodelist": job.nodelist}
    for option, value in values.items():
        if re.search(r"[\s#'\"]", value):
            raise BadInput(f"{option} {value!r}", expected="a name without spaces", hint="sinfo")


def parse_partitions(text: str) -> tuple[Partition, ...]:
    """Parse `sinfo --noheader --format=%P|%G|%c`; the default partition (marked with a star) comes first.

    Samples: "gpu*|gpu:h100:8(S:0-1)|128" -> 8 GPUs, 128 CPUs; "debug|(null)|2" -> no GPU; "cpu|gpu:a:2,gpu:b:2|64+"
    -> 4 GPUs, at least 64 CPUs.
    """
    partitions = []
    for line in sorted(text.splitlines(), key=lambda line: "*|" not in line):
        name, gres, cpus = (*line.split("|"), "", "")[:3]
        counts = re.findall(r"gpu(?::[^:,(]+)?:(\d+)", gres)
        number = re.match(r"\d+", cpus)
        partitions.append(Partition(name.rstrip("*"), sum(map(int, counts)), int(number[0]) if number else 0))
    return tuple(partitions)


def align_reasons(rows: Sequence[Row]) -> list[str]:
    """Return lines with their reasons aligned in a column; the reason of a long line is written above it."""
    width = max((len(line) for line, reason in rows if reason and len(line) <= LONG_LINE), default=0)
    lines = []
    for line, reason in rows:
        if not reason:
            lines.append(line)
        elif len(line) <= LONG_LINE:
            lines.append(f"{line:<{width}}  # {reason}")
        else:
            lines += [f"# {reason}:", line]
    return lines


def _several(spec: RunSpec, nodes: int, processes: int) -> bool:
    """Whether torchrun starts the processes; verl starts its processes itself."""
    return nodes * processes > 1 and spec.engine == "grpo"


def _cpus(gpus: int, partition: Partition | None) -> int:
    """Return the CPUs of a job: in proportion to its share of a node's GPUs; without GPUs, all of a node."""
    if partition is None or not partition.cpus:
        return 0
    return (
        max(1, partition.cpus * min(gpus, partition.gpus) // partition.gpus)
        if gpus and partition.gpus
        else partition.cpus
    )
