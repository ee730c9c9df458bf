"""Redaction of the values of environment variables and settings."""

from __future__ import annotations

import re

SECRET = re.compile(r"TOKEN|API_KEY|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)


def redact_variable(name: str, value: str) -> str:
    """A value without its secret: `(set)` for tokens, `//***@` for the credentials of an address."""
    if SECRET.search(name):
        return "(set)" if value else "(empty)"
    return re.sub(r"//[^/\s]*@", "//***@", value)  # greedy: a password may contain an @
