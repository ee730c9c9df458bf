"""Which processes are started how: a launcher that cannot do what is asked is refused with the reason."""

from __future__ import annotations

import shlex
import zlib

from envdoctor.core.errors import BadInput, unknown_name
from envdoctor.training.launchers import commands, slurm
from envdoctor.training.launchers.environment import plan_environment, plan_notes
from envdoctor.training.launchers.records import (
    LAUNCHERS,
    Allocation,
    Ask,
    Launch,
    Launcher,
    NodeKind,
    Situation,
    Work,
)

ACCELERATE_FILE = "accelerate.yaml"


def plan_launch(ask: Ask, work: Work, place: Situation) -> Launch:
    """What would run. Raises BadInput for what the launcher, the engine or the machine cannot do."""
    launcher = choose_launcher(ask, work)
    nodes = ask.nodes or default_nodes(work, place, launcher)
    validate(ask, work, place, launcher, nodes)
    if launcher == "slurm":
        if place.allocation:
            return _in_allocation(ask, work, place, place.allocation, nodes)
        return _job(ask, work, place, nodes)
    processes = count_processes(ask, place, launcher)
    if launcher == "torchrun" and nodes > 1:
        return _nodes(ask, work, place, nodes, processes)
    files = {}
    if launcher == "accelerate":
        files[ACCELERATE_FILE] = commands.accelerate_config(nodes, processes)
        command = commands.accelerate(work, processes, f"{work.directory}/{ACCELERATE_FILE}")
    elif launcher == "torchrun" and processes > 1:
        command = commands.torchrun_here(work, processes)
    else:
        command = commands.plain(work)
    several = processes > 1 and launcher in ("torchrun", "accelerate")
    return _here(
        launcher, work, place, nodes=nodes, processes=processes, command=command, files=files, several=several
    )


def default_nodes(work: Work, place: Situation, launcher: Launcher) -> int:
    """Machines where none were said: verl's own setting, else all of the allocation."""
    if work.engine == "verl":
        return int(str(work.settings.get("nodes") or 1))
    return place.allocation.nodes if place.allocation and launcher == "slurm" else 1


def choose_launcher(ask: Ask, work: Work) -> Launcher:
    """The one that was asked for; else torchrun where several processes were, and one process where none were."""
    if ask.launcher:
        for launcher in LAUNCHERS:
            if launcher == ask.launcher:
                return launcher
        raise unknown_name("launcher", ask.launcher, list(LAUNCHERS), hint="envdoctor train --launcher torchrun")
    if ask.job.any:
        return "slurm"
    several = max(ask.gpus, ask.nodes) > 1
    if work.engine == "verl":
        return "ray" if ask.nodes > 1 and work.on_ray else "local"
    return "torchrun" if several else "local"


def validate(ask: Ask, work: Work, place: Situation, launcher: Launcher, nodes: int) -> None:
    """Refuse what cannot be done, with the reason."""
    train = f"envdoctor train {work.recipe}"
    if launcher == "ray" and work.engine != "verl":
        raise BadInput(
            f"--launcher ray: {work.recipe} is for the bundled trainer, whose processes torchrun starts",
            expected="a recipe with engine = verl, which is the one that runs on Ray",
            hint=f"{train} --launcher torchrun",
        )
    if launcher in ("torchrun", "accelerate") and work.engine == "verl":
        raise BadInput(
            f"--launcher {launcher}: {work.recipe} is for verl, which starts its processes itself",
            expected="--launcher local, ray or slurm",
            hint=f"{train} --launcher {'ray' if work.on_ray else 'local'}",
        )
    if launcher == "ray" and not work.on_ray:
        raise BadInput(
            f"--launcher ray: {work.recipe} is verl's supervised trainer, which torchrun starts and not Ray",
            expected="--launcher local or slurm",
            hint=f"{train} --launcher slurm --nodes N",
        )
    if launcher in ("local", "accelerate") and nodes > 1:
        what = "processes of this machine" if launcher == "local" else "a meeting place and a rank for each node"
        raise BadInput(
            f"--launcher {launcher} --nodes {nodes}: it {'starts' if launcher == 'local' else 'needs'} {what}",
            expected="torchrun or slurm for several nodes"
            if work.engine == "grpo"
            else "ray or slurm for several nodes",
            hint=f"{train} --launcher {'torchrun' if work.engine == 'grpo' else 'slurm'} --nodes {nodes}",
        )
    if launcher == "local" and ask.gpus > 1 and work.engine != "verl":
        raise BadInput(
            f"--launcher local --gpus {ask.gpus}: it starts one process, which trains on one GPU",
            expected="torchrun or accelerate for several GPUs",
            hint=f"{train} --launcher torchrun --gpus {ask.gpus}",
        )
    if launcher == "ray" and nodes > 1 and not place.environ.get("RAY_ADDRESS"):
        raise BadInput(
            f"--launcher ray --nodes {nodes}: without RAY_ADDRESS a Ray of this machine alone is started",
            expected="a Ray of all nodes: ray start --head on one, ray start --address=FIRST:6379 on the others",
            hint=f"export RAY_ADDRESS=FIRST:6379, then {train} --launcher ray --nodes {nodes}",
        )
    if launcher != "slurm" and ask.job.any:
        raise BadInput(
            f"--launcher {launcher} takes no options of a SLURM job",
            expected="--launcher slurm",
            hint=f"{train} --launcher slurm",
        )
    if launcher != "slurm" and place.gpus and ask.gpus > place.gpus and work.settings.get("device") != "cpu":
        raise BadInput(
            f"--gpus {ask.gpus}: {place.host} has {place.gpus} for this process",
            expected="not more than CUDA_VISIBLE_DEVICES and the driver show",
            hint=f"{train} --gpus {place.gpus}",
        )


def count_processes(ask: Ask, place: Situation, launcher: Launcher) -> int:
    """Processes of a node: as asked for, else one a GPU."""
    if launcher in ("local", "ray"):
        return max(1, ask.gpus)
    return ask.gpus or max(1, place.gpus)


def _here(
    launcher: Launcher, work: Work, place: Situation, *, nodes: int, processes: int, command: list[str],
    files: dict[str, str], several: bool,
) -> Launch:  # fmt: skip
    """A launch of this machine alone."""
    environment = plan_environment(work, place, processes=processes if several else 1, torchrun=several)
    unset = [each.name for each in environment if each.value is None]
    taken_away = ["env", *(part for name in unset for part in ("-u", name))] if unset else []
    return Launch(
        launcher=launcher,
        nodes=nodes,
        processes=processes,
        command=(*taken_away, *command),
        environment=tuple(environment),
        limits=place.limits,
        notes=tuple(plan_notes(work, place)),
        files=files,
    )


def _nodes(ask: Ask, work: Work, place: Situation, nodes: int, processes: int) -> Launch:
    """torchrun on several nodes without a scheduler: this machine is the first; the others are started by hand."""
    # Of the folder, so that what is left of another run does not answer for this one.
    name = f"{work.directory.rstrip('/').rpartition('/')[2]}-{zlib.crc32(work.directory.encode()):08x}"
    endpoint = f"[{place.address}]" if ":" in place.address else place.address
    node = commands.on_node(work, toward=place.address, interface=ask.interface, processes=processes, several=True)
    torchrun = commands.torchrun_nodes(work, nodes, processes, endpoint=f"{endpoint}:{commands.PORT}", name=name)
    command = (*node, *torchrun, *commands.trainer(work))
    environment = [
        each for each in plan_environment(work, place, processes=1, torchrun=True) if each.value is not None
    ]
    exports = [f"{each.name}={each.value}" for each in environment]
    exports += [f"{key}={value}" for key, value in work.environment.items()]
    other = shlex.join(["env", *exports, *command])
    return Launch(
        launcher="torchrun",
        nodes=nodes,
        processes=processes,
        command=command,
        environment=tuple(environment),
        notes=(
            *plan_notes(work, place),
            f"the first node is this one, {place.address} on {place.interface}: {place.interface_reason}",
            f"the same line on each of the {nodes - 1} others, which must see {work.directory} and {work.python}",
        ),
        elsewhere=(other,),
    )


def _in_allocation(ask: Ask, work: Work, place: Situation, allocation: Allocation, nodes: int) -> Launch:
    """srun, in the allocation that is there."""
    train = f"envdoctor train {work.recipe} --launcher slurm"
    if nodes > allocation.nodes:
        raise BadInput(
            f"--nodes {nodes}: job {allocation.job} has {allocation.nodes}",
            expected="not more than the allocation has",
            hint=f"{train} --nodes {allocation.nodes}",
        )
    told = {"--partition": ask.job.partition, "--time": ask.job.time, "--nodelist": ask.job.nodelist,
            "--account": ask.job.account, "--slurm-option": ask.job.options, "--module": ask.job.modules}  # fmt: skip
    if given := [option for option, value in told.items() if value]:
        raise BadInput(
            f"{', '.join(given)} inside job {allocation.job}, which has its nodes already",
            expected="no options of a new job in an allocation",
            hint=train,
        )
    gpus = ask.gpus or allocation.gpus
    processes = max(1, gpus)
    command = slurm.srun_here(
        work, allocation.first, nodes=nodes, processes=processes, job=allocation.job, interface=ask.interface,
        image=ask.job.container, names=allocation.names, gpus=gpus,
    )  # fmt: skip
    environment = plan_environment(work, place, processes=1, torchrun=nodes * processes > 1)
    return Launch(
        launcher="slurm",
        nodes=nodes,
        processes=processes,
        command=tuple(command),
        environment=tuple(each for each in environment if each.value is not None),
        notes=(*plan_notes(work, place), "each node tells its interface, threads and limits in train.log"),
        files={slurm.NUMBER_FILE: f"{allocation.job} allocation\n"},
    )


def _job(ask: Ask, work: Work, place: Situation, nodes: int) -> Launch:
    """A job file, and sbatch."""
    slurm.validate_job(ask.job)
    kind = _kind(ask, place)
    cpu = work.settings.get("device") == "cpu"
    wanted = ask.gpus or (0 if cpu or kind is None else kind.gpus)
    if kind and kind.gpus and wanted > kind.gpus and not cpu:
        raise BadInput(
            f"--gpus {wanted}: nodes of partition {kind.partition} have {kind.gpus}",
            expected="GPUs of one node; more of them are --nodes",
            hint=f"envdoctor train {work.recipe} --launcher slurm --gpus {kind.gpus} --nodes N",
        )
    gpus = 0 if cpu or (kind is not None and not kind.gpus) else wanted
    processes = max(1, wanted)
    text = slurm.job_file(work, ask.job, nodes=nodes, processes=processes, gpus=gpus, kind=kind)
    if ask.interface:
        text = text.replace(" --toward ", f" --interface {shlex.quote(ask.interface)} --toward ", 1)
    return Launch(
        launcher="slurm",
        nodes=nodes,
        processes=processes,
        command=("sbatch", "--parsable", f"{work.directory}/{slurm.JOB_FILE}"),
        notes=tuple(plan_notes(work, place)),
        files={slurm.JOB_FILE: text},
        submits=True,
    )


def _kind(ask: Ask, place: Situation) -> NodeKind | None:
    """The nodes of the partition that was asked for, else of the first, which sinfo names; None: not known."""
    named = (
        [kind for kind in place.kinds if kind.partition == ask.job.partition] if ask.job.partition else place.kinds
    )
    if ask.job.partition and place.kinds and not named:
        known = list(dict.fromkeys(kind.partition for kind in place.kinds))
        raise unknown_name("partition", ask.job.partition, known, hint="sinfo")
    return named[0] if named else None
