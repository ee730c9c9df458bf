"""Forms of secrets that no token format and no `name=value` shows: markup, pairs of name and value, commands.

Each form has words of which one is in a text that has it, and a pattern whose group `secret` is the value, and `name`
the name that makes it one. No pattern can backtrack over a long match.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from envdoctor.core.patterns import lazy_pattern
from envdoctor.redact.field_names import is_secret_name

ReplaceValue = Callable[[str, str], str]
VALUE = r"""(?P<quote>\\?["']|)(?P<secret>[^\s"',;<>\\{}]{1,2048})"""
FORMS: tuple[tuple[tuple[str, ...], re.Pattern[str]], ...] = tuple(
    (words, lazy_pattern(pattern, re.IGNORECASE))
    for words, pattern in (
        # <password>S</password>, <token id="1">S</token>
        (
            ("</",),
            r"<(?P<name>[\w:.-]{2,80})(?:\s[^<>]{0,200})?>\s{0,80}(?P<secret>[^<>]{1,2048}?)\s{0,80}</(?P=name)",
        ),
        # <token value="S"/>
        (
            ("value",),
            r"<(?P<name>[\w:.-]{2,80})\s{1,8}[^<>]{0,200}?\bvalue\s{0,4}=\s{0,4}[\"'](?P<secret>[^\"'<>]{1,2048})",
        ),
        # {"name": "HF_TOKEN", "value": "S"}, also on two lines, <add key="password" value="S"/>
        (
            ("value",),
            r"\b(?:name|key|env|variable)\\?[\"']?\s{0,8}[:=]\s{0,8}\\?[\"']?(?P<name>[\w.-]{2,80})\\?[\"']?[\s,;]{0,80}"
            r"(?:-\s)?\\?[\"']?value\\?[\"']?\s{0,8}[:=]\s{0,8}" + VALUE,
        ),
        # token<TAB>S
        (
            ("\t",),
            r"(?P<name>[\w.-]{3,80})\t{1,8}(?P<secret>(?=[^\s\d]{0,127}\d)(?=[^\sA-Za-z]{0,127}[A-Za-z])\S{6,2048})",
        ),
        # Schemes of the header Authorization, in a text without it
        (("apikey ", "digest "), r"\bApiKey\s{1,4}(?P<secret>(?=[^\s\d]{0,127}\d)[^\s\"',;]{6,2048})"),
        (("digest ",), r"\bDigest\s(?P<secret>[^\n]{0,1024}\b(?:response|nonce)=[^\n]{1,1024})"),
        # Commands and calls
        (("login(",), r"\blogin\(\s{0,8}[\"'](?P<secret>[^\"'\s]{6,2048})[\"']"),
        (("sshpass",), r"\bsshpass\s{1,4}-p\s{0,4}[\"']?(?P<secret>[^\s\"']{1,2048})"),
        (("login",), r"\blogin\b[^\n]{0,200}?\s-p[ =][\"']?(?P<secret>[^\s\"']{1,2048})"),
        (("wandb login",), r"\bwandb login (?:--\S{1,40} ){0,4}(?P<secret>(?=[^\s\d]{0,127}\d)[^\s-]\S{5,2048})"),
        # Addresses in JSON, in a query, and without a scheme
        (
            ("@",),
            r"(?::|%3A)(?:\\/|%2F|\\?/){1,2}(?P<secret>[^/\s\"'<>`@\\%]{1,256}(?::|%3A)[^/\s\"'<>`@\\]{1,256})(?=@|%40)",
        ),
        (("//",), r"(?<![:\w/])//(?P<secret>[^/\s\"'<>`@:]{1,256}:[^/\s\"'<>`@]{1,256})@(?=\w)"),
    )
)
ESCAPED_LETTER = lazy_pattern(r"\\u00([2-7][0-9a-fA-F])")
KEPT = frozenset('"\\')  # a text of JSON stays valid


def redact_forms(text: str, replace_value: ReplaceValue) -> str:
    """The text without the secrets of these forms."""
    lowered = text.lower()
    for words, pattern in FORMS:
        if any(word in lowered for word in words):
            text = pattern.sub(lambda found: _replaced(found, replace_value), text)
    return text


def with_letters(text: str) -> str:
    r"""The text with letters in place of their escapes: `passw\u006frd`."""
    if "\\u00" not in text:
        return text
    letter = lambda found: letter if (letter := chr(int(found[1], 16))) not in KEPT else found[0]  # noqa: E731
    return ESCAPED_LETTER.sub(letter, text)


def _replaced(found: re.Match[str], replace_value: ReplaceValue) -> str:
    name = found.groupdict().get("name")
    if name is not None and not is_secret_name(name):
        return found[0]
    begin, end = found.start("secret") - found.start(), found.end("secret") - found.start()
    return found[0][:begin] + replace_value("secret", found["secret"]) + found[0][end:]
