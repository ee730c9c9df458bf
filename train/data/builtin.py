"""Rows that the trainer makes itself: `data = builtin:NAME`. Standard library only."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from data.files import RawRow
from settings import BadInput, suggest

PREFIX = "builtin:"


def _add_two_digits() -> Iterator[tuple[str, str]]:
    """Sums of two numbers from 10 to 99. Of a + b and b + a there is one, so that held-out sums are new."""
    order = random.Random(0)  # noqa: S311  (no secret)
    for first in range(10, 100):
        for second in range(first, 100):
            a, b = (first, second) if order.random() < 0.5 else (second, first)
            yield f"What is {a} + {b}? Answer with the number only.", str(first + second)


BUILTIN: dict[str, Callable[[], Iterator[tuple[str, str]]]] = {"addition": _add_two_digits}


def check_builtin(data: str) -> str:
    """Return the name of the rows that `builtin:NAME` selects."""
    name = data.removeprefix(PREFIX)
    if name not in BUILTIN:
        raise BadInput(
            f"settings: data = {data}{suggest(name, BUILTIN)}",
            expected=" or ".join(PREFIX + known for known in BUILTIN),
            hint=f"--set data={PREFIX}{next(iter(BUILTIN))}",
        )
    return name


def read_builtin(data: str) -> Iterator[RawRow]:
    """Yield the rows, each with a prompt as messages and its answer."""
    for number, (prompt, answer) in enumerate(BUILTIN[check_builtin(data)](), 1):
        columns = {"prompt": [{"role": "user", "content": prompt}], "answer": answer}
        yield RawRow(f"{data} row {number}", f"{data}:{number}", data, columns)
