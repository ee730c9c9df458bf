"""The code cells of a Jupyter notebook, with the lines of the file that contain them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.markdown import Block, Line

_MAGIC = lazy_pattern(r"(\s*)[%!]")


def cell_blocks(text: str) -> Iterator[Block]:
    """The code cells: shell code of `%%bash` cells, and Python code."""
    raw = text.split("\n")
    rows: dict[str, list[int]] = {}
    for number, row in enumerate(raw):
        rows.setdefault(row.strip().removesuffix(",").removesuffix('"').removesuffix("\\n"), []).append(number)
    position = -1
    for cell in json.loads(text).get("cells", []):
        source = cell.get("source", "") if isinstance(cell, dict) else ""
        code = "".join(map(str, source)) if isinstance(source, list) else str(source)
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        lines: list[Line] = []
        for each in code.split("\n"):
            forms = {json.dumps(each)[1:-1], json.dumps(each, ensure_ascii=False)[1:-1]}
            own = [row for form in forms for row in rows.get(f'"{form}', ()) if row > position]  # a row of its own
            parts = (row for row in range(max(position, 0), len(raw)) if any(form in raw[row] for form in forms))
            position = (min(own) if own else next(parts, position)) if each.strip() else position
            lines.append((max(position, 0) + 1, each))
        magic = lines[0][1].strip() if lines else ""
        is_shell = re.match(r"%%(?:(?:bash|sh|shell|system|sx|script\s+bash)\b|!)", magic)
        yield Block("bash", "", tuple(lines[1:])) if is_shell else Block("python", "", tuple(lines))


def python_code(text: str) -> str:
    """The Python code of a notebook as one program; each line has the number that it has in the file.

    Empty if two lines of code are in one line of the file.
    """
    try:
        blocks = [block for block in cell_blocks(text) if block.language == "python"]
    except (ValueError, AttributeError, RecursionError):
        return ""
    code: dict[int, str] = {}
    for block in blocks:
        if block.lines and block.lines[0][1].startswith("%%"):
            continue
        for number, line in block.lines:
            if line.strip() and code.setdefault(number, python_statement(line)) != python_statement(line):
                return ""
    return "\n".join(code.get(number, "") for number in range(1, max(code, default=0) + 1))


def python_statement(line: str) -> str:
    """A line of a cell, with `pass` in place of a command of IPython, so that the block around it stays valid."""
    magic = _MAGIC.match(line)
    return f"{magic[1]}pass" if magic else line
