"""Several hosts on this machine: network namespaces on one bridge, each with its own sshd and faults."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from support.paths import ROOT

CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
static long ahead(void) { const char *text = getenv("CLOCK_AHEAD"); return text ? atol(text) : 0; }
int clock_gettime(clockid_t which, struct timespec *now) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(which, now);
    if (which == CLOCK_REALTIME) now->tv_sec += ahead();
    return code;
}
int gettimeofday(struct timeval *now, void *zone) {
    int (*real)(struct timeval *, void *) = dlsym(RTLD_NEXT, "gettimeofday");
    int code = real(now, zone);
    now->tv_sec += ahead();
    return code;
}
time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
"""


def skip_reason() -> str:
    """Return what network namespaces with sshd need and is missing; empty where nothing is."""
    if os.geteuid():
        return "network namespaces need root"
    missing = [name for name in ("ip", "sshd", "ssh", "ssh-keygen") if not shutil.which(name, path=_path())]
    if missing:
        return f"needs {', '.join(missing)}"
    name = f"edt{os.getpid()}"
    done = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if done.returncode:
        return f"ip netns add: {done.stderr.strip()}"
    ip("netns", "del", name)
    return ""


def _path() -> str:
    """PATH with the folders of sshd and ip."""
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def ip(*arguments: str, namespace: str = "") -> None:
    """Run `ip`, in a network namespace if one is given."""
    prefix = ["ip", "-n", namespace] if namespace else ["ip"]
    done = subprocess.run([*prefix, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {arguments}: {done.stderr}"


@dataclass
class Host:
    """One host: its MTU, the variables of its sshd's sessions, and its faults."""

    name: str
    mtu: int = 1500
    variables: dict[str, str] = field(default_factory=dict)
    rejects_key: bool = False
    listens: bool = True
    forced_command: str = ""  # replaces the command of every session
    other_host_key: bool = False


@dataclass
class Network:
    """Network namespaces on one bridge, each with an sshd, and the ssh configuration to reach them."""

    folder: Path
    number: int
    processes: list[subprocess.Popen[bytes]]

    @property
    def config(self) -> Path:
        return self.folder / "ssh_config"

    def namespace(self, index: int) -> str:
        return f"ed{self.number}n{index}"

    def address(self, index: int) -> str:
        return f"10.213.{self.number % 250}.{index + 10}"


def clock_library(folder: Path) -> Path:
    """Build a library for LD_PRELOAD that sets a process's clock ahead by CLOCK_AHEAD seconds."""
    source, library = folder / "clock.c", folder / "clock.so"
    source.write_text(CLOCK)
    compiler = shutil.which("cc") or shutil.which("gcc") or "cc"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    return library


def sshd_config(network: Network, index: int, host: Host, keys: Path) -> Path:
    """Write the sshd configuration of one host and return its path."""
    folder = network.folder / host.name
    folder.mkdir()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "host_key")], check=True)
    (folder / "authorized_keys").write_text("" if host.rejects_key else (keys.with_suffix(".pub")).read_text())
    (folder / "authorized_keys").chmod(0o600)
    (folder / "home").mkdir()
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": str(folder / "home")} | host.variables
    lines = [
        f"ListenAddress {network.address(index)}",
        "Port 22",
        f"HostKey {folder / 'host_key'}",
        f"PidFile {folder / 'pid'}",
        f"AuthorizedKeysFile {folder / 'authorized_keys'}",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "UsePAM no",
        "StrictModes no",
        "PermitRootLogin prohibit-password",
        "SetEnv " + " ".join(f'"{name}={value}"' for name, value in variables.items()),
        *([f"ForceCommand {host.forced_command}"] if host.forced_command else []),
    ]
    (folder / "sshd_config").write_text("\n".join(lines) + "\n")
    return folder / "sshd_config"


@contextmanager
def start_network(hosts: list[Host], folder: Path) -> Iterator[Network]:
    """Start the hosts, wait until they listen, and remove them at the end."""
    number = os.getpid() % 10_000
    network = Network(folder, number, [])
    bridge = f"ed{number}br"
    keys = folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(keys)], check=True)
    Path("/run/sshd").mkdir(parents=True, exist_ok=True)  # sshd's directory for privilege separation
    namespaces: list[str] = []
    try:
        ip("link", "add", bridge, "type", "bridge")
        ip("addr", "add", f"10.213.{number % 250}.1/24", "dev", bridge)
        ip("link", "set", bridge, "up")
        for index, host in enumerate(hosts):
            _add_host(network, bridge, index, host, keys)
            namespaces.append(network.namespace(index))
        _write_client(network, hosts, keys)
        _wait_for_sshd(network, hosts)
        yield network
    finally:
        for child in network.processes:
            child.kill()
            child.wait()
        for name in namespaces:
            # Hanging sessions and their processes are still in the namespace.
            pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False).stdout
            for pid in pids.split():
                subprocess.run(["kill", "-9", pid], check=False, capture_output=True)
            ip("netns", "del", name)
        subprocess.run(["ip", "link", "del", bridge], check=False, capture_output=True)


def _add_host(network: Network, bridge: str, index: int, host: Host, keys: Path) -> None:
    """Create the namespace of a host, connect it to the bridge, and start its sshd."""
    name, outer = network.namespace(index), f"ed{network.number}v{index}"
    ip("netns", "add", name)
    ip("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", name)
    ip("link", "set", outer, "master", bridge)
    ip("link", "set", outer, "up")
    ip("link", "set", "lo", "up", namespace=name)
    ip("addr", "add", f"{network.address(index)}/24", "dev", "eth0", namespace=name)
    ip("link", "set", "eth0", "mtu", str(host.mtu), namespace=name)
    ip("link", "set", "eth0", "up", namespace=name)
    config = sshd_config(network, index, host, keys)
    if host.listens:
        sshd = shutil.which("sshd", path=_path()) or "sshd"
        argv = ["ip", "netns", "exec", name, sshd, "-D", "-e", "-f", str(config)]
        with (network.folder / host.name / "sshd.log").open("wb") as log:
            network.processes.append(subprocess.Popen(argv, stdout=log, stderr=log))


def _write_client(network: Network, hosts: list[Host], keys: Path) -> None:
    """Write the ssh configuration and the known host keys of the client."""
    known = network.folder / "known_hosts"
    lines = ["Host *", f"  IdentityFile {keys}", "  IdentitiesOnly yes", f"  UserKnownHostsFile {known}"]
    lines += ["  User root", "  StrictHostKeyChecking yes"]
    for index, host in enumerate(hosts):
        lines += [f"Host {host.name}", f"  HostName {network.address(index)}"]
        public = keys if host.other_host_key else network.folder / host.name / "host_key"
        with known.open("a") as file:
            file.write(f"{network.address(index)} {public.with_suffix('.pub').read_text()}")
    network.config.write_text("\n".join(lines) + "\n")


def _wait_for_sshd(network: Network, hosts: list[Host]) -> None:
    """Wait until each host that listens accepts connections."""
    import socket

    end = time.monotonic() + 20
    for index, host in enumerate(hosts):
        while host.listens:
            try:
                socket.create_connection((network.address(index), 22), timeout=1).close()
                break
            except OSError:
                assert time.monotonic() < end, (network.folder / host.name / "sshd.log").read_text()
                time.sleep(0.05)


def write_program(folder: Path, name: str, text: str) -> Path:
    """Write an executable into a folder and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return path


def write_envdoctor(folder: Path) -> Path:
    """Write an `envdoctor` for the nodes and return its folder."""
    return write_program(folder, "envdoctor", f'#!/bin/sh\nexec {sys.executable} -m envdoctor "$@"\n').parent
