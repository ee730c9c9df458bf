"""Reads a project's page of a simple index: PEP 691 (JSON) where the index supports it, else PEP 503 (HTML)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import NamedTuple
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import msgspec

from envdoctor.download.http_client import HttpClient, RequestFailed, Response
from envdoctor.knowledge.releases import normalize_name
from envdoctor.package_index.wheel_names import Wheel, parse_wheel_name
from envdoctor.redact.variables import redact_variable

PAGE_BYTES = 32 << 20  # the longest pages on PyPI have 10 MB
ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"


class File(NamedTuple):
    """One file of a project. `metadata` is the SHA-256 of its .metadata file; None: it has none."""

    name: str
    url: str
    version: str
    wheel: Wheel | None
    requires_python: str = ""
    metadata: str | None = None
    yanked: bool = False
    upload_time: str = ""  # "2026-10-28T09:30:00Z"; empty where the index does not state it

    @property
    def uploaded(self) -> str:
        """The day of the upload: "2026-10-28"."""
        return self.upload_time[:10]


class Project(NamedTuple):
    """The files of a project by version as spelled in their names: "1.0" and "1.0.0" are separate."""

    name: str
    page: str  # URL without credentials
    releases: dict[str, list[File]]


class _JsonFile(msgspec.Struct, rename="kebab"):
    """A file of PEP 691 and PEP 700, with the fields that are used."""

    filename: str
    url: str
    requires_python: str | None = None
    core_metadata: bool | dict[str, str] | None = None
    dist_info_metadata: bool | dict[str, str] | None = None
    yanked: bool | str = False
    upload_time: str = ""


class _JsonPage(msgspec.Struct):
    files: list[_JsonFile]


# Created here: of a first decoder that several threads create at once, msgspec can leave one incomplete and crash.
_PAGES = msgspec.json.Decoder(_JsonPage)


def read_project(client: HttpClient, index: str, name: str) -> Project:
    """Read a project's page."""
    response = client.get(f"{index.rstrip('/')}/{name}/", limit=PAGE_BYTES, accept=ACCEPT)
    url = redact_variable("", response.url)
    try:
        if _content_type(response).endswith("json"):
            files = parse_json(response.body, response.url)
        else:
            files = parse_html(_html(response), response.url)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise RequestFailed(f"{url} is not a page of a simple index: {str(error).splitlines()[0][:200]}") from error
    releases: dict[str, list[File]] = {}
    for file in files:
        if _belongs_to(file, name):
            releases.setdefault(file.version, []).append(file)
    if not releases:
        raise RequestFailed(f"{url} lists no file of {name}")
    return Project(name, url, releases)


def parse_json(data: bytes, base: str) -> list[File]:
    """Parse a page in JSON.

    Sample: {"files": [{"filename": "trl-1.0-py3-none-any.whl", "url": "...", "core-metadata": {"sha256": "..."}}]}
    """
    page = _PAGES.decode(data)
    files = []
    for item in page.files:
        metadata = item.core_metadata if item.core_metadata is not None else item.dist_info_metadata
        digest = metadata.get("sha256", "") if isinstance(metadata, dict) else "" if metadata else None
        files.append(
            _file(
                item.filename, _joined(base, item.url), item.requires_python or "", digest,
                yanked=item.yanked is not False, uploaded=item.upload_time,
            )
        )  # fmt: skip
    return files


def _joined(base: str, url: str) -> str:
    """A URL of a page; urljoin takes as long as all else that is done for a file."""
    return url if url.startswith("https://") else urljoin(base, url)


def parse_html(text: str, base: str) -> list[File]:
    """Parse a page in HTML.

    Sample: <a href="../trl-1.0-py3-none-any.whl#sha256=..." data-requires-python="&gt;=3.9" data-yanked="">...</a>
    """
    parser = _LinkParser(base)
    parser.feed(text)
    return parser.files


class _LinkParser(HTMLParser):
    """Collects the links of a page; the name of a file is the last part of its URL (PEP 503)."""

    def __init__(self, base: str) -> None:
        super().__init__()
        self.base = base
        self.files: list[File] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Handle a link, or the base URL of links."""
        attributes = {name: value or "" for name, value in attrs}
        if tag == "base" and attributes.get("href"):
            self.base = urljoin(self.base, attributes["href"])
        if tag != "a" or "href" not in attributes:
            return
        url = urldefrag(urljoin(self.base, attributes["href"])).url
        self.files.append(
            _file(
                unquote(urlsplit(url).path.rpartition("/")[2]), url, attributes.get("data-requires-python", ""),
                _digest(attributes), yanked="data-yanked" in attributes,
                uploaded=attributes.get("data-upload-time", ""),
            )
        )  # fmt: skip


def _digest(attributes: Mapping[str, str]) -> str | None:
    """Return the hash of `data-core-metadata="sha256=..."` or "true" (PEP 714), also under its older name."""
    for name in ("data-core-metadata", "data-dist-info-metadata"):
        if name in attributes:
            match = re.fullmatch(r"sha256=([0-9a-fA-F]{64})", attributes[name])
            return match[1] if match else "" if attributes[name] != "false" else None
    return None


def _file(name: str, url: str, python: str, digest: str | None, *, yanked: bool, uploaded: str) -> File:
    wheel = parse_wheel_name(name)
    version = wheel.version if wheel else _sdist_version(name)
    return File(name, url, version, wheel, python, digest, yanked, uploaded)


def _sdist_version(filename: str) -> str:
    """Return "2.8.3" for `flash_attn-2.8.3.tar.gz`; empty for a file that is not a source archive."""
    match = re.fullmatch(r"(.+)-([^-]+)\.(?:tar\.(?:gz|bz2|xz)|tgz|zip)", filename)
    return match[2] if match else ""


def _belongs_to(file: File, name: str) -> bool:
    if not file.version:
        return False
    return (file.wheel.name if file.wheel else normalize_name(file.name.rpartition("-")[0])) == name


def _html(response: Response) -> str:
    if "html" not in _content_type(response):
        raise ValueError(f"its content type is {_content_type(response) or 'not stated'}")
    return response.body.decode("utf-8", "replace")


def _content_type(response: Response) -> str:
    return response.headers.get_content_type() if response.headers.get("Content-Type") else ""
