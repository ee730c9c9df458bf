"""All-reduce over real processes by gloo: alike, one killed, one stopped, one slowed; over two hosts, too."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command import envdoctor, environment
from fleet_hosts import Host, Network, network_of, why_not

from envdoctor.fleet.ranks import RankState, name_slow, name_stuck, parse_deaths, parse_rank

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


def state(rank: int, step: int, heard: float = 100.0, **more: Any) -> RankState:
    return RankState(rank=rank, step=step, phase=more.pop("phase", f"step {step}"), heard=heard, moved=heard, **more)


def test_the_root_cause_is_the_rank_that_died_first() -> None:
    assert parse_deaths(REPORT) == {3: "killed by signal 9"}


def test_who_holds_the_others_up() -> None:
    assert name_stuck({0: state(0, 5), 1: state(1, 4), 2: state(2, 5)}, 3, 100.5) == {1: "behind"}
    assert name_stuck({0: state(0, 5), 1: state(1, 5, heard=90.0)}, 2, 100.5) == {1: "silent"}
    assert name_stuck({0: state(0, 5)}, 2, 100.5) == {1: "missing"}
    assert name_stuck({0: state(0, 5), 1: state(1, 5)}, 2, 100.5) == {}


def test_five_times_slower_is_slow_and_a_half_more_is_not() -> None:
    alike = {rank: state(rank, 9, own=0.3) for rank in range(3)}
    assert name_slow(alike | {3: state(3, 9, own=0.45)}) == {}
    assert list(name_slow(alike | {3: state(3, 9, own=1.5)})) == [3]
    assert list(name_slow({0: state(0, 9, own=0.3), 1: state(1, 9, own=1.5)})) == [1]


@pytest.mark.parametrize(
    "line", ["", "envdoctor-fleet rank 1 {", 'envdoctor-fleet rank 1 {"step": "x"}', "rank 1 {}"]
)
def test_what_is_no_line_of_a_rank_is_passed_over(line: str) -> None:
    assert parse_rank(line, None, 1.0) is None


@contextlib.contextmanager
def running(python: Path, *arguments: str, home: Path) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-m", "envdoctor", "fleet", "collective", "--python", str(python), "--backend", "gloo"]
    with subprocess.Popen(
        [*argv, "--format", "json", *arguments], stdout=subprocess.PIPE, text=True, env=environment(home), cwd=home
    ) as child:
        yield child


def await_rank(rank: int, port: int, seconds: float = 60) -> int:
    """The process of a rank that has its torch loaded; the port tells this run from others."""
    wanted = {f"RANK={rank}".encode(), f"MASTER_PORT={port}".encode()}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for place in Path("/proc").glob("[0-9]*"):
            try:
                if (
                    wanted <= set((place / "environ").read_bytes().split(b"\0"))
                    and "libtorch" in (place / "maps").read_text()
                ):
                    return int(place.name)
            except OSError:
                continue
        time.sleep(0.05)
    pytest.fail("no such rank began")


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)


def slow(pid: int) -> None:
    """An eighth of the time it runs: beyond what a busy machine does to the others."""

    def turn() -> None:
        with contextlib.suppress(ProcessLookupError):
            while True:
                os.kill(pid, signal.SIGSTOP)
                time.sleep(0.14)
                os.kill(pid, signal.SIGCONT)
                time.sleep(0.02)

    threading.Thread(target=turn, daemon=True).start()


def left_over(port: int, seconds: float = 6) -> list[str]:
    """Processes of a run that are still there; a node notices within seconds that nobody listens any more."""
    end = time.monotonic() + seconds
    while True:
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if f"MASTER_PORT={port}".encode() in (place / "environ").read_bytes().split(b"\0"):
                    found.append(place.name)
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.2)


@pytest.mark.stack
def test_ranks_that_are_alike_are_measured(stack_python: Path, tmp_path: Path) -> None:
    done = envdoctor(
        "fleet", "collective", "--local", "--gpus", "3", "--python", stack_python, "--backend", "gloo", "--size", "1",
        "--format", "json", home=tmp_path,
    )  # fmt: skip
    data = json.loads(done.stdout)["data"]
    assert data["interface"] == "lo", data
    assert {speed["name"] for speed in data["speeds"]} == {"all_reduce 1 MiB", "all_gather 1 MiB"}
    assert all(speed["value"] > 0 and speed["grade"] == "unknown" for speed in data["speeds"])
    assert [shown["phase"] for shown in data["shown"]] == ["done"] * 3
    assert not [one for one in data["findings"] if one["id"] != "FLT054"]


@pytest.mark.stack
@pytest.mark.parametrize(
    ("fault", "identifier", "words", "patience"),
    [
        (kill, "FLT051", "is dead: killed by signal 9", "8"),
        (stop, "FLT052", "fell silent", "8"),
        (slow, "FLT054", "times slower than most", "60"),
    ],
)
def test_the_rank_with_a_fault_is_named(  # noqa: PLR0917
    fault: Callable[[int], None], identifier: str, words: str, patience: str, stack_python: Path, tmp_path: Path
) -> None:
    port = 20_000 + os.getpid() % 10_000
    options = ("--local", "--gpus", "3", "--port", str(port), "--size", "1", "--deadline", "90", "--stall", patience)
    with running(stack_python, *options, home=tmp_path) as child:
        began = time.monotonic()
        fault(await_rank(1, port))
        out, _ = child.communicate(timeout=120)
    data = json.loads(out)["data"]
    named = [one for one in data["findings"] if one["status"] == "error"]
    assert [one["id"] for one in named] == [identifier], json.dumps(data)
    assert named[0]["message"].startswith("rank 1 on localhost")
    assert words in named[0]["message"]
    assert child.returncode == 1
    assert time.monotonic() - began < 90
    assert left_over(port) == []


REASON = why_not()


@pytest.fixture
def two_hosts(tmp_path: Path) -> Iterator[Network]:
    (tmp_path / "net").mkdir()
    with network_of([Host("one"), Host("two")], tmp_path / "net") as network:
        yield network


@pytest.mark.stack
@pytest.mark.skipif(bool(REASON), reason=REASON or "there")
def test_over_two_hosts_the_interface_is_told_and_the_dead_rank_named(
    two_hosts: Network, stack_python: Path, tmp_path: Path
) -> None:
    options = ("--hosts", "one,two", "--gpus", "1", "--ssh-config", str(two_hosts.config), "--size", "1")
    with running(stack_python, *options, "--interface", "eth0", home=tmp_path) as child:
        out, _ = child.communicate(timeout=120)
    data = json.loads(out)["data"]
    assert data["interface"] == "eth0", data
    assert data["ranks"] == 2
    port = 20_000 + os.getpid() % 10_000
    with running(stack_python, *options, "--port", str(port), home=tmp_path) as child:
        kill(await_rank(1, port))
        out, _ = child.communicate(timeout=120)
    named = [one for one in json.loads(out)["data"]["findings"] if one["status"] == "error"]
    assert [one["id"] for one in named] == ["FLT051"], named
    assert named[0]["message"].startswith("rank 1 on two")
    assert left_over(port) == []


@pytest.mark.parametrize(
    "arguments",
    [
        [], ["--local", "--hosts", "a"], ["--hosts", "a,b"], ["--local", "--gpus", "1"], ["--local", "--gpus", "99"],
        ["--local", "--gpus", "2", "--backend", "mpi"], ["--local", "--gpus", "2", "--size", "0"],
        ["--local", "--gpus", "2", "--deadline", "1"], ["--hosts", "-x,b", "--python", "p", "--gpus", "1"],
    ],
)  # fmt: skip
def test_bad_input_is_refused(arguments: list[str], tmp_path: Path) -> None:
    done = envdoctor("fleet", "collective", *arguments, home=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "expected:" in done.stderr


def test_an_interpreter_that_is_not_there_is_told(tmp_path: Path) -> None:
    done = envdoctor("fleet", "collective", "--local", "--gpus", "2", "--python", "/nowhere/python", home=tmp_path)
    assert done.returncode == 1
    assert "FLT050" in done.stdout
    assert "cannot start /nowhere/python" in " ".join(done.stdout.split())
