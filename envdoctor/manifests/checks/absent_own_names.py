"""Checks on names that a program imports from modules of its checkout, and that these do not have."""

from __future__ import annotations

import ast
import difflib
import posixpath
import re
import warnings
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.module_names import packages_of_module
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.checks.absent_modules import MADE
from envdoctor.manifests.checks.entry_points import absent_entry_points
from envdoctor.manifests.checks.evidence import guide_evidence, table_evidence
from envdoctor.manifests.checks.program_imports import named_packages, names_of_module
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.import_statements import ImportStatement
from envdoctor.manifests.program_launches import Launch
from envdoctor.rules.registry import Problem, rule

IMPORT_FROM = "https://docs.python.org/3/reference/simple_stmts.html#from-import"
# With these, a module can have names that its text does not state.
_DYNAMIC = lazy_pattern(
    r"import\s*\(?\s*\*|__getattr__|\bglobals\(|\bvars\(|\bsetattr\(|\bexec\(|sys\.modules|import_module|__path__"
)
_WORD = lazy_pattern(r"\w+")
_MAX_FINDINGS = 3
_LIKENESS = 0.75


class _Absent(NamedTuple):
    """A name that a file imports from another file of the checkout, which does not have it."""

    file: str
    statement: ImportStatement
    module: str  # the path of the other file


_BUILD_FILES = ("setup.py", "pyproject.toml", "CMakeLists.txt", "meson.build")


@rule("RUN239", kind="guide", severity=("error", "warning"), cause="dependency-pin-violated", url=IMPORT_FROM)
def program_imports_a_name_that_its_checkout_does_not_have(context: GuideContext) -> Iterator[Problem]:
    """A program imports a name from a module of its checkout, and the text of this module does not have the name.

    Programs are those that the commands start. Modules with `import *` or with names that they make when they run are
    left out, and so are imports under conditions and in a `try` with a handler. A warning for an entry point of
    pyproject.toml, setup.cfg or setup.py whose module or function is not there.
    """
    checkout = context.guide.checkout
    launches = [each for each in context.guide.launches if each.line and each.program.is_python]
    if checkout is None or not checkout.is_clone or not checkout.paths:
        return
    yield from absent_entry_points(context, checkout, _lacks)
    found: dict[tuple[str, str], Problem] = {}
    for launch in launches:
        for each in _absent_of(context, checkout, launch):
            found.setdefault((each.module, each.statement.name), _problem(context, checkout, launch, each))
    yield from list(found.values())[:_MAX_FINDINGS]


def _absent_of(context: GuideContext, checkout: Checkout, launch: Launch) -> Iterator[_Absent]:
    files = checkout.program_files(launch) if not launch.instruction else ()
    sources = [checkout.source(each) for each in files]
    if any(each.changes_path or each.added for each in sources):
        return
    written = frozenset(word for line in context.guide.lines for word in _WORD.findall(line))
    for file, source in zip(files, sources, strict=True):
        for each in source.imports:
            is_run = not each.is_of_script or file == files[0]
            if is_run and each.name and not each.name.startswith("__") and not _is_made(written, each.name):
                module = _own_file(context, checkout, file, each, files[0])
                if module and _lacks(checkout, module, each.name):
                    yield _Absent(file, each, module)


def _is_made(written: frozenset[str], name: str) -> bool:
    """Whether a build makes a module of this name, or the guide names it, as a file that a step writes."""
    return bool(MADE.fullmatch(name)) or name in written


def _own_file(context: GuideContext, checkout: Checkout, file: str, each: ImportStatement, start: str) -> str:
    """The only file of the checkout that an import can load; empty if it can be another one or a package."""
    if each.level:
        parts = file.split("/")
        if len(parts) <= each.level:
            return ""
        folder = "/".join(parts[: -each.level])
        return checkout.module_file((folder,), each.module) if each.module else _init_of(checkout, folder)
    folder = posixpath.dirname(start)
    folders = ["", *accumulate(folder.split("/"), posixpath.join)] if folder else [""]
    found = {path for each_folder in folders if (path := checkout.module_file((each_folder,), each.module))}
    names = {name.name for step in context.trace.installs for name in step.action.requirements}
    if context.environments:
        names |= named_packages(context, context.environments[-1].state)
    is_of_script = bool(checkout.module_file((folder,), each.module))  # before all installed packages
    is_other = packages_of_module(each.top) or not names.isdisjoint(names_of_module(each.top))
    return found.pop() if len(found) == 1 and (is_of_script or not is_other) else ""


def _init_of(checkout: Checkout, folder: str) -> str:
    path = posixpath.join(folder, "__init__.py")
    return path if path in checkout.paths else ""


def _lacks(checkout: Checkout, module: str, name: str) -> bool:
    """Whether a module does not have a name: its text does not contain it, and it is no module of the package."""
    words = checkout.once("words of a static module", module, find=lambda: _words(checkout.text(module)))
    if words is None or name in words:
        return False
    part = posixpath.join(posixpath.dirname(module), name)
    if not module.endswith("/__init__.py"):
        return True
    extension = re.compile(rf"\b{re.escape(part.replace('/', '.'))}\b")  # CUDAExtension(name="package._fused")
    return not checkout.has_name(part) and not any(extension.search(checkout.text(each)) for each in _BUILD_FILES)


def _words(text: str) -> frozenset[str] | None:
    """The words of a module; None if it can have other names, has no statements, or cannot be parsed."""
    try:
        with warnings.catch_warnings(action="ignore"):  # of invalid escape sequences
            is_static = not _DYNAMIC.search(text) and bool(ast.parse(text).body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return frozenset(_WORD.findall(text)) if is_static else None


def _problem(context: GuideContext, checkout: Checkout, launch: Launch, absent: _Absent) -> Problem:
    names = sorted(set(re.findall(r"(?m)^(?:class|def) (\w+)|^(\w+)\s*=", checkout.text(absent.module))))
    defined = [name for pair in names for name in pair if name]
    near = next(iter(difflib.get_close_matches(absent.statement.name, defined, n=1, cutoff=_LIKENESS)), "")
    place = f"{absent.file}:{absent.statement.line}"
    return Problem(
        "error",
        f"{place} imports {absent.statement.name}, which {absent.module} does not have"
        + (f"; it has {near}" if near else ""),
        (
            guide_evidence(context, "program", launch.command, launch.line),
            table_evidence("names", f"no {absent.statement.name} in {absent.module}", "the checkout"),
        ),
        f"Import {near}, if it is the name that is meant."
        if near
        else "Check out a commit whose files belong together, or remove the import.",
        line=launch.line,
    )
