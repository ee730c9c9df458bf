"""METADATA of a wheel that is not downloaded: the file beside it (PEP 658), else ranges of the wheel itself."""

from __future__ import annotations

import io
import re
import zipfile
from typing import NamedTuple

from envdoctor.download.http_client import HttpClient, RequestFailed, Response, verified
from envdoctor.download.wheel_archive import BROKEN_ARCHIVE
from envdoctor.environment.metadata import parse_head
from envdoctor.knowledge.releases import normalize_name
from envdoctor.knowledge.versions import version_key
from envdoctor.knowledge_check.simple_index import File
from envdoctor.redact.variables import redact_variable

METADATA_BYTES = 4 << 20
RANGE_BYTES = 16 << 20  # of one wheel in all; the list of files of torch has 1.4 MB
TAIL_BYTES = 1 << 16  # holds the list of files and METADATA of most wheels: one request each


class Metadata(NamedTuple):
    """What a wheel states, and the wheel."""

    requires: tuple[str, ...]  # with their markers
    requires_python: str
    where: str  # file name


def read_metadata(client: HttpClient, file: File) -> Metadata:
    """METADATA of a wheel, held against the wheel's name."""
    data = None
    if file.metadata is not None:
        try:
            answer = client.get(f"{file.url}.metadata", limit=METADATA_BYTES)
            data = verified(answer.body, file.metadata, f"METADATA beside {file.name}")
        except RequestFailed as failure:
            if failure.status not in (403, 404):  # promised and not there: mirrors do that
                raise
    fields = parse_head(data if data is not None else _by_ranges(client, file))
    name, version = "".join(fields["name"][:1]), "".join(fields["version"][:1])
    assert file.wheel
    if normalize_name(name) != file.wheel.name or version_key(version) != version_key(file.wheel.version):
        raise RequestFailed(f"METADATA of {file.name} is that of {name[:80]!r} {version[:80]!r}")
    python = "".join(fields["requires-python"][:1])
    return Metadata(tuple(fields["requires-dist"]), python, file.name)


def _by_ranges(client: HttpClient, file: File) -> bytes:
    try:
        with zipfile.ZipFile(_RemoteFile(client, file)) as archive:
            own = [n for n in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", n)]
            if len(own) != 1:
                raise RequestFailed(f"{file.name} has {len(own)} METADATA files of its own, expected one")
            with archive.open(own[0]) as member:
                data = member.read(METADATA_BYTES + 1)
    except BROKEN_ARCHIVE as error:
        raise RequestFailed(f"{file.name} is no wheel that can be read: {error or type(error).__name__}") from error
    if len(data) > METADATA_BYTES:
        raise RequestFailed(f"METADATA of {file.name} has more than {METADATA_BYTES} bytes")
    return data


class _RemoteFile(io.RawIOBase):
    """A file on a server that serves ranges, for zipfile: it reads the end, the list of files, and one of them."""

    def __init__(self, client: HttpClient, file: File) -> None:
        super().__init__()
        self._client, self._file = client, file
        self._at = 0
        self._taken = 0
        self._parts: list[tuple[int, bytes]] = []
        self._size = self._read_end()

    def _read_end(self) -> int:
        """The size of the file, with its last bytes at hand."""
        try:
            answer = self._fetch(f"-{TAIL_BYTES}")
        except RequestFailed as failure:
            if failure.status not in (400, 403, 405, 416, 501):
                raise
            answer = self._fetch("0-0")  # some servers know no range counted from the end
        if answer.status == 200:
            self._parts.append((0, answer.body))
            return len(answer.body)
        start, size = self._place(answer)
        self._parts.append((start, answer.body))
        return size

    def _fetch(self, span: str) -> Response:
        answer = self._client.get(self._file.url, limit=max(RANGE_BYTES - self._taken, 1), span=span)
        self._taken += len(answer.body)
        return answer

    def _place(self, answer: Response) -> tuple[int, int]:
        """Where a part begins and how long the whole is: `bytes 0-99/483664949`."""
        told = answer.headers.get("Content-Range", "")
        found = re.fullmatch(r"bytes (\d{1,15})-(\d{1,15})/(\d{1,15})", told.strip())
        if not found or int(found[2]) - int(found[1]) + 1 != len(answer.body) or int(found[2]) >= int(found[3]):
            raise RequestFailed(f"{redact_variable('', self._file.url)} answers a range with {told[:80]!r}")
        return int(found[1]), int(found[3])

    def seekable(self) -> bool:
        """It is."""
        return True

    def readable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Where the next read begins."""
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        """As files do."""
        at = offset + {0: 0, 1: self._at, 2: self._size}[whence]
        if at < 0:
            raise ValueError(f"an offset before the file ({at})")
        self._at = at
        return at

    def read(self, size: int = -1) -> bytes:
        """Bytes from here on, from what is at hand, else from the server."""
        end = self._size if size < 0 else min(self._at + size, self._size)
        if end <= self._at:
            return b""
        data = self._at_hand(self._at, end)
        if data is None:
            # A little more than asked: zipfile reads a member's header, then its data.
            until = min(max(end, self._at + TAIL_BYTES), self._size)
            answer = self._fetch(f"{self._at}-{until - 1}")
            if answer.status != 206 or self._place(answer) != (self._at, self._size):
                raise RequestFailed(
                    f"{redact_variable('', self._file.url)} does not serve the range that it was asked for"
                )
            self._parts.append((self._at, answer.body))
            data = answer.body[: end - self._at]
        self._at += len(data)
        return data

    def _at_hand(self, start: int, end: int) -> bytes | None:
        for first, part in self._parts:
            if first <= start and end <= first + len(part):
                return part[start - first : end - first]
        return None
