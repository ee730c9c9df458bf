r"""The answer in what a model wrote: an action `[2]`, or a number. Pure functions, standard library only.

Thinking is put aside first (`read_final`): what counts is
- of a harmony completion, the text after the last `<|channel|>final<|message|>`; where the special tokens were left
  out while decoding, after the last `assistantfinal`. Analysis that never came to a final channel has no answer.
- after the last `</think>`. A `<think>` that was not closed has no answer.
- else the whole text.
"""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction
from typing import Any

from tasks.tes import parse_answer

FINAL_CHANNEL = re.compile(r"<\|channel\|>\s*final\b[^<]*(?:<\|constrain\|>[^<]*)?<\|message\|>")
END_OF_MESSAGE = re.compile(r"<\|(?:return|end|start|call|channel)\|>")
# "analysisWe need ...assistantfinal[2]": a harmony completion decoded without its special tokens.
BARE_ANALYSIS = re.compile(r"(?:analysis|commentary)(?=[^\sa-z:,.;])")
INDEX = re.compile(r"\[([0-9]+)\]")

# 1,234.50 or 12 or .5; groups of three after a comma, so that "1, 2" stays two numbers.
_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+"
# A minus belongs to the number unless something stands right before it: 10-12 is a range.
NUMBER = re.compile(
    rf"(?:(?<![\w)\]}}])(?P<minus>[-\u2212]))?[$\u20ac\u00a3]?(?:(?<=[$\u20ac\u00a3])(?P<inner>-))?"
    rf"(?P<number>{_DIGITS})(?:/(?P<under>{_DIGITS}))?"
)
LATEX_FRACTION = re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}")


def read_final(text: str) -> tuple[str | None, bool]:
    """(what stands after the thinking, or None where it never ended; whether there was thinking)."""
    if "<|channel|>" in text:
        openings = list(FINAL_CHANNEL.finditer(text))
        if not openings:
            return None, True
        return END_OF_MESSAGE.split(text[openings[-1].end() :])[0], True
    if BARE_ANALYSIS.match(text):
        _, found, final = text.rpartition("assistantfinal")
        return (final, True) if found else (None, True)
    if text.startswith("final["):
        return text.removeprefix("final"), False
    if "</think>" in text:
        return text.rpartition("</think>")[2], True
    return (None, True) if "<think>" in text else (text, False)


def read_action(text: str) -> int | None:
    """The action 0 to 3 that a text answers.

    `[2]` as the whole final part counts. So does, where a model thought or wrote several lines, the last `[number]`
    of the last line that is not empty: "...\\nSo I take [2]." In one line without thinking nothing may stand beside
    it: the prompt asks for `[2]` alone. A last `[7]` is no action, whatever stands before it.
    """
    final, thought = read_final(text)
    if final is None:
        return None
    action = parse_answer(final)
    lines = [line for line in final.splitlines() if line.strip()]
    if action is not None or not lines or not (thought or len(lines) > 1):
        return action
    found = INDEX.findall(lines[-1])
    return parse_answer(f"[{found[-1]}]") if found else None


def read_number(text: str) -> Fraction | None:
    r"""The final number of a worked answer: after the last `####`, else in the last \boxed{}, else the last one.

    1,234 = $1234 = 1234.00 = "1234 apples." by value; 3/4 and \frac{3}{4} are 0.75. A `####` without a number after
    it, like a \boxed{} without one, has none: what stands before is not the final answer.
    """
    final, _ = read_final(text)
    if final is None:
        return None
    if "####" in final:
        tail = final.rpartition("####")[2].strip()
        return _find_number(tail.splitlines()[0] if tail else "", first=True)
    boxed = _find_boxed(final)
    return _find_number(final, first=False) if boxed is None else _find_number(boxed, first=True)


def read_reference(cell: Any) -> Fraction | None:
    """The number of an answer column: a number, text with `#### NUMBER`, or a number in words like $1,234."""
    if isinstance(cell, bool) or cell is None:
        return None
    if isinstance(cell, (int, float, Decimal)):
        try:
            return Fraction(str(cell))
        except ValueError:  # nan, inf
            return None
    text = str(cell)
    if "####" in text:
        return read_number(text)
    found = list(NUMBER.finditer(text))
    return _value_of(found[0]) if len(found) == 1 else None


def _find_boxed(text: str) -> str | None:
    r"""What stands in the last \boxed{...}, braces within included; to the end where it is not closed."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    content, depth = text[start + len("\\boxed{") :], 1
    for place, letter in enumerate(content):
        depth += (letter == "{") - (letter == "}")
        if not depth:
            return content[:place]
    return content


def _find_number(text: str, *, first: bool) -> Fraction | None:
    plain = text.replace("{,}", ",").replace("\\,", "").replace("\\!", "").replace("\\$", "$").replace("**", "")
    found = list(NUMBER.finditer(LATEX_FRACTION.sub(r"\1/\2", plain)))
    return _value_of(found[0 if first else -1]) if found else None


def _value_of(match: re.Match[str]) -> Fraction | None:
    if len(match[0]) > 400:  # a model that repeats a digit until it is cut off; Python refuses to read 4,300 of them
        return None
    over, under = (Fraction((match[name] or "1").replace(",", "")) for name in ("number", "under"))
    if not under:
        return None
    return (-1 if match["minus"] or match["inner"] else 1) * over / under


def say_number(number: Fraction | None) -> str:
    """For a table: 42, 0.5, or 1/3; empty for none."""
    if number is None:
        return ""
    if number.denominator == 1:
        return str(number.numerator)
    short = f"{float(number):.10g}" if abs(number) < 10**9 else ""
    return short if short and Fraction(short) == number else str(number)
