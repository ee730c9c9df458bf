"""Converts reStructuredText to Markdown line by line, so that a guide in it is read as one in Markdown.

docutils reports directives of Sphinx as errors and drops their content. A guide needs its headings, code blocks,
literal blocks, tabs and inline code only. The number of each line stays the same.
"""

from __future__ import annotations

import re

from envdoctor.core.patterns import lazy_pattern

_UNDERLINE = lazy_pattern(r"([=\-`:.'\"~^_*+#<>])\1{2,}\s*")
_CODE = lazy_pattern(
    r"(\s*)(?:[-*+]\s+|(?:\d+|#)[.)]\s+)?\.\.\s+(?:code-block|code|sourcecode|highlight-block|prompt|parsed-literal|"
    r"literalinclude|ipython)::\s*(\S*).*"
)
_BLOCK = lazy_pattern(r"^\s*\.\.\s+(?:code-block|code|sourcecode|prompt)::", re.MULTILINE)
_DIRECTIVE = lazy_pattern(r"\s*\.\.\s+[\w:-]+::")
_TARGET = lazy_pattern(r"\s*\.\.\s+(?:_[^:]+:|\|.+?\|\s+\w+::|\[[^\]]+\])")
_COMMENT = lazy_pattern(r"(\s*)\.\.(?:\s+.*)?")
_OPTION = lazy_pattern(r"\s*:[\w-]+:(?:\s+(.*))?")
_LITERAL = lazy_pattern(r"(.*?)(:?)::\s*")
_ROLE = lazy_pattern(r":[\w:+-]+:(?=`)")
_ITEM = lazy_pattern(r"(\s*)#\.(\s)")


def is_restructured_text(text: str) -> bool:
    """Whether a text has a code block of reStructuredText, and none of Markdown."""
    return bool(_BLOCK.search(text)) and not re.search(r"^\s*(?:```|~~~)", text, re.MULTILINE)


def to_markdown(text: str) -> str:
    """The text in Markdown, with the same number of lines."""
    return "\n".join(_Converter(text.split("\n")).lines())


class _Converter:
    """Converts lines in their order. `row` is the index of the next one."""

    def __init__(self, source: list[str]) -> None:
        self.source = source
        self.row = 0
        self.result: list[str] = []
        self.levels: list[str] = []  # characters of the underlines, the highest heading first
        self.open_fence = ""  # of code without a blank line below: the next line closes it

    def lines(self) -> list[str]:
        """The converted lines."""
        while self.row < len(self.source):
            self._convert()
        return self.result

    def _convert(self) -> None:
        line = self.source[self.row]
        if self._heading(line):
            return
        if code := _CODE.fullmatch(line):
            self._code(len(code[1].expandtabs()), code[2])
        elif _TARGET.match(line):
            self._emit("")
        elif _DIRECTIVE.match(line):
            self._emit(line)  # tabs have a reader of their own, and the text of a note is part of the guide
        elif comment := _COMMENT.fullmatch(line):
            self._skip(len(comment[1]))
        elif literal := _LITERAL.fullmatch(line):
            self._emit_text(f"{literal[1]}:" if literal[1].strip() else "")
            self._literal(_indent(line))
        else:
            self._emit_text(line)

    def _emit(self, line: str) -> None:
        self.result.append(self.open_fence or line)
        self.open_fence = ""
        self.row += 1

    def _emit_text(self, line: str) -> None:
        """A line of text: ``code`` and `roles` have one backquote in Markdown."""
        text = _ITEM.sub(r"\g<1>1.\2", _ROLE.sub("", line.replace("``", "`")))
        # A rule of one character would make a heading of the line above.
        self._emit("" if _UNDERLINE.fullmatch(text.strip() or "x") else text)

    def _heading(self, line: str) -> bool:
        """A title with an underline, with or without an overline."""
        following = self.source[self.row + 1 : self.row + 3]
        if _is_underline(line) and len(following) == 2 and following[1].rstrip() == line.rstrip():
            self._emit("")
            self._title(following[0].strip(), f"{line[0]}{line[0]}")
            self._emit("")
            return True
        is_title = bool(line.strip()) and not line[0].isspace() and not _is_underline(line)
        if is_title and following and _is_underline(following[0]) and len(following[0].rstrip()) >= len(line) - 3:
            self._title(line.strip(), following[0][0])
            self._emit("")
            return True
        return False

    def _title(self, title: str, character: str) -> None:
        if character not in self.levels:
            self.levels.append(character)
        self._emit(f"{'#' * min(self.levels.index(character) + 1, 6)} {title.replace('``', '`')}")

    def _code(self, indent: int, language: str) -> None:
        """A directive with its options, then its code. The caption can be the name of a file."""
        self._emit("")
        caption = ""
        while self.row < len(self.source) and (option := _OPTION.fullmatch(self.source[self.row])):
            is_name = re.match(r"\s*:(?:caption|name):", self.source[self.row])
            caption = option[1] or "" if is_name else caption
            self._emit("")
        self._literal(indent, f"{language} {caption}".strip())

    def _literal(self, indent: int, info: str = "") -> None:
        """The indented lines below, as a fenced block whose fences take the place of blank lines."""
        start = self.row
        while start < len(self.source) and not self.source[start].strip():
            start += 1
        end = start
        while end < len(self.source) and (not self.source[end].strip() or _indent(self.source[end]) > indent):
            end += 1
        while end > start and not self.source[end - 1].strip():
            end -= 1
        if start == end:
            return
        margin = min(_indent(each) for each in self.source[start:end] if each.strip())
        blanks, code = start - self.row, self.source[start:end]
        self.result += [""] * (blanks - 1)
        fence = f"{' ' * indent}````"
        if blanks:
            self.result.append(f"{fence}{info}")
        else:  # the line of the directive itself
            self.result[-1] = f"{fence}{info}"
        self.result += [f"{' ' * indent}{each.expandtabs()[margin:]}" for each in code]
        self.row = end
        self.open_fence = fence

    def _skip(self, indent: int) -> None:
        """A comment with its indented lines."""
        self._emit("")
        while self.row < len(self.source) and (
            not self.source[self.row].strip() or _indent(self.source[self.row]) > indent
        ):
            if not self.source[self.row].strip() and _next_indent(self.source, self.row) <= indent:
                return
            self._emit("")


def _is_underline(line: str) -> bool:
    return bool(_UNDERLINE.fullmatch(line))


def _indent(line: str) -> int:
    line = line.expandtabs()
    return len(line) - len(line.lstrip())


def _next_indent(lines: list[str], row: int) -> int:
    return next((_indent(line) for line in lines[row:] if line.strip()), 0)
