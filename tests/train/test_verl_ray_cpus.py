"""CPUs that verl asks Ray for: fewer units of its queue, or a word before Ray waits without end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from packaging.version import Version
from settings import BadInput, read_recipe, resolve_settings
from verl_engine.check import FILE, find_conflicts
from verl_engine.config_options import verl_options
from verl_engine.launch_context import PROBE
from verl_engine.options import At
from verl_engine.ray_cpus import UNITS, check_ray_cpus, queue_units

NEW = Version("0.9.1")


def settings_of(recipe: str, **changed: Any) -> dict[str, Any]:
    return resolve_settings(read_recipe(recipe), changed, file=FILE, find_conflicts=find_conflicts)


@pytest.mark.parametrize(
    ("version", "cpus", "gpus", "units"),
    [
        ("0.9.1", 64, 8, None),
        ("0.9.1", 16, 1, None),
        ("0.9.0", 11, 1, 7),
        ("0.9.1", 8, 1, 4),  # a GPU's share of a node with 64 CPUs and 8 GPUs
        ("0.9.1", 4, 2, 1),  # two nodes of two CPUs: eight units stood still there
        ("0.8.0", 8, 1, None),  # no queue
        ("0.9.1", 0, 8, None),  # not known
    ],
)
def test_the_queue_has_as_many_units_as_there_are_cpus_for(
    version: str, cpus: int, gpus: int, units: int | None
) -> None:
    found = queue_units(Version(version), [], cpus=cpus, gpus=gpus)
    assert found == ({} if units is None else {UNITS: units})


@pytest.mark.parametrize("own", [f"++{UNITS}=2", "trainer.use_v1=false", "ray_kwargs.ray_init.num_cpus=32"])
def test_what_a_person_says_stays(own: str) -> None:
    assert queue_units(NEW, [own], cpus=4, gpus=1) == {}


def test_it_becomes_an_option_and_is_told() -> None:
    settings = settings_of("verl-grpo", gpus=1)
    options, notes = verl_options(settings, NEW, At(cpus=8))
    assert options[UNITS] == 4
    assert "TransferQueue: 4 of verl's 8 units, one CPU each, on 8 CPUs" in notes
    assert UNITS not in verl_options(settings, NEW, At(cpus=64))[0]
    assert UNITS not in verl_options(settings_of("verl-sft"), NEW, At(cpus=1))[0]


@pytest.mark.parametrize(
    ("version", "nodes", "gpus", "needed"),
    [("0.9.1", 1, 1, 5), ("0.9.1", 1, 8, 26), ("0.9.1", 4, 8, 25), ("0.7.1", 1, 8, 25), ("0.6.1", 1, 8, 9)],
)
def test_too_few_are_refused_before_ray_waits(version: str, nodes: int, gpus: int, needed: int) -> None:
    settings = settings_of("verl-ppo", nodes=nodes, gpus=gpus)
    check_ray_cpus(settings, Version(version), cpus=needed, gpus=gpus)
    check_ray_cpus(settings, Version(version), cpus=0, gpus=gpus)
    with pytest.raises(BadInput, match=f"verl {version} asks Ray for {needed}, and Ray waits") as caught:
        check_ray_cpus(settings, Version(version), cpus=needed - 1, gpus=gpus)
    assert f"cpus-per-task={needed}" in caught.value.hint


def test_sft_has_no_ray_and_a_person_may_tell_ray_another_number() -> None:
    check_ray_cpus(settings_of("verl-sft"), NEW, cpus=1, gpus=8)
    told = settings_of("verl-ppo", options=["ray_kwargs.ray_init.num_cpus=64"])
    check_ray_cpus(told, NEW, cpus=1, gpus=8)


# Ray's own counting is in the stack; here it is left out, and where it is there it says what Ray would.
COUNTING = """
import sys, types
sys.modules["torch"] = types.SimpleNamespace(cuda=types.SimpleNamespace(is_available=lambda: False))
if given := sys.argv.pop(1):
    utils = types.ModuleType("ray._private.utils")
    utils.get_num_cpus = lambda: float(given)
    sys.modules |= {"ray": types.ModuleType("ray"), "ray._private": types.ModuleType("ray._private"),
                    "ray._private.utils": utils}
exec(sys.stdin.read())
"""


@pytest.mark.parametrize(
    ("task", "ray", "address", "cpus"),
    [
        ("ppo", "3", "", 3),
        ("sft", "3", "", os.cpu_count()),
        ("ppo", "", "", os.cpu_count()),
        ("ppo", "3", "node1:6379", len(os.sched_getaffinity(0))),
    ],
)
def test_cpus_are_counted_as_the_ray_counts_that_will_run(task: str, ray: str, address: str, cpus: int) -> None:
    environment = {"PATH": os.environ["PATH"], **({"RAY_ADDRESS": address} if address else {})}
    done = subprocess.run(
        [sys.executable, "-I", "-c", COUNTING, ray, task],
        input=PROBE, capture_output=True, text=True, timeout=60, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["cpus"] == cpus
