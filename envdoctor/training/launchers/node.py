"""What one node needs before its processes start: the interface to the others, threads, limits; then the command.

    PYTHON -B node.py [--toward HOST] [--interface NAME] [--processes N] [--several] [--ranked] -- COMMAND...

A scheduler starts this on each node by the stack's interpreter, since a login node's interfaces and limits are not
those of the nodes. It needs the standard library alone and imports nothing of the tool, which reads the interfaces
of its own machine by the same functions.
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

# Names of interfaces that lead to containers and virtual machines of this machine, not to other machines.
VIRTUAL = ("docker", "veth", "virbr", "br-", "cni", "flannel", "cali", "podman", "lxc", "lxd", "vnet", "ifb", "dummy")
LOOPBACK, INFINIBAND = 772, 32  # ARPHRD_* of linux/if_arp.h, as in /sys/class/net/NAME/type
IFF_UP = 0x1
SIOCGIFADDR = 0x8915  # linux/sockios.h
ADDRESS = "NODE_ADDRESS"  # in the command: this node's address on the chosen interface
LIMITS = {
    "memlock": (resource.RLIMIT_MEMLOCK, "RDMA registers its buffers by locking them; NCCL fails where it may not"),
    "nofile": (resource.RLIMIT_NOFILE, "each rank holds sockets to its peers, and each data file's shard is one"),
    "stack": (resource.RLIMIT_STACK, "compilers of kernels recurse deeply"),
}


class Interface(NamedTuple):
    """A network interface of this machine."""

    name: str
    up: bool
    kind: int  # ARPHRD_*
    address: str = ""  # IPv4, else IPv6
    default: bool = False  # the default route leads over it

    @property
    def real(self) -> bool:
        """Whether it can lead to another machine."""
        return self.up and self.kind != LOOPBACK and not self.name.startswith(VIRTUAL)


class Problem(Exception):  # noqa: N818  the name states what it is
    """A wish that this node cannot meet."""


def read_interfaces(root: Path = Path("/")) -> tuple[Interface, ...]:
    """The interfaces of this machine, by name."""
    folder = root / "sys/class/net"
    default = parse_default_route(_text(root / "proc/net/route"))
    later = parse_addresses(_text(root / "proc/net/if_inet6"))
    found = []
    for name in sorted(os.listdir(folder) if folder.is_dir() else ()):  # noqa: PTH208  plain names are wanted
        flags = int(_text(folder / name / "flags") or "0", 16)
        kind = int(_text(folder / name / "type") or "0")
        address = _read_address(name) or later.get(name, "")
        found.append(Interface(name, bool(flags & IFF_UP), kind, address, name == default))
    return tuple(found)


def parse_default_route(text: str) -> str:
    """The interface of the default route with the least metric, from /proc/net/route.

    Sample: "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n"
            "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0" -> "eth0"
    """
    rows = [line.split() for line in text.splitlines()[1:]]
    routes = [(int(row[6]), row[0]) for row in rows if len(row) > 7 and row[1] == row[7] == "00000000"]
    return min(routes)[1] if routes else ""


def parse_addresses(text: str) -> dict[str, str]:
    """IPv6 addresses of global scope by interface, from /proc/net/if_inet6.

    Sample: "fd000000000000000000000000000002 02 40 00 80     eth0" -> {"eth0": "fd00::2"}
    """
    found: dict[str, str] = {}
    for line in text.splitlines():
        address, _, _, scope, _, name = line.split()
        if scope == "00":
            found.setdefault(name, str(ipaddress.IPv6Address(bytes.fromhex(address))))
    return found


def read_own_address(host: str) -> str:
    """The address that this machine has on its way to a host; empty where the host's name leads nowhere.

    A datagram socket's connect looks the route up and sends nothing.
    """
    with contextlib.suppress(OSError):
        for family, kind, protocol, _, target in socket.getaddrinfo(host, 1, type=socket.SOCK_DGRAM):
            with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as probe:
                probe.connect(target)
                return str(probe.getsockname()[0])
    return ""


def choose_interface(interfaces: Sequence[Interface], wanted: str = "", own_address: str = "") -> tuple[str, str]:
    """The interface that leads to the other nodes, and why it was chosen; no name where there is none.

    In this order: the one that was asked for; the one with `own_address`, by which the first node is reached; the
    one of the default route; the first real one with an address, InfiniBand last, since it is NCCL's own choice for
    data and this is where its connections are set up.
    """
    if wanted:
        return _checked(interfaces, wanted), "as asked for"
    real = sorted(
        (each for each in interfaces if each.real and each.address), key=lambda each: each.kind == INFINIBAND
    )
    for each in real:
        if own_address and each.address == own_address:
            return each.name, f"{own_address} on it reaches the first node"
    for each in real:
        if each.default:
            return each.name, "the default route leads over it"
    if real:
        return real[0].name, "it is up and has an address; no default route tells more"
    loop = [each.name for each in interfaces if each.up and each.kind == LOOPBACK]
    return (loop[0], "no other interface is up: this node reaches itself alone") if loop else ("", "none is up")


def _checked(interfaces: Sequence[Interface], wanted: str) -> str:
    """The interfaces that a wish means, by exact names: a prefix, `=` an exact name, `^` all others, as for NCCL."""
    names = [each.name for each in interfaces]
    real = [each.name for each in interfaces if each.real]
    if wanted.startswith("^"):
        left = [name for name in real if not name.startswith(tuple(wanted.lstrip("^=").split(",")))]
        if not left:
            raise Problem(f"{wanted} leaves no interface of {socket.gethostname()}; there are: {', '.join(names)}")
        return left[0]
    found = []
    for name in wanted.removeprefix("=").split(","):
        prefixed = [] if wanted.startswith("=") else [each for each in (*real, *names) if each.startswith(name)]
        if name not in names and not prefixed:
            raise Problem(f"there is no interface {name} on {socket.gethostname()}; there are: {', '.join(names)}")
        found.append(name if name in names else prefixed[0])
    return ",".join(found)


def network_variables(name: str, reason: str, environ: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """(variable, value, reason) that keep NCCL and gloo on an interface; what is set already stays."""
    if not name:
        return []
    # Without = NCCL takes a name for a prefix: eth1 means eth10, too. Gloo takes exact names.
    both = (("NCCL_SOCKET_IFNAME", f"={name}"), ("GLOO_SOCKET_IFNAME", name))
    return [(variable, value, reason) for variable, value in both if not environ.get(variable)]


def raise_limits() -> list[str]:
    """Soft limits to their hard ones, told where one changed; a hard limit is the administrator's."""
    told = []
    for name, (number, reason) in LIMITS.items():
        soft, hard = resource.getrlimit(number)
        if not is_raised(name, soft, hard):
            continue
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(number, (hard, hard))
            told.append(f"{limit_line(name, hard)}  # was {shown(soft)}; {reason}")
    return told


def is_raised(name: str, soft: int, hard: int) -> bool:
    """Whether a limit goes to its hard one. Not an unlimited stack: each thread's would be 2 MiB (pthread_create(3)),
    which is less than the usual 8."""
    return soft != hard and not (name == "stack" and hard == resource.RLIM_INFINITY)


def limit_line(name: str, value: int) -> str:
    """A limit as a shell sets it."""
    letter, unit = {"memlock": ("l", 1024), "nofile": ("n", 1), "stack": ("s", 1024)}[name]
    return f"ulimit -{letter} {shown(value if value == resource.RLIM_INFINITY else value // unit)}"


def shown(limit: int) -> str:
    """A limit in words."""
    return "unlimited" if limit == resource.RLIM_INFINITY else str(limit)


def _read_address(name: str) -> str:
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        answer = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        return socket.inet_ntoa(answer[20:24])
    return ""


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def prepare(arguments: argparse.Namespace, environ: dict[str, str]) -> tuple[list[str], list[str]]:
    """The command as this node runs it and what was changed for it, each line with its reason; sets `environ`."""
    told, command = raise_limits(), list(arguments.command)
    if environ.pop("ROCR_VISIBLE_DEVICES", None) is not None:
        told.append(
            "unset ROCR_VISIBLE_DEVICES  # Slurm sets it beside CUDA_VISIBLE_DEVICES; Ray and verl refuse both"
        )
    lines: list[tuple[str, str, str]] = []
    if arguments.processes > 1 and "OMP_NUM_THREADS" not in environ:
        cores = len(os.sched_getaffinity(0))
        share = f"{cores} cores for {arguments.processes} processes; torchrun's default is 1"
        lines.append(("OMP_NUM_THREADS", str(max(1, cores // arguments.processes)), share))
    if arguments.several:
        interfaces = read_interfaces()
        own = read_own_address(arguments.toward) if arguments.toward else ""
        wanted = arguments.interface or environ.get("NCCL_SOCKET_IFNAME", "")
        name, reason = choose_interface(interfaces, wanted, own)
        if environ.get("GLOO_SOCKET_IFNAME"):
            _checked(interfaces, "=" + environ["GLOO_SOCKET_IFNAME"])
        lines += network_variables(name, reason, environ)
        address = (
            next((each.address for each in interfaces if each.name == name.split(",")[0]), "")
            or own
            or socket.gethostname()
        )
        command = [part.replace(ADDRESS, address) for part in command]
    if arguments.ranked and "SLURM_NODEID" in environ:
        lines.append(("NODE_RANK", environ["SLURM_NODEID"], "this node's number in the allocation"))
        lines.append(("HEAD_ADDRESS", arguments.toward or "127.0.0.1", "the first node"))
    for variable, value, reason in lines:
        environ[variable] = value
        told.append(f"export {variable}={value}  # {reason}")
    return command, told


def main() -> int:
    """Prepare, tell, and become the command."""
    parser = argparse.ArgumentParser(prog="node.py", description=__doc__.splitlines()[0])
    parser.add_argument("--toward", default="", metavar="HOST", help="the first node")
    parser.add_argument("--interface", default="", metavar="NAME", help="this interface and no other")
    parser.add_argument("--processes", type=int, default=1, help="on this node")
    parser.add_argument(
        "--several", action="store_true", help="several processes, which find each other by a network"
    )
    parser.add_argument("--ranked", action="store_true", help="tell the command which node this is")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    environ = dict(os.environ)
    try:
        command, told = prepare(arguments, environ)
    except Problem as problem:
        print(f"error: {problem}\nhint: envdoctor train ... --interface NAME", file=sys.stderr, flush=True)
        return 2
    node = environ.get("SLURMD_NODENAME") or socket.gethostname()
    for line in told:
        print(f"{node}: {line}", file=sys.stderr, flush=True)
    # The warning before a job's end goes to every process of a step. torchrun has no handler for it and would die;
    # the trainer sets its own. What is ignored here stays so past exec (signal(7)).
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        os.execvpe(command[0], command, environ)  # noqa: S606  argv only
    except OSError as error:
        hint = "this node must see the same folders as the first"
        print(f"error: {node} cannot start {command[0]}: {error.strerror}\nhint: {hint}", file=sys.stderr, flush=True)
    return 127


if __name__ == "__main__":
    sys.exit(main())
