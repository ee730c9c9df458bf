"""A web server on a free loopback port: a thread for each connection, and an orderly end."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Server(http.server.ThreadingHTTPServer):
    """It answers with a handler that has these attributes: what is served, for the most part."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, handler: type[http.server.BaseHTTPRequestHandler], **attributes: Any) -> None:
        super().__init__(("127.0.0.1", 0), type("Bound", (handler,), attributes))

    @property
    def port(self) -> int:
        """The one that it got."""
        return self.server_address[1]

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is what some tests are about."""


@contextmanager
def answering(server: Server) -> Iterator[None]:
    """Meanwhile the server answers."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
