"""YAML with line numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from yaml import Node


class YamlNode:
    """A value of a YAML text. A missing value is an empty node, so that lookups need no tests."""

    def __init__(self, node: Node | None) -> None:
        self.node = node

    @property
    def line(self) -> int:
        """The line on which the value starts."""
        return self.node.start_mark.line + 1 if self.node is not None else 0

    @property
    def first_line(self) -> int:
        """The line of the first line of a text: a block text starts below its `|`."""
        return self.line + (getattr(self.node, "style", None) in ("|", ">"))

    @property
    def text(self) -> str:
        """The text of a scalar; empty for other nodes."""
        value = getattr(self.node, "value", "")
        return value if isinstance(value, str) else ""

    def get(self, key: str) -> YamlNode:
        """The value of a key of a mapping."""
        return next((value for name, value in self.items() if name == key), YamlNode(None))

    def items(self) -> Iterator[tuple[str, YamlNode]]:
        """The keys and values of a mapping."""
        if self.node is not None and getattr(self.node, "id", "") == "mapping":
            yield from ((key.value, YamlNode(value)) for key, value in self.node.value if key.id == "scalar")

    def values(self) -> list[YamlNode]:
        """The values of a sequence."""
        is_sequence = getattr(self.node, "id", "") == "sequence"
        return [YamlNode(value) for value in self.node.value] if is_sequence and self.node is not None else []


def parse_yaml(text: str) -> YamlNode | None:
    """The root node of a YAML text; None if it is not valid."""
    import yaml

    try:
        return YamlNode(yaml.compose(text, Loader=_loader()))
    except (yaml.YAMLError, RecursionError, ValueError):
        return None


def load_yaml(text: str) -> Any:
    """The plain values of a YAML text; None if it is not valid."""
    import yaml

    try:
        return yaml.load(text, Loader=_loader())  # noqa: S506  a safe loader
    except (yaml.YAMLError, RecursionError, ValueError):
        return None


def yaml_error(text: str) -> tuple[int, str]:
    """The line and the reason why a text is not valid YAML; 0 for a valid one."""
    import yaml

    try:
        yaml.compose(text, Loader=_loader())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        return (mark.line + 1 if mark else 1), error.problem or "syntax error"
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        return 1, str(error).partition("\n")[0][:120] or type(error).__name__
    return 0, ""


def _loader() -> Any:
    """The safe loader of libyaml: ten times as fast as the one in Python."""
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)
