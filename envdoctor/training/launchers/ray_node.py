"""Ray on the nodes of a job: its head on the first, which runs the trainer when all have joined; workers elsewhere.

    PYTHON -B ray_node.py --head HOST --port N --address THIS --names n1,n2 [--gpus N] [--wait SECONDS] -- COMMAND...

A scheduler starts this on each node by the stack's interpreter, which has Ray. It needs the standard library alone
and imports nothing of the tool. The first name is the head's. Exit status: on the head the command's, or 1 where Ray
or a node did not come; on the others 0 once they had joined: what comes of the run is the head's to say.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from types import FrameType

GRACE = 45.0  # for the trainer after a signal: it ends its own in 40 s
LOOK = 2.0
GONE = 3  # looks in a row at which the head did not answer
# Waits in a process of its own: a driver, which joins, looks who is there, and leaves. Prints the names that are not.
JOINED = """
import sys, time, ray
address, last, names = sys.argv[1], time.monotonic() + float(sys.argv[2]), set(sys.argv[3].split(","))
while True:  # the head listens some seconds before it can be joined
    try:
        ray.init(address=address, log_to_driver=False, logging_level="error")
        break
    except Exception:
        if time.monotonic() > last:
            raise
        ray.shutdown()
        time.sleep(1)
while True:
    missing = names - {node["NodeName"] for node in ray.nodes() if node["Alive"]}
    if not missing or time.monotonic() > last:
        break
    time.sleep(1)
print("MISSING " + ",".join(sorted(missing)), flush=True)
"""
# Waits on a worker until the head is one of Ray's nodes. A driver would need a raylet of its own machine. Raylets
# of one machine that come up at once take longer than Ray allows. A Ray that cannot be asked so is taken to be ready.
REGISTERED = """
import sys, time
from ray._raylet import GcsClient
address, last, name = sys.argv[1], time.monotonic() + float(sys.argv[2]), sys.argv[3]
while time.monotonic() < last:
    try:
        found = GcsClient(address=address).get_all_node_info(timeout=5).values()
    except AttributeError:
        break
    except Exception:
        found = []
    if any(node.node_name == name and node.state == 0 for node in found):  # 0: active (gcs.proto, GcsNodeInfo)
        break
    time.sleep(1)
"""


class Children:
    """The processes of this node. A signal goes on to all of them, and they are ended in turn."""

    def __init__(self) -> None:
        self.asked = False
        self.started: list[subprocess.Popen[str]] = []
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._pass_on)

    def _pass_on(self, number: int, _frame: FrameType | None) -> None:
        self.asked = True
        for child in self.started[-1:]:  # the trainer, or Ray where there is no trainer yet
            with contextlib.suppress(OSError):
                child.send_signal(number)

    def start(self, argv: Sequence[str], *, own_group: bool) -> subprocess.Popen[str]:
        """Start a child that is ended with this node's program."""
        child = subprocess.Popen(list(argv), text=True, start_new_session=own_group)
        self.started.append(child)
        return child

    def end(self) -> None:
        """The last one first; what does not go is killed, with what it started."""
        for child in reversed([*self.started]):
            self.started.remove(child)
            if child.poll() is None:
                child.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(15)
            with contextlib.suppress(OSError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def ray_start(arguments: argparse.Namespace, name: str, place: str) -> list[str]:
    """The command that makes this node one of Ray's and stays until it is none any more."""
    first = name == arguments.names[0]
    role = ["--head", f"--port={arguments.port}", f"--temp-dir={place}", "--include-dashboard=false"]
    return [
        sys.executable, "-m", "ray.scripts.scripts", "start",
        *(role if first else [f"--address={arguments.head}:{arguments.port}"]),
        f"--node-ip-address={arguments.address}", f"--node-name={name}", f"--num-gpus={arguments.gpus}",
        # Ray would count the machine's, not the job's.
        f"--num-cpus={len(os.sched_getaffinity(0))}", "--disable-usage-stats", "--block",
    ]  # fmt: skip


def is_open(host: str, port: int) -> bool:
    """Whether something listens there."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), LOOK):
        return True
    return False


def wait_until(condition: Callable[[], bool], seconds: float, children: Children) -> bool:
    """Look until a condition holds; false where it did not in time, or a signal came."""
    last = time.monotonic() + seconds
    while not condition():
        if children.asked or time.monotonic() > last:
            return False
        time.sleep(0.2)
    return True


def run_head(arguments: argparse.Namespace, name: str, children: Children) -> int:
    """Ray's head; the trainer when all nodes have joined."""
    place = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # its sockets' names must be short: 108 bytes (unix(7))
    began = time.monotonic()
    try:
        while True:
            ray = children.start(ray_start(arguments, name, place), own_group=True)
            left = max(1.0, arguments.wait - (time.monotonic() - began))
            said = wait_for_nodes(arguments, ray, left, children)
            if children.asked:
                return 130
            if ray.poll() is None:
                break
            # Ray gives its own raylet 30 s, too (ray/_private/node.py).
            told = f"Ray's head ended on {name} with exit status {ray.returncode}"
            if time.monotonic() - began > arguments.wait:
                return fail(told, f"read the lines above; {place}/session_latest/logs")
            say(f"{told}: once more")
            children.end()  # what it left holds the port
            time.sleep(LOOK)
        found = [line for line in said.splitlines() if line.startswith("MISSING ")]
        if not found:
            return fail("Ray cannot be asked which nodes have joined", "read the lines above")
        if missing := found[-1].partition(" ")[2]:
            count = len(missing.split(","))
            return fail(
                f"{missing} did not join Ray within {arguments.wait:.0f} s ({len(arguments.names) - count} of "
                f"{len(arguments.names)} nodes did)",
                f"read what they said above; srun --nodelist={missing} ping -c 1 {arguments.head}",
            )
        say(f"{name}: Ray has all {len(arguments.names)} nodes after {time.monotonic() - began:.0f} s")
        os.environ["RAY_ADDRESS"] = f"{arguments.address}:{arguments.port}"
        trainer = children.start(arguments.command, own_group=False)
        while trainer.poll() is None:
            if children.asked:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    trainer.wait(GRACE)
                break
            time.sleep(0.2)
        return trainer.returncode if trainer.returncode is not None else 137
    finally:
        children.end()
        shutil.rmtree(place, ignore_errors=True)


def wait_for_nodes(
    arguments: argparse.Namespace, ray: subprocess.Popen[str], seconds: float, children: Children
) -> str:
    """What a driver says of the nodes that have joined; nothing where Ray ends here first, or a signal comes."""
    address = f"{arguments.address}:{arguments.port}"
    wait_until(lambda: ray.poll() is not None or is_open(arguments.address, arguments.port), seconds, children)
    asked = [sys.executable, "-c", JOINED, address, str(seconds), ",".join(arguments.names)]
    with subprocess.Popen(asked, stdout=subprocess.PIPE, text=True, start_new_session=True) as looking:
        # Ray's own attempts to connect may take longer than they are allowed to.
        wait_until(lambda: looking.poll() is not None or ray.poll() is not None, seconds + 30, children)
        if looking.poll() is None:
            looking.kill()
        return looking.stdout.read() if looking.stdout else ""


def run_worker(arguments: argparse.Namespace, name: str, children: Children) -> int:
    """A worker, until the head is gone: Ray itself would look for it for a minute."""
    if not wait_until(lambda: is_open(arguments.head, arguments.port), arguments.wait, children):
        if children.asked:
            return 0
        return fail(f"{name} found no Ray on {arguments.head}:{arguments.port} within {arguments.wait:.0f} s",
                    f"getent hosts {arguments.head} on {name}")  # fmt: skip
    last = time.monotonic() + arguments.wait
    head = [f"{arguments.head}:{arguments.port}", str(arguments.wait), arguments.names[0]]
    try:
        registered = children.start([sys.executable, "-c", REGISTERED, *head], own_group=True)
        wait_until(lambda: registered.poll() is not None, arguments.wait, children)
        while not children.asked:
            ray = children.start(ray_start(arguments, name, ""), own_group=True)
            reached = stay(arguments, ray, children)
            if not ray.poll() or not reached or children.asked:
                return 0
            # Ray gives a node 30 s to come up (ray/_private/node.py), and the head waits longer for it.
            if time.monotonic() > last:
                return fail(f"Ray ended on {name} with exit status {ray.returncode}", "read the lines above")
            say(f"{name}: Ray ended with exit status {ray.returncode}: once more")
        return 0
    finally:
        children.end()


def stay(arguments: argparse.Namespace, ray: subprocess.Popen[str], children: Children) -> bool:
    """Until this node's Ray ends, the head is gone, or a signal comes; whether the head was there at the end."""
    silent = 0
    while ray.poll() is None and silent < GONE and not children.asked:
        time.sleep(LOOK)
        silent = 0 if is_open(arguments.head, arguments.port) else silent + 1
    return is_open(arguments.head, arguments.port)


def say(line: str) -> None:
    """A line of the log."""
    print(line, file=sys.stderr, flush=True)


def fail(message: str, hint: str) -> int:
    """Tell what went wrong."""
    say(f"error: {message}\nhint: {hint}")
    return 1


def main() -> int:
    """One node's part."""
    parser = argparse.ArgumentParser(prog="ray_node.py", description=__doc__.splitlines()[0])
    parser.add_argument("--head", required=True, metavar="HOST", help="the first node, as the others reach it")
    parser.add_argument("--port", required=True, type=int, help="of Ray's head")
    parser.add_argument("--address", required=True, help="of this node")
    parser.add_argument("--names", required=True, type=lambda text: text.split(","), help="all nodes, the head first")
    parser.add_argument("--gpus", type=int, default=0, help="of each node")
    parser.add_argument("--wait", type=float, default=300.0, metavar="SECONDS", help="for all nodes to join")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    name = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    if name not in arguments.names:
        return fail(f"this node is {name}, which is none of {', '.join(arguments.names)}", "scontrol show job")
    part = run_head if name == arguments.names[0] else run_worker
    return part(arguments, name, Children())


if __name__ == "__main__":
    sys.exit(main())
