"""SHA-256 of the wheels that an environment was made from, where it can be told honestly.

An installed distribution does not hold its wheel's hash: RECORD has those of the single files. What tells it:

1. the lock that envdoctor left in an environment of its own, whose hashes the install enforced;
2. direct_url.json, where pip installed from an address (PEP 610). uv leaves `archive_info` empty there, even for an
   address with a hash (tried with 0.13.8);
3. uv's cache, which keeps the hash of each wheel that it unpacked; taken only if the installed RECORD has every file
   of the cached wheel with the same hash, and no other wheel there fits. Its files are not a documented
   format: what does not look as known gives no hash.

pip's cache keeps wheels under hashes of their addresses, and would have to be read whole. What an index has today
under the same version is `envdoctor resolve`'s to say: it need not be what was installed.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator, Mapping
from glob import escape
from pathlib import Path

import msgspec

from envdoctor.core.records import Record
from envdoctor.environment.managed import LOCK_FILE
from envdoctor.environment.metadata import normalise
from envdoctor.machine.storage import storage_directories

READ_BYTES = 8 << 20  # of any file here
LOCKED = re.compile(r"^([a-z0-9][a-z0-9.-]*)==(\S+) --hash=sha256:([0-9a-f]{64})(?: # [0-9]+)?$", re.MULTILINE)
# uv's pointer to an unpacked wheel: the folder's name, and "Sha256" with the digest, as MessagePack.
UV_DIGEST = re.compile(rb"Sha256.{0,3}?([0-9a-f]{64})(?![0-9a-f])", re.DOTALL)
UV_FOLDER = re.compile(rb"[A-Za-z0-9_-]{10,40}")
NOT_THE_WHEELS = ("INSTALLER", "REQUESTED", "RECORD", "direct_url.json", "uv_cache.json", "uv_build.json")


class WheelHash(Record, frozen=True):
    """The SHA-256 of one installed distribution's wheel, and what tells it."""

    version: str
    sha256: str
    source: str
    url: str = ""  # where it was installed from by address


class DirectUrl(msgspec.Struct):
    """direct_url.json, as far as it is used."""

    url: str = ""
    archive_info: dict[str, object] = {}


def hashes_of(venv: Path, environ: Mapping[str, str] = os.environ) -> dict[str, WheelHash]:
    """What is known of each distribution, by normalised name; the others are left out."""
    locked = {name: (version, digest) for name, version, digest in LOCKED.findall(_read(venv / LOCK_FILE).decode())}
    cache = storage_directories(environ)["uv cache"]
    found = {}
    for info in sorted(venv.glob("lib/python3*/site-packages/*.dist-info")):
        name, _, version = info.name.removesuffix(".dist-info").partition("-")
        name = normalise(name)
        direct = _read(info / "direct_url.json")
        if told := parse_direct_hash(direct, version):
            found[name] = told
        elif not direct and locked.get(name, ("",))[0] == version:
            found[name] = WheelHash(version, locked[name][1], "the lock that envdoctor installed it from")
        elif not direct and (digest := _cached(cache, name, version, info)):
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


def _cached(cache: Path, name: str, version: str, info: Path) -> str:
    """The digest of the one wheel in uv's cache that the installed files are from; empty for none or several."""
    installed = _files(info)
    digests = {
        digest
        for index in ("pypi", "index/*")
        for pointer in cache.glob(f"wheels-v*/{index}/{escape(name)}/{escape(version)}-*.http")
        for digest, folder in _pointed(pointer, cache)
        if installed and _is_from(installed, _files(folder / info.name))
    }
    return digests.pop() if len(digests) == 1 else ""


def _pointed(pointer: Path, cache: Path) -> Iterator[tuple[str, Path]]:
    """The digest that a pointer names, with each unpacked wheel that it may mean."""
    data = _read(pointer)
    digests = set(UV_DIGEST.findall(data))
    if len(digests) != 1:
        return
    for part in UV_FOLDER.findall(data[:64]):
        # The length byte before a text is sometimes a letter of its own.
        for identifier in (part, part[1:]):
            for folder in cache.glob(f"archive-v*/{identifier.decode()}"):
                yield digests.copy().pop().decode(), folder


def _is_from(installed: dict[str, str], wheel: dict[str, str]) -> bool:
    """Whether every file of a wheel is installed as it is there."""
    return bool(wheel) and all(installed.get(path) == digest for path, digest in wheel.items())


def _files(info: Path) -> dict[str, str]:
    """A RECORD's files and hashes, without those that installers add or write anew (scripts, .data folders)."""
    rows = csv.reader(_read(info / "RECORD").decode(errors="replace").splitlines())
    return {
        row[0]: row[1]
        for row in rows
        if len(row) > 1 and row[1] and Path(row[0]).name not in NOT_THE_WHEELS and ".data/" not in row[0]
    }


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(READ_BYTES)
    except OSError:
        return b""
