"""The imports of the code in a guide."""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Container, Iterator

from envdoctor.knowledge.module_names import DISTRIBUTIONS
from envdoctor.knowledge.releases import normalize_name
from envdoctor.manifests.actions import Run
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.markdown import Line
from envdoctor.manifests.program_launches import Launch
from envdoctor.resolution.index_facts import CodeImport

_MAGIC = re.compile(r"\s*[%!]")  # of notebooks
_COLAB = re.compile(r"\bgoogle\.colab\b|\"colab\":|colab\.research\.google\.com")
_DOTTED = re.compile(r"\w+(?:\.\w+)*")
MAX_IMPORTS = 40  # that are compared with the wheels
MAX_OF_PROGRAMS = 240  # of a checkout
_IMPORT = re.compile(
    r"(?:>>> )?(?:from ([A-Za-z_][\w.]*) import \(?([\w, ]+)\)?|import ([A-Za-z_][\w.]*)(?: as \w+)?)\s*"
)


def imports_of_guide(context: GuideContext) -> Iterator[CodeImport]:
    """The imports of Python code, in order and without those in a `try`, and the modules of `python -m`."""
    for block in context.guide.python_blocks:
        yield from _of_code(block)
    for run in context.actions(Run):
        if run.module:
            yield CodeImport(run.line, run.module)
        for part in run.code.split(";"):
            yield from _of_code(((run.line, part.strip()),))


def imports_of_programs(context: GuideContext) -> Iterator[CodeImport]:
    """The imports that programs of the checkout reach; `file` is the place of the import."""
    checkout = context.guide.checkout
    for each in checkout.reached(launches_of(context)) if checkout else ():
        yield CodeImport(each.launch.line, each.statement.module, each.statement.name, each.place)


def launches_of(context: GuideContext) -> tuple[Launch, ...]:
    """The programs of the checkout that commands start.

    For a manifest, all programs of the project are read: one that needs another release is broken.
    """
    checkout, launches = context.guide.checkout, context.guide.launches
    if checkout and checkout.is_clone and not context.guide.commands:
        launches = (*launches, *checkout.programs)
    return launches


def attributes_of_guide(context: GuideContext) -> Iterator[CodeImport]:
    """The attributes that code reads from imported modules, `bnb.nn.Linear4bit`, without those in a `try`.

    The blocks of a guide are one program. A block that does not parse is left out.
    """
    modules: dict[str, str] = {}
    for block in context.guide.python_blocks:
        text = "\n".join("" if _MAGIC.match(line) else line for _, line in block)
        try:
            with warnings.catch_warnings(action="ignore"):  # of invalid escape sequences
                tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        excluded = {id(node) for each in ast.walk(tree) if isinstance(each, ast.Try) for node in ast.walk(each)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                modules |= {each.asname or each.name: each.name for each in node.names}
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                modules.pop(node.id, None)
        excluded |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}  # parts of others
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and id(node) not in excluded:
                first, _, rest = ast.unparse(node).partition(".")
                if first in modules and _DOTTED.fullmatch(rest):
                    yield CodeImport(block[0][0] + node.lineno - 1, modules[first], rest)


def hosted_notebook(context: GuideContext) -> str:
    """The service that a notebook is written for, whose environment has torch already; empty for other guides."""
    if not context.guide.name.endswith(".ipynb"):
        return ""
    text = "\n".join(context.guide.lines)
    return "Colab" if _COLAB.search(text) else "Kaggle" if "/kaggle/" in text else ""


def presupposed_module(context: GuideContext, installed: Container[str]) -> str:
    """A module that code imports and no step installs: an environment with torch is there before the guide.

    Empty if the code does not import torch, or if all modules are installed.
    """
    tops = list(dict.fromkeys(each.top for each in imports_of_guide(context)))
    absent = (
        top for top in tops
        if top not in sys.stdlib_module_names and DISTRIBUTIONS.get(top, normalize_name(top)) not in installed
    )  # fmt: skip
    return next(absent, "") if "torch" in tops else ""


def _of_code(lines: tuple[Line, ...]) -> Iterator[CodeImport]:
    previous = ""
    for number, text in lines:
        match = _IMPORT.fullmatch(text.partition("#")[0].rstrip())
        if match and not previous.startswith("try"):
            names = [name.split(" as ")[0].strip() for name in (match[2] or "").split(",")]
            yield from (CodeImport(number, match[1] or match[3], name) for name in names if name or match[3])
        previous = text.strip() or previous
