"""The MCP server: lists the tools and runs each call in a process, which a cancelled call ends."""

from __future__ import annotations

import os
import signal
import threading
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import msgspec

from envdoctor import __version__
from envdoctor.core.errors import EXIT_INTERRUPTED, BadInput, as_envdoctor_error, internal_error
from envdoctor.core.processes import GRACE_SECONDS
from envdoctor.integrations.calls import MAX_ARGUMENT_BYTES, Call, Reply, run_call
from envdoctor.integrations.tools import TOOLS, Tool, input_schema, make_request, output_schema
from envdoctor.output.envelope import envelope

if TYPE_CHECKING:
    import anyio
    from mcp.server import Server, ServerRequestContext
    from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams

STOP_SECONDS = 3 * GRACE_SECONDS  # a process is interrupted, terminated and killed
MAX_PROCESSES = 4  # calls that run at the same time; others wait
INSTRUCTIONS = """\
envdoctor diagnoses and plans GPU training environments on Linux with NVIDIA GPUs: driver, CUDA, PyTorch, vLLM, TRL.
All tools are read-only: they install nothing, write no file of the user and start no training.

- A program failed: `explain` with the error text or the path of the log, and the environment as `venv`.
- The environment may be broken, or before a long run: `check`; then `remedies` for the commands that fix it,
  and `fix` for what they would change together.
- Before you install pins or follow a setup guide: `audit`.
- Does a model fit in GPU memory: `plan`.
- Which versions work together: `resolve`.

A result has `ok` and `exit_code`: 0 is fine, 1 means a negative result (problems, does not fit). An error has
`message`, `expected` and `hint`. Commands in a result are proposals: show them to the user before you run one,
above all those that need root. Relative paths are relative to the working directory of the server.
"""


def serve(timeout: float = 0) -> int:
    """Serve over stdin and stdout until the client closes the connection. Returns the number of calls.

    A call ends after `timeout` seconds; with 0, after the time that its tool permits.
    """
    import anyio
    from mcp.server.stdio import stdio_server

    session = Session(timeout)

    async def main() -> None:
        server = session.server()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.end_at_signal)
            async with stdio_server() as (read_stream, write_stream):
                await server.run(read_stream, write_stream, server.create_initialization_options())
            tasks.cancel_scope.cancel()

    anyio.run(main)
    return session.calls


class Session:
    """The handlers of one connection."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.calls = 0
        self._running: set[threading.Event] = set()  # the stop events of the calls

    async def end_at_signal(self) -> None:
        """At SIGINT, SIGTERM or SIGHUP, stop the calls and end the process.

        It does not return to the event loop, which would wait for the thread that reads standard input.
        """
        import anyio

        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            async for _number in signals:
                for stop in self._running:
                    stop.set()
                with anyio.move_on_after(STOP_SECONDS):
                    while self._running:
                        await anyio.sleep(0.02)
                os._exit(EXIT_INTERRUPTED)

    def server(self) -> Server[Any]:
        """The SDK's server with these handlers."""
        from mcp.server import Server

        return Server(
            "envdoctor",
            version=__version__,
            title="envdoctor",
            instructions=INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )

    async def _list_tools(
        self, _context: ServerRequestContext[Any], _parameters: PaginatedRequestParams | None
    ) -> ListToolsResult:
        from mcp_types import ListToolsResult

        return ListToolsResult(tools=[_tool_declaration(tool) for tool in TOOLS.values()])

    async def _call_tool(
        self, _context: ServerRequestContext[Any], parameters: CallToolRequestParams
    ) -> CallToolResult:
        from mcp.shared.exceptions import MCPError
        from mcp_types import INVALID_PARAMS, CallToolResult, TextContent

        tool = TOOLS.get(parameters.name)
        if tool is None:
            raise MCPError(
                code=INVALID_PARAMS, message=f"unknown tool '{parameters.name}'; one of: {', '.join(TOOLS)}"
            )
        self.calls += 1
        try:
            reply = await self._run_stoppable(
                _make_call(tool, parameters.arguments or {}), self.timeout or tool.seconds
            )
        except Exception as exception:
            reply = _error_reply(tool, exception)
        return CallToolResult(
            content=[TextContent(text=reply.text)],
            structured_content=reply.envelope | {"summary": reply.text},  # clients show an agent one of the two
            is_error=reply.envelope["error"] is not None,
        )

    async def _run_stoppable(self, call: Call, seconds: float) -> Reply:
        """Run a call in a thread. A cancelled call returns when its process has ended."""
        import anyio

        stop = threading.Event()
        reply: Reply

        async def watch_cancellation() -> None:
            try:
                await anyio.sleep_forever()
            finally:
                stop.set()

        self._running.add(stop)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(watch_cancellation)
                work = partial(run_call, call, seconds=seconds, stop=stop)
                reply = await anyio.to_thread.run_sync(work, limiter=_limiter())
                tasks.cancel_scope.cancel()
        finally:
            self._running.discard(stop)
        return reply


def _tool_declaration(tool: Tool) -> Any:
    from mcp_types import Tool as ToolDeclaration
    from mcp_types import ToolAnnotations

    return ToolDeclaration(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=input_schema(tool),
        output_schema=output_schema(tool),
        annotations=ToolAnnotations(
            read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=tool.uses_network
        ),
    )


def _make_call(tool: Tool, arguments: dict[str, Any]) -> Call:
    """The call with these arguments, of limited size."""
    size = len(msgspec.json.encode(arguments))
    if size > MAX_ARGUMENT_BYTES:
        raise BadInput(
            f"the arguments of {tool.name} have {size} bytes",
            expected=f"at most {MAX_ARGUMENT_BYTES} bytes",
            hint="write a longer text to a file and pass its path",
        )
    details = arguments.get("details", False) if tool.details else False
    if not isinstance(details, bool):
        raise BadInput(f"details is {details!r}", expected="true or false", hint=f"call {tool.name} without details")
    rest = {name: value for name, value in arguments.items() if name != "details" or not tool.details}
    make_request(tool, rest)  # before a process is started
    return Call(tool=tool.name, arguments=rest, details=details)


@cache
def _limiter() -> anyio.CapacityLimiter:
    import anyio

    return anyio.CapacityLimiter(MAX_PROCESSES)


def _error_reply(tool: Tool, exception: Exception) -> Reply:
    """The reply for an error of the call itself: too long, too slow, or a process that ended without a reply."""
    if isinstance(exception, ExceptionGroup):  # of the task group
        exception = exception.exceptions[0]
    error = as_envdoctor_error(exception) or internal_error(exception)
    text = f"error: {error.message}\nexpected: {error.expected}\nhint: {error.hint}\n"
    return Reply(envelope=envelope(tool.name, None, error), text=text)
