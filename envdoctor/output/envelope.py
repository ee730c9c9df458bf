"""The JSON envelope of all commands. A test pins its keys; `schema` is incremented when they change."""

from __future__ import annotations

from typing import Any

import msgspec

from envdoctor import __version__
from envdoctor.core.errors import EnvdoctorError
from envdoctor.core.printable import printable_json
from envdoctor.core.results import CommandResult
from envdoctor.knowledge.tables import tables_date
from envdoctor.redact.output import data_without_secrets, may_have_secrets

ENVELOPE_SCHEMA = 3


def envelope(command: str, result: CommandResult | None, error: EnvdoctorError | None = None) -> dict[str, Any]:
    """The output of `--format json`: the data of a finished command, or the error that ended it."""
    code = exit_code(result, error)
    data = result.data if result else error.data if error else None
    return {
        "schema": ENVELOPE_SCHEMA,
        "envdoctor": __version__,
        "tables": tables_date(),
        "command": command,
        "ok": code == 0,
        "exit_code": code,
        "data": msgspec.to_builtins(data),
        "error": {
            "kind": error.kind,
            "message": error.message,
            "expected": error.expected,
            "hint": error.hint,
            "causes": msgspec.to_builtins(error.causes),
        }
        if error
        else None,
    }


def exit_code(result: CommandResult | None, error: EnvdoctorError | None) -> int:
    """The exit code of the command."""
    return error.exit_code if error else result.exit_code if result else 0


def to_json(command: str, result: CommandResult | None, error: EnvdoctorError | None = None) -> str:
    """The envelope as indented JSON."""
    return json_text(envelope(command, result, error))


def json_text(data: object) -> str:
    """Encode as indented JSON."""
    return msgspec.json.format(json_bytes(data), indent=1).decode()


def json_bytes(data: object) -> bytes:
    """Encode as JSON on one line, without secrets. Bytes of file names that are not UTF-8 become `?`."""
    encoded = _encode(data)
    if may_have_secrets(encoded):  # removed from each text: a value would end after the quotation mark of JSON
        encoded = _encode(data_without_secrets(msgspec.to_builtins(data, enc_hook=str)))
    return printable_json(encoded).encode()


def _encode(data: object) -> str:
    try:
        return msgspec.json.encode(data, enc_hook=str).decode()
    except UnicodeEncodeError:
        import json

        text = json.dumps(msgspec.to_builtins(data, enc_hook=str), ensure_ascii=False)
        return text.encode("utf-8", "replace").decode()
