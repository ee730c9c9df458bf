"""Versions and specifiers of PEP 440, fast enough for thousands of requirements in one run.

`packaging` handles the forms that the patterns here do not cover: epochs, `===`, local versions in a specifier.
"""

from __future__ import annotations

import re
from functools import cache
from operator import eq, ge, gt, le, lt, ne
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern

Key = tuple[tuple[int, ...], tuple[int, int], int, int]
MajorMinor = tuple[int, int]

_VERSION = lazy_pattern(
    r"v?(?P<release>\d+(?:\.\d+)*)[-_.]?"
    r"(?:(?P<phase>a|b|c|rc|alpha|beta|pre|preview)[-_.]?(?P<number>\d*))?"
    r"(?:(?:[-_.]?(?:post|rev|r)[-_.]?|-)(?P<post>\d+))?"
    r"(?:[-_.]?dev[-_.]?(?P<dev>\d*))?"
    r"(?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))?",
    re.IGNORECASE,
)
_CLAUSE = lazy_pattern(r"\s*(===|~=|==|!=|<=|>=|<|>)\s*([^\s,]+?)(\.\*)?\s*")
LONGEST_VERSION = 200  # characters; Python does not convert integers of thousands of digits
_PHASES = {"a": 1, "alpha": 1, "b": 2, "beta": 2, "c": 3, "rc": 3, "pre": 3, "preview": 3}
_OPERATORS = {"==": eq, "!=": ne, "<=": le, ">=": ge, "<": lt, ">": gt}
_BEFORE_PRERELEASES, _FINAL = (0, 0), (4, 0)
_NO_DEV = 1 << 60


@cache
def version_key(text: str) -> Key | None:
    """A sort key without the local part; None if the text is not a version."""
    found = _VERSION.fullmatch(text.strip()) if len(text) <= LONGEST_VERSION else None
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
        phase = _BEFORE_PRERELEASES if dev != _NO_DEV and post < 0 else _FINAL
    return tuple(parts), phase, post, dev


def newest_patch(python: str) -> str:
    """`3.10` as a version that is not below any of its patch releases: a new environment gets the newest one."""
    return python if python.count(".") > 1 else f"{python}.99"


def is_version(text: str) -> bool:
    """Whether the text is a version of PEP 440, also one with an epoch, which `version_key` does not read."""
    from packaging.version import Version

    try:
        return len(text) <= LONGEST_VERSION and bool(str(Version(text)))
    except ValueError:  # InvalidVersion, or an int of thousands of digits
        return False


def is_prerelease(text: str) -> bool:
    """Whether this is an alpha, beta, candidate or development version: "2.1.0a0+32f93b1"."""
    key = version_key(text)
    return key is not None and (key[1] != _FINAL or key[3] != _NO_DEV)


def is_local_build(text: str) -> bool:
    """Whether no release has this code: a nightly, an alpha of a container, or a build from source.

    `2.9.0.dev20250901+cu128`, `2.5.0a0+e000cf0ad9.nv24.10`, `2.8.0+git7416ffc`, `0.0.30+4cf69f09.d20250707`; not
    `2.8.0+cu128` or `2.8.3+cu12torch2.8cxx11abiTRUE`.
    """
    local = local_part(text)
    key = version_key(text)
    development = key is not None and key[3] != _NO_DEV
    from_source = bool(local) and not re.match(r"cu\d|cpu|rocm\d|xpu|pt\d|.*torch", local)
    return development or from_source or (bool(local) and is_prerelease(text))


def local_part(text: str) -> str:
    """The part after the plus: "cu128" of "2.8.0+cu128"."""
    return text.partition("+")[2].lower()


def public_part(text: str) -> str:
    """The part before the plus: "2.8.0" of "2.8.0+cu128"."""
    return text.partition("+")[0]


@cache
def minor_of(text: str) -> str:
    """The first two numbers of a version: "2.8" of "2.8.0+cu128"; empty if there are none."""
    found = re.match(r"v?(\d+\.\d+)", text)
    return found[1] if found else ""


@cache
def major_minor(text: str) -> MajorMinor:
    """`12.8.93` as (12, 8); (12, 0) for `12`. Raises ValueError if the text does not start with a number."""
    major, _, rest = text.partition(".")
    return int(major), int(rest.partition(".")[0] or 0)


MAX_DIGITS = 18  # of a part of a version; int() refuses more than 4300


@cache
def numbers_in(text: str) -> tuple[int, ...]:
    """The numbers in a name as a sort key: `cpython-3.12.1-linux` gives (3, 12, 1)."""
    return tuple(int(part) for part in re.findall(r"\d+", text))


@cache
def dotted_numbers(text: str) -> tuple[int, ...]:
    """`570.124.06` as (570, 124, 6); parts that are not numbers are left out."""
    return tuple(int(part) for part in text.split(".") if part.isdecimal() and len(part) <= MAX_DIGITS)


def cuda_of_local(text: str) -> str:
    """The CUDA version in a local version: "12.8" of "2.8.0+cu128", "cpu" of "2.5.1+cpu", else empty."""
    local = local_part(text)
    found = re.match(r"cu(\d{2}|[89])(\d)", local)
    if found:
        return f"{found[1]}.{found[2]}"
    return "cpu" if local.startswith("cpu") else ""


@cache
def satisfies(version: str, specifier: str) -> bool | None:
    """Whether a version matches a specifier, ">=0.10.2,<0.12"; None if either cannot be parsed.

    Pre-releases are compared by their order, because the version may be installed already.
    """
    key = version_key(version)
    if key is None:
        return None
    clauses = _parse_clauses(specifier)
    if clauses is None:
        return _satisfies_with_packaging(version, specifier)
    return all(_clause_matches(key, clause) for clause in clauses)


def are_disjoint(first: str, second: str) -> bool:
    """Whether no version satisfies both ranges: one that does is a bound of one of them, or just above it."""
    bounds = re.findall(r"\d(?:[\w.]*\w)?", f"{first},{second}")
    candidates = ["0", *bounds, *(f"{bound}.0.1" for bound in bounds)]
    return not any(
        satisfies(each, first) is not False and satisfies(each, second) is not False for each in candidates
    )


class _Clause(NamedTuple):
    """One clause of a specifier: `>=`, `2.8`."""

    operator: str
    bound: str
    has_wildcard: bool
    limit: Key


@cache
def _parse_clauses(specifier: str) -> tuple[_Clause, ...] | None:
    """The clauses of a specifier; None if one has a form that only `packaging` reads."""
    parsed = [_parse_clause(clause) for clause in specifier.split(",") if clause.strip()]
    clauses = tuple(clause for clause in parsed if clause)
    return clauses if len(clauses) == len(parsed) else None


def _parse_clause(text: str) -> _Clause | None:
    found = _CLAUSE.fullmatch(text)
    limit = version_key(found[2]) if found else None
    if found is None or limit is None or found[1] == "===" or "+" in found[2]:
        return None
    has_wildcard = bool(found[3])  # valid only after the numbers of a release
    if has_wildcard and not (found[1] in ("==", "!=") and _is_final(limit)):
        return None
    if found[1] == "~=" and "." not in found[2]:
        return None
    return _Clause(found[1], found[2], has_wildcard, limit)


def _clause_matches(key: Key, clause: _Clause) -> bool:
    operator, bound, has_wildcard, limit = clause
    if has_wildcard:
        return _has_prefix(key, bound) == (operator == "==")
    if operator == "~=":
        release = re.match(r"v?(\d+(?:\.\d+)*)", bound)
        return key >= limit and release is not None and _has_prefix(key, release[1].rpartition(".")[0])
    if key[0] == limit[0] and _is_final(limit):  # "<1.0" excludes 1.0rc1, and ">1.0" excludes 1.0.post1
        if operator == "<" and _is_before_final(key):
            return False
        if operator == ">" and key[2] >= 0:
            return False
    return bool(_OPERATORS[operator](key, limit))


def _is_final(key: Key) -> bool:
    return key[1:] == (_FINAL, -1, _NO_DEV)


def _is_before_final(key: Key) -> bool:
    return key[1] != _FINAL or (key[3] != _NO_DEV and key[2] < 0)


def _has_prefix(key: Key, prefix: str) -> bool:
    wanted = [int(part) for part in re.findall(r"\d+", prefix)]
    release = list(key[0]) + [0] * (len(wanted) - len(key[0]))
    return release[: len(wanted)] == wanted


def _satisfies_with_packaging(version: str, specifier: str) -> bool | None:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion

    try:
        return SpecifierSet(specifier).contains(version, prereleases=True)
    except (InvalidSpecifier, InvalidVersion, ValueError):
        return None
