"""`envdoctor mcp`: serves the tools to coding agents by the Model Context Protocol."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from envdoctor.core.distribution import extra_command
from envdoctor.core.errors import EnvdoctorError
from envdoctor.core.options import Option
from envdoctor.core.record import Record
from envdoctor.core.results import CommandResult

REQUIREMENT = "mcp>=2.3,<3"  # as in pyproject.toml
MAJOR = "2"

if TYPE_CHECKING:
    from envdoctor.output.text import Part


class McpRequest(Record, frozen=True):
    """Serves check, remedies, fix (dry run), explain, audit, plan and resolve as tools for coding agents over stdin.

    An MCP client starts it. No tool installs, writes a file or starts training. It needs the extra `mcp`.

    Example: envdoctor mcp
    """

    timeout: Annotated[
        int, Option("--timeout", "Stop a call after this time; 0: a limit for each tool.", "SECONDS", minimum=0)
    ] = 0


class McpSession(Record, frozen=True):
    """A session that the client has ended."""

    calls: int


def run(request: McpRequest) -> CommandResult:
    """Serve until the client closes the connection."""
    _check_sdk()
    from envdoctor.integrations.mcp_server import serve

    if sys.stdin.isatty():
        print(
            "envdoctor mcp waits for an MCP client on standard input; Ctrl-C ends it. See `envdoctor mcp --help`.",
            file=sys.stderr,
        )
    return CommandResult(McpSession(serve(request.timeout)))


def render_session(_data: McpSession) -> list[Part]:
    """No part: stdout carries the protocol only."""
    return []


def _check_sdk() -> None:
    """Raise EnvdoctorError if the SDK is not installed or has another major version."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("mcp")
    except PackageNotFoundError:
        found = ""
    if found.partition(".")[0] == MAJOR:
        return
    raise EnvdoctorError(
        f"mcp {found} is installed in {sys.prefix}" if found else f"the package mcp is not installed in {sys.prefix}",
        expected=f"{REQUIREMENT}, which the extra 'mcp' of envdoctor installs",
        hint=extra_command("mcp", REQUIREMENT),
    )
