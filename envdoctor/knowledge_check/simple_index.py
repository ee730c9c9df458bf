"""A project's page of a simple index: PEP 691 (JSON) where the index speaks it, else PEP 503 (HTML)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.message import Message
from html.parser import HTMLParser
from typing import Any, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import msgspec

from envdoctor.download.http_client import HttpClient, RequestFailed, Response
from envdoctor.knowledge.releases import normalize_name
from envdoctor.knowledge_check.wheels import Wheel, parse_wheel_name
from envdoctor.redact.variables import redact_variable

PAGE_BYTES = 32 << 20  # the longest pages on PyPI have 10 MB
ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"


class File(NamedTuple):
    """One file of a project. `metadata` is the sha256 of the .metadata file beside it; None: there is none."""

    name: str
    url: str
    version: str
    wheel: Wheel | None
    requires_python: str = ""
    metadata: str | None = None
    yanked: bool = False
    uploaded: str = ""  # day, 2026-10-28


class Project(NamedTuple):
    """What an index lists of a project: its files by version, "1.0" and "1.0.0" apart, as they are named."""

    name: str
    page: str  # its address, without credentials
    releases: dict[str, list[File]]


class _JsonFile(msgspec.Struct, rename="kebab"):
    """A file of PEP 691 and 700, as far as it is used."""

    filename: str
    url: str
    requires_python: str | None = None
    core_metadata: bool | dict[str, str] | None = None
    dist_info_metadata: bool | dict[str, str] | None = None
    yanked: bool | str = False
    upload_time: str = ""


class _JsonPage(msgspec.Struct):
    files: list[_JsonFile]


def read_project(client: HttpClient, index: str, name: str) -> Project:
    """A project's page."""
    answer = client.get(f"{index.rstrip('/')}/{name}/", limit=PAGE_BYTES, accept=ACCEPT)
    told = redact_variable("", answer.url)
    try:
        files = parse_json(answer.body, answer.url) if _is_json(answer) else parse_html(_text(answer), answer.url)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise RequestFailed(f"{told} is no page of a simple index: {str(error).splitlines()[0][:200]}") from error
    releases: dict[str, list[File]] = {}
    for file in files:
        if _is_of(file, name):
            releases.setdefault(file.version, []).append(file)
    if not releases:
        raise RequestFailed(f"{told} lists no file of {name}")
    return Project(name, told, releases)


def parse_json(data: bytes, base: str) -> list[File]:
    """`{"files": [{"filename": "trl-1.0-py3-none-any.whl", "url": "...", "core-metadata": {"sha256": "..."}}]}`."""
    page = msgspec.json.decode(data, type=_JsonPage)
    found = []
    for each in page.files:
        metadata = each.core_metadata if each.core_metadata is not None else each.dist_info_metadata
        digest = metadata.get("sha256", "") if isinstance(metadata, dict) else "" if metadata else None
        found.append(
            _file(
                each.filename, urljoin(base, each.url), each.requires_python or "", digest,
                yanked=each.yanked is not False, uploaded=each.upload_time,
            )
        )  # fmt: skip
    return found


def parse_html(text: str, base: str) -> list[File]:
    """`<a href="../trl-1.0-py3-none-any.whl#sha256=..." data-requires-python="&gt;=3.9" data-yanked="">...</a>`."""
    anchors = _Anchors(base)
    anchors.feed(text)
    return anchors.files


class _Anchors(HTMLParser):
    """The links of a page; the name of a file is the last part of its address (PEP 503)."""

    def __init__(self, base: str) -> None:
        super().__init__()
        self.base = base
        self.files: list[File] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """One link, or what links are relative to."""
        given = {name: value or "" for name, value in attrs}
        if tag == "base" and given.get("href"):
            self.base = urljoin(self.base, given["href"])
        if tag != "a" or "href" not in given:
            return
        url = urldefrag(urljoin(self.base, given["href"])).url
        self.files.append(
            _file(
                unquote(urlsplit(url).path.rpartition("/")[2]), url, given.get("data-requires-python", ""),
                _digest(given), yanked="data-yanked" in given, uploaded=given.get("data-upload-time", ""),
            )
        )  # fmt: skip


def _digest(attributes: Mapping[str, str]) -> str | None:
    """`data-core-metadata="sha256=..."` or "true" (PEP 714), under its older name, too."""
    for name in ("data-core-metadata", "data-dist-info-metadata"):
        if name in attributes:
            found = re.fullmatch(r"sha256=([0-9a-fA-F]{64})", attributes[name])
            return found[1] if found else "" if attributes[name] != "false" else None
    return None


def _file(name: str, url: str, python: str, digest: str | None, *, yanked: bool, uploaded: str) -> File:
    wheel = parse_wheel_name(name)
    version = wheel.version if wheel else _version_of_source(name)
    return File(name, url, version, wheel, python, digest, yanked, uploaded[:10])


def _version_of_source(filename: str) -> str:
    """`flash_attn-2.8.3.tar.gz` as "2.8.3"; empty for what is no source archive."""
    found = re.fullmatch(r"(.+)-([^-]+)\.(?:tar\.(?:gz|bz2|xz)|tgz|zip)", filename)
    return found[2] if found else ""


def _is_of(file: File, name: str) -> bool:
    if not file.version:
        return False
    return (file.wheel.name if file.wheel else normalize_name(file.name.rpartition("-")[0])) == name


def _is_json(answer: Response) -> bool:
    return _kind(answer.headers).endswith("json")


def _text(answer: Response) -> str:
    if "html" not in _kind(answer.headers):
        raise ValueError(f"its content type is {_kind(answer.headers) or 'not told'}")
    return answer.body.decode("utf-8", "replace")


def _kind(headers: Message[Any, Any]) -> str:
    return headers.get_content_type() if headers.get("Content-Type") else ""
