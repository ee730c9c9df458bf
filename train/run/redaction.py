"""Removes secrets from what a trainer prints and records. Standard library only.

The exception of a reward or of a library can quote a token or the address of a server with a password. The log of a
run is read by others, and kept.
"""

from __future__ import annotations

import os
import re
import sys
from functools import cache
from typing import Any, TextIO

SECRET_NAME = re.compile(r"TOKEN|API_KEY|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
MIN_LENGTH = 12  # of the value of a secret variable; shorter ones are words
CREDENTIALS = re.compile(r"://[^/\s\"'<>`\\]{0,1000}@")
TOKENS = re.compile(
    r"(?<![A-Za-z0-9])(?:hf_|sk-|gsk_|r8_|gh[opsur]_|github_pat_|glpat-|wandb_v\d_|nvapi-|xox[a-z]-|AKIA)[\w-]{12,}"
    r"|\b(?<=earer )[\w.~+/=-]{12,}"
)
# `password=...`, `"api_key": "..."`; not `tokens: 512`.
NAMED = re.compile(
    r"((?:password|passwd|passphrase|secret|credential|(?:api|access|private|secret)[_-]?key|(?:api|auth|access)[_-]?token)"
    r"s?[\"']?\s{0,4}[:=]\s{0,4}[\"']?)(?![\s\"'*$<{(])[^\s\"',;]{3,}",
    re.IGNORECASE,
)
AUTHORIZATION = re.compile(r"(Authorization[\"']?\s{0,4}[:=]\s{0,4}[\"']?)[^\"'\r\n]+", re.IGNORECASE)
MARK = "***"


def redact(text: str) -> str:
    """The text without tokens, credentials, named secrets, and the values of this process's secret variables."""
    for value in _secret_values():
        text = text.replace(value, MARK)
    text = TOKENS.sub(MARK, CREDENTIALS.sub(f"://{MARK}@", text))
    return NAMED.sub(rf"\1{MARK}", AUTHORIZATION.sub(rf"\1{MARK}", text))


@cache
def _secret_values() -> tuple[str, ...]:
    named = (value for name, value in os.environ.items() if SECRET_NAME.search(name))
    return tuple(
        sorted({each for each in named if len(each) >= MIN_LENGTH and each[0] != "/"}, key=len, reverse=True)
    )


class RedactedStream:
    """A text stream whose written text passes through `redact`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write the redacted text."""
        self._stream.write(redact(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def redact_standard_streams() -> None:
    """Redact everything that this process prints from Python."""
    sys.stdout, sys.stderr = RedactedStream(sys.stdout), RedactedStream(sys.stderr)  # type: ignore[assignment]
