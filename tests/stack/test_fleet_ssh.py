"""`fleet check --hosts` on network namespaces with an sshd each, with one fault each."""

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
from support.command import envdoctor, envelope, environment
from support.fakenvml.fixture import FakeNvml, machine_ini
from support.fleet_hosts import (
    Host,
    Network,
    clock_library,
    skip_reason,
    start_network,
    write_envdoctor,
    write_program,
)

SKIP_REASON = skip_reason()
pytestmark = [pytest.mark.stack, pytest.mark.skipif(bool(SKIP_REASON), reason=SKIP_REASON or "available")]

DRIVER = "570.133.20"
SLOW = "#!/bin/sh\nsleep 300\n"
GARBAGE = "#!/bin/sh\necho 'Segmentation fault'\n"
INCOMPLETE = """#!/bin/sh\nprintf '{"schema": 1, "command": "check", "data": {"machine": {"sys'\n"""
FLOOD = "#!/bin/sh\nexec yes envdoctor\n"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, fake_nvml: FakeNvml) -> Iterator[Network]:
    """Hosts of which five have no fault and each other has one."""
    folder = tmp_path_factory.mktemp("hosts")
    tools = write_envdoctor(folder / "tools")
    variables = ("LD_LIBRARY_PATH", "FAKE_NVML_CONFIG")
    usual, odd = (
        fake_nvml(machine_ini("h200", "[system]", f"driver_version = {version}", f"nvml_version = 13.{version}"))
        for version in (DRIVER, "550.54.15")
    )

    def session(environment: dict[str, str], tools: Path = tools, **more: str) -> dict[str, str]:
        nvml = {name: environment[name] for name in variables}
        return nvml | {"PATH": f"{tools}:{os.environ['PATH']}"} | more

    def with_command(name: str, text: str) -> dict[str, str]:
        return session(usual, write_program(folder / name, "envdoctor", text).parent)

    preload = {"LD_PRELOAD": str(clock_library(folder)), "CLOCK_AHEAD": "90"}
    hosts = [
        *(Host(f"node{number:02d}", variables=session(usual)) for number in range(1, 6)),
        Host("driver", variables=session(odd)),
        Host("clock", variables=session(usual, **preload)),
        Host("mtu", mtu=1400, variables=session(usual)),
        Host("hangs", variables=with_command("hangs-bin", SLOW)),
        Host("shell", forced_command="sleep 300"),
        Host("garbage", variables=with_command("garbage-bin", GARBAGE)),
        Host("half", variables=with_command("half-bin", INCOMPLETE)),
        Host("flood", variables=with_command("flood-bin", FLOOD)),
        Host("locked", rejects_key=True),
        Host("impostor", other_host_key=True),
        Host("closed", listens=False),
        Host("bare", variables={"PATH": "/usr/bin:/bin", "PYTHONPATH": ""}),
    ]
    with start_network(hosts, folder) as network:
        yield network


def check(fleet: Network, hosts: str, home: Path, *options: str) -> dict[str, Any]:
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
        *options,
        home=home,
    )
    assert "Traceback" not in done.stderr
    return envelope(done)


def messages(document: dict[str, Any], *ids: str) -> str:
    findings = document["data"]["findings"]
    return "\n".join(f"{finding['id']} {finding['message']}" for finding in findings if finding["id"] in ids)


def errors(document: dict[str, Any]) -> list[str]:
    return [finding["id"] for finding in document["data"]["findings"] if finding["status"] == "error"]


def test_equal_hosts_are_one_group(fleet: Network, tmp_path: Path) -> None:
    document = check(fleet, "node[01-03]", tmp_path)
    assert document["exit_code"] == 0, document["data"]["findings"]
    assert [(group["nodes"], group["count"]) for group in document["data"]["groups"]] == [("node[01-03]", 3)]
    assert document["data"]["common"]["driver"] == DRIVER
    assert document["data"]["common"]["MTU of eth0"] == "1500"
    assert all(abs(clock["offset"]) < 1 for clock in document["data"]["clocks"].values())


@pytest.mark.parametrize(
    ("odd", "identifier", "parts"),
    [
        ("driver", "FLT010", ["550.54.15 on driver", f"expected {DRIVER} as on 2 nodes"]),
        ("mtu", "FLT032", ["MTU of eth0: 1400 on mtu", "expected 1500"]),
        ("hangs", "FLT001", ["hangs did not respond, deadline", "`envdoctor check` did not end on the node within"]),
        ("shell", "FLT001", ["shell did not respond, deadline", "it printed nothing"]),
        ("garbage", "FLT002", ["garbage sent an unreadable report", "printed no JSON"]),
        ("half", "FLT002", ["half sent an unreadable report", "printed incomplete JSON"]),
        ("flood", "FLT002", ["flood sent an unreadable report, flood", "printed over 8 MiB"]),
        ("locked", "FLT001", ["locked did not respond, permission", "Permission denied (publickey)"]),
        ("impostor", "FLT001", ["impostor did not respond, host key"]),
        ("closed", "FLT001", ["closed did not respond, refused", "Connection refused"]),
        ("nowhere.invalid", "FLT001", ["nowhere.invalid did not respond, unknown host"]),
    ],
)
def test_differing_host_is_reported(
    fleet: Network, tmp_path: Path, odd: str, identifier: str, parts: list[str]
) -> None:
    document = check(fleet, f"node01,node02,{odd}", tmp_path, "--deadline", "6")
    assert document["exit_code"] == 1
    assert errors(document) == [identifier]
    for part in parts:
        assert part in messages(document, identifier)
    assert document["data"]["seconds"] < 12


def test_clock_offset_is_measured_with_its_uncertainty(fleet: Network, tmp_path: Path) -> None:
    document = check(fleet, "node01,node02,clock", tmp_path)
    assert errors(document) == ["FLT030"]
    clock = document["data"]["clocks"]["clock"]
    assert abs(clock["offset"] - 90) <= clock["uncertainty"] + 1
    assert 0 < clock["uncertainty"] < 1.5
    assert "clock by +" in messages(document, "FLT030")


def test_one_against_one_has_no_majority(fleet: Network, tmp_path: Path) -> None:
    document = check(fleet, "node01,driver", tmp_path)
    assert "driver: no majority, 2 different values" in messages(document, "FLT010")


def test_host_without_envdoctor_reports_the_probe(fleet: Network, tmp_path: Path) -> None:
    document = check(fleet, "node01,node02,bare", tmp_path)
    assert "bare: envdoctor is not installed" in messages(document, "FLT003"), document["data"]
    assert document["data"]["common"]["MTU of eth0"] == "1500"
    assert document["exit_code"] == 0


def test_ctrl_c_stops_all_ssh_processes(fleet: Network, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "envdoctor", "fleet", "check", "--hosts", "node01,shell", "--hub", ""]
    with subprocess.Popen(
        [*argv, "--ssh-config", str(fleet.config)], env=environment(tmp_path), cwd=tmp_path
    ) as child:
        time.sleep(4)
        child.send_signal(signal.SIGINT)
        assert child.wait(10) == 130
    command_lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            command_lines.append(path.read_bytes())
    assert not [line for line in command_lines if line.startswith(b"ssh\0") and str(fleet.config).encode() in line]


def test_all_faults_together_keep_the_deadline(fleet: Network, tmp_path: Path) -> None:
    hosts = "node[01-05],driver,clock,mtu,hangs,shell,garbage,half,flood,locked,impostor,closed,nowhere.invalid"
    document = check(fleet, hosts, tmp_path, "--deadline", "20", "--save", str(tmp_path / "saved"))
    assert document["data"]["nodes"] == 17
    assert document["data"]["documented"] == 8
    assert sorted(set(errors(document))) == ["FLT001", "FLT002", "FLT010", "FLT030", "FLT032"]
    assert document["data"]["seconds"] < 40
    replayed = envelope(
        envdoctor("fleet", "check", "--recorded", tmp_path / "saved", "--format", "json", home=tmp_path)
    )
    assert errors(replayed) == ["FLT010", "FLT030", "FLT032"]
