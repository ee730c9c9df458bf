"""Run a tool in a process of its own, which a caller can stop.

The process has this one's interpreter, variables and working directory. It does not import from the working
directory, which may be a stranger's repository.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import msgspec

from envdoctor.core.directories import PACKAGE
from envdoctor.core.errors import EnvdoctorError, Interrupted
from envdoctor.core.processes import CompletedProcess
from envdoctor.core.processes import run as run_process
from envdoctor.core.record import Record

INTERPRETER = sys.executable
MAX_ARGUMENT_BYTES = 1 << 20
# The first path is the working directory. The root is not on the path in a source checkout that is not installed.
START = (
    "import sys; root, reply = sys.argv[1:]; del sys.path[0]; root in sys.path or sys.path.insert(0, root)\n"
    "from envdoctor.integrations.worker import main; main(reply)"
)


class Call(Record, frozen=True, kw_only=True):
    """A call of a tool."""

    tool: str
    arguments: dict[str, Any]
    details: bool = False  # the complete result
    html: bool = False  # as HTML as well
    line: str = ""  # options as on the command line


class Reply(Record, frozen=True, kw_only=True):
    """The envelope of the result or error, and the same for people."""

    envelope: dict[str, Any]
    text: str
    html: str = ""


def run_call(call: Call, *, seconds: float, stop: threading.Event | None = None) -> Reply:
    """Run a call. Raises Interrupted soon after `stop` is set, and EnvdoctorError if the process returns no reply."""

    def check_stop(_output: str) -> None:
        if stop and stop.is_set():
            raise Interrupted(
                f"{call.tool} was stopped", expected="a call that is not cancelled", hint=f"call {call.tool} again"
            )

    request = msgspec.json.encode(call)
    with tempfile.TemporaryDirectory(prefix="envdoctor-") as folder:
        reply = Path(folder) / "reply.json"
        done = run_process(
            [INTERPRETER, "-c", START, PACKAGE.parent, reply],
            timeout=seconds,
            stdin=request,
            env={name: value for name, value in os.environ.items() if name != "COLUMNS"},
            on_output=check_stop,
        )
        try:
            return msgspec.json.decode(reply.read_bytes(), type=Reply)
        except (OSError, msgspec.DecodeError) as error:
            raise _no_reply(call, done, seconds) from error


def _no_reply(call: Call, done: CompletedProcess, seconds: float) -> EnvdoctorError:
    last_line = (done.output.strip().splitlines() or [""])[-1][-300:]
    command = "check" if call.tool == "remedies" else call.tool
    return EnvdoctorError(
        f"{call.tool} {done.ending}" + (f": {last_line}" if last_line and not done.timed_out else ""),
        expected=f"a result within {seconds:.0f} s",
        hint=f"run `envdoctor {command}` in a terminal, which shows its progress",
    )
