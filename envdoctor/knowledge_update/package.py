"""A package of tables: a ZIP file with a signed list of its files.

    manifest.json     name, version, format, and the SHA-256 of each table
    manifest.sig      the Ed25519 signature of manifest.json (64 bytes)
    tables/...        the tables

Nothing is extracted before the signature and all hashes are right. A package has no code.
"""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from envdoctor.core.errors import BadInput
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record
from envdoctor.knowledge.installed import FORMAT, ROW_DATE, VERSION, date_of

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

NAME = "envdoctor-knowledge"
MANIFEST, SIGNATURE, TABLES = "manifest.json", "manifest.sig", "tables/"
TABLE_NAME = lazy_pattern(r"(?:[a-z0-9_]{1,40}/)?[A-Za-z0-9_-]{1,60}\.toml")
MAX_PACKAGE_BYTES = 16 << 20
MAX_TABLES_BYTES = 32 << 20
CLOCK_DIFFERENCE = timedelta(days=2)  # between this machine and the one that built the package
EARLIEST = (1980, 1, 1, 0, 0, 0)  # of a ZIP file: two builds give the same bytes


class Manifest(Record, frozen=True, kw_only=True):
    """The signed list."""

    name: str
    version: str  # the date of the tables: 2026.12.01
    format: int
    files: dict[str, str]  # SHA-256 by name


class PublicKey(Record, frozen=True, kw_only=True):
    """A key that signs packages."""

    id: str
    public: str  # 32 bytes in base64
    test: bool = False  # everybody has its private key


class KnowledgePackage(Record, frozen=True):
    """A package whose signature and hashes are right."""

    manifest: Manifest
    manifest_json: bytes
    key: PublicKey
    tables: dict[str, bytes]


def read_package(data: bytes, source: str, keys: tuple[PublicKey, ...]) -> KnowledgePackage:
    """Verify a package. Raises BadInput for any other file; `source` is its name in the message."""
    entries = _entries(data, source)
    manifest_json = entries.get(MANIFEST, b"")
    key = next((key for key in keys if _is_signed(manifest_json, entries.get(SIGNATURE, b""), key)), None)
    if not key:
        raise _refused(
            source, "its signature is of no known key", f"a signature of {' or '.join(k.id for k in keys)}"
        )
    try:
        manifest = msgspec.json.decode(manifest_json, type=Manifest)
    except msgspec.DecodeError as error:
        raise _refused(source, f"its list of files cannot be read ({error})", "a package of tables") from error
    tables = {name.removeprefix(TABLES): content for name, content in entries.items() if name.startswith(TABLES)}
    _check(manifest, tables, set(entries), source)
    return KnowledgePackage(manifest, manifest_json, key, tables)


def _check(manifest: Manifest, tables: Mapping[str, bytes], entries: set[str], source: str) -> None:
    if manifest.name != NAME or not VERSION.fullmatch(manifest.version):
        raise _refused(source, f"it is {manifest.name[:60]} {manifest.version[:20]}", f"a package {NAME}")
    _check_dates(manifest.version, tables, source)
    if manifest.format != FORMAT:
        expected = f"format {FORMAT}, which this envdoctor reads"
        raise _refused(source, f"its tables have format {manifest.format}", expected)
    if entries != {MANIFEST, SIGNATURE, *(TABLES + name for name in manifest.files)}:
        raise _refused(source, "its files are not those of its list", "exactly the files of manifest.json")
    for name, sha256 in manifest.files.items():
        if not TABLE_NAME.fullmatch(name):
            raise _refused(source, f"{name[:60]!r} is no name of a table", "names such as requires/vllm.toml")
        if hashlib.sha256(tables[name]).hexdigest() != sha256:
            raise _refused(source, f"{name} differs from the signed list", f"SHA-256 {sha256[:64]}")


def _check_dates(version: str, tables: Mapping[str, bytes], source: str) -> None:
    """Reject a version or a row of the future: all later packages would count as older."""
    latest = f"{datetime.now(UTC) + CLOCK_DIFFERENCE:%Y-%m-%d}"
    rows = (date.decode() for content in tables.values() for date in ROW_DATE.findall(content))
    for date in dict.fromkeys((date_of(version), *rows)):  # 2,000 rows have few dates, and strptime is slow
        try:
            datetime.strptime(date, "%Y-%m-%d")
        except ValueError as error:
            raise _refused(source, f"{date} is no date", "the date of the tables as its version") from error
        if date > latest:
            expected = f"dates up to {latest}, by the clock of this machine"
            raise _refused(source, f"its tables are of {date}", expected)


def build_package(tables: Mapping[str, bytes], version: str, private_key: Ed25519PrivateKey) -> bytes:
    """The bytes of a signed package: the same for the same tables, version and key."""
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(tables.items())}
    manifest = msgspec.json.encode(Manifest(name=NAME, version=version, format=FORMAT, files=hashes))
    entries = {MANIFEST: manifest, SIGNATURE: private_key.sign(manifest)}
    entries |= {TABLES + name: tables[name] for name in hashes}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(zipfile.ZipInfo(name, EARLIEST), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def tables_of(folder: Path) -> dict[str, bytes]:
    """All tables of a folder by name."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*.toml"))}


def _entries(data: bytes, source: str) -> dict[str, bytes]:
    """The files of a ZIP file within the limits, without extracting one."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            infos = archive.infolist()
            if sum(info.file_size for info in infos) > MAX_TABLES_BYTES or len(infos) > 1000:
                raise _refused(source, "its content is too large", f"at most {MAX_TABLES_BYTES >> 20} MiB")
            if len({info.filename.casefold() for info in infos}) < len(infos):  # one file on some file systems
                raise _refused(source, "a file is in it twice", "each file once, also without upper and lower case")
            return {info.filename: archive.read(info) for info in infos}
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise _refused(source, f"it is no complete ZIP file ({error})", "a package of tables") from error


def _is_signed(manifest: bytes, signature: bytes, key: PublicKey) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(base64.b64decode(key.public)).verify(signature, manifest)
    except (InvalidSignature, ValueError):
        return False
    return True


def _refused(source: str, problem: str, expected: str) -> BadInput:
    return BadInput(
        f"{source} is not installed: {problem}", expected=expected, hint="get the package again; nothing was changed"
    )
