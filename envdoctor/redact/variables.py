"""Values of environment variables and settings without their secrets."""

from __future__ import annotations

import re

SECRET = re.compile(r"TOKEN|API_KEY|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)


def redact_variable(name: str, value: str) -> str:
    """A value without its secret: `(set)` for tokens, `//***@` for the credentials of an address."""
    if SECRET.search(name):
        return "(set)" if value else "(empty)"
    return re.sub(r"//[^/\s]*@", "//***@", value)  # greedily: a password may hold an @
