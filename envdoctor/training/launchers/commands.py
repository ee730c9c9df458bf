"""The commands that start a trainer's processes."""

from __future__ import annotations

from pathlib import Path

from envdoctor.training.launchers.node import ADDRESS
from envdoctor.training.launchers.records import RunSpec

PORT = 29400  # torch.distributed.run's default rendezvous port
# Without it each start leaves a folder torchelastic_* in /tmp, empty while --redirects and --tee are not set. Since
# torch 2.3, the null device means no folder (torch/distributed/elastic/multiprocessing/api.py, 2026-11-26).
NO_LOG_FOLDER = "/dev/null"


def single_process(spec: RunSpec) -> list[str]:
    """Return the command for one process."""
    return [spec.python, *trainer(spec)]


def trainer(spec: RunSpec) -> list[str]:
    """Return the trainer and its arguments."""
    return [*spec.program, *(["--resume", spec.resume] if spec.resume else [])]


def torchrun_one_node(spec: RunSpec, processes: int) -> list[str]:
    """Return the command for several processes of this machine; --standalone picks a free port.

    `--local-addr`: otherwise the processes connect to this machine's host name, which may not resolve.
    """
    arguments = ["--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={processes}"]
    arguments.append(f"--log-dir={NO_LOG_FOLDER}")
    return [spec.python, "-m", "torch.distributed.run", *arguments, *trainer(spec)]


def torchrun_nodes(spec: RunSpec, nodes: int, processes: int, *, endpoint: str, name: str) -> list[str]:
    """Return the command that each of several nodes runs, without the trainer. `endpoint`: of the first node.

    `--local-addr`: otherwise torch publishes this node's host name, which the other nodes may not resolve
    (torch/distributed/elastic/agent/server/api.py: _get_fq_hostname).
    """
    start = [spec.python, "-m", "torch.distributed.run", f"--nnodes={nodes}", f"--nproc-per-node={processes}"]
    rendezvous = ["--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}", f"--rdzv-id={name}"]
    return [*start, *rendezvous, f"--local-addr={ADDRESS}", f"--log-dir={NO_LOG_FOLDER}"]


def node_prefix(spec: RunSpec, *, toward: str, interface: str, processes: int, several: bool) -> list[str]:
    """Return the words before a node's command: node.py and its options."""
    options = [*(["--toward", toward] if toward else []), *(["--interface", interface] if interface else [])]
    if spec.engine == "verl":
        options.append("--ranked")  # verl's program starts torchrun itself and needs the node's rank
    return [
        spec.python, "-B", spec.node_program, *options, f"--processes={processes}",
        *(["--several"] if several else []), "--",
    ]  # fmt: skip


def ray_nodes(spec: RunSpec, *, head: str, port: str, names: str, gpus: int) -> list[str]:
    """Return the command that each node of a Ray cluster runs; the head's then starts the trainer."""
    program = str(Path(spec.node_program).with_name("ray_node.py"))
    return [
        spec.python, "-B", program, f"--head={head}", f"--port={port}", f"--address={ADDRESS}", f"--names={names}",
        f"--gpus={gpus}", "--", spec.python,
    ]  # fmt: skip


def accelerate_config(nodes: int, processes: int) -> str:
    """Return a configuration file for `accelerate launch`, with the reason of each line."""
    several = nodes * processes > 1
    distributed_type = "MULTI_GPU" if several else "'NO'"
    rows = (
        ("compute_environment: LOCAL_MACHINE", "processes are started here, not in a cloud"),
        (f"distributed_type: {distributed_type}", "data parallel, one process per GPU" if several else "one process"),
        (f"num_machines: {nodes}", "nodes"),
        (f"num_processes: {nodes * processes}", "in total"),
        ("machine_rank: 0", "this node"),
        ("mixed_precision: 'no'", "the trainer's own setting dtype decides"),
        ("downcast_bf16: 'no'", "for TPUs; accelerate asks where it is missing"),
        ("dynamo_backend: 'no'", "the trainer's own setting compile decides"),
        ("main_training_function: main", "for notebooks; accelerate asks where it is missing"),
        ("rdzv_backend: static", "one node needs no rendezvous"),
        ("same_network: true", "one node"),
        ("use_cpu: false", "the trainer's own setting device decides"),
    )
    return "".join(f"{text:<36}# {reason}\n" for text, reason in rows)


def accelerate(spec: RunSpec, processes: int, configuration: str) -> list[str]:
    """Return the `accelerate launch` command, as a module of the environment's interpreter."""
    # Port 0: a free one, so that two runs do not collide. One process needs no torchrun.
    torchrun = ["--main_process_port=0", f"--log_dir={NO_LOG_FOLDER}"] if processes > 1 else []
    launch = [spec.python, "-m", "accelerate.commands.launch", f"--config_file={configuration}", *torchrun]
    return [*launch, *trainer(spec)]
