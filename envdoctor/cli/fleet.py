"""Commands for several machines: fleet check, fleet collective."""

from __future__ import annotations

from typing import Annotated

import typer

from envdoctor.cli.shared import Format, FormatOption, ProgressFormat, ProgressOption, app, finish

fleet_app = app.add_group("fleet")

HostsOption = Annotated[
    str, typer.Option("--hosts", metavar="LIST", help="Connect by ssh to node1,node2 or node[01-16].")
]
SlurmOption = Annotated[
    bool, typer.Option("--slurm", help="Use srun on the nodes of the allocation, or on all nodes that are up.")
]
NodelistOption = Annotated[
    str, typer.Option("--nodelist", metavar="LIST", help="With --slurm: use only these nodes.")
]
PartitionOption = Annotated[
    str, typer.Option("--partition", metavar="NAME", help="With --slurm: use this partition.")
]
ConfigOption = Annotated[
    str, typer.Option("--ssh-config", metavar="FILE", help="The ssh configuration to use instead of ~/.ssh/config.")
]


@fleet_app.callback()
def fleet() -> None:
    """Check and test several machines.

    Example: envdoctor fleet check --hosts node[01-16]
    """


@fleet_app.command("check")
def check(
    hosts: HostsOption = "",
    hosts_file: Annotated[
        str, typer.Option("--hosts-file", metavar="FILE", help="Connect by ssh to the hosts listed in this file.")
    ] = "",
    slurm: SlurmOption = False,
    nodelist: NodelistOption = "",
    partition: PartitionOption = "",
    ray: Annotated[bool, typer.Option("--ray", help="Use Ray tasks on every alive node of a cluster.")] = False,
    address: Annotated[
        str, typer.Option("--address", metavar="HOST:PORT", help="With --ray: the address of the cluster.")
    ] = "auto",
    ray_python: Annotated[
        str, typer.Option("--ray-python", metavar="PATH", help="With --ray: a local interpreter with Ray installed.")
    ] = "",
    recorded: Annotated[
        str,
        typer.Option("--recorded", metavar="FOLDER", help="Read files of `check --format json`, one for each node."),
    ] = "",
    save: Annotated[
        str, typer.Option("--save", metavar="FOLDER", help="Save the results of the nodes for --recorded.")
    ] = "",
    venv: Annotated[
        str, typer.Option("--venv", metavar="PATH", help="The folder of the environment on the nodes.")
    ] = "",
    python: Annotated[
        str, typer.Option("--python", metavar="PATH", help="The environment's interpreter on the nodes.")
    ] = "",
    command: Annotated[
        str, typer.Option("--command", metavar="WORDS", help="The command that starts envdoctor on the nodes.")
    ] = "envdoctor",
    ssh_config: ConfigOption = "",
    hub: Annotated[
        str, typer.Option("--hub", metavar="URL", help="URL that each node tries to reach; empty: none.")
    ] = "https://huggingface.co",
    deadline: Annotated[
        float, typer.Option("--deadline", metavar="SECONDS", help="Time limit for each node.")
    ] = 60.0,
    parallel: Annotated[
        int, typer.Option("--parallel", metavar="N", help="Number of simultaneous connections.")
    ] = 32,
    progress: ProgressOption = ProgressFormat.auto,
    format: FormatOption = Format.human,
) -> None:
    """Prints the findings of each node, the nodes that differ from the others, and the nodes that do not respond.

    Each node needs python3; for all facts it also needs envdoctor. Nothing is installed or left on the nodes.

    Example: envdoctor fleet check --hosts node[01-16] --venv /shared/venv
    """
    from envdoctor.commands import fleet_check
    from envdoctor.fleet.check import FleetRequest

    request = FleetRequest(
        hosts=hosts, hosts_file=hosts_file, slurm=slurm, nodelist=nodelist, partition=partition, ray=ray,
        address=address, recorded=recorded, save=save, venv=venv, python=python, command=command,
        ssh_config=ssh_config, ray_python=ray_python, hub=hub, deadline=deadline, parallel=parallel,
    )  # fmt: skip
    finish("fleet check", format, lambda reporter: fleet_check.run(request, reporter), progress)


@fleet_app.command("collective")
def collective(
    hosts: HostsOption = "",
    slurm: SlurmOption = False,
    nodelist: NodelistOption = "",
    partition: PartitionOption = "",
    local: Annotated[bool, typer.Option("--local", help="Use this machine only.")] = False,
    gpus: Annotated[
        int,
        typer.Option("--gpus", metavar="N", help="Processes per node; default: the number of GPUs of this machine."),
    ] = 0,
    python: Annotated[
        str, typer.Option("--python", metavar="PATH", help="An interpreter with torch, on every node.")
    ] = "",
    backend: Annotated[str, typer.Option("--backend", help="nccl, gloo, or auto: nccl if there is a GPU.")] = "auto",
    interface: Annotated[
        str, typer.Option("--interface", metavar="NAME", help="Value of NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME.")
    ] = "",
    master: Annotated[
        str, typer.Option("--master", metavar="ADDRESS", help="Rendezvous address; default: the first node.")
    ] = "",
    port: Annotated[
        int, typer.Option("--port", metavar="N", help="Rendezvous port; default: a port that is free here.")
    ] = 0,
    size: Annotated[
        list[int] | None, typer.Option("--size", metavar="MIB", help="Message sizes in MiB; default: 1 and 64.")
    ] = None,
    ssh_config: ConfigOption = "",
    deadline: Annotated[
        float, typer.Option("--deadline", metavar="SECONDS", help="Time limit for the whole test.")
    ] = 180.0,
    stall: Annotated[
        float,
        typer.Option("--stall", metavar="SECONDS", help="After this time without progress, report the stuck rank."),
    ] = 20.0,
    format: FormatOption = Format.human,
) -> None:
    """Runs all-reduce and all-gather over all nodes with torchrun; prints bus bandwidth and network interface.

    Reports ranks that are dead, stuck or slow. Nothing is left on the nodes.

    Example: envdoctor fleet collective --hosts node1,node2 --python /shared/venv/bin/python --gpus 8
    """
    from envdoctor.commands import fleet_collective
    from envdoctor.fleet.collective import CollectiveRequest

    request = CollectiveRequest(
        hosts=hosts, slurm=slurm, nodelist=nodelist, partition=partition, processes=gpus, local=local, python=python,
        backend=backend, interface=interface, master=master, port=port, megabytes=tuple(size or (1, 64)),
        deadline=deadline, stall=stall, ssh_config=ssh_config,
    )  # fmt: skip
    finish("fleet collective", format, lambda _: fleet_collective.run(request))
