"""Every command that is printed is built by shell_command or command_line, and not by string formatting."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator

import pytest
from support.paths import ROOT

from envdoctor.core.shell_commands import shell_command

PACKAGE = ROOT / "envdoctor"
# The start of a command. `envdoctor {` names a command in its help.
COMMAND = re.compile(
    r"(?:[A-Z][A-Z0-9_]*=\S* )?(?:uv (?:pip|venv|python|tool|lock|sync|run|add) |export [A-Za-z_{]|unset [A-Z_{]"
    r"|sudo |conda (?:install|env|create|remove) |envdoctor [a-z-]+ [-{]|nvidia-smi -|docker (?:run|pull|buildx) "
    r"|curl -|df -|ls -|python3? -|pip (?:download|config|install) |git clone|scontrol |ulimit -|module load)"
)
# They write scripts and lines of a shell, in which what is quoted is their subject.
SCRIPTS = {
    "core/remedies.py", "core/command_line.py", "training/launchers/node.py", "training/launchers/slurm.py",
    "training/launchers/records.py", "training/launchers/environment.py", "training/launchers/plan.py",
    "manifests/inputs/workflows.py", "manifests/block_actions.py", "export/text.py", "export/node_scripts.py",
    "export/script.py",
}  # fmt: skip


def formatted_commands(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Command lines that are put together: f-strings, `%`, `+` and `.format` with another value than a constant."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [each for each in node.values if isinstance(each, ast.FormattedValue)]
            text = "".join(each.value if isinstance(each, ast.Constant) else "{" for each in node.values)
            values: list[ast.expr] = [each.value for each in parts]
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod):
            text, values = _constant(node.left), [node.right]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
            text, values = _constant(node.func.value), [*node.args, *(each.value for each in node.keywords)]
        else:
            continue
        fixed = all(
            isinstance(each, ast.Constant) or (isinstance(each, ast.Name) and each.id.isupper()) for each in values
        )
        if values and not fixed and COMMAND.match(text):
            yield node.lineno, ast.unparse(node)


def _constant(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def test_no_command_is_formatted() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{line}: {text}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if str(path.relative_to(PACKAGE)) not in SCRIPTS
        for line, text in formatted_commands(ast.parse(path.read_text()))
    ]
    assert found == []


@pytest.mark.parametrize(
    "code",
    ['f"uv pip install {name}=={version}"', '"uv pip install " + name', '"unset X%s" % name', '"ls -l {}".format(x)'],
)  # fmt: skip
def test_a_formatted_command_is_found(code: str) -> None:
    assert list(formatted_commands(ast.parse(code)))


HOSTILE = ("a b", "$(id)", "`id`", "a;b", "a'b", 'a"b', "a|b", "*", "~", "#x", "", "-e", "a\\b", "a&b")
TEMPLATES = (
    "ls {}",
    "ls {} -l",
    "uv pip install torch=={} --python {}",
    "export NAME={}",
    "uv pip install 'x{}'",
    "ls {}/x*",
)


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_value_stays_one_word(template: str) -> None:
    for value in HOSTILE:
        count = template.count("{}")
        words = shlex.split(shell_command(template, *[value] * count))
        assert words == [word.replace("{}", value) for word in shlex.split(template)], (template, value)


def test_sequences_and_names() -> None:
    assert shell_command("uv pip install {} {}", ["a>=1", "b c"], []) == "uv pip install 'a>=1' 'b c'"
    assert shell_command("export {}={}", "N", "a b") == "export N='a b'"
    assert shell_command("unset {}", "a\nb") == "unset 'a?b'"
    for wrong in (("export {}={}", "A B", "c"), ('export P="{}:$P"', "$(id)"), ("ls {}", "a", "b")):
        with pytest.raises(ValueError, match="value"):
            shell_command(*wrong)
