"""What was read, made harmless for a terminal and for a program that prints it.

Control characters move the cursor, set the title or write to the clipboard; bidirectional marks change the order in
which a text is shown. Every output passes through here: text loses them, JSON has them as escapes.
"""

from __future__ import annotations

# C0 without tab and newline, DEL and C1, bidirectional marks, line and paragraph separators, invisible tags.
UNSAFE = (
    *range(9), *range(11, 32), *range(127, 160), 0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F),
    *range(0x2066, 0x206A), 0xFEFF, *range(0xE0000, 0xE0080),
)  # fmt: skip
REMOVED = dict.fromkeys(UNSAFE)


def printable(text: str) -> str:
    """The text without characters that act on a terminal. Newlines and tabs are kept."""
    return text if text.isascii() and text.isprintable() else text.translate(REMOVED)


def printable_json(text: str) -> str:
    """JSON with such characters as escapes; JSON itself requires that only below U+0020."""
    return text if text.isascii() and "\x7f" not in text else text.translate(ESCAPED)


def _escape(number: int) -> str:
    if number < 0x10000:
        return f"\\u{number:04x}"
    high, low = divmod(number - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


ESCAPED = {number: _escape(number) for number in UNSAFE if number >= 127}
