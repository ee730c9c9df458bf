"""Classification of the names of settings and variables: secret, host, user, job name."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from typing import Literal

from envdoctor.redact.word_lists import word_list

Kind = Literal["secret", "host", "user", "name", "serial", "machine"]

WRAPPERS = frozenset({"value", "text", "data", "string", "plain"})
SUFFIXES = ("password", "passwd", "passphrase", "apikey", "authtoken", "accesstoken", "secretkey", "accountkey")
TABLES: tuple[tuple[Kind, str], ...] = (
    ("host", "hosts"),
    ("user", "users"),
    ("name", "names"),
    ("serial", "serials"),
    ("machine", "machines"),
)


@lru_cache(maxsize=4096)
def classify_name(name: str) -> Kind | None:
    """The kind of the values under this name; None if they are not sensitive."""
    if is_secret_name(name):
        return "secret"
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    for kind, listed in TABLES:
        if plain in word_list(listed):
            return kind
    is_variable = name.isupper() and "_" in name
    return "host" if is_variable and plain.endswith(("_host", "_hostname", "_hosts")) else None


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether the values under this name are secrets: HF_TOKEN, db_password, apiKey; not pad_token or max_tokens."""
    parts = [part.lower() for part in re.split(r"[^A-Za-z0-9]+|(?<=[a-z])(?=[A-Z])", name) if part]
    pairs = list(pairwise(["", *parts]))
    if parts and parts[-1] in WRAPPERS:  # token.value
        parts, pairs = parts[:-1], pairs[:-1]
    if not word_list("secret_parts").isdisjoint(parts) or ("set", "cookie") in pairs:
        return True
    if any(part.endswith(SUFFIXES) for part in parts) or ("access", "signature") in pairs or name == "_auth":
        return True  # PGPASSWORD, -Dpassword, SharedAccessSignature
    if any(first in word_list("keys") and second == "key" for first, second in pairs):
        return True
    return bool(parts) and _ends_secret(*pairs[-1], uppercase=name.isupper())


def _ends_secret(before: str, last: str, *, uppercase: bool) -> bool:
    """Whether the last two parts of a name mark its values as secrets."""
    if last == "token":
        return before not in word_list("no_tokens")
    if last == "pwd":  # PWD and OLDPWD are directories
        return before not in ("", "old") or not uppercase
    if last in ("pass", "auth", "pat"):
        return uppercase and before != ""
    return last in ("jwt", "cookie", "bearer", "authorization") or (last == "key" and uppercase)
