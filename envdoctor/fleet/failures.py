"""Connection failures: their kinds, recognized by the messages of ssh and of shells, and their fixes."""

from __future__ import annotations

import re

from envdoctor.fleet.records import Failure

# Messages of OpenSSH (https://github.com/openssh/openssh-portable: ssh.c, sshconnect.c, sshconnect2.c), and the
# system's messages for the errors of connect(2).
MESSAGES: tuple[tuple[str, Failure], ...] = (
    (r"Could not resolve hostname|Name or service not known|nodename nor servname", "unknown host"),
    (r"Host key verification failed|HOST IDENTIFICATION HAS CHANGED|No .{3,20} host key is known", "host key"),
    (r"Permission denied|Too many authentication failures|no mutual signature", "permission"),
    (r"Connection refused", "refused"),
    (r"timed out|No route to host|Network is unreachable|Connection (?:closed|reset) by", "unreachable"),
    (r"python3?\S*: (?:command )?not found|python3: No such file", "no python"),
)
FIXES: dict[Failure, tuple[str, str]] = {  # fix, command
    "deadline": ("Check what the node is doing, or allow more time with --deadline.", "ssh {node} uptime"),
    "refused": ("Start its ssh server.", "ssh -v {node} true"),
    "unknown host": ("Use a name that DNS or your ssh configuration resolves.", "getent hosts {host}"),
    "unreachable": ("Check that the node is on and its network is up.", "ssh -v {node} true"),
    "host key": (
        "Compare the key with the machine's, then accept it; remove a changed key first with ssh-keygen -R.",
        "ssh {node} true",
    ),
    "permission": ("Copy your public key to the node: ssh runs without a password prompt.", "ssh-copy-id {node}"),
    "no python": ("Install Python 3 on the node.", "ssh {node} python3 --version"),
    "crashed": ("Run the command on the node.", "ssh {node} {command} check"),
    "garbage": ("Run the command on the node and inspect its output.", "ssh {node} {command} check --format json"),
    "flood": ("Run the command on the node and inspect its output.", "ssh {node} {command} check --format json"),
    "not listed": ("Check the node's state in SLURM.", "sinfo --nodes={node} --long"),
}


def classify_failure(text: str) -> tuple[Failure, str] | None:
    """Return the kind of a failure and the line that shows it; None for an unknown failure.

    Sample: "ssh: connect to host b port 22: Connection refused" -> refused
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for pattern, kind in MESSAGES:
        for line in lines:
            if re.search(pattern, line):
                return kind, line[:300]
    return None
