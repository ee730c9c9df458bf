"""`envdoctor fleet check`: probe all nodes, compare their facts, and report the nodes that differ."""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec

from envdoctor.core import processes as process
from envdoctor.core.decoding import read_text
from envdoctor.core.errors import BadInput, EnvdoctorError
from envdoctor.core.options import Option
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record
from envdoctor.environment.find import resolve_python_argument
from envdoctor.fleet import transport
from envdoctor.fleet.comparison import FleetComparison
from envdoctor.fleet.host_list import parse_host_list
from envdoctor.fleet.node_facts import read_facts
from envdoctor.fleet.options import HostsOption, NodelistOption, PartitionOption, SlurmOption, SshConfigOption
from envdoctor.fleet.recorded import read_reports, recorded_files, save_report
from envdoctor.fleet.records import FleetCheckResult, Method, NodeReport

HINT = "envdoctor fleet check node1,node2,node3"
MAX_PARALLEL = 256  # ssh processes at a time, of some MiB each
AVAILABLE = lazy_pattern(r"idle|alloc|mix|comp|resv", re.IGNORECASE)  # states of SLURM nodes on which a job can run


class FleetRequest(Record, frozen=True, kw_only=True):
    """Prints the findings of each node, the nodes that differ from the others, and the nodes that do not respond.

    Each node needs python3; for all facts it also needs envdoctor. Nothing is installed or left on the nodes.

    Example: envdoctor fleet check node[01-16] --venv /shared/venv
    """

    hosts: HostsOption = ""
    hosts_file: Annotated[
        str,
        Option("--hosts-file", "Connect by ssh to the hosts listed in this file.", "FILE"),
    ] = ""
    slurm: SlurmOption = False
    nodelist: NodelistOption = ""
    partition: PartitionOption = ""
    ray: Annotated[bool, Option("--ray", "Use Ray tasks on every alive node of a cluster.")] = False
    address: Annotated[str, Option("--address", "With --ray: the address of the cluster.", "HOST:PORT")] = "auto"
    ray_python: Annotated[
        str, Option("--ray-python", "With --ray: a local interpreter with Ray installed.", "PATH")
    ] = ""
    recorded: Annotated[
        str, Option("--recorded", "Read files of `check --format json`, one for each node.", "DIR")
    ] = ""
    save: Annotated[str, Option("--save", "Save the results of the nodes for --recorded.", "DIR")] = ""
    venv: Annotated[str, Option("--venv", "The directory of the environment on the nodes.", "PATH")] = ""
    python: Annotated[str, Option("--python", "The environment's interpreter on the nodes.", "PATH")] = ""
    command: Annotated[
        str,
        Option("--command", "The command that starts envdoctor on the nodes.", "WORDS"),
    ] = "envdoctor"
    ssh_config: SshConfigOption = ""
    hub: Annotated[
        str,
        Option("--hub", "URL that each node tries to reach; empty: none.", "URL"),
    ] = "https://huggingface.co"
    deadline: Annotated[float, Option("--deadline", "Time limit for each node.", "SECONDS")] = 60.0
    parallel: Annotated[int, Option("--parallel", "Number of simultaneous connections.", "N")] = 32


def check(request: FleetRequest, on_node: Callable[[str, int], None] = lambda *_: None) -> FleetCheckResult:
    """Probe the nodes and compare them. `on_node` receives each node and the number of nodes so far."""
    method = select_method(request)
    probe_request = build_probe_request(request)
    comparison = FleetComparison(method, probe_request.command_line)
    save = Path(request.save) if request.save else None
    start = time.monotonic()

    def add(report: NodeReport) -> None:
        if save:
            save_report(save, report)
        comparison.add(*read_facts(report))
        on_node(report.node, len(comparison.nodes))

    probe_nodes(method, request, probe_request, add)
    return FleetCheckResult(
        method=method,
        nodes=len(comparison.nodes),
        answered=comparison.answered,
        seconds=round(time.monotonic() - start, 1),
        common=dict(sorted(comparison.common().items())),
        groups=comparison.groups(),
        clocks=comparison.clocks(),
        findings=comparison.findings(),
    )


def select_method(request: FleetRequest) -> Method:
    """Return the method by which the nodes are probed; exactly one of its options must be given."""
    methods: dict[str, tuple[Method, object]] = {
        "--hosts": ("ssh", request.hosts),
        "--hosts-file": ("ssh", request.hosts_file),
        "--slurm": ("slurm", request.slurm),
        "--ray": ("ray", request.ray),
        "--recorded": ("recorded", request.recorded),
    }
    given = [name for name, (_, value) in methods.items() if value]
    if len(given) != 1:
        problem = f"{' and '.join(given)} cannot be combined" if given else "no nodes are given"
        raise BadInput(problem, expected=f"one of {', '.join(methods)}", hint=HINT)
    if request.save and request.recorded:
        raise BadInput("--save cannot be combined with --recorded", expected="--save with --hosts", hint=HINT)
    method = methods[given[0]][0]
    specific = {
        "--nodelist": ("slurm", request.nodelist),
        "--partition": ("slurm", request.partition),
        "--ray-python": ("ray", request.ray_python),
        "--address": ("ray", request.address != "auto"),
        "--ssh-config": ("ssh", request.ssh_config),
    }
    for name, (required, value) in specific.items():
        if value and required != method:
            options = " or ".join(option for option, (item, _) in methods.items() if item == required)
            message = f"{name} cannot be combined with {given[0]}"
            raise BadInput(message, expected=f"{name} with {options}", hint=HINT)
    return method


def build_probe_request(request: FleetRequest) -> transport.ProbeRequest:
    """Validate the options and return what each node runs."""
    if not 1 <= request.deadline <= 3600:
        raise BadInput(f"--deadline {request.deadline:g}", expected="1 to 3600 seconds", hint=HINT)
    if not 1 <= request.parallel <= MAX_PARALLEL:
        raise BadInput(f"--parallel {request.parallel}", expected=f"1 to {MAX_PARALLEL}", hint=HINT)
    try:
        command = tuple(shlex.split(request.command))
    except ValueError as error:
        message = f"--command {request.command}: {error}"
        raise BadInput(message, expected="a command in shell syntax", hint=HINT) from None
    if not command:
        raise BadInput("--command is empty", expected="a command such as python3 -m envdoctor", hint=HINT)
    if request.venv and request.python:
        raise BadInput("--venv cannot be combined with --python", expected="one of them", hint=HINT)
    require_ssh_config(request.ssh_config, HINT)
    arguments = ("--venv", request.venv) if request.venv else ("--python", request.python) if request.python else ()
    return transport.ProbeRequest(
        command=command,
        arguments=arguments,
        deadline=request.deadline,
        parallel=request.parallel,
        hub=request.hub,
        ssh_config=request.ssh_config,
    )


def require_ssh_config(path: str, hint: str) -> None:
    """Raise BadInput where the file of --ssh-config does not exist."""
    if path and not Path(path).is_file():
        raise BadInput(f"--ssh-config {path} is not a file", expected="a file like ~/.ssh/config", hint=hint)


def probe_nodes(
    method: Method, request: FleetRequest, probe_request: transport.ProbeRequest, on_report: transport.OnReport
) -> None:
    """Pass the report of each node to `on_report`."""
    if method == "recorded":
        for report in read_reports(recorded_files(request.recorded)):
            on_report(report)
    elif method == "ray":
        python = request.ray_python and resolve_python_argument(request.ray_python, os.environ, hint=HINT)
        transport.probe_by_ray(str(python or sys.executable), request.address, probe_request, on_report)
    elif method == "slurm":
        nodes, unavailable = slurm_nodes(request.nodelist, request.partition)
        for node, state in unavailable.items():
            on_report(NodeReport(node=node, failure="not listed", message=f"SLURM reports that it is {state}"))
        if nodes:
            probe_request = msgspec.structs.replace(probe_request, peers=tuple(nodes))
            transport.probe_by_srun(nodes, srun_options(nodes, request.partition), probe_request, on_report)
    else:
        nodes = _read_hosts(request)
        peers = tuple(node.rpartition("@")[2] for node in nodes)
        transport.probe_by_ssh(nodes, msgspec.structs.replace(probe_request, peers=peers), on_report)


def _read_hosts(request: FleetRequest) -> list[str]:
    """Return the hosts of --hosts, or of a file with one or several in a line; `#` starts a comment."""
    if request.hosts:
        return parse_host_list(request.hosts, where="--hosts")
    text = read_text(Path(request.hosts_file), expected="a file with one node in each line", hint=HINT)
    return parse_host_list(re.sub(r"#.*", "", text), where=request.hosts_file)


def slurm_nodes(nodelist: str, partition: str) -> tuple[list[str], dict[str, str]]:
    """Return the nodes to probe, and the state of each node that cannot run a task.

    Order of precedence: --nodelist, the current allocation (SLURM_JOB_NODELIST), all nodes that sinfo lists.
    """
    allocated = os.environ.get("SLURM_JOB_NODELIST") or os.environ.get("SLURM_NODELIST") or ""
    wanted = nodelist or allocated
    names = parse_host_list(wanted, where="--nodelist" if nodelist else "SLURM_JOB_NODELIST") if wanted else []
    if names and allocated:
        return names, {}
    options = [
        *([f"--partition={partition}"] if partition else []),
        *([f"--nodes={','.join(names)}"] if names else []),
    ]
    done = process.run(["sinfo", "--noheader", "--Node", "--format=%N %T", *options], timeout=30)
    if not done.ok:
        raise EnvdoctorError(
            f"sinfo {done.ending}: {done.output.strip()[-300:]}",
            expected="a SLURM controller that responds",
            hint="sinfo, or name the machines with --hosts",
        )
    states = parse_sinfo(done.output)
    unavailable = {node: state for node, state in states.items() if not AVAILABLE.match(state)}
    unavailable |= {name: "unknown to it" for name in names if name not in states}
    return [node for node in names or states if node in states and node not in unavailable], unavailable


def parse_sinfo(text: str) -> dict[str, str]:
    """Return states by node from lines such as `node01 idle`, `node02 down*`; a node may be in two partitions."""
    lines = (line.split() for line in text.splitlines())
    return {fields[0]: fields[1] for fields in lines if len(fields) == 2}


def srun_options(nodes: list[str], partition: str) -> list[str]:
    """Return the srun options that select these nodes."""
    return [f"--nodelist={','.join(nodes)}", *([f"--partition={partition}"] if partition else [])]
