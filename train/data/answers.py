r"""Read the answer out of a completion or a data cell: an action `[2]`, or a number. Standard library only.

`strip_thinking` removes reasoning first. The final text is:
- for a harmony completion, the text after the last `<|channel|>final<|message|>`, or after the last `assistantfinal`
  if it was decoded without special tokens. A completion without a final channel has no answer.
- for other reasoning models, the text after the last `</think>`. An unclosed `<think>` has no answer.
- otherwise the whole text.
"""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from typing import Any

ACTION = re.compile(r"\[([0-3])\]")
FINAL_CHANNEL = re.compile(r"<\|channel\|>\s*final\b[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>")
END_OF_MESSAGE = re.compile(r"<\|(?:return|end|start|call|channel)\|>")
# "analysisWe need ...assistantfinal[2]": a harmony completion decoded without its special tokens.
BARE_ANALYSIS = re.compile(r"(?:analysis|commentary)(?=[^\sa-z:,.;])")
BRACKETED_NUMBER = re.compile(r"\[([0-9]+)\]")
MAX_NUMBER_LENGTH = 400  # a model may repeat a digit until the length limit; Python converts at most 4,300 digits

# 1,234.50 or 12 or .5. A comma must be followed by three digits, so that "1, 2" is two numbers.
_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+"
# A minus sign directly after a word or bracket is a range or a subtraction (10-12), not a sign.
NUMBER = re.compile(
    rf"(?:(?<![\w)\]}}])(?P<minus>[-\u2212]))?[$\u20ac\u00a3]?(?:(?<=[$\u20ac\u00a3])(?P<inner_minus>-))?"
    rf"(?P<numerator>{_DIGITS})(?:/(?P<denominator>{_DIGITS}))?"
)
LATEX_FRACTION = re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")


def strip_thinking(text: str) -> tuple[str | None, bool]:
    """Return (the text after the reasoning, or None if the reasoning never ended; whether there was reasoning)."""
    if "<|channel|>" in text:
        openings = list(FINAL_CHANNEL.finditer(text))
        if not openings:
            return None, True
        return END_OF_MESSAGE.split(text[openings[-1].end() :])[0], True
    if BARE_ANALYSIS.match(text):
        _, separator, final = text.rpartition("assistantfinal")
        return (final, True) if separator else (None, True)
    if text.startswith("final["):
        return text.removeprefix("final"), False
    if "</think>" in text:
        return text.rpartition("</think>")[2], True
    return (None, True) if "<think>" in text else (text, False)


def parse_action(completion: str) -> int | None:
    """Return 2 for `[2]`, and None for any text other than `[0]` to `[3]`."""
    match = ACTION.fullmatch(completion.strip())
    return int(match[1]) if match else None


def read_action(text: str) -> int | None:
    """Return the action, 0 to 3, that a completion chooses.

    The final text must be `[2]` alone, since the prompt requests exactly that. After reasoning, or in a final text of
    several lines, the last `[number]` of the last non-empty line also counts: "...\\nSo I take [2]." The result is
    None if that number is not an action, as in `[7]`.
    """
    final, has_thinking = strip_thinking(text)
    if final is None:
        return None
    action = parse_action(final)
    lines = [line for line in final.splitlines() if line.strip()]
    if action is not None or not lines or not (has_thinking or len(lines) > 1):
        return action
    numbers = BRACKETED_NUMBER.findall(lines[-1])
    return parse_action(f"[{numbers[-1]}]") if numbers else None


def read_number(text: str) -> Fraction | None:
    r"""Return the final number of a worked solution: after the last `####`, else in the last \boxed{}, else the last.

    Numbers compare by value: 1,234 = $1234 = 1234.00 = "1234 apples."; 3/4 = \frac{3}{4} = 0.75. The result is None
    if no number follows the last `####` or if \boxed{} contains none.
    """
    final, _ = strip_thinking(text)
    if final is None:
        return None
    if "####" in final:
        tail = final.rpartition("####")[2].strip()
        return _find_number(tail.splitlines()[0] if tail else "", first=True)
    boxed = _find_boxed(final)
    return _find_number(final, first=False) if boxed is None else _find_number(boxed, first=True)


def read_reference(cell: Any) -> Fraction | None:
    """Return the number in an answer column: a number, text with `#### NUMBER`, or text with a single number."""
    if isinstance(cell, bool) or cell is None:
        return None
    if isinstance(cell, (int, float, Decimal)):
        try:
            return Fraction(str(cell))
        except ValueError:  # NaN or Inf
            return None
    text = str(cell)
    if "####" in text:
        return read_number(text)
    matches = list(NUMBER.finditer(text))
    return _to_fraction(matches[0]) if len(matches) == 1 else None


def _find_boxed(text: str) -> str | None:
    r"""Return the content of the last \boxed{...} with nested braces; an unclosed one extends to the end."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    content, depth = text[start + len("\\boxed{") :], 1
    for position, character in enumerate(content):
        depth += (character == "{") - (character == "}")
        if not depth:
            return content[:position]
    return content


def _find_number(text: str, *, first: bool) -> Fraction | None:
    plain = text.replace("{,}", ",").replace("\\,", "").replace("\\!", "").replace("\\$", "$").replace("**", "")
    matches = list(NUMBER.finditer(LATEX_FRACTION.sub(r"\1/\2", plain)))
    return _to_fraction(matches[0 if first else -1]) if matches else None


def _to_fraction(match: re.Match[str]) -> Fraction | None:
    if len(match[0]) > MAX_NUMBER_LENGTH:
        return None
    numerator, denominator = (
        Fraction((match[name] or "1").replace(",", "")) for name in ("numerator", "denominator")
    )
    if not denominator:
        return None
    return (-1 if match["minus"] or match["inner_minus"] else 1) * numerator / denominator


def format_number(number: Fraction | None) -> str:
    """Format a number for a table: 42, 0.5 or 1/3; an empty string for None."""
    if number is None:
        return ""
    if number.denominator == 1:
        return str(number.numerator)
    decimal = f"{float(number):.10g}" if abs(number) < 10**9 else ""
    return decimal if decimal and Fraction(decimal) == number else str(number)
