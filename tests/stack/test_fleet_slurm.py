"""`fleet check --slurm` on a SLURM cluster of two nodes on this machine, one of which hangs or is down."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from support.command import envdoctor, envelope
from support.fleet_hosts import write_program
from support.slurm_cluster import Cluster, needs_slurm, wait_for

pytestmark = [pytest.mark.stack, needs_slurm]


def path_with_envdoctor(folder: Path, before: str = "") -> str:
    """Return a PATH with an `envdoctor` that runs the commands of `before` first."""
    text = f'#!/bin/sh\n{before}\nexec {sys.executable} -m envdoctor "$@"\n'
    return f"{write_program(folder, 'envdoctor', text).parent}:{os.environ['PATH']}"


def check(cluster: Cluster, home: Path, *options: str, path: str) -> dict[str, Any]:
    arguments = ("fleet", "check", "--slurm", "--hub", "", "--format", "json", *options)
    done = envdoctor(*arguments, home=home, PATH=path, **cluster.variables)
    document = envelope(done)
    assert document["data"], done.stdout
    return document


def errors(document: dict[str, Any]) -> list[str]:
    findings = document["data"]["findings"]
    return [f"{finding['id']} {finding['message']}" for finding in findings if finding["status"] == "error"]


def test_nodes_are_probed_in_one_srun(cluster: Cluster, tmp_path: Path) -> None:
    document = check(cluster, tmp_path, path=path_with_envdoctor(tmp_path / "bin"))
    assert errors(document) == []
    assert [(group["nodes"], group["count"]) for group in document["data"]["groups"]] == [("n[1-2]", 2)]
    assert set(document["data"]["clocks"]) == {"n1", "n2"}


def test_hanging_node_is_reported(cluster: Cluster, tmp_path: Path) -> None:
    hang = '[ "$SLURMD_NODENAME" = n2 ] && sleep 300'
    document = check(cluster, tmp_path, "--deadline", "8", path=path_with_envdoctor(tmp_path / "bin", hang))
    assert document["data"]["documented"] == 1
    assert len(errors(document)) == 1
    assert errors(document)[0].startswith("FLT001 n2 did not respond, deadline: `envdoctor check` did not end")


def test_down_node_is_reported_without_a_probe(cluster: Cluster, tmp_path: Path) -> None:
    cluster.run_command("scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=test")
    try:
        document = check(cluster, tmp_path, path=path_with_envdoctor(tmp_path / "bin"))
    finally:
        cluster.run_command("scontrol", "update", "NodeName=n2", "State=RESUME")
        wait_for(lambda: cluster.run_command("sinfo", "-h", "-o", "%T %D").strip() == "idle 2", "idle nodes", 30)
    assert len(errors(document)) == 1
    assert errors(document)[0].startswith("FLT001 n2 did not respond, not listed: SLURM reports that it is down")


def test_collective_over_the_nodes_of_a_cluster(cluster: Cluster, stack_python: Path, tmp_path: Path) -> None:
    done = envdoctor(
        "fleet", "collective", "--slurm", "--gpus", "1", "--python", stack_python, "--backend", "gloo", "--size", "1",
        "--master", "127.0.0.1", "--format", "json", home=tmp_path, PATH=os.environ["PATH"], **cluster.variables,
    )  # fmt: skip
    data = envelope(done)["data"]
    assert data, done.stdout
    assert [rank["phase"] for rank in data["rank_results"]] == ["done", "done"], data
    assert data["nodes"] == ["n1", "n2"]
