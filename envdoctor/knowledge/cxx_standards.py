"""The C++ standard that the headers of torch require, and that of a setup.py: cxx_standards.toml."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.tables import TableRow, load_table
from envdoctor.knowledge.versions import public_part, satisfies

_TABLE = "cxx_standards.toml"
_CPP_EXTENSION = lazy_pattern(r"torch\.utils(?:\.| import )cpp_extension")
_FLAG = lazy_pattern(r"-std=(?:c|gnu)\+\+(\d\w)")
_YEARS = {"1y": 14, "1z": 17, "2a": 20, "2b": 23}
# The headers of the stable ABI do not require the standard of the others. Measured on 2026-11-29: torch 2.14.0.
_OTHER_HEADERS = lazy_pattern(r"TORCH_TARGET_VERSION|TORCH_STABLE_ONLY")
_COMPUTED = lazy_pattern(r"std[=:]c\+\+(?:[{%]|[\"'] *\+)")
_OTHER_TARGET = lazy_pattern(
    r"darwin|mac|platform|win32|windows|os\.name|\bhip\b|rocm|\bnpu\b|\bmlu\b|musa|\bxpu\b|sycl", re.IGNORECASE
)
_OF_ENVIRONMENT = lazy_pattern(r"\bos\.(?:environ|getenv)\b|\bgetenv\(")
_VALUE = r"(?:os\.)?(?:getenv|environ\.get)\([^()]*"
_BY_DEFAULT = lazy_pattern(rf"{_VALUE}, '0'\) == '0'|not (?:int\()?{_VALUE}\)+")
_NEGATION = lazy_pattern(r"\bnot\b|!=|linux", re.IGNORECASE)


class HeaderStandard(TableRow, frozen=True, kw_only=True):
    """The standard from this release of torch on."""

    torch: str
    standard: int


class BuildStandard(TableRow, frozen=True, kw_only=True):
    """The standard with which releases of a package are compiled, and their main branch."""

    package: str
    versions: str
    main: bool = False
    standard: int


class NamedStandard(NamedTuple):
    """The newest standard in the flags of a setup.py, with its line."""

    standard: int
    line: int


def header_standards() -> tuple[HeaderStandard, ...]:
    """The standards that the headers of torch require, the newest first."""
    return load_table(_TABLE, tuple[HeaderStandard, ...], "header")


def rejecting_headers(standard: int, torch: str) -> HeaderStandard | None:
    """The row of the headers that reject a standard, if this release of torch has them."""
    rows = (each for each in header_standards() if satisfies(public_part(torch), f">={each.torch}"))
    newest = next(rows, None)
    return newest if newest and newest.standard > standard else None


def standard_of_build(package: str, version: str) -> BuildStandard | None:
    """The row of a release, or of the main branch if the version is empty; None without one."""
    rows = (row for row in load_table(_TABLE, tuple[BuildStandard, ...], "build") if row.package == package)
    return next((row for row in rows if (satisfies(version, row.versions) if version else row.main)), None)


def torch_that_compiles(standard: int) -> str:
    """The range of torch releases whose headers accept a standard, without a lower bound; empty for all."""
    rejecting = [each for each in header_standards() if each.standard > standard]
    return f"<{rejecting[-1].torch}" if standard and rejecting else ""


def standard_of_setup(text: str) -> NamedStandard | None:
    """The standard that a setup.py gives to extensions of torch on Linux; None if it names none, or computes it."""
    if not _CPP_EXTENSION.search(text) or _OTHER_HEADERS.search(text) or _COMPUTED.search(text):
        return None
    try:
        flags = [*_flags(ast.parse(text))]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return max(flags, key=lambda each: each.standard, default=None)


def _flags(tree: ast.AST) -> Iterator[NamedStandard]:
    """The flags outside of branches for another system or accelerator."""
    if isinstance(tree, ast.Constant) and isinstance(tree.value, str):
        for found in _FLAG.finditer(tree.value):
            yield NamedStandard(_YEARS.get(found[1]) or int(found[1]), tree.lineno)
    for node in _branches(tree) if isinstance(tree, ast.If | ast.IfExp) else ast.iter_child_nodes(tree):
        if isinstance(tree, ast.FunctionDef) and _returns_by_default(node):
            return
        yield from _flags(node)


def _returns_by_default(node: ast.AST) -> bool:
    """Whether a function ends here unless a variable requests its build: `if os.getenv("WITH_OPS", "0") == "0"`."""
    if not isinstance(node, ast.If) or not isinstance(node.body[-1], ast.Return):
        return False
    return _BY_DEFAULT.fullmatch(ast.unparse(node.test)) is not None


def _branches(node: ast.If | ast.IfExp) -> list[ast.AST]:
    """The branches of a condition that a build for CUDA on Linux can take."""
    body, other = (each if isinstance(each, list) else [each] for each in (node.body, node.orelse))
    condition = ast.unparse(node.test)
    if _OF_ENVIRONMENT.search(condition) and not _NEGATION.search(condition):
        return [*other]  # a build that a variable requests
    if not _OTHER_TARGET.search(condition):
        return [*body, *other]
    return [*(body if _NEGATION.search(condition) else other)]
