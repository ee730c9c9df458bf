"""A fleet for real: hosts that are network namespaces with an sshd each, and what can be wrong with them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command import envdoctor, envelope, environment
from fakenvml.fixture import FakeNvml, machine_ini
from fleet_hosts import Host, Network, clock_library, network_of, own_envdoctor, program, why_not

REASON = why_not()
pytestmark = [pytest.mark.stack, pytest.mark.skipif(bool(REASON), reason=REASON or "there")]

DRIVER = "570.133.20"
SLOW = "#!/bin/sh\nsleep 300\n"
GARBAGE = "#!/bin/sh\necho 'Segmentation fault'\n"
HALF = """#!/bin/sh\nprintf '{"schema": 1, "command": "check", "data": {"machine": {"sys'\n"""
FLOOD = "#!/bin/sh\nexec yes envdoctor\n"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, fake_nvml: FakeNvml) -> Iterator[Network]:
    """Twelve hosts, of which four are well and each other has one fault."""
    folder = tmp_path_factory.mktemp("hosts")
    tools = own_envdoctor(folder / "tools")
    variables = ("LD_LIBRARY_PATH", "FAKE_NVML_CONFIG")
    usual, odd = (
        fake_nvml(machine_ini("h200", "[system]", f"driver_version = {version}", f"nvml_version = 13.{version}"))
        for version in (DRIVER, "550.54.15")
    )

    def given(environment: dict[str, str], tools: Path = tools, **more: str) -> dict[str, str]:
        found = {name: environment[name] for name in variables}
        return found | {"PATH": f"{tools}:{os.environ['PATH']}"} | more

    def with_command(name: str, text: str) -> dict[str, str]:
        return given(usual, program(folder / name, "envdoctor", text).parent)

    preload = {"LD_PRELOAD": str(clock_library(folder)), "CLOCK_AHEAD": "90"}
    hosts = [
        *(Host(f"node{number:02d}", variables=given(usual)) for number in range(1, 6)),
        Host("driver", variables=given(odd)),
        Host("clock", variables=given(usual, **preload)),
        Host("mtu", mtu=1400, variables=given(usual)),
        Host("hangs", variables=with_command("hangs-bin", SLOW)),
        Host("shell", forced="sleep 300"),
        Host("garbage", variables=with_command("garbage-bin", GARBAGE)),
        Host("half", variables=with_command("half-bin", HALF)),
        Host("flood", variables=with_command("flood-bin", FLOOD)),
        Host("locked", refuses_the_key=True),
        Host("impostor", other_host_key=True),
        Host("closed", listens=False),
        Host("bare", variables={"PATH": "/usr/bin:/bin", "PYTHONPATH": ""}),
    ]
    with network_of(hosts, folder) as network:
        yield network


def check(fleet: Network, hosts: str, home: Path, *more: str) -> dict[str, Any]:
    done = envdoctor(
        "fleet",
        "check",
        "--hosts",
        hosts,
        "--ssh-config",
        fleet.config,
        "--hub",
        "",
        "--format",
        "json",
        *more,
        home=home,
    )
    assert "Traceback" not in done.stderr
    return envelope(done)


def told(answer: dict[str, Any], *ids: str) -> str:
    return "\n".join(f"{one['id']} {one['message']}" for one in answer["data"]["findings"] if one["id"] in ids)


def errors(answer: dict[str, Any]) -> list[str]:
    return [one["id"] for one in answer["data"]["findings"] if one["status"] == "error"]


def test_hosts_that_are_alike_are_one_line(fleet: Network, tmp_path: Path) -> None:
    answer = check(fleet, "node[01-03]", tmp_path)
    assert answer["exit_code"] == 0, answer["data"]["findings"]
    assert [(group["nodes"], group["count"]) for group in answer["data"]["groups"]] == [("node[01-03]", 3)]
    assert answer["data"]["common"]["driver"] == DRIVER
    assert answer["data"]["common"]["MTU of eth0"] == "1500"
    assert all(abs(clock["offset"]) < 1 for clock in answer["data"]["clocks"].values())


@pytest.mark.parametrize(
    ("odd", "identifier", "words"),
    [
        ("driver", "FLT010", ["550.54.15 on driver", f"expected {DRIVER} as on 2 nodes"]),
        ("mtu", "FLT032", ["MTU of eth0: 1400 on mtu", "expected 1500"]),
        ("hangs", "FLT001", ["hangs did not answer, deadline", "`envdoctor check` did not end on the node within"]),
        ("shell", "FLT001", ["shell did not answer, deadline", "nothing came"]),
        ("garbage", "FLT002", ["garbage answered what cannot be read", "printed no JSON"]),
        ("half", "FLT002", ["half answered what cannot be read", "broke off within its JSON"]),
        ("flood", "FLT002", ["flood answered what cannot be read, flood", "printed over 8 MiB"]),
        ("locked", "FLT001", ["locked did not answer, permission", "Permission denied (publickey)"]),
        ("impostor", "FLT001", ["impostor did not answer, host key"]),
        ("closed", "FLT001", ["closed did not answer, refused", "Connection refused"]),
        ("nowhere.invalid", "FLT001", ["nowhere.invalid did not answer, unknown host"]),
    ],
)
def test_the_odd_host_is_named_with_what_it_has(
    fleet: Network, tmp_path: Path, odd: str, identifier: str, words: list[str]
) -> None:
    answer = check(fleet, f"node01,node02,{odd}", tmp_path, "--deadline", "6")
    assert answer["exit_code"] == 1
    assert errors(answer) == [identifier]
    for word in words:
        assert word in told(answer, identifier)
    assert answer["data"]["seconds"] < 12


def test_a_clock_that_is_off_is_found_with_how_exactly_it_is_known(fleet: Network, tmp_path: Path) -> None:
    answer = check(fleet, "node01,node02,clock", tmp_path)
    assert errors(answer) == ["FLT030"]
    clock = answer["data"]["clocks"]["clock"]
    assert abs(clock["offset"] - 90) <= clock["uncertainty"] + 1
    assert 0 < clock["uncertainty"] < 1.5
    assert "clock by +" in told(answer, "FLT030")


def test_two_against_two_have_no_majority(fleet: Network, tmp_path: Path) -> None:
    answer = check(fleet, "node01,driver", tmp_path)
    assert "driver: no majority, 2 different values" in told(answer, "FLT010")


def test_a_host_without_envdoctor_tells_what_a_probe_can(fleet: Network, tmp_path: Path) -> None:
    answer = check(fleet, "node01,node02,bare", tmp_path)
    assert "bare: envdoctor is not there" in told(answer, "FLT003"), answer["data"]
    assert answer["data"]["common"]["MTU of eth0"] == "1500"
    assert answer["exit_code"] == 0


def test_ctrl_c_ends_it_at_once_and_leaves_no_ssh(fleet: Network, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "envdoctor", "fleet", "check", "--hosts", "node01,shell", "--hub", ""]
    with subprocess.Popen(
        [*argv, "--ssh-config", str(fleet.config)], env=environment(tmp_path), cwd=tmp_path
    ) as child:
        time.sleep(4)
        child.send_signal(signal.SIGINT)
        assert child.wait(10) == 130
    listed = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            listed.append(path.read_bytes())
    assert not [line for line in listed if line.startswith(b"ssh\0") and str(fleet.config).encode() in line]


def test_every_fault_at_once_keeps_the_deadline(fleet: Network, tmp_path: Path) -> None:
    every = "node[01-05],driver,clock,mtu,hangs,shell,garbage,half,flood,locked,impostor,closed,nowhere.invalid"
    answer = check(fleet, every, tmp_path, "--deadline", "20", "--save", str(tmp_path / "saved"))
    assert answer["data"]["nodes"] == 17
    assert answer["data"]["answered"] == 8
    assert sorted(set(errors(answer))) == ["FLT001", "FLT002", "FLT010", "FLT030", "FLT032"]
    assert answer["data"]["seconds"] < 40
    again = envelope(envdoctor("fleet", "check", "--recorded", tmp_path / "saved", "--format", "json", home=tmp_path))
    assert errors(again) == ["FLT010", "FLT030", "FLT032"]
