"""The options of the display: details and colour. The command line sets them once, before anything is printed."""

from __future__ import annotations

from typing import Literal, NamedTuple

Color = Literal["auto", "always", "never"]


class Display(NamedTuple):
    """The options of the display."""

    verbose: bool = False  # print all details
    color: Color = "auto"  # auto: on a terminal


_display = Display()


def set_display(display: Display) -> None:
    """Set the options of the display."""
    global _display  # noqa: PLW0603  one display per process; threads print progress as well
    _display = display


def display() -> Display:
    """The options of the display."""
    return _display
