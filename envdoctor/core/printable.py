"""What was read, made harmless for a terminal and for a program that prints it.

Control characters move the cursor, set the title or write to the clipboard; bidirectional marks change the order in
which a text is shown; invisible characters hide a word from a search, and a text from the eye. Every output passes
through here: text loses them, JSON has them as escapes.
"""

from __future__ import annotations

from typing import Any

from envdoctor.core.patterns import lazy_pattern

# What a terminal does not show: Default_Ignorable_Code_Point of Unicode 16.0 (DerivedCoreProperties.txt) with the
# assigned part of plane 14, and interlinear annotations. Soft hyphen, zero-width spaces and joiners, bidirectional
# marks, variation selectors, tags.
INVISIBLE_RANGES = (
    (0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F),
    (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0), (0xFFF0, 0xFFFB), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE01EF),
)  # fmt: skip
INVISIBLE = "".join(f"{chr(first)}-{chr(last)}" for first, last in INVISIBLE_RANGES)  # of a character class
_INVISIBLE = lazy_pattern(f"[{INVISIBLE}]+")
# C0 without tab and newline, DEL and C1, line and paragraph separators, and what is invisible.
UNSAFE = (
    *range(9), *range(11, 32), *range(127, 160), 0x2028, 0x2029,
    *(number for first, last in INVISIBLE_RANGES for number in range(first, last + 1)),
)  # fmt: skip
REMOVED = dict.fromkeys(UNSAFE)


def printable(text: str) -> str:
    """The text without characters that act on a terminal. Newlines and tabs are kept."""
    return text if text.isascii() and text.isprintable() else text.translate(REMOVED)


def without_invisible(text: str) -> str:
    """The text without invisible characters, as patterns expect it: a zero-width space hides no word from them."""
    return text if text.isascii() else _INVISIBLE.sub("", text)


def single_lines(data: Any) -> Any:
    """Dicts, lists and texts of a stranger, each text as one line: a second one could be taken for a line of ours."""
    if isinstance(data, str):
        return " ".join(data.splitlines())
    if isinstance(data, dict):
        return {single_lines(name): single_lines(value) for name, value in data.items()}
    return [single_lines(value) for value in data] if isinstance(data, list) else data


def printable_json(text: str) -> str:
    """JSON with such characters as escapes; JSON itself requires that only below U+0020."""
    return text if text.isascii() and "\x7f" not in text else text.translate(ESCAPED)


def _escape(number: int) -> str:
    if number < 0x10000:
        return f"\\u{number:04x}"
    high, low = divmod(number - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


ESCAPED = {number: _escape(number) for number in UNSAFE if number >= 127}
