"""Calls that are written as on the command line, in a notebook: `%envdoctor check --select TORCH`."""

from __future__ import annotations

import argparse
import shlex
from typing import NoReturn, get_origin

from msgspec.structs import replace

from envdoctor.core.errors import BadInput
from envdoctor.core.options import Option
from envdoctor.integrations.calls import Call
from envdoctor.integrations.tools import TOOLS, request_fields

SUBJECTS = {"venv", "python", "machine", "report"}  # what a check examines


class _Parser(argparse.ArgumentParser):
    """A parser that raises BadInput instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise BadInput(f"{self.prog}: {message}", expected="the options of `envdoctor check`", hint=self.prog)


def parse_line(call: Call) -> Call:
    """The call with the options of its line. Its own arguments are the subject unless the line names another one."""
    parser = _Parser(f"%envdoctor {call.tool}", add_help=False, allow_abbrev=False)
    parser.add_argument("environment", nargs="?", metavar="VENV")
    parser.add_argument("-v", "--verbose", action="store_true")
    for field in request_fields(TOOLS[call.tool]):
        option: Option = field.type.__metadata__[0]
        repeated = get_origin(field.type.__origin__) is tuple
        parser.add_argument(option.flag, dest=field.name, action="append" if repeated else "store")
    try:
        words = shlex.split(call.line)
    except ValueError as error:
        parser.error(str(error).lower())
    values = vars(parser.parse_args(words))
    verbose, environment = values.pop("verbose"), values.pop("environment")
    arguments = {name: value for name, value in values.items() if value is not None}
    if environment:
        arguments.setdefault("venv", environment)
    if not SUBJECTS & arguments.keys():
        arguments |= call.arguments
    return replace(call, line="", arguments=arguments, details=verbose)
