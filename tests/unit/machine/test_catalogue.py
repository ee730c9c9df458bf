"""GPUs that are chosen by name instead of a recorded machine."""

from __future__ import annotations

import pytest
from support.cases import each_case

from envdoctor.core.errors import BadInput
from envdoctor.knowledge.architectures import capability_of
from envdoctor.knowledge.gpu_catalogue import CatalogueGpu, catalogue, find_gpus
from envdoctor.knowledge.gpu_speeds import gpu_speeds
from envdoctor.knowledge.gpus import compute_capability, gpu_model
from envdoctor.machine.recorded import read_recorded
from envdoctor.profiles import choose, read_profiles

GIB = 1 << 30


@pytest.mark.parametrize("gpu", catalogue().values(), ids=lambda gpu: gpu.id)
def test_every_row_agrees_with_the_other_tables(gpu: CatalogueGpu) -> None:
    assert gpu_model(gpu.name), gpu.name
    assert gpu.architecture == ("aarch64" if gpu.id.startswith(("gh", "gb", "thor")) else "x86_64")
    assert bool(gpu.memory_mib) != bool(gpu.system_memory_mib)
    memory = gpu_speeds(gpu.name).get("memory")
    assert memory is None or memory.peak == pytest.approx(gpu.bandwidth, rel=0.03)
    assert find_gpus(gpu.id) == (gpu, 1)
    assert all(find_gpus(alias) == (gpu, 1) for alias in gpu.aliases)


def test_names_are_unique() -> None:
    names = [name for gpu in catalogue().values() for name in (gpu.id, *gpu.aliases)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("text", "gpu", "count"),
    [
        ("l4x2", "l4", 2), ("h100-80gbx8", "h100-80gb", 8), ("RTX 4090", "rtx4090", 1), ("nvidia-l40s", "l40s", 1),
        ("DGX Spark", "gb10", 1), ("GH200", "gh200-96gb", 1), ("b300x16", "b300", 16),
    ],
)  # fmt: skip
def test_spellings(text: str, gpu: str, count: int) -> None:
    assert find_gpus(text) == (catalogue()[gpu], count)


@pytest.mark.parametrize("text", ["", "x", "l4x0", "l4x17", "l5", "rtx", "x2"])
def test_unknown_names(text: str) -> None:
    assert find_gpus(text) is None


@pytest.mark.parametrize(
    ("gpu", "formats", "driver"),
    [
        ("v100-32gb", "fp16", ""), ("t4", "fp16", ""), ("a100-80gb", "fp16 bf16 tf32", "450.36.06"),
        ("l4", "fp16 bf16 tf32 fp8", "520.61.05"), ("b200", "fp16 bf16 tf32 fp8 fp4", "570.26"),
        ("gb10", "fp16 bf16 tf32 fp8 fp4", "575.51.03"), ("thor", "fp16 bf16 tf32 fp8", "580.65.06"),
    ],
)  # fmt: skip
def test_formats_and_oldest_driver(gpu: str, formats: str, driver: str) -> None:
    assert " ".join(catalogue()[gpu].formats) == formats
    assert catalogue()[gpu].oldest_driver == driver


def test_machine_of_the_catalogue() -> None:
    machine = read_recorded("l4x2")
    assert machine.name == "l4x2"
    assert [gpu.index for gpu in machine.gpus.value or ()] == [0, 1]
    assert {gpu.memory_total.value for gpu in machine.gpus.value or ()} == {23034 << 20}
    assert {capability_of(gpu) for gpu in machine.gpus.value or ()} == {(8, 9)}
    assert machine.driver.version.source == "assumed; --fact sets another value"
    assert machine.storage.places.state == "unreadable"


def test_memory_that_the_gpu_shares_with_the_system_is_not_none() -> None:
    machine = read_recorded("dgx-spark")
    (gpu,) = machine.gpus.value or ()
    assert gpu.memory_total.value == machine.memory.total.value
    assert (gpu.memory_total.value or 0) > 100 * GIB
    assert machine.system.architecture.value == "aarch64"


@pytest.mark.parametrize(
    ("gpu", "profile"),
    [
        ("h100", "x86-cu130"),
        ("l4x2", "x86-cu130"),
        ("gh200-480gb", "gh200-cu130"),
        ("gh200-144gb", "gh200-cu130"),
        ("gb200", "gh200-cu130"),
        ("gb10", "gh200-cu130"),
        ("thor", "gh200-cu130"),
        ("b300", "x86-cu130"),
        ("rtx5090x2", "x86-cu130"),
        ("v100", "x86-cu128-torch210"),
        ("t4", "x86-cu128-torch210"),
        ("rtx4060", "x86-cu130"),
    ],
)
def test_profile_for_a_gpu(gpu: str, profile: str) -> None:
    assert choose(read_recorded(gpu), read_profiles()).profile == profile


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(BadInput, match="unknown machine or GPU 'h10'") as error:
        read_recorded("h10")
    assert "h100-80gb" in error.value.expected
    assert error.value.hint == "envdoctor gpus"


@each_case(
    ("name", "capability"),
    [
        ("NVIDIA GeForce MX110", "5.0"), ("NVIDIA GeForce MX130", "5.0"), ("NVIDIA GeForce MX150", "6.1"),
        ("Quadro K6000", "3.5"), ("Quadro K5200", "3.5"), ("Quadro K5000", "3.0"), ("Quadro K2200", "5.0"),
    ],
)  # fmt: skip
def test_generations_within_one_series_differ(name: str, capability: str) -> None:
    assert compute_capability(name) == capability
