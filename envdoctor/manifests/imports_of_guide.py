"""The imports of the code in a guide."""

from __future__ import annotations

import ast
import posixpath
import sys
import warnings
from collections.abc import Container, Iterator, Sequence

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.module_names import DISTRIBUTIONS
from envdoctor.knowledge.releases import normalize_name
from envdoctor.manifests.actions import Run
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.install_texts import is_manifest
from envdoctor.manifests.markdown import Line
from envdoctor.manifests.mentions import NEGATION
from envdoctor.manifests.program_launches import Launch, Program
from envdoctor.resolution.index_facts import CodeImport

MAGIC = lazy_pattern(r"\s*[%!]")  # of notebooks
_COLAB = lazy_pattern(r"\bgoogle\.colab\b|\"colab\":|colab\.research\.google\.com")
_DOTTED = lazy_pattern(r"\w+(?:\.\w+)*")
_NAMED = lazy_pattern(r"[`(](?:python3? (?:-u )?)?([\w./-]+\.py)(?: [^`()]*)?[`)]")
_LAUNCHED = lazy_pattern(r"[`(]python3? (?:-u )?([\w./-]+\.py)(?: [^`()]*)?[`)]")
_CONDA = lazy_pattern(r"(?:conda|env)[\w.-]*\.ya?ml")
_MAX_NAMED = 20
MAX_IMPORTS = 40  # that are compared with the wheels
MAX_OF_PROGRAMS = 240  # of a checkout
_IMPORT = lazy_pattern(
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
    return _reached(context, launches_of(context))


def launches_of(context: GuideContext) -> tuple[Launch, ...]:
    """The programs of the checkout that commands start.

    For a manifest, all programs of the project are read: one that needs another release is broken.
    """
    checkout, launches = context.guide.checkout, context.guide.launches
    if checkout and checkout.is_clone and not context.guide.commands:
        launches = (*launches, *checkout.programs)
    return launches


def launches_of_code(context: GuideContext) -> tuple[Launch, ...]:
    """The packages of the checkout that Python code of a guide imports: `from own_package import Model`."""
    checkout = context.guide.checkout
    if checkout is None or not checkout.is_clone:
        return ()
    found: dict[str, Launch] = {}
    for block in context.guide.python_blocks:
        for each in _of_code(block):
            top = each.module.partition(".")[0]
            statement = f"from {each.module} import {each.name}" if each.name else f"import {each.module}"
            for module in (top, each.module) if top in checkout.own_modules else ():
                program = Program(module=module, function=(module == each.module and each.name) or "__init__")
                found.setdefault(module, Launch(each.line, statement, program, (checkout.root,)))
    return tuple(found.values())


def imports_of_named_programs(context: GuideContext) -> Iterator[CodeImport]:
    """The imports that programs reach which the text names, and no command starts."""
    return _reached(context, named_programs(context))


def _reached(context: GuideContext, launches: tuple[Launch, ...]) -> Iterator[CodeImport]:
    checkout = context.guide.checkout
    for each in checkout.reached(launches) if checkout else ():
        yield CodeImport(each.launch.line, each.statement.module, each.statement.name, each.place)


def named_programs(context: GuideContext) -> tuple[Launch, ...]:
    """The programs of the checkout that the text of a guide names as code or a link: ``run_glue.py``.

    None if the guide has several environments, as a program can be for another one. That of a folder with a manifest
    has an environment of its own.
    """
    guide, checkout = context.guide, context.guide.checkout
    if not guide.commands or checkout is None or not checkout.is_clone or len(context.environments) != 1:
        return ()
    code = {number for block in guide.blocks for number, _ in block.lines}
    names = {path: posixpath.basename(path) for path in checkout.paths}
    folders = {posixpath.dirname(path) for path, name in names.items() if is_manifest(name) or _CONDA.fullmatch(name)}
    programs = {each.program.script: each for each in checkout.programs}
    launched = {posixpath.normpath(name) for line in guide.lines for name in _LAUNCHED.findall(line)}
    programs |= {
        each: Launch(0, each, Program(script=each), (checkout.root,))
        for each in launched & checkout.paths - programs.keys()
    }
    started = {checkout.script(each) for each in guide.launches if each.line}
    found: dict[str, Launch] = {}
    for number, line in enumerate(guide.lines, 1):
        named = () if number in code or NEGATION.search(line) else map(posixpath.normpath, _NAMED.findall(line))
        for name in named:
            is_alone = any(name.startswith(f"{folder}/") for folder in folders if folder)
            if name in programs and name not in started and not is_alone:
                found.setdefault(name, programs[name]._replace(line=number))
    return tuple(found.values())[:_MAX_NAMED]


def is_started(context: GuideContext, line: int) -> bool:
    """Whether a command of a line starts a program, and does not only name it."""
    return any(each.line == line for each in context.guide.launches if line)


def attributes_of_guide(context: GuideContext) -> Iterator[CodeImport]:
    """The attributes that code reads from imported modules, `bnb.nn.Linear4bit`, without those in a `try`.

    The blocks of a guide are one program. A block that does not parse is left out.
    """
    modules: dict[str, str] = {}
    for block in context.guide.python_blocks:
        text = "\n".join("" if MAGIC.match(line) else line for _, line in block)
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
                    yield CodeImport(block[0][0] + node.lineno - 1, modules[first], rest, is_attribute=True)


def hosted_notebook(context: GuideContext) -> str:
    """The service that a notebook is written for, whose environment has torch already; empty for other guides."""
    if not context.guide.name.endswith(".ipynb"):
        return ""
    return hosting_service(context.guide.lines)


def hosting_service(lines: Sequence[str]) -> str:
    """The service that a notebook is written for; empty without one."""
    text = "\n".join(lines)
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
