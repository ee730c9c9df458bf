"""Reads METADATA of a wheel without downloading it: from its .metadata file (PEP 658), else with range requests.

What is read of it is kept in the cache.
"""

from __future__ import annotations

import configparser
import contextlib
import re
from typing import NamedTuple

import msgspec

from envdoctor.core.cached_files import cached_file, keep
from envdoctor.core.files import read_file
from envdoctor.download.http_client import HttpClient, RequestFailed, verify_sha256
from envdoctor.environment.metadata import parse_head
from envdoctor.knowledge.releases import normalize_name
from envdoctor.knowledge.versions import version_key
from envdoctor.package_index.remote_wheel import RemoteWheel
from envdoctor.package_index.simple_index import File

METADATA_BYTES = 4 << 20
FOLDER = "wheel-metadata"  # change the name when Metadata changes


class Metadata(NamedTuple):
    """The requirements of a wheel."""

    requires: tuple[str, ...]  # with markers
    requires_python: str
    file: str  # name of the wheel
    urls: tuple[str, ...] = ()  # of the project: home page, repository


# Created here: see simple_index.py.
_KEPT = msgspec.msgpack.Decoder(Metadata)


def read_metadata(client: HttpClient, file: File) -> Metadata:
    """Read METADATA of a wheel; raises RequestFailed where it does not match the wheel's name."""
    path = cached_file(FOLDER, file.name, "msgpack", f"{file.url} {file.metadata}")
    with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
        return _KEPT.decode(read_file(path))
    metadata = _request(client, file)
    keep(path, msgspec.msgpack.encode(metadata))
    return metadata


def _request(client: HttpClient, file: File) -> Metadata:
    data = None
    if file.metadata is not None:
        try:
            response = client.get(f"{file.url}.metadata", limit=METADATA_BYTES)
            data = verify_sha256(response.body, file.metadata, f"METADATA of {file.name}")
        except RequestFailed as failure:
            if failure.status not in (403, 404):  # some mirrors list the file and do not have it
                raise
    fields = parse_head(data if data is not None else _read_by_ranges(client, file))
    name, version = "".join(fields["name"][:1]), "".join(fields["version"][:1])
    assert file.wheel
    if normalize_name(name) != file.wheel.name or version_key(version) != version_key(file.wheel.version):
        raise RequestFailed(f"METADATA of {file.name} is for {name[:80]!r} {version[:80]!r}")
    python = "".join(fields["requires-python"][:1])
    urls = (*fields["home-page"], *(text.partition(",")[2].strip() for text in fields["project-url"]))
    return Metadata(tuple(fields["requires-dist"]), python, file.name, urls)


def _read_by_ranges(client: HttpClient, file: File) -> bytes:
    wheel = RemoteWheel(client, file)
    members = [name for name in wheel.members if re.fullmatch(r"[^/]+\.dist-info/METADATA", name)]
    if len(members) != 1:
        raise RequestFailed(f"{file.name} has {len(members)} METADATA files, expected one")
    return wheel.read(members[0], limit=METADATA_BYTES)


def read_programs(client: HttpClient, file: File) -> frozenset[str]:
    """The programs that a wheel puts on PATH: its console scripts, and the files of its scripts directory."""
    wheel = RemoteWheel(client, file)
    points = [name for name in wheel.members if re.fullmatch(r"[^/]+\.dist-info/entry_points\.txt", name)]
    texts = [wheel.read(name, limit=METADATA_BYTES).decode("utf-8", "replace") for name in points]
    files = (name.rpartition("/")[2] for name in wheel.members if re.fullmatch(r"[^/]+\.data/scripts/[^/]+", name))
    return frozenset((*files, *(name for text in texts for name in console_scripts_of(text))))


def console_scripts_of(text: str) -> tuple[str, ...]:
    """The names of console scripts in entry_points.txt."""
    parser = configparser.RawConfigParser(delimiters=("=",), strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(text)
    except configparser.Error:
        return ()
    return tuple(parser.options("console_scripts")) if parser.has_section("console_scripts") else ()
