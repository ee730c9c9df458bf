"""Remedies of fleet findings: they name the node, examine it first, and change only what the majority has right."""

from __future__ import annotations

from support.cases import each_case
from test_fleet import compare, node

from envdoctor import __version__
from envdoctor.core.distribution import DISTRIBUTION
from envdoctor.fleet.ranks import RankState
from envdoctor.fleet.records import NodeReport
from envdoctor.fleet.verdict import Ending, build_result


@each_case(
    ("nodes", "odd", "identifier", "commands"),
    [
        (
            "abc",
            {"interfaces": {"eth0": {"mtu": "1500", "state": "up"}}},
            "FLT032",
            ("ssh x ip link show dev eth0", "ssh x sudo ip link set dev eth0 mtu 9000"),
        ),
        ("a", {"interfaces": {"eth0": {"mtu": "1500", "state": "up"}}}, "FLT032", ("ssh x ip link show dev eth0",)),
        ("abc", {"shm": {"total": 64 << 20}}, "FLT035",
         ("ssh x df -h /dev/shm", "ssh x sudo mount -o remount,size=64G /dev/shm")),
    ],
)  # fmt: skip
def test_a_node_is_examined_before_it_is_changed(
    nodes: str, odd: dict[str, object], identifier: str, commands: tuple[str, ...]
) -> None:
    findings = compare(*(node(name) for name in nodes), node("x", probe=odd)).findings()
    (remedy,) = next(finding.remedies for finding in findings if finding.id == identifier)
    assert [command.replace("ssh a ", "ssh x ") for command in remedy.commands] == list(commands)


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
    for method, starter in (("ssh", "ssh {} "), ("slurm", "srun --nodelist={} "), ("local", "")):
        found = build_result(method, ["a", "b"], 1, states, ending, 1.0).findings
        examined = [remedy.commands for finding in found for remedy in finding.remedies]
        examine = ("ps -o pid,stat,wchan:20,etime,args -p 7", "sudo py-spy dump --pid 7")
        assert examined == [
            tuple(starter.format("a") + command for command in examine),
            (starter.format("b") + "pgrep -af torchrun",),
        ]
