"""CPUs that verl asks Ray for: fewer units of its queue, or a word before Ray waits without end."""

from __future__ import annotations

from typing import Any

import pytest
from packaging.version import Version
from settings import BadInput, read_recipe, settle
from verl_engine.check import FILE, contradictions
from verl_engine.cpus import UNITS, count_cpus, queue_units, refuse_too_few
from verl_engine.fields import verl_options
from verl_engine.parts import At

NEW = Version("0.9.1")


def settings_of(recipe: str, **changed: Any) -> dict[str, Any]:
    return settle(read_recipe(recipe), changed, file=FILE, contradictions=contradictions)


@pytest.mark.parametrize(
    ("version", "cpus", "gpus", "units"),
    [
        ("0.9.1", 64, 8, None),
        ("0.9.1", 16, 1, None),
        ("0.9.0", 12, 1, 7),
        ("0.9.1", 8, 1, 3),  # a GPU's share of a node with 64 CPUs and 8 GPUs
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
    assert options[UNITS] == 3
    assert "TransferQueue: 3 of verl's 8 units, one CPU each, on 8 CPUs" in notes
    assert UNITS not in verl_options(settings, NEW, At(cpus=64))[0]
    assert UNITS not in verl_options(settings_of("verl-sft"), NEW, At(cpus=1))[0]


@pytest.mark.parametrize(
    ("version", "nodes", "gpus", "needed"),
    [("0.9.1", 1, 1, 6), ("0.9.1", 1, 8, 27), ("0.9.1", 4, 8, 25), ("0.7.1", 1, 8, 25), ("0.6.1", 1, 8, 9)],
)
def test_too_few_are_refused_before_ray_waits(version: str, nodes: int, gpus: int, needed: int) -> None:
    settings = settings_of("verl-ppo", nodes=nodes, gpus=gpus)
    refuse_too_few(settings, Version(version), cpus=needed, gpus=gpus)
    refuse_too_few(settings, Version(version), cpus=0, gpus=gpus)
    with pytest.raises(BadInput, match=f"verl {version} asks Ray for {needed}, and Ray waits") as caught:
        refuse_too_few(settings, Version(version), cpus=needed - 1, gpus=gpus)
    assert f"cpus-per-task={needed}" in caught.value.hint


def test_sft_has_no_ray_and_a_person_may_tell_ray_another_number() -> None:
    refuse_too_few(settings_of("verl-sft"), NEW, cpus=1, gpus=8)
    told = settings_of("verl-ppo", options=["ray_kwargs.ray_init.num_cpus=64"])
    refuse_too_few(told, NEW, cpus=1, gpus=8)


def test_a_job_s_share_counts_where_our_launcher_started_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2})
    monkeypatch.setattr("os.cpu_count", lambda: 64)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert count_cpus() == 64
    monkeypatch.setenv("RAY_ADDRESS", "node1:6379")
    assert count_cpus() == 3
