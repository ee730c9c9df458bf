"""Starts torchrun with a program on one node, and ends it at the deadline or when its parent process has gone.

The program is sent to a node's python3 over standard input. A dictionary CONFIG precedes it: python, files (text by
name), program, arguments, nodes, node (None: SLURM_NODEID), processes, master, port, deadline, environment.
"""

# The code also runs on old versions of Python: no pathlib, no f-strings.
# ruff: noqa: PTH110, PTH118, PTH123, PTH208, UP031, RUF005

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

POLL_SECONDS = 0.2
REMOVE_SECONDS = 5.0  # for processes that end and still write into the folder


def torchrun_command(config, folder):
    """Return the command, without restarts."""
    node = config["node"] if config["node"] is not None else int(os.environ.get("SLURM_NODEID", "0"))
    return [
        config["python"], "-m", "torch.distributed.run", "--nnodes", str(config["nodes"]), "--node-rank", str(node),
        "--nproc-per-node", str(config["processes"]), "--master-addr", config["master"],
        "--master-port", str(config["port"]), "--max-restarts", "0",
        "--log-dir", os.path.join(folder, "torchrun"),  # otherwise torchrun leaves a folder in the temporary folder
        os.path.join(folder, config["program"]),
    ] + config["arguments"]  # fmt: skip


def descendants(process):
    """Return all descendants of a process, from the parent process number in /proc/PID/stat."""
    parents = {}
    for name in os.listdir("/proc"):
        try:
            with open("/proc/%s/stat" % name) as file:
                parents[int(name)] = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
    descendant_pids, new = set(), {process}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new} - descendant_pids
        descendant_pids |= new
    return descendant_pids


def kill(child):
    """Kill torchrun and its ranks. Each rank has its own session, and torchrun would wait for a stopped one."""
    for pid in [child.pid] + sorted(descendants(child.pid)):
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            continue
    child.wait()


def remove(folder):
    """Remove the folder, whatever signal arrives meanwhile, and also when a dying process still writes into it."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    end = time.monotonic() + REMOVE_SECONDS
    shutil.rmtree(folder, ignore_errors=True)
    while os.path.exists(folder) and time.monotonic() < end:
        time.sleep(POLL_SECONDS)
        shutil.rmtree(folder, ignore_errors=True)


def main(config):
    """Run torchrun; the exit code is torchrun's, or 124 after the deadline."""
    folder = tempfile.mkdtemp(prefix="envdoctor-fleet-")
    parent, deadline = os.getppid(), time.monotonic() + config["deadline"]
    try:
        for name, text in config["files"].items():
            with open(os.path.join(folder, name), "w") as file:
                file.write(text)
        environment = dict(os.environ, **config["environment"])
        environment.setdefault("OMP_NUM_THREADS", "1")
        environment["NCCL_DEBUG_FILE"] = os.path.join(folder, "nccl.%p.log")
        try:
            child = subprocess.Popen(
                torchrun_command(config, folder), stdin=subprocess.DEVNULL, env=environment, start_new_session=True
            )
        except OSError as error:
            sys.exit("cannot start %s: %s" % (config["python"], error.strerror))
        # A signal does not reach the ranks, which have their own sessions.
        signal.signal(signal.SIGTERM, lambda *_: (kill(child), sys.exit(143)))
        signal.signal(signal.SIGINT, lambda *_: (kill(child), sys.exit(130)))
        while child.poll() is None:
            if time.monotonic() > deadline or os.getppid() != parent:
                kill(child)
                sys.exit(124)
            time.sleep(POLL_SECONDS)
        kill(child)
        sys.exit(child.returncode if child.returncode >= 0 else 128 - child.returncode)
    finally:
        remove(folder)


if __name__ == "__main__":
    main(CONFIG)  # noqa: F821  defined in front of this program
