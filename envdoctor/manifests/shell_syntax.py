"""Syntax of bash that the sh of Debian and Ubuntu, dash, does not have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.markdown import Line

# What dash 0.5.12 refuses or reads as something else: each form was run with it on 2026-11-26.
_FORMS = (
    (lazy_pattern(r"(?:^|[;&|({]|\b(?:then|do|else))\s*source\s+[\w./~$\"'-]"), "source"),
    (lazy_pattern(r"(?:^|[;&|({!]|\b(?:if|elif|while|until|then|do|else))\s*\[\[\s"), "[["),
    (lazy_pattern(r"<<<"), "<<<"),
    (lazy_pattern(r"(?:^|[;&|({]|\b(?:then|do|else|export|local))\s*\w+\+?=\("), "an array"),
    (lazy_pattern(r"\bset\s+(?:-\w+\s+)*-\w*o\s+pipefail\b"), "set -o pipefail"),
    (lazy_pattern(r"(?:^|[;&|{])\s*function\s+\w+"), "function"),
    (lazy_pattern(r"\$\{\w+(?:\[|//?[^}]|:\d|\^|,|@)"), "${NAME/OLD/NEW}"),
    (lazy_pattern(r"(?:^|[;&|({])\s*(?:pushd|popd|shopt|declare|typeset)\s"), "pushd, shopt or declare"),
    (lazy_pattern(r"\bfor\s*\(\("), "for (("),
    (lazy_pattern(r"(?<![<\w$])[<>]\((?!\?)"), "<(command)"),
)
_QUOTED = lazy_pattern(r"'[^'\n]*'|\"(?:[^\"\\\n]|\\.)*\"")
_COMMENT = lazy_pattern(r"(?:^|\s)#.*")
_HERE_DOCUMENT = lazy_pattern(r"(?<!<)<<-?\s*[\"'\\]?(\w+)")


def bash_syntax(lines: Iterable[Line]) -> tuple[int, str] | None:
    """The first line with syntax of bash, and what it is; None without one.

    Quoted text and here-documents are not examined.
    """
    for number, text in _code(lines):
        code = _COMMENT.sub("", _QUOTED.sub("''", text))
        for pattern, name in _FORMS:
            if pattern.search(code):
                return number, name
    return None


def _code(lines: Iterable[Line]) -> Iterator[Line]:
    """The lines without those of here-documents."""
    end = ""
    for number, text in lines:
        if end:
            end = "" if text.strip() == end else end
            continue
        yield number, text
        match = _HERE_DOCUMENT.search(_COMMENT.sub("", text))
        end = match[1] if match else ""
