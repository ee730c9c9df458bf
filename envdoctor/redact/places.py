"""Users in paths and prompts, hosts in prompts, addresses and logs, e-mail addresses, UUIDs and serial numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from collections.abc import Set as AbstractSet

from envdoctor.redact.secrets import ascii_lower
from envdoctor.redact.words import words

Note = Callable[[str, str], str]  # of (kind, value): keeps the value, answers with the placeholder

HOMES = tuple(
    (literal, re.compile(re.escape(literal) + r"([^/\\\s:;,\"'`<>()|\[\]{}&*?=]+)"))
    for literal in ("/home/", "/Users/", "/users/", "\\Users\\", "\\\\Users\\\\")
)
ACCOUNT = re.compile(r"id=(?<=[ug]id=)\d{1,10}\(([^)\s]{1,64})\)")
LOGGED_IN = re.compile(r"logged in as:? ([^\s()<]{1,100})(?: \(([^)\n]{1,100})\))?", re.IGNORECASE)
WANDB_RUN = re.compile(r"(?:Syncing run|View run|View project|Resuming run) ([^\s<:]{1,100})(?=\s|$)")
WANDB_ADDRESS = re.compile(r"wandb\.ai/((?!site|home|authorize|quickstart)[^\s\"'<>)]+)")

AT = re.compile(r"@(?<=[\w+-]@)(?=[A-Za-z0-9\[])")
LEFT = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.+-"
RIGHT = re.compile(r"[A-Za-z0-9](?:[\w.-]{0,250}\w)?")
LONGEST_LEFT = 64
MAILED = re.compile(r"(?:[\w-]+\.)+[A-Za-z]{2,}")
PROMPT_AFTER = re.compile(r":\s?[~/]|\s[^\s\]]{1,64}\][$#]|\][$#]|[$#%>]\s|[$#%>]$")
REMOTE_BEFORE = re.compile(r"\b(?:ssh|scp|rsync|sftp|mosh|sshfs)\s[^\n]{0,60}$")

SCHEME = re.compile(r"://(?=[A-Za-z<])(?:<secret>@)?([A-Za-z][\w.-]*)")
DOMAIN_END = re.compile(rf"\.(?:{'|'.join(sorted(words('domains')))})(?![\w-]|\.\w|\()", re.IGNORECASE)
CERTAIN_END = (".com", ".org", ".edu", ".gov", ".mil", ".arpa")
AMAZON = re.compile(r"ip-(?<![\w-]ip-)\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3}\b")
SYSLOG = r"^(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT[\d:.+-]{8,30}Z?) "
# Where logs name the machine that wrote them; the group is the host.
HOST_LINES = tuple(
    (literal, re.compile(pattern, re.MULTILINE))
    for literal, pattern in (
        (" NCCL ", r"^([A-Za-z][\w.-]{0,100}):\d{1,10}:\d{1,10} \[\d+\] NCCL "),
        (
            " kernel:",
            SYSLOG + r"([\w.-]{1,100}) kernel:",
        ),
        (
            "]: ",
            SYSLOG + r"([\w.-]{1,100}) [\w./@-]{1,60}\[\d+\]: ",
        ),
        ("Linux ", r"Linux (?<![\w-]Linux )([\w.-]{1,100}) \d+\.\d+\.\d[\w.+-]* #\d"),
        ("tfevents.", r"tfevents\.\d{6,12}\.([\w.-]{1,100}?)\.\d"),
        ("srun: error: ", r"srun: error: ([\w.-]{1,100}): "),
        ("[", r"\[([A-Za-z][\w.-]{0,100})\]:\d{2,5}\b"),  # c10d: [node07]:29500
        ("on host ", r"on host (?<![\w-]on host )([\w.-]{1,100})"),
        ("hostname ", r"hostname (?<![\w-]hostname )(?!of |is |in |or |and )([\w.-]{1,100})"),
    )
)
DEVICE = re.compile(
    r"(?:GPU|MIG|NIC)-(?<![\w-]....)(?:GPU-)?(?=[0-9a-f-]{0,40}\d)[0-9a-fA-F]{8}[0-9a-fA-F-]{0,40}(?:/\d{1,3}/\d{1,3})?"
)
UUID = re.compile(r"[0-9a-fA-F]{8}-(?<![0-9A-Za-z].{9})(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}(?![0-9A-Za-z])")
# These two are looked for in the text in lower case: ten times as fast as without regard to case.
SERIAL = re.compile(
    r"serial(?<![a-z]serial)(?:[ _-]?(?:number|num|no\.?))?[\"']?[ \t]{0,80}[:=#][ \t]{0,8}[\"']?"
    r"((?=[\w-]*\d)[a-z0-9][\w-]{4,})"
)
MACHINE_ID = re.compile(r"machine[ _-]?id\W{1,8}([0-9a-f]{32})\b")


def replace_places(text: str, note: Note, public: AbstractSet[str]) -> str:
    """The text without users' and hosts' names where their place tells them. `public` are further public sites."""
    text = _replace_people(text, note)
    text = _replace_groups(text, note)
    if "://" in text:
        text = SCHEME.sub(lambda found: _site(found, note, public), text)
    text = _replace_domains(text, note, public)
    return _replace_numbers(text, note)


def _replace_groups(text: str, note: Note) -> str:
    """Names in home folders, in the output of `id`, in W&B's and the system's lines."""
    for literal, pattern in HOMES:
        if literal in text:
            text = pattern.sub(lambda found: _named(found, note, "user"), text)
    for literal, pattern in HOST_LINES:
        if literal in text:
            text = pattern.sub(lambda found: _named(found, note, "host"), text)
    if "id=" in text:
        text = ACCOUNT.sub(lambda found: _named(found, note, "user"), text)
    if "ogged in as" in text:
        text = LOGGED_IN.sub(lambda found: _named(found, note, "user", "name"), text)
    if " run " in text or "View project" in text:
        text = WANDB_RUN.sub(lambda found: _named(found, note, "name"), text)
    return WANDB_ADDRESS.sub(lambda found: _named(found, note, "name"), text) if "wandb.ai/" in text else text


def _named(found: re.Match[str], note: Note, *kinds: str) -> str:
    """The match with its groups replaced, each by the placeholder of its kind."""
    text, shift = found[0], found.start()
    for number in range(found.re.groups, 0, -1):
        value = found[number]
        if value and not value.startswith("<") and value.lower() not in words("common"):
            begin, end = found.start(number) - shift, found.end(number) - shift
            text = text[:begin] + note(kinds[number - 1], value) + text[end:]
    return text


def _replace_people(text: str, note: Note) -> str:
    """`name@place`: an e-mail address, a prompt, or a login over SSH; not a decorator, a revision or a product."""
    parts, at = [], 0
    for sign in AT.finditer(text):
        window = text[max(at, sign.start() - LONGEST_LEFT) : sign.start()]
        left = window[len(window.rstrip(LEFT)) :].lstrip(".+-")
        right = RIGHT.match(text, sign.end())
        if not left or not right or left == "git":
            continue
        begin, end = sign.start() - len(left), right.end()
        if replaced := _person(text, begin, end, note):
            parts += [text[at:begin], replaced]
            at = end
    return "".join(parts) + text[at:] if parts else text


def _person(text: str, begin: int, end: int, note: Note) -> str:
    left, _, right = text[begin:end].partition("@")
    before, after = text[max(0, begin - 80) : begin], text[end : end + 80]
    line_start = not before.rpartition("\n")[2].strip() or before.endswith((") ", "[", ") ["))
    if (line_start and PROMPT_AFTER.match(after)) or REMOTE_BEFORE.search(before) or re.match(r":[~/]\S*[$#]", after):
        return _login(left, right, note)
    if MAILED.fullmatch(right):
        return note("email", f"{left}@{right}")
    plain = before.endswith("/") or len(left) < 3 or len(right) < 4 or not re.search(r"[a-z]", right)
    if plain or re.match(r"v?\d|[0-9a-f]{7,40}$|sha256", right) or not re.search(r"[\d-]", right):
        return ""
    return _login(left, right, note)


def _login(user: str, host: str, note: Note) -> str:
    user = user if user.lower() in words("common") else note("user", user)
    return f"{user}@{host if host.lower() in words('common') else note('host', host)}"


def _site(found: re.Match[str], note: Note, public: AbstractSet[str]) -> str:
    host = found[1]
    if is_public(host, public) or "secret" in host:
        return found[0]
    return found[0][: len(found[0]) - len(host)] + note("host", host)


def is_public(host: str, public: AbstractSet[str]) -> bool:
    """Whether a site is everybody's: `docs.nvidia.com` by `nvidia.com`."""
    labels = host.lower().rstrip(".").split(".")
    above = {".".join(labels[number:]) for number in range(len(labels))}
    own = re.fullmatch(r"py[a-z]+\.org", ".".join(labels[-2:]))  # of Python, its packages and PyTorch
    return bool(own) or host.lower() in public or not above.isdisjoint(words("sites"))


def _replace_domains(text: str, note: Note, public: AbstractSet[str]) -> str:
    """Hosts by their full name outside of addresses: `node01.cluster.acme.com`."""
    parts, at = [], 0
    for ending in DOMAIN_END.finditer(text):
        window = text[max(at, ending.start() - 200) : ending.start()]
        left = window[len(window.rstrip(LEFT)) :].lstrip(".+-_")
        begin = ending.start() - len(left)
        host = left + ending[0]
        if _is_host(host, text[max(0, begin - 1) : begin]) and not is_public(host, public):
            parts += [text[at:begin], note("host", host)]
            at = ending.end()
    text = "".join(parts) + text[at:] if parts else text
    return AMAZON.sub(lambda found: note("host", found[0]), text) if "ip-" in text else text


def _is_host(host: str, before: str) -> bool:
    """Whether a name with dots is a machine's, and no attribute (`self.net`) or file (`.local`, `rc.local`)."""
    labels = host.split(".")
    if (
        not labels[0]
        or before in ("/", "\\", ".", "@", "~", "$")
        or "_" in host
        or any(not label for label in labels)
    ):
        return False
    if host.lower().endswith(CERTAIN_END):
        return True
    return bool(re.search(r"\d|-", host)) and (len(labels) > 2 or len(labels[-1]) > 2)


def _replace_numbers(text: str, note: Note) -> str:
    """What names one device, one board or one installed system."""
    if "-" in text:
        text = DEVICE.sub(lambda found: found[0].split("-")[0] + "-" + note("uuid", found[0]), text)
        text = UUID.sub(lambda found: note("uuid", found[0]), text)
    for kind, pattern in (("serial", SERIAL), ("machine", MACHINE_ID)):
        parts, at = [], 0
        for found in pattern.finditer(ascii_lower(text)):
            parts += [text[at : found.start(1)], note(kind, text[found.start(1) : found.end(1)])]
            at = found.end(1)
        text = "".join(parts) + text[at:] if parts else text
    return text


def expand_nodes(text: str) -> list[str]:
    """The hosts of a SLURM list, at most 256: `gpu[01-03,7],login1` is gpu01, gpu02, gpu03, gpu7, login1."""
    hosts: list[str] = []
    for prefix, ranges, suffix in re.findall(r"([\w.-]+)(?:\[([\d,-]{1,400})\])?([\w.-]{0,40})", text)[:64]:
        for part in ranges.split(",") if ranges else [""]:
            first, _, last = part.partition("-")
            numbers = range(int(first), min(int(last or first), int(first) + 255) + 1) if first.isdigit() else ()
            hosts += [f"{prefix}{number:0{len(first)}}{suffix}" for number in numbers] if part else [prefix + suffix]
    return [host for host in hosts if host.lower() not in words("common")][:256]
