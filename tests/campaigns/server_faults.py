"""Faults of servers on loopback: they drop, truncate, stall, lie, and come to their senses."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fault_ground import Field, Ground, Row, end, wait_for_line
from local_packages import Index, serve, write_wheel
from wheel_server import Files, serving

Fault = Callable[[Field], Row]


class Always(list[Any]):
    """A fault that every request meets."""

    def __bool__(self) -> bool:
        return True

    def pop(self, *_: object) -> Any:  # type: ignore[override]
        return self[0]


SERVERS: dict[str, tuple[Callable[[Files], object], str]] = {
    "drops every connection": (lambda files: setattr(files, "cut", Always([0])), "source of .* is unreachable"),
    "truncates every file": (lambda files: setattr(files, "cut", Always([200])), "source of .* is unreachable"),
    "stalls in every file": (
        lambda files: setattr(files, "stall", Always([200])),
        "source of .* is unreachable .*timeout",
    ),
    "has lost every file": (lambda files: setattr(files, "folder", Path("/nowhere")), "alpha was not found"),
    "answers 503": (lambda files: setattr(files, "answers", Always([(503, {})])), "returned 503"),
}


def servers() -> Iterator[tuple[str, Fault]]:
    """A server that misbehaves once the download has begun, and comes to its senses afterwards."""
    for what, (change, expected) in SERVERS.items():
        name = f"the server {what}"
        yield name, _server(name, change, expected)
    yield "the server has a wheel with a wrong hash", wrong_hash
    yield "the server stalls from the beginning", stalled_from_the_beginning
    yield "the server drops once, then answers", dropped_once


@contextlib.contextmanager
def _files(ground: Ground) -> Iterator[Files]:
    with serving(Files(ground.wheels)) as files:
        ground.extra = {"PIP_FIND_LINKS": "", "PIP_NO_INDEX": "", "PIP_INDEX_URL": files.url("simple/"),
                        "PIP_TIMEOUT": "1", "UV_HTTP_RETRIES": "0"}  # fmt: skip
        yield files


def _server(name: str, change: Callable[[Files], object], expected: str) -> Fault:
    def fault(field: Field) -> Row:
        ground = field.ground(cold=True)
        with _files(ground) as files:
            process = ground.begin()
            wait_for_line(process, "[1/3]")
            change(files)
            said = end(process)
            if said.code == 0:
                return Row(name, message=f"the fault came too late: {said.said[-200:]}")
            files.done.set()
            files.cut, files.stall, files.answers, files.folder = [], [], [], ground.wheels
            return ground.fault(said, name, expected)

    return fault


def wrong_hash(field: Field) -> Row:
    """The index's page promises one file and the server has another."""
    ground = field.ground(cold=True)
    other = write_wheel(ground.home / "other", "beta", "2.0", files={"beta/evil.py": b"print('not what was locked')"})
    with _files(ground) as files:
        files.instead = {other.name: other.read_bytes()}
        said = ground.complete(form="human")
        files.instead = {}
        row = ground.fault(said, "the server has a wheel with a wrong hash", r"(?i)hash mismatch.*beta|beta.*hash")
    if list(ground.home.glob("envs/**/evil.py")):
        row.whole = "a file of the wrong wheel is in the environment"
    return row


def stalled_from_the_beginning(field: Field) -> Row:
    """It takes connections and never answers."""
    ground = field.ground(cold=True)
    with serve(Index({"main": ground.wheels}, stalled=True)) as web:
        ground.extra = {"PIP_FIND_LINKS": "", "PIP_NO_INDEX": "", "PIP_INDEX_URL": web.url(), "PIP_TIMEOUT": "1",
                        "UV_HTTP_RETRIES": "0"}  # fmt: skip
        said = ground.complete(form="human")
        web.stalled = False
        return ground.fault(said, "the server stalls from the beginning", r"127\.0\.0\.1.*time")


def dropped_once(field: Field) -> Row:
    """One broken connection is nobody's business."""
    ground = field.ground(cold=True)
    with _files(ground) as files:
        process = ground.begin()
        wait_for_line(process, "[1/3]")
        files.cut = [50]
        said = end(process)
        return ground.fault(said, "the server drops once, then answers", "installed in")
