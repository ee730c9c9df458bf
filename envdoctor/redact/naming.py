"""What the name of a setting or a variable says of its value: a secret, a host, a user, a job's name."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from typing import Literal

from envdoctor.redact.words import words

Kind = Literal["secret", "host", "user", "name", "serial", "machine"]

TABLES: tuple[tuple[Kind, str], ...] = (
    ("host", "hosts"),
    ("user", "users"),
    ("name", "names"),
    ("serial", "serials"),
    ("machine", "machines"),
)


@lru_cache(maxsize=4096)
def kind_of(name: str) -> Kind | None:
    """What a value under this name is; None where it is nothing to hide."""
    if is_secret_name(name):
        return "secret"
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    for kind, listed in TABLES:
        if plain in words(listed):
            return kind
    shouted = name.isupper() and "_" in name
    return "host" if shouted and plain.endswith(("_host", "_hostname", "_hosts")) else None


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether a secret stands under this name: HF_TOKEN, db_password, apiKey; but not pad_token or max_tokens."""
    parts = [part.lower() for part in re.split(r"[^A-Za-z0-9]+|(?<=[a-z])(?=[A-Z])", name) if part]
    pairs = list(pairwise(["", *parts]))
    if not words("secret_parts").isdisjoint(parts) or ("set", "cookie") in pairs:
        return True
    if any(first in words("keys") and second == "key" for first, second in pairs):
        return True
    return bool(parts) and _ends_secret(*pairs[-1], shouted=name.isupper())


def _ends_secret(before: str, last: str, *, shouted: bool) -> bool:
    """Whether the last part of a name, and the one before it, make it a secret's."""
    if last == "token":
        return before not in words("no_tokens")
    if last == "pwd":  # PWD and OLDPWD are folders
        return before not in ("", "old")
    if last in ("pass", "auth", "pat"):
        return shouted and before != ""
    return last in ("jwt", "cookie", "bearer", "authorization") or (last == "key" and shouted)
