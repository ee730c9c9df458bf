"""Reads METADATA of a wheel without downloading it: from its .metadata file (PEP 658), else with range requests."""

from __future__ import annotations

import io
import re
import zipfile
from typing import NamedTuple

from envdoctor.download.http_client import HttpClient, RequestFailed, Response, verify_sha256
from envdoctor.download.wheel_archive import BROKEN_ARCHIVE
from envdoctor.environment.metadata import parse_head
from envdoctor.knowledge.releases import normalize_name
from envdoctor.knowledge.versions import version_key
from envdoctor.knowledge_check.simple_index import File
from envdoctor.redact.variables import redact_variable

METADATA_BYTES = 4 << 20
RANGE_BYTES = 16 << 20  # of one wheel in total; the central directory of torch has 1.4 MB
TAIL_BYTES = 1 << 16  # contains central directory and METADATA of most wheels: one request is enough


class Metadata(NamedTuple):
    """The requirements of a wheel."""

    requires: tuple[str, ...]  # with markers
    requires_python: str
    file: str  # name of the wheel


def read_metadata(client: HttpClient, file: File) -> Metadata:
    """Read METADATA of a wheel; raises RequestFailed where it does not match the wheel's name."""
    data = None
    if file.metadata is not None:
        try:
            response = client.get(f"{file.url}.metadata", limit=METADATA_BYTES)
            data = verify_sha256(response.body, file.metadata, f"METADATA of {file.name}")
        except RequestFailed as failure:
            if failure.status not in (403, 404):  # some mirrors list the file and do not have it
                raise
    fields = parse_head(data if data is not None else _read_by_ranges(client, file))
    name, version = "".join(fields["name"][:1]), "".join(fields["version"][:1])
    assert file.wheel
    if normalize_name(name) != file.wheel.name or version_key(version) != version_key(file.wheel.version):
        raise RequestFailed(f"METADATA of {file.name} is for {name[:80]!r} {version[:80]!r}")
    python = "".join(fields["requires-python"][:1])
    return Metadata(tuple(fields["requires-dist"]), python, file.name)


def _read_by_ranges(client: HttpClient, file: File) -> bytes:
    try:
        with zipfile.ZipFile(_RemoteFile(client, file)) as archive:
            members = [name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name)]
            if len(members) != 1:
                raise RequestFailed(f"{file.name} has {len(members)} METADATA files, expected one")
            with archive.open(members[0]) as member:
                data = member.read(METADATA_BYTES + 1)
    except BROKEN_ARCHIVE as error:
        raise RequestFailed(f"{file.name} is not a readable wheel: {error or type(error).__name__}") from error
    if len(data) > METADATA_BYTES:
        raise RequestFailed(f"METADATA of {file.name} has more than {METADATA_BYTES} bytes")
    return data


class _RemoteFile(io.RawIOBase):
    """A remote file for zipfile, which reads its end, the central directory and one member, with range requests."""

    def __init__(self, client: HttpClient, file: File) -> None:
        super().__init__()
        self._client, self._file = client, file
        self._position = 0
        self._received = 0
        self._parts: list[tuple[int, bytes]] = []
        self._size = self._read_end()

    def _read_end(self) -> int:
        """Read the last bytes and return the size of the file."""
        try:
            response = self._fetch(f"-{TAIL_BYTES}")
        except RequestFailed as failure:
            if failure.status not in (400, 403, 405, 416, 501):
                raise
            response = self._fetch("0-0")  # some servers do not support a range from the end
        if response.status == 200:
            self._parts.append((0, response.body))
            return len(response.body)
        start, size = self._parse_range(response)
        self._parts.append((start, response.body))
        return size

    def _fetch(self, byte_range: str) -> Response:
        response = self._client.get(self._file.url, limit=max(RANGE_BYTES - self._received, 1), byte_range=byte_range)
        self._received += len(response.body)
        return response

    def _parse_range(self, response: Response) -> tuple[int, int]:
        """Return the start of a part and the size of the file, from `bytes 0-99/483664949`."""
        header = response.headers.get("Content-Range", "")
        match = re.fullmatch(r"bytes (\d{1,15})-(\d{1,15})/(\d{1,15})", header.strip())
        if not match or int(match[2]) - int(match[1]) + 1 != len(response.body) or int(match[2]) >= int(match[3]):
            raise RequestFailed(f"{redact_variable('', self._file.url)} returned the range {header[:80]!r}")
        return int(match[1]), int(match[3])

    def seekable(self) -> bool:
        """Return True."""
        return True

    def readable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seek(self, offset: int, whence: int = 0) -> int:
        """Set the position."""
        position = offset + {0: 0, 1: self._position, 2: self._size}[whence]
        if position < 0:
            raise ValueError(f"negative position {position}")
        self._position = position
        return position

    def read(self, size: int = -1) -> bytes:
        """Read bytes from the parts received so far, else from the server."""
        end = self._size if size < 0 else min(self._position + size, self._size)
        if end <= self._position:
            return b""
        data = self._cached(self._position, end)
        if data is None:
            # Request more than required: zipfile reads a member's header, then its data.
            stop = min(max(end, self._position + TAIL_BYTES), self._size)
            response = self._fetch(f"{self._position}-{stop - 1}")
            if response.status != 206 or self._parse_range(response) != (self._position, self._size):
                raise RequestFailed(f"{redact_variable('', self._file.url)} did not return the requested range")
            self._parts.append((self._position, response.body))
            data = response.body[: end - self._position]
        self._position += len(data)
        return data

    def _cached(self, start: int, end: int) -> bytes | None:
        for first, part in self._parts:
            if first <= start and end <= first + len(part):
                return part[start - first : end - first]
        return None
