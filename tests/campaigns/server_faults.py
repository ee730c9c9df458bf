"""Faults of package servers on loopback: dropped connections, truncated files, stalls, errors and wrong files."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from campaigns.fault_injection import Campaign, FaultHome, FaultResult, wait_for_exit, wait_for_line
from support.local_packages import Index, serve, write_wheel
from support.wheel_server import Files, serving

Fault = Callable[[Campaign], FaultResult]


class Always(list[Any]):
    """A list of faults that applies its first entry to every request."""

    def __bool__(self) -> bool:
        return True

    def pop(self, *_: object) -> Any:  # type: ignore[override]
        return self[0]


SERVER_FAULTS: dict[str, tuple[Callable[[Files], object], str]] = {
    "drops every connection": (lambda files: setattr(files, "cut", Always([0])), "source of .* is unreachable"),
    "truncates every file": (lambda files: setattr(files, "cut", Always([200])), "source of .* is unreachable"),
    "stalls in every file": (
        lambda files: setattr(files, "stall", Always([200])),
        "source of .* is unreachable .*timeout",
    ),
    "has lost every file": (lambda files: setattr(files, "folder", Path("/nowhere")), "alpha was not found"),
    "returns 503": (lambda files: setattr(files, "responses", Always([(503, {})])), "returned 503"),
}


def server_faults() -> Iterator[tuple[str, Fault]]:
    for summary, (change, expected) in SERVER_FAULTS.items():
        name = f"the server {summary}"
        yield name, _temporary_fault(name, change, expected)
    yield "the server has a wheel with a wrong hash", wrong_hash
    yield "the server never responds", no_response
    yield "the server drops one connection", one_dropped_connection


@contextlib.contextmanager
def _serve_wheels(home: FaultHome) -> Iterator[Files]:
    with serving(Files(home.wheels)) as files:
        home.extra_variables = {"PIP_FIND_LINKS": "", "PIP_NO_INDEX": "", "PIP_INDEX_URL": files.url("simple/"),
                                "PIP_TIMEOUT": "1", "UV_HTTP_RETRIES": "0"}  # fmt: skip
        yield files


def _temporary_fault(name: str, change: Callable[[Files], object], expected: str) -> Fault:
    """A fault of the server that begins with the download and is over before the next install."""

    def fault(campaign: Campaign) -> FaultResult:
        home = campaign.create_home(empty_cache=True)
        with _serve_wheels(home) as files:
            process = home.start_install()
            wait_for_line(process, "[1/3]")
            change(files)
            failed = wait_for_exit(process)
            if failed.exit_code == 0:
                return FaultResult(name, message=f"the fault was injected too late: {failed.output[-200:]}")
            files.done.set()
            files.cut, files.stall, files.responses, files.folder = [], [], [], home.wheels
            return home.check(failed, name, expected)

    return fault


def wrong_hash(campaign: Campaign) -> FaultResult:
    """The hash of a file differs from the one in the index."""
    home = campaign.create_home(empty_cache=True)
    other = write_wheel(home.home / "other", "beta", "2.0", files={"beta/evil.py": b"print('not the locked file')"})
    with _serve_wheels(home) as files:
        files.replaced = {other.name: other.read_bytes()}
        failed = home.run_install(output_format="human")
        files.replaced = {}
        result = home.check(failed, "the server has a wheel with a wrong hash", r"(?i)hash mismatch.*beta|beta.*hash")
    if list(home.home.glob("envs/**/evil.py")):
        result.integrity = "the environment contains a file of the wrong wheel"
    return result


def no_response(campaign: Campaign) -> FaultResult:
    """The server accepts connections and never responds."""
    home = campaign.create_home(empty_cache=True)
    with serve(Index({"main": home.wheels}, stalled=True)) as index:
        home.extra_variables = {"PIP_FIND_LINKS": "", "PIP_NO_INDEX": "", "PIP_INDEX_URL": index.url(),
                                "PIP_TIMEOUT": "1", "UV_HTTP_RETRIES": "0"}  # fmt: skip
        failed = home.run_install(output_format="human")
        index.stalled = False
        return home.check(failed, "the server never responds", r"127\.0\.0\.1.*time")


def one_dropped_connection(campaign: Campaign) -> FaultResult:
    """The install succeeds after a retry."""
    home = campaign.create_home(empty_cache=True)
    with _serve_wheels(home) as files:
        process = home.start_install()
        wait_for_line(process, "[1/3]")
        files.cut = [50]
        return home.check(wait_for_exit(process), "the server drops one connection", "installed in")
