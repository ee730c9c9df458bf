"""Start torchrun with a program on one node, and end all of it at the deadline or when nobody listens any more.

Sent to a node's python3 over its standard input. CONFIG, a dictionary, is put before it: python, files (name to
text), program, arguments, nodes, node (None: SLURM's number), processes, master, port, deadline, environment.
"""

# Nodes have any Python from 3.8, and this is sent to each: no pathlib, no f-strings.
# ruff: noqa: PTH118, PTH123, PTH208, UP031, RUF005

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

POLL_SECONDS = 0.2


def torchrun(config, folder):
    """The command: one process a GPU, one try, and ranks that print for themselves."""
    node = config["node"] if config["node"] is not None else int(os.environ.get("SLURM_NODEID", "0"))
    return [
        config["python"], "-m", "torch.distributed.run", "--nnodes", str(config["nodes"]), "--node-rank", str(node),
        "--nproc-per-node", str(config["processes"]), "--master-addr", config["master"],
        "--master-port", str(config["port"]), "--max-restarts", "0",
        os.path.join(folder, config["program"]),
    ] + config["arguments"]  # fmt: skip


def below(process):
    """All processes that one has started, and theirs: fields 1 and 4 of /proc/PID/stat, past the name."""
    parents = {}
    for name in os.listdir("/proc"):
        try:
            with open("/proc/%s/stat" % name) as file:
                parents[int(name)] = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
    found, new = set(), {process}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new} - found
        found |= new
    return found


def end(child):
    """Kill it and its ranks: each is in a session of its own, and one that is stopped would make torchrun wait."""
    for pid in [child.pid] + sorted(below(child.pid)):
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            continue
    child.wait()


def main(config):
    """Run it; the exit code is torchrun's, 124 past the deadline."""
    folder = tempfile.mkdtemp(prefix="envdoctor-fleet-")
    parent, until = os.getppid(), time.monotonic() + config["deadline"]
    try:
        for name, text in config["files"].items():
            with open(os.path.join(folder, name), "w") as file:
                file.write(text)
        environment = dict(os.environ, **config["environment"])
        environment.setdefault("OMP_NUM_THREADS", "1")
        environment["NCCL_DEBUG_FILE"] = os.path.join(folder, "nccl.%p.log")
        try:
            child = subprocess.Popen(
                torchrun(config, folder), stdin=subprocess.DEVNULL, env=environment, start_new_session=True
            )
        except OSError as error:
            sys.exit("cannot start %s: %s" % (config["python"], error.strerror))
        # Asked to stop, it takes its ranks along: they are in a session of their own.
        signal.signal(signal.SIGTERM, lambda *_: (end(child), sys.exit(143)))
        signal.signal(signal.SIGINT, lambda *_: (end(child), sys.exit(130)))
        while child.poll() is None:
            if time.monotonic() > until or os.getppid() != parent:
                end(child)
                sys.exit(124)
            time.sleep(POLL_SECONDS)
        end(child)
        sys.exit(child.returncode if child.returncode >= 0 else 128 - child.returncode)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(CONFIG)  # noqa: F821  put before this text by who sends it
