"""A package index on loopback with a few generated releases and their upload dates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from support.loopback import Server, running_server
from support.release_index import Handler, Release, ReleaseIndex


@dataclass
class DatedIndex(ReleaseIndex):
    """The releases of `added`, without those of the tables."""

    def find(self, index: str, package: str) -> list[Release]:
        return self.added.get(index, {}).get(package, [])

    def settings(self) -> dict[str, str]:
        """The variables with which pip, uv and envdoctor use only this index."""
        return {
            "PIP_CONFIG_FILE": "/dev/null", "PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": "", "PIP_NO_INDEX": "",
            "UV_DEFAULT_INDEX": f"http://127.0.0.1:{self.port}/main/simple/", "NO_PROXY": "127.0.0.1",
        }  # fmt: skip


def release(name: str, version: str, day: str, code: str = "", requires: Iterable[str] = ()) -> Release:
    """A release with one module of this code."""
    return Release(name, version, day, requires=tuple(requires), files=((f"{name}/__init__.py", code),))


@contextmanager
def serve(*releases: Release) -> Iterator[DatedIndex]:
    """Serve releases on a free loopback port."""
    packages: dict[str, list[Release]] = {}
    for each in releases:
        packages.setdefault(each.name, []).append(each)
    index = DatedIndex({"main": packages})
    server = Server(Handler, index=index, context=None)
    index.port = server.port
    with running_server(server):
        yield index
