"""Processor cores for each process of a node: ranks wait for the slowest of them, and vLLM's scheduler is Python.

torchrun has the same (`--numa-binding exclusive`, from torch 2.9), but needs the program numactl, which containers
seldom have, and counts a node's GPUs where it runs fewer processes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

LEAST = 2  # cores for a process: one for Python, one for the libraries' threads


def own_cores(environ: Mapping[str, str], root: Path = Path("/")) -> set[int]:
    """The cores on which this process of torchrun's should stay; none: it should be left alone.

    It is left alone where somebody has bound it already (its cores are not its agent's), and where there are too few
    cores for all.
    """
    count, number = int(environ.get("LOCAL_WORLD_SIZE", "1")), int(environ.get("LOCAL_RANK", "0"))
    allowed = os.sched_getaffinity(0)
    if "TORCHELASTIC_RUN_ID" not in environ or count < 2 or os.sched_getaffinity(os.getppid()) != allowed:
        return set()
    nodes = gpu_nodes(environ, count, root)
    return share(allowed, number, nodes, Topology(root))


class Topology:
    """Which cores lie together, as Linux tells it."""

    def __init__(self, root: Path) -> None:
        system = root / "sys/devices/system"
        self.nodes = {
            int(folder.name[4:]): parse_cores(read(folder / "cpulist"))
            for folder in sorted(system.glob("node/node[0-9]*"))
        }
        self._cpus = system / "cpu"

    def order(self, cores: set[int]) -> list[list[int]]:
        """The physical cores, each with those of its threads that are among `cores`, by NUMA node."""
        node_of = {core: node for node, members in self.nodes.items() for core in members}
        together: dict[tuple[int, int], list[int]] = {}
        for core in sorted(cores):
            siblings = parse_cores(read(self._cpus / f"cpu{core}/topology/thread_siblings_list")) or {core}
            together.setdefault((node_of.get(core, 0), min(siblings)), []).append(core)
        return [together[place] for place in sorted(together)]


def share(allowed: set[int], number: int, nodes: Sequence[int | None], topology: Topology) -> set[int]:
    """The cores of process `number`: an equal part, by whole physical cores, of those near its GPU.

    `nodes` has the NUMA node of each process's GPU. Where one is unknown, or has too few cores for the processes at
    it, all cores are divided among all processes.
    """
    near = {
        node: topology.order(topology.nodes.get(node, set()) & allowed) for node in set(nodes) if node is not None
    }
    if None not in nodes and all(len(near[node]) >= LEAST * nodes.count(node) for node in near):
        physical = near[nodes[number]]
        sharing = [other for other, node in enumerate(nodes) if node == nodes[number]]
    else:
        physical, sharing = topology.order(allowed), list(range(len(nodes)))
    size = len(physical) // len(sharing)
    first = sharing.index(number) * size
    return {core for threads in physical[first : first + size] for core in threads} if size >= LEAST else set()


def gpu_nodes(environ: Mapping[str, str], count: int, root: Path) -> list[int | None]:
    """The NUMA node of each local process's GPU; None where it is not told.

    The driver lists its GPUs by PCI address, in the order of NVML and of CUDA_VISIBLE_DEVICES' numbers where all are
    of one kind.
    """
    gpus = sorted((root / "proc/driver/nvidia/gpus").glob("*"))
    uuids = [line.split()[-1] for gpu in gpus for line in read(gpu / "information").splitlines() if "UUID" in line]
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible is not None else [str(place) for place in range(len(gpus))]
    found: list[int | None] = []
    for name in [*names, *[""] * count][:count]:
        named = (place for place, uuid in enumerate(uuids) if name and uuid.startswith(name))
        place = int(name) if name.isdecimal() else next(named, -1)
        node = read(root / "sys/bus/pci/devices" / gpus[place].name / "numa_node") if 0 <= place < len(gpus) else ""
        found.append(int(node) if node.isdecimal() else None)  # -1: the machine does not tell
    return found


def parse_cores(text: str) -> set[int]:
    """`0-3,8` as Linux writes it."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdecimal():
            found.update(range(int(first), int(last or first) + 1))
    return found


def read(path: Path) -> str:
    """What a file of the kernel's says; nothing where there is none."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
