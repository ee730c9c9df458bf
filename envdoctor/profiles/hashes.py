"""SHA-256 of the wheels from which an environment was installed, if there is a reliable source.

An installed distribution does not contain the hash of its wheel: RECORD only has the hashes of single files. Sources:

1. the lock file in an environment that envdoctor installed, whose hashes the install enforced;
2. direct_url.json, if pip installed from a URL (PEP 610). uv leaves `archive_info` empty, even for a URL with a hash
   (tried with 0.13.8);
3. uv's cache, which has the hash of each unpacked wheel. It is only used if the installed RECORD has every file of
   the cached wheel with the same hash, and no other cached wheel matches. The format of the cache is not documented:
   an unexpected format gives no hash.

pip's cache is not used: it stores wheels under hashes of their URLs. `envdoctor resolve` reports the hashes that an
index has now for the same version, which may differ from those of the installed wheel.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator, Mapping
from glob import escape
from pathlib import Path

import msgspec

from envdoctor.core.files import read_file_head
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record
from envdoctor.environment.managed import LOCK_FILE
from envdoctor.knowledge.releases import normalize_name
from envdoctor.machine.storage import storage_directories

READ_BYTES = 8 << 20  # limit for each file
LOCK_LINE = lazy_pattern(r"^([a-z0-9][a-z0-9.-]*)==(\S+) --hash=sha256:([0-9a-f]{64})(?: # [0-9]+)?$", re.MULTILINE)
# uv's pointer file to an unpacked wheel contains a directory name, and "Sha256" with the digest, as MessagePack.
UV_DIGEST = re.compile(rb"Sha256.{0,3}?([0-9a-f]{64})(?![0-9a-f])", re.DOTALL)
UV_FOLDER = re.compile(rb"[A-Za-z0-9_-]{10,40}")
NOT_IN_WHEEL = ("INSTALLER", "REQUESTED", "RECORD", "direct_url.json", "uv_cache.json", "uv_build.json")


class WheelHash(Record, frozen=True):
    """The SHA-256 of the wheel of an installed distribution, and the source of this information."""

    version: str
    sha256: str
    source: str
    url: str = ""  # if it was installed from a URL


class DirectUrl(msgspec.Struct):
    """The used fields of direct_url.json."""

    url: str = ""
    archive_info: dict[str, object] = {}


def find_wheel_hashes(venv: Path, environ: Mapping[str, str] = os.environ) -> dict[str, WheelHash]:
    """The known hashes by normalised distribution name."""
    locked = {
        name: (version, digest) for name, version, digest in LOCK_LINE.findall(_read(venv / LOCK_FILE).decode())
    }
    cache = storage_directories(environ)["uv cache"]
    found = {}
    for info in sorted(venv.glob("lib/python3*/site-packages/*.dist-info")):
        name, _, version = info.name.removesuffix(".dist-info").partition("-")
        name = normalize_name(name)
        direct = _read(info / "direct_url.json")
        if direct_hash := parse_direct_hash(direct, version):
            found[name] = direct_hash
        elif not direct and name in locked and locked[name][0] == version:
            found[name] = WheelHash(version, locked[name][1], "the lock that envdoctor installed it from")
        elif not direct and (digest := _uv_cache_digest(cache, name, version, info)):
            found[name] = WheelHash(version, digest, "uv's cache, whose copy has the same RECORD")
    return found


def parse_direct_hash(data: bytes, version: str) -> WheelHash | None:
    """The hash in a direct_url.json: `{"url": "...", "archive_info": {"hashes": {"sha256": "4721..."}}}`."""
    try:
        direct = msgspec.json.decode(data, type=DirectUrl)
    except (msgspec.DecodeError, RecursionError):
        return None
    hashes = direct.archive_info.get("hashes")
    legacy = str(direct.archive_info.get("hash") or "").removeprefix("sha256=")
    digest = str(hashes.get("sha256", "")) if isinstance(hashes, dict) else legacy
    if not re.fullmatch(r"[0-9a-f]{64}", digest):
        return None
    return WheelHash(version, digest, "direct_url.json, as pip wrote it", direct.url)


def _uv_cache_digest(cache: Path, name: str, version: str, info: Path) -> str:
    """The digest of the only wheel in uv's cache that matches the installed files; empty for none or several."""
    installed = _record_hashes(info)
    digests = {
        digest
        for index in ("pypi", "index/*")
        for pointer in cache.glob(f"wheels-v*/{index}/{escape(name)}/{escape(version)}-*.http")
        for digest, folder in _cached_wheels(pointer, cache)
        if installed and _matches_record(installed, _record_hashes(folder / info.name))
    }
    return digests.pop() if len(digests) == 1 else ""


def _cached_wheels(pointer: Path, cache: Path) -> Iterator[tuple[str, Path]]:
    """The digest in a pointer file of uv's cache, with each unpacked wheel that it may refer to."""
    data = _read(pointer)
    digests = set(UV_DIGEST.findall(data))
    if len(digests) != 1:
        return
    for part in UV_FOLDER.findall(data[:64]):
        # The length byte before a text may itself be a letter.
        for identifier in (part, part[1:]):
            for folder in cache.glob(f"archive-v*/{identifier.decode()}"):
                yield digests.copy().pop().decode(), folder


def _matches_record(installed: dict[str, str], wheel: dict[str, str]) -> bool:
    """Whether every file of a wheel is installed with the same hash."""
    return bool(wheel) and all(installed.get(path) == digest for path, digest in wheel.items())


def _record_hashes(info: Path) -> dict[str, str]:
    """The files and hashes of a RECORD, without files that installers add or rewrite (scripts, .data directories)."""
    rows = csv.reader(_read(info / "RECORD").decode(errors="replace").splitlines())
    try:
        return {
            row[0]: row[1]
            for row in rows
            if len(row) > 1 and row[1] and Path(row[0]).name not in NOT_IN_WHEEL and ".data/" not in row[0]
        }
    except csv.Error:
        return {}


def _read(path: Path) -> bytes:
    try:
        return read_file_head(path, READ_BYTES)
    except OSError:
        return b""
