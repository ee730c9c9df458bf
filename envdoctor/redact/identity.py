"""Who and where we are, and which names are everybody's."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from envdoctor.core.records import Record
from envdoctor.redact.naming import is_secret_name
from envdoctor.redact.words import words

SHORTEST = 3  # characters of a name that is taken out wherever it stands


class Identity(Record, frozen=True, kw_only=True):
    """What is known of this machine and its user beforehand; it is taken out wherever it stands as a word."""

    users: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()
    secrets: frozenset[str] = frozenset()  # values of variables that hold secrets
    machine_ids: frozenset[str] = frozenset()


def read_identity(environ: Mapping[str, str] = os.environ) -> Identity:
    """The login name, the host's names, the machine's id, and the secrets of the environment."""
    hosts = {os.uname().nodename, environ.get("HOSTNAME", ""), environ.get("SLURMD_NODENAME", "")}
    hosts |= {host.split(".")[0] for host in hosts}
    secrets = {value for name, value in environ.items() if is_secret_name(name) and len(value) >= 8}
    return Identity(
        users=frozenset(_users(environ) - {""}),
        hosts=frozenset(hosts - {""}),
        secrets=frozenset(secrets),
        machine_ids=frozenset(_machine_ids()),
    )


def _users(environ: Mapping[str, str]) -> set[str]:
    """Names of the account, and the home folder's own, which may differ."""
    import pwd

    users = {environ.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER", "SLURM_JOB_USER", "USERNAME")}
    users.add(Path(environ.get("HOME", "")).name)
    try:
        account = pwd.getpwuid(os.getuid())
    except KeyError:  # a container's user without an entry
        return users
    full_name = account.pw_gecos.split(",")[0]
    return users | {account.pw_name, full_name if " " in full_name else ""}


def _machine_ids() -> set[str]:
    found = set()
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            found.add(Path(path).read_text(encoding="ascii").strip())
        except (OSError, ValueError):
            continue
    return {each for each in found if re.fullmatch(r"[0-9a-f]{32}", each)}


def is_common(name: str) -> bool:
    """Whether a name is everybody's, or too short to be taken out wherever it stands."""
    return len(name) < SHORTEST or name.lower() in words("common") or name.isdigit()
