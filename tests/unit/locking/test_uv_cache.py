"""uv reads a page and the metadata of a wheel once, also where a proxy drops the headers that permit it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.local_packages import Index, serve, write_wheel

from envdoctor.locking import uv


def test_a_second_run_requests_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    write_wheel(tmp_path, "alpha", "1.0", requires=["beta"])
    write_wheel(tmp_path, "beta", "2.0")
    source = tmp_path / "step.in"
    source.write_text("alpha\n")
    with serve(Index({"main": tmp_path})) as index:
        settings = uv.CACHE_SETTINGS.replace("https://pypi.org/simple", index.url().rstrip("/"))
        monkeypatch.setattr(uv, "CACHE_SETTINGS", settings.replace("explicit", "default"))
        for _ in range(2):
            arguments = ["pip", "compile", source, *uv.OWN_PYTHON]
            done = uv.run_uv(arguments, environment=uv.lookup_environment(), timeout=60)
            assert "alpha==1.0" in done.output
            assert "beta==2.0" in done.output
            assert "warning" not in done.output
            index.requests, requests = [], index.requests
    assert not requests
