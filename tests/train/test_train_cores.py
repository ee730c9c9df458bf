"""Which processor cores a process of several keeps to: on trees as Linux shows them, and with real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from running.cores import Topology, gpu_nodes, parse_cores, share


def machine(root: Path, nodes: Sequence[str], threads: int, gpus: Sequence[int] = ()) -> Path:
    """A machine with these NUMA nodes' cores, whose hyperthreads' numbers lie half of all apart; a GPU at each of
    `gpus`, in the order of their PCI addresses."""
    for number, cores in enumerate(nodes):
        folder = root / f"sys/devices/system/node/node{number}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(cores + "\n")
    every = sorted(core for cores in nodes for core in parse_cores(cores))
    apart = len(every) // threads
    for core in every:
        folder = root / f"sys/devices/system/cpu/cpu{core}/topology"
        folder.mkdir(parents=True)
        siblings = [core % apart + thread * apart for thread in range(threads)]
        (folder / "thread_siblings_list").write_text(",".join(map(str, siblings)) + "\n")
    for place, node in enumerate(gpus):
        address = f"0000:{16 + place:02x}:00.0"
        (root / "proc/driver/nvidia/gpus" / address).mkdir(parents=True)
        (root / "proc/driver/nvidia/gpus" / address / "information").write_text(
            f"Model: \t\t NVIDIA H200\nIRQ:   \t\t 24\nGPU UUID: \t GPU-{place}aaaaaaa-0000\nBus Type: \t PCIe\n"
        )
        (root / "sys/bus/pci/devices" / address).mkdir(parents=True)
        (root / "sys/bus/pci/devices" / address / "numa_node").write_text(f"{node}\n")
    return root


def shares(root: Path, nodes: Sequence[int | None], allowed: set[int]) -> list[set[int]]:
    return [share(allowed, number, nodes, Topology(root)) for number in range(len(nodes))]


def test_a_flat_machine_is_divided(tmp_path: Path) -> None:
    """As the virtual machines with H200s are: one node, one thread a core, no word of where a GPU is."""
    root = machine(tmp_path, ["0-31"], 1, [-1, -1])
    nodes = gpu_nodes({}, 2, root)
    assert nodes == [None, None]
    assert shares(root, nodes, set(range(32))) == [set(range(16)), set(range(16, 32))]


def test_hyperthreads_stay_together_and_each_process_at_its_gpus_node(tmp_path: Path) -> None:
    """Two sockets of 16 cores, hyperthreads 32 numbers on; the first two GPUs are at the second socket."""
    root = machine(tmp_path, ["0-15,32-47", "16-31,48-63"], 2, [1, 1, 0, 0])
    nodes = gpu_nodes({}, 4, root)
    assert nodes == [1, 1, 0, 0]
    found = shares(root, nodes, set(range(64)))
    assert found[0] == {*range(16, 24), *range(48, 56)}
    assert found[1] == {*range(24, 32), *range(56, 64)}
    assert found[2] == {*range(8), *range(32, 40)}
    assert found[3] == {*range(8, 16), *range(40, 48)}
    # Without the GPUs' places: in the order of the nodes.
    assert shares(root, [None] * 4, set(range(64)))[0] == found[2]


def test_only_what_is_allowed_is_divided(tmp_path: Path) -> None:
    """A container's cores: 4 of the first node, none of the second, at which the GPUs are."""
    root = machine(tmp_path, ["0-7", "8-15"], 1, [1, 1])
    assert shares(root, gpu_nodes({}, 2, root), {2, 3, 4, 5}) == [{2, 3}, {4, 5}]


@pytest.mark.parametrize("allowed", [set[int](), {0}, {0, 1, 2}])
def test_too_few_cores_are_left_to_all(tmp_path: Path, allowed: set[int]) -> None:
    assert shares(machine(tmp_path, ["0-7"], 1), [None, None], allowed) == [set(), set()]


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ({}, [0, 0, 1, 1]),
        ({"CUDA_VISIBLE_DEVICES": "3,2,1,0"}, [1, 1, 0, 0]),
        ({"CUDA_VISIBLE_DEVICES": "2"}, [1, None, None, None]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-2aaa,GPU-0aaaaaaa-0000"}, [1, 0, None, None]),
        ({"CUDA_VISIBLE_DEVICES": ""}, [None] * 4),
        ({"CUDA_VISIBLE_DEVICES": "7,MIG-1,²"}, [None] * 4),
    ],
)
def test_the_node_of_each_process_gpu(tmp_path: Path, visible: dict[str, str], expected: list[int | None]) -> None:
    assert gpu_nodes(visible, 4, machine(tmp_path, ["0-7", "8-15"], 1, [0, 0, 1, 1])) == expected


def test_without_any_of_linux_own_files(tmp_path: Path) -> None:
    assert gpu_nodes({}, 2, tmp_path) == [None, None]
    assert shares(tmp_path, [None, None], {0, 1, 2, 3}) == [{0, 1}, {2, 3}]


@pytest.mark.parametrize(("text", "cores"), [("", set()), ("0", {0}), ("0-2,8,10-11", {0, 1, 2, 8, 10, 11})])
def test_lists_of_cores(text: str, cores: set[int]) -> None:
    assert parse_cores(text) == cores


ASK = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
if sys.argv[2] == "bound":
    os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])
from running import cores
cores.LEAST = 1
print(json.dumps(sorted(cores.own_cores(os.environ))))
"""


@pytest.mark.parametrize(
    ("environ", "how", "alone"),
    [
        ({"TORCHELASTIC_RUN_ID": "x", "LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "1"}, "free", False),
        ({"TORCHELASTIC_RUN_ID": "x", "LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "1"}, "bound", True),
        ({"LOCAL_WORLD_SIZE": "2", "LOCAL_RANK": "1"}, "free", True),  # srun without torchrun binds by itself
        ({"TORCHELASTIC_RUN_ID": "x", "LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0"}, "free", True),
        ({}, "free", True),
    ],
)
def test_who_is_left_alone(environ: dict[str, str], how: str, alone: bool) -> None:
    """Real processes of this machine, children of this one as torchrun's are of its agent."""
    here = os.sched_getaffinity(0)
    if len(here) < 2:
        pytest.skip("needs two processor cores")
    train = Path(__file__).resolve().parents[2] / "train"
    done = subprocess.run(
        [sys.executable, "-c", ASK, str(train), how], capture_output=True, text=True, check=True, env=environ
    )
    found = set(json.loads(done.stdout))
    assert found == set() if alone else found and found < here
