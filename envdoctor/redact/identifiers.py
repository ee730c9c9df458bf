"""Redaction of user names, host names, e-mail addresses, UUIDs and serial numbers, recognized by their context."""

from __future__ import annotations

import re
from collections.abc import Callable
from collections.abc import Set as AbstractSet

from envdoctor.core.patterns import lazy_pattern
from envdoctor.redact.secrets import ascii_lower
from envdoctor.redact.word_lists import word_list

ReplaceValue = Callable[[str, str], str]  # (kind, value) -> placeholder; counts the value as removed

HOME_DIRECTORIES = tuple(
    (literal, lazy_pattern(re.escape(literal) + r"([^/\\\s:;,\"'`<>()|\[\]{}&*?=]+)"))
    for literal in ("/home/", "/Users/", "/users/", "\\Users\\", "\\\\Users\\\\")
)
ID_OUTPUT = lazy_pattern(r"id=(?<=[ug]id=)\d{1,10}\(([^)\s]{1,64})\)")
LOGGED_IN = lazy_pattern(r"logged in as:? ([^\s()<]{1,100})(?: \(([^)\n]{1,100})\))?", re.IGNORECASE)
WANDB_RUN = lazy_pattern(r"(?:Syncing run|View run|View project|Resuming run) ([^\s<:]{1,100})(?=\s|$)")
WANDB_URL = lazy_pattern(r"wandb\.ai/((?!site|home|authorize|quickstart)[^\s\"'<>)]+)")

AT = lazy_pattern(r"@(?<=[\w+-]@)(?=[A-Za-z0-9\[])")
LOCAL_PART = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.+-"
HOST_PART = lazy_pattern(r"[A-Za-z0-9](?:[\w.-]{0,250}\w)?")
MAX_LOCAL_PART = 64
EMAIL_DOMAIN = lazy_pattern(r"(?:[\w-]+\.)+[A-Za-z]{2,}")
PROMPT_END = lazy_pattern(r":\s?[~/]|\s[^\s\]]{1,64}\][$#]|\][$#]|[$#%>]\s|[$#%>]$")
REMOTE_COMMAND = lazy_pattern(r"\b(?:ssh|scp|rsync|sftp|mosh|sshfs)\s[^\n]{0,60}$")

URL_HOST = lazy_pattern(r"://(?=[A-Za-z<])(?:<secret>@)?([A-Za-z][\w.-]*)")
TOP_LEVEL_DOMAIN = lazy_pattern(rf"\.(?:{'|'.join(sorted(word_list('domains')))})(?![\w-]|\.\w|\()", re.IGNORECASE)
COMMON_DOMAINS = (".com", ".org", ".edu", ".gov", ".mil", ".arpa")
AWS_HOST = lazy_pattern(r"ip-(?<![\w-]ip-)\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3}\b")
SYSLOG_PREFIX = r"^(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT[\d:.+-]{8,30}Z?) "
# Log lines that contain the name of the host, as the group of the pattern.
HOST_PATTERNS = tuple(
    (literal, lazy_pattern(pattern, re.MULTILINE))
    for literal, pattern in (
        (" NCCL ", r"^([A-Za-z][\w.-]{0,100}):\d{1,10}:\d{1,10} \[\d+\] NCCL "),
        (" kernel:", SYSLOG_PREFIX + r"([\w.-]{1,100}) kernel:"),
        ("]: ", SYSLOG_PREFIX + r"([\w.-]{1,100}) [\w./@-]{1,60}\[\d+\]: "),
        ("Linux ", r"Linux (?<![\w-]Linux )([\w.-]{1,100}) \d+\.\d+\.\d[\w.+-]* #\d"),
        ("tfevents.", r"tfevents\.\d{6,12}\.([\w.-]{1,100}?)\.\d"),
        ("srun: error: ", r"srun: error: ([\w.-]{1,100}): "),
        ("[", r"\[([A-Za-z][\w.-]{0,100})\]:\d{2,5}\b"),  # c10d: [node07]:29500
        ("on host ", r"on host (?<![\w-]on host )([\w.-]{1,100})"),
        ("hostname ", r"hostname (?<![\w-]hostname )(?!of |is |in |or |and )([\w.-]{1,100})"),
    )
)
GPU_UUID = lazy_pattern(
    r"(?:GPU|MIG|NIC)-(?<![\w-]....)(?:GPU-)?(?=[0-9a-f-]{0,40}\d)[0-9a-fA-F]{8}[0-9a-fA-F-]{0,40}(?:/\d{1,3}/\d{1,3})?"
)
UUID = lazy_pattern(r"[0-9a-fA-F]{8}-(?<![0-9A-Za-z].{9})(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}(?![0-9A-Za-z])")
# These two are matched with the text in lower case, which is ten times as fast as re.IGNORECASE.
SERIAL = lazy_pattern(
    r"serial(?<![a-z]serial)(?:[ _-]?(?:number|num|no\.?))?[\"']?[ \t]{0,80}[:=#][ \t]{0,8}[\"']?"
    r"((?=[\w-]*\d)[a-z0-9][\w-]{4,})"
)
MACHINE_ID = lazy_pattern(r"machine[ _-]?id\W{1,8}([0-9a-f]{32})\b")


def redact_identifiers(text: str, replace_value: ReplaceValue, public: AbstractSet[str]) -> str:
    """The text without user and host names that are recognized by their context. `public` are more public sites."""
    text = _redact_user_at_host(text, replace_value)
    text = _redact_known_patterns(text, replace_value)
    if "://" in text:
        text = URL_HOST.sub(lambda found: _redact_site(found, replace_value, public), text)
    text = _redact_domains(text, replace_value, public)
    return _redact_ids(text, replace_value)


def _redact_known_patterns(text: str, replace_value: ReplaceValue) -> str:
    """Redact names in home directories, in the output of `id`, and in lines of W&B and of the system log."""
    for literal, pattern in HOME_DIRECTORIES:
        if literal in text:
            text = pattern.sub(lambda found: _redact_groups(found, replace_value, "user"), text)
    for literal, pattern in HOST_PATTERNS:
        if literal in text:
            text = pattern.sub(lambda found: _redact_groups(found, replace_value, "host"), text)
    if "id=" in text:
        text = ID_OUTPUT.sub(lambda found: _redact_groups(found, replace_value, "user"), text)
    if "ogged in as" in text:
        text = LOGGED_IN.sub(lambda found: _redact_groups(found, replace_value, "user", "name"), text)
    if " run " in text or "View project" in text:
        text = WANDB_RUN.sub(lambda found: _redact_groups(found, replace_value, "name"), text)
    if "wandb.ai/" in text:
        text = WANDB_URL.sub(lambda found: _redact_groups(found, replace_value, "name"), text)
    return text


def _redact_groups(found: re.Match[str], replace_value: ReplaceValue, *kinds: str) -> str:
    """The match with each group replaced by the placeholder of its kind."""
    text, shift = found[0], found.start()
    for number in range(found.re.groups, 0, -1):
        value = found[number]
        if value and not value.startswith("<") and value.lower() not in word_list("common"):
            begin, end = found.start(number) - shift, found.end(number) - shift
            text = text[:begin] + replace_value(kinds[number - 1], value) + text[end:]
    return text


def _redact_user_at_host(text: str, replace_value: ReplaceValue) -> str:
    """Redact `left@right`: e-mail addresses, prompts and SSH logins; not decorators, revisions or products."""
    parts, at = [], 0
    for sign in AT.finditer(text):
        window = text[max(at, sign.start() - MAX_LOCAL_PART) : sign.start()]
        left = window[len(window.rstrip(LOCAL_PART)) :].lstrip(".+-")
        right = HOST_PART.match(text, sign.end())
        if not left or not right or left == "git":
            continue
        begin, end = sign.start() - len(left), right.end()
        if replaced := _redact_at_sign(text, begin, end, replace_value):
            parts += [text[at:begin], replaced]
            at = end
    return "".join(parts) + text[at:] if parts else text


def _redact_at_sign(text: str, begin: int, end: int, replace_value: ReplaceValue) -> str:
    left, _, right = text[begin:end].partition("@")
    before, after = text[max(0, begin - 80) : begin], text[end : end + 80]
    line_start = not before.rpartition("\n")[2].strip() or before.endswith((") ", "[", ") ["))
    if (line_start and PROMPT_END.match(after)) or REMOTE_COMMAND.search(before) or re.match(r":[~/]\S*[$#]", after):
        return _redact_login(left, right, replace_value)
    if EMAIL_DOMAIN.fullmatch(right):
        return replace_value("email", f"{left}@{right}")
    plain = before.endswith("/") or len(left) < 3 or len(right) < 4 or not re.search(r"[a-z]", right)
    if plain or re.match(r"v?\d|[0-9a-f]{7,40}$|sha256", right) or not re.search(r"[\d-]", right):
        return ""
    return _redact_login(left, right, replace_value)


def _redact_login(user: str, host: str, replace_value: ReplaceValue) -> str:
    user = user if user.lower() in word_list("common") else replace_value("user", user)
    return f"{user}@{host if host.lower() in word_list('common') else replace_value('host', host)}"


def _redact_site(found: re.Match[str], replace_value: ReplaceValue, public: AbstractSet[str]) -> str:
    host = found[1]
    if is_public(host, public) or "secret" in host:
        return found[0]
    return found[0][: len(found[0]) - len(host)] + replace_value("host", host)


def is_public(host: str, public: AbstractSet[str]) -> bool:
    """Whether a site is public. `docs.nvidia.com` is, because `nvidia.com` is in the list."""
    labels = host.lower().rstrip(".").split(".")
    parents = {".".join(labels[number:]) for number in range(len(labels))}
    python_site = re.fullmatch(r"py[a-z]+\.org", ".".join(labels[-2:]))  # Python, its packages, PyTorch
    return bool(python_site) or host.lower() in public or not parents.isdisjoint(word_list("sites"))


def _redact_domains(text: str, replace_value: ReplaceValue, public: AbstractSet[str]) -> str:
    """Redact full host names outside of URLs: `node01.cluster.acme.com`."""
    parts, at = [], 0
    for ending in TOP_LEVEL_DOMAIN.finditer(text):
        window = text[max(at, ending.start() - 200) : ending.start()]
        left = window[len(window.rstrip(LOCAL_PART)) :].lstrip(".+-_")
        begin = ending.start() - len(left)
        host = left + ending[0]
        if _is_host(host, text[max(0, begin - 1) : begin]) and not is_public(host, public):
            parts += [text[at:begin], replace_value("host", host)]
            at = ending.end()
    text = "".join(parts) + text[at:] if parts else text
    return AWS_HOST.sub(lambda found: replace_value("host", found[0]), text) if "ip-" in text else text


def _is_host(host: str, before: str) -> bool:
    """Whether a dotted name is a host, and not an attribute (`self.net`) or a file (`.local`, `rc.local`)."""
    labels = host.split(".")
    if (
        not labels[0]
        or before in ("/", "\\", ".", "@", "~", "$")
        or "_" in host
        or any(not label for label in labels)
    ):
        return False
    if host.lower().endswith(COMMON_DOMAINS):
        return True
    return bool(re.search(r"\d|-", host)) and (len(labels) > 2 or len(labels[-1]) > 2)


def _redact_ids(text: str, replace_value: ReplaceValue) -> str:
    """Redact UUIDs, serial numbers and machine ids."""
    if "-" in text:
        text = GPU_UUID.sub(lambda found: found[0].split("-")[0] + "-" + replace_value("uuid", found[0]), text)
        text = UUID.sub(lambda found: replace_value("uuid", found[0]), text)
    for kind, pattern in (("serial", SERIAL), ("machine", MACHINE_ID)):
        parts, at = [], 0
        for found in pattern.finditer(ascii_lower(text)):
            parts += [text[at : found.start(1)], replace_value(kind, text[found.start(1) : found.end(1)])]
            at = found.end(1)
        text = "".join(parts) + text[at:] if parts else text
    return text


def expand_node_list(text: str) -> list[str]:
    """The hosts of a SLURM node list, at most 256: `gpu[01-03,7],login1` is gpu01, gpu02, gpu03, gpu7, login1."""
    hosts: list[str] = []
    for prefix, ranges, suffix in re.findall(r"([\w.-]+)(?:\[([\d,-]{1,400})\])?([\w.-]{0,40})", text)[:64]:
        for part in ranges.split(",") if ranges else [""]:
            first, _, last = part.partition("-")
            numbers = range(int(first), min(int(last or first), int(first) + 255) + 1) if first.isdigit() else ()
            hosts += [f"{prefix}{number:0{len(first)}}{suffix}" for number in numbers] if part else [prefix + suffix]
    return [host for host in hosts if host.lower() not in word_list("common")][:256]
