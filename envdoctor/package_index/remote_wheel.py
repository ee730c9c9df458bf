"""A wheel on a server as a file for zipfile: only the parts that are read are requested."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterable

from envdoctor.download.http_client import HttpClient, RequestFailed, Response
from envdoctor.download.wheel_archive import BROKEN_ARCHIVE
from envdoctor.package_index.simple_index import File
from envdoctor.redact.variables import redact_variable

RANGE_BYTES = 16 << 20  # of one wheel in total; the central directory of torch has 1.4 MB
TAIL_BYTES = 1 << 16  # contains central directory and METADATA of most wheels: one request is enough
HEADER_BYTES = 1 << 10  # of a member: its local header, with name and extra field


class RemoteFile(io.RawIOBase):
    """A remote file for zipfile, which reads its end, the central directory and members, with range requests."""

    def __init__(self, client: HttpClient, file: File, *, limit: int = RANGE_BYTES) -> None:
        super().__init__()
        self._client, self._file, self._limit = client, file, limit
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
        limit = max(self._limit - self._received, 1)
        response = self._client.get(self._file.url, limit=limit, byte_range=byte_range)
        self._received += len(response.body)
        return response

    def _parse_range(self, response: Response) -> tuple[int, int]:
        """Return the start of a part and the size of the file, from `bytes 0-99/483664949`."""
        header = response.headers.get("Content-Range", "")
        match = re.fullmatch(r"bytes (\d{1,15})-(\d{1,15})/(\d{1,15})", header.strip())
        if not match or int(match[2]) - int(match[1]) + 1 != len(response.body) or int(match[2]) >= int(match[3]):
            raise RequestFailed(f"{redact_variable('', self._file.url)} returned the range {header[:80]!r}")
        return int(match[1]), int(match[3])

    def request_parts(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Request these parts, given as start and end; neighbours with a small gap share one request."""
        joined: list[list[int]] = []
        for start, end in sorted(ranges):
            if joined and start - joined[-1][1] <= TAIL_BYTES:
                joined[-1][1] = max(joined[-1][1], end)
            else:
                joined.append([start, end])
        for start, end in joined:
            if self._cached(start, min(end, self._size)) is None:
                self._request(start, end)

    def _request(self, start: int, end: int) -> bytes:
        stop = min(end, self._size)
        response = self._fetch(f"{start}-{stop - 1}")
        if response.status != 206 or self._parse_range(response) != (start, self._size):
            raise RequestFailed(f"{redact_variable('', self._file.url)} did not return the requested range")
        self._parts.append((start, response.body))
        return response.body

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
            data = self._request(self._position, max(end, self._position + TAIL_BYTES))[: end - self._position]
        self._position += len(data)
        return data

    def _cached(self, start: int, end: int) -> bytes | None:
        for first, part in self._parts:
            if first <= start and end <= first + len(part):
                return part[start - first : end - first]
        return None


class RemoteWheel:
    """The members of a wheel. Raises RequestFailed, also where the archive is damaged or too large to read."""

    def __init__(self, client: HttpClient, file: File, *, limit: int = RANGE_BYTES) -> None:
        self.file = file
        self._remote = RemoteFile(client, file, limit=limit)
        try:
            self._archive = zipfile.ZipFile(self._remote)
        except BROKEN_ARCHIVE as error:
            raise self._broken(error) from error
        self.members = {member.filename: member for member in self._archive.infolist()}

    def request(self, names: Iterable[str]) -> None:
        """Request the bytes of these members together, so that `read` needs no request for each."""
        members = [self.members[name] for name in names]
        self._remote.request_parts(
            (member.header_offset, member.header_offset + member.compress_size + HEADER_BYTES + len(member.filename))
            for member in members
        )

    def read(self, name: str, *, limit: int) -> bytes:
        """Return the content of a member with at most this many bytes."""
        try:
            with self._archive.open(self.members[name]) as member:
                data = member.read(limit + 1)
        except BROKEN_ARCHIVE as error:
            raise self._broken(error) from error
        if len(data) > limit:
            raise RequestFailed(f"{name} of {self.file.name} has more than {limit} bytes")
        return data

    def _broken(self, error: BaseException) -> RequestFailed:
        return RequestFailed(f"{self.file.name} is not a readable wheel: {error or type(error).__name__}")
