"""The one JSON envelope of all commands. Its keys are pinned by a test; `schema` grows when they change."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from envdoctor import __version__
from envdoctor.core.errors import EnvdoctorError
from envdoctor.core.results import CommandResult

ENVELOPE_SCHEMA = 1


def envelope(command: str, answer: CommandResult | None, error: EnvdoctorError | None = None) -> dict[str, Any]:
    """What `--format json` prints: data of a finished command, or the error that ended it."""
    code = error.exit_code if error else answer.exit_code if answer else 0
    return {
        "schema": ENVELOPE_SCHEMA,
        "envdoctor": __version__,
        "command": command,
        "ok": code == 0,
        "exit_code": code,
        "data": msgspec.to_builtins(answer.data) if answer else None,
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


def to_json(command: str, answer: CommandResult | None, error: EnvdoctorError | None = None) -> str:
    """The envelope as indented JSON."""
    return json_text(envelope(command, answer, error))


def json_text(data: object) -> str:
    """Indented JSON."""
    return msgspec.json.format(json_bytes(data), indent=1).decode()


def json_bytes(data: object) -> bytes:
    """JSON on one line. The names that a file system gives need not be UTF-8: `?` stands for a byte that is not."""
    try:
        return msgspec.json.encode(data, enc_hook=str)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(data, enc_hook=str), ensure_ascii=False).encode("utf-8", "replace")
