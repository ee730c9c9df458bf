"""A package index of envdoctor's own tables on loopback: their releases, dates and requirements in empty wheels.

PyPI is served at /NAME/simple/. The PyTorch index has a fixed URL in uv, so the server is also an HTTPS proxy that
answers for its host with a certificate that it made. Wheels exist only while they are requested.
"""

from __future__ import annotations

import http.server
import io
import json
import re
import ssl
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from urllib.parse import quote, unquote

from packaging.utils import canonicalize_name
from support.loopback import Server, running_server
from support.wheel_server import make_certificate

from envdoctor.knowledge.guides import cuda_on_pypi
from envdoctor.knowledge.published import PublishedRelease, published_releases
from envdoctor.knowledge.releases import parse_requirement, releases_of, requirements_of_release
from envdoctor.knowledge.tables import FOLDER
from envdoctor.knowledge.torch_builds import known_builds, libraries_of_torch
from envdoctor.knowledge.versions import cuda_of_local, minor_of, public_part, satisfies

TORCH_INDEX = "download.pytorch.org"
PYTHONS = ("3.12", "3.11", "3.10", "3.9", "3.8")  # of simulated environments; the wheels have a tag for all Pythons
FIRST_DAY = "2021-01-01"  # upload of releases whose day is not in the tables
# Releases on PyPI's simple index on 2026-11-23, of packages that the tables do not have.
LISTED = {
    "torchao": "0.18.0 0.17.0 0.16.0 0.15.0 0.14.1 0.14.0 0.13.0 0.12.0 0.11.0 0.10.0 0.9.0 0.8.0 0.7.0 0.6.1 0.5.0",
    "nltk": "3.9.4 3.9.1 3.8.1",
    "ipykernel": "7.4.0 6.31.0 6.30.1 6.29.5",
    "ipywidgets": "8.1.7 8.1.5 7.8.5",
    "urllib3": "2.5.0 2.2.3 1.26.20 1.26.18",
    "onnxruntime-gpu": "1.31.1 1.27.0 1.26.0 1.23.2 1.20.2 1.19.2 1.18.1 1.17.1",
    "nvidia-cuda-runtime-cu11": "11.8.89 11.7.99",
    "nvidia-cutlass-dsl-libs-cu13": "4.5.2",
    "nvidia-cuda-runtime-cu12": "12.9.79 12.8.90 12.6.77 12.4.127 12.1.105",
    "nvidia-cublas-cu12": "12.9.1.4 12.8.4.1 12.6.4.1 12.4.5.8 12.1.3.1",
    "jax": "0.12.0.1 0.7.2",
    "jax-cuda12-plugin": "0.12.0.1 0.7.2",
}
# Extras that remedies name, with their requirement: METADATA on PyPI on 2026-11-23.
EXTRAS = {"nvidia-cutlass-dsl": ("cu13", "nvidia-cutlass-dsl-libs-cu13"), "jax": ("cuda12", "jax-cuda12-plugin")}
BUILDS = ("torch", "torchvision", "torchaudio")  # packages with one build for each CUDA version on the PyTorch index
# Builds an empty wheel from an sdist, without any dependency.
BACKEND = """
import pathlib
def build_wheel(folder, config_settings=None, metadata_directory=None):
    (wheel,) = pathlib.Path("wheel").iterdir()
    pathlib.Path(folder, wheel.name).write_bytes(wheel.read_bytes())
    return wheel.name
"""


@dataclass(frozen=True)
class Release:
    """A release in the index."""

    name: str
    version: str
    day: str = FIRST_DAY
    yanked: bool = False
    is_source: bool = False
    requires: tuple[str, ...] = ()
    files: tuple[tuple[str, str | bytes], ...] = ()  # path and content; an sdist with setup.py has no other backend
    python: str = ""  # Requires-Python
    home_page: str = ""
    tag: str = "py3-none-any"

    @property
    def stem(self) -> str:
        return f"{self.name.replace('-', '_')}-{self.version}"

    @property
    def wheel_name(self) -> str:
        return f"{self.stem}-{self.tag}.whl"

    @property
    def file_name(self) -> str:
        return f"{self.stem}.tar.gz" if self.is_source else self.wheel_name

    @property
    def metadata(self) -> str:
        requires = "".join(f"Requires-Dist: {line}\n" for line in self.requires)
        if self.name in EXTRAS:
            extra, package = EXTRAS[self.name]
            requires += f"Provides-Extra: {extra}\nRequires-Dist: {package}=={self.version}; extra == '{extra}'\n"
        home_page = f"Home-page: {self.home_page}\n" if self.home_page else ""
        return f"Metadata-Version: 2.2\nName: {self.name}\nVersion: {self.version}\n{home_page}{requires}"

    def content(self) -> bytes:
        """The wheel or the sdist."""
        return self._sdist() if self.is_source else self._wheel()

    def _wheel(self) -> bytes:
        info = f"{self.stem}.dist-info"
        wheel = f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {self.tag}\n"
        files = dict(self.files) | {f"{info}/METADATA": self.metadata, f"{info}/WHEEL": wheel}
        record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as archive:
            for path, text in (files | {f"{info}/RECORD": record}).items():
                archive.writestr(path, text)
        return stream.getvalue()

    def _sdist(self) -> bytes:
        if any(path in ("setup.py", "pyproject.toml") for path, _ in self.files):
            return self._tar({path: text.encode() if isinstance(text, str) else text for path, text in self.files})
        system = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        files = {
            "PKG-INFO": self.metadata.encode(), "pyproject.toml": system.encode(), "backend.py": BACKEND.encode(),
            f"wheel/{self.wheel_name}": self._wheel(),
        }  # fmt: skip
        return self._tar(files)

    def _tar(self, files: Mapping[str, bytes]) -> bytes:
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w:gz", compresslevel=1) as archive:
            for path, data in files.items():
                member = tarfile.TarInfo(f"{self.stem}/{path}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
        return stream.getvalue()


def has_wheel(row: PublishedRelease, python: str) -> bool:
    """Whether an environment with this Python can install a release."""
    return row.kind == "source" or row.has_wheel("x86_64", python)


@cache
def releases(name: str, python: str) -> dict[str, Release]:
    """The releases of a package on PyPI that an environment with this Python can install, newest first."""
    rows = published_releases(name) or tuple(PublishedRelease(each, FIRST_DAY, "any") for each in _listed(name))
    return {row.version: make_release(name, row.version, row) for row in rows if has_wheel(row, python)}


@cache
def builds(name: str, backend: str, python: str) -> dict[str, Release]:
    """The builds of a package on the PyTorch index of a backend, "cu128" or "cpu"."""
    lines = {row.torch for row in known_builds() if backend in ("cpu", f"cu{row.cuda.replace('.', '')}")}
    if name not in BUILDS:
        return releases(name, python)
    return {
        version: make_release(name, f"{version}+{backend}", row)
        for version, row in ((each.version, each) for each in published_releases(name))
        if minor_of(_torch_of(name, version)) in lines and has_wheel(row, python)
    }


def _torch_of(name: str, version: str) -> str:
    """The torch that a release of torch's family belongs to."""
    if name == "torch":
        return version
    lines = map(parse_requirement, requirements_of_release(name, version))
    pins = (line.specifier.lstrip("=>") for line in lines if line and line.name == "torch")
    return next(pins, version)  # torchaudio 2.11 requires no torch, and is built with 2.11


def make_release(
    name: str,
    version: str,
    row: PublishedRelease | None = None,
    requires: Iterable[str] | None = None,
    cuda: str = "",
) -> Release:
    """A release with the requirements of the tables, or with these. `cuda` of torch replaces the version's: "cpu"."""
    row = row or PublishedRelease(version, FIRST_DAY, "any")
    lines = tuple(requirements_of_release(name, version) if requires is None else requires)
    files: tuple[tuple[str, str | bytes], ...] = ()
    if name == "torch":
        cuda = cuda or cuda_of_local(version) or cuda_on_pypi(version, "x86_64") or "cpu"
        lines = tuple(each for line in lines for each in _for_build(line, cuda))
        libraries = libraries_of_torch(public_part(version), cuda) if requires is None else ()
        lines += tuple(filter(COMPARED_LIBRARY.match, libraries))
        local = "cpu" if cuda == "cpu" else f"cu{cuda.replace('.', '')}"
        full = version if "+" in version or cuda == "cpu" else f"{version}+{local}"
        text = f"__version__ = {full!r}\ncuda = {None if cuda == 'cpu' else cuda!r}\nhip = None\n"
        files = (("torch/version.py", text),)
    lines = lines if requires else tuple(filter(_is_available, lines))
    return Release(name, version, row.date, row.yanked, row.kind == "source", lines, files)


def _for_build(line: str, cuda: str) -> Iterator[str]:
    """A requirement of PyPI's torch as that of its build for another CUDA version."""
    library = re.match(r"nvidia-\w+-cu(\d+)", line)
    if cuda != "cpu" and library:
        yield line.replace(f"-cu{library[1]}", f"-cu{cuda.partition('.')[0]}", 1)
    elif not (cuda == "cpu" and re.match(r"triton|nvidia-", line)):
        yield line


COMPARED_LIBRARY = re.compile(r"nvidia-(?:cudnn|nvjitlink|cuda-runtime)")  # by rule CUDNN005


@cache
def _is_available(line: str) -> bool:
    """Whether the index has a release that satisfies a requirement; others are left out of the metadata."""
    requirement = parse_requirement(line)
    return requirement is not None and any(
        satisfies(version, requirement.specifier) for version in _versions(requirement.name)
    )


@cache
def _versions(name: str) -> tuple[str, ...]:
    return tuple(row.version for row in published_releases(name)) or _listed(name)


@cache
def _listed(name: str) -> tuple[str, ...]:
    """Versions of a package without a table of its releases: those of its requirements, or those that others pin."""
    return tuple(releases_of(name)) or tuple(LISTED.get(name, "").split()) or tuple(_pinned().get(name, {}))


@cache
def _pinned() -> dict[str, dict[str, None]]:
    """Exact versions in the requirements of all tables, by package."""
    versions: dict[str, dict[str, None]] = {}
    for path in sorted((FOLDER / "requires").glob("*.toml")):
        for row in releases_of(path.stem).values():
            for line in (*row.requires, *row.optional):
                requirement = parse_requirement(line)
                if requirement and re.fullmatch(r"==[\w.]+", requirement.specifier):
                    versions.setdefault(requirement.name, {})[requirement.specifier[2:]] = None
    versions.setdefault("nvidia-cudnn-cu13", {})["9.13.0.50"] = None  # of torch 2.9 for CUDA 13, not from PyPI
    for torch in releases_of("torch"):
        for line in filter(COMPARED_LIBRARY.match, libraries_of_torch(torch, "")):
            name, _, version = line.partition("==")
            versions.setdefault(name, {})[version] = None
    return versions


@dataclass
class ReleaseIndex:
    """The index; `added` has releases by the name of an index, next to those of the tables."""

    added: dict[str, dict[str, list[Release]]] = field(default_factory=dict)
    python: str = PYTHONS[0]  # of the environments that use the index
    contents: Callable[[str, Release], dict[str, bytes]] = lambda *_: {}  # more files of a release in an index
    requests: list[str] = field(default_factory=list)
    max_age: int = 0  # seconds for which uv may keep a page, as those of PyPI; 0: the index changes
    port: int = 0
    certificate: Path = Path()

    def variables(self, name: str) -> dict[str, str]:
        """Variables with which uv uses the index of this name as PyPI, and the PyTorch index by the proxy."""
        cache = {"UV_CACHE_DIR": str(self.certificate.with_name("uv-cache"))} if self.max_age else {}
        return {
            "UV_DEFAULT_INDEX": f"http://127.0.0.1:{self.port}/{name}/simple/", "NO_PROXY": "127.0.0.1",
            "HTTPS_PROXY": f"http://127.0.0.1:{self.port}", "SSL_CERT_FILE": str(self.certificate), **cache,
        }  # fmt: skip

    def find(self, index: str, package: str) -> list[Release]:
        """The releases of a package in an index."""
        if index.startswith("whl/"):
            return list(builds(package, index[4:], self.python).values())
        added = {each.version: each for each in self.added.get(index, {}).get(package, [])}
        return list((releases(package, self.python) | added).values())

    def respond(self, path: str) -> tuple[str, bytes] | None:
        """The content type and the body for a path."""
        if page := re.fullmatch(r"/(whl/\w+|[\w-]+/simple)/([^/]+)/?", path):
            index = page[1].removesuffix("/simple")
            found = self.find(index, str(canonicalize_name(page[2])))
            files = [
                {
                    "filename": each.file_name, "url": f"/files/{index}/{each.name}/{quote(each.file_name)}",
                    "hashes": {}, "upload-time": f"{each.day}T00:00:00Z", "yanked": each.yanked,
                    "requires-python": each.python or None,
                    "core-metadata": not each.is_source,
                }
                for each in found
            ]  # fmt: skip
            body = {"meta": {"api-version": "1.0"}, "name": page[2], "files": files}
            return ("application/vnd.pypi.simple.v1+json", json.dumps(body).encode()) if found else None
        if file := re.fullmatch(r"/files/(.+)/([^/]+)/([^/]+?)(\.metadata)?", unquote(path)):
            for each in self.find(file[1], file[2]):
                if each.file_name == file[3]:
                    files = (*each.files, *self.contents(file[1], each).items())
                    body = each.metadata.encode() if file[4] else replace(each, files=files).content()
                    return "application/octet-stream", body
        return None


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves an index, over TLS to the clients of its proxy."""

    protocol_version = "HTTP/1.1"
    index: ReleaseIndex
    context: ssl.SSLContext

    def log_message(self, *_: object) -> None:
        """Print no log lines."""

    def do_CONNECT(self) -> None:
        self.index.requests.append(f"CONNECT {self.path}")
        self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        self.connection = self.context.wrap_socket(self.connection, server_side=True)
        self.rfile, self.wfile = self.connection.makefile("rb"), self.connection.makefile("wb", 0)
        self.close_connection = False

    def finish(self) -> None:
        super().finish()
        if isinstance(self.connection, ssl.SSLSocket):
            self.connection.close()

    def do_GET(self) -> None:
        self.index.requests.append(self.path)
        kind, body = self.index.respond(self.path) or ("text/plain", b"")
        self.send_response(200 if body else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if self.index.max_age and not self.path.startswith("/whl/"):  # tests close the proxy to the PyTorch index
            self.send_header("Cache-Control", f"max-age={self.index.max_age}, public")
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serve(folder: Path, index: ReleaseIndex | None = None) -> Iterator[ReleaseIndex]:
    """Serve the index on a free loopback port; its certificate is written to the folder."""
    index = index or ReleaseIndex()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(make_certificate(folder, f"DNS:{TORCH_INDEX}"))
    index.certificate = folder / "cert.pem"
    server = Server(Handler, index=index, context=context)
    index.port = server.port
    with running_server(server):
        yield index
