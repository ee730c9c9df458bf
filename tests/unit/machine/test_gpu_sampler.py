"""Samples of the GPUs during a measurement, with a fake libnvidia-ml.so.1."""

from __future__ import annotations

import subprocess
import sys
import time

import msgspec
from support.fakenvml.fixture import FakeNvml, machine_ini
from support.paths import ROOT

from envdoctor.core.records import Clocks, PcieLink
from envdoctor.machine.gpu_sampler import GpuSample

CHILD = """
import sys, time
import msgspec
from envdoctor.machine.gpu_sampler import GpuSampler, smallest_free_gpu_memory
with GpuSampler() as sampler:
    end = time.monotonic() + 60
    while len(sampler.samples) < 8 and time.monotonic() < end:
        time.sleep(0.02)
sys.stdout.buffer.write(msgspec.json.encode((sampler.samples[:8], smallest_free_gpu_memory())))
"""


def sample_in_child(env: dict[str, str]) -> tuple[list[GpuSample], int]:
    done = subprocess.run(
        [sys.executable, "-c", CHILD], env=env, cwd=ROOT, capture_output=True, timeout=120, check=True
    )
    return msgspec.json.decode(done.stdout, type=tuple[list[GpuSample], int])


def test_a_sample_has_every_value_of_each_gpu(fake_nvml: FakeNvml) -> None:
    began = time.time()
    busy = ["[gpu3]", "memory_used = 1000000000", "power_mw = 699000", "clock_reasons = 0x4"]
    samples, free = sample_in_child(fake_nvml(machine_ini("h100x8", *busy)))
    assert [each.gpu for each in samples] == list(range(8))
    assert free == 85520809984 - 1000000000
    assert all(began <= each.when <= time.time() for each in samples)
    idle = GpuSample(
        when=0, gpu=0, clocks=Clocks(sm=345, memory=2619, max_sm=1980), temperature=33, power=95.25,
        power_limit=700.0,
        throttle_reasons=("idle",), pcie=PcieLink(generation=5, width=16, max_generation=5, max_width=16),
    )  # fmt: skip
    assert msgspec.structs.replace(samples[0], when=0) == idle
    expected = msgspec.structs.replace(idle, gpu=3, power=699.0, throttle_reasons=("power-cap",))
    assert msgspec.structs.replace(samples[3], when=0) == expected


def test_the_smallest_free_memory_is_unknown_in_mig_mode(fake_nvml: FakeNvml) -> None:
    assert sample_in_child(fake_nvml(machine_ini("h100x8", "[gpu3]", "mig = 1")))[1] == 0
