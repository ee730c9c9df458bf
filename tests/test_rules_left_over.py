"""Rules on variables and places that were set once: where each must speak, and where with one fact changed not."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from report_stack import Case, files, live, memory, variables

from envdoctor.core.records import Filesystem, Machine, Storage, absent, known

H100 = "NVIDIA H100 80GB HBM3"
GIB = 1 << 30


def cache_on(kind: str) -> Machine:
    place = Filesystem(path="/home/u/.cache/huggingface", total=1000 * GIB, free=500 * GIB, kind=kind)
    return live([H100], storage=Storage(places=known({"hf cache": place}, "statvfs")))


def left_over() -> Iterator[Case]:
    """Variables and places."""
    machine, none, plain = live([H100]), msgspec.structs.replace(live(), gpus=absent("NVML")), files()
    cpu, cuda = ("https://pytorch.example/whl/" + line for line in ("cpu", "cu128"))
    yield Case(
        "ENV013",
        "warning",
        (variables(machine, PIP_EXTRA_INDEX_URL=cpu), plain),
        (variables(machine, PIP_EXTRA_INDEX_URL=cuda), plain),
    )
    yield Case(
        "ENV013",
        "warning",
        (variables(machine, UV_TORCH_BACKEND="cpu"), plain),
        (variables(none, UV_TORCH_BACKEND="cpu"), plain),
    )
    yield Case(
        "ENV013",
        "info",
        (variables(none, UV_TORCH_BACKEND="auto"), plain),
        (variables(machine, UV_TORCH_BACKEND="auto"), plain),
    )
    yield Case(
        "ENV014",
        "info",
        (variables(machine, TORCH_COMPILE_DISABLE="1"), plain),
        (variables(machine, TORCH_COMPILE_DISABLE="0"), plain),
    )
    backend = variables(machine, VLLM_ATTENTION_BACKEND="FLASHINFER")
    yield Case(
        "ENV015", "info", (backend, files(packages={"vllm": "0.16.0"})), (backend, files(packages={"vllm": "0.14.0"}))
    )
    engine = variables(machine, VLLM_USE_V1="0")
    yield Case(
        "ENV015", "info", (engine, files(packages={"vllm": "0.11.1"})), (engine, files(packages={"vllm": "0.11.0"}))
    )
    named = files(packages={"torch": "2.8.0"})
    yield Case(
        "ENV016",
        "warning",
        (variables(machine, LD_PRELOAD="/usr/lib/libnccl.so.2"), named),
        (variables(machine, LD_PRELOAD="/usr/lib/libtcmalloc.so.4"), named),
    )
    forced = variables(machine, VLLM_NCCL_SO_PATH="/opt/libnccl.so.2")
    yield Case("ENV016", "info", (forced, files(packages={"vllm": "0.10.2"})), (forced, named))
    used = files(packages={"vllm": "0.10.2"})
    yield Case("HOST011", "info", (cache_on("nfs4"), used), (cache_on("lustre"), used))
    segments = variables(machine, PYTORCH_ALLOC_CONF="expandable_segments:True")
    rollout = {"vllm": "0.21.0", "trl": "1.7.0"}
    yield Case(
        "ENV007",
        "warning",
        (segments, files("2.11.0+cu130", rollout)),
        (variables(machine, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"), files("2.11.0+cu130", rollout)),
    )
    both, total = {"vllm": "0.10.2", "trl": "0.23.1"}, known(80 * GIB, "NVML")
    gpus = known(tuple(msgspec.structs.replace(gpu, memory_total=total) for gpu in machine.gpus.value or ()), "NVML")
    small = memory(msgspec.structs.replace(machine, gpus=gpus), 64 * GIB)
    yield Case("HOST010", "info", (small, files(packages=both)), (small, files(packages={"vllm": "0.10.2"})))


CASES = list(left_over())


@pytest.mark.parametrize("case", CASES, ids=[f"{case.rule}-{case.status}-{n}" for n, case in enumerate(CASES)])
def test_the_rule_speaks_and_one_fact_makes_it_silent(case: Case) -> None:
    case.check()
