"""A fleet by srun: a real SLURM of two nodes on this machine, one of which hangs, or is down."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from command import envdoctor, envelope
from fleet_hosts import program
from slurm_cluster import Cluster, wait_for

pytestmark = pytest.mark.stack


def tool(folder: Path, before: str = "") -> str:
    """A PATH whose `envdoctor` does something first."""
    text = f'#!/bin/sh\n{before}\nexec {sys.executable} -m envdoctor "$@"\n'
    return f"{program(folder, 'envdoctor', text).parent}:{os.environ['PATH']}"


def check(cluster: Cluster, home: Path, *more: str, path: str) -> dict[str, Any]:
    options = ("fleet", "check", "--slurm", "--hub", "", "--format", "json", *more)
    done = envdoctor(*options, home=home, PATH=path, **cluster.variables)
    answer = envelope(done)
    assert answer["data"], done.stdout
    return answer


def errors(answer: dict[str, Any]) -> list[str]:
    return [f"{one['id']} {one['message']}" for one in answer["data"]["findings"] if one["status"] == "error"]


def test_the_nodes_of_a_cluster_are_asked_by_one_srun(cluster: Cluster, tmp_path: Path) -> None:
    answer = check(cluster, tmp_path, path=tool(tmp_path / "bin"))
    assert errors(answer) == []
    assert [(group["nodes"], group["count"]) for group in answer["data"]["groups"]] == [("n[1-2]", 2)]
    assert set(answer["data"]["clocks"]) == {"n1", "n2"}


def test_the_node_that_hangs_is_named_and_the_other_one_counts(cluster: Cluster, tmp_path: Path) -> None:
    hang = '[ "$SLURMD_NODENAME" = n2 ] && sleep 300'
    answer = check(cluster, tmp_path, "--deadline", "8", path=tool(tmp_path / "bin", hang))
    assert answer["data"]["answered"] == 1
    assert len(errors(answer)) == 1
    assert errors(answer)[0].startswith("FLT001 n2 did not answer, deadline: `envdoctor check` did not end")


def test_a_node_that_is_down_is_told_without_waiting_for_it(cluster: Cluster, tmp_path: Path) -> None:
    cluster.run_command("scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=test")
    try:
        answer = check(cluster, tmp_path, path=tool(tmp_path / "bin"))
    finally:
        cluster.run_command("scontrol", "update", "NodeName=n2", "State=RESUME")
        wait_for(lambda: cluster.run_command("sinfo", "-h", "-o", "%T %D").strip() == "idle 2", "idle nodes", 30)
    assert len(errors(answer)) == 1
    assert errors(answer)[0].startswith("FLT001 n2 did not answer, not listed: SLURM says that it is down")


def test_all_reduce_over_the_nodes_of_a_cluster(cluster: Cluster, stack_python: Path, tmp_path: Path) -> None:
    done = envdoctor(
        "fleet", "collective", "--slurm", "--gpus", "1", "--python", stack_python, "--backend", "gloo", "--size", "1",
        "--master", "127.0.0.1", "--format", "json", home=tmp_path, PATH=os.environ["PATH"], **cluster.variables,
    )  # fmt: skip
    data = envelope(done)["data"]
    assert data, done.stdout
    assert [shown["phase"] for shown in data["shown"]] == ["done", "done"], data
    assert data["nodes"] == ["n1", "n2"]
