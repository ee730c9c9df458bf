"""node.py: choice of the network interface, variables and limits, and the process that it executes."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from envdoctor.training.launchers import node
from envdoctor.training.launchers.node import INFINIBAND, LOOPBACK, Interface, InterfaceError, choose_interface

ETHERNET = 1
LO = Interface("lo", True, LOOPBACK, "127.0.0.1")
ETH0 = Interface("eth0", True, ETHERNET, "10.0.0.7", default=True)
BOND = Interface("bond1", True, ETHERNET, "172.16.0.7")
IB0 = Interface("ib0", True, INFINIBAND, "192.168.5.7")
DOWN = Interface("eno2", False, ETHERNET, "10.9.9.9")
DOCKER = Interface("docker0", True, ETHERNET, "172.17.0.1")
BRIDGE = Interface("br-12ab", True, ETHERNET, "172.18.0.1", default=True)
VETH, VIRBR = Interface("veth12", True, ETHERNET, "10.1.1.1"), Interface("virbr0", True, ETHERNET, "192.168.122.1")
ROUTES = """\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
wlan0\t00000000\t0101A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0
bond1\t00000000\t010010AC\t0003\t0\t0\t100\t00000000\t0\t0\t0
eth0\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
"""
INET6 = """\
00000000000000000000000000000001 01 80 10 80       lo
fd000000000000000000000000000002 02 40 00 80     eth0
fe8000000000000000fc00fffe000001 02 40 20 80     eth0
"""


@pytest.mark.parametrize(
    ("interfaces", "own", "chosen"),
    [
        ([LO, DOCKER, ETH0, BOND], "", "eth0"),  # default route
        ([LO, ETH0, BOND], "172.16.0.7", "bond1"),  # reaches the first node
        ([LO, ETH0], "127.0.1.1", "eth0"),  # /etc/hosts maps the own name to a loopback address
        (
            [LO, DOCKER, BRIDGE, VETH, VIRBR, BOND],
            "",
            "bond1",
        ),  # never an interface of containers or virtual machines
        ([LO, IB0, BOND], "", "bond1"),  # InfiniBand comes last
        ([LO, IB0], "", "ib0"),
        ([LO, DOWN], "", "lo"),
        ([LO, DOCKER], "", "lo"),
        ([], "", ""),
    ],
)
def test_choose_interface(interfaces: list[Interface], own: str, chosen: str) -> None:
    name, reason = choose_interface(interfaces, "", own)
    assert name == chosen
    assert reason


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [("bond1", "bond1"), ("=bond1", "bond1"), ("bond", "bond1"), ("eth0,bond1", "eth0,bond1"), ("docker0", "docker0"),
     ("^docker,eth", "bond1")],
)  # fmt: skip
def test_requested_interface(wanted: str, chosen: str) -> None:
    assert choose_interface([LO, DOCKER, ETH0, BOND], wanted) == (chosen, "as requested")


@pytest.mark.parametrize("wanted", ["eth9", "=eth", "eth0,ib7", "^eth,bond,docker"])
def test_unknown_interface_is_an_error_that_lists_the_interfaces(wanted: str) -> None:
    with pytest.raises(InterfaceError, match=r"interfaces: lo, docker0, eth0, bond1"):
        choose_interface([LO, DOCKER, ETH0, BOND], wanted)


def test_default_route_has_the_lowest_metric() -> None:
    assert node.parse_default_route(ROUTES) == "bond1"
    assert node.parse_default_route(ROUTES.splitlines()[0]) == ""
    assert node.parse_default_route("") == ""


def test_interfaces_are_read_from_sysfs_and_procfs(tmp_path: Path) -> None:
    for name, flags, kind in (("lo", "0x9", "772"), ("eth0", "0x1003", "1"), ("ib7", "0x1002", "32")):
        folder = tmp_path / "sys/class/net" / name
        folder.mkdir(parents=True)
        (folder / "flags").write_text(flags + "\n")
        (folder / "type").write_text(kind + "\n")
    (tmp_path / "proc/net").mkdir(parents=True)
    route = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT"
    (tmp_path / "proc/net/route").write_text(f"{route}\neth0 00000000 010200C0 0003 0 0 0 00000000 0 0 0\n")
    (tmp_path / "proc/net/if_inet6").write_text(INET6)
    found = {each.name: each for each in node.read_interfaces(tmp_path)}
    assert (found["lo"].kind, found["lo"].up, found["lo"].is_external) == (LOOPBACK, True, False)
    assert (found["ib7"].kind, found["ib7"].up) == (INFINIBAND, False)
    assert found["eth0"].up
    assert [each.name for each in found.values() if each.default] == ["eth0"]
    assert node.parse_addresses(INET6) == {"eth0": "fd00::2"}


def test_interfaces_of_this_machine() -> None:
    lo = next(each for each in node.read_interfaces() if each.name == "lo")
    assert (lo.up, lo.kind, lo.address) == (True, LOOPBACK, "127.0.0.1")
    assert node.read_own_address("127.0.0.1") == "127.0.0.1"
    assert node.read_own_address("no-such-host.invalid") == ""


def test_network_variables_use_exact_names() -> None:
    """NCCL treats eth1 as a prefix, which matches eth10; gloo takes exact names."""
    lines = node.network_variables("eth1", "why", {})
    assert [line[:2] for line in lines] == [("NCCL_SOCKET_IFNAME", "=eth1"), ("GLOO_SOCKET_IFNAME", "eth1")]
    assert node.network_variables("eth1", "why", {"NCCL_SOCKET_IFNAME": "eth", "GLOO_SOCKET_IFNAME": "eth0"}) == []


def run_node(*arguments: str, nofile: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
    def lower() -> None:
        if nofile:
            resource.setrlimit(resource.RLIMIT_NOFILE, (nofile, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

    inherited = {
        name: value for name, value in os.environ.items() if "SOCKET_IFNAME" not in name and name != "OMP_NUM_THREADS"
    }
    return subprocess.run(
        [sys.executable, "-I", "-B", node.__file__, *arguments],
        capture_output=True, text=True, env=inherited | variables, timeout=30, check=False, preexec_fn=lower,
    )  # fmt: skip


def test_node_executes_the_command_with_its_environment() -> None:
    script = 'echo "$NCCL_SOCKET_IFNAME $GLOO_SOCKET_IFNAME $OMP_NUM_THREADS ${ROCR_VISIBLE_DEVICES-unset} $1"'
    command = ["sh", "-c", script, "sh", "at=NODE_ADDRESS"]
    done = run_node("--several", "--interface=lo", "--processes=1000", "--", *command, ROCR_VISIBLE_DEVICES="0,1")
    assert done.stdout == "=lo lo 1 unset at=127.0.0.1\n"
    printed = done.stderr.splitlines()
    assert all("  # " in line for line in printed)  # a reason on each line
    assert [word for line in printed if (word := line.split()[2].split("=")[0]) != "-n"] == [
        "ROCR_VISIBLE_DEVICES", "OMP_NUM_THREADS", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME",
    ] or "ulimit" in done.stderr  # fmt: skip


def test_user_variables_are_kept() -> None:
    script = 'echo "$NCCL_SOCKET_IFNAME $GLOO_SOCKET_IFNAME $OMP_NUM_THREADS"'
    given = {"NCCL_SOCKET_IFNAME": "l", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "7"}
    assert run_node("--several", "--processes=2", "--", "sh", "-c", script, **given).stdout == "l lo 7\n"


@pytest.mark.parametrize("given", [{"NCCL_SOCKET_IFNAME": "nope0"}, {"GLOO_SOCKET_IFNAME": "nope0"}])
def test_unknown_interface_exits_with_2(given: dict[str, str]) -> None:
    done = run_node("--several", "--", "echo", "started", **given)
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no interface nope0 on" in done.stderr
    assert " lo" in done.stderr


def test_soft_limits_are_raised_to_hard_limits() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    done = run_node("--", "sh", "-c", "ulimit -n", nofile=64)
    assert done.stdout.strip() == str(hard)
    assert f"ulimit -n {hard}  # was 64; " in done.stderr


def test_warning_signal_is_ignored_without_a_handler() -> None:
    done = run_node("--", "sh", "-c", "kill -USR1 $$; echo alive")
    assert (done.returncode, done.stdout) == (0, "alive\n")


def test_ranked_sets_the_node_rank() -> None:
    command = ["sh", "-c", 'echo "${NODE_RANK-none} ${HEAD_ADDRESS-none}"']
    assert run_node("--ranked", "--toward", "n1", "--", *command, SLURM_NODEID="3").stdout == "3 n1\n"
    assert run_node("--toward", "n1", "--", *command, SLURM_NODEID="3").stdout == "none none\n"


def test_missing_command() -> None:
    done = run_node("--", "/no/such/python")
    assert done.returncode == 127
    assert "cannot start /no/such/python: No such file or directory" in done.stderr
    assert "Traceback" not in done.stderr
