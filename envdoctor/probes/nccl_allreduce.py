"""NCCL adds up over all GPUs of the machine, also inside a captured graph; by which interface and transport."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _needs import need_cuda, read_device
from _result import Result, Unavailable, run

DEADLINE_SECONDS = 300
NEEDS_GPU = True
MEMORY_GB = 48  # a process and a CUDA context for each of up to eight GPUs
ALONE = True  # a process on every GPU, which wait for each other

RANK_SCRIPT = Path(__file__).with_name("_nccl_rank.py")


def probe(result: Result) -> str:
    """One process a GPU; a single GPU would add up nothing."""
    need_cuda()
    import torch

    result.read_versions("torch")
    read_device(result)
    count = torch.cuda.device_count()
    if count < 2:
        raise Unavailable(f"NCCL needs two GPUs to show anything, torch sees {count}")
    if not torch.distributed.is_nccl_available():
        raise Unavailable("this torch is built without NCCL")
    log = judge(result, "nccl", count)
    result.versions |= parse_log(log)
    transport = result.versions.get("transport", "a transport that NCCL does not name")
    return f"sums over {count} GPUs exact, in a captured graph too, by {transport}"


def judge(result: Result, backend: str, count: int) -> str:
    """Run the processes and add their findings; what NCCL logged."""
    seed = result.seed()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        variables = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,GRAPH,P2P,SHM"}
        environment = os.environ | variables | {"NCCL_DEBUG_FILE": str(folder / "nccl.%p.log")}
        command = [sys.executable, str(RANK_SCRIPT)]
        ranks = []
        for rank in range(count):
            rest = [str(rank), str(count), backend, str(folder / "meeting"), str(folder / f"{rank}.json"), str(seed)]
            ranks.append(subprocess.Popen([*command, *rest], env=environment))
        wait(ranks)
        codes = [rank.returncode for rank in ranks]
        log = "".join(path.read_text(errors="replace") for path in sorted(folder.glob("nccl.*.log")))
        found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    if any(codes) or len(found) != count:
        print("\n".join(line for line in log.splitlines() if "WARN" in line)[-4000:])  # for `explain`
        result.require(False, f"the processes of {count} GPUs ended with exit codes {codes}")
        return log
    result.note("gpus", count)
    for key in ("wrong_elements", "wrong_in_graph"):
        if key in found[0]:
            result.at_most(key, sum(one[key] for one in found), 0)
    if "nccl" in found[0]:
        result.note("nccl_version", found[0]["nccl"])
    return log


def wait(ranks: list) -> None:
    """Wait for all; where one fails the others would wait for it in vain."""
    while any(rank.poll() is None for rank in ranks):
        if any(rank.poll() for rank in ranks):
            time.sleep(5)  # they may be about to say the same
            for rank in ranks:
                rank.kill()
        time.sleep(0.1)


def parse_log(log: str) -> dict[str, str]:
    """Version, network interface and transports from what NCCL_DEBUG=INFO writes.

    host:7:7 [0] NCCL INFO NCCL version 2.28.3+cuda13.0
    host:7:7 [0] NCCL INFO Bootstrap: Using eth0:10.0.0.5<0>
    host:7:9 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.5<0>
    host:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
    host:7:9 [0] NCCL INFO Channel 00 : 1[1] -> 0[0] via SHM/direct/direct
    """
    patterns = {
        "nccl": r"NCCL version ([\w.+]+)",
        "interface": r"Bootstrap\s*: Using ([\w.-]+)(?::|\s)",
        "network": r"Using network (\S+)",
    }
    found = {name: match[1] for name, pattern in patterns.items() if (match := re.search(pattern, log))}
    transports = sorted(set(re.findall(r"Channel \d+(?:/\d+)? ?: .*? via (\S+)", log)))
    return found | ({"transport": ", ".join(transports)} if transports else {})


if __name__ == "__main__":
    run(probe)
