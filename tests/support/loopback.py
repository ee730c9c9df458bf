"""HTTP server on a free loopback port with one thread per connection."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Server(http.server.ThreadingHTTPServer):
    """Server of a handler class with additional attributes, such as the served content."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, handler: type[http.server.BaseHTTPRequestHandler], **attributes: Any) -> None:
        super().__init__(("127.0.0.1", 0), type("Bound", (handler,), attributes))

    @property
    def port(self) -> int:
        """The port that the system assigned."""
        return self.server_address[1]

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore errors: clients of some tests close their connections."""


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
