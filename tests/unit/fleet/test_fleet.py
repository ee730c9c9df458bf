"""`fleet check` on recorded nodes: findings, groups, time and memory; and invalid options."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.cases import each_case
from support.command import envdoctor, envelope, environment
from support.paths import ROOT
from support.recorded_results import assert_as_recorded
from support.remedies import commands_of

from envdoctor.core.errors import BadInput
from envdoctor.core.records import STACK_SCHEMA
from envdoctor.fleet.check import parse_sinfo
from envdoctor.fleet.comparison import FleetComparison
from envdoctor.fleet.failures import classify_failure
from envdoctor.fleet.host_list import format_host_list, parse_host_list
from envdoctor.fleet.node_facts import extract_facts, format_infiniband, read_facts
from envdoctor.fleet.node_output import NodeOutputParser, decode_report
from envdoctor.fleet.records import Clock, NodeReport
from envdoctor.fleet.transport import ProbeRequest, ssh_argv

MACHINE = json.loads((ROOT / "tests/data/machines/h100x8.json").read_text())
PORTS = {"mlx5_0/1": {"state": "4: ACTIVE", "rate": "400 Gb/sec (4X NDR)", "link_layer": "InfiniBand"}}

OTHER_PYTHONS = sorted(path for path in Path.home().glob(".pyenv/versions/3.*/bin/python3") if "3.6" not in str(path))
MEASURE_MEMORY = """
import sys
from pathlib import Path
from envdoctor.cli.application import run
try:
    sys.exit(run(sys.argv[1:]))
finally:  # VmHWM covers only this program; getrusage includes the process that forked it
    lines = Path("/proc/self/status").read_text().splitlines()
    print(next(line for line in lines if "VmHWM" in line), file=sys.stderr)
"""


def known(value: object) -> dict[str, object]:
    return {"value": value, "source": "test"}


def stack(**versions: str) -> dict[str, Any]:
    packages = {"torch": "2.8.0", "nvidia-nccl-cu12": "2.27.3", "numpy": "2.1.0"} | {
        name.replace("_", "-"): version for name, version in versions.items()
    }
    return {
        "schema": STACK_SCHEMA,
        "python_version": known("3.12.3"),
        "distributions": known({name: {"name": name, "version": version} for name, version in packages.items()}),
        "torch": known({"version": known(packages["torch"] + "+cu128")}),
    }


def node(name: str, *changes: tuple[str, object], probe: dict[str, Any] | None = None, **more: Any) -> NodeReport:
    """Return the report of a node like the others, with changes by their path in the machine."""
    machine = copy.deepcopy(MACHINE)
    for path, value in changes:
        target = machine
        *parents, last = path.split(".")
        for part in parents:
            target = target["value"] if isinstance(target, dict) and "value" in target else target
            target = target[int(part)] if isinstance(target, list) else target[part]
        nested = isinstance(target, list | dict) and last not in target and "value" in target
        target = target["value"] if nested else target
        target[last] = value
    data = {"machine": machine, "stack": more.pop("stack", stack()), "findings": more.pop("findings", [])}
    facts = {
        "interfaces": {"eth0": {"mtu": "9000", "state": "up", "speed": "100000"}, "veth1a": {"mtu": "1500"}},
        "infiniband": PORTS, "limits": {"memlock": -1, "nofile": 65536, "stack": 8388608},
        "shm": {"total": 64 << 30, "free": 60 << 30}, "hf_home": {"total": 1 << 42, "free": 1 << 41},
        "hub": "reached", "names": {"a": ["10.0.0.1"]}, "kernel": "6.8.0",
    }  # fmt: skip
    return NodeReport(
        node=name, probe=facts | (probe or {}), check={"envdoctor": "0.1.0", "command": "check", "data": data}, **more
    )


def compare(*reports: NodeReport) -> FleetComparison:
    comparison = FleetComparison("ssh")
    for report in reports:
        comparison.add(report, extract_facts(report))
    return comparison


def messages(comparison: FleetComparison) -> list[tuple[str, str]]:
    return [(finding.id, finding.message) for finding in comparison.findings()]


def test_equal_nodes_have_no_findings() -> None:
    comparison = compare(node("a"), node("b"), node("c"))
    assert messages(comparison) == []
    assert [(group.nodes, group.differences) for group in comparison.groups()] == [("a,b,c", {})]


DIFFERENCES: list[tuple[NodeReport, str, str]] = [
    (
        node("x", ("driver.version", known("550.54"))),
        "FLT010",
        "driver: 550.54 on x; expected 570.133.20 as on 3 nodes",
    ),
    (node("x", ("driver.cuda", known("12.4"))), "FLT011", "CUDA of the driver: 12.4 on x"),
    (node("x", ("gpus.0.name", known("NVIDIA H100 PCIe"))), "FLT012", "1 x NVIDIA H100 PCIe"),
    (node("x", ("gpus.3.ecc_uncorrected", known(2))), "FLT013", "x: GPU 3 has 2 uncorrected ECC errors"),
    (node("x", ("gpus.3.throttle_reasons", known(["hw_thermal_slowdown"]))), "FLT014", "hw_thermal_slowdown"),
    (node("x", probe={"xids": {"0000:17:00": [13, 79]}}), "FLT015", "x: the GPU at 0000:17:00 has logged Xid 79"),
    (node("x", ("gpus.0.persistence", known(False))), "FLT016", "GPU persistence"),
    (node("x", stack={}), "FLT020", "environment: none on x; expected found"),
    (node("x", stack=stack() | {"python_version": known("3.11.9")}), "FLT021", "python: 3.11.9 on x"),
    (node("x", stack=stack(torch="2.7.1")), "FLT022", "torch: 2.7.1+cu128 on x; expected 2.8.0+cu128"),
    (node("x", stack=stack(nvidia_nccl_cu12="2.26.2")), "FLT023", "NCCL: 2.26.2 on x; expected 2.27.3"),
    (node("x", stack=stack(numpy="2.2.0")), "FLT025", "(numpy 2.2.0 against 2.1.0)"),
    (
        node("x", probe={"interfaces": {"ens3": {"mtu": "9000"}}}),
        "FLT031",
        "interfaces: ens3 on x; expected eth0",
    ),
    (
        node("x", probe={"interfaces": {"eth0": {"mtu": "1500", "state": "up", "speed": "100000"}}}),
        "FLT032",
        "MTU of eth0: 1500 on x; expected 9000",
    ),
    (
        node("x", probe={"interfaces": {"eth0": {"mtu": "9000", "state": "down"}}}),
        "FLT033",
        "link of eth0: down on x",
    ),
    (
        node("x", probe={"infiniband": {}}),
        "FLT034",
        "InfiniBand: none on x; expected mlx5_0/1 ACTIVE 400 Gb/sec (4X NDR)",
    ),
    (node("x", probe={"shm": {"total": 64 << 20}}), "FLT035", "/dev/shm: 0 GiB on x; expected 64 GiB"),
    (
        node("x", probe={"limits": {"memlock": 65536, "nofile": 65536, "stack": 8388608}}),
        "FLT036",
        "ulimit memlock: 65536 on x; expected unlimited",
    ),
    (node("x", probe={"hf_home": {"free": 3 << 30}}), "FLT037", "disk space for models: 3 GiB free on x"),
    (node("x", probe={"hub": "not reached: timed out"}), "FLT038", "hub: not reached on x; expected reached"),
    (
        node("x", probe={"names": {"a": ["127.0.1.1"]}}),
        "FLT039",
        "address of a: 127.0.1.1 on x; expected 10.0.0.1",
    ),
    (node("x", clock=Clock(31.0, 0.2)), "FLT030", "clock: x by +30.9 ± 0.20 s off the median of 4 nodes"),
    (
        node("x", findings=[{"id": "DRV001", "cause": "driver-too-old", "status": "error", "message": "old"}]),
        "DRV001",
        "x: old",
    ),
    (
        NodeReport(node="x", failure="deadline", message="no report within 60 s"),
        "FLT001",
        "x did not respond, deadline",
    ),
]


@each_case(("odd", "identifier", "message"), DIFFERENCES)
def test_differing_node_is_reported(odd: NodeReport, identifier: str, message: str) -> None:
    others = [node(name, clock=Clock(0.1, 0.2)) for name in "abc"]
    findings = {finding.id: finding for finding in compare(*others, odd).findings()}
    assert message in findings[identifier].message
    assert commands_of(findings[identifier])
    assert " x" in findings[identifier].message or findings[identifier].message.startswith("x")


def test_findings_are_as_recorded() -> None:
    others = [node(name, clock=Clock(0.1, 0.2)) for name in "abc"]
    found = {f"{number} {identifier}": [] for number, (_, identifier, _) in enumerate(DIFFERENCES)}
    for name, (odd, _, _) in zip(found, DIFFERENCES, strict=True):
        found[name] = compare(*others, odd).findings()
    assert_as_recorded("fleet", found)


def test_two_against_two_has_no_majority() -> None:
    comparison = compare(
        *(node(name) for name in "ab"), *(node(name, ("driver.version", known("550.54"))) for name in "cd")
    )
    assert messages(comparison) == [
        ("FLT010", "driver: no majority, 2 different values: 570.133.20 on a,b; 550.54 on c,d; expected one on all")
    ]
    assert "driver" not in comparison.common()


def test_clock_offset_within_its_uncertainty_is_accepted() -> None:
    others = [node(name, clock=Clock(0.0, 0.1)) for name in "abc"]
    assert messages(compare(*others, node("x", clock=Clock(1.4, 0.6)))) == []
    reported = messages(compare(*others, node("x", clock=Clock(1.8, 0.6))))
    assert [identifier for identifier, _ in reported] == ["FLT030"]


def test_wrong_local_clock_has_no_findings() -> None:
    assert messages(compare(*(node(name, clock=Clock(-3600.0, 0.1)) for name in "abc"))) == []


def test_hub_not_reached_on_all_nodes_is_reported() -> None:
    comparison = compare(*(node(name, probe={"hub": "not reached: no route"}) for name in "ab"))
    assert messages(comparison) == [("FLT038", "hub: not reached on all of 2 nodes")]


@each_case(
    ("fields", "failure"),
    [
        ({}, None),
        ({"check": {"data": {"machine": {"driver": 5, "gpus": {"value": [1, {"name": "x"}]}}}}}, "garbage"),
        ({"check": {"data": {"machine": {}, "stack": {"torch": 1}}}}, "garbage"),
        (
            {"probe": {"interfaces": {"eth0": 3}, "limits": {"memlock": "x"}, "xids": [1], "infiniband": {"a": {}}}},
            None,
        ),
    ],
)
def test_report_of_unexpected_structure(fields: dict[str, Any], failure: str | None) -> None:
    report, facts = read_facts(msgspec.convert({"node": "x"} | fields, NodeReport))
    assert report.failure == failure
    FleetComparison("ssh").add(report, facts)


def test_host_lists_are_formatted_and_parsed() -> None:
    names = [f"node{number:03d}" for number in range(1, 1000) if number != 500] + [
        "node1000",
        "login",
        "10.0.0.7",
        "10.0.0.8",
    ]
    formatted = format_host_list(names)
    assert formatted == "10.0.0.7,10.0.0.8,login,node1000,node[001-499,501-999]"
    assert sorted(parse_host_list(formatted, where="x")) == sorted(names)
    assert parse_host_list("node[8-10,12,007]", where="x") == ["node8", "node9", "node10", "node12", "node007"]
    assert format_host_list(["gpu9-ib", "gpu10-ib", "gpu11-ib"]) == "gpu[9-11]-ib"


@pytest.mark.parametrize(
    "text",
    ["-oProxyCommand=touch /tmp/x", "a,-v", "node[3-1]", "node[a]", "a;b", "$(id)", "", "  ", "a[1-999999999]"],
)
def test_invalid_host_lists_are_rejected(text: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        parse_host_list(text, where="--hosts")
    (tmp_path / "hosts").write_text(text)
    done = envdoctor("fleet", "check", "--hosts-file", "hosts", home=tmp_path)
    assert done.returncode == 2
    assert "error:" in done.stderr


def test_ssh_has_no_prompts_and_options_end_before_the_host() -> None:
    argv = ssh_argv("node1", ProbeRequest(), "true")
    assert argv[-3:] == ["--", "node1", "true"]
    assert "BatchMode=yes" in argv


@each_case(
    ("text", "kind"),
    [
        ("ssh: Could not resolve hostname x: Name or service not known", "unknown host"),
        ("ssh: connect to host x port 22: Connection refused", "refused"),
        ("ssh: connect to host x port 22: Connection timed out", "unreachable"),
        ("root@x: Permission denied (publickey).", "permission"),
        ("@@@@\n@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.", "host key"),
        ("bash: line 1: python3: command not found", "no python"),
        ("sh: 1: exec: python3: not found", "no python"),
    ],
)
def test_classify_failure(text: str, kind: str) -> None:
    found = classify_failure(f"Welcome to x\n{text}\n")
    assert found
    assert found[0] == kind


@each_case(
    "text", ["", "!!!", "eJw=", "bm90aGluZw==", "eJyrVkrOSM3JyVeyUsgqzs9T0FFKLC5JBADS4Qgd", "eJwrSSwuAQAEXQHB"]
)
def test_unreadable_report_is_a_failure(text: str) -> None:
    assert decode_report(text, "x", None, "envdoctor", 10).failure == "garbage"


def test_decompression_bomb_is_rejected() -> None:
    import base64
    import zlib

    text = base64.b64encode(zlib.compress(b"0" * (200 << 20), 9)).decode()
    assert decode_report(text, "x", None, "envdoctor", 10).failure == "flood"


def test_clock_bounds_narrow_with_each_line() -> None:
    parser = NodeOutputParser(started=100.0)
    parser.feed("motd\nenvdoctor-fleet clock x 190.5\nenvdoctor-fleet cl", 101.0)
    assert parser.clock("x") == Clock(90.0, 0.5)
    parser.feed("ock x 190.9\n", 101.0)
    assert parser.clock("x") == Clock(90.2, 0.3)


def test_format_infiniband_and_parse_sinfo() -> None:
    assert format_infiniband(PORTS) == "mlx5_0/1 ACTIVE 400 Gb/sec (4X NDR)"
    assert parse_sinfo("n1 idle\nn2 down*\nn1 idle\n") == {"n1": "idle", "n2": "down*"}


def test_probe_reads_infiniband_and_xids(tmp_path: Path) -> None:
    import importlib.util

    spec = importlib.util.spec_from_file_location("fleet_node", ROOT / "envdoctor/probes/fleet/node.py")
    assert spec
    assert spec.loader
    probe = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(probe)
    port = tmp_path / "mlx5_0/ports/1"
    port.mkdir(parents=True)
    for name, text in {"state": "1: DOWN\n", "rate": "10 Gb/sec (4X SDR)\n", "link_layer": "InfiniBand\n"}.items():
        (port / name).write_text(text)
    assert format_infiniband(probe.read_infiniband(str(tmp_path))) == "mlx5_0/1 DOWN 10 Gb/sec (4X SDR)"
    line = "[ 12.3] NVRM: Xid (PCI:0000:17:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
    assert probe.read_xids(line * 2) == {"0000:17:00": [79]}


@each_case("python", [Path(sys.executable), *OTHER_PYTHONS], ids=lambda path: path.parent.parent.name)
def test_probe_runs_with_each_installed_python(python: Path) -> None:
    request = ProbeRequest(command=("/nowhere/envdoctor",), deadline=10, peers=("localhost", "n1"))
    done = subprocess.run([python, "-"], input=request.program("n1"), capture_output=True, check=True, timeout=60)
    parser = NodeOutputParser(started=time.time())
    assert parser.feed(done.stdout.decode(), time.time()) == ["n1"]
    report = parser.pop_report("n1", "n1", "envdoctor", 10)
    assert report.failure is None
    assert report.message.startswith("envdoctor is not installed: /nowhere/envdoctor")
    assert "127.0.0.1" in report.probe["names"]["localhost"]
    assert extract_facts(report).facts["ulimit nofile"]


def write_nodes(folder: Path, count: int) -> None:
    """Write recorded nodes, three of which have a fault."""
    folder.mkdir()
    data = msgspec.json.encode(node("x").check)
    for number in range(1, count + 1):
        (folder / f"node{number:04d}.json").write_bytes(data)
    (folder / "node0007.json").write_bytes(
        msgspec.json.encode(node("x", ("driver.version", known("550.54.15"))).check)
    )
    (folder / "node0500.json").write_bytes(data[: len(data) // 2])
    (folder / "node0999.json").write_bytes(msgspec.json.encode(node("x", stack=stack(torch="2.7.1")).check))


def test_a_thousand_recorded_nodes_need_seconds_and_little_memory(tmp_path: Path) -> None:
    write_nodes(tmp_path / "nodes", 1000)
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", MEASURE_MEMORY, "fleet", "check", "--recorded", "nodes"],
        capture_output=True, text=True, cwd=tmp_path, env=environment(tmp_path), timeout=300, check=False,
    )  # fmt: skip
    assert time.monotonic() - start < 20
    assert done.returncode == 1
    assert int(done.stderr.split()[-2]) < 100 * 1024
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("node[")]
    assert rows[0][:2] == ["node[0001-0006,0008-0499,0501-0998,1000]", "997"]
    for word in ("550.54.15 on node0007", "node0500 sent an unreadable report", "2.7.1+cu128 on node0999"):
        assert word in " ".join(done.stdout.split())


@pytest.mark.parametrize("form", ["json", "github", "sarif"])
def test_each_format_reports_the_differing_node(form: str, tmp_path: Path) -> None:
    write_nodes(tmp_path / "nodes", 3)
    done = envdoctor("fleet", "check", "--recorded", "nodes", "--format", form, home=tmp_path)
    assert done.returncode == 1
    assert "FLT010" in done.stdout
    assert "550.54.15 on node0007" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        [], ["--hosts", "a", "--slurm"], ["--hosts", "a", "--deadline", "0"], ["--hosts", "a", "--parallel", "0"],
        ["--hosts", "a", "--command", "'"], ["--recorded", "nowhere"], ["--hosts-file", "nowhere"],
        ["--hosts", "a", "--ssh-config", "nowhere"], ["--hosts", "a", "--venv", "v", "--python", "p"],
        ["--recorded", ".", "--save", "x"], ["--hosts", "a", "--nodelist", "b"], ["--hosts", "a", "--partition", "b"],
        ["--recorded", ".", "--address", "a:1"], ["--hosts", "a", "--ray-python", "b"],
        ["--slurm", "--ssh-config", "c"], ["--ray", "--ray-python", "nowhere"],
    ],
)  # fmt: skip
def test_invalid_options_are_rejected(arguments: list[str], tmp_path: Path) -> None:
    done = envdoctor("fleet", "check", *arguments, home=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "expected:" in done.stderr
    assert "hint:" in done.stderr


def test_missing_ssh_and_slurm(tmp_path: Path) -> None:
    done = envdoctor("fleet", "check", "--slurm", home=tmp_path, PATH="/nonexistent")
    assert done.returncode == 3
    assert "cannot start sinfo" in done.stderr
    assert "hint: command -v sinfo" in done.stderr
    document = envelope(
        envdoctor("fleet", "check", "--hosts", "a", "--format", "json", home=tmp_path, PATH="/nonexistent")
    )
    assert "cannot start ssh" in document["data"]["findings"][0]["message"]
