"""Quoting of values for shell, YAML, TOML and Dockerfiles."""

from __future__ import annotations

import shlex


def one_line(text: str) -> str:
    """Text as one line for a comment, without control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def quote(text: str) -> str:
    r"""A double-quoted string of TOML and of YAML alike: `a "b"` becomes `"a \"b\""`."""
    return '"' + "".join(_escaped(character) for character in text) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"


def docker_value(text: str) -> str:
    r"""A value of ENV: `a "$b"` becomes `"a \"\$b\""`, since a Dockerfile replaces variables between quotes."""
    return '"' + "".join(f"\\{c}" if c in '"\\$' else c for c in text) + '"'


def export_line(name: str, value: str) -> str:
    """A variable as a line of shell."""
    return f"export {name}={shlex.quote(value)}"
