"""Several machines together: fleet check, fleet collective."""

from __future__ import annotations

from typing import Annotated

import typer

from envdoctor.cli.shared import App, Format, FormatOption, ProgressForm, ProgressOption, app, finish

fleet_app = App(no_args_is_help=True, rich_markup_mode=None, help="Several machines, held against each other.")
app.add_typer(fleet_app, name="fleet")

HostsOption = Annotated[str, typer.Option("--hosts", metavar="LIST", help="By ssh: node1,node2 or node[01-16].")]
NodelistOption = Annotated[str, typer.Option("--nodelist", metavar="LIST", help="With --slurm: these nodes.")]
PartitionOption = Annotated[str, typer.Option("--partition", metavar="NAME", help="With --slurm: this partition.")]
ConfigOption = Annotated[str, typer.Option("--ssh-config", metavar="FILE", help="Instead of ~/.ssh/config.")]


@fleet_app.command("check")
def check(
    hosts: HostsOption = "",
    hosts_file: Annotated[str, typer.Option("--hosts-file", metavar="FILE", help="By ssh: names, one a line.")] = "",
    slurm: Annotated[
        bool, typer.Option("--slurm", help="By srun: the allocation's nodes, or all that are up.")
    ] = False,
    nodelist: NodelistOption = "",
    partition: PartitionOption = "",
    ray: Annotated[bool, typer.Option("--ray", help="By Ray tasks: every alive node of a cluster.")] = False,
    address: Annotated[str, typer.Option("--address", metavar="HOST:PORT", help="With --ray: its cluster.")] = "auto",
    ray_python: Annotated[
        str, typer.Option("--ray-python", metavar="PATH", help="With --ray: an interpreter here that has Ray.")
    ] = "",
    recorded: Annotated[
        str, typer.Option("--recorded", metavar="FOLDER", help="Files of `check --format json`, one a node.")
    ] = "",
    save: Annotated[str, typer.Option("--save", metavar="FOLDER", help="Keep the answers for --recorded.")] = "",
    venv: Annotated[str, typer.Option("--venv", metavar="PATH", help="The environment's folder on the nodes.")] = "",
    python: Annotated[str, typer.Option("--python", metavar="PATH", help="Its interpreter on the nodes.")] = "",
    command: Annotated[
        str, typer.Option("--command", metavar="WORDS", help="How envdoctor is started on the nodes.")
    ] = "envdoctor",
    ssh_config: ConfigOption = "",
    hub: Annotated[
        str, typer.Option("--hub", metavar="URL", help="What each node tries to reach; empty: nothing.")
    ] = "https://huggingface.co",
    deadline: Annotated[float, typer.Option("--deadline", metavar="SECONDS", help="For one node.")] = 60.0,
    parallel: Annotated[int, typer.Option("--parallel", metavar="N", help="Connections at a time.")] = 32,
    progress: ProgressOption = ProgressForm.auto,
    format: FormatOption = Format.human,
) -> None:
    """Ask several machines, compare them, and name the odd ones out; one that does not answer is told, too.

    Each node needs a python3, and envdoctor for the whole of its facts. Nothing is installed or left behind there.

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
    slurm: Annotated[
        bool, typer.Option("--slurm", help="By srun: the allocation's nodes, or all that are up.")
    ] = False,
    nodelist: NodelistOption = "",
    partition: PartitionOption = "",
    local: Annotated[bool, typer.Option("--local", help="This machine alone.")] = False,
    gpus: Annotated[
        int, typer.Option("--gpus", metavar="N", help="Processes a node; default: as many as this machine has GPUs.")
    ] = 0,
    python: Annotated[
        str, typer.Option("--python", metavar="PATH", help="The interpreter that has torch, on every node.")
    ] = "",
    backend: Annotated[str, typer.Option("--backend", help="nccl, gloo, or auto: nccl where a GPU is.")] = "auto",
    interface: Annotated[
        str, typer.Option("--interface", metavar="NAME", help="NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME.")
    ] = "",
    master: Annotated[
        str, typer.Option("--master", metavar="ADDRESS", help="Where the ranks meet; default: the first node.")
    ] = "",
    port: Annotated[int, typer.Option("--port", metavar="N", help="The port there; default: one free here.")] = 0,
    size: Annotated[
        list[int] | None, typer.Option("--size", metavar="MIB", help="Sizes in MiB; default: 1 and 64.")
    ] = None,
    ssh_config: ConfigOption = "",
    deadline: Annotated[float, typer.Option("--deadline", metavar="SECONDS", help="For all of it.")] = 180.0,
    stall: Annotated[
        float, typer.Option("--stall", metavar="SECONDS", help="Without progress, who holds the others up is named.")
    ] = 20.0,
    format: FormatOption = Format.human,
) -> None:
    """Add up and gather over all nodes; bus bandwidth, interface, and the rank that is dead, silent or slow.

    Started by torchrun on each node; the ranks meet on the first. Nothing is left behind there.

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
