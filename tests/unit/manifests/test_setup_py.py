"""Requirements of a setup.py, which is not run."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cases import each_case

from envdoctor.commands.audit_file import audit_text
from envdoctor.core.errors import BadInput
from envdoctor.manifests.actions import Install
from envdoctor.manifests.files import Files
from envdoctor.manifests.inputs.recognition import read_input
from envdoctor.manifests.inputs.records import Document
from envdoctor.resolution.step import NoSolver

TABLE = r"""import re
_deps = ['torch>=2.1', 'trl==0.9', 'peft[x]>1']
deps = {b: a for a, b in (re.findall(r'^(([^!=<>~ ]+)(?:.*)?$)', x)[0] for x in _deps)}
def deps_list(*names):
    return [deps[name] for name in names]
extras = {}
extras['rl'] = deps_list('trl')
extras['all'] = extras['rl'] + deps_list('peft')"""
FUNCTION = """import os
def read(name):
    with open(os.path.join(os.path.dirname(__file__), 'req', name)) as f:
        return [line for line in f if line]"""
PRESENT = """import os
path = os.path.join(os.path.dirname(__file__), 'requirements.txt')
a = []
if os.path.exists(path):
    with open(path) as f:
        a = [line.strip() for line in f]
else:
    a = ['six']"""
# The body of a script between the import of setuptools and `setup(name="p", ...)`, the arguments, and the result.
SCRIPTS: dict[str, tuple[str, str, list[str]]] = {
    "texts": ("", "install_requires=['torch==2.6.0', 'peft']", ["torch==2.6.0", "peft"]),
    "one text of several lines": ("", "install_requires='''\ntorch==2.6.0\npeft\n'''", ["torch==2.6.0", "peft"]),
    "a name and a sum": ("a = ['torch']\nb = a + ['six']\nb += ['x']", "install_requires=b", ["torch", "six", "x"]),
    "append and extend": ("a = []\na.append('torch')\na.extend(['peft'])", "install_requires=a", ["torch", "peft"]),
    "a version in a name": ("V = '2.6'", "install_requires=[f'torch=={V}', 'peft>' + '1']", ["torch==2.6", "peft>1"]),
    "a table of requirements": (
        TABLE, "install_requires=[deps['torch']], extras_require=extras",
        ["torch>=2.1", "trl==0.9", "trl==0.9", "peft[x]>1"],
    ),
    "a file": ("", "install_requires=open('requirements.txt').read().splitlines()", ["torch==2.4.0"]),
    "a file in a loop": (
        "a = []\nwith open('requirements.txt') as f:\n    for line in f:\n        a.append(line.strip())",
        "install_requires=a",
        ["torch==2.4.0"],
    ),
    "a function that reads a file": (FUNCTION, "install_requires=read('base.txt')", ["peft==0.13.0"]),
    "a handler that sets the list": (
        "try:\n    a = ['torch']\nexcept OSError:\n    a = []", "install_requires=a", ["torch"],
    ),
    "a file that is there": (PRESENT, "install_requires=a", ["torch==2.4.0"]),
    "a function that returns before it reads a file": (
        FUNCTION.replace("    with", "    return ['six']\n    with"), "install_requires=read('absent.txt')", ["six"],
    ),
    "keywords in a table": ("k = dict(install_requires=['torch'])", "**k", ["torch"]),
    "a call in a function": ("", "install_requires=['torch']", ["torch"]),
}  # fmt: skip
UNREAD: dict[str, tuple[str, str, str]] = {
    "an item": ("", "install_requires=['torch', f()]", "`f()` (line 3)"),
    "a list": ("", "install_requires=f()", "`install_requires = f()` (line 3)"),
    "a condition": (
        "a = ['torch']\nif X:\n    a.append('apex')", "install_requires=a", "`a.append('apex')` (line 4): it depends",
    ),
    "a handler": (
        "a = ['torch']\ntry:\n    import cv2\nexcept ImportError:\n    for each in ['x']:\n        a.append(f(each))",
        "install_requires=a", "`a.append(f(each))` (line 7): it depends",
    ),
    "a file that is absent": (
        "import os\na = []\nif os.path.isfile('req.txt'):\n    a = open('req.txt').readlines()", "install_requires=a",
        "`a = open('req.txt').readlines()` (line 5): it depends",
    ),
    "links": ("", "install_requires=['torch'], dependency_links=['https://a.org']", "dependency_links (line 3)"),
}  # fmt: skip


def _script(body: str, arguments: str) -> str:
    return f"from setuptools import setup\n{body}\nsetup(name='p', {arguments})\n"


def _read(text: str, folder: Path | None = None) -> Document:
    return read_input(text, "setup.py", Files(folder))


def _requirements(document: Document) -> list[str]:
    actions = [action for action in document.paths[0].actions if isinstance(action, Install)]
    return [each.text for action in actions for each in action.requirements]


@each_case("name", [*SCRIPTS])
def test_requirements_of_a_setup_py(name: str, tmp_path: Path) -> None:
    body, arguments, expected = SCRIPTS[name]
    (tmp_path / "req").mkdir(exist_ok=True)
    (tmp_path / "requirements.txt").write_text("torch==2.4.0\n")
    (tmp_path / "req" / "base.txt").write_text("peft==0.13.0\n")
    text = _script(body, arguments)
    if name == "a call in a function":
        text = f"import setuptools\ndef main():\n    setuptools.setup({arguments})\nmain()\n"
    assert _requirements(_read(text, tmp_path)) == expected


@each_case("name", [*UNREAD])
def test_what_is_not_read_of_a_setup_py(name: str) -> None:
    body, arguments, expected = UNREAD[name]
    unread = _read(_script(body, arguments)).unread
    assert [each for each in unread if each.startswith(expected)], unread


def test_an_extra_that_contradicts_the_project() -> None:
    text = _script(
        "", "install_requires=['vllm==0.8.3'],\n  extras_require={'torch': ['torch==2.5.0'], 'x': ['six']}"
    )
    result = audit_text(text, "setup.py", None, NoSolver()).result
    errors = {each.id: each for each in result.findings if each.status == "error"}
    assert result.kind == "setup.py"
    assert errors["RUN002"].line == 4
    assert "torch: " in errors["RUN002"].message


def test_a_script_with_much_to_evaluate_ends() -> None:
    doubled = "a = ['torch']\n" + "a = a + a\n" * 60 + "t = 'x'\n" + "t = t + t\n" * 60
    nested = "def f(x):\n    return f([x, x])\nb = f(1)\n"
    document = _read(_script(doubled + nested, "install_requires=a + b"))
    assert document.unread
    deep = _script("", f"install_requires={'(' * 80}['torch']{')' * 80} + {' + '.join(['[]'] * 3000)}")
    assert _read(deep).kind == "setup.py"


def test_another_script_is_refused() -> None:
    with pytest.raises(BadInput):
        read_input("import torch\nprint(torch.__version__)\n", "tool.py", Files())


@pytest.mark.parametrize(
    ("text", "line"), [("import (\n", 1), ("from setuptools import setup\nprint 'x'\nsetup()\n", 2)]
)
def test_a_setup_py_that_is_not_valid_is_an_error(text: str, line: int) -> None:
    with pytest.raises(BadInput, match=f"setup.py, line {line}: not valid for Python"):
        read_input(text, "setup.py", Files())
