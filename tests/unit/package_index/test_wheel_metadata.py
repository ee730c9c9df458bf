"""METADATA of a wheel is requested once, also by later commands."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support.local_packages import Index, serve, write_wheel

from envdoctor.download.http_client import HttpClient
from envdoctor.download.sources import Sources
from envdoctor.package_index.simple_index import read_project
from envdoctor.package_index.wheel_metadata import read_metadata


def test_metadata_is_requested_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # an earlier server can have had the same port
    write_wheel(tmp_path, "alpha", "1.0", requires=["beta>=2"])
    with serve(Index({"main": tmp_path})) as index:
        client = HttpClient(Sources(), end=time.monotonic() + 20)
        [file] = read_project(client, index.url(), "alpha").releases["1.0"]
        first = read_metadata(client, file)
        index.requests.clear()
        assert read_metadata(client, file) == first
    assert first.requires == ("beta>=2",)
    assert not index.requests
