"""Runs Ray on one node of a job: the head on the first node, which then starts the trainer; workers on the others.

    PYTHON -B ray_node.py --head HOST --port N --address THIS --names n1,n2 [--gpus N] [--wait SECONDS] -- COMMAND...

A scheduler starts this program on each node with the stack's interpreter, which has Ray. It imports only the standard
library. The first name is the head's. Exit status: on the head that of the command, or 1 if Ray did not start or a
node did not join; on a worker 0 once it had joined, since the head reports the result of the run.
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

GRACE = 45.0  # for the trainer after a signal; it ends its processes within 40 s
POLL_SECONDS = 2.0
MAX_FAILED_POLLS = 3  # consecutive ones, after which the head counts as gone
# A Ray driver in its own process: it waits for the nodes to join and prints the names of the missing ones.
WAIT_FOR_NODES = """
import sys, time, ray
address, deadline, names = sys.argv[1], time.monotonic() + float(sys.argv[2]), set(sys.argv[3].split(","))
while True:  # the head accepts drivers only some seconds after it listens
    try:
        ray.init(address=address, log_to_driver=False, logging_level="error")
        break
    except Exception:
        if time.monotonic() > deadline:
            raise
        ray.shutdown()
        time.sleep(1)
while True:
    missing = names - {node["NodeName"] for node in ray.nodes() if node["Alive"]}
    if not missing or time.monotonic() > deadline:
        break
    time.sleep(1)
print("MISSING " + ",".join(sorted(missing)), flush=True)
"""
# Waits on a worker until the head is registered as a node. A driver would need a local raylet. Raylets that start at
# the same time on one machine exceed Ray's own time limit. A Ray without this API counts as ready.
WAIT_FOR_HEAD = """
import sys, time
from ray._raylet import GcsClient
address, deadline, name = sys.argv[1], time.monotonic() + float(sys.argv[2]), sys.argv[3]
while time.monotonic() < deadline:
    try:
        found = GcsClient(address=address).get_all_node_info(timeout=5).values()
    except AttributeError:
        break
    except Exception:
        found = []
    if any(node.node_name == name and node.state == 0 for node in found):  # 0: alive (gcs.proto, GcsNodeInfo)
        break
    time.sleep(1)
"""


class Children:
    """The processes of this node. A signal is forwarded to the latest one; all are ended in reverse order."""

    def __init__(self) -> None:
        self.signalled = False
        self.started: list[subprocess.Popen[str]] = []
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._forward)

    def _forward(self, number: int, _frame: FrameType | None) -> None:
        self.signalled = True
        for child in self.started[-1:]:  # the trainer, or Ray before the trainer has started
            with contextlib.suppress(OSError):
                child.send_signal(number)

    def start(self, argv: Sequence[str], *, own_group: bool) -> subprocess.Popen[str]:
        """Start a child process that ends with this program."""
        child = subprocess.Popen(list(argv), text=True, start_new_session=own_group)
        self.started.append(child)
        return child

    def end(self) -> None:
        """End the processes, the last one first; kill those that do not end, with their process groups."""
        for child in reversed([*self.started]):
            self.started.remove(child)
            if child.poll() is None:
                child.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(15)
            with contextlib.suppress(OSError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def ray_start(arguments: argparse.Namespace, name: str, folder: str) -> list[str]:
    """Return the command that joins this node to Ray and runs until it leaves."""
    first = name == arguments.names[0]
    role = ["--head", f"--port={arguments.port}", f"--temp-dir={folder}", "--include-dashboard=false"]
    return [
        sys.executable, "-m", "ray.scripts.scripts", "start",
        *(role if first else [f"--address={arguments.head}:{arguments.port}"]),
        f"--node-ip-address={arguments.address}", f"--node-name={name}", f"--num-gpus={arguments.gpus}",
        # By default Ray counts the machine's CPUs, not the job's.
        f"--num-cpus={len(os.sched_getaffinity(0))}", "--disable-usage-stats", "--block",
    ]  # fmt: skip


def is_open(host: str, port: int) -> bool:
    """Whether a process listens on a port."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), POLL_SECONDS):
        return True
    return False


def wait_until(condition: Callable[[], bool], seconds: float, children: Children) -> bool:
    """Poll until a condition is true; return False after the time limit or a signal."""
    deadline = time.monotonic() + seconds
    while not condition():
        if children.signalled or time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def run_head(arguments: argparse.Namespace, name: str, children: Children) -> int:
    """Run Ray's head, and the trainer when all nodes have joined."""
    folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # socket paths are limited to 108 bytes (unix(7))
    start = time.monotonic()
    try:
        while True:
            ray = children.start(ray_start(arguments, name, folder), own_group=True)
            left = max(1.0, arguments.wait - (time.monotonic() - start))
            output = wait_for_nodes(arguments, ray, left, children)
            if children.signalled:
                return 130
            if ray.poll() is None:
                break
            # Ray limits the start of its own raylet to 30 s as well (ray/_private/node.py).
            problem = f"Ray's head ended on {name} with exit status {ray.returncode}"
            if time.monotonic() - start > arguments.wait:
                return fail(problem, f"read the lines above; {folder}/session_latest/logs")
            log(f"{problem}: retrying")
            children.end()  # remaining processes occupy the port
            time.sleep(POLL_SECONDS)
        found = [line for line in output.splitlines() if line.startswith("MISSING ")]
        if not found:
            return fail("cannot query Ray for the nodes that have joined", "read the lines above")
        if missing := found[-1].partition(" ")[2]:
            count = len(missing.split(","))
            return fail(
                f"{missing} did not join Ray within {arguments.wait:.0f} s ({len(arguments.names) - count} of "
                f"{len(arguments.names)} nodes did)",
                f"read their output above; srun --nodelist={missing} ping -c 1 {arguments.head}",
            )
        log(f"{name}: Ray has all {len(arguments.names)} nodes after {time.monotonic() - start:.0f} s")
        os.environ["RAY_ADDRESS"] = f"{arguments.address}:{arguments.port}"
        trainer = children.start(arguments.command, own_group=False)
        while trainer.poll() is None:
            if children.signalled:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    trainer.wait(GRACE)
                break
            time.sleep(0.2)
        return trainer.returncode if trainer.returncode is not None else 137
    finally:
        children.end()
        shutil.rmtree(folder, ignore_errors=True)


def wait_for_nodes(
    arguments: argparse.Namespace, ray: subprocess.Popen[str], seconds: float, children: Children
) -> str:
    """Return the output of WAIT_FOR_NODES; empty if Ray ends first or a signal arrives."""
    address = f"{arguments.address}:{arguments.port}"
    wait_until(lambda: ray.poll() is not None or is_open(arguments.address, arguments.port), seconds, children)
    argv = [sys.executable, "-c", WAIT_FOR_NODES, address, str(seconds), ",".join(arguments.names)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True) as driver:
        # Ray's connection attempts may exceed the time limit.
        wait_until(lambda: driver.poll() is not None or ray.poll() is not None, seconds + 30, children)
        if driver.poll() is None:
            driver.kill()
        return driver.stdout.read() if driver.stdout else ""


def run_worker(arguments: argparse.Namespace, name: str, children: Children) -> int:
    """Run a worker until the head is gone. Ray itself would try to reconnect for a minute."""
    if not wait_until(lambda: is_open(arguments.head, arguments.port), arguments.wait, children):
        if children.signalled:
            return 0
        return fail(f"{name} found no Ray on {arguments.head}:{arguments.port} within {arguments.wait:.0f} s",
                    f"getent hosts {arguments.head} on {name}")  # fmt: skip
    deadline = time.monotonic() + arguments.wait
    head = [f"{arguments.head}:{arguments.port}", str(arguments.wait), arguments.names[0]]
    try:
        registered = children.start([sys.executable, "-c", WAIT_FOR_HEAD, *head], own_group=True)
        wait_until(lambda: registered.poll() is not None, arguments.wait, children)
        while not children.signalled:
            ray = children.start(ray_start(arguments, name, ""), own_group=True)
            reached = wait_for_end(arguments, ray, children)
            if not ray.poll() or not reached or children.signalled:
                return 0
            # Ray limits a node's start to 30 s (ray/_private/node.py); the head waits longer for it.
            if time.monotonic() > deadline:
                return fail(f"Ray ended on {name} with exit status {ray.returncode}", "read the lines above")
            log(f"{name}: Ray ended with exit status {ray.returncode}: retrying")
        return 0
    finally:
        children.end()


def wait_for_end(arguments: argparse.Namespace, ray: subprocess.Popen[str], children: Children) -> bool:
    """Wait until Ray ends, the head is gone, or a signal arrives; return whether the head is reachable."""
    failed = 0
    while ray.poll() is None and failed < MAX_FAILED_POLLS and not children.signalled:
        time.sleep(POLL_SECONDS)
        failed = 0 if is_open(arguments.head, arguments.port) else failed + 1
    return is_open(arguments.head, arguments.port)


def log(line: str) -> None:
    """Print a line to the log."""
    print(line, file=sys.stderr, flush=True)


def fail(message: str, hint: str) -> int:
    """Print an error and return its exit status."""
    log(f"error: {message}\nhint: {hint}")
    return 1


def main() -> int:
    """Run this node's part: the head or a worker."""
    parser = argparse.ArgumentParser(prog="ray_node.py", description=__doc__.splitlines()[0])
    parser.add_argument("--head", required=True, metavar="HOST", help="address of the first node")
    parser.add_argument("--port", required=True, type=int, help="port of Ray's head")
    parser.add_argument("--address", required=True, help="address of this node")
    parser.add_argument("--names", required=True, type=lambda text: text.split(","), help="all nodes, the head first")
    parser.add_argument("--gpus", type=int, default=0, help="GPUs of each node")
    parser.add_argument("--wait", type=float, default=300.0, metavar="SECONDS", help="for all nodes to join")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    name = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    if name not in arguments.names:
        return fail(f"this node is {name}, which is not in {', '.join(arguments.names)}", "scontrol show job")
    run = run_head if name == arguments.names[0] else run_worker
    return run(arguments, name, Children())


if __name__ == "__main__":
    sys.exit(main())
