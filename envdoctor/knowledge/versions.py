"""Versions and specifiers as PEP 440 orders them, fast enough for thousands of requirements in one run.

What the plain patterns here do not cover (epochs, `===`, local versions in a specifier) goes to `packaging`.
"""

from __future__ import annotations

import re
from functools import cache
from operator import eq, ge, gt, le, lt, ne

Key = tuple[tuple[int, ...], tuple[int, int], int, int]

_VERSION = re.compile(
    r"v?(?P<release>\d+(?:\.\d+)*)[-_.]?"
    r"(?:(?P<phase>a|b|c|rc|alpha|beta|pre|preview)[-_.]?(?P<number>\d*))?"
    r"(?:(?:[-_.]?(?:post|rev|r)[-_.]?|-)(?P<post>\d+))?"
    r"(?:[-_.]?dev[-_.]?(?P<dev>\d*))?"
    r"(?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))?",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"\s*(===|~=|==|!=|<=|>=|<|>)\s*([^\s,]+?)(\.\*)?\s*")
LONGEST = 200  # of a version; Python refuses to read integers of thousands of digits
_PHASES = {"a": 1, "alpha": 1, "b": 2, "beta": 2, "c": 3, "rc": 3, "pre": 3, "preview": 3}
_COMPARE = {"==": eq, "!=": ne, "<=": le, ">=": ge, "<": lt, ">": gt}
_DEV_ONLY, _FINAL = (0, 0), (4, 0)
_NO_DEV = 1 << 60


@cache
def version_key(text: str) -> Key | None:
    """What versions are ordered by, without the local part: None where the text is no version."""
    found = _VERSION.fullmatch(text.strip()) if len(text) <= LONGEST else None
    if not found:
        return None
    parts = [int(part) for part in found["release"].split(".")]
    while len(parts) > 1 and parts[-1] == 0:
        parts.pop()
    dev = _NO_DEV if found["dev"] is None else int(found["dev"] or 0)
    post = -1 if found["post"] is None else int(found["post"])
    if found["phase"]:
        phase = (_PHASES[found["phase"].lower()], int(found["number"] or 0))
    else:
        phase = _DEV_ONLY if dev != _NO_DEV and post < 0 else _FINAL
    return tuple(parts), phase, post, dev


def is_prerelease(text: str) -> bool:
    """Whether this is an alpha, beta, candidate or development version: "2.1.0a0+32f93b1"."""
    key = version_key(text)
    return key is not None and (key[1] != _FINAL or key[3] != _NO_DEV)


def local_part(text: str) -> str:
    """What stands behind the plus: "cu128" of "2.8.0+cu128"."""
    return text.partition("+")[2].lower()


def public_part(text: str) -> str:
    """What stands before the plus: "2.8.0" of "2.8.0+cu128"."""
    return text.partition("+")[0]


def minor_of(text: str) -> str:
    """First two numbers of a version: "2.8" of "2.8.0+cu128"; empty where there are none."""
    found = re.match(r"v?(\d+\.\d+)", text)
    return found[1] if found else ""


def cuda_of_local(text: str) -> str:
    """CUDA that a version's local part names: "12.8" of "2.8.0+cu128", "cpu" of "2.5.1+cpu", else empty."""
    local = local_part(text)
    found = re.match(r"cu(\d{2})(\d)", local)
    if found:
        return f"{found[1]}.{found[2]}"
    return "cpu" if local.startswith("cpu") else ""


@cache
def satisfies(version: str, specifier: str) -> bool | None:
    """Whether a version is inside a specifier, ">=0.10.2,<0.12"; None where either cannot be read.

    Pre-releases are judged by their order, as an installed one must be.
    """
    key = version_key(version)
    if key is None:
        return None
    clauses = [clause for clause in specifier.split(",") if clause.strip()]
    parsed = [_CLAUSE.fullmatch(clause) for clause in clauses]
    if not all(_plain(each) for each in parsed):
        return _by_packaging(version, specifier)
    return all(_holds(key, each[1], each[2], each[3]) for each in parsed if each)


def _plain(clause: re.Match[str] | None) -> bool:
    return clause is not None and clause[1] != "===" and "+" not in clause[2] and version_key(clause[2]) is not None


def _holds(key: Key, operator: str, bound: str, wildcard: str | None) -> bool:
    limit = version_key(bound)
    assert limit is not None  # _plain has seen to it
    if wildcard:
        return _has_prefix(key, bound) == (operator == "==")
    if operator == "~=":
        release = re.match(r"v?(\d+(?:\.\d+)*)", bound)
        return key >= limit and release is not None and _has_prefix(key, release[1].rpartition(".")[0])
    if key[0] == limit[0] and _is_final(limit):  # its pre-releases are not below it, nor its post-releases above
        if operator == "<" and _before_final(key):
            return False
        if operator == ">" and key[2] >= 0:
            return False
    return bool(_COMPARE[operator](key, limit))


def _is_final(key: Key) -> bool:
    return key[1:] == (_FINAL, -1, _NO_DEV)


def _before_final(key: Key) -> bool:
    return key[1] != _FINAL or (key[3] != _NO_DEV and key[2] < 0)


def _has_prefix(key: Key, prefix: str) -> bool:
    wanted = [int(part) for part in re.findall(r"\d+", prefix)]
    have = list(key[0]) + [0] * (len(wanted) - len(key[0]))
    return have[: len(wanted)] == wanted


def _by_packaging(version: str, specifier: str) -> bool | None:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion

    try:
        return SpecifierSet(specifier).contains(version, prereleases=True)
    except (InvalidSpecifier, InvalidVersion, ValueError):
        return None
