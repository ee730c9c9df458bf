"""CPUs that verl requests from Ray: fewer storage units, or an error instead of an endless wait."""

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
from verl_engine.inventory import PROBE
from verl_engine.options import LaunchContext
from verl_engine.ray_cpus import UNITS_OPTION, check_ray_cpus, queue_units

NEW = Version("0.9.1")


def settings_of(recipe: str, **changed: Any) -> dict[str, Any]:
    return resolve_settings(read_recipe(recipe), changed, file=FILE, find_conflicts=find_conflicts)


@pytest.mark.parametrize(
    ("version", "cpus", "gpus", "units"),
    [
        ("0.9.1", 64, 8, None),
        ("0.9.1", 16, 1, None),
        ("0.9.0", 11, 1, 7),
        ("0.9.1", 8, 1, 4),  # one GPU's share of a node with 64 CPUs and 8 GPUs
        ("0.9.1", 4, 2, 1),  # two nodes of two CPUs, on which eight units hung
        ("0.8.0", 8, 1, None),  # no queue
        ("0.9.1", 0, 8, None),  # unknown
    ],
)
def test_storage_units_fit_the_cpus(version: str, cpus: int, gpus: int, units: int | None) -> None:
    option = queue_units(Version(version), [], cpus=cpus, gpus=gpus)
    assert option == ({} if units is None else {UNITS_OPTION: units})


@pytest.mark.parametrize("option", [f"++{UNITS_OPTION}=2", "trainer.use_v1=false", "ray_kwargs.ray_init.num_cpus=32"])
def test_user_options_take_precedence(option: str) -> None:
    assert queue_units(NEW, [option], cpus=4, gpus=1) == {}


def test_fewer_units_are_an_option_with_a_note() -> None:
    settings = settings_of("verl-grpo", gpus=1)
    options, notes = verl_options(settings, NEW, LaunchContext(cpus=8))
    assert options[UNITS_OPTION] == 4
    assert "TransferQueue: 4 storage units with one CPU each instead of 8, on 8 CPUs" in notes
    assert UNITS_OPTION not in verl_options(settings, NEW, LaunchContext(cpus=64))[0]
    assert UNITS_OPTION not in verl_options(settings_of("verl-sft"), NEW, LaunchContext(cpus=1))[0]


@pytest.mark.parametrize(
    ("version", "nodes", "gpus", "required"),
    [("0.9.1", 1, 1, 5), ("0.9.1", 1, 8, 26), ("0.9.1", 4, 8, 25), ("0.7.1", 1, 8, 25), ("0.6.1", 1, 8, 9)],
)
def test_too_few_cpus_are_refused(version: str, nodes: int, gpus: int, required: int) -> None:
    settings = settings_of("verl-ppo", nodes=nodes, gpus=gpus)
    check_ray_cpus(settings, Version(version), cpus=required, gpus=gpus)
    check_ray_cpus(settings, Version(version), cpus=0, gpus=gpus)
    with pytest.raises(BadInput, match=f"verl {version} requests {required} CPUs, and Ray would wait") as caught:
        check_ray_cpus(settings, Version(version), cpus=required - 1, gpus=gpus)
    assert f"cpus-per-task={required}" in caught.value.hint


def test_sft_and_a_user_number_of_cpus_are_not_checked() -> None:
    check_ray_cpus(settings_of("verl-sft"), NEW, cpus=1, gpus=8)
    with_option = settings_of("verl-ppo", options=["ray_kwargs.ray_init.num_cpus=64"])
    check_ray_cpus(with_option, NEW, cpus=1, gpus=8)


# Runs the probe without torch, and with a fake of Ray's function if a number is given.
FAKE_MODULES = """
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
def test_cpus_are_counted_like_ray(task: str, ray: str, address: str, cpus: int) -> None:
    environment = {"PATH": os.environ["PATH"], **({"RAY_ADDRESS": address} if address else {})}
    done = subprocess.run(
        [sys.executable, "-I", "-c", FAKE_MODULES, ray, task],
        input=PROBE, capture_output=True, text=True, timeout=60, check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["cpus"] == cpus
