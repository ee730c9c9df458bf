"""Connections for urllib that look up each host once.

Eight threads that ask a resolver at once lose answers: 60 of 200 lookups then waited 5 s for the second try
(measured in a container; one at a time none did). urllib itself opens a connection for each request.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import urllib.request
from threading import Lock
from typing import Any


class Hosts:
    """Addresses of hosts, each looked up once, one at a time."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: dict[tuple[str, int], list[str]] = {}

    def connect(
        self, address: tuple[str, int], timeout: float, source_address: tuple[str, int] | None = None
    ) -> socket.socket:
        """As socket.create_connection does: the host's addresses in turn."""
        failure: OSError = OSError(f"{address[0]} has no address")
        for place in self._look_up(address):
            try:
                return socket.create_connection((place, address[1]), timeout, source_address)
            except OSError as error:
                failure = error
        raise failure

    def _look_up(self, address: tuple[str, int]) -> list[str]:
        with self._lock:
            if address not in self._known:
                found = socket.getaddrinfo(*address, 0, socket.SOCK_STREAM)
                self._known[address] = list(dict.fromkeys(str(each[4][0]) for each in found))
            return self._known[address]


class PlainHandler(urllib.request.HTTPHandler):
    """http:// over these hosts."""

    def __init__(self, hosts: Hosts) -> None:
        super().__init__()
        self._hosts = hosts

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """One request."""

        def connection(host: str, **options: Any) -> http.client.HTTPConnection:
            made = http.client.HTTPConnection(host, **options)
            made._create_connection = self._hosts.connect  # type: ignore[attr-defined]  # noqa: SLF001  see `secure`
            return made

        return self.do_open(connection, req)


class SecureHandler(urllib.request.HTTPSHandler):
    """https:// over these hosts; through a proxy, too, since urllib tells the connection of it."""

    def __init__(self, hosts: Hosts, context: ssl.SSLContext) -> None:
        super().__init__(context=context)
        self._hosts = hosts
        self._tls = context

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """One request."""

        def secure(host: str, **options: Any) -> http.client.HTTPSConnection:
            made = http.client.HTTPSConnection(host, context=self._tls, **options)
            # The seam that http.client has for this (CPython 2.7 to 3.14); overriding connect() would mean doing
            # the proxy's CONNECT and TLS here. Without the seam, lookups are urllib's own again: slower, not wrong.
            made._create_connection = self._hosts.connect  # type: ignore[attr-defined]  # noqa: SLF001
            return made

        return self.do_open(secure, req)
