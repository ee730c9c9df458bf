"""`envdoctor fleet collective`: all-reduce and all-gather over nodes; reports ranks that block or slow the others."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from envdoctor.core import processes as process
from envdoctor.core.errors import BadInput, EnvdoctorError
from envdoctor.core.options import Option
from envdoctor.core.record import Record
from envdoctor.fleet import transport
from envdoctor.fleet.check import require_ssh_config, slurm_nodes, srun_options
from envdoctor.fleet.host_list import parse_host_list
from envdoctor.fleet.options import HostsOption, NodelistOption, PartitionOption, SlurmOption, SshConfigOption
from envdoctor.fleet.ranks import CollectiveResult, Method, RankState, find_blocking, parse_deaths, parse_rank
from envdoctor.fleet.verdict import Ending, build_result

HINT = "envdoctor fleet collective node1,node2 --venv /shared/venv"
PROBES = Path(__file__).parent.parent / "probes"
FILES = ("fleet/collective.py", "nccl_allreduce.py", "_needs.py", "_result.py")
MIB = 1 << 20
POLL_SECONDS = 0.3
AFTER_DEATH_SECONDS = 3.0  # for torchrun's report, and for ranks that die of the same cause
STOP_SECONDS = 10.0  # a busy node needs some seconds to remove its files
OUTPUT_CHARACTERS = 16_384  # kept of each node
START_SECONDS = 60.0  # until all ranks have connected: torch may be imported from a cold network disk
CONNECTED_STEP = 2  # the first step that all ranks reach together


class CollectiveRequest(Record, frozen=True, kw_only=True):
    """Runs all-reduce and all-gather over all nodes with torchrun; prints bus bandwidth and network interface.

    Reports ranks that are dead, stuck or slow. Nothing is left on the nodes.

    Example: envdoctor fleet collective node1,node2 --venv /shared/venv --gpus 8
    """

    hosts: HostsOption = ""
    slurm: SlurmOption = False
    nodelist: NodelistOption = ""
    partition: PartitionOption = ""
    local: Annotated[bool, Option("--local", "Use this machine only.")] = False
    processes: Annotated[
        int, Option("--gpus", "Processes per node; default: the number of GPUs of this machine.", "N")
    ] = 0
    venv: Annotated[str, Option("--venv", "The directory of an environment with torch, on every node.", "PATH")] = ""
    python: Annotated[str, Option("--python", "An interpreter with torch, on every node.", "PATH")] = ""
    backend: Annotated[str, Option("--backend", "nccl, gloo, or auto: nccl if there is a GPU.", "NAME")] = "auto"
    interface: Annotated[
        str, Option("--interface", "Value of NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME.", "NAME")
    ] = ""
    master: Annotated[str, Option("--master", "Rendezvous address; default: the first node.", "ADDRESS")] = ""
    port: Annotated[int, Option("--port", "Rendezvous port; default: a port that is free here.", "N")] = 0
    megabytes: Annotated[
        tuple[int, ...],
        Option("--size", "Message sizes in MiB; default: 1 and 64.", "MIB"),
    ] = (1, 64)
    ssh_config: SshConfigOption = ""
    deadline: Annotated[float, Option("--deadline", "Time limit for the whole test.", "SECONDS")] = 180.0
    stall: Annotated[
        float, Option("--stall", "After this time without progress, report the stuck rank.", "SECONDS")
    ] = 20.0


class RunMonitor:
    """The states of all ranks and the output of all nodes, written by the threads of the nodes."""

    def __init__(self) -> None:
        self.states: dict[int, RankState] = {}
        self.outputs: dict[str, str] = {}  # last output by node, without the lines of ranks
        self.ended: dict[str, process.CompletedProcess] = {}
        self.stopping = threading.Event()
        self._partial_lines: dict[str, str] = {}
        self._lock = threading.Lock()

    def reader(self, node: str) -> Callable[[str], None]:
        """Return the poll function for a node's process, which parses its output and stops it on request."""

        def poll(text: str) -> None:
            with self._lock:
                self._parse(node, text)
            if self.stopping.is_set():
                raise transport.Stopped

        return poll

    def _parse(self, node: str, text: str) -> None:
        *lines, self._partial_lines[node] = (self._partial_lines.get(node, "") + text).split("\n")
        now = time.monotonic()
        for line in lines:
            number = line.partition("rank ")[2].split(" ")[0]
            previous = self.states.get(int(number)) if number.isdigit() else None
            if state := parse_rank(line, previous, now):
                self.states[state.rank] = state
            else:
                self.outputs[node] = (self.outputs.get(node, "") + line + "\n")[-OUTPUT_CHARACTERS:]

    def deaths(self) -> dict[int, str]:
        """Return the ranks that torchrun reports as dead, and how they ended."""
        with self._lock:
            return {rank: cause for text in self.outputs.values() for rank, cause in parse_deaths(text).items()}


def collective(request: CollectiveRequest) -> CollectiveResult:
    """Start all ranks and monitor them until the end."""
    validate(request)
    nodes = select_nodes(request)
    processes = request.processes or _count_gpus()
    ranks = processes * len(nodes)
    if ranks < 2:
        raise BadInput(f"{ranks} rank in total", expected="two or more: nodes times --gpus", hint=HINT)
    monitor, start = RunMonitor(), time.monotonic()
    launches = _plan_launches(request, nodes, processes)
    with ThreadPoolExecutor(max_workers=len(launches)) as pool:
        running = {name: pool.submit(_run, name, argv, program, request, monitor) for name, argv, program in launches}
        try:
            ending = wait_for_end(monitor, running, ranks, request)
        finally:
            monitor.stopping.set()
            wait(running.values())
    seconds = round(time.monotonic() - start, 1)
    method: Method = "local" if request.local else "slurm" if request.slurm else "ssh"
    return build_result(method, nodes, processes, monitor.states, ending, seconds)


def validate(request: CollectiveRequest) -> None:
    """Raise BadInput for options that are out of range or cannot be combined."""
    methods = {"--hosts": request.hosts, "--slurm": request.slurm, "--local": request.local}
    if len(given := [name for name, value in methods.items() if value]) != 1:
        problem = f"{' and '.join(given)} cannot be combined" if given else "no nodes are given"
        raise BadInput(problem, expected=f"one of {', '.join(methods)}", hint=HINT)
    times = f"--deadline {request.deadline:g} with --stall {request.stall:g}"
    valid_times = 5 <= request.deadline <= 3600 and 2 <= request.stall <= request.deadline
    conditions = [
        (0 <= request.processes <= 64, f"--gpus {request.processes}", "1 to 64 per node"),
        (request.backend in ("auto", "nccl", "gloo"), f"--backend {request.backend}", "auto, nccl or gloo"),
        (valid_times, times, "a deadline of 5 to 3600 s, and a stall of at least 2 s and at most the deadline"),
        *((1 <= size <= 8192, f"--size {size}", "1 to 8192 MiB") for size in request.megabytes),
        (0 <= request.port <= 65535, f"--port {request.port}", "1 to 65535, or 0 for a port that is free here"),
        (request.slurm or not request.nodelist, "--nodelist without --slurm", "--nodelist with --slurm"),
        (request.slurm or not request.partition, "--partition without --slurm", "--partition with --slurm"),
        (not (request.venv and request.python), "--venv with --python", "one of them"),
        (
            request.local or bool(request.venv or request.python),
            "neither --venv nor --python",
            "the environment that has torch, on every node",
        ),
    ]
    for valid, message, expected in conditions:
        if not valid:
            raise BadInput(message, expected=expected, hint=HINT)
    require_ssh_config(request.ssh_config, HINT)


def select_nodes(request: CollectiveRequest) -> list[str]:
    """Return the nodes; the ranks connect to the first one."""
    if request.local:
        return ["localhost"]
    if request.hosts:
        return parse_host_list(request.hosts, where="--hosts")
    nodes, unavailable = slurm_nodes(request.nodelist, request.partition)
    if unavailable:
        states = ", ".join(f"{node} is {state}" for node, state in unavailable.items())
        raise EnvdoctorError(states, expected="nodes on which a job can run", hint="sinfo")
    return nodes


def _count_gpus() -> int:
    """Return the number of GPUs of this machine, as the default for every node."""
    from envdoctor.machine.gpu import read_nvml

    if gpus := read_nvml().gpus.value:
        return len(gpus)
    raise BadInput("this machine has no GPU, and --gpus is not given", expected="the processes per node", hint=HINT)


def _interpreter(request: CollectiveRequest) -> str:
    return f"{request.venv.rstrip('/')}/bin/python" if request.venv else request.python or sys.executable


def _plan_launches(
    request: CollectiveRequest, nodes: list[str], processes: int
) -> list[tuple[str, list[str], bytes]]:
    """Return what to start on this machine: a name, a command, and the program for its standard input."""
    config: dict[str, object] = {
        "python": _interpreter(request),
        "files": {Path(name).name: (PROBES / name).read_text() for name in FILES},
        "program": "collective.py",
        "arguments": [request.backend, _sizes(request.megabytes)],
        "nodes": len(nodes),
        "processes": processes,
        "master": request.master or _master_address(request, nodes[0]),
        "port": request.port or _free_port(),
        "deadline": request.deadline + 10,
        "environment": _variables(request),
    }
    launcher = PROBES / "fleet/start.py"
    if request.local:
        return [("localhost", [sys.executable, "-"], transport.with_config(launcher, config | {"node": 0}))]
    if request.slurm:
        argv = [
            "srun", "--nodes", str(len(nodes)), "--ntasks", str(len(nodes)), "--ntasks-per-node=1", "--overlap",
            "--unbuffered", "--input=all", "--kill-on-bad-exit=0", *srun_options(nodes, request.partition),
            "python3", "-",
        ]  # fmt: skip
        return [("srun", argv, transport.with_config(launcher, config | {"node": None}))]
    probe_request = transport.ProbeRequest(deadline=request.deadline, ssh_config=request.ssh_config)
    return [
        (
            node,
            transport.ssh_argv(node, probe_request, "exec python3 -"),
            transport.with_config(launcher, config | {"node": number}),
        )
        for number, node in enumerate(nodes)
    ]


def _variables(request: CollectiveRequest) -> dict[str, str]:
    """Return the variables of the ranks in addition to the node's environment."""
    variables = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,GRAPH,P2P,SHM", "PYTHONUNBUFFERED": "1"}
    variables["PYTHONWARNINGS"] = "default"  # with `error`, torch's own warnings would end the ranks
    if request.interface:
        variables |= {"NCCL_SOCKET_IFNAME": request.interface, "GLOO_SOCKET_IFNAME": request.interface}
    return variables


def _sizes(megabytes: Sequence[int]) -> str:
    return msgspec.json.encode({f"{size} MiB": size * MIB for size in megabytes}).decode()


def _master_address(request: CollectiveRequest, first: str) -> str:
    """Return the first node's address, as ssh's configuration defines it."""
    if request.local:
        return "127.0.0.1"
    if request.slurm:
        return first
    argv = transport.ssh_argv(first, transport.ProbeRequest(ssh_config=request.ssh_config), "true")
    done = process.run([argv[0], "-G", *argv[1:-1]], timeout=10)
    address = next((line.split()[1] for line in done.output.splitlines() if line.startswith("hostname ")), "")
    return address or first.rpartition("@")[2]


def _free_port() -> int:
    """Return a port that is free on this machine, and most likely on the first node."""
    with socket.socket() as listener:
        listener.bind(("", 0))
        return int(listener.getsockname()[1])


def _run(node: str, argv: list[str], program: bytes, request: CollectiveRequest, monitor: RunMonitor) -> None:
    """Run one ssh, srun or local process until it ends."""
    try:
        monitor.ended[node] = process.run(
            argv,
            timeout=request.deadline + STOP_SECONDS,
            stdin=program,
            on_output=monitor.reader(node),
            grace=STOP_SECONDS,
            env={"PYTHONUNBUFFERED": "1"} if request.local else None,
        )
    except transport.Stopped:
        return
    except EnvdoctorError as error:
        output = error.message
        monitor.outputs[node] = output
        monitor.ended[node] = process.CompletedProcess(
            tuple(argv), 127, 0, timed_out=False, seconds=0.0, output=output
        )


def is_stalled(states: dict[int, RankState], ranks: int, since: float, start_since: float, start: float) -> bool:
    """Whether a rank is silent, or no rank has entered a new step, since the given times.

    `since` applies once all ranks are connected, `start_since` before that, since imports may take longer.
    """
    unfinished = [state for state in states.values() if not state.done]
    if any(state.seen_at < since for state in unfinished):
        return True
    connected = len(states) == ranks and all(state.step >= CONNECTED_STEP for state in states.values())
    latest = max((state.step_at for state in states.values()), default=start)
    return bool(unfinished or len(states) < ranks) and latest < (since if connected else start_since)


def wait_for_end(
    monitor: RunMonitor, running: dict[str, Future[None]], ranks: int, request: CollectiveRequest
) -> Ending:
    """Wait until all ranks are done, one is dead, the run is stalled, or the deadline has passed."""
    start = time.monotonic()
    died_at: float | None = None
    while True:
        time.sleep(POLL_SECONDS)
        now = time.monotonic()
        states = dict(monitor.states)
        if len(states) == ranks and all(state.done for state in states.values()):
            return Ending("done", {}, {}, {}, ranks)
        failed = {node: done for node, done in list(monitor.ended.items()) if not done.ok}
        if failed and died_at is None:
            died_at = now
        all_ended = all(future.done() for future in running.values())
        if died_at is not None and (now - died_at > AFTER_DEATH_SECONDS or all_ended):
            outputs = {node: (done, monitor.outputs.get(node, "")) for node, done in failed.items()}
            return Ending("died", find_blocking(states, ranks, now), monitor.deaths(), outputs, ranks)
        late = now - start > request.deadline
        if late or is_stalled(states, ranks, now - request.stall, now - max(request.stall, START_SECONDS), start):
            reason: Literal["deadline", "stalled"] = "deadline" if late else "stalled"
            return Ending(reason, find_blocking(states, ranks, now), monitor.deaths(), {}, ranks)
