"""NCCL all-reduce over all GPUs of the machine, also in a captured CUDA graph; with interface and transport."""

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
MEMORY_GB = 48  # one process and CUDA context per GPU, for up to eight GPUs
ALONE = True  # uses all GPUs

RANK_SCRIPT = Path(__file__).with_name("_nccl_rank.py")


def probe(result: Result) -> str:
    """Run one process per GPU."""
    need_cuda()
    import torch

    result.read_versions("torch")
    read_device(result)
    count = torch.cuda.device_count()
    if count < 2:
        raise Unavailable(f"an all-reduce needs two GPUs, torch has {count}")
    if not torch.distributed.is_nccl_available():
        raise Unavailable("this torch is built without NCCL")
    log = run_ranks(result, "nccl", count)
    result.versions |= parse_log(log)
    transport = result.versions.get("transport", "an unknown transport")
    return f"sums over {count} GPUs exact, also in a captured graph; transport {transport}"


def run_ranks(result: Result, backend: str, count: int) -> str:
    """Run the processes and report their results; returns the log of NCCL."""
    codes, reports, log = start_ranks(RANK_SCRIPT, backend, count, str(result.seed()))
    if any(codes) or len(reports) != count:
        result.require(False, f"the processes of {count} GPUs ended with exit codes {codes}")
        return log
    result.note("gpus", count)
    for key in ("wrong_elements", "wrong_in_graph"):
        if key in reports[0]:
            result.at_most(key, sum(report[key] for report in reports), 0)
    if "nccl" in reports[0]:
        result.note("nccl_version", reports[0]["nccl"])
    return log


def start_ranks(script: Path, backend: str, count: int, argument: str) -> tuple[list[int], list[dict], str]:
    """Run a script in one process per rank; returns exit codes, reports in order of ranks, and the log of NCCL."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        variables = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,GRAPH,P2P,SHM"}
        environment = os.environ | variables | {"NCCL_DEBUG_FILE": str(folder / "nccl.%p.log")}
        report_files = [folder / f"{rank}.json" for rank in range(count)]
        ranks = []
        for rank, report_file in enumerate(report_files):
            arguments = [str(rank), str(count), backend, str(folder / "rendezvous"), str(report_file), argument]
            ranks.append(subprocess.Popen([sys.executable, str(script), *arguments], env=environment))
        wait_for_ranks(ranks)
        codes = [rank.returncode for rank in ranks]
        log = "".join(path.read_text(errors="replace") for path in sorted(folder.glob("nccl.*.log")))
        reports = [json.loads(path.read_text(encoding="utf-8")) for path in report_files if path.exists()]
    if any(codes):
        print("\n".join(line for line in log.splitlines() if "WARN" in line)[-4000:])  # input of `explain`
    return codes, reports, log


def wait_for_ranks(ranks: list) -> None:
    """Wait for all processes. If one fails, kill the others, which would wait for it."""
    while any(rank.poll() is None for rank in ranks):
        if any(rank.poll() for rank in ranks):
            time.sleep(5)  # the others may fail with the same error
            for rank in ranks:
                rank.kill()
        time.sleep(0.1)


def parse_log(log: str) -> dict[str, str]:
    """Version, network interface and transports in the output of NCCL_DEBUG=INFO.

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
