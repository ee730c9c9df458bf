"""`fleet collective` with gloo processes: equal, one killed, one stopped, one slowed; also over two hosts."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.command import envdoctor, environment
from support.fleet_hosts import Host, Network, skip_reason, start_network, write_program
from support.slurm_cluster import free_ports
from support.stacks import isolated_forking

from envdoctor.fleet.ranks import RankState, find_blocking, find_slow_ranks, parse_deaths, parse_rank

PATIENT = ("--deadline", "600", "--stall", "300")  # the limits of a fault's detection on a busy machine

REPORT = """
============================================================
collective.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-21_19:40:00
  host      : gpu07
  rank      : 2 (local_rank: 0)
  exitcode  : 1 (pid: 100)
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-21_19:40:00
  host      : gpu07
  rank      : 3 (local_rank: 1)
  exitcode  : -9 (pid: 12345)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 12345
============================================================
"""


def state(rank: int, step: int, seen_at: float = 100.0, **fields: Any) -> RankState:
    return RankState(rank=rank, step=step, phase=f"step {step}", seen_at=seen_at, step_at=seen_at, **fields)


def test_root_cause_is_the_rank_that_died_first() -> None:
    assert parse_deaths(REPORT) == {3: "killed by signal 9"}


def test_find_blocking() -> None:
    assert find_blocking({0: state(0, 5), 1: state(1, 4), 2: state(2, 5)}, 3, 100.5) == {1: "behind"}
    assert find_blocking({0: state(0, 5), 1: state(1, 5, seen_at=90.0)}, 2, 100.5) == {1: "silent"}
    assert find_blocking({0: state(0, 5)}, 2, 100.5) == {1: "missing"}
    assert find_blocking({0: state(0, 5), 1: state(1, 5)}, 2, 100.5) == {}


def test_find_slow_ranks() -> None:
    equal = {rank: state(rank, 9, compute_seconds=0.3) for rank in range(3)}
    assert find_slow_ranks(equal | {3: state(3, 9, compute_seconds=0.45)}) == {}
    assert list(find_slow_ranks(equal | {3: state(3, 9, compute_seconds=1.5)})) == [3]
    assert list(find_slow_ranks({0: state(0, 9, compute_seconds=0.3), 1: state(1, 9, compute_seconds=1.5)})) == [1]


@pytest.mark.parametrize(
    "line", ["", "envdoctor-fleet rank 1 {", 'envdoctor-fleet rank 1 {"step": "x"}', "rank 1 {}"]
)
def test_other_lines_are_ignored(line: str) -> None:
    assert parse_rank(line, None, 1.0) is None


@contextlib.contextmanager
def run_collective(python: Path, *arguments: str, home: Path, **variables: str) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-m", "envdoctor", "fleet", "collective", "--python", str(python), "--backend", "gloo"]
    with subprocess.Popen(
        [*argv, "--format", "json", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        cwd=home,
        env=environment(home, **variables),
    ) as child:
        yield child


def find_processes(*wanted: str) -> list[Path]:
    """The folders in /proc of processes with these variables. Those of forks are in their clients."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if {name.encode() for name in wanted} <= set((process / "environ").read_bytes().split(b"\0")):
                found.append(process)
    return found


def is_connecting(process: Path) -> bool:
    """Whether a rank has loaded torch and has a socket, which it opens after its first report."""
    with contextlib.suppress(OSError):
        opened = [str(each.readlink()) for each in (process / "fd").iterdir()]
        return "libtorch" in (process / "maps").read_text() and any(each.startswith("socket:") for each in opened)
    return False


def find_fork(client: Path) -> Path | None:
    """The fork of a client of a fork server."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "comm").read_text() == f"fork{client.name}\n":
                return process
    return None


def await_rank(rank: int, port: int, seconds: float = 120) -> int:
    """Wait for the process of a rank that has reported its first state; the port identifies the run."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for client in find_processes(f"RANK={rank}", f"MASTER_PORT={port}"):
            process = find_fork(client) or client
            if is_connecting(process):
                return int(process.name)
        time.sleep(0.05)
    pytest.fail("the rank did not start")


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)


# Runs a rank whose matrix products take sixteen times as long: a slow processor, however busy this machine is.
SLOW = """
import os, runpy, sys, time
import torch
product = torch.Tensor.__matmul__
# The wait is longer than other ranks take on a busy machine.
torch.Tensor.__matmul__ = lambda a, b: [product(a, b), time.sleep(0.08)][0]
sys.argv = [word for word in sys.argv[1:] if word != "-u"]
sys.path[0] = os.path.dirname(sys.argv[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def interpreter_with_slow_rank(python: Path, folder: Path) -> Path:
    """An interpreter for torchrun in which rank 1 is slow."""
    (folder / "slow.py").write_text(SLOW)
    program = f'[ "$RANK" = 1 ] && exec {python} {folder}/slow.py "$@"\nexec {python} "$@"\n'
    return write_program(folder, "python", f"#!/bin/sh\n{program}")


def remaining_processes(port: int, seconds: float = 60) -> list[str]:
    """Return the processes of a run that still exist after some seconds: nodes end when their parent has gone."""
    end = time.monotonic() + seconds
    while (found := find_processes(f"MASTER_PORT={port}")) and time.monotonic() < end:
        time.sleep(0.1)
    return [process.name for process in found]


@pytest.mark.stack
def test_equal_ranks_are_measured(stack_python: Path, tmp_path: Path) -> None:
    python = isolated_forking(stack_python)
    done = envdoctor(
        "fleet", "collective", "--local", "--gpus", "3", "--python", python, "--backend", "gloo", "--size", "1",
        "--format", "json", *PATIENT, home=tmp_path, PYTHON_EXEC=str(python), TMPDIR=str(tmp_path),
    )  # fmt: skip
    assert not [*tmp_path.glob("torchelastic_*"), *tmp_path.glob("envdoctor-*")]
    data = json.loads(done.stdout)["data"]
    assert data["interface"] == "lo", data
    assert {speed["name"] for speed in data["speeds"]} == {"all_reduce 1 MiB", "all_gather 1 MiB"}
    assert all(speed["value"] > 0 and speed["grade"] == "unknown" for speed in data["speeds"])
    assert [rank["phase"] for rank in data["rank_results"]] == ["done"] * 3
    assert not [finding for finding in data["findings"] if finding["id"] != "FLT054"]


@pytest.mark.stack
@pytest.mark.parametrize(
    ("fault", "identifier", "message", "options"),
    [
        (kill, "FLT051", "is dead: killed by signal 9", PATIENT),
        (stop, "FLT052", "stopped reporting", ("--deadline", "600", "--stall", "8")),
        (None, "FLT054", "times slower than most", PATIENT),
    ],
    ids=["kill", "stop", "slow"],
)
@pytest.mark.early
def test_faulty_rank_is_reported(  # noqa: PLR0917
    fault: Callable[[int], None] | None, identifier: str, message: str, options: tuple[str, ...], stack_python: Path,
    tmp_path: Path,
) -> None:  # fmt: skip
    (port,) = free_ports(1)
    python = isolated_forking(stack_python)
    ranks = python if fault else interpreter_with_slow_rank(python, tmp_path)
    torchrun = stack_python if fault is stop else python  # killed with its children; a fork's are not found
    options = ("--local", "--gpus", "3", "--port", str(port), "--size", "1", *options)
    with run_collective(torchrun, *options, home=tmp_path, PYTHON_EXEC=str(ranks)) as child:
        if fault:
            fault(await_rank(1, port))
        out, _ = child.communicate(timeout=300)
    data = json.loads(out)["data"]
    errors = [finding for finding in data["findings"] if finding["status"] == "error"]
    assert [finding["id"] for finding in errors] == [identifier], json.dumps(data)
    assert errors[0]["message"].startswith("rank 1 on localhost")
    assert message in errors[0]["message"]
    assert child.returncode == 1
    assert remaining_processes(port) == []


SKIP_REASON = skip_reason()


@pytest.fixture
def two_hosts(tmp_path: Path) -> Iterator[Network]:
    (tmp_path / "net").mkdir()
    with start_network([Host("one"), Host("two")], tmp_path / "net") as network:
        yield network


@pytest.mark.stack
@pytest.mark.skipif(bool(SKIP_REASON), reason=SKIP_REASON or "available")
def test_two_hosts_report_the_interface_and_a_dead_rank(
    two_hosts: Network, stack_python: Path, tmp_path: Path
) -> None:
    options = ("--hosts", "one,two", "--gpus", "1", "--ssh-config", str(two_hosts.config), "--size", "1")
    with run_collective(stack_python, *options, "--interface", "eth0", *PATIENT, home=tmp_path) as child:
        out, _ = child.communicate(timeout=300)
    data = json.loads(out)["data"]
    assert data["interface"] == "eth0", data
    assert data["ranks"] == 2
    (port,) = free_ports(1)
    with run_collective(stack_python, *options, "--port", str(port), *PATIENT, home=tmp_path) as child:
        kill(await_rank(1, port))
        out, _ = child.communicate(timeout=300)
    errors = [finding for finding in json.loads(out)["data"]["findings"] if finding["status"] == "error"]
    assert [finding["id"] for finding in errors] == ["FLT051"], errors
    assert errors[0]["message"].startswith("rank 1 on two")
    assert remaining_processes(port) == []


@pytest.mark.parametrize(
    "arguments",
    [
        [], ["--local", "--hosts", "a"], ["--hosts", "a,b"], ["--local", "--gpus", "1"], ["--local", "--gpus", "99"],
        ["--local", "--gpus", "2", "--backend", "mpi"], ["--local", "--gpus", "2", "--size", "0"],
        ["--local", "--gpus", "2", "--deadline", "1"], ["--hosts", "-x,b", "--python", "p", "--gpus", "1"],
    ],
)  # fmt: skip
def test_invalid_options_are_rejected(arguments: list[str], tmp_path: Path) -> None:
    done = envdoctor("fleet", "collective", *arguments, home=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "expected:" in done.stderr


def test_missing_interpreter_is_reported(tmp_path: Path) -> None:
    done = envdoctor("fleet", "collective", "--local", "--gpus", "2", "--python", "/nowhere/python", home=tmp_path)
    assert done.returncode == 1
    assert "FLT050" in done.stdout
    assert "cannot start /nowhere/python" in " ".join(done.stdout.split())
