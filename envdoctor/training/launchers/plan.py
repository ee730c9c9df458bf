"""Plans a launch: which launcher starts which processes. An impossible combination is an error with its reason."""

from __future__ import annotations

import shlex
import zlib

from envdoctor.core.command_line import command_line
from envdoctor.core.errors import BadInput, unknown_name
from envdoctor.training.launchers import commands, slurm
from envdoctor.training.launchers.environment import plan_environment, plan_notes
from envdoctor.training.launchers.records import (
    LAUNCHERS,
    Allocation,
    Launch,
    LaunchContext,
    Launcher,
    LaunchOptions,
    RunSpec,
    Variable,
)

ACCELERATE_FILE = "accelerate.yaml"


def plan_launch(options: LaunchOptions, spec: RunSpec, context: LaunchContext) -> Launch:
    """Plan a launch. Raises BadInput for a combination that launcher, engine or machine does not support."""
    launcher = choose_launcher(options, spec)
    nodes = options.nodes or default_nodes(spec, context, launcher)
    validate(options, spec, context, launcher, nodes)
    if launcher == "slurm":
        if context.allocation:
            return _plan_in_allocation(options, spec, context, context.allocation, nodes)
        return _plan_job(options, spec, context, nodes)
    processes = count_processes(options, context, launcher)
    if launcher == "torchrun" and nodes > 1:
        return _plan_nodes(options, spec, context, nodes, processes)
    return _plan_this_machine(launcher, spec, context, nodes=nodes, processes=processes)


def default_nodes(spec: RunSpec, context: LaunchContext, launcher: Launcher) -> int:
    """Return the number of nodes without --nodes: verl's own setting, else all nodes of the allocation."""
    if spec.engine == "verl":
        return int(str(spec.settings.get("nodes") or 1))
    return context.allocation.nodes if context.allocation and launcher == "slurm" else 1


def choose_launcher(options: LaunchOptions, spec: RunSpec) -> Launcher:
    """Return the requested launcher, else torchrun or Ray for several processes, else local."""
    if options.launcher:
        for launcher in LAUNCHERS:
            if launcher == options.launcher:
                return launcher
        raise unknown_name("launcher", options.launcher, list(LAUNCHERS), hint="envdoctor train --launcher torchrun")
    if options.job.is_set:
        return "slurm"
    if spec.engine == "verl":
        return "ray" if options.nodes > 1 and spec.on_ray else "local"
    return "torchrun" if max(options.gpus, options.nodes) > 1 else "local"


def validate(options: LaunchOptions, spec: RunSpec, context: LaunchContext, launcher: Launcher, nodes: int) -> None:
    """Raise BadInput, with the reason, for a combination that is not supported."""
    train = command_line("envdoctor", "train", spec.recipe)
    if launcher == "ray" and spec.engine != "verl":
        raise BadInput(
            f"--launcher ray: {spec.recipe} is for the bundled trainer, whose processes torchrun starts",
            expected="a recipe with engine = verl, which runs on Ray",
            hint=f"{train} --launcher torchrun",
        )
    if launcher in ("torchrun", "accelerate") and spec.engine == "verl":
        raise BadInput(
            f"--launcher {launcher}: {spec.recipe} is for verl, which starts its processes itself",
            expected="--launcher local, ray or slurm",
            hint=f"{train} --launcher {'ray' if spec.on_ray else 'local'}",
        )
    if launcher == "ray" and not spec.on_ray:
        raise BadInput(
            f"--launcher ray: {spec.recipe} uses verl's supervised trainer, which torchrun starts, not Ray",
            expected="--launcher local or slurm",
            hint=f"{train} --launcher slurm --nodes N",
        )
    if launcher in ("local", "accelerate") and nodes > 1:
        reason = (
            "it starts processes on this machine only"
            if launcher == "local"
            else "it needs a rendezvous address and a rank for each node"
        )
        raise BadInput(
            f"--launcher {launcher} --nodes {nodes}: {reason}",
            expected=f"{'torchrun' if spec.engine == 'grpo' else 'ray'} or slurm for several nodes",
            hint=f"{train} --launcher {'torchrun' if spec.engine == 'grpo' else 'slurm'} --nodes {nodes}",
        )
    if launcher == "local" and options.gpus > 1 and spec.engine != "verl":
        raise BadInput(
            f"--launcher local --gpus {options.gpus}: it starts one process, which trains on one GPU",
            expected="torchrun or accelerate for several GPUs",
            hint=f"{train} --launcher torchrun --gpus {options.gpus}",
        )
    if launcher == "ray" and nodes > 1 and not context.environ.get("RAY_ADDRESS"):
        raise BadInput(
            f"--launcher ray --nodes {nodes}: without RAY_ADDRESS, Ray starts on this machine only",
            expected="a Ray cluster: ray start --head on one node, ray start --address=FIRST:6379 on the others",
            hint=f"export RAY_ADDRESS=FIRST:6379, then {train} --launcher ray --nodes {nodes}",
        )
    if launcher != "slurm" and options.job.is_set:
        raise BadInput(
            f"--launcher {launcher} takes no options of a SLURM job",
            expected="--launcher slurm",
            hint=f"{train} --launcher slurm",
        )
    if launcher != "slurm" and context.gpus and options.gpus > context.gpus and spec.settings.get("device") != "cpu":
        raise BadInput(
            f"--gpus {options.gpus}: {context.host} has {context.gpus} for this process",
            expected="at most the GPUs that CUDA_VISIBLE_DEVICES and the driver show",
            hint=f"{train} --gpus {context.gpus}",
        )


def count_processes(options: LaunchOptions, context: LaunchContext, launcher: Launcher) -> int:
    """Return the processes per node: --gpus, else one per GPU."""
    if launcher in ("local", "ray"):
        return max(1, options.gpus)
    return options.gpus or max(1, context.gpus)


def _plan_this_machine(
    launcher: Launcher, spec: RunSpec, context: LaunchContext, *, nodes: int, processes: int
) -> Launch:
    """Plan a launch whose processes this machine starts."""
    files = {}
    if launcher == "accelerate":
        files[ACCELERATE_FILE] = commands.accelerate_config(nodes, processes)
        command = commands.accelerate(spec, processes, f"{spec.directory}/{ACCELERATE_FILE}")
    elif launcher == "torchrun" and processes > 1:
        command = commands.torchrun_one_node(spec, processes)
    else:
        command = commands.single_process(spec)
    several = processes > 1 and launcher in ("torchrun", "accelerate")
    environment = plan_environment(spec, context, processes=processes if several else 1, torchrun=several)
    unset = [part for variable in environment if variable.value is None for part in ("-u", variable.name)]
    return Launch(
        launcher=launcher,
        nodes=nodes,
        processes=processes,
        command=(*(["env", *unset] if unset else []), *command),
        environment=tuple(environment),
        limits=context.limits,
        notes=tuple(plan_notes(spec, context)),
        files=files,
    )


def _plan_nodes(options: LaunchOptions, spec: RunSpec, context: LaunchContext, nodes: int, processes: int) -> Launch:
    """Plan torchrun on several nodes without a scheduler. This machine is the first; the user starts the others."""
    # The name contains the directory's checksum, so that a rendezvous of another run is not joined.
    name = f"{spec.directory.rstrip('/').rpartition('/')[2]}-{zlib.crc32(spec.directory.encode()):08x}"
    address = context.address
    endpoint = f"[{address}]" if ":" in address else address
    prefix = commands.node_prefix(
        spec, toward=address, interface=options.interface, processes=processes, several=True
    )
    torchrun = commands.torchrun_nodes(spec, nodes, processes, endpoint=f"{endpoint}:{commands.PORT}", name=name)
    command = (*prefix, *torchrun, *commands.trainer(spec))
    environment = _set_variables(spec, context, torchrun=True)
    exports = [f"{variable.name}={variable.value}" for variable in environment]
    exports += [f"{key}={value}" for key, value in spec.environment.items()]
    return Launch(
        launcher="torchrun",
        nodes=nodes,
        processes=processes,
        command=command,
        environment=environment,
        notes=(
            *plan_notes(spec, context),
            f"the first node is this one, {address} on {context.interface}: {context.interface_reason}",
            f"run the same line on each of the {nodes - 1} others, which must see {spec.directory} and {spec.python}",
        ),
        other_nodes=(shlex.join(["env", *exports, *command]),),
    )


def _plan_in_allocation(
    options: LaunchOptions, spec: RunSpec, context: LaunchContext, allocation: Allocation, nodes: int
) -> Launch:
    """Plan srun inside the current allocation."""
    train = command_line("envdoctor", "train", spec.recipe, "--launcher", "slurm")
    if nodes > allocation.nodes:
        raise BadInput(
            f"--nodes {nodes}: job {allocation.job} has {allocation.nodes}",
            expected="at most the nodes of the allocation",
            hint=f"{train} --nodes {allocation.nodes}",
        )
    job = options.job
    job_options = {
        "--partition": job.partition,
        "--time": job.time,
        "--nodelist": job.nodelist,
        "--account": job.account,
        "--slurm-option": job.options,
        "--module": job.modules,
    }
    if given := [option for option, value in job_options.items() if value]:
        raise BadInput(
            f"{', '.join(given)} inside job {allocation.job}, which has its nodes already",
            expected="no options of a new job in an allocation",
            hint=train,
        )
    gpus = options.gpus or allocation.gpus
    processes = max(1, gpus)
    command = slurm.srun_command(
        spec, allocation.first, nodes=nodes, processes=processes, job=allocation.job, interface=options.interface,
        image=job.container, names=allocation.names, gpus=gpus,
    )  # fmt: skip
    return Launch(
        launcher="slurm",
        nodes=nodes,
        processes=processes,
        command=tuple(command),
        environment=_set_variables(spec, context, torchrun=nodes * processes > 1),
        notes=(*plan_notes(spec, context), "each node prints its interface, threads and limits to train.log"),
        files={slurm.NUMBER_FILE: f"{allocation.job} allocation\n"},
    )


def _plan_job(options: LaunchOptions, spec: RunSpec, context: LaunchContext, nodes: int) -> Launch:
    """Plan a job file and its submission with sbatch."""
    slurm.validate_job(options.job)
    requested = options.job.partition
    matching = [partition for partition in context.partitions if requested in ("", partition.name)]
    if requested and context.partitions and not matching:
        known = list(dict.fromkeys(partition.name for partition in context.partitions))
        raise unknown_name("partition", requested, known, hint="sinfo")
    partition = matching[0] if matching else None
    cpu = spec.settings.get("device") == "cpu"
    wanted = options.gpus or (0 if cpu or partition is None else partition.gpus)
    if partition and partition.gpus and wanted > partition.gpus and not cpu:
        raise BadInput(
            f"--gpus {wanted}: nodes of partition {partition.name} have {partition.gpus}",
            expected="the GPUs of one node; use --nodes for more",
            hint=command_line("envdoctor", "train", spec.recipe, "--launcher", "slurm", "--gpus", partition.gpus)
            + " --nodes N",
        )
    gpus = 0 if cpu or (partition is not None and not partition.gpus) else wanted
    processes = max(1, wanted)
    text = slurm.job_file(spec, options.job, nodes=nodes, processes=processes, gpus=gpus, partition=partition)
    if options.interface:
        text = text.replace(" --toward ", f" --interface {shlex.quote(options.interface)} --toward ", 1)
    return Launch(
        launcher="slurm",
        nodes=nodes,
        processes=processes,
        command=("sbatch", "--parsable", f"{spec.directory}/{slurm.JOB_FILE}"),
        notes=tuple(plan_notes(spec, context)),
        files={slurm.JOB_FILE: text},
        submits=True,
    )


def _set_variables(spec: RunSpec, context: LaunchContext, *, torchrun: bool) -> tuple[Variable, ...]:
    """Return the variables to set; node.py unsets the others on each node."""
    environment = plan_environment(spec, context, processes=1, torchrun=torchrun)
    return tuple(variable for variable in environment if variable.value is not None)
