"""Remedies of fleet findings: they name the node, examine it first, and change only what the majority has right."""

from __future__ import annotations

import shlex

import msgspec
from support.cases import each_case
from test_fleet import compare, node

from envdoctor import __version__
from envdoctor.core.program import DISTRIBUTION
from envdoctor.core.remedies import Install, either, remedy_of
from envdoctor.fleet.ranks import RankState
from envdoctor.fleet.records import NodeReport, on_node
from envdoctor.fleet.verdict import Ending, build_result


@each_case(
    ("nodes", "odd", "identifier", "commands"),
    [
        (
            "abc",
            {"interfaces": {"eth0": {"mtu": "1500", "state": "up"}}},
            "FLT032",
            ("ssh x ip link show dev eth0", "ssh -t x sudo ip link set dev eth0 mtu 9000"),
        ),
        ("a", {"interfaces": {"eth0": {"mtu": "1500", "state": "up"}}}, "FLT032", ("ssh x ip link show dev eth0",)),
        ("abc", {"shm": {"total": 64 << 20}}, "FLT035",
         ("ssh x df -h /dev/shm", "ssh -t x sudo mount -o remount,size=64G /dev/shm")),
    ],
)  # fmt: skip
def test_a_node_is_examined_before_it_is_changed(
    nodes: str, odd: dict[str, object], identifier: str, commands: tuple[str, ...]
) -> None:
    findings = compare(*(node(name) for name in nodes), node("x", probe=odd)).findings()
    (remedy,) = next(finding.remedies for finding in findings if finding.id == identifier)
    assert [command.replace(" a ", " x ") for command in remedy.commands] == list(commands)


def test_nothing_is_changed_to_the_value_of_a_faulty_majority() -> None:
    small = {"shm": {"total": 64 << 20}, "interfaces": {"eth0": {"mtu": "9000", "state": "down"}}}
    findings = compare(*(node(name, probe=small) for name in "abc"), node("x")).findings()
    for identifier, command in (("FLT035", "ssh x df -h /dev/shm"), ("FLT033", "ssh x ip link show dev eth0")):
        (remedy,) = next(finding.remedies for finding in findings if finding.id == identifier)
        assert remedy.commands == (command,)


def test_the_missing_envdoctor_is_installed_in_the_version_of_this_one() -> None:
    findings = compare(node("a"), NodeReport(node="x", message="no envdoctor", probe={"hostname": "x"})).findings()
    (remedy,) = next(finding.remedies for finding in findings if finding.id == "FLT003")
    assert remedy.commands == (f"ssh x uv tool install {DISTRIBUTION}=={__version__}",)


def test_commands_of_a_collective_start_as_the_job_did() -> None:
    ending = Ending("stalled", {0: "silent", 1: "missing"}, {}, {}, 2)
    states = {0: RankState(rank=0, phase="barrier", step=1, pid=7)}
    for method, starter, terminal in (
        ("ssh", "ssh {} ", "ssh -t {} "),
        ("slurm", "srun --nodelist={} ", "srun --pty --nodelist={} "),
        ("local", "", ""),
    ):
        found = build_result(method, ["a", "b"], 1, states, ending, 1.0).findings
        examined = [remedy.commands for finding in found for remedy in finding.remedies]
        assert examined == [
            (
                starter.format("a") + "ps -o pid,stat,wchan:20,etime,args -p 7",
                terminal.format("a") + "sudo py-spy dump --pid 7",
            ),
            (starter.format("b") + "pgrep -af torchrun",),
        ]


def test_commands_of_a_node_start_on_it() -> None:
    """ssh gives its words to a shell of the node, which splits them again."""
    install = Install(packages=("trl>=0.28,<0.29",), python="/v/bin/python")
    remedies = either("sudo modprobe -a nvidia", "dpkg -l | grep libcuda", "export NCCL_DEBUG=INFO")
    finding = {
        "id": "HF001", "cause": "x", "status": "error", "message": "old",
        "remedies": msgspec.to_builtins((remedy_of([install]), *remedies)),
    }  # fmt: skip
    (found,) = (each for each in compare(node("a"), node("x", findings=[finding])).findings() if each.id == "HF001")
    commands = [command for remedy in found.remedies for command in remedy.commands]
    quoted = """'uv pip install --python /v/bin/python '"'"'trl>=0.28,<0.29'"'"''"""
    assert commands == [
        f"ssh x {quoted}", "ssh -t x sudo modprobe -a nvidia", "ssh x 'dpkg -l | grep libcuda'",
        "export NCCL_DEBUG=INFO",
    ]  # fmt: skip
    assert shlex.split(shlex.split(commands[0])[2])[-1] == "trl>=0.28,<0.29"
    assert on_node("slurm", "x", "dpkg -l | grep libcuda") == "srun --nodelist=x bash -c 'dpkg -l | grep libcuda'"
