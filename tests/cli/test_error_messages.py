"""Every error of the product names what was expected, and what to do next."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from support.paths import PACKAGE, ROOT, TRAIN

REQUIRED = {
    "EnvdoctorError": {"expected", "hint"},
    "BadInput": {"expected", "hint"},
    "Refused": {"expected", "hint"},
    "write_error": {"expected", "hint"},
    "Interrupted": {"hint"},
    "unknown_name": {"hint"},
}


def calls() -> Iterator[tuple[str, str, set[str | None]]]:
    """The place of each call that makes an error, the called name, and its keyword arguments."""
    for path in sorted([*PACKAGE.rglob("*.py"), *TRAIN.rglob("*.py")]):
        source = path.read_text()
        if any(f"{name}(" in source for name in REQUIRED):
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in REQUIRED:
                    place = f"{path.relative_to(ROOT)}:{node.lineno}"
                    yield place, node.func.id, {keyword.arg for keyword in node.keywords}


def test_every_error_names_what_is_expected_and_what_to_do() -> None:
    found = list(calls())
    assert len(found) > 500
    incomplete = [f"{place} {name}" for place, name, given in found if None not in given and REQUIRED[name] - given]
    assert not incomplete, "errors without `expected` or `hint`:\n" + "\n".join(incomplete)
