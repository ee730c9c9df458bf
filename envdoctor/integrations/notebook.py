"""The notebook extension: `%load_ext envdoctor`, then `%envdoctor check` and `%envdoctor explain`.

The work is done in a child process. The kernel imports none of its modules, and its state does not change.
"""

from __future__ import annotations

import sys
import traceback
from typing import Any

from envdoctor.core.errors import BadInput, EnvdoctorError, as_envdoctor_error, internal_error, unknown_name
from envdoctor.integrations.calls import MAX_ARGUMENT_BYTES, Call, Reply, run_call

MAX_TRACEBACK = MAX_ARGUMENT_BYTES // 8  # characters, of up to six bytes in JSON
COMMANDS = ("check", "explain")
SECONDS = 300.0
CHECK = "%envdoctor check"


def register(shell: Any) -> None:
    """Add the magic to a shell of IPython. Braces in an error text are no expressions to evaluate."""
    from IPython.core.magic import no_var_expand

    shell.register_magic_function(no_var_expand(envdoctor), "line_cell", "envdoctor")


def envdoctor(line: str, cell: str | None = None) -> None:
    """Diagnose the environment of this kernel.

    %envdoctor check                  the machine and the kernel's environment
    %envdoctor check --select TORCH   only some rules; the options of `envdoctor check`
    %envdoctor explain                the last traceback of this kernel
    %envdoctor explain TEXT           an error text, a log file, a rule or a cause
    %%envdoctor explain               the text of the cell
    """
    try:
        _display(run_call(_parse(line, cell), seconds=SECONDS))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    except Exception as exception:
        _display(_error_reply(as_envdoctor_error(exception) or internal_error(exception)))


def _parse(line: str, cell: str | None) -> Call:
    name, _, rest = line.strip().partition(" ")
    if name == "explain":
        arguments = {"text": _error_text(rest.strip(), cell)} | _kernel_environment()
        return Call(tool="explain", arguments=arguments, html=True)
    if name == "check":
        return Call(tool="check", arguments=_kernel_environment(), line=rest, html=True)
    if not name:
        raise BadInput("%envdoctor without a command", expected="one of: " + ", ".join(COMMANDS), hint=CHECK)
    raise unknown_name("command", name, list(COMMANDS), hint=CHECK)


def _kernel_environment() -> dict[str, str]:
    if not sys.executable:
        raise BadInput(
            "the kernel has no sys.executable", expected="a kernel of CPython", hint=f"{CHECK} --venv PATH"
        )
    return {"python": sys.executable}


def _error_text(text: str, cell: str | None) -> str:
    """The text to explain: the cell, the rest of the line, or the last traceback."""
    if given := (cell or text).strip():
        return given
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if error is None:
        raise BadInput(
            "no exception was raised in this kernel",
            expected="a cell that failed before, or an error text",
            hint="%envdoctor explain TEXT",
        )
    return "".join(traceback.format_exception(error))[-MAX_TRACEBACK:]


def _error_reply(error: EnvdoctorError) -> Reply:
    from envdoctor.output.html import fragment
    from envdoctor.output.human import error_parts
    from envdoctor.output.layout import plain_text

    parts = error_parts(error)
    return Reply(envelope={}, text=plain_text(parts), html=fragment(parts))


def _display(reply: Reply) -> None:
    from IPython.display import publish_display_data

    publish: Any = publish_display_data
    publish({"text/plain": reply.text, "text/html": reply.html})
