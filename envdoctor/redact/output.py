"""Removal of secrets from everything that is printed: the same patterns as those of packed files.

A log, an error of a library or the address of a package source can contain them. `report` removes far more: names of
users and hosts, addresses, serial numbers.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from typing import Any

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.printable import without_invisible

SECRET = lazy_pattern(r"TOKEN|API_KEY|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)  # in the name of a variable
MARK = "***"
MIN_SECRET_LENGTH = 12
# A text without these has no secret. The patterns are imported only for others, because that takes time.
# All are in lower case, and compared with the text in lower case: a search that ignores case takes ten times as long.
NAMES = (
    "token", "passw", "passphrase", "_pass", "pwd", "secret", "credential", "key", "auth", "cookie", "jwt",
    "accesssignature", "_pat",
)  # fmt: skip
MARKS = (
    "login", "sshpass", "apikey ", "digest ", "bearer", "basic ", "basic%", "-----begin", "private key",
    " -u ", " -u=", " --user ", " --user=", " --proxy-user ", " --proxy-user=",
    "hf_", "api_org_", "sk-", "github_pat", "gho_", "ghp_", "ghs_", "ghu_", "ghr_", "akia", "asia", "aroa", "aida",
    "anpa", "agpa", "xapp-", "aiza", "ya29.", "gocspx-", "npm_", "pypi-ag", "nvapi-", "wandb_v", "r8_", "gsk_",
    "rpa_", "dckr_", "_live_", "_test_", "eyj", "sg.", "hooks.slack",
)  # fmt: skip
_NAME = f"(?:{'|'.join(NAMES)})"
# Patterns, with words of which each of their matches contains one.
FORMS = (
    (NAMES, (
        lazy_pattern(rf"{_NAME}[\w.\[\]-]{{0,60}}[\\\"'`\]]{{0,3}}\s{{0,60}}[:=%<>\uff1d\uff1a]"),
        lazy_pattern(rf"{_NAME}[\w.-]{{0,60}}[ \t]{{1,8}}\S{{0,127}}\d"),
        lazy_pattern(rf"-[\w-]{{0,60}}{_NAME}[\w-]{{0,60}}\s"),
        lazy_pattern(r"</?[\w:.-]*(?:token|passw|secret|key)"),
    )),
    (("@",), (
        lazy_pattern(r":(?:\\?/|%2f){1,2}[^/\s]*@|:[^\s/@:]{1,128}@"),
        lazy_pattern(r"//[^/\s:@]*:[^/\s@]*@"),
    )),
    (("sig=", "signature=", "se=", "sp=", "sv=", "policy=", "x-amz-", "x-goog-", "googleaccessid="), (
        lazy_pattern(r"[?&;](?:sig|signature|se|sp|sv|policy|x-amz-[a-z-]+|x-goog-[a-z-]+|googleaccessid)="),
    )),
    (("xox", "gl"), (lazy_pattern(r"xox[a-z]-|gl[a-z]{2,5}-"),)),
)  # fmt: skip
OTHER_LETTERS = {0x130: "i", 0x131: "i", 0x17F: "s", 0x212A: "k"}  # letters that patterns without case match as well
BEARER = lazy_pattern(r"(?i)\b(bearer|basic)( {1,4}|%20)[\w.~+/=-]{12,}")


def _plain(text: str) -> str:
    """The text without invisible characters, and with letters in place of their escapes."""
    text = without_invisible(text)
    if "\\u00" not in text:
        return text
    from envdoctor.redact.secret_forms import with_letters

    return with_letters(text)


def may_have_secrets(text: str) -> bool:
    """Whether a text has anything that the patterns of secrets start with."""
    return _is_suspicious(_plain(text), _secret_values())


def _is_suspicious(text: str, values: tuple[str, ...]) -> bool:
    lower = (text if text.isascii() else text.translate(OTHER_LETTERS)).lower()
    for mark in MARKS:  # any() with a generator takes twice as long, and each printed line comes here
        if mark in lower:
            return True
    for words, patterns in FORMS:
        for word in words:
            if word in lower:
                if any(pattern.search(lower) for pattern in patterns):
                    return True
                break
    return any(value in text for value in values)


def without_secrets(text: str) -> str:
    """The text without tokens, credentials, values after the name of a secret, and values of secret variables."""
    return _without_secrets(text, _secret_values())


def _without_secrets(text: str, values: tuple[str, ...]) -> str:
    visible = _plain(text)
    if not _is_suspicious(visible, values):
        return text
    text = visible
    for value in values:
        text = text.replace(value, MARK)
    from envdoctor.redact.secrets import redact_private_keys, redact_secrets

    text = redact_secrets(redact_private_keys(text, _mark), _mark, "secret_triggers")
    if "hf_" in text:  # after a letter as well, as in a damaged file: no name has 30 letters and digits behind it
        text = re.sub(r"hf_[A-Za-z0-9]{30,}", MARK, text)
    return BEARER.sub(rf"\1\2{MARK}", text)


def data_without_secrets(data: Any) -> Any:
    """Dicts, lists and texts without secrets. The text of a field with the name of a secret is one."""
    return _data_without_secrets(data, "", _secret_values())


def _data_without_secrets(data: Any, name: str, values: tuple[str, ...]) -> Any:
    if isinstance(data, str):
        from envdoctor.redact.field_names import is_secret_name
        from envdoctor.redact.secrets import NO_VALUE

        is_secret = name and is_secret_name(name) and data.strip() and not NO_VALUE.fullmatch(data.strip())
        return MARK if is_secret else _without_secrets(data, values)
    if isinstance(data, dict):
        return {
            _without_secrets(str(key), values): _data_without_secrets(value, str(key), values)
            for key, value in data.items()
        }
    return [_data_without_secrets(value, name, values) for value in data] if isinstance(data, list | tuple) else data


def _mark(kind: str, value: str) -> str:
    """Names of hosts and users, which are found as well, are kept."""
    return MARK if kind == "secret" else value


def _secret_values() -> tuple[str, ...]:
    """The values of this process's secret variables, the longest first; no paths and no words."""
    values = [os.environ[name] for name in os.environ if _is_secret_variable(name)]
    secrets = [value for value in values if len(value) >= MIN_SECRET_LENGTH and not value.startswith("/")]
    return tuple(sorted(secrets, key=len, reverse=True))


@lru_cache(maxsize=1024)  # each line that a command prints is compared with the values
def _is_secret_variable(name: str) -> bool:
    return SECRET.search(name) is not None
