"""Statements that permit the absence of what they import."""

from __future__ import annotations

import ast
import re

from envdoctor.core.patterns import lazy_pattern

# Context managers: contextlib.suppress, haystack's LazyImport, optuna's try_import, pytest.raises.
_PERMITTING = lazy_pattern(r"suppress|raises|import|optional|ignor|lazy", re.IGNORECASE)


def permits_absence(node: ast.With | ast.AsyncWith) -> bool:
    """Whether a `with` statement, by the names of its managers, ends without an error if an import in it fails."""
    managers = (item.context_expr for item in node.items)
    called = (each.func if isinstance(each, ast.Call) else each for each in managers)
    names = (ast.unparse(each) for each in called if isinstance(each, ast.Name | ast.Attribute))
    return any(map(_PERMITTING.search, names))
