"""The commands that start a trainer's processes."""

from __future__ import annotations

from pathlib import Path

from envdoctor.training.launchers.node import ADDRESS
from envdoctor.training.launchers.records import Work

PORT = 29400  # torch.distributed.run's own default for its rendezvous


def plain(work: Work) -> list[str]:
    """One process."""
    return [work.python, *trainer(work)]


def trainer(work: Work) -> list[str]:
    """The trainer and its arguments."""
    return [*work.program, *(["--resume", work.resume] if work.resume else [])]


def torchrun_here(work: Work, processes: int) -> list[str]:
    """Several processes of this machine alone; --standalone takes a free port.

    `--local-addr`, since they would look for each other by this machine's name, in vain where nothing resolves it.
    """
    alone = ["--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={processes}"]
    return [work.python, "-m", "torch.distributed.run", *alone, *trainer(work)]


def torchrun_nodes(work: Work, nodes: int, processes: int, *, endpoint: str, name: str) -> list[str]:
    """The same command for each of several nodes: they meet at the endpoint, which is the first node's.

    `--local-addr`, since torch would tell the others this node's host name, which they may not be able to resolve
    (torch/distributed/elastic/agent/server/api.py: _get_fq_hostname).
    """
    meeting = ["--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}", f"--rdzv-id={name}", f"--local-addr={ADDRESS}"]
    start = [work.python, "-m", "torch.distributed.run", f"--nnodes={nodes}", f"--nproc-per-node={processes}"]
    return [*start, *meeting]


def on_node(work: Work, *, toward: str, interface: str, processes: int, several: bool) -> list[str]:
    """What comes before a command that each node runs for itself."""
    options = [*(["--toward", toward] if toward else []), *(["--interface", interface] if interface else [])]
    if work.engine == "verl":
        options.append("--ranked")  # its trainer starts torchrun itself, and has to be told which node this is
    return [
        work.python, "-B", work.node_program, *options, f"--processes={processes}",
        *(["--several"] if several else []), "--",
    ]  # fmt: skip


def ray_nodes(work: Work, *, head: str, port: str, names: str, gpus: int) -> list[str]:
    """The same command for each node of a Ray: the head's then starts what follows."""
    program = str(Path(work.node_program).with_name("ray_node.py"))
    return [
        work.python, "-B", program, f"--head={head}", f"--port={port}", f"--address={ADDRESS}", f"--names={names}",
        f"--gpus={gpus}", "--", work.python,
    ]  # fmt: skip


def accelerate_config(nodes: int, processes: int) -> str:
    """A configuration of `accelerate launch`, with the reason of each line."""
    several = nodes * processes > 1
    kind = "MULTI_GPU" if several else "'NO'"
    rows = (
        ("compute_environment: LOCAL_MACHINE", "processes are started here, not in a cloud"),
        (f"distributed_type: {kind}", "data parallel, one process a GPU" if several else "one process"),
        (f"num_machines: {nodes}", "nodes"),
        (f"num_processes: {nodes * processes}", "in all"),
        ("machine_rank: 0", "this node"),
        ("mixed_precision: 'no'", "the trainer's own setting dtype decides"),
        ("downcast_bf16: 'no'", "of TPUs; accelerate asks where it is missing"),
        ("dynamo_backend: 'no'", "the trainer's own setting compile decides"),
        ("main_training_function: main", "of notebooks; accelerate asks where it is missing"),
        ("rdzv_backend: static", "one node needs no meeting place"),
        ("same_network: true", "one node"),
        ("use_cpu: false", "the trainer's own setting device decides"),
    )
    return "".join(f"{text:<36}# {reason}\n" for text, reason in rows)


def accelerate(work: Work, processes: int, configuration: str) -> list[str]:
    """`accelerate launch` by the module, so that it is the environment's own."""
    free = ["--main_process_port=0"] if processes > 1 else []  # 0: a free port, so that two runs do not meet
    launch = [work.python, "-m", "accelerate.commands.launch", f"--config_file={configuration}", *free]
    return [*launch, *trainer(work)]
