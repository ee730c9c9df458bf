"""Redaction of the values of environment variables and settings."""

from __future__ import annotations

import re

from envdoctor.redact.output import SECRET, without_secrets


def redact_variable(name: str, value: str) -> str:
    """A value without its secret: `(set)` for tokens, `//***@` and `?***` for the credentials of an address."""
    if SECRET.search(name):
        return "(set)" if value else "(empty)"
    value = re.sub(r"//[^/\s]*@", "//***@", value)  # greedy: a password may contain an @
    value = re.sub(r"(\w://[^\s?#'\"]*)\?[^\s#'\"]+", r"\1?***", value)  # the query of a signed URL
    return without_secrets(value)  # a token in a variable of another purpose: LD_LIBRARY_PATH=/x/ghp_...
