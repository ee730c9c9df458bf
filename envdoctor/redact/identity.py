"""The identity of the local user and machine, and names that are too common to identify anyone."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from envdoctor.core.record import Record
from envdoctor.redact.field_names import is_secret_name
from envdoctor.redact.word_lists import word_list

MIN_LENGTH = 3  # of a name that is redacted everywhere


class Identity(Record, frozen=True, kw_only=True):
    """Names and secrets of this machine and its user. They are redacted wherever they occur as a word."""

    users: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()
    secrets: frozenset[str] = frozenset()  # values of secret environment variables
    machine_ids: frozenset[str] = frozenset()


def read_identity(environ: Mapping[str, str] = os.environ) -> Identity:
    """Read the login name, the host names, the machine id, and the secrets of the environment."""
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
    """The names of the account, and the name of the home directory, which may differ."""
    import pwd

    users = {environ.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER", "SLURM_JOB_USER", "USERNAME")}
    users.add(Path(environ.get("HOME", "")).name)
    try:
        account = pwd.getpwuid(os.getuid())
    except KeyError:  # a user of a container without an entry in /etc/passwd
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
    return {machine_id for machine_id in found if re.fullmatch(r"[0-9a-f]{32}", machine_id)}


def is_common_name(name: str) -> bool:
    """Whether a name is too common or too short to be redacted everywhere."""
    return len(name) < MIN_LENGTH or name.lower() in word_list("common") or name.isdigit()
