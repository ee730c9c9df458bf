"""One rank of the collective check: all-reduce and all-gather, timed; started by torchrun on each node.

collective.py BACKEND SIZES_AS_JSON. Each line on standard output is `envdoctor-fleet rank RANK JSON`: where the rank
stands, twice a second, whatever it waits for; and at the end what it measured. The lines are short enough to be
written at once, so that ranks do not write into each other's.
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

BEAT_SECONDS = 0.5
TARGET_SECONDS = 0.5  # for each size
OWN_ROUNDS = 12
RING_MEGABYTES = 8
MOST_RINGS = 64  # ranks up to which each link is looked at: one after another takes a while
SIOCGIFADDR = 0x8915


class Place:
    """Where this rank stands: the number of the step, and its words."""

    def __init__(self) -> None:
        self.rank = int(os.environ["RANK"])
        self.step = 0
        self.phase = "starting"
        self.host = socket.gethostname()
        self.found = {}
        threading.Thread(target=self.beat, daemon=True).start()

    def say(self) -> None:
        """Tell it, and what was found, in one write."""
        place = {"step": self.step, "phase": self.phase, "host": self.host, "pid": os.getpid()}
        line = f"envdoctor-fleet rank {self.rank} {json.dumps(place | self.found)}\n"
        os.write(1, line.encode())

    def beat(self) -> None:
        """Tell it for ever, also while the main thread waits for others."""
        while True:
            self.say()
            time.sleep(BEAT_SECONDS)

    def enter(self, phase: str) -> None:
        """The next step."""
        self.step, self.phase = self.step + 1, phase
        self.say()


def find_interface(address: str) -> str:
    """The interface by which this machine reaches an address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))
            own = probe.getsockname()[0]
        except OSError:
            return ""
        for name in sorted(os.listdir("/sys/class/net")):  # noqa: PTH208
            try:
                packed = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:
                continue
            if socket.inet_ntoa(packed[20:24]) == own:
                return name
    return ""


def read_log() -> dict[str, str]:
    """What NCCL told of itself: version, interface, transport."""
    from nccl_allreduce import parse_log

    place = Path(os.environ.get("NCCL_DEBUG_FILE", "/nonexistent/nccl"))
    files = place.parent.glob("nccl.*.log") if place.parent.is_dir() else []
    return parse_log("".join(path.read_text(errors="replace") for path in sorted(files)))


def time_own_work(device) -> float:
    """Seconds of work that waits for nobody: the same on every rank."""
    import torch

    size = 4096 if device.type == "cuda" else 384
    left = torch.ones(size, size, device=device)
    left @ left
    synchronize(device)
    began = time.perf_counter()
    for _ in range(OWN_ROUNDS * 4):
        left @ left
    synchronize(device)
    return time.perf_counter() - began


def synchronize(device) -> None:
    """Wait for what the GPU was given."""
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize(device)


def time_collective(work, device, most: int = 50) -> float:
    """Seconds of one; all ranks do it equally often, as the first decides."""
    import torch
    from torch import distributed

    work()
    synchronize(device)
    distributed.barrier()
    began = time.perf_counter()
    work()
    synchronize(device)
    once = max(time.perf_counter() - began, 1e-6)
    count = torch.tensor([min(most, max(2, round(TARGET_SECONDS / once)))], device=device)
    distributed.broadcast(count, 0)
    began = time.perf_counter()
    for _ in range(int(count)):
        work()
    synchronize(device)
    return (time.perf_counter() - began) / int(count)


def measure(place: Place, device, sizes: dict[str, int]) -> tuple[dict[str, float], int]:
    """Bus bandwidth in GB/s as nccl-tests defines it, and how many elements came out wrong.

    https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
    """
    import torch
    from torch import distributed

    ranks = distributed.get_world_size()
    found, wrong = {}, 0
    for name, length in sizes.items():
        place.enter(f"all_reduce {name}")
        buffer = torch.ones(length // 4, device=device)
        distributed.all_reduce(buffer)
        wrong += int((buffer != ranks).sum())
        buffer.zero_()
        seconds = time_collective(partial(distributed.all_reduce, buffer), device)
        found[f"all_reduce {name}"] = 2 * (ranks - 1) / ranks * length * 1e-9 / seconds
        place.enter(f"all_gather {name}")
        share = torch.full((length // 4 // ranks,), float(place.rank), device=device)
        gathered = torch.empty(share.numel() * ranks, device=device)
        distributed.all_gather_into_tensor(gathered, share)
        wrong += sum(int((part != rank).sum()) for rank, part in enumerate(gathered.chunk(ranks)))
        seconds = time_collective(partial(distributed.all_gather_into_tensor, gathered, share), device)
        found[f"all_gather {name}"] = (ranks - 1) / ranks * gathered.numel() * 4e-9 / seconds
        del buffer, share, gathered
    return found, wrong


def measure_ring(place: Place, device) -> float:
    """GB/s from this rank to the next, one link after another: a slow one is seen by itself."""
    import torch
    from torch import distributed

    ranks, own = distributed.get_world_size(), 0.0
    if not 1 < ranks <= MOST_RINGS:
        return 0.0
    buffer = torch.zeros(RING_MEGABYTES << 18, device=device)
    for sender in range(ranks):
        place.enter(f"send from {sender}")
        distributed.barrier()
        receiver = (sender + 1) % ranks
        for turn in range(3):
            began = time.perf_counter()
            if place.rank == sender:
                distributed.send(buffer, receiver)
                distributed.recv(buffer[:1], receiver)
            elif place.rank == receiver:
                distributed.recv(buffer, sender)
                distributed.send(buffer[:1], sender)
            synchronize(device)
            if turn and place.rank == sender:
                own = max(own, buffer.numel() * 4e-9 / (time.perf_counter() - began))
    return own


def main(backend: str, sizes: dict[str, int]) -> None:
    """Meet, work alone, work together, tell."""
    place = Place()
    place.say()
    import torch
    from torch import distributed

    if backend == "auto":
        backend = "nccl" if torch.cuda.is_available() else "gloo"
    local = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    place.enter("meeting the others")
    distributed.init_process_group(backend, timeout=timedelta(seconds=600))
    place.enter("first barrier")
    distributed.barrier()
    place.enter("working alone")
    own = time_own_work(device)
    place.enter("after working alone")
    distributed.barrier()
    speeds, wrong = measure(place, device, sizes)
    ring = measure_ring(place, device)
    place.enter("last barrier")
    distributed.barrier()
    versions = {"torch": torch.__version__, "backend": backend}
    if backend == "nccl":
        versions |= {"gpu": torch.cuda.get_device_name(device)} | read_log()
    versions.setdefault("interface", find_interface(os.environ["MASTER_ADDR"]))
    # Before "done" is said, by whichever thread: who listens takes that word for the end.
    place.found = {"own": own, "speeds": speeds, "ring": ring, "wrong": wrong, "versions": versions}
    place.enter("done")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
