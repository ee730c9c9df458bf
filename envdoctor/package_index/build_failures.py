"""Reasons in setup.py of a source archive for which its build fails with the build tools of today."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from packaging.requirements import InvalidRequirement, Requirement

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.releases import normalize_name, parse_requirement
from envdoctor.knowledge.standard_library import find_name, removed_names
from envdoctor.knowledge.versions import satisfies
from envdoctor.package_index.build_needs import build_system, imports_of_script
from envdoctor.package_index.python_modules import parse_source
from envdoctor.package_index.source_archive import REQUIRES, SourceArchive
from envdoctor.resolution.index_facts import BuildFiles

# setuptools 58.0.0 removed use_2to3; CHANGES of setuptools, 2026-11-27. Python 3.12 and newer need a later one.
_WITHOUT_2TO3 = "58.0.0"
# setuptools 67.0.0 parses requirements by PEP 440 only; CHANGES of setuptools. Measured on 2026-11-27: gym 0.21.0.
_REFUSING = "67.0.0"
# Measured on 2026-11-27: PyYAML 5.4.1 with Cython 3.3.1 and with 0.29.
_WITHOUT_CYTHON_SOURCES = "3.0.0"
# The script installs or imports Cython itself, or builds without its extensions.
_WITHOUT_CYTHON = lazy_pattern(
    r"\boptional\b|BuildFailed|fetch_build_eggs|USE_CYTHON|(?:import|from) +Cython", re.IGNORECASE
)


class FailureOfBuild(NamedTuple):
    """A reason with its line in setup.py, and what cures it in a build without isolation; empty if nothing does."""

    reason: str
    line: int
    cured_by: tuple[str, ...] = ()


def failures_of_build(archive: SourceArchive, python: str = "") -> tuple[FailureOfBuild, ...]:
    """The reasons for which a build fails; empty if another backend builds the archive, or if it has no setup.py."""
    requires, backend = build_system(archive.texts.get("pyproject.toml", ""))
    text = archive.texts.get("setup.py", "")
    tree = parse_source(text)
    if tree is None or not backend.startswith("setuptools."):
        return ()
    named = {found.name: found.specifier for each in requires if (found := parse_requirement(each))}
    setuptools = named.get("setuptools", "")
    return (
        *_removed_modules(tree, python), *_removed_names(archive, tree, python), *_dict_attributes(tree),
        *_removed_options(tree, setuptools),
        *_refused_requirements(archive, setuptools), *_removed_method(text, named),
        *_untranslated(archive, tree, {*map(normalize_name, named)}),
    )  # fmt: skip


def build_files_of(archive: SourceArchive) -> BuildFiles:
    """What an archive states about its build."""
    requires, _ = build_system(archive.texts.get("pyproject.toml", ""))
    return BuildFiles(archive.name, archive.texts.get("setup.py", ""), requires)


def _removed_modules(tree: ast.Module, python: str) -> Iterator[FailureOfBuild]:
    """A module of the standard library that this Python no longer has; setuptools has a copy of distutils."""
    removed = {name: row for name, row in removed_names(python).items() if name != "distutils"} if python else {}
    for module, line in imports_of_script(tree):
        if found := find_name(removed, module, ""):
            version = found[1].version
            yield FailureOfBuild(f"imports {found[0]}, which Python {version} removed", line, (f"python<{version}",))
            return


def _removed_names(archive: SourceArchive, tree: ast.Module, python: str) -> Iterator[FailureOfBuild]:
    """A removed name of the standard library that setup.py, or a module next to it, uses when it is loaded."""
    removed = removed_names(python) if python else {}
    own = [("", 0), *(each for each in imports_of_script(tree) if "." not in each[0])] if removed else []
    for module, line in own:
        text = archive.texts.get(f"{module}.py") or archive.texts.get(f"{module}/__init__.py", "")
        loaded = parse_source(text) if module else tree
        for name, place in _names_at_load(loaded) if loaded else ():
            if row := removed.get(name):
                uses = f"imports {module}, which uses {name}" if module else f"uses {name}"
                reason = f"{uses}, which Python {row.version} removed"
                yield FailureOfBuild(reason, line or place, (f"python<{row.version}",))
                return


def _names_at_load(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The attributes of imported modules, `inspect.getargspec`, that code reads outside of functions and branches."""
    modules = {
        each.name for node in tree.body if isinstance(node, ast.Import) for each in node.names if not each.asname
    }
    statements = [
        each for each in tree.body if not isinstance(each, ast.FunctionDef | ast.ClassDef | ast.If | ast.Try)
    ]
    stored: set[str] = set()
    for statement in statements:
        for node in _outside_of_branches(statement):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
                name = f"{node.value.id}.{node.attr}"
                if isinstance(node.ctx, ast.Store):
                    stored.add(name)
                elif name not in stored:
                    yield name, node.lineno


def _dict_attributes(tree: ast.Module) -> Iterator[FailureOfBuild]:
    """An attribute of __builtins__ that is set in any case: `setuptools.build_meta` executes setup.py with a dict.

    Measured on 2026-11-27: pyworld 0.2.10 with pip 26.3, with and without isolation. pysptk 1.0.1 sets one only
    without Cython, which its build requires.
    """
    for node in _outside_of_branches(tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Attribute):
            continue
        target = node.targets[0]
        if isinstance(target.value, ast.Name) and target.value.id == "__builtins__":
            yield FailureOfBuild(f"sets __builtins__.{target.attr}, which fails in a build by PEP 517", node.lineno)
            return


def _removed_options(tree: ast.Module, setuptools: str) -> Iterator[FailureOfBuild]:
    if _excludes(setuptools, _WITHOUT_2TO3):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "use_2to3" and _constant(node.value) is True:
            yield FailureOfBuild("has use_2to3, which setuptools 58 removed", node.value.lineno, ("setuptools<58",))
            return


def _removed_method(script: str, named: Mapping[str, str]) -> Iterator[FailureOfBuild]:
    """A method of build_ext that Cython 3 no longer has, where the build takes the newest Cython."""
    found = re.search(r"self\.cython_sources\(", script)
    cython = next((specifier for name, specifier in named.items() if normalize_name(name) == "cython"), None)
    if found and cython is not None and not _excludes(cython, _WITHOUT_CYTHON_SOURCES):
        line = script.count("\n", 0, found.start()) + 1
        yield FailureOfBuild("calls cython_sources, which Cython 3 removed", line, ("cython<3",))


def _refused_requirements(archive: SourceArchive, setuptools: str) -> Iterator[FailureOfBuild]:
    """A requirement outside of PEP 440, which setup.py states: gym 0.21.0 has `opencv-python>=3.`."""
    if _excludes(setuptools, _REFUSING):
        return
    script = archive.texts.get("setup.py", "")
    listed = (text for path, text in archive.texts.items() if path.endswith(REQUIRES))
    for text in (line.strip() for each in listed for line in each.splitlines()):
        if text and not text.startswith("[") and text in script and _is_refused(text):
            line = script.count("\n", 0, script.index(text)) + 1
            yield FailureOfBuild(f"requires `{text}`, which setuptools {_REFUSING} and newer reject", line)
            return


def _is_refused(text: str) -> bool:
    try:
        Requirement(text)
    except InvalidRequirement:
        return True
    return False


def _excludes(specifier: str, version: str) -> bool:
    """Whether the range of a build requirement has neither a version nor later ones."""
    return bool(specifier) and satisfies(version, specifier) is False and satisfies("9999", specifier) is False


def _untranslated(archive: SourceArchive, tree: ast.Module, required: set[str]) -> Iterator[FailureOfBuild]:
    """Without Cython, setuptools compiles the C file of a Cython module, which the archive does not have."""
    script, options = (archive.texts.get(name, "") for name in ("setup.py", "setup.cfg"))
    is_required = "cython" in required | _setup_requires(tree) or "setup_requires" in options
    if is_required or _WITHOUT_CYTHON.search(script):
        return
    names = {path.rpartition("/")[2] for path in archive.untranslated}
    statements = [each for each in tree.body if not isinstance(each, ast.FunctionDef | ast.ClassDef)]
    for node in _outside_of_branches(ast.Module(statements, [])):
        value = _constant(node)
        if isinstance(value, str) and value.endswith(".pyx") and value.rpartition("/")[2] in names:
            reason = f"needs Cython for {value}, and does not require it for the build"
            yield FailureOfBuild(reason, getattr(node, "lineno", 1), ("cython",))
            return


def _setup_requires(tree: ast.Module) -> set[str]:
    """The packages of `setup_requires`; Cython as well where they are not a list of texts."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and (node.arg == "setup_requires" or node.arg is None):
            values = [_constant(each) for each in node.value.elts] if isinstance(node.value, ast.List) else [None]
            texts = [each for each in values if isinstance(each, str)]
            found.update(each.name for text in texts if (each := parse_requirement(text)))
            found.update(["cython"] if len(texts) < len(values) else [])
    return found


def _outside_of_branches(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, ast.If | ast.IfExp | ast.Try):
            yield node
            yield from _outside_of_branches(node)


def _constant(node: ast.AST) -> object:
    return node.value if isinstance(node, ast.Constant) else None
