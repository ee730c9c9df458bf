"""Names of data files: they go into tables and events, which are UTF-8. Standard library only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from settings import BadInput


def refuse_odd_names(files: Sequence[Path]) -> None:
    """A name of other bytes would end a run at its first row, hours of loading later."""
    for path in files:
        try:
            str(path).encode()
        except UnicodeEncodeError:
            raise BadInput(
                f"settings: data: the name {str(path)!a} is not UTF-8",
                expected="files whose names are text",
                hint="rename the file",
            ) from None
