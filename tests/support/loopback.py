"""HTTP server on a loopback port with one thread per connection."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

RESERVATIONS: list[socket.socket] = []


class Server(http.server.ThreadingHTTPServer):
    """Server of a handler class with additional attributes, such as the served content."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, handler: type[http.server.BaseHTTPRequestHandler], port: int = 0, **attributes: Any) -> None:
        self.allow_reuse_port = bool(port)
        super().__init__(("127.0.0.1", port), type("Bound", (handler,), attributes))

    @property
    def port(self) -> int:
        """The port that the system assigned."""
        return self.server_address[1]

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore errors: clients of some tests close their connections."""


@cache
def reserved_port() -> int:
    """A port that this process keeps: connections are refused while no server of this process listens on it."""
    reservation = socket.socket()
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reservation.bind(("127.0.0.1", 0))
    RESERVATIONS.append(reservation)
    return int(reservation.getsockname()[1])


@contextmanager
def running_server(server: Server) -> Iterator[None]:
    """Run the server during the context."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
