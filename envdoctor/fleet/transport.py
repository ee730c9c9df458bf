"""Runs the node probe on all nodes: over ssh, in one srun, or as Ray tasks. Reports are passed on as they arrive."""

from __future__ import annotations

import shlex
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import msgspec

from envdoctor.core import processes as process
from envdoctor.core.errors import EnvdoctorError
from envdoctor.core.record import Record
from envdoctor.fleet.failures import classify_failure
from envdoctor.fleet.node_output import NodeOutputParser
from envdoctor.fleet.records import Failure, NodeReport

PROGRAMS = Path(__file__).parent.parent / "probes" / "fleet"
CONNECT_SECONDS = 10
PROBE_SECONDS = 12.0  # of a node's deadline, for what the probe reads besides the check: hub, names, disks
MAX_PEERS = 64  # names that each node resolves
OUTPUT_BYTES = 48 << 20  # of one ssh
OnReport = Callable[[NodeReport], None]


class ProbeRequest(Record, frozen=True, kw_only=True):
    """What each node runs, and its time limit in seconds."""

    command: tuple[str, ...] = ("envdoctor",)
    arguments: tuple[str, ...] = ()
    deadline: float = 60.0
    parallel: int = 32
    hub: str = ""
    peers: tuple[str, ...] = ()
    ssh_config: str = ""

    @property
    def check_seconds(self) -> float:
        """The part of the deadline that the node's own check may take."""
        return max(self.deadline - PROBE_SECONDS, self.deadline / 2)

    @property
    def command_line(self) -> str:
        """The command in shell syntax."""
        return shlex.join(self.command)

    def program(self, name: str) -> bytes:
        """Return the probe's source, preceded by its configuration."""
        config = {
            "name": name,
            "command": list(self.command),
            "arguments": list(self.arguments),
            "deadline": self.check_seconds,
            "hub": self.hub,
            "peers": list(self.peers[:MAX_PEERS]),
        }
        return with_config(PROGRAMS / "node.py", config)


def with_config(program: Path, config: dict[str, object]) -> bytes:
    """Return a program's source, preceded by `CONFIG`.

    The configuration is JSON inside a Python literal, so that no value of the user is executed as code.
    """
    text = msgspec.json.encode(config).decode()
    return f"import json\nCONFIG = json.loads({text!r})\n".encode() + program.read_bytes()


class Stopped(Exception):  # noqa: N818
    """Raised in the poll function of a running process to stop it."""


def ssh_argv(node: str, request: ProbeRequest, remote: str) -> list[str]:
    """Return the ssh command that runs `remote` on a node without prompts, with the user's configuration."""
    config = ["-F", request.ssh_config] if request.ssh_config else []
    connect = max(1, min(CONNECT_SECONDS, int(request.deadline)))
    options = ("BatchMode=yes", f"ConnectTimeout={connect}", "ClearAllForwardings=yes", "RequestTTY=no")
    return ["ssh", *config, *(part for option in options for part in ("-o", option)), "--", node, remote]


def probe_by_ssh(nodes: Sequence[str], request: ProbeRequest, on_report: OnReport) -> None:
    """Probe each node over its own ssh, `parallel` at a time."""
    stopping = threading.Event()
    with ThreadPoolExecutor(max_workers=max(1, min(request.parallel, len(nodes)))) as pool:
        pending = {pool.submit(probe_node, node, request, stopping): node for node in nodes}
        try:
            for done in as_completed(pending):
                del pending[done]
                on_report(done.result())
        except BaseException:  # after Ctrl-C the other nodes are stopped
            stopping.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def probe_node(node: str, request: ProbeRequest, stopping: threading.Event) -> NodeReport:
    """Probe one node over ssh. Returns a failure instead of raising."""
    parser = NodeOutputParser(time.time())

    def poll(text: str) -> None:
        parser.feed(text, time.time())
        if stopping.is_set() or parser.characters > OUTPUT_BYTES:
            raise Stopped

    name = node.rpartition("@")[2]
    try:
        done = process.run(
            ssh_argv(node, request, "exec python3 -"),
            timeout=request.deadline,
            stdin=request.program(name),
            on_output=poll,
            grace=0.5,
        )
    except Stopped:
        return NodeReport(node=node, failure="flood", message=f"it printed over {OUTPUT_BYTES >> 20} MiB")
    except EnvdoctorError as error:
        return NodeReport(node=node, failure="crashed", message=error.message)
    if name in parser.reports:
        return parser.pop_report(name, node, request.command_line, request.check_seconds)
    clock = parser.clock(name)
    failure, message = explain_missing_report(done, started=clock is not None)
    return NodeReport(node=node, failure=failure, message=message, clock=clock)


def explain_missing_report(done: process.CompletedProcess, *, started: bool) -> tuple[Failure, str]:
    """Return why a process that has ended delivered no report. `started`: the probe printed at least one line."""
    if done.timed_out:
        progress = "the probe started and did not end" if started else "it printed nothing"
        return "deadline", f"no report within {done.seconds:.0f} s: {progress}"
    if known := classify_failure(done.output):
        return known
    lines = [line for line in done.output.splitlines() if line.strip() and "envdoctor-fleet" not in line]
    if not lines:
        return "crashed", f"{done.argv[0]} {done.ending} and printed nothing"
    return ("garbage" if done.ok else "crashed"), f"{done.argv[0]} {done.ending}: {lines[-1].strip()[:300]}"


def probe_by_srun(nodes: Sequence[str], options: Sequence[str], request: ProbeRequest, on_report: OnReport) -> None:
    """Probe all nodes in one srun with one task per node. Reports that arrived before its end are kept."""
    overlap = ("--overlap",) if "--overlap" not in options else ()
    argv = [
        "srun", f"--nodes={len(nodes)}", f"--ntasks={len(nodes)}", "--ntasks-per-node=1",
        "--kill-on-bad-exit=0", "--wait=0", "--input=all", "--unbuffered", *overlap, *options, "python3", "-",
    ]  # fmt: skip
    _probe_together(argv, nodes, request.program(""), request, on_report)


def probe_by_ray(python: str, address: str, request: ProbeRequest, on_report: OnReport) -> None:
    """Probe all nodes of a Ray cluster with one task per node."""
    argv = [python, str(PROGRAMS / "ray_tasks.py"), address, f"{request.deadline:.1f}"]
    hint = "envdoctor fleet check --ray --ray-python PYTHON_WITH_RAY --address HOST:PORT"
    _probe_together(argv, [], request.program("@NODE@"), request, on_report, hint=hint)


def _probe_together(
    argv: list[str],
    nodes: Sequence[str],
    program: bytes,
    request: ProbeRequest,
    on_report: OnReport,
    *,
    hint: str = "",
) -> None:
    """Run one process that reaches all nodes, and pass on each report as it arrives.

    Without `nodes`, the process itself lists them.
    """
    parser = NodeOutputParser(time.time())
    reported: set[str] = set()
    with tempfile.TemporaryDirectory(prefix="envdoctor-fleet-") as folder:
        log = Path(folder) / "reports"
        log.touch()
        with log.open(errors="replace") as reader:

            def poll(_: str) -> None:  # reads the log itself: the text passed here is only the end of large output
                while text := reader.read(1 << 20):
                    for node in parser.feed(text, time.time()):
                        if node not in reported:
                            reported.add(node)
                            on_report(parser.pop_report(node, node, request.command_line, request.check_seconds))

            done = process.run(argv, timeout=request.deadline + 15, stdin=program, log=log, on_output=poll, grace=1.0)
            poll("")
    expected = list(nodes) or parser.listed
    if not expected:
        _, message = explain_missing_report(done, started=False)
        raise EnvdoctorError(message, expected="a cluster that responds", hint=hint or shlex.join(argv[:2]))
    for node in expected:
        if node in reported:
            continue
        if node in parser.failed:
            on_report(NodeReport(node=node, failure="crashed", message=parser.failed[node]))
            continue
        clock = parser.clock(node)
        failure, message = explain_missing_report(done, started=clock is not None)
        on_report(NodeReport(node=node, failure=failure, message=message, clock=clock))
