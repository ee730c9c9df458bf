"""The file of a SLURM job, as a person would write it: each line with its reason."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from envdoctor.core.errors import BadInput
from envdoctor.training.launchers import commands
from envdoctor.training.launchers.environment import SAVE_SECONDS, SHUTDOWN, plan_reporters
from envdoctor.training.launchers.records import JobOptions, NodeKind, Variable, Work

JOB_FILE = "job.sbatch"
NUMBER_FILE = "slurm-job"  # in the run's folder: the number of its job, for `envdoctor watch`
WAIT_SECONDS = 600  # for the other nodes after one has ended: the first one evaluates, saves and merges alone
# minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS (sbatch(1), --time)
TIME = re.compile(r"\d+|\d+:\d\d|\d+:\d\d:\d\d|\d+-\d\d?(:\d\d){0,2}|UNLIMITED|infinite", re.IGNORECASE)
LONG = 56
# The bundled trainer saves at a warning; verl has no way to, and goes on from what it saved by itself.
WARNING = {
    "grpo": (f"USR1@{SAVE_SECONDS}", "seconds before the end (up to 60 more): finish the step, save, end"),
    "verl": (
        "TERM@60",
        "seconds before the end (up to 60 more): end in order; verl saves only every save_every steps",
    ),
}
Row = tuple[str, str]  # a line and its reason


def job_file(work: Work, job: JobOptions, *, nodes: int, processes: int, gpus: int, kind: NodeKind | None) -> str:
    """RUN/job.sbatch. `gpus` a node may be 0 while several processes run, on CPUs."""
    path = shlex.quote(f"{work.directory}/{JOB_FILE}")
    given = shlex.join(["--resume", work.resume] if work.resume else [])
    return "\n".join([
        "#!/bin/bash -l" if job.modules else "#!/bin/bash",
        f"# Written by envdoctor for one run. To submit it again: sbatch {path}",
        *aligned(header(work, job, nodes=nodes, gpus=gpus, kind=kind)),
        "",
        *aligned(preparation(work, job, several=_several(work, nodes, processes), cpus=bool(_cpus(gpus, kind)))),
        "",
        RESUME.format(run=shlex.quote(work.directory), given=given, newest=NEWEST[work.engine]),
        *aligned(start(work, job, nodes=nodes, processes=processes, gpus=gpus)),
        "",
        ENDING,
    ])  # fmt: skip


def header(work: Work, job: JobOptions, *, nodes: int, gpus: int, kind: NodeKind | None) -> list[Row]:
    """The #SBATCH lines; an option that was given takes the place of ours."""
    cpus = _cpus(gpus, kind)
    rows = [
        ("job-name", work.directory.rstrip("/").rpartition("/")[2], "the run's folder, for squeue"),
        ("partition", job.partition, "as asked for"),
        ("account", job.account, "as asked for"),
        ("time", job.time, "as asked for; after it the job is killed"),
        ("nodes", str(nodes), "machines"),
        ("nodelist", job.nodelist, "as asked for"),
        ("ntasks-per-node", "1", "node.py, which becomes the parent of a node's processes"),
        ("gres", f"gpu:{gpus}" if gpus else "", "GPUs of each node"),
        (
            "cpus-per-task",
            str(cpus) if cpus else "",
            f"this job's share of a node's {kind.cpus} CPUs" if kind else "",
        ),
        ("output", shlex.quote(f"{work.directory}/train.log".replace("%", "%%")), "both streams of all nodes"),
        ("open-mode", "append", "a requeued job goes on in the same file"),
        ("signal", *WARNING[work.engine]),
        ("requeue", None, "after a node's failure, and by the last lines of this file"),
        ("export", "ALL", "HF_TOKEN, WANDB_API_KEY and the like come from the caller; none is written here"),
    ]
    given = dict(parse_option(option) for option in job.options)
    kept = [(key, value, reason) for key, value, reason in rows if value != "" and key not in given]
    own = [(key, value, "as asked for") for key, value in given.items()]
    return [
        (f"#SBATCH --{key}" + ("" if value is None else f"={value}"), reason) for key, value, reason in [*kept, *own]
    ]


def preparation(work: Work, job: JobOptions, *, several: bool, cpus: bool) -> list[Row]:
    """Modules and variables."""
    rows: list[Row] = [(f"module load {shlex.quote(name)}", "as asked for") for name in job.modules]
    profile = [Variable(name, value, "the environment's profile") for name, value in work.environment.items()]
    ours = [*([SHUTDOWN] if several else []), *plan_reporters(work, {})]
    named = [*profile, *(each for each in ours if each.name not in work.environment)]
    rows += [(each.line.partition("  # ")[0], each.reason) for each in named]
    if cpus or any(parse_option(option)[0] == "cpus-per-task" for option in job.options):
        rows.append(
            ("export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK", "srun takes it from nowhere else since SLURM 22.05")
        )
    rows += [
        ("export TOKENIZERS_PARALLELISM=false", "tokenizers warn and stop after a fork otherwise"),
        ("export PYTHONUNBUFFERED=1", "lines of the log as they are printed"),
        (
            f"echo $SLURM_JOB_ID > {shlex.quote(f'{work.directory}/{NUMBER_FILE}')}",
            "for envdoctor watch, which asks SLURM how the job ended",
        ),
        ("first=$(hostname)", "where this script runs"),
        (
            "port=$((20000 + SLURM_JOB_ID % 10000))",
            "below the ports that Linux gives away (32768 on), another one a job",
        ),
    ]
    return rows


# The last checkpoint that was written to its end, as each trainer marks it.
NEWEST = {
    "grpo": 'ls "$run"/checkpoints/checkpoint-*/complete.json 2>/dev/null | sort -V | tail -n 1',
    "verl": 'cat "$run/checkpoints/latest_checkpointed_iteration.txt" 2>/dev/null',
}
RESUME = """\
# A complete checkpoint is gone on from: after a requeue, and when this file is submitted again.
run={run}
newest() {{ {newest}; }}
before=$(newest)
resume=({given})
if [ -n "$before" ]; then
    [ ${{#resume[@]}} -gt 0 ] && [ -z "$SLURM_RESTART_COUNT" ] || resume=(--resume latest)
elif [ -n "$SLURM_RESTART_COUNT" ]; then
    rm -f "$run/metrics.csv"  # of a start that came to no checkpoint: its steps are done again
fi
"""

ENDING = """\
# Saved and ended by the warning, not done: to the queue again. Without a new checkpoint it would not end.
last=$(tail -n 1 "$run/events.jsonl" 2>/dev/null)
if [[ $status -ne 0 && $last == *'"event": "interrupted"'* ]]; then
    if [ "$(newest)" != "$before" ]; then
        echo "job $SLURM_JOB_ID: saved before its end; requeued to go on from $(newest)"
        scontrol requeue "$SLURM_JOB_ID" && sleep 60     # SLURM ends this script meanwhile
    else
        echo "job $SLURM_JOB_ID: its end came before a step was done and saved: not requeued; ask for more --time"
    fi
fi
exit $status
"""


def start(work: Work, job: JobOptions, *, nodes: int, processes: int, gpus: int) -> list[Row]:
    """The srun line and what it starts."""
    several = _several(work, nodes, processes)
    network = nodes * processes > 1
    node = shlex.join(commands.on_node(work, toward="FIRST", interface="", processes=processes, several=network))
    node = node.replace("FIRST", '"$first"')
    rows = [(f"node=({node})", "on each node: its interface, threads, limits")]
    if several:
        name = "$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}"
        start = commands.torchrun_nodes(work, nodes, processes, endpoint="ENDPOINT", name="NAME")
        line = shlex.join(start).replace("ENDPOINT", '"$first:$port"').replace("NAME", name, 1)
        line = line.replace(f"--rdzv-id={name}", f'--rdzv-id="{name}"')
        rows.append((f"start=({line})", "one process a GPU; they meet on the first node"))
    elif work.on_ray and nodes > 1:
        rows.append(
            (
                'names=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | paste -sd,)',
                "all nodes, the first one first: Ray's head waits for them and names those that do not come",
            )
        )
        start = commands.ray_nodes(work, head="FIRST", port="PORT", names="NAMES", gpus=gpus)
        line = shlex.join(start).replace("FIRST", '"$first"').replace("PORT", '"$port"').replace("NAMES", '"$names"')
        reason = "Ray on every node, ended with the job; on its head the trainer, when all have joined"
        rows.append((f"start=({line})", reason))
    else:
        rows.append((f"start=({shlex.quote(work.python)})", "one process"))
    rows.append((f'trainer=({shlex.join(work.program)} "${{resume[@]}}")', "the run's trainer"))
    container = container_words(work, job.container)
    srun = ["srun", f"--wait={WAIT_SECONDS}", *container[0]]
    inner = shlex.join(container[1]) + " " if container[1] else ""
    line = f'{shlex.join(srun)} {inner}"${{node[@]}}" "${{start[@]}}" "${{trainer[@]}}"'
    rows += [
        (line, f"{WAIT_SECONDS} s after one node's end the others are ended: the first saves and merges alone"),
        ("status=$?", ""),
    ]
    return rows


def container_words(work: Work, image: str) -> tuple[list[str], list[str]]:
    """Options of srun, and words before the command: apptainer for a .sif file, pyxis for all else."""
    if not image:
        return [], []
    if image.endswith(".sif"):
        bound = ",".join(work.folders)
        return [], ["apptainer", "exec", "--nv", "--bind", bound, image]
    return [
        f"--container-image={image}",
        "--container-mounts=" + ",".join(f"{each}:{each}" for each in work.folders),
    ], []


def srun_here(
    work: Work, first: str, *, nodes: int, processes: int, job: str, interface: str, image: str,
    names: Sequence[str] = (), gpus: int = 0,
) -> list[str]:  # fmt: skip
    """The command inside an allocation, which SLURM gave already."""
    several = _several(work, nodes, processes)
    port = 20000 + int(job) % 10000 if job.isdigit() else commands.PORT
    options, inner = container_words(work, image)
    node = commands.on_node(
        work, toward=first, interface=interface, processes=processes, several=nodes * processes > 1
    )
    name = f"{job}-{work.directory.rpartition('/')[2]}"
    torchrun = commands.torchrun_nodes(work, nodes, processes, endpoint=f"{first}:{port}", name=name)
    srun = ["srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", f"--wait={WAIT_SECONDS}"]
    begin = torchrun if several else [work.python]
    if work.on_ray and nodes > 1:
        used = ",".join(names[:nodes])
        srun.append(f"--nodelist={used}")
        begin = commands.ray_nodes(work, head=first, port=str(port), names=used, gpus=gpus)
    return [*srun, *options, *inner, *node, *begin, *commands.trainer(work)]


def parse_option(text: str) -> tuple[str, str | None]:
    """An option of sbatch.

    Samples: "qos=high" -> ("qos", "high"); "exclusive" -> ("exclusive", None)
    """
    key, equals, value = text.lstrip("-").partition("=")
    if not re.fullmatch(r"[a-z][a-z0-9-]*", key) or (equals and not re.fullmatch(r"\S+", value)):
        raise BadInput(f"--slurm-option {text}", expected="KEY=VALUE or KEY, as sbatch knows them", hint="man sbatch")
    if key == "export" and "=" in value:
        raise BadInput(
            f"--slurm-option {key}=... holds a value, which would lie in {JOB_FILE} for everyone to read",
            expected="names alone, as export=ALL or export=HF_TOKEN,PATH",
            hint="export HF_TOKEN in the shell that submits",
        )
    return key, value if equals else None


def validate_job(job: JobOptions) -> None:
    """Refuse what would not be what it looks like in the file."""
    for option in job.options:
        parse_option(option)
    if job.time and not TIME.fullmatch(job.time):
        raise BadInput(
            f"--time {job.time}", expected="minutes, HH:MM:SS or DAYS-HH:MM:SS, as 1-12:00:00", hint="--time 12:00:00"
        )
    named = {"--partition": job.partition, "--account": job.account, "--nodelist": job.nodelist}
    for option, value in named.items():
        if re.search(r"[\s#'\"]", value):
            raise BadInput(f"{option} {value!r}", expected="a name without spaces", hint="sinfo")


def parse_kinds(text: str) -> tuple[NodeKind, ...]:
    """What partitions have, from `sinfo --noheader --format=%P|%G|%c`, the default one (with a star) first.

    Samples: "gpu*|gpu:h100:8(S:0-1)|128" -> 8 GPUs, 128 CPUs; "debug|(null)|2" -> no GPU; "cpu|gpu:a:2,gpu:b:2|64+"
    -> 4 GPUs, at least 64 CPUs.
    """
    kinds = []
    for line in sorted(text.splitlines(), key=lambda line: "*|" not in line):
        partition, gres, cpus = (*line.split("|"), "", "")[:3]
        counts = re.findall(r"gpu(?::[^:,(]+)?:(\d+)", gres)
        number = re.match(r"\d+", cpus)
        kinds.append(NodeKind(partition.rstrip("*"), sum(map(int, counts)), int(number[0]) if number else 0))
    return tuple(kinds)


def aligned(rows: Sequence[Row]) -> list[str]:
    """Lines with their reasons in a column; of a long line the reason stands above."""
    width = max((len(line) for line, reason in rows if reason and len(line) <= LONG), default=0)
    lines = []
    for line, reason in rows:
        beside = not reason or len(line) <= LONG
        lines += [f"{line:<{width}}  # {reason}" if reason else line] if beside else [f"# {reason}:", line]
    return lines


def _several(work: Work, nodes: int, processes: int) -> bool:
    """Whether torchrun starts the processes; verl starts its own."""
    return nodes * processes > 1 and work.engine == "grpo"


def _cpus(gpus: int, kind: NodeKind | None) -> int:
    """CPUs for a job: by its share of a node's GPUs, all of a node without."""
    if kind is None or not kind.cpus:
        return 0
    return max(1, kind.cpus * min(gpus, kind.gpus) // kind.gpus) if gpus and kind.gpus else kind.cpus
