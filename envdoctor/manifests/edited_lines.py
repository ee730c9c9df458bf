"""Lines of a text that corrections replace, delete, and add to. Their numbers stay those of the original."""

from __future__ import annotations

import re
from collections.abc import Callable

from envdoctor.core.patterns import lazy_pattern

_SCRIPTS = frozenset({"script", "notebook", "workflow", "Apptainer"})
_CELL_LINE = lazy_pattern(r"(\s*)\"(.*?)(?:\\n)?\"(,?)\s*")
_FENCE = lazy_pattern(r"\s*(?:```|~~~)\s*\{?\.?(\w*)")
_PROMPT = lazy_pattern(r"\s*(?:(?:[$>!%]|\(\w+\)\s*\$)\s*)?")


class EditedLines:
    """The lines of a text. What is added stands above a line, so that the numbers of the lines remain."""

    def __init__(self, text: str, kind: str, torch: str = "torch") -> None:
        self.torch = torch  # the requirement of the torch that the text installs
        self._kind = kind
        self._original = text.split("\n")
        self._lines: list[str | None] = list(self._original)
        self._above: dict[int, list[str]] = {}
        self._below: dict[int, list[str]] = {}

    @property
    def text(self) -> str:
        """The edited text."""
        lines: list[str] = []
        for number, line in enumerate(self._lines, 1):
            lines += [*self._above.get(number, ()), *([] if line is None else [line]), *self._below.get(number, ())]
        return "\n".join(lines)

    def kind_at(self, number: int) -> str:
        """The kind of the text, or of the block of a guide, that a line is in."""
        if self._kind != "guide":
            return self._kind
        fences = [found for each in self._original[:number] if (found := _FENCE.match(each))]
        if len(fences) % 2:
            return "Dockerfile" if fences[-1][1].lower() in ("dockerfile", "docker") else "script"
        return "script" if re.match(r"\s{3,}\S", self.original(number)) else "guide"

    def original(self, number: int) -> str:
        """A line of the original; empty outside of it."""
        return self._original[number - 1] if 0 < number <= len(self._original) else ""

    def of(self, number: int) -> str:
        """A line as it is now; empty outside of the text."""
        return (self._lines[number - 1] or "") if 0 < number <= len(self._lines) else ""

    def set(self, number: int, line: str | None) -> bool:
        """Replace a line; whether it changed."""
        if not 0 < number <= len(self._lines) or self._lines[number - 1] == line:
            return False
        self._lines[number - 1] = line
        return True

    def replace(self, number: int, pattern: str, new: str | Callable[[re.Match[str]], str]) -> bool:
        """Replace what matches a pattern in a line; whether something did."""
        return self.set(number, re.sub(pattern, new, self.of(number)))

    def replace_text(self, number: int, old: str, new: str) -> bool:
        """Replace a text of a line, which a longer word does not contain, by another one that is not empty."""
        pattern = rf"(?<![\w.-]){re.escape(old)}(?![\w-])"
        return bool(old and new) and self.replace(number, pattern, lambda _: new)

    def delete(self, number: int) -> bool:
        """Delete a line."""
        return self.set(number, None)

    def remove_carriage_returns(self) -> bool:
        """End each line with LF alone."""
        before = self.text
        self._lines = [line and line.replace("\r", "") for line in self._lines]
        return self.text != before

    def statement(self, number: int) -> list[int]:
        """The lines of the command, or the instruction of a Dockerfile, that a line belongs to."""
        first = number
        while first > 1 and self._is_continued(first - 1):
            first -= 1
        last = number
        while last < len(self._original) and self._is_continued(last):
            last += 1
        return list(range(first, last + 1))

    def _is_continued(self, number: int) -> bool:
        """Whether the next line continues a command. Docker leaves comments and empty lines between them out."""
        line = self.original(number).strip()
        if self._kind == "notebook" and (cell := _CELL_LINE.fullmatch(self.original(number))):
            line = cell[2].replace("\\\\", "\\").strip()
        if (not line or line.startswith("#")) and self.kind_at(number) == "Dockerfile":
            return number > 1 and self._is_continued(number - 1)
        return line.endswith("\\")

    def insert_above(self, number: int, command: str) -> bool:
        """Add a command above that of a line, in the notation of its text: a step, a line, or a line of a cell."""
        first = self.statement(number)[0]
        added = self._written(first, command)
        return bool(added) and self._insert(self._above, first, added)

    def insert_instruction(self, number: int, instruction: str, *, below: bool = False) -> bool:
        """Add an instruction above, or below, that of a line of a Dockerfile."""
        lines = self.statement(number)
        if self.kind_at(number) != "Dockerfile" or not re.match(r"\s*[A-Z]+\s+\S", self.original(lines[0])):
            return False
        return self._insert(self._below if below else self._above, lines[-1] if below else lines[0], instruction)

    def _insert(self, where: dict[int, list[str]], number: int, text: str) -> bool:
        added = where.setdefault(number, [])
        if text in added:
            return False
        added.append(text)
        return True

    def _written(self, number: int, command: str) -> str:
        """A command as a line next to another one; empty where the text has no place for one."""
        line, kind = self.original(number), self.kind_at(number)
        if kind == "Dockerfile":
            return f"RUN {command}" if re.match(r"\s*RUN\s", line) else ""
        if kind == "notebook":
            cell = _CELL_LINE.fullmatch(line)
            escaped = command.replace("\\", "\\\\").replace('"', '\\"')
            notation = _notation_of(cell[2]) if cell else ""
            if not notation.strip():  # next to code of Python
                notation += "%" if command.startswith("pip ") else "!"
            return f'{cell[1]}"{notation}{escaped}\\n",' if cell else ""
        is_key = kind == "workflow" and re.match(r"\s*(?:-\s+)?[\w-]+:(?:\s|$)", line)
        return f"{_notation_of(line)}{command}" if kind in _SCRIPTS and not is_key else ""

    def image_of(self, number: int) -> int:
        """The line of the FROM of the stage that a line of a Dockerfile belongs to; 0 without one."""
        found = (row for row in range(number, 0, -1) if re.match(r"\s*FROM\s", self.original(row), re.IGNORECASE))
        return next(found, 0)


def _notation_of(line: str) -> str:
    """What stands before the command of a line: its indentation, a prompt, or the sign of a cell."""
    found = _PROMPT.match(line)
    return (found[0] if found else "").replace("%", "!")


def named(pattern: str, text: str) -> str:
    """The first group of a pattern in a text; empty if the text does not have it."""
    found = re.search(pattern, text)
    return found[1] if found else ""
