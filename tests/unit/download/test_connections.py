"""Requests over a connection that is open already."""

from __future__ import annotations

import http.server
import time

import pytest
from support.loopback import Server, running_server

from envdoctor.download.http_client import HttpClient, RequestFailed
from envdoctor.download.sources import Sources


class Handler(http.server.BaseHTTPRequestHandler):
    """Returns 2,000 bytes, and counts connections."""

    protocol_version = "HTTP/1.1"
    connections: list[int]

    def setup(self) -> None:
        super().setup()
        self.connections.append(0)

    def do_GET(self) -> None:
        self.connections[-1] += 1
        self.send_response(404 if self.path == "/absent" else 200)
        if self.path != "/old":
            self.send_header("Content-Length", "2000")
        self.end_headers()
        self.wfile.write(b"x" * 2000)
        self.close_connection |= self.path in ("/closed", "/old")

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.mark.parametrize(
    ("paths", "connections"),
    [
        (["/a", "/b", "/c"], [3]),
        (["/closed", "/b", "/c"], [1, 2]),  # the server closes the first one after its response
        (["/old", "/b"], [1, 1]),  # without a length, the end of the connection ends the response
        (["/absent", "/b", "/c"], [1, 2]),  # the body of an error is not read
        (["/long", "/b"], [1, 1]),
    ],
)
def test_connections_of_requests(paths: list[str], connections: list[int]) -> None:
    server = Server(Handler, connections=[])
    with running_server(server):
        client = HttpClient(Sources(), end=time.monotonic() + 20)
        for path in paths:
            url = f"http://127.0.0.1:{server.port}{path}"
            if path in ("/absent", "/long"):
                with pytest.raises(RequestFailed):
                    client.get(url, limit=1000)
            else:
                assert client.get(url, limit=2000).body == b"x" * 2000
    assert server.RequestHandlerClass.connections == connections  # type: ignore[attr-defined]
