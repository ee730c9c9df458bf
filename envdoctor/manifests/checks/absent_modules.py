"""Checks on the modules of a checkout that its programs import, and that it does not have."""

from __future__ import annotations

import difflib
import posixpath
import re
import sys
from collections.abc import Iterator
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.module_names import packages_of_module
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.checks.evidence import guide_evidence, table_evidence
from envdoctor.manifests.checks.program_imports import named_packages, names_of_module
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.import_statements import ImportStatement
from envdoctor.manifests.made_files import can_come_from_elsewhere, is_ignored
from envdoctor.manifests.program_launches import Launch, Program
from envdoctor.rules.registry import Problem, rule

SEARCH = "https://docs.python.org/3/reference/import.html#the-module-cache"
_MODULE = (".py", ".pyx", ".pyi", ".so", ".pyd", ".cpp", ".cu", ".c", ".proto", ".in")
# Modules that a build, a generator or the reader makes.
MADE = lazy_pattern(
    r"_?version\w*|__\w+__|_C|_?ext\w*|\w*(?:_pb2\w*|_ext|_cuda|_cpp|_c|_kernels?|_ops?|_lib|_cy)|c?ython\w*|\w*ops"
    r"|(?:\w*_)?(?:secrets?|credentials?|keys?|local\w*|tokens?|config\w*|settings?)"
)
# Folders in the template of GitHub for .gitignore of Python that can be packages of a project (2026-11-28).
_OF_TEMPLATE = frozenset({"lib", "parts", "env", "var", "downloads"})
_CODE = lazy_pattern(r"^\s*[^\s#]", re.MULTILINE)
_BUILD = lazy_pattern(r"(?:.*/)?(?:setup\.py|CMakeLists\.txt|Makefile|\w+\.sh)")
_STARTS = lazy_pattern(r"\bsubprocess\b|\bos\.system\b|\bPopen\b")
_MAX_FINDINGS = 3
_MAX_PROGRAMS = 20
_LIKENESS = 0.7


class _Absent(NamedTuple):
    """A module that a file imports, and that the checkout does not have."""

    file: str
    statement: ImportStatement
    path: str  # of the module, without the suffix

    @property
    def module(self) -> str:
        """The module in the notation of an import."""
        statement = self.statement
        is_name = _is_module_as_name(statement, self.path)
        return "." * statement.level + statement.module + (f".{statement.name}" if is_name else "")


@rule("RUN237", kind="guide", severity=("error", "warning"), cause="dependency-pin-violated", url=SEARCH)
def program_imports_a_module_that_the_checkout_does_not_have(context: GuideContext) -> Iterator[Problem]:
    """A program imports a module of a package of its checkout, and no file of the checkout is this module.

    Programs are those that the commands start; a warning for those that another program starts. Imports under
    conditions, in a `try` with a handler, and modules that a build or the reader makes are left out.
    """
    checkout = context.guide.checkout
    named = {(each.program, each.folders): each for each in reversed(context.guide.launches) if each.line}
    launches = sorted((each for each in named.values() if each.program.is_python), key=lambda each: each.line)
    if checkout is None or not launches or not checkout.is_clone or not checkout.paths:
        return
    found: dict[str, Problem] = {}
    others = _started_by_programs(checkout, launches)
    for launch, is_direct in (*((each, True) for each in launches), *((each, False) for each in others)):
        for absent in _absent_of(context, checkout, launch):
            found.setdefault(absent.path, _problem(context, checkout, launch, absent, is_direct=is_direct))
    yield from list(found.values())[:_MAX_FINDINGS]


def _started_by_programs(checkout: Checkout, launches: list[Launch]) -> list[Launch]:
    """The programs whose file name the text of a started program has, which starts other processes."""
    found: dict[str, Launch] = {}
    for launch in launches:
        script = checkout.script(launch)
        text = checkout.text(script) if script.endswith(".py") else ""
        for name in re.findall(r"[\"'/}]([\w-]+\.py)[\"']", text) if _STARTS.search(text) else ():
            paths = [each for each in checkout.paths if posixpath.basename(each) == name and each != script]
            if len(paths) == 1 and "__main__" in checkout.text(paths[0]):
                found.setdefault(
                    paths[0], launch._replace(program=Program(script=paths[0]), folders=(checkout.root,))
                )
    return list(found.values())[:_MAX_PROGRAMS]


def _absent_of(context: GuideContext, checkout: Checkout, launch: Launch) -> Iterator[_Absent]:
    files = checkout.program_files(launch)
    if not files or any(checkout.source(each).changes_path for each in files):
        return
    folders = dict.fromkeys((posixpath.dirname(files[0]), *map(checkout.relative, launch.folders)))
    for file in files:
        for statement in checkout.source(file).imports:
            if statement.is_of_script and file != files[0]:
                continue
            path = _absent_path(checkout, file, statement, tuple(folders))
            if path and not _can_exist(context, checkout, path, statement):
                yield _Absent(file, statement, path)


def _absent_path(checkout: Checkout, file: str, statement: ImportStatement, folders: tuple[str, ...]) -> str:
    """The path of the first part of a dotted module that the package above it does not have; empty without one."""
    parts = statement.module.split(".")
    if statement.level:
        above = file.split("/")[: -statement.level]
        if len(file.split("/")) <= statement.level or not statement.module:
            return ""
        return _absent_part(checkout, "/".join(above), parts, statement.name)
    for folder in folders:
        top = posixpath.join(folder, parts[0])
        if f"{top}.py" in checkout.paths:
            return ""
        if _is_package(checkout, top, parts[0]):
            return _absent_part(checkout, top, parts[1:], statement.name)
    return parts[0] if len(parts) > 1 and _is_left_out(checkout, parts[0]) else ""


def _is_left_out(checkout: Checkout, name: str) -> bool:
    """Whether git ignores a folder of code by the usual template, so that no commit has it: `lib/`."""
    is_listed = name in _OF_TEMPLATE and not checkout.of_name(name) and not packages_of_module(name)
    return is_listed and is_ignored(checkout, name)


def _absent_part(checkout: Checkout, folder: str, parts: list[str], name: str) -> str:
    """The path of the first part that is not there; a name that is imported of an empty package is a module of it."""
    if absent := next(_missing_parts(checkout, folder, parts), ""):
        return absent
    package = posixpath.join(folder, *parts)
    is_module = any(f"{package}{suffix}" in checkout.paths for suffix in _MODULE)
    if not name.isidentifier() or is_module or _CODE.search(checkout.text(f"{package}/__init__.py")):
        return ""
    return next(_missing_parts(checkout, package, [name]), "")


def _is_module_as_name(statement: ImportStatement, path: str) -> bool:
    """Whether the absent module is the name of `from package import name`."""
    return statement.name == posixpath.basename(path) and statement.module.rpartition(".")[2] != statement.name


def _missing_parts(checkout: Checkout, folder: str, parts: list[str]) -> Iterator[str]:
    for part in parts:
        path = posixpath.join(folder, part)
        if any(f"{path}{suffix}" in checkout.paths for suffix in _MODULE):
            return
        if path not in checkout.paths:
            yield path
            return
        folder = path


def _is_package(checkout: Checkout, path: str, name: str) -> bool:
    """Whether a folder is a package: one without __init__.py does not replace an installed package of its name."""
    if path not in checkout.paths:
        return False
    if f"{path}/__init__.py" in checkout.paths:
        return True
    has_modules = any(each.startswith(f"{path}/") and each.endswith(".py") for each in checkout.paths)
    return has_modules and not packages_of_module(name) and name not in sys.stdlib_module_names


def _can_exist(context: GuideContext, checkout: Checkout, path: str, statement: ImportStatement) -> bool:
    """Whether a module can be elsewhere, be made by a build or a step, or belong to an installed package."""
    folder, name = posixpath.split(path)
    if MADE.fullmatch(name) or can_come_from_elsewhere(context.guide, checkout, f"{path}.py", ()):
        return True
    own = checkout.text(f"{folder}/__init__.py")
    if re.search(r"__path__|sys\.modules|__getattr__|import_module", own):
        return True
    dotted = statement.module.replace(".", "/")
    if _is_module_as_name(statement, path):
        dotted = f"{dotted}/{statement.name}"
    if not statement.level and any(f"/{each}".endswith((f"/{dotted}.py", f"/{dotted}")) for each in checkout.paths):
        return True
    if re.search(rf"\b{re.escape(name)}\b", "\n".join(context.guide.lines)) or _is_built(checkout, name):
        return True
    names = {each.name for step in context.trace.installs for each in step.action.requirements}
    if context.environments:
        names |= named_packages(context, context.environments[-1].state)
    return not statement.level and not names.isdisjoint(names_of_module(statement.top))


def _is_built(checkout: Checkout, name: str) -> bool:
    """Whether a build file of the checkout names a module."""
    files = (each for each in checkout.paths if _BUILD.fullmatch(each))
    return any(name in checkout.text(each) for each in sorted(files)[:_MAX_PROGRAMS])


def _problem(
    context: GuideContext, checkout: Checkout, launch: Launch, absent: _Absent, *, is_direct: bool
) -> Problem:
    folder, name = posixpath.split(absent.path)
    if not folder and _is_left_out(checkout, name):
        return Problem(
            "error" if is_direct else "warning",
            f"{absent.file}:{absent.statement.line} imports {absent.module}, and no commit has {name}: "
            ".gitignore lists it",
            (
                guide_evidence(context, "program", launch.command, launch.line),
                table_evidence("files", f"no {name}", "the checkout"),
            ),
            f"Get {name} from the author of the project: git leaves it out.",
            line=launch.line,
        )
    modules = [
        posixpath.basename(each).removesuffix(".py")
        for each in checkout.paths
        if posixpath.dirname(each) == folder and (each.endswith(".py") or "." not in posixpath.basename(each))
    ]
    near = next(iter(difflib.get_close_matches(name, sorted(modules), n=1, cutoff=_LIKENESS)), "")
    same = sorted(each for each in checkout.paths if posixpath.basename(each) == f"{name}.py")
    other = posixpath.join(folder, near) + ".py" if near else same[0] if len(same) == 1 else ""
    place = f"{absent.file}:{absent.statement.line}"
    return Problem(
        "error" if is_direct else "warning",
        f"{place} imports {absent.module}, and the checkout has no "
        f"{absent.path}.py" + (f"; {other} exists" if other else ""),
        (
            guide_evidence(context, "program", launch.command, launch.line),
            table_evidence("files", f"no {absent.path}.py", "the checkout"),
        ),
        f"Import the module {other.removesuffix('.py').replace('/', '.')}, if it is the one that is meant."
        if other
        else "Check out a commit that has the module, or remove the import.",
        line=launch.line,
    )
