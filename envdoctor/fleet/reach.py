"""Ask every node: by ssh, by one srun, or by Ray tasks. Answers are handed on as they come."""

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
from envdoctor.core.records import Record
from envdoctor.fleet.lines import Listener
from envdoctor.fleet.records import Failure, NodeAnswer
from envdoctor.fleet.words import parse_failure

PROGRAMS = Path(__file__).parent.parent / "probes" / "fleet"
CONNECT_SECONDS = 10
REPORT_SECONDS = 12.0  # of a node's deadline, for what is read beside its check: hub, names, disks
MOST_PEERS = 64  # names that each node is asked to resolve
OUTPUT_BYTES = 48 << 20  # of one ssh
Told = Callable[[NodeAnswer], None]


class Question(Record, frozen=True, kw_only=True):
    """What each node is asked, and how long it may take (seconds)."""

    command: tuple[str, ...] = ("envdoctor",)
    arguments: tuple[str, ...] = ()
    deadline: float = 60.0
    parallel: int = 32
    hub: str = ""
    peers: tuple[str, ...] = ()
    ssh_config: str = ""

    @property
    def check_seconds(self) -> float:
        """What of the deadline the node's own check gets."""
        return max(self.deadline - REPORT_SECONDS, self.deadline / 2)

    @property
    def words(self) -> str:
        """The command as one would type it."""
        return shlex.join(self.command)

    def program(self, name: str) -> bytes:
        """The probe with what it is to do put before it."""
        config = {
            "name": name,
            "command": list(self.command),
            "arguments": list(self.arguments),
            "deadline": self.check_seconds,
            "hub": self.hub,
            "peers": list(self.peers[:MOST_PEERS]),
        }
        # JSON text within a Python literal: no word of the user's is ever read as code.
        text = msgspec.json.encode(config).decode()
        return f"import json\nCONFIG = json.loads({text!r})\n".encode() + (PROGRAMS / "node.py").read_bytes()


class Stopped(Exception):  # noqa: N818
    """Raised within a running child's poll to end it."""


def ssh_argv(node: str, question: Question, remote: str) -> list[str]:
    """The ssh that runs one command on a node and never asks anything; the user's configuration holds."""
    config = ["-F", question.ssh_config] if question.ssh_config else []
    connect = max(1, min(CONNECT_SECONDS, int(question.deadline)))
    options = ("BatchMode=yes", f"ConnectTimeout={connect}", "ClearAllForwardings=yes", "RequestTTY=no")
    return ["ssh", *config, *(part for option in options for part in ("-o", option)), "--", node, remote]


def ask_by_ssh(nodes: Sequence[str], question: Question, on_answer: Told) -> None:
    """Each node by an ssh of its own, `parallel` at a time."""
    ending = threading.Event()
    with ThreadPoolExecutor(max_workers=max(1, min(question.parallel, len(nodes)))) as pool:
        waiting = {pool.submit(ask_one, node, question, ending): node for node in nodes}
        try:
            for done in as_completed(waiting):
                del waiting[done]
                on_answer(done.result())
        except BaseException:  # Ctrl-C: the others are stopped, not waited for
            ending.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def ask_one(node: str, question: Question, ending: threading.Event) -> NodeAnswer:
    """One node's answer, or why there is none. Nothing that a node does raises here."""
    listener = Listener(time.time())

    def poll(text: str) -> None:
        listener.hear(text, time.time())
        if ending.is_set() or listener.seen > OUTPUT_BYTES:
            raise Stopped

    name = node.rpartition("@")[2]
    try:
        done = process.run(
            ssh_argv(node, question, "exec python3 -"),
            deadline=question.deadline,
            stdin=question.program(name),
            poll=poll,
            grace=0.5,
        )
    except Stopped:
        return NodeAnswer(node=node, failure="flood", message=f"it printed over {OUTPUT_BYTES >> 20} MiB")
    except EnvdoctorError as error:
        return NodeAnswer(node=node, failure="crashed", message=error.message)
    if name in listener.answers:
        return listener.take(name, node, question.words, question.check_seconds)
    failure, message = explain_silence(done, spoke=listener.clock_of(name) is not None)
    return NodeAnswer(node=node, failure=failure, message=message, clock=listener.clock_of(name))


def explain_silence(done: process.Finished, *, spoke: bool) -> tuple[Failure, str]:
    """Why a program that ended, or was ended, gave no answer."""
    if done.timed_out:
        where = "it began and did not end" if spoke else "nothing came"
        return "deadline", f"no answer within {done.seconds:.0f} s: {where}"
    if found := parse_failure(done.output):
        return found
    last = next(
        (line for line in reversed(done.output.splitlines()) if line.strip() and "envdoctor-fleet" not in line), ""
    )
    said = f": {last.strip()[:300]}" if last else " and printed nothing"
    return ("garbage" if last and done.ok else "crashed"), f"{done.argv[0]} {done.ending}{said}"


def ask_by_srun(nodes: Sequence[str], options: Sequence[str], question: Question, on_answer: Told) -> None:
    """One task a node, all within one srun; what came before its end counts."""
    own = ("--overlap",) if "--overlap" not in options else ()
    argv = [
        "srun", f"--nodes={len(nodes)}", f"--ntasks={len(nodes)}", "--ntasks-per-node=1",
        "--kill-on-bad-exit=0", "--wait=0", "--input=all", "--unbuffered", *own, *options, "python3", "-",
    ]  # fmt: skip
    _ask_together(argv, nodes, question.program(""), question, on_answer)


def ask_by_ray(python: str, address: str, question: Question, on_answer: Told) -> list[str]:
    """One task a node of the cluster; the nodes that it has."""
    program = PROGRAMS / "ray_tasks.py"
    argv = [python, str(program), address, f"{question.deadline:.1f}"]
    hint = "envdoctor fleet check --ray --ray-python PATH, of a Python that has Ray, --address HOST:PORT"
    return _ask_together(argv, [], question.program("@NODE@"), question, on_answer, hint=hint)


def _ask_together(
    argv: list[str], nodes: Sequence[str], program: bytes, question: Question, on_answer: Told, *, hint: str = ""
) -> list[str]:
    """Run what reaches all nodes at once, and hand on each answer when it comes."""
    listener = Listener(time.time())
    given: set[str] = set()
    with tempfile.TemporaryDirectory(prefix="envdoctor-fleet-") as folder:
        log = Path(folder) / "answers"
        log.touch()
        with log.open(errors="replace") as reader:

            def poll(_: str) -> None:  # the file itself: of a burst, poll's text is the end alone
                while text := reader.read(1 << 20):
                    for node in listener.hear(text, time.time()):
                        if node not in given:
                            given.add(node)
                            on_answer(listener.take(node, node, question.words, question.check_seconds))

            done = process.run(argv, deadline=question.deadline + 15, stdin=program, log=log, poll=poll, grace=1.0)
            poll("")
    expected = list(nodes) or listener.listed
    if not expected:
        failure, message = explain_silence(done, spoke=False)
        raise EnvdoctorError(message, expected="a cluster that answers", hint=hint or shlex.join(argv[:2]))
    for node in expected:
        if node in given:
            continue
        if node in listener.failed:
            on_answer(NodeAnswer(node=node, failure="crashed", message=listener.failed[node]))
            continue
        failure, message = explain_silence(done, spoke=listener.clock_of(node) is not None)
        on_answer(NodeAnswer(node=node, failure=failure, message=message, clock=listener.clock_of(node)))
    return expected
