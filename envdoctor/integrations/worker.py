"""The process of one call: reads the call on standard input, writes its reply to a file."""

from __future__ import annotations

import gc
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from envdoctor.core.errors import EXIT_INTERRUPTED, as_envdoctor_error, internal_error
from envdoctor.core.processes import sigterm_as_interrupt
from envdoctor.core.results import CommandResult
from envdoctor.integrations.calls import Call, Reply
from envdoctor.integrations.command_line import parse_line
from envdoctor.integrations.tools import TOOLS, Tool, load_tool_run, make_request, render_parts, without_details
from envdoctor.output.envelope import envelope, json_bytes

if TYPE_CHECKING:
    from envdoctor.output.text import Part


def main(reply_path: str) -> None:
    """Run the call on standard input and write its reply to the file."""
    gc.set_threshold(100_000)  # as for a command: nearly all objects of the imports are needed until the end
    try:
        with sigterm_as_interrupt():
            reply = execute(msgspec.json.decode(sys.stdin.buffer.read(), type=Call))
            Path(reply_path).write_bytes(json_bytes(reply))
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


def execute(call: Call) -> Reply:
    """Run a tool. Every error is a reply."""
    from envdoctor.output.display import Display, set_display
    from envdoctor.output.human import error_parts

    tool = TOOLS[call.tool]
    try:
        if call.line:
            call = parse_line(call)
        set_display(Display(verbose=call.details))
        result = _run(tool, call)
    except Exception as exception:
        error = as_envdoctor_error(exception) or internal_error(exception)
        return _reply(call, envelope(call.tool, None, error), error_parts(error))
    data = envelope(call.tool, result)
    return _reply(call, data if call.details else without_details(tool, data), render_parts(tool, result))


def _run(tool: Tool, call: Call) -> CommandResult:
    from envdoctor.output.reporter import LazyReporter

    run, request = load_tool_run(tool), make_request(tool, call.arguments)
    reporter = LazyReporter()
    try:
        result: CommandResult = run(request, *([reporter] if "reporter" in inspect.signature(run).parameters else []))
    finally:
        reporter.close()
    return result


def _reply(call: Call, data: dict[str, Any], parts: list[Part]) -> Reply:
    from envdoctor.output.layout import plain_text

    html = ""
    if call.html:
        from envdoctor.output.html import fragment

        html = fragment(parts)
    return Reply(envelope=data, text=plain_text(parts), html=html)
