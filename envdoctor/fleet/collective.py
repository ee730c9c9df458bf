"""`envdoctor fleet collective`: all-reduce and all-gather over nodes; a rank that holds the others up is named."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import msgspec

from envdoctor.core import processes as process
from envdoctor.core.errors import BadInput, EnvdoctorError
from envdoctor.core.records import Record
from envdoctor.fleet import reach
from envdoctor.fleet.check import slurm_nodes, srun_options
from envdoctor.fleet.hostlist import parse_names
from envdoctor.fleet.ranks import Collective, RankState, name_stuck, parse_deaths, parse_rank
from envdoctor.fleet.verdict import Ended, conclude

HINT = "envdoctor fleet collective --hosts node1,node2 --python /shared/venv/bin/python"
PROBES = Path(__file__).parent.parent / "probes"
FILES = ("fleet/collective.py", "nccl_allreduce.py", "_needs.py", "_result.py")
MIB = 1 << 20
LOOK_SECONDS = 0.3
AFTER_DEATH_SECONDS = 3.0  # for the report of torchrun, and for ranks that die of the same cause
STOP_SECONDS = 3.0
TAIL = 16_384
START_SECONDS = 60.0  # until all have met: torch is imported from cold shared disks
MET_STEP = 2  # the first that needs all ranks to be there


class CollectiveRequest(Record, frozen=True, kw_only=True):
    """What `fleet collective` was asked for."""

    hosts: str = ""
    slurm: bool = False
    nodelist: str = ""
    partition: str = ""
    processes: int = 0  # a node; 0: as many as it has GPUs
    local: bool = False
    python: str = ""
    backend: str = "auto"
    interface: str = ""
    master: str = ""
    port: int = 0
    megabytes: tuple[int, ...] = (1, 64)
    deadline: float = 180.0
    stall: float = 20.0
    ssh_config: str = ""


class Heard:
    """What all ranks and nodes have said so far; written by the threads of the nodes."""

    def __init__(self) -> None:
        self.states: dict[int, RankState] = {}
        self.tails: dict[str, str] = {}
        self.ended: dict[str, process.Finished] = {}
        self.stopping = threading.Event()
        self._partial: dict[str, str] = {}
        self._lock = threading.Lock()

    def listen(self, node: str) -> Callable[[str], None]:
        """What takes in a node's output, and stops it when all is known."""

        def poll(text: str) -> None:
            with self._lock:
                self._hear(node, text)
            if self.stopping.is_set():
                raise reach.Stopped

        return poll

    def _hear(self, node: str, text: str) -> None:
        *lines, self._partial[node] = (self._partial.get(node, "") + text).split("\n")
        now = time.monotonic()
        for line in lines:
            number = line.partition("rank ")[2].split(" ")[0]
            before = self.states.get(int(number)) if number.isdigit() else None
            if state := parse_rank(line, before, now):
                self.states[state.rank] = state
            else:
                self.tails[node] = (self.tails.get(node, "") + line + "\n")[-TAIL:]

    def deaths(self) -> dict[int, str]:
        """Ranks that torchrun says are dead, by the node that told."""
        with self._lock:
            return {rank: how for tail in self.tails.values() for rank, how in parse_deaths(tail).items()}


def collective(request: CollectiveRequest) -> Collective:
    """Start all ranks and watch them."""
    validate(request)
    nodes = nodes_of(request)
    processes = request.processes or _count_gpus()
    ranks = processes * len(nodes)
    if ranks < 2:
        raise BadInput(f"{ranks} rank in all", expected="two or more: nodes times --gpus", hint=HINT)
    heard, began = Heard(), time.monotonic()
    starts = _starts(request, nodes, processes)
    with ThreadPoolExecutor(max_workers=len(starts)) as pool:
        running = {name: pool.submit(_run, name, argv, program, request, heard) for name, argv, program in starts}
        try:
            ended = watch(heard, running, ranks, request)
        finally:
            heard.stopping.set()
            wait(running.values())
    return conclude(request_way(request), nodes, processes, heard.states, ended, round(time.monotonic() - began, 1))


def validate(request: CollectiveRequest) -> None:
    """Refuse what cannot be run, before anything starts."""
    ways = {"--hosts": request.hosts, "--slurm": request.slurm, "--local": request.local}
    if len(given := [name for name, value in ways.items() if value]) != 1:
        raise BadInput(
            " beside ".join(given) or "no nodes are named", expected=f"one of {', '.join(ways)}", hint=HINT
        )
    told = f"--deadline {request.deadline:g} with --stall {request.stall:g}"
    in_time = 5 <= request.deadline <= 3600 and 2 <= request.stall <= request.deadline
    required = [
        (0 <= request.processes <= 64, f"--gpus {request.processes}", "1 to 64 a node"),
        (request.backend in ("auto", "nccl", "gloo"), f"--backend {request.backend}", "auto, nccl or gloo"),
        (in_time, told, "a deadline of 5 to 3600 s, and a stall of 2 s up to it"),
        *((1 <= size <= 8192, f"--size {size}", "1 to 8192 MiB") for size in request.megabytes),
        (0 <= request.port <= 65535, f"--port {request.port}", "1 to 65535, or none: one that is free here"),
        (request.slurm or not request.nodelist, "--nodelist without --slurm", "--nodelist with --slurm"),
        (request.slurm or not request.partition, "--partition without --slurm", "--partition with --slurm"),
    ]
    for fine, seen, expected in required:
        if not fine:
            raise BadInput(seen, expected=expected, hint=HINT)
    if not request.python and not request.local:
        raise BadInput("no --python", expected="the interpreter that has torch, on every node", hint=HINT)
    if request.ssh_config and not Path(request.ssh_config).is_file():
        raise BadInput(f"--ssh-config {request.ssh_config} is no file", expected="a file as ~/.ssh/config", hint=HINT)


def request_way(request: CollectiveRequest) -> str:
    """How the nodes are reached."""
    return "local" if request.local else "slurm" if request.slurm else "ssh"


def nodes_of(request: CollectiveRequest) -> list[str]:
    """The nodes, the first of which is where all meet."""
    if request.local:
        return ["localhost"]
    if request.hosts:
        return parse_names(request.hosts, where="--hosts")
    nodes, down = slurm_nodes(request.nodelist, request.partition)
    if down:
        told = ", ".join(f"{node} is {state}" for node, state in down.items())
        raise EnvdoctorError(told, expected="nodes that a job can run on", hint="sinfo")
    return nodes


def _count_gpus() -> int:
    """How many GPUs this machine has: the nodes are taken to be like it."""
    from envdoctor.machine.gpu import read_nvml

    if gpus := read_nvml().gpus.value:
        return len(gpus)
    raise BadInput("no GPU is here, and no --gpus", expected="how many processes a node shall run", hint=HINT)


def _starts(request: CollectiveRequest, nodes: list[str], processes: int) -> list[tuple[str, list[str], bytes]]:
    """What to start here: a name, a command, and the program for its standard input."""
    master = request.master or _master(request, nodes[0])
    port = request.port or _free_port()
    config = {
        "python": request.python or sys.executable,
        "files": {Path(name).name: (PROBES / name).read_text() for name in FILES},
        "program": "collective.py",
        "arguments": [request.backend, _sizes(request.megabytes)],
        "nodes": len(nodes),
        "processes": processes,
        "master": master,
        "port": port,
        "deadline": request.deadline + 10,
        "environment": _variables(request),
    }
    if request.local:
        return [("localhost", [sys.executable, "-"], program_of(config | {"node": 0}))]
    if request.slurm:
        count = ["--nodes", str(len(nodes)), "--ntasks", str(len(nodes)), "--ntasks-per-node=1", "--overlap"]
        argv = [
            "srun",
            *count,
            "--unbuffered",
            "--input=all",
            "--kill-on-bad-exit=0",
            *srun_options(nodes, request.partition),
        ]
        return [("srun", [*argv, "python3", "-"], program_of(config | {"node": None}))]
    question = reach.Question(deadline=request.deadline, ssh_config=request.ssh_config)
    return [
        (node, reach.ssh_argv(node, question, "exec python3 -"), program_of(config | {"node": number}))
        for number, node in enumerate(nodes)
    ]


def _variables(request: CollectiveRequest) -> dict[str, str]:
    """What the ranks get on top of the node's own environment."""
    variables = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,GRAPH,P2P,SHM", "PYTHONUNBUFFERED": "1"}
    variables["PYTHONWARNINGS"] = "default"  # set to `error` by somebody, torch's own remarks would end the ranks
    if request.interface:
        variables |= {"NCCL_SOCKET_IFNAME": request.interface, "GLOO_SOCKET_IFNAME": request.interface}
    return variables


def _sizes(megabytes: Sequence[int]) -> str:
    return msgspec.json.encode({f"{size} MiB": size * MIB for size in megabytes}).decode()


def program_of(config: dict[str, object]) -> bytes:
    """The starter with what it is to do put before it, as a literal: no word of the user's is read as code."""
    text = msgspec.json.encode(config).decode()
    return f"import json\nCONFIG = json.loads({text!r})\n".encode() + (PROBES / "fleet/start.py").read_bytes()


def _master(request: CollectiveRequest, first: str) -> str:
    """Where the ranks meet: the first node's address, as ssh's configuration names it."""
    if request.local:
        return "127.0.0.1"
    if request.slurm:
        return first
    argv = reach.ssh_argv(first, reach.Question(ssh_config=request.ssh_config), "true")
    done = process.run([argv[0], "-G", *argv[1:-1]], deadline=10)
    found = next((line.split()[1] for line in done.output.splitlines() if line.startswith("hostname ")), "")
    return found or first.rpartition("@")[2]


def _free_port() -> int:
    """A port that is free here and, most likely, on the first node."""
    with socket.socket() as taken:
        taken.bind(("", 0))
        return int(taken.getsockname()[1])


def _run(node: str, argv: list[str], program: bytes, request: CollectiveRequest, heard: Heard) -> None:
    """One ssh, srun or local starter, to its end."""
    try:
        heard.ended[node] = process.run(
            argv,
            deadline=request.deadline + STOP_SECONDS,
            stdin=program,
            poll=heard.listen(node),
            grace=STOP_SECONDS,
            env={"PYTHONUNBUFFERED": "1"} if request.local else None,
        )
    except reach.Stopped:
        return
    except EnvdoctorError as error:
        heard.tails[node] = error.message
        heard.ended[node] = process.Finished(tuple(argv), 127, 0, timed_out=False, seconds=0.0, output=error.message)


def is_stalled(states: dict[int, RankState], ranks: int, since: float, start_since: float, began: float) -> bool:
    """Whether no rank has come any further since then, or one has not said a word; starting may take longer."""
    waiting = [state for state in states.values() if not state.done]
    if any(state.heard < since for state in waiting):
        return True
    met = len(states) == ranks and all(state.step >= MET_STEP for state in states.values())
    moved = max((state.moved for state in states.values()), default=began)
    return bool(waiting or len(states) < ranks) and moved < (since if met else start_since)


def watch(heard: Heard, running: dict[str, Future[None]], ranks: int, request: CollectiveRequest) -> Ended:
    """Look until all ranks are done, one is dead or holds the others up, or the time is over; why it ended."""
    began = time.monotonic()
    died: float | None = None
    while True:
        time.sleep(LOOK_SECONDS)
        now = time.monotonic()
        states = dict(heard.states)
        if len(states) == ranks and all(state.done for state in states.values()):
            return Ended("done", {}, {}, {}, ranks)
        failed = {node: done for node, done in list(heard.ended.items()) if not done.ok}
        if failed and died is None:
            died = now
        if died is not None and (now - died > AFTER_DEATH_SECONDS or all(one.done() for one in running.values())):
            said = {node: (done, heard.tails.get(node, "")) for node, done in failed.items()}
            return Ended("died", name_stuck(states, ranks, now), heard.deaths(), said, ranks)
        over = now - began > request.deadline
        if over or is_stalled(states, ranks, now - request.stall, now - max(request.stall, START_SECONDS), began):
            return Ended("deadline" if over else "stalled", name_stuck(states, ranks, now), heard.deaths(), {}, ranks)
