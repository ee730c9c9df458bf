"""Why a node could not be reached, in the words of ssh and of shells; each with what to do."""

from __future__ import annotations

import re

from envdoctor.fleet.records import Failure

# OpenSSH's own messages: https://github.com/openssh/openssh-portable (ssh.c, sshconnect.c, sshconnect2.c), and the
# system's words for the errors of connect(2).
SAID: tuple[tuple[str, Failure], ...] = (
    (r"Could not resolve hostname|Name or service not known|nodename nor servname", "unknown host"),
    (r"Host key verification failed|HOST IDENTIFICATION HAS CHANGED|No .{3,20} host key is known", "host key"),
    (r"Permission denied|Too many authentication failures|no mutual signature", "permission"),
    (r"Connection refused", "refused"),
    (r"timed out|No route to host|Network is unreachable|Connection (?:closed|reset) by", "unreachable"),
    (r"python3?\S*: (?:command )?not found|python3: No such file", "no python"),
)
FIX: dict[Failure, tuple[str, str]] = {
    "deadline": ("Look at what it does there, or give it longer with --deadline.", "ssh {node} uptime"),
    "refused": ("Start its ssh server.", "ssh -v {node} true"),
    "unknown host": ("Name it as DNS or your ssh configuration does.", "getent hosts {host}"),
    "unreachable": ("Look whether it is on and its network is up.", "ssh -v {node} true"),
    "host key": (
        "Compare the key with the machine's, then accept it; a changed key first goes with ssh-keygen -R.",
        "ssh {node} true",
    ),
    "permission": ("Bring your public key there: no password is asked for.", "ssh-copy-id {node}"),
    "no python": ("Install Python 3 there.", "ssh {node} python3 --version"),
    "crashed": ("Run it there by hand.", "ssh {node} {command} check"),
    "garbage": ("Run it there by hand and look at what it prints.", "ssh {node} {command} check --format json"),
    "flood": ("Run it there by hand and look at what it prints.", "ssh {node} {command} check --format json"),
    "not listed": ("Look at the node's state in its scheduler.", "sinfo --nodes={node} --long"),
}


def parse_failure(text: str) -> tuple[Failure, str] | None:
    """The kind of a failure and the line that tells it.

    `ssh: connect to host b port 22: Connection refused` is a refusal, `Host key verification failed.` a host key.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for pattern, kind in SAID:
        for line in lines:
            if re.search(pattern, line):
                return kind, line[:300]
    return None
