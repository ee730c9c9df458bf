"""Packages of tables that are signed with the test key, and damaged ones."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from envdoctor.knowledge.installed import BUNDLED
from envdoctor.knowledge_update.package import build_package, tables_of

TEST_KEY = Ed25519PrivateKey.from_private_bytes(b"envdoctor test key, not a secret")
OTHER_KEY = Ed25519PrivateKey.from_private_bytes(b"another key that nobody trusts..")
DAY = f"{datetime.now(UTC) + timedelta(days=1):%Y.%m.%d}"  # later than the bundled tables, and not in the future
LATER = f"{DAY}.3"


@cache
def package(version: str = LATER, key: Ed25519PrivateKey = TEST_KEY, **tables: bytes) -> bytes:
    """The bundled tables under a version; `fleet=b"..."` replaces fleet.toml."""
    replaced = {f"{name}.toml": content for name, content in tables.items()}
    return build_package(tables_of(BUNDLED) | replaced, version, key)


def with_entries(data: bytes, entries: Mapping[str, bytes]) -> bytes:
    """A package in which files were replaced or added after it was signed."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        content = {name: archive.read(name) for name in archive.namelist()} | dict(entries)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, each in content.items():
            archive.writestr(name, each)
    return buffer.getvalue()
