"""Redaction of the values of environment variables and settings."""

from __future__ import annotations

import re

SECRET = re.compile(r"TOKEN|API_KEY|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)


def redact_variable(name: str, value: str) -> str:
    """A value without its secret: `(set)` for tokens, `//***@` and `?***` for the credentials of an address."""
    if SECRET.search(name):
        return "(set)" if value else "(empty)"
    value = re.sub(r"//[^/\s]*@", "//***@", value)  # greedy: a password may contain an @
    return re.sub(r"(\w://[^\s?#'\"]*)\?[^\s#'\"]+", r"\1?***", value)  # the query of a signed URL
