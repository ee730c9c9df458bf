"""Secrets by their shape (hf_..., AKIA...), by where they stand (a header, an address), by the name before them."""

from __future__ import annotations

import re
from collections.abc import Callable

from envdoctor.redact.naming import Kind, is_secret_name, kind_of
from envdoctor.redact.words import words

Note = Callable[[str, str], str]  # of (kind, value): keeps the value, answers with the placeholder

AMAZON_KINDS = ("KI", "SI", "RO", "ID", "NP", "GP")
GITLAB_KINDS = ("pat", "dt", "rt", "cbt", "ptt", "ft", "soat", "agent", "oas")
# A literal that must be there, which is looked for first; then the shape. Each shape begins with its literal, and
# none can fail after a long run that another beginning in the same run would read again.
SHAPES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (literal, re.compile(shape))
    for literal, shape in (
        ("hf_", r"hf_(?<![A-Za-z0-9]hf_)[A-Za-z0-9]{16,}"),
        ("api_org_", r"api_org_[A-Za-z0-9]{16,}"),
        ("sk-", r"sk-(?<![A-Za-z0-9]sk-)[A-Za-z0-9_-]{16,}"),
        ("github_pat_", r"github_pat_\w{16,}"),
        *((f"gh{kind}_", rf"gh{kind}_(?<![A-Za-z0-9]gh{kind}_)[A-Za-z0-9]{{16,}}") for kind in "opsur"),
        *((f"A{kind}A", rf"A{kind}A(?<![A-Za-z0-9]A{kind}A)[A-Z0-9]{{16}}(?![A-Za-z0-9])") for kind in AMAZON_KINDS),
        ("xox", r"xox[a-z]-[A-Za-z0-9-]{10,}"),
        ("xapp-", r"xapp-[A-Za-z0-9-]{10,}"),
        *((f"gl{kind}-", rf"gl{kind}-[\w.-]{{16,}}") for kind in GITLAB_KINDS),
        ("AIza", r"AIza[\w-]{30,}"),
        ("ya29.", r"ya29\.[\w-]{16,}"),
        ("GOCSPX-", r"GOCSPX-[\w-]{16,}"),
        ("npm_", r"npm_[A-Za-z0-9]{30,}"),
        ("pypi-", r"pypi-Ag[\w-]{16,}"),
        ("nvapi-", r"nvapi-[\w-]{16,}"),
        ("wandb_v", r"wandb_v\d_\w{16,}"),
        ("r8_", r"r8_(?<![A-Za-z0-9]r8_)[A-Za-z0-9]{30,}"),
        ("gsk_", r"gsk_[A-Za-z0-9]{20,}"),
        ("rpa_", r"rpa_[A-Za-z0-9]{20,}"),
        ("dckr_", r"dckr_(?:pat|oat)_[\w-]{16,}"),
        ("_live_", r"_live_(?<=[srp]k_live_)\w{16,}"),
        ("_test_", r"_test_(?<=[srp]k_test_)\w{16,}"),
        ("eyJ", r"eyJ(?<![\w-]eyJ)[\w-]{8,}+\.[\w-]{8,}+(?:\.[\w-]*+)*+"),
        ("SG.", r"SG\.[\w-]{16,}\.[\w-]{16,}"),
        ("hooks.slack.com", r"hooks\.slack\.com/[\w/-]+"),
    )
)
KEY_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,10}-----")
KEY_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,10}-----")
# What follows where the end was cut off: whole lines of base64, and one that is not whole.
KEY_CUT = re.compile(r"(?:(?:\s|\\[nr])*[A-Za-z0-9+/=]{30,})*+(?:(?:\s|\\[nr])*[A-Za-z0-9+/=]+)?")
LONGEST_KEY = 16 << 10
IN_ADDRESS = re.compile(r"://([^/\s\"'<>`]*)@")  # greedily: a password may hold an @
BARE_LOGIN = re.compile(r":(?<=[\w.+-]:)[^\s/@:\"'<>]{1,128}@(?=[\w.-]+(?::\d|/|\s|$))")  # alice:password@proxy:3128
HEADER = re.compile(r"(?:Authorization|Cookie)[\"']?\s{0,4}[:=]\s{0,4}[\"']?([^\"'\n\r]+)", re.IGNORECASE)
BEARER = re.compile(r"\bBearer\s{1,4}([^\s\"',;]{6,})", re.IGNORECASE)
LOGIN_OPTION = re.compile(r" (?:-u|--user|--proxy-user)[ =]([^\s:]{1,64}:\S+)")
WORDED = (
    (("authorization", "cookie"), HEADER),
    (("bearer ",), BEARER),
    ((" -u ", " --user", " --proxy-user", " -u="), LOGIN_OPTION),
)

NAME_REST = re.compile(r"[\w.-]{0,60}")
BETWEEN = re.compile(r"\\?[\"'`]?\]?[ \t]{0,60}(?::=|=>|=|:)[ \t]{0,8}(?!/)")
AFTER_OPTION = re.compile(r"[ \t]{1,8}(?!-)")
OPENING = re.compile(r"[bruf]{0,2}(\\?[\"'`])")
BARE_SECRET = re.compile(r"\S{1,128}")  # what is looked at; what is taken out goes to the end of the word
BARE_NAME = re.compile(r"[^\s\"',;(){}<>&|]{1,128}")
WORD_REST = re.compile(r"\S*")
BARE_LOOK = 128
LONGEST_VALUE = 2048  # in quotes
NOTHING = re.compile(
    r"\(set\)|\(empty\)|\(unset\)|\*+|<[^>]*>|none|null|nil|true|false|yes|no|n/?a|unset|empty|undefined|auto|default|required"
    r"|\$\{?\w+\}?|\{\w*\}|\[\w*\]|%\w+%|\.\.\.|…",
    re.IGNORECASE,
)
NUMBER = re.compile(r"[-+]?\d{1,7}(?:\.\d*)?(?:e[-+]?\d+)?")
NAME_CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
LONGEST_NAME = 80


def replace_secrets(text: str, note: Note) -> str:
    """The text without tokens, credentials, and values of what is named a secret, a host, a user."""
    if "@" in text:
        text = IN_ADDRESS.sub(
            lambda found: f"://{note('secret', found[1])}@" if found[1] != "git" else found[0], text
        )
        text = _replace_logins(text, note)
    for literal, shape in SHAPES:
        if literal in text:
            text = shape.sub(lambda found: note("secret", found[0]), text)
    lowered = ascii_lower(text)
    for marks, pattern in WORDED:
        if any(word in lowered for word in marks):
            text = pattern.sub(lambda found: _replace_group(found, note), text)
    return _replace_named(text, note)


def _replace_logins(text: str, note: Note) -> str:
    """Name and password before an @, where no scheme is: `alice:password@proxy:3128`."""
    parts, at = [], 0
    for found in BARE_LOGIN.finditer(text):
        start = _name_start(text, found.start())
        if (
            start >= at
            and text[max(0, start - 1) : start] not in ("/", ":")
            and text[start : found.start()] != "mailto"
        ):
            parts += [text[at:start], note("secret", text[start : found.end() - 1]), "@"]
            at = found.end()
    return "".join(parts) + text[at:] if parts else text


def ascii_lower(text: str) -> str:
    """The text in lower case, of the same length: 'İ' has two characters in lower case and stays as it is."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else re.sub("[A-Z]+", lambda found: found[0].lower(), text)


def _replace_group(found: re.Match[str], note: Note) -> str:
    """The match with its one group replaced."""
    if not found[1].strip() or NOTHING.fullmatch(found[1].strip()):
        return found[0]
    begin, end = found.start(1) - found.start(), found.end(1) - found.start()
    return found[0][:begin] + note("secret", found[1].strip()) + found[0][end:]


def replace_keys(text: str, note: Note) -> str:
    """Private keys, whole or cut off at either end."""
    if "PRIVATE KEY" not in text:
        return text
    parts, at = [], 0
    while begin := KEY_BEGIN.search(text, at):
        end = KEY_END.search(text, begin.end(), begin.end() + LONGEST_KEY) or KEY_CUT.match(text, begin.end())
        stop = end.end() if end else begin.end()
        parts += [text[at : begin.start()], note("secret", text[begin.start() : stop].strip()), "\n"]
        at = stop
    rest = text[at:]
    if end := KEY_END.search(rest):
        tail = _key_tail(rest[: end.start()])
        rest = rest[:tail] + note("secret", rest[tail : end.end()]) + rest[end.end() :]
    return "".join(parts) + rest


def _key_tail(text: str) -> int:
    """Where the lines of base64 at the end of a text begin."""
    at = len(text)
    for line in reversed(text.splitlines(keepends=True)):
        if not re.fullmatch(r"\s*[A-Za-z0-9+/=]+\s*", line):
            break
        at -= len(line)
    return at


def _replace_named(text: str, note: Note) -> str:
    """Values behind a name and a sign: `HF_TOKEN=...`, `"password": "..."`, `--api-key ...`."""
    parts, at = [], 0
    for found in _triggers(ascii_lower(text)):
        if found < at:
            continue
        start = _name_start(text, found)
        rest = NAME_REST.match(text, found)
        stop = rest.end() if rest else found
        kind = kind_of(text[start:stop].strip(".-"))
        value = _value_span(text, start, stop, kind) if kind else None
        if kind and value and value[0] >= at and _tells(text[start:stop], kind, text[value[0] : value[1]]):
            end = value[1]
            if kind == "secret" and end < len(text) and end - value[0] == BARE_LOOK:
                rest = WORD_REST.match(text, end)
                end = rest.end() if rest else end
            parts += [text[at : value[0]], note(kind, text[value[0] : end])]
            at = end
    return "".join(parts) + text[at:] if parts else text


def _triggers(lowered: str) -> list[int]:
    """Where the words begin of which one is in every telling name, in order."""
    found = set()
    for word in words("triggers"):  # one by one: that is ten times as fast as one pattern of all of them
        at = lowered.find(word)
        while at >= 0:
            found.add(at)
            at = lowered.find(word, at + len(word))
    return sorted(found)


def _name_start(text: str, at: int) -> int:
    window = text[max(0, at - LONGEST_NAME) : at]
    return at - len(window) + len(window.rstrip(NAME_CHARACTERS))


def _value_span(text: str, start: int, stop: int, kind: Kind) -> tuple[int, int] | None:
    """Where the value behind a name begins and ends, without its quotes."""
    sign = BETWEEN.match(text, stop)
    option = text.startswith("-", start) or text[max(0, start - 7) : start].endswith(("setenv ", "-"))
    if sign is None and option:
        sign = AFTER_OPTION.match(text, stop)
    if sign is None:
        return None
    opening = OPENING.match(text, sign.end())
    if opening and (end := _closing(text, opening.end(), opening[1])) >= 0:
        return (opening.end(), end) if end > opening.end() else None
    at = opening.end() if opening else sign.end()
    shouted = kind == "secret" or text[start:stop].isupper()
    bare = (BARE_SECRET if shouted else BARE_NAME).match(text, at)
    return bare.span() if bare else None


def _closing(text: str, at: int, quote: str) -> int:
    """Where a quoted value ends: at the same quote in the same line; -1 where there is none."""
    line = text.find("\n", at, at + LONGEST_VALUE)
    line = min(len(text), at + LONGEST_VALUE) if line < 0 else line
    end = text.find(quote, at, line)
    while end > 0 and len(quote) == 1 and text[end - 1] == "\\" and text[end - 2] != "\\":
        end = text.find(quote, end + 1, line)
    return end


def _tells(name: str, kind: Kind, value: str) -> bool:
    """Whether a value is one at all; under a name of everyday speech (`token:`, `host:`) it must look like one."""
    plain = value.strip().rstrip(",;)}]").strip("\"'")
    if not plain or NOTHING.fullmatch(plain) or NOTHING.fullmatch(value.strip()) or "<" in plain[:1]:
        return False
    everyday = name.lower().strip("-") in words("everyday")
    if kind == "secret":
        strong = is_secret_name(name) and "token" not in name.lower()
        return strong or (not NUMBER.fullmatch(plain) and (not everyday or _looks_secret(plain)))
    if kind == "host":
        return (
            plain not in ("localhost", "::1")
            and (not everyday or bool(re.search(r"[\d.-]", plain)))
            and not _platform(plain)
        )
    if kind in ("serial", "machine"):
        return len(plain) >= 5 and bool(re.search(r"\d", plain))
    return not NUMBER.fullmatch(plain) and plain != "root"


def _looks_secret(value: str) -> bool:
    return len(value) >= 8 and bool(re.search(r"\d", value))


def _platform(value: str) -> bool:
    """`host: x86_64-unknown-linux-gnu` as compilers print it, and numbers alone."""
    return bool(re.match(r"(?:x86_64|aarch64|arm64|ppc64le)\b|[\d.:]+$", value))
