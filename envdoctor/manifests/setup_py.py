"""Requirements that a setup.py passes to setup(), as far as they follow from its text. The script is not run."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable
from typing import Any

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.files import Files
from envdoctor.manifests.markdown import Line
from envdoctor.manifests.module_values import FileLines, ModuleValues, NoValueError, Unread, names_in
from envdoctor.manifests.pyproject import PyProject, pyproject_of_data, requirements_of_data
from envdoctor.resolution.requirement import InstallRequirement

_SETUP_CALL = lazy_pattern(r"^\s*(?:\w+\.)?setup\(", re.MULTILINE)
_SETUPTOOLS = lazy_pattern(r"^\s*(?:from|import)\s+(?:setuptools|distutils|skbuild)\b", re.MULTILINE)
_MAX_TEXT = 80


def is_setup_py(text: str) -> bool:
    """Whether a text is a script that calls setup() of setuptools."""
    return bool(_SETUPTOOLS.search(text) and _SETUP_CALL.search(text))


def invalid_line(text: str) -> int:
    """The first line that is not valid for this Python; 0 if all are."""
    try:
        ast.parse(text)
    except (SyntaxError, ValueError) as error:  # ValueError: a null character
        return getattr(error, "lineno", None) or 1
    except (RecursionError, MemoryError):
        return 0  # valid, and too deep to be read
    return 0


def parse_setup_py(lines: tuple[Line, ...], files: Files, *, each_extra: bool = False) -> PyProject | None:
    """Parse a setup.py; None if it is not valid for this Python, or has no call of setup()."""
    found = _arguments(lines, files)
    if found is None:
        return None
    data, unread, notes = found
    project = pyproject_of_data(data, lines, files, each_extra=each_extra)
    return project._replace(unread=(*project.unread, *unread, *notes))


def requirements_of_setup_py(
    lines: tuple[Line, ...], files: Files, extras: Collection[str]
) -> list[InstallRequirement] | None:
    """What `pip install .[extras]` installs besides the project; None if the script computes a part of it."""
    found = _arguments(lines, files)
    if found is None or found[1]:
        return None
    return requirements_of_data(found[0], lines, files, extras)


def _arguments(lines: tuple[Line, ...], files: Files) -> tuple[dict[str, Any], list[str], list[str]] | None:
    """The arguments of setup() as tables of a pyproject.toml, what could not be evaluated, and the notes."""
    try:
        tree = ast.parse("\n".join(text for _, text in lines))
        calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call) and _is_setup(each)]
        if not calls:
            return None
        values = ModuleValues(tree, lambda path: bool(files.of_project(path, 1)))
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef) and calls[0] in ast.walk(function):
                values.run_body(function.body)
        return _Arguments(calls[0], values).tables()
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _is_setup(call: ast.Call) -> bool:
    function = call.func
    return (function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")) == "setup"


class _Arguments:
    """Reads the arguments of setup() that decide what is installed."""

    def __init__(self, call: ast.Call, values: ModuleValues) -> None:
        self.values = values
        self.keywords = {each.arg: each.value for each in call.keywords if each.arg}
        self.spread: dict[str, Any] = {}  # of `setup(**arguments)`
        self.unread: list[str] = []
        self.notes: list[str] = []  # arguments that install nothing
        self.spread_nodes = [each.value for each in call.keywords if each.arg is None]
        for node in self.spread_nodes:
            found = self._evaluated(node)
            self.spread |= found if isinstance(found, dict) else {}

    def tables(self) -> tuple[dict[str, Any], list[str], list[str]]:
        """The tables of a pyproject.toml with the same meaning, what could not be evaluated, and the notes."""
        required, files = self._requirements("install_requires")
        extras = self._value("extras_require")
        optional: dict[str, Any] = {}
        optional_files: dict[str, Any] = {}
        for name, value in extras.items() if isinstance(extras, dict) else ():
            texts, paths = self._split(value if isinstance(value, list | FileLines) else [value])
            optional[str(name)] = texts
            optional_files[str(name)] = {"file": paths}
        self._conditional_statements()
        if links := self._node_line("dependency_links"):
            self.notes.append(f"dependency_links (line {links}): pip ignores them since release 19.0")
        evaluated = len(self.unread)
        build, _ = self._requirements("setup_requires")
        self.notes += self.unread[evaluated:]
        del self.unread[evaluated:]
        if build:
            line = self._node_line("setup_requires")
            self.notes.append(f"setup_requires (line {line}): {', '.join(build)[:_MAX_TEXT]} is for the build only")
        dynamic = {"dependencies": {"file": files}, "optional-dependencies": optional_files}
        project = {
            "name": self._text("name"),
            "requires-python": self._text("python_requires"),
            "dependencies": required,
            "optional-dependencies": optional,
        }
        data = {"project": project, "tool": {"setuptools": {"dynamic": dynamic}}}
        return data, list(dict.fromkeys(self.unread)), self.notes

    def _evaluated(self, node: ast.expr, keyword: str = "") -> Any:
        try:
            return self.values.value(node)
        except NoValueError:
            self._add_unread([Unread(node.lineno, ast.unparse(node))], f"{keyword} = " if keyword else "**")
            return None

    def _value(self, keyword: str) -> Any:
        node = self.keywords.get(keyword)
        return self._evaluated(node, keyword) if node else self.spread.get(keyword)

    def _text(self, keyword: str) -> str:
        try:
            value = self.values.value(self.keywords[keyword]) if keyword in self.keywords else self.spread[keyword]
        except (KeyError, NoValueError):
            return ""
        return value if isinstance(value, str) else ""

    def _requirements(self, keyword: str) -> tuple[list[str], list[str]]:
        """The requirements of an argument, and the files that it reads."""
        value = self._value(keyword)
        if isinstance(value, str):
            return list(filter(None, map(str.strip, value.splitlines()))), []
        return self._split(value if isinstance(value, list | FileLines) else [])

    def _split(self, value: list[Any] | FileLines) -> tuple[list[str], list[str]]:
        found = value if isinstance(value, list) else [value]
        flat = [item for each in found for item in (each if isinstance(each, list) else [each])]
        self._add_unread(each for each in flat if isinstance(each, Unread))
        texts = [str(each) for each in flat if isinstance(each, str)]
        return texts, [each.path for each in flat if isinstance(each, FileLines)]

    def _add_unread(self, parts: Iterable[Unread], prefix: str = "") -> None:
        for each in parts:
            shown = f"{prefix}{each.text}"[:_MAX_TEXT]
            self.unread.append(f"`{shown}` (line {each.line}): its value is not in the file")

    def _conditional_statements(self) -> None:
        """The statements that change an argument under a condition."""
        nodes = [node for name, node in self.keywords.items() if name in ("install_requires", "extras_require")]
        names: set[str] = set()
        added = set().union(*map(names_in, nodes), *map(names_in, self.spread_nodes))
        while added - names:
            names |= added
            added = set().union(*(self.values.used.get(each, ()) for each in names))
        for each in self.values.unread:
            if each.name in names:
                self.unread.append(f"`{each.text[:_MAX_TEXT]}` (line {each.line}): it depends on a condition")

    def _node_line(self, keyword: str) -> int:
        node = self.keywords.get(keyword)
        return node.lineno if node else 0
