"""Runs a program on every alive node of a Ray cluster, with one task per node.

    ray_tasks.py ADDRESS DEADLINE < PROGRAM

It needs an interpreter that has Ray. `@NODE@` in the program is replaced by the node's name. The output of the tasks
is printed here; a failed task is reported with its error, and a task that exceeds the deadline has no output.
"""

import contextlib
import subprocess
import sys
import tempfile
import time

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy


def run_program(program: str, seconds: float) -> str:
    """Run the program with the node's interpreter and return its output."""
    with tempfile.TemporaryFile() as out:
        with contextlib.suppress(subprocess.TimeoutExpired):
            argv = [sys.executable, "-c", program]
            subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=out, timeout=seconds, check=False)
        out.seek(0)
        return out.read(16 << 20).decode("utf-8", "replace")


def node_names() -> dict:
    """Return the names of the alive nodes by Ray's ids; several raylets of one host get their ids appended."""
    alive = [node for node in ray.nodes() if node["Alive"]]
    names = [node.get("NodeName") or node["NodeManagerAddress"] for node in alive]
    return {
        node["NodeID"]: name if names.count(name) == 1 else name + "-" + node["NodeID"][:8]
        for node, name in zip(alive, names, strict=True)
    }


def main(address: str, deadline: float, program: str) -> None:
    """Print the nodes, start a task on each, and print the output of each task when it ends."""
    ray.init(address=address, log_to_driver=False, logging_level="ERROR", configure_logging=True)
    end = time.monotonic() + deadline
    names = node_names()
    print("envdoctor-fleet nodes - " + ",".join(sorted(names.values())), flush=True)
    task = ray.remote(num_cpus=0, max_retries=0)(run_program)
    pending = {
        task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node, soft=False)).remote(
            program.replace("@NODE@", name), deadline
        ): name
        for node, name in names.items()
    }
    while pending and time.monotonic() < end:
        done, _ = ray.wait(list(pending), num_returns=1, timeout=1)
        for reference in done:
            name = pending.pop(reference)
            try:
                print(ray.get(reference), flush=True)
            except Exception as error:  # any failure is reported for its node only
                print("envdoctor-fleet failed " + name + " " + " ".join(str(error).split())[-400:], flush=True)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), sys.stdin.read())
