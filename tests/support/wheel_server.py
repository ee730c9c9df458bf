"""HTTP server on loopback for a folder of files, with simulated network faults; it records the requests."""

from __future__ import annotations

import base64
import hashlib
import http.server
import re
import shutil
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest
from support.loopback import Server, running_server


@dataclass
class RecordedRequest:
    """One request, and the bytes of the body sent for it."""

    path: str
    byte_range: str
    if_range: str
    login: str
    proxy_login: str
    sent: int = 0


@dataclass
class Files:
    """Files at /NAME. Each request consumes one entry of each list of faults."""

    folder: Path
    ranges: bool = True
    etags: bool = True
    lengths: bool = True
    user: str = ""  # "name:password" that each request needs
    cut: list[int] = field(default_factory=list)  # bytes after which the connection is closed
    stall: list[int] = field(default_factory=list)  # bytes after which nothing more is sent
    responses: list[tuple[int, dict[str, str]]] = field(default_factory=list)  # sent instead of the file
    replaced: dict[str, bytes] = field(default_factory=dict)  # bodies by name, instead of the file's
    bytes_per_second: int = 0
    padding: int = 0  # bytes sent after the end of the body
    requests: list[RecordedRequest] = field(default_factory=list)
    port: int = 0
    scheme: str = "http"
    done: threading.Event = field(default_factory=threading.Event)

    def url(self, name: str, user: str = "") -> str:
        return f"{self.scheme}://{user + '@' if user else ''}127.0.0.1:{self.port}/{name}"

    def data(self, path: str) -> bytes | None:
        if path.startswith("/simple/"):
            return self._page(path.split("/")[2])
        name = path.rpartition("/")[2].partition("?")[0]
        if name in self.replaced:
            return self.replaced[name]
        return (self.folder / name).read_bytes() if (self.folder / name).is_file() else None

    def _page(self, project: str) -> bytes | None:
        """Return a page of a simple index (PEP 503) for the folder."""
        wheels = [w for w in sorted(self.folder.glob("*.whl")) if w.name.split("-")[0].replace("_", "-") == project]
        links = (f'<a href="/{w.name}#sha256={self._sha256(w)}">{w.name}</a>' for w in wheels)
        return "\n".join(links).encode() if wheels else None

    def _sha256(self, wheel: Path) -> str:
        return hashlib.sha256(wheel.read_bytes()).hexdigest()

    def sent(self) -> dict[str, int]:
        """Return the bytes sent of each file, without index pages."""
        sent: dict[str, int] = {}
        for request in self.requests:
            if not request.path.startswith("/simple/") and request.byte_range != "bytes=0-0":
                sent[request.path[1:]] = sent.get(request.path[1:], 0) + request.sent
        return sent


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves the wheels of a folder, with ranges, faults and logins as the server's files define them."""

    files: Files

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._head(405, {"Content-Length": "0"})

    def do_GET(self) -> None:
        files = self.files
        header = self.headers.get
        recorded = RecordedRequest(self.path, header("Range", ""), header("If-Range", ""),
                                   header("Authorization", ""), header("Proxy-Authorization", ""))  # fmt: skip
        files.requests.append(recorded)
        data = files.data(self.path)
        if files.user and recorded.login != "Basic " + base64.b64encode(files.user.encode()).decode():
            self._head(401, {"WWW-Authenticate": 'Basic realm="files"', "Content-Length": "0"})
        elif self.path.startswith("/simple/"):
            self._head(200 if data else 404, {"Content-Type": "text/html", "Content-Length": str(len(data or b""))})
            self.wfile.write(data or b"")
        elif files.responses:
            status, headers = files.responses.pop(0)
            self._head(status, {"Content-Length": "0"} | headers)
        elif data is None:
            self._head(404, {"Content-Length": "0"})
        else:
            self._file(recorded, data)

    def _file(self, recorded: RecordedRequest, data: bytes) -> None:
        files = self.files
        etag = f'"{hashlib.md5(data).hexdigest()}"'
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", recorded.byte_range)
        headers = {"ETag": etag} if files.etags else {}
        if found and files.ranges and recorded.if_range in ("", etag):
            start, end = int(found[1]), min(int(found[2] or len(data)), len(data) - 1)
            if start >= len(data):
                self._head(416, {"Content-Range": f"bytes */{len(data)}", "Content-Length": "0"})
                return
            body = data[start : end + 1]
            self._head(206, headers | {"Content-Range": f"bytes {start}-{end}/{len(data)}"} | self._length(body))
        else:
            body = data
            self._head(200, headers | self._length(body))
        if recorded.byte_range != "bytes=0-0":
            self._body(recorded, body + b"x" * files.padding)

    def _length(self, body: bytes) -> dict[str, str]:
        return {"Content-Length": str(len(body))} if self.files.lengths else {}

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _body(self, recorded: RecordedRequest, body: bytes) -> None:
        files = self.files
        cut = files.cut.pop(0) if files.cut else len(body)
        stall = files.stall.pop(0) if files.stall else None
        limit = cut if stall is None else min(cut, stall)
        chunk = files.bytes_per_second // 20 or 1 << 16
        while recorded.sent < min(limit, len(body)):
            data = body[recorded.sent : min(recorded.sent + chunk, limit)]
            self.wfile.write(data)
            recorded.sent += len(data)
            time.sleep(0.05 if files.bytes_per_second else 0)
        if stall is not None:
            files.done.wait(30)


def make_certificate(folder: Path, name: str = "IP:127.0.0.1") -> Path:
    """Write an untrusted certificate for an address to cert.pem; return the file with certificate and key."""
    key, certificate = _certificate(name)
    (folder / "key.pem").write_text(key)
    (folder / "cert.pem").write_text(certificate)
    (folder / "both.pem").write_text(key + certificate)
    return folder / "both.pem"


@cache
def _certificate(name: str) -> tuple[str, str]:
    """A key and its certificate, made once in this process."""
    if not shutil.which("openssl"):
        pytest.skip("no openssl command to make a certificate with")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
             "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", f"subjectAltName={name}",
             "-addext", "basicConstraints=critical,CA:FALSE",
             "-keyout", "key.pem", "-out", "cert.pem"],
            cwd=folder, check=True, capture_output=True,
        )  # fmt: skip
        return Path(folder, "key.pem").read_text(), Path(folder, "cert.pem").read_text()


@contextmanager
def serving(files: Files, certificate: Path | None = None) -> Iterator[Files]:
    """Serve on a free loopback port, over TLS with a certificate (and its key in the same file)."""
    server = Server(Handler, files=files)
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        files.scheme = "https"
    files.port = server.port
    with running_server(server):
        try:
            yield files
        finally:
            files.done.set()
