"""One rank of the collective check: times all-reduce and all-gather; started by torchrun on each node.

    collective.py BACKEND SIZES_AS_JSON

Each line on standard output is `envdoctor-fleet rank RANK JSON`: the rank's state, twice a second, and at the end its
measurements. A line is short enough for one write, so that the lines of ranks do not mix.
"""

import fcntl
import json
import os
import socket
import struct
import sys
import threading
import time
from datetime import timedelta
from functools import partial
from pathlib import Path

HEARTBEAT_SECONDS = 0.5
TARGET_SECONDS = 0.5  # of measurement for each size
COMPUTE_ROUNDS = 48
RING_MEGABYTES = 8
MAX_RING_RANKS = 64  # above this, measuring one link after another takes too long
SIOCGIFADDR = 0x8915


class RankStatus:
    """The state of this rank: the number and the name of its step."""

    def __init__(self) -> None:
        self.rank = int(os.environ["RANK"])
        self.step = 0
        self.phase = "starting"
        self.host = socket.gethostname()
        self.measurements = {}
        self.lock = threading.Lock()  # keeps the lines of both threads in the order of their states
        threading.Thread(target=self.send_heartbeats, daemon=True).start()

    def report(self) -> None:
        """Print the state and the measurements in one write."""
        with self.lock:
            state = {"step": self.step, "phase": self.phase, "host": self.host, "pid": os.getpid()}
            line = f"envdoctor-fleet rank {self.rank} {json.dumps(state | self.measurements)}\n"
            os.write(1, line.encode())

    def send_heartbeats(self) -> None:
        """Print the state at intervals, also while the main thread waits for other ranks."""
        while True:
            self.report()
            time.sleep(HEARTBEAT_SECONDS)

    def enter(self, phase: str) -> None:
        """Enter the next step."""
        self.step, self.phase = self.step + 1, phase
        self.report()


def find_interface(address: str) -> str:
    """Return the interface through which this machine reaches an address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))
            own_address = probe.getsockname()[0]
        except OSError:
            return ""
        for name in sorted(os.listdir("/sys/class/net")):  # noqa: PTH208
            try:
                packed = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()))
            except OSError:
                continue
            if socket.inet_ntoa(packed[20:24]) == own_address:
                return name
    return ""


def read_log() -> dict[str, str]:
    """Return version, interface and transport from NCCL's log."""
    from nccl_allreduce import parse_log

    log = Path(os.environ.get("NCCL_DEBUG_FILE", "/nonexistent/nccl"))
    files = log.parent.glob("nccl.*.log") if log.parent.is_dir() else []
    return parse_log("".join(path.read_text(errors="replace") for path in sorted(files)))


def time_computation(device) -> float:
    """Return the seconds of a computation without communication, the same on every rank."""
    import torch

    size = 4096 if device.type == "cuda" else 384
    matrix = torch.ones(size, size, device=device)
    matrix @ matrix
    synchronize(device)
    start = time.perf_counter()
    for _ in range(COMPUTE_ROUNDS):
        matrix @ matrix
    synchronize(device)
    return time.perf_counter() - start


def synchronize(device) -> None:
    """Wait for the GPU's queued work."""
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize(device)


def time_collective(collective, device, max_rounds: int = 50) -> float:
    """Return the mean seconds of a collective. Rank 0 decides the number of rounds for all ranks."""
    import torch
    from torch import distributed

    collective()
    synchronize(device)
    distributed.barrier()
    start = time.perf_counter()
    collective()
    synchronize(device)
    once = max(time.perf_counter() - start, 1e-6)
    count = torch.tensor([min(max_rounds, max(2, round(TARGET_SECONDS / once)))], device=device)
    distributed.broadcast(count, 0)
    start = time.perf_counter()
    for _ in range(int(count)):
        collective()
    synchronize(device)
    return (time.perf_counter() - start) / int(count)


def measure(status: RankStatus, device, sizes: dict[str, int]) -> tuple[dict[str, float], int]:
    """Return the bus bandwidth in GB/s, as nccl-tests defines it, and the number of elements with wrong values.

    https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
    """
    import torch
    from torch import distributed

    ranks = distributed.get_world_size()
    speeds, wrong = {}, 0
    for name, length in sizes.items():
        status.enter(f"all_reduce {name}")
        buffer = torch.ones(length // 4, device=device)
        distributed.all_reduce(buffer)
        wrong += int((buffer != ranks).sum())
        buffer.zero_()
        seconds = time_collective(partial(distributed.all_reduce, buffer), device)
        speeds[f"all_reduce {name}"] = 2 * (ranks - 1) / ranks * length * 1e-9 / seconds
        status.enter(f"all_gather {name}")
        share = torch.full((length // 4 // ranks,), float(status.rank), device=device)
        gathered = torch.empty(share.numel() * ranks, device=device)
        distributed.all_gather_into_tensor(gathered, share)
        wrong += sum(int((part != rank).sum()) for rank, part in enumerate(gathered.chunk(ranks)))
        seconds = time_collective(partial(distributed.all_gather_into_tensor, gathered, share), device)
        speeds[f"all_gather {name}"] = (ranks - 1) / ranks * gathered.numel() * 4e-9 / seconds
        del buffer, share, gathered
    return speeds, wrong


def measure_ring(status: RankStatus, device) -> float:
    """Return the GB/s from this rank to the next. One link after another is measured, to isolate a slow one."""
    import torch
    from torch import distributed

    ranks, speed = distributed.get_world_size(), 0.0
    if not 1 < ranks <= MAX_RING_RANKS:
        return 0.0
    buffer = torch.zeros(RING_MEGABYTES << 18, device=device)
    for sender in range(ranks):
        status.enter(f"send from {sender}")
        distributed.barrier()
        receiver = (sender + 1) % ranks
        for turn in range(3):
            start = time.perf_counter()
            if status.rank == sender:
                distributed.send(buffer, receiver)
                distributed.recv(buffer[:1], receiver)
            elif status.rank == receiver:
                distributed.recv(buffer, sender)
                distributed.send(buffer[:1], sender)
            synchronize(device)
            if turn and status.rank == sender:
                speed = max(speed, buffer.numel() * 4e-9 / (time.perf_counter() - start))
    return speed


def main(backend: str, sizes: dict[str, int]) -> None:
    """Connect, measure the computation and the collectives, and print the results."""
    status = RankStatus()
    status.report()
    import torch
    from torch import distributed

    if backend == "auto":
        backend = "nccl" if torch.cuda.is_available() else "gloo"
    local = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    status.enter("connecting")
    distributed.init_process_group(backend, timeout=timedelta(seconds=600))
    status.enter("first barrier")
    distributed.barrier()
    status.enter("computation")
    compute_seconds = time_computation(device)
    status.enter("after computation")
    distributed.barrier()
    speeds, wrong = measure(status, device, sizes)
    ring_speed = measure_ring(status, device)
    status.enter("last barrier")
    distributed.barrier()
    versions = {"torch": torch.__version__, "backend": backend}
    if backend == "nccl":
        versions |= {"gpu": torch.cuda.get_device_name(device)} | read_log()
    versions.setdefault("interface", find_interface(os.environ["MASTER_ADDR"]))
    # Set before the phase "done", which both threads may print: the reader treats that line as complete.
    status.measurements = {
        "compute_seconds": compute_seconds, "speeds": speeds, "ring_speed": ring_speed, "wrong": wrong,
        "versions": versions,
    }  # fmt: skip
    status.enter("done")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
