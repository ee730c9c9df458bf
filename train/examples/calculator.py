"""The tool and the environment of the recipe calculator."""

from __future__ import annotations


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first number.
        b: The second number.

    Returns:
        The sum.
    """
    return a + b


class Calculator:
    """An environment with the tool `add`, whose reward is 1 after a call with the numbers of the question."""

    def __init__(self) -> None:
        self.answer, self.results = "", [0]

    def reset(self, answer: str = "", **_: object) -> None:
        """Begin with another row; its columns are arguments."""
        self.answer, self.results = str(answer), []

    def add(self, a: int, b: int) -> int:
        """Add two numbers.

        Args:
            a: The first number.
            b: The second number.

        Returns:
            The sum.
        """
        self.results.append(a + b)
        return a + b

    def get_reward(self) -> float:
        """Return 1 if a call gave the answer of the row."""
        return float(self.answer in map(str, self.results))
