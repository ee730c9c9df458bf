"""Prepares one node of a run (network interface, threads, limits), then executes the node's command.

    PYTHON -B node.py [--toward HOST] [--interface NAME] [--processes N] [--several] [--ranked] -- COMMAND...

A scheduler starts this program on each node with the stack's interpreter, since the interfaces and limits of a login
node differ from those of the nodes. It needs only the standard library and does not import envdoctor. envdoctor uses
the same functions to read the interfaces of this machine.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import ipaddress
import os
import resource
import signal
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

# Prefixes of interfaces that connect containers and virtual machines of this machine.
VIRTUAL = ("docker", "veth", "virbr", "br-", "cni", "flannel", "cali", "podman", "lxc", "lxd", "vnet", "ifb", "dummy")
LOOPBACK, INFINIBAND = 772, 32  # ARPHRD_* of linux/if_arp.h, as in /sys/class/net/NAME/type
IFF_UP = 0x1
SIOCGIFADDR = 0x8915  # linux/sockios.h
ADDRESS = "NODE_ADDRESS"  # placeholder in the command for this node's address on the chosen interface
LIMITS = {
    "memlock": (resource.RLIMIT_MEMLOCK, "RDMA locks its buffers in memory; NCCL fails where the limit is too low"),
    "nofile": (resource.RLIMIT_NOFILE, "each rank opens sockets to its peers and a file per data shard"),
    "stack": (resource.RLIMIT_STACK, "kernel compilers recurse deeply"),
}


class Interface(NamedTuple):
    """A network interface of this machine."""

    name: str
    up: bool
    kind: int  # ARPHRD_*
    address: str = ""  # IPv4, else IPv6
    default: bool = False  # the default route uses it

    @property
    def is_external(self) -> bool:
        """Whether it can connect to another machine."""
        return self.up and self.kind != LOOPBACK and not self.name.startswith(VIRTUAL)


class InterfaceError(Exception):
    """The requested interface does not exist on this node."""


def read_interfaces(root: Path = Path("/")) -> tuple[Interface, ...]:
    """Read the interfaces of this machine, ordered by name."""
    folder = root / "sys/class/net"
    default = parse_default_route(_text(root / "proc/net/route"))
    ipv6 = parse_addresses(_text(root / "proc/net/if_inet6"))
    interfaces = []
    for name in sorted(os.listdir(folder) if folder.is_dir() else ()):  # noqa: PTH208  only names are needed
        flags = int(_text(folder / name / "flags") or "0", 16)
        kind = int(_text(folder / name / "type") or "0")
        address = _read_address(name) or ipv6.get(name, "")
        interfaces.append(Interface(name, bool(flags & IFF_UP), kind, address, name == default))
    return tuple(interfaces)


def parse_default_route(text: str) -> str:
    """Return the interface of the default route with the lowest metric, from /proc/net/route.

    Sample: "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n"
            "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0" -> "eth0"
    """
    rows = [line.split() for line in text.splitlines()[1:]]
    routes = [(int(row[6]), row[0]) for row in rows if len(row) > 7 and row[1] == row[7] == "00000000"]
    return min(routes)[1] if routes else ""


def parse_addresses(text: str) -> dict[str, str]:
    """Return the IPv6 addresses of global scope by interface, from /proc/net/if_inet6.

    Sample: "fd000000000000000000000000000002 02 40 00 80     eth0" -> {"eth0": "fd00::2"}
    """
    addresses: dict[str, str] = {}
    for line in text.splitlines():
        address, _, _, scope, _, name = line.split()
        if scope == "00":
            addresses.setdefault(name, str(ipaddress.IPv6Address(bytes.fromhex(address))))
    return addresses


def read_own_address(host: str) -> str:
    """Return this machine's address on the route to a host; empty where the host's name does not resolve.

    Connecting a datagram socket looks up the route and sends nothing.
    """
    with contextlib.suppress(OSError):
        for family, kind, protocol, _, target in socket.getaddrinfo(host, 1, type=socket.SOCK_DGRAM):
            with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as probe:
                probe.connect(target)
                return str(probe.getsockname()[0])
    return ""


def choose_interface(interfaces: Sequence[Interface], requested: str = "", own_address: str = "") -> tuple[str, str]:
    """Return the interface to the other nodes, empty where there is none, and the reason of the choice.

    Order of precedence: the requested interface; the one with `own_address`, from which the first node is reachable;
    the one of the default route; the first external one with an address. InfiniBand comes last: NCCL uses it for data
    by itself, and this interface only sets up its connections.
    """
    if requested:
        return _resolve_names(interfaces, requested), "as requested"
    external = sorted(
        (item for item in interfaces if item.is_external and item.address), key=lambda item: item.kind == INFINIBAND
    )
    for interface in external:
        if own_address and interface.address == own_address:
            return interface.name, f"its address {own_address} reaches the first node"
    for interface in external:
        if interface.default:
            return interface.name, "the default route uses it"
    if external:
        return external[0].name, "it is up and has an address; there is no default route"
    loopback = [item.name for item in interfaces if item.up and item.kind == LOOPBACK]
    if loopback:
        return loopback[0], "no other interface is up: this node reaches only itself"
    return "", "no interface is up"


def _resolve_names(interfaces: Sequence[Interface], requested: str) -> str:
    """Resolve NCCL's notation for interfaces to exact names: a prefix, `=` an exact name, `^` all others."""
    names = [item.name for item in interfaces]
    external = [item.name for item in interfaces if item.is_external]
    available = f"on {socket.gethostname()}; interfaces: {', '.join(names)}"
    if requested.startswith("^"):
        remaining = [name for name in external if not name.startswith(tuple(requested.lstrip("^=").split(",")))]
        if not remaining:
            raise InterfaceError(f"{requested} excludes every interface {available}")
        return remaining[0]
    resolved = []
    for name in requested.removeprefix("=").split(","):
        prefixed = (
            [] if requested.startswith("=") else [item for item in (*external, *names) if item.startswith(name)]
        )
        if name not in names and not prefixed:
            raise InterfaceError(f"there is no interface {name} {available}")
        resolved.append(name if name in names else prefixed[0])
    return ",".join(resolved)


def network_variables(name: str, reason: str, environ: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return (variable, value, reason) for the interface of NCCL and gloo; variables that are set are kept."""
    if not name:
        return []
    # Without = NCCL treats a name as a prefix: eth1 also matches eth10. Gloo takes exact names.
    variables = (("NCCL_SOCKET_IFNAME", f"={name}"), ("GLOO_SOCKET_IFNAME", name))
    return [(variable, value, reason) for variable, value in variables if not environ.get(variable)]


def raise_limits() -> list[str]:
    """Raise soft limits to their hard limits, which the administrator sets; return a line for each change."""
    changes = []
    for name, (number, reason) in LIMITS.items():
        soft, hard = resource.getrlimit(number)
        if not needs_raising(name, soft, hard):
            continue
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(number, (hard, hard))
            changes.append(f"{limit_line(name, hard)}  # was {format_limit(soft)}; {reason}")
    return changes


def needs_raising(name: str, soft: int, hard: int) -> bool:
    """Whether to raise a soft limit to its hard limit.

    The stack is not set to unlimited: each thread would then get 2 MiB (pthread_create(3)) instead of the usual 8.
    """
    return soft != hard and not (name == "stack" and hard == resource.RLIM_INFINITY)


def limit_line(name: str, value: int) -> str:
    """Return the shell command that sets a limit."""
    letter, unit = {"memlock": ("l", 1024), "nofile": ("n", 1), "stack": ("s", 1024)}[name]
    return f"ulimit -{letter} {format_limit(value if value == resource.RLIM_INFINITY else value // unit)}"


def format_limit(limit: int) -> str:
    """Format a limit for ulimit."""
    return "unlimited" if limit == resource.RLIM_INFINITY else str(limit)


def _read_address(name: str) -> str:
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        reply = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()))
        return socket.inet_ntoa(reply[20:24])
    return ""


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def prepare(arguments: argparse.Namespace, environ: dict[str, str]) -> tuple[list[str], list[str]]:
    """Return the node's command and the changes that were made for it, each with its reason. Modifies `environ`."""
    changes, command = raise_limits(), list(arguments.command)
    if environ.pop("ROCR_VISIBLE_DEVICES", None) is not None:
        reason = "Slurm sets it in addition to CUDA_VISIBLE_DEVICES; Ray and verl reject both together"
        changes.append(f"unset ROCR_VISIBLE_DEVICES  # {reason}")
    variables: list[tuple[str, str, str]] = []
    if arguments.processes > 1 and "OMP_NUM_THREADS" not in environ:
        cores = len(os.sched_getaffinity(0))
        reason = f"{cores} cores for {arguments.processes} processes; torchrun's default is 1"
        variables.append(("OMP_NUM_THREADS", str(max(1, cores // arguments.processes)), reason))
    if arguments.several:
        interfaces = read_interfaces()
        own_address = read_own_address(arguments.toward) if arguments.toward else ""
        requested = arguments.interface or environ.get("NCCL_SOCKET_IFNAME", "")
        name, reason = choose_interface(interfaces, requested, own_address)
        if environ.get("GLOO_SOCKET_IFNAME"):
            _resolve_names(interfaces, "=" + environ["GLOO_SOCKET_IFNAME"])
        variables += network_variables(name, reason, environ)
        address = (
            next((item.address for item in interfaces if item.name == name.split(",")[0]), "")
            or own_address
            or socket.gethostname()
        )
        command = [part.replace(ADDRESS, address) for part in command]
    if arguments.ranked and "SLURM_NODEID" in environ:
        variables.append(("NODE_RANK", environ["SLURM_NODEID"], "this node's number in the allocation"))
        variables.append(("HEAD_ADDRESS", arguments.toward or "127.0.0.1", "the first node"))
    for variable, value, reason in variables:
        environ[variable] = value
        changes.append(f"export {variable}={value}  # {reason}")
    return command, changes


def main() -> int:
    """Prepare the node, print the changes, and execute the command."""
    parser = argparse.ArgumentParser(prog="node.py", description=__doc__.splitlines()[0])
    parser.add_argument("--toward", default="", metavar="HOST", help="the first node")
    parser.add_argument("--interface", default="", metavar="NAME", help="use this interface")
    parser.add_argument("--processes", type=int, default=1, help="on this node")
    parser.add_argument(
        "--several", action="store_true", help="the run has several processes, which connect over the network"
    )
    parser.add_argument("--ranked", action="store_true", help="set NODE_RANK and HEAD_ADDRESS for the command")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    environ = dict(os.environ)
    try:
        command, changes = prepare(arguments, environ)
    except InterfaceError as error:
        print(f"error: {error}\nhint: envdoctor train ... --interface NAME", file=sys.stderr, flush=True)
        return 2
    node = environ.get("SLURMD_NODENAME") or socket.gethostname()
    for line in changes:
        print(f"{node}: {line}", file=sys.stderr, flush=True)
    # SLURM sends its warning signal to every process of a step. torchrun has no handler for it and would die; the
    # trainer sets its own handler. An ignored signal stays ignored across exec (signal(7)).
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        os.execvpe(command[0], command, environ)  # noqa: S606  argv only
    except OSError as error:
        hint = "this node needs the same directories as the first node"
        print(f"error: {node} cannot start {command[0]}: {error.strerror}\nhint: {hint}", file=sys.stderr, flush=True)
    return 127


if __name__ == "__main__":
    sys.exit(main())
