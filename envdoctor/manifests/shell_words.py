"""Expands the words of a shell command: quotes, variables, arrays. Unknown parts stay as they are written."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.shell_records import ShellState, original_text

if TYPE_CHECKING:
    from tree_sitter import Node

_ESCAPE = lazy_pattern(r"\\(.)", re.DOTALL)
_ESCAPE_IN_QUOTES = lazy_pattern(r"\\([$`\"\\\n])")
_ARCHITECTURE = lazy_pattern(r"(?:\$\(|`)\s*(?:uname\s+-[mpi]|arch)\s*(?:\)|`)")
_SUBSTITUTION = lazy_pattern(r"\$\(|`")
_MAX_WORD_LENGTH = 20_000
_MAX_FIELDS = 2000
_MAX_DEPTH = 40


def node_text(node: Node) -> str:
    """The text of a node."""
    return (node.text or b"").decode("utf-8", "replace")


class WordReader:
    """Expands words with the variables of a state."""

    def __init__(self, state: ShellState) -> None:
        self.state = state

    def fields(self, node: Node) -> list[str]:
        """The words that a word expands to: several for an array or for an unquoted variable with blanks."""
        return [original_text(field)[:_MAX_WORD_LENGTH] for field in self._fields(node, 0)[:_MAX_FIELDS]]

    def value(self, node: Node | None) -> str:
        """The value of an assignment: never split into several words."""
        return " ".join(self.fields(node)) if node is not None else ""

    def _fields(self, node: Node, depth: int) -> list[str]:
        read = self._readers.get(node.type)
        return read(self, node, depth + 1) if read and depth < _MAX_DEPTH else [node_text(node)]

    def _word(self, node: Node, depth: int) -> list[str]:  # noqa: ARG002
        return [_ESCAPE.sub(lambda match: match[1].strip("\n"), node_text(node))]

    def _raw_string(self, node: Node, depth: int) -> list[str]:  # noqa: ARG002
        return [node_text(node).removeprefix("$").strip("'")]

    def _substitution(self, node: Node, depth: int) -> list[str]:  # noqa: ARG002
        """The output of a command is unknown, except that of `uname -m`."""
        text = node_text(node)
        return [self.state.platform if self.state.platform and _ARCHITECTURE.fullmatch(text) else text]

    def _concatenation(self, node: Node, depth: int) -> list[str]:
        return _join_fields([self._fields(child, depth) for child in node.children])

    def _string(self, node: Node, depth: int) -> list[str]:
        """A string in double quotes. Blanks between its parts are not nodes of the grammar."""
        source, position = node.text or b"", node.start_byte + 1
        parts: list[list[str]] = []
        for child in node.children[1:]:
            parts.append([source[position - node.start_byte : child.start_byte - node.start_byte].decode()])
            position = child.end_byte
            if child.type in ("simple_expansion", "expansion"):
                text = node_text(child)
                # In `"$A $B"` the node of `$B` has the blank before it.
                parts.append([text[: len(text) - len(text.lstrip())]])
                parts.append(self._expansion_fields(child, depth, quoted=True))
            elif child.type == "string_content":
                parts.append([_ESCAPE_IN_QUOTES.sub(lambda m: m[1].strip("\n"), node_text(child))])
            elif child.type != '"':
                parts.append(self._fields(child, depth))
        return _join_fields(parts) or [""]

    def _expansion(self, node: Node, depth: int) -> list[str]:
        return self._expansion_fields(node, depth, quoted=False)

    def _expansion_fields(self, node: Node, depth: int, *, quoted: bool) -> list[str]:
        """The words of `$X` or `${X:-1}`; the expansion as written if its value is unknown."""
        values = self._lookup(node, depth)
        if values is None:
            return [node_text(node).lstrip()]
        if quoted:
            return values if _is_list(node) else [" ".join(values)]
        # The arguments of a command whose output is unknown are no words of their own.
        return [part for value in values for part in ([value] if _SUBSTITUTION.search(value) else value.split())]

    def _lookup(self, node: Node, depth: int) -> list[str] | None:
        """The value, or the elements of an array; None if it is unknown."""
        name = next((child for child in node.children if child.type in _NAMES), None)
        operator = next((child.type for child in node.children if child.type in _OPERATORS), "")
        if name is None or _has_other_operator(node):
            return None
        known = self._elements(name) if name.type == "subscript" else self._scalar(node_text(name))
        has_value = bool(known and ("".join(known) or ":" not in operator))
        if operator in (":+", "+"):
            return None if known is None else self._operand(node, depth) if has_value else []
        if operator and not has_value:
            return self._operand(node, depth)
        return known

    def _operand(self, node: Node, depth: int) -> list[str]:
        """The words after the operator of `${X:-default}`."""
        index = next(i for i, child in enumerate(node.children) if child.type in _OPERATORS)
        return _join_fields([self._fields(child, depth) for child in node.children[index + 1 : -1]])

    def _scalar(self, name: str) -> list[str] | None:
        state = self.state
        if name in ("@", "*"):
            return list(state.arguments) if state.arguments else None
        if name.isdigit():
            index = int(name[:4])
            return [state.arguments[index - 1]] if 1 <= index <= len(state.arguments) else None
        if name in state.variables:
            return [state.variables[name]]
        return state.arrays[name][:1] if name in state.arrays else None

    def _elements(self, subscript: Node) -> list[str] | None:
        name, index = (node_text(child) for child in subscript.named_children[:2])
        elements = self.state.arrays.get(name)
        if elements is None or index in ("@", "*"):
            return elements
        return elements[int(index) : int(index) + 1] if re.fullmatch(r"\d{1,4}", index) else None

    _readers: ClassVar[dict[str, Callable[[WordReader, Node, int], list[str]]]] = {
        "word": _word,
        "number": _word,
        "raw_string": _raw_string,
        "ansi_c_string": _raw_string,
        "string": _string,
        "translated_string": _concatenation,
        "concatenation": _concatenation,
        "command_name": _concatenation,
        "simple_expansion": _expansion,
        "expansion": _expansion,
        "command_substitution": _substitution,
    }


def _is_list(node: Node) -> bool:
    """Whether each element is a word of its own also in quotes: `"${A[@]}"`, `"$@"`."""
    return node_text(node).endswith(("[@]}", "$@", "{@}"))


def _has_other_operator(node: Node) -> bool:
    """Whether the expansion changes its value: `${X%.*}`, `${X/a/b}`, `${#X}`, `${!X}`."""
    return any(
        not child.is_named and child.type not in _OPERATORS and child.type not in ("$", "${", "}")
        for child in node.children
    )


def _join_fields(parts: list[list[str]]) -> list[str]:
    """The words of adjacent parts: `a"$X"b` is one word unless a part has several."""
    joined: list[str] = []
    for fields in parts:
        if fields and joined:
            joined[-1] += fields[0]
            joined += fields[1:]
        else:
            joined += fields
    return joined


_NAMES = ("variable_name", "special_variable_name", "subscript")
_OPERATORS = (":-", "-", ":=", "=", ":+", "+")
