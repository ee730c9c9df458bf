"""Redaction of secrets by their format (hf_..., AKIA...), their context (header, URL) or the name before them."""

from __future__ import annotations

import re
from collections.abc import Callable
from collections.abc import Set as AbstractSet

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.printable import without_invisible
from envdoctor.redact.field_names import Kind, classify_name, is_secret_name
from envdoctor.redact.secret_forms import redact_forms, with_letters
from envdoctor.redact.token_shapes import TOKEN_SHAPES
from envdoctor.redact.word_lists import word_list

ReplaceValue = Callable[[str, str], str]  # (kind, value) -> placeholder; counts the value as removed

PRIVATE_KEY_BEGIN = lazy_pattern(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,10}-----")
PRIVATE_KEY_END = lazy_pattern(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,10}-----")
# The rest of a private key without its end line: complete lines of base64, and one incomplete line.
TRUNCATED_KEY = lazy_pattern(
    r"(?:(?:\r?\n)?[A-Za-z-]{1,40}: [^\n]{0,200})*+"
    r"(?:(?:\s|\\[nr])*[A-Za-z0-9+/=]{30,})*+(?:(?:\s|\\[nr])*[A-Za-z0-9+/=]+)?"
)
MAX_KEY_LENGTH = 16 << 10
# Parameters of signed URLs (S3, Google, Azure, CloudFront, Hugging Face) and of home-made ones.
URL_SIGNATURE = lazy_pattern(
    r"(?i)([?&;](?:sig|signature|[a-z_-]*token|[a-z_-]*key|key-pair-id|password|secret|auth|policy|credentials?|se|sp|sv"
    r"|awsaccesskeyid|googleaccessid|x-(?:amz|goog)-[a-z-]+)=)([^&;\s\"'<>`\\]+)"
)
# Greedy: a password may contain an @. A path of a URL has one slash: https:/alice:password@host.
URL_CREDENTIALS = lazy_pattern(r"(://|(?:https?|ftps?|ssh|git|s3|socks5h?):/)([^/\s\"'<>`]*)@")
# alice:password@proxy:3128, alice:password@proxy.example; not NAME:CONFIG@REVISION of a dataset
BARE_CREDENTIALS = lazy_pattern(
    r":(?<=[\w.+-]:)[^\s/@:\"'<>]{1,128}@(?=[\w.-]+:\d|(?:[\w-]{1,63}\.){1,8}(?:[a-z]{2,}|\d{1,3})(?:/|\s|$)|localhost\b)"
)
# The value ends with the quotation mark before it or before the name, else with the line.
HEADER = lazy_pattern(
    r"""(?P<open>["'])?(?:Authorization|Cookie)["']?\s{0,4}[:=]\s{0,4}(?P<quote>["'])?"""
    r"""(?P<secret>(?(quote)(?:(?!(?P=quote))[^\n\r\\]|\\.)+|(?(open)(?:(?!(?P=open))[^\n\r])+|[^\n\r]+)))""",
    re.IGNORECASE,
)
BEARER = lazy_pattern(r"\bBearer\s{1,4}([^\s\"',;]{6,})", re.IGNORECASE)
LOGIN_OPTION = lazy_pattern(r" (?:-u|--user|--proxy-user)[ =]([^\s:]{1,64}:\S+)")
HEADER_PATTERNS = (
    (("authorization", "cookie"), HEADER),
    (("bearer ",), BEARER),
    ((" -u ", " --user", " --proxy-user", " -u="), LOGIN_OPTION),
)

NAME_REST = lazy_pattern(r"[\w.-]{0,60}")
# Spaces of any kind; `token[0]=`, `password%3D`, and the wide signs of Chinese and Japanese texts.
ASSIGNMENT = lazy_pattern(
    r"(?:\[\w{0,20}\])?\\?[\"'`]?\]?[^\S\r\n]{0,60}(?::=|=>|[=:\uff1d\uff1a]|%3[DdAa])[^\S\r\n]{0,8}(?!/)"
)
# A value on the next line: after a backslash, after `>-` and `|` of YAML, or alone.
NEXT_LINE = lazy_pattern(r"(?P<mark>\\|[>|][+-]?)?[^\S\r\n]{0,8}\r?\n[^\S\r\n]{0,60}(?=\S)")
OPTION_SPACE = lazy_pattern(r"[ \t]{1,8}(?!-)")
# `WANDB_API_KEY 0123abcd`, `password S3cr3t`: text after such a name is a secret if it has letters and digits.
SPACED_NAME = lazy_pattern(r"[A-Z0-9]+(?:_[A-Z0-9]+)+|(?i:password|passwd|passphrase)")
SPACE_BEFORE_SECRET = lazy_pattern(r"[ \t]{1,8}(?=[^\s\d]{0,127}\d)(?=[^\sA-Za-z]{0,127}[A-Za-z])(?=\S{6})")
OPENING_QUOTE = lazy_pattern(r"[bruf]{0,2}(\"\"\"|\'\'\'|\\?[\"'`])")
UNQUOTED_SECRET = lazy_pattern(r"\S{1,128}")  # the examined part; the redaction extends to the end of the word
UNQUOTED_NAME = lazy_pattern(r"[^\s\"',;(){}<>&|]{1,128}")
WORD_REST = lazy_pattern(r"\S*")
UNQUOTED_LENGTH = 128
MAX_VALUE_LENGTH = 2048  # in quotes
NO_VALUE = lazy_pattern(
    r"\(set\)|\(empty\)|\(unset\)|\*+|<[^>]*>|none|null|nil|true|false|yes|no|n/?a|unset|empty|undefined|auto|default|required"
    r"|\$\{?\w+\}?|\$\(.*|\{\w*\}|\[\w*\]|%\w+%|\S*(?:\.\.\.|…)|TOKEN|KEY|SECRET|PASSWORD|VALUE|NAME|FILE|PATH",
    re.IGNORECASE,
)
# Colour codes of terminals, as bytes or as escapes of JSON and Python. The last letter of one hides a token after it.
ANSI_CODE = lazy_pattern(r"(?:\x1b|\\(?:u001b|x1b|033|e))(?:\[[0-9;:?]{0,40}[@-~]|[()][A-Z0-9])", re.IGNORECASE)
ANSI_START = lazy_pattern(r"\x1b|\\(?:u001b|x1b|033|e)[\[(]", re.IGNORECASE)
ANSI_BOUNDARY = "\x1b"
NUMBER = lazy_pattern(r"[-+]?\d{1,7}(?:\.\d*)?(?:e[-+]?\d+)?")
NAME_CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
MAX_NAME_LENGTH = 80


def redact_secrets(text: str, replace_value: ReplaceValue, triggers: str = "triggers") -> str:
    """The text without tokens, credentials, and values after the name of a secret, host or user.

    `triggers`: the word list of the names to search for; `secret_triggers` are those of secrets only.
    """
    if "://" in text and "?" in text:
        text = URL_SIGNATURE.sub(lambda found: found[1] + replace_value("secret", found[2]), text)
    if "@" in text:
        text = URL_CREDENTIALS.sub(
            lambda found: f"{found[1]}{replace_value('secret', found[2])}@" if found[2] != "git" else found[0], text
        )
        text = _redact_credentials(text, replace_value)
    text = redact_tokens(text, replace_value)
    lowered = ascii_lower(text)
    for marks, pattern in HEADER_PATTERNS:
        if any(word in lowered for word in marks):
            text = pattern.sub(lambda found: _redact_group(found, replace_value), text)
    return _redact_named_values(redact_forms(text, replace_value), replace_value, word_list(triggers))


def redact_colored(text: str, redact: Callable[[str], str]) -> str:
    """The text redacted with and without its colour codes and invisible characters; with them if it has no secret.

    A code or a zero-width space may be next to a token, `ESC[32mhf_...`, or inside of it.
    """
    visible = with_letters(without_invisible(text))
    if visible == text and not ANSI_START.search(text):
        return redact(text)
    separated = ANSI_CODE.sub(ANSI_BOUNDARY, visible)
    without_tokens = redact(separated)
    plain = without_tokens.replace(ANSI_BOUNDARY, "")
    redacted = redact(plain)
    return text if without_tokens == separated and redacted == plain else redacted


def redact_tokens(text: str, replace_value: ReplaceValue) -> str:
    """The text without tokens, which their format shows. Only the patterns of literals in the text are compiled."""
    for literal, shape in TOKEN_SHAPES:
        if literal in text:
            text = re.sub(shape, lambda found: replace_value("secret", found[0]), text)
    return text


def _redact_credentials(text: str, replace_value: ReplaceValue) -> str:
    """Redact a user name and a password before an @ without a URL scheme: `alice:password@proxy:3128`."""
    parts, at = [], 0
    for found in BARE_CREDENTIALS.finditer(text):
        start = _name_start(text, found.start())
        if (
            start >= at
            and text[max(0, start - 1) : start] not in ("/", ":")
            and text[start : found.start()] != "mailto"
        ):
            parts += [text[at:start], replace_value("secret", text[start : found.end() - 1]), "@"]
            at = found.end()
    return "".join(parts) + text[at:] if parts else text


def ascii_lower(text: str) -> str:
    """The text in lower case with the same length: 'İ', which has two characters in lower case, is kept."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else re.sub("[A-Z]+", lambda found: found[0].lower(), text)


def _redact_group(found: re.Match[str], replace_value: ReplaceValue) -> str:
    """The match with its group replaced: `secret`, else the first."""
    group = "secret" if "secret" in found.re.groupindex else 1
    value = found[group].strip()
    if not value or NO_VALUE.fullmatch(value):
        return found[0]
    begin, end = found.start(group) - found.start(), found.end(group) - found.start()
    return found[0][:begin] + replace_value("secret", value) + found[0][end:]


def redact_private_keys(text: str, replace_value: ReplaceValue) -> str:
    """The text without private keys, including keys that are truncated at either end."""
    if "PRIVATE KEY" not in text:
        return text
    parts, at = [], 0
    while begin := PRIVATE_KEY_BEGIN.search(text, at):
        end = PRIVATE_KEY_END.search(text, begin.end(), begin.end() + MAX_KEY_LENGTH)
        end = end or TRUNCATED_KEY.match(text, begin.end())
        stop = end.end() if end else begin.end()
        parts += [text[at : begin.start()], replace_value("secret", text[begin.start() : stop].strip()), "\n"]
        at = stop
    rest = text[at:]
    if end := PRIVATE_KEY_END.search(rest):
        tail = _base64_start(rest[: end.start()])
        rest = rest[:tail] + replace_value("secret", rest[tail : end.end()]) + rest[end.end() :]
    return "".join(parts) + rest


def _base64_start(text: str) -> int:
    """The position at which the lines of base64 at the end of a text start."""
    at = len(text)
    for line in reversed(text.splitlines(keepends=True)):
        if not re.fullmatch(r"\s*[A-Za-z0-9+/=]+\s*", line):
            break
        at -= len(line)
    return at


def _redact_named_values(text: str, replace_value: ReplaceValue, triggers: AbstractSet[str]) -> str:
    """Redact values after a name: `HF_TOKEN=...`, `"password": "..."`, `--api-key ...`."""
    parts, at = [], 0
    for found in _find_triggers(ascii_lower(text), triggers):
        if found < at:
            continue
        start = _name_start(text, found)
        rest = NAME_REST.match(text, found)
        stop = rest.end() if rest else found
        kind = classify_name(text[start:stop].strip(".-"))
        value = _value_span(text, start, stop, kind) if kind else None
        if (
            kind
            and value
            and value[0] >= at
            and _is_sensitive_value(text[start:stop], kind, text[value[0] : value[1]])
        ):
            end = value[1]
            if kind == "secret" and end < len(text) and end - value[0] == UNQUOTED_LENGTH:
                rest = WORD_REST.match(text, end)
                end = rest.end() if rest else end
            parts += [text[at : value[0]], replace_value(kind, text[value[0] : end])]
            at = end
    return "".join(parts) + text[at:] if parts else text


def _find_triggers(lowered: str, triggers: AbstractSet[str]) -> list[int]:
    """The sorted positions of trigger words: every name of a sensitive value contains one."""
    found = set()
    for word in triggers:  # separate searches are ten times as fast as one pattern
        at = lowered.find(word)
        while at >= 0:
            found.add(at)
            at = lowered.find(word, at + len(word))
    return sorted(found)


def _name_start(text: str, at: int) -> int:
    window = text[max(0, at - MAX_NAME_LENGTH) : at]
    return at - len(window) + len(window.rstrip(NAME_CHARACTERS))


def _value_span(text: str, start: int, stop: int, kind: Kind) -> tuple[int, int] | None:
    """The start and the end of the value after a name, without its quotes."""
    sign = ASSIGNMENT.match(text, stop)
    option = text.startswith("-", start) or text[max(0, start - 7) : start].endswith(("setenv ", "-"))
    if sign is None and option:
        sign = OPTION_SPACE.match(text, stop)
    if sign is None and kind == "secret" and SPACED_NAME.fullmatch(text, start, stop):
        sign = SPACE_BEFORE_SECRET.match(text, stop)
    if sign is None and option:  # `--password` and the value on the next line
        sign = NEXT_LINE.match(text, stop)
    if sign is None:
        return None
    at = sign.end()
    if kind == "secret" and (following := NEXT_LINE.match(text, at)):
        at = following.end()
        if not following["mark"] and not _looks_secret(text[at : at + UNQUOTED_LENGTH].partition(" ")[0]):
            return None  # `Enter the password:` and other output
    opening = OPENING_QUOTE.match(text, at)
    if opening and (end := _closing_quote(text, opening.end(), opening[1])) >= 0:
        return (opening.end(), end) if end > opening.end() else None
    at = opening.end() if opening else at
    is_variable = kind == "secret" or text[start:stop].isupper()
    bare = (UNQUOTED_SECRET if is_variable else UNQUOTED_NAME).match(text, at)
    return bare.span() if bare else None


def _closing_quote(text: str, at: int, quote: str) -> int:
    """The position of the closing quote in the same line; -1 if there is none."""
    line = text.find("\n", at, at + MAX_VALUE_LENGTH)
    line = min(len(text), at + MAX_VALUE_LENGTH) if line < 0 else line
    end = text.find(quote, at, line)
    while end > 0 and len(quote) == 1 and text[end - 1] == "\\" and text[end - 2] != "\\":
        end = text.find(quote, end + 1, line)
    return end


def _is_sensitive_value(name: str, kind: Kind, value: str) -> bool:
    """Whether a value is sensitive. After an everyday word (`token:`, `host:`) it must also look like one."""
    plain = value.strip().rstrip(",;)}]").strip("\"'")
    if not plain or NO_VALUE.fullmatch(plain) or NO_VALUE.fullmatch(value.strip()) or "<" in plain[:1]:
        return False
    everyday = name.lower().strip("-") in word_list("everyday")
    if kind == "secret":
        strong = name.startswith("--") or (is_secret_name(name) and "token" not in name.lower())
        return strong or (not NUMBER.fullmatch(plain) and (not everyday or _looks_secret(plain)))
    if kind == "host":
        return (
            plain not in ("localhost", "::1")
            and (not everyday or bool(re.search(r"[\d.-]", plain)))
            and not _is_platform(plain)
        )
    if kind in ("serial", "machine"):
        return len(plain) >= 5 and bool(re.search(r"\d", plain))
    return not NUMBER.fullmatch(plain) and plain != "root"


def _looks_secret(value: str) -> bool:
    return len(value) >= 8 and bool(re.search(r"\d", value))


def _is_platform(value: str) -> bool:
    """Whether a value is a platform (`host: x86_64-unknown-linux-gnu`, as compilers print it) or only a number."""
    return bool(re.match(r"(?:x86_64|aarch64|arm64|ppc64le)\b|[\d.:]+$", value))
