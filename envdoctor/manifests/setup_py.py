"""Requirements that a setup.py passes to setup() as literal texts."""

from __future__ import annotations

import ast
from collections.abc import Collection

from envdoctor.knowledge.releases import normalize_name
from envdoctor.manifests.markdown import Line
from envdoctor.resolution.requirement import InstallRequirement, parse_install_requirement


def parse_setup_py(lines: tuple[Line, ...], extras: Collection[str]) -> list[InstallRequirement] | None:
    """The requirements with some extras; None if the script computes them, or is not valid for this Python."""
    try:
        tree = ast.parse("\n".join(text for _, text in lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    calls = (each for each in ast.walk(tree) if isinstance(each, ast.Call) and _called_name(each) == "setup")
    setup = next(calls, None)
    if setup is None:
        return None
    keywords = {each.arg: each.value for each in setup.keywords}
    try:
        required = ast.literal_eval(keywords["install_requires"]) if "install_requires" in keywords else []
        optional = ast.literal_eval(keywords["extras_require"]) if extras and "extras_require" in keywords else {}
    except (ValueError, TypeError, SyntaxError):
        return None
    if not isinstance(required, list | tuple) or not isinstance(optional, dict):
        return None
    named = {normalize_name(str(name)): values for name, values in optional.items()}
    texts = [*required, *(text for name in extras for text in named.get(name, ()))]
    parsed = (parse_install_requirement(text, lines[0][0]) for text in texts if isinstance(text, str))
    return [each for each in parsed if each]


def _called_name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
