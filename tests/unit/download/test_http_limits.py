"""The size limits of responses from package sources."""

from __future__ import annotations

import gzip
import http.client
import io
import math

import pytest
from support.cases import each_case

from envdoctor.download.http_client import HttpClient, RequestFailed, Stream, _decompress
from envdoctor.download.sources import Sources


class Body(io.BytesIO):
    """A socket that received these bytes."""

    def makefile(self, _mode: str) -> io.BytesIO:
        return self


def read(body: bytes, limit: int, *, length: int | None = None) -> bytes:
    head = f"HTTP/1.1 200 OK\r\n{'' if length is None else f'Content-Length: {length}'}\r\n\r\n".encode()
    response = http.client.HTTPResponse(Body(head.replace(b"\r\n\r\n\r\n", b"\r\n\r\n") + body))  # type: ignore[arg-type]
    response.begin()
    return HttpClient(Sources(), end=math.inf)._read(Stream(response, "https://x/y", 1.0), limit)


@each_case(
    ("body", "length", "problem"),
    [
        (b"x" * 10, 10, ""), (b"x" * 10, None, ""), (b"x" * 11, 11, "would send 11 bytes, expected at most 10"),
        (b"x" * 11, None, "sends more than 10 bytes"), (b"x" * 9, 10, "does not respond|sent 9 of 10 bytes"),
    ],
)  # fmt: skip
def test_a_body_of_the_limit_is_read(body: bytes, length: int | None, problem: str) -> None:
    if not problem:
        assert read(body, 10, length=length) == body
        return
    with pytest.raises(RequestFailed, match=problem):
        read(body, 10, length=length)


def test_a_compressed_body_of_the_limit_is_read() -> None:
    data = gzip.compress(b"x" * 100)
    assert _decompress(data, 100, "x") == b"x" * 100
    with pytest.raises(RequestFailed, match="more than 99 bytes"):
        _decompress(data, 99, "x")
    with pytest.raises(RequestFailed, match="incomplete data"):
        _decompress(data[:-9], 100, "x")
