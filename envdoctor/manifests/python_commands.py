"""Install commands that Python code runs: `os.system("pip install torch")`, `subprocess.run(["pip", ...])`."""

from __future__ import annotations

import re
import shlex
from textwrap import dedent
from typing import TYPE_CHECKING

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.markdown import Line

if TYPE_CHECKING:
    import ast

_INSTALLS = lazy_pattern(
    r"\b(?:pip3?|uv|conda|mamba|micromamba)\b.*\b(?:install|add|sync|create|update)\b", re.DOTALL
)
_STRING_VARIABLE = lazy_pattern(r"^\w+\s*=\s*[\"']", re.MULTILINE)
# Matched without the module, which code imports under several names.
_FUNCTIONS = frozenset({
    "system", "popen", "getoutput", "getstatusoutput", "run", "call", "check_call", "check_output", "Popen",
    "run_line_magic",
})  # fmt: skip


def python_commands(lines: tuple[Line, ...]) -> list[Line] | None:
    """The install commands of Python code; None if it has some and is not valid Python."""
    text = dedent("\n".join(text for _, text in lines))
    if not _INSTALLS.search(text):
        return []
    import ast

    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _function(node) in _FUNCTIONS]
    calls.sort(key=lambda call: (call.lineno, call.col_offset))
    commands = [(lines[call.lineno - 1][0], _command(call)) for call in calls]
    return [(number, command) for number, command in commands if _INSTALLS.search(command)]


def string_variables(lines: tuple[Line, ...]) -> dict[str, str]:
    """The variables that Python code sets once, outside of functions and branches, to a string."""
    text = dedent("\n".join(text for _, text in lines))
    if not _STRING_VARIABLE.search(text):
        return {}
    import ast

    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    set_names = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    return {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name) and set_names.count(target.id) == 1
    }


def _function(call: ast.Call) -> str:
    """The name of the called function without its module."""
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def _command(call: ast.Call) -> str:
    """The command of a call as shell text, with `$name` in place of what is not a literal."""
    import ast

    keywords = [each.value for each in call.keywords if each.arg in ("args", "cmd", "command")]
    arguments = [*call.args, *keywords]
    if _function(call) == "run_line_magic":
        return " ".join(map(_text, arguments))
    first = arguments[0] if arguments else ast.Constant("")
    if not isinstance(first, ast.List | ast.Tuple):
        return _text(first)
    words = [(_text(each), isinstance(each, ast.Starred)) for each in first.elts]
    return " ".join(word if "$" in word or is_starred else shlex.quote(word) for word, is_starred in words)


def _text(node: ast.expr) -> str:
    """The text of an argument."""
    import ast

    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_text, node.values))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    if isinstance(node, ast.FormattedValue | ast.Starred):
        return _text(node.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "split":
        return _text(node.func.value)
    source = ast.unparse(node)
    return "python" if source == "sys.executable" else "${" + re.sub(r"\W+", "_", source)[:40] + "}"
