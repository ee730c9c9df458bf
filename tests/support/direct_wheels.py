"""Profiles with direct wheels."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

import pytest
from support.install_place import Place
from support.local_packages import write_wheel
from support.wheel_server import Files, make_certificate, serving


@pytest.fixture
def web(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[Files]:
    """A server with flash-attn in two versions, over TLS, since profiles require https."""
    folder = place.home / "released"
    for version in ("2.0", "1.0"):
        write_wheel(folder, "flash-attn", version)
    certificate = make_certificate(place.home)
    monkeypatch.setenv("PIP_CERT", str(place.home / "cert.pem"))
    with serving(Files(folder), certificate) as files:
        yield files


def entry(web: Files, version: str, **more: str) -> str:
    """An entry of [[wheels]], by default with the correct hash."""
    file = f"flash_attn-{version}-py3-none-any.whl"
    values = {"name": "flash-attn", "file": file, "url": web.url(file),
              "sha256": hashlib.sha256((web.folder / file).read_bytes()).hexdigest()} | more  # fmt: skip
    return "[[wheels]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
