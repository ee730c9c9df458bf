"""Generated wheels, and a package index on loopback that can require a password, fail or stall."""

from __future__ import annotations

import base64
import hashlib
import http.server
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from support.loopback import Server, running_server

TAG = "py3-none-any"
WHEEL = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {}\n"
PYTHON = "{}.{}".format(*sys.version_info)  # the Python of the tests, which uv need not download


def write_wheel(
    folder: Path,
    name: str,
    version: str,
    *,
    requires: Iterable[str] = (),
    tag: str = TAG,
    tag_inside: str = "",
    requires_python: str = "",
    files: dict[str, bytes] | None = None,
) -> Path:
    """Write a wheel with a package of the same name and these files. The tag need not match its content.

    `tag_inside`: of its WHEEL file, if it differs from that of the file name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stem = name.replace("-", "_")
    info = f"{stem}-{version}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}"]
    metadata += [f"Requires-Python: {requires_python}"] if requires_python else []
    metadata += [f"Requires-Dist: {requirement}" for requirement in requires]
    contents = {
        f"{stem}/__init__.py": f"__version__ = {version!r}\n".encode(),
        **(files or {}),
        f"{info}/METADATA": ("\n".join(metadata) + "\n").encode(),
        f"{info}/WHEEL": WHEEL.format(tag_inside or tag).encode(),
    }
    record = "".join(f"{path},{_record_hash(data)},{len(data)}\n" for path, data in contents.items())
    wheel = folder / f"{stem}-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, data in (contents | {f"{info}/RECORD": f"{record}{info}/RECORD,,\n".encode()}).items():
            archive.writestr(path, data)
    return wheel


def index_without_wheels(folder: Path, *releases: tuple[str, str]) -> str:
    """The URL of an index on disk that has releases for Python 3.8 only, as a partial mirror."""
    for name, version in releases:
        wheel = write_wheel(folder / name, name, version, tag="cp38-cp38-manylinux_2_17_x86_64")
        (folder / name / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
    return folder.as_uri()


def _record_hash(data: bytes) -> str:
    """The hash of a file as RECORD has it."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"sha256={digest}"


def write_cpu_torch(folder: Path) -> Path:
    """Write torch with the version of the CPU build on the PyTorch index."""
    return write_wheel(folder, "torch", "9.9.0+cpu")


def write_cuda_torch(folder: Path) -> None:
    """Write torch like the CUDA 12.8 build on PyPI: no local version, and the CUDA runtime as a requirement."""
    write_wheel(folder, "torch", "9.9.0", requires=["nvidia-cuda-runtime-cu12==12.8.90"])
    write_wheel(folder, "nvidia-cuda-runtime-cu12", "12.8.90")


PROFILE = """
id = "mine"
title = "Mine"
summary = "A user profile"
preference = 1
requirements = [{requirements}]
sources = [{sources}]
{extra}
[when]
architectures = ["x86_64", "aarch64"]
glibc = "2.17"
disk_gb = {disk}
[python]
versions = [{pythons}]
{cuda}
[environment]
OMP_NUM_THREADS = "{trial}"
[verify]
required = []
[train]
recipe = "sort"
"""


def write_profile(
    path: Path,
    *requirements: str,
    pythons: Iterable[str] = (PYTHON,),
    sources: str = '{ kind = "configured" }',
    cuda: str = "",
    disk: float = 0.001,
    trial: str = "1",
    extra: str = "",
) -> Path:
    """Write a user profile."""
    text = PROFILE.format(
        requirements=", ".join(f'{{ spec = "{spec}" }}' for spec in requirements),
        pythons=", ".join(f'"{version}"' for version in pythons),
        cuda=f'[cuda]\nbuild = "{cuda}"' if cuda else "",
        sources=sources,
        disk=disk,
        trial=trial,
        extra=extra,
    )
    path.write_text(text)
    return path


@dataclass
class Index:
    """A simple index (PEP 503): folders of wheels at /NAME/simple/, their files at /NAME/files/, and the requests."""

    folders: dict[str, Path]
    user: str = ""  # required credentials ("name:password")
    status: int = 0  # status of all responses, if set
    stalled: bool | Path = False  # accept connections and do not respond, while this file exists if it is a path
    hashes: str = "sha256"  # hash algorithm of the links; empty: no hashes
    before_body: Callable[[str], object] = bool  # called with the path between the header and the body
    requests: list[str] = field(default_factory=list)
    waiting: threading.Event = field(default_factory=threading.Event)  # a request is not responded to
    port: int = 0

    def is_stalled(self) -> bool:
        return self.stalled.exists() if isinstance(self.stalled, Path) else self.stalled

    def url(self, name: str = "main", user: str = "") -> str:
        """The URL of one of the indexes."""
        return f"http://{user + '@' if user else ''}127.0.0.1:{self.port}/{name}/simple/"

    def page(self, path: str) -> bytes | Path | None:
        """The index page or the wheel at a path, None if there is none."""
        name, kind, *rest = [unquote(part) for part in path.strip("/").split("/")]
        folder = self.folders.get(name)
        if folder is None:
            return None
        if kind == "files":
            return folder / rest[0]
        wheels = [wheel for wheel in folder.iterdir() if _project(wheel) == rest[0]] if rest else []
        return "".join(self._link(name, wheel) for wheel in sorted(wheels)).encode() if wheels else None

    def _link(self, name: str, wheel: Path) -> str:
        digest = hashlib.new(self.hashes, wheel.read_bytes()).hexdigest() if self.hashes else ""
        fragment = f"#{self.hashes}={digest}" if digest else ""
        return f'<a href="/{name}/files/{wheel.name}{fragment}">{wheel.name}</a>\n'


def _project(wheel: Path) -> str:
    """The project's normalised name from a wheel's file name."""
    return wheel.name.split("-", maxsplit=1)[0].replace("_", "-").lower()


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves the index."""

    protocol_version = "HTTP/1.1"
    index: Index  # set by Server

    def log_message(self, *_: object) -> None:
        """Print no log lines."""

    def do_HEAD(self) -> None:
        self._respond(405)

    def do_GET(self) -> None:
        index = self.index
        index.requests.append(self.path)
        while index.is_stalled():
            index.waiting.set()
            time.sleep(0.02)
        if index.status:
            self._respond(index.status)
        elif index.user and self.headers.get("Authorization") != _basic(index.user):
            self._respond(401, {"WWW-Authenticate": 'Basic realm="packages"'})
        else:
            self._send(index.page(self.path))

    def _send(self, content: bytes | Path | None) -> None:
        if isinstance(content, Path):
            self._respond(200, {}, content.read_bytes())
        else:
            self._respond(404 if content is None else 200, {"Content-Type": "text/html"}, content or b"")

    def _respond(self, status: int, headers: dict[str, str] | None = None, body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.index.before_body(self.path)
        self.wfile.write(body)


@contextmanager
def serve(index: Index) -> Iterator[Index]:
    """Serve an index on a free loopback port."""
    server = Server(Handler, index=index)
    index.port = server.port
    with running_server(server):
        try:
            yield index
        finally:
            index.stalled = False


def _basic(user: str) -> str:
    """The value of an Authorization header."""
    return "Basic " + base64.b64encode(user.encode()).decode()
