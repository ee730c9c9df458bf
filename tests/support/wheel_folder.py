"""A package index of a folder of real wheels on loopback, for a machine without a network."""

from __future__ import annotations

import json
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from packaging.utils import canonicalize_name
from support.release_index import ReleaseIndex


@dataclass
class WheelFolder(ReleaseIndex):
    """Serves the wheels as PyPI and as the PyTorch index; that of "cpu" has only the CPU builds of torch."""

    wheels: Path = Path()

    def respond(self, path: str) -> tuple[str, bytes] | None:
        """The content type and the body for a path."""
        if page := re.fullmatch(r"/(?:whl/(\w+)|[\w-]+/simple)/([^/]+)/?", path):
            files = [
                {"filename": each.name, "url": f"/files/{quote(each.name)}", "hashes": {}, "core-metadata": True}
                for each in self._wheels_of(canonicalize_name(page[2]), page[1] or "")
            ]
            body = {"meta": {"api-version": "1.0"}, "name": page[2], "files": files}
            return ("application/vnd.pypi.simple.v1+json", json.dumps(body).encode()) if files else None
        if file := re.fullmatch(r"/files/([^/]+?)(\.metadata)?", unquote(path)):
            wheel = self.wheels / file[1]
            return "application/octet-stream", _metadata(wheel) if file[2] else wheel.read_bytes()
        return None

    def _wheels_of(self, name: str, backend: str) -> list[Path]:
        found = [each for each in self.wheels.glob("*.whl") if canonicalize_name(each.name.split("-")[0]) == name]
        has_builds = any("+cpu" in each.name for each in found)
        return [each for each in found if not has_builds or ("+cpu" in each.name) == (backend == "cpu")]


def _metadata(wheel: Path) -> bytes:
    """METADATA of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name))
        return archive.read(name)
