"""Removal of secrets from every line that is printed: tokens by their format, and credentials and signatures in URLs.

A log, an error of a library or the address of a package source can contain them. `report` and `pack` remove far more.
"""

from __future__ import annotations

import os
import re
from functools import cache

from envdoctor.redact.token_shapes import TOKEN_SHAPES
from envdoctor.redact.variables import SECRET

MARK = "***"
MIN_SECRET_LENGTH = 12
CREDENTIALS = r"://[^/\s\"'<>`\\]{0,1000}@"
# Parameters of signed URLs (S3, Google, Azure, CloudFront, Hugging Face) and of home-made ones.
SIGNATURE = (
    r"(?i)([?&;](?:sig|signature|[a-z_-]*token|[a-z_-]*key|key-pair-id|password|secret|auth|policy|credentials?|se|sp|sv"
    r"|awsaccesskeyid|googleaccessid|x-(?:amz|goog)-[a-z-]+)=)[^&;\s\"'<>`\\]+"
)
BEARER = r"(?i)\b(bearer|basic)( {1,4}|%20)[\w.~+/=-]{12,}"


def without_secrets(text: str) -> str:
    """The text without tokens, credentials in URLs, and values of this process's secret variables."""
    if "://" in text:
        if "@" in text:
            text = re.sub(CREDENTIALS, f"://{MARK}@", text)
        if "?" in text:
            text = re.sub(SIGNATURE, rf"\1{MARK}", text)
    for literal, shape in TOKEN_SHAPES:
        if literal in text:
            text = re.sub(shape, MARK, text)
    if "hf_" in text:  # after a letter as well, as in a damaged file: no name has 30 letters and digits behind it
        text = re.sub(r"hf_[A-Za-z0-9]{30,}", MARK, text)
    if "earer" in text or "asic " in text:
        text = re.sub(BEARER, rf"\1\2{MARK}", text)
    for value in _secret_values():
        text = text.replace(value, MARK)
    return text


@cache
def _secret_values() -> tuple[str, ...]:
    """The values of this process's secret variables, the longest first; no paths and no words."""
    values = (value for name, value in os.environ.items() if SECRET.search(name) and len(value) >= MIN_SECRET_LENGTH)
    return tuple(sorted((each for each in values if "/" not in each[:1]), key=len, reverse=True))
