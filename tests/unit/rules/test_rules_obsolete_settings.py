"""Rules on obsolete variables and on locations: each reports its problem, and does not if one fact is changed."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from support.cases import each_case
from support.recorded_results import assert_as_recorded
from support.report_stack import Case, file_stack, local_machine, with_memory, with_variables

from envdoctor.core.records import Filesystem, Machine, Storage, absent, known

H100 = "NVIDIA H100 80GB HBM3"
GIB = 1 << 30


def machine_with_cache_on(kind: str) -> Machine:
    place = Filesystem(path="/home/u/.cache/huggingface", total=1000 * GIB, free=500 * GIB, kind=kind)
    return local_machine([H100], storage=Storage(places=known({"hf cache": place}, "statvfs")))


def obsolete_settings() -> Iterator[Case]:
    """Variables and locations."""
    machine, none, plain = (
        local_machine([H100]),
        msgspec.structs.replace(local_machine(), gpus=absent("NVML")),
        file_stack(),
    )
    cpu, cuda = ("https://pytorch.example/whl/" + line for line in ("cpu", "cu128"))
    yield Case(
        "ENV013",
        "warning",
        (with_variables(machine, PIP_EXTRA_INDEX_URL=cpu), plain),
        (with_variables(machine, PIP_EXTRA_INDEX_URL=cuda), plain),
    )
    yield Case(
        "ENV013",
        "warning",
        (with_variables(machine, UV_TORCH_BACKEND="cpu"), plain),
        (with_variables(none, UV_TORCH_BACKEND="cpu"), plain),
    )
    yield Case(
        "ENV013",
        "info",
        (with_variables(none, UV_TORCH_BACKEND="auto"), plain),
        (with_variables(machine, UV_TORCH_BACKEND="auto"), plain),
    )
    yield Case(
        "ENV014",
        "info",
        (with_variables(machine, TORCH_COMPILE_DISABLE="1"), plain),
        (with_variables(machine, TORCH_COMPILE_DISABLE="0"), plain),
    )
    backend = with_variables(machine, VLLM_ATTENTION_BACKEND="FLASHINFER")
    yield Case(
        "ENV015",
        "info",
        (backend, file_stack(packages={"vllm": "0.16.0"})),
        (backend, file_stack(packages={"vllm": "0.14.0"})),
    )
    engine = with_variables(machine, VLLM_USE_V1="0")
    yield Case(
        "ENV015",
        "info",
        (engine, file_stack(packages={"vllm": "0.11.1"})),
        (engine, file_stack(packages={"vllm": "0.11.0"})),
    )
    named = file_stack(packages={"torch": "2.8.0"})
    yield Case(
        "ENV016",
        "warning",
        (with_variables(machine, LD_PRELOAD="/usr/lib/libnccl.so.2"), named),
        (with_variables(machine, LD_PRELOAD="/usr/lib/libtcmalloc.so.4"), named),
    )
    forced = with_variables(machine, VLLM_NCCL_SO_PATH="/opt/libnccl.so.2")
    yield Case("ENV016", "info", (forced, file_stack(packages={"vllm": "0.10.2"})), (forced, named))
    used = file_stack(packages={"vllm": "0.10.2"})
    yield Case("HOST011", "info", (machine_with_cache_on("nfs4"), used), (machine_with_cache_on("lustre"), used))
    segments = with_variables(machine, PYTORCH_ALLOC_CONF="expandable_segments:True")
    rollout = {"vllm": "0.21.0", "trl": "1.7.0"}
    yield Case(
        "ENV007",
        "warning",
        (segments, file_stack("2.11.0+cu130", rollout)),
        (
            with_variables(machine, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"),
            file_stack("2.11.0+cu130", rollout),
        ),
    )
    both, total = {"vllm": "0.10.2", "trl": "0.23.1"}, known(80 * GIB, "NVML")
    gpus = known(tuple(msgspec.structs.replace(gpu, memory_total=total) for gpu in machine.gpus.value or ()), "NVML")
    small = with_memory(msgspec.structs.replace(machine, gpus=gpus), 64 * GIB)
    yield Case(
        "HOST010", "info", (small, file_stack(packages=both)), (small, file_stack(packages={"vllm": "0.10.2"}))
    )


CASES = list(obsolete_settings())


@each_case("case", CASES, ids=[f"{case.rule}-{case.status}-{n}" for n, case in enumerate(CASES)])
def test_rule_depends_on_one_fact(case: Case) -> None:
    case.check()


def test_findings_are_as_recorded() -> None:
    found = {f"{number} {case.rule}": case.findings() for number, case in enumerate(CASES)}
    assert_as_recorded("rules-obsolete-settings", found)
