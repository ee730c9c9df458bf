"""The modules that setup.py of a source archive imports and that an isolated build of it does not have."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from typing import Any

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.releases import normalize_name, parse_requirement
from envdoctor.knowledge.versions import satisfies
from envdoctor.package_index.python_modules import Function, parse_source
from envdoctor.package_index.source_archive import REQUIRES, SourceArchive

# PEP 517: what a build without [build-system] has. https://packaging.python.org/specifications/pyproject-toml/
_DEFAULT_REQUIRES = ("setuptools>=40.8.0", "wheel")
# setuptools 82.0.0 of 2026-02-08 removed pkg_resources; it requires Python 3.9. CHANGES of setuptools, 2026-11-26.
_WITHOUT_PKG_RESOURCES, _PYTHON_OF_SETUPTOOLS_82 = "82.0.0", "3.9"
# What setuptools 71 and newer, which require Python 3.8, add to the search path from setuptools/_vendor: in each of
# the wheels of 71.0.0, 75.3.0, 80.9.0 and 84.2.1, 2026-11-29. The backend imports setuptools before setup.py.
_VENDORED = frozenset({"importlib_metadata", "more_itertools", "packaging", "platformdirs", "tomli", "wheel", "zipp"})
_WITH_VENDORED, _PYTHON_OF_SETUPTOOLS_71 = "71.0.0", "3.8"
_MODULES = {"setuptools": ("setuptools", "distutils", "_distutils_hack"), "cython": ("Cython",),
            "scikit-build": ("skbuild",), "setuptools-scm": ("setuptools_scm",), "pybind11": ("pybind11",),
            "oldest-supported-numpy": ("numpy",), "pyyaml": ("yaml",)}  # fmt: skip
_RUST = {"maturin", "setuptools-rust"}  # build backends that call cargo
_COMPILING_BACKENDS = ("mesonpy", "scikit_build_core", "skbuild")
_EXTENSIONS = lazy_pattern(r"\b(?:ext_modules|cythonize|Extension|CppExtension|Pybind11Extension|CMakeExtension)\b")
# Such as MarkupSafe: a build that fails is repeated without the extensions.
_OPTIONAL_EXTENSIONS = lazy_pattern(
    r"\boptional\b|BuildFailed|BuildExtFailed|CompileError|without_?(?:ext|speedups)", re.IGNORECASE
)
_MAX_DEPTH = 2  # of calls of functions of setup.py


def missing_build_modules(archive: SourceArchive, python: str) -> tuple[tuple[str, int], ...]:
    """The modules, with their lines in setup.py; empty if another backend builds the archive, or if it has none."""
    requires, backend = build_system(archive.texts.get("pyproject.toml", ""))
    tree = parse_source(archive.texts.get("setup.py", ""))
    if tree is None or not backend.startswith("setuptools."):
        return ()
    provided = set(sys.stdlib_module_names) | {"wheel"} | _own_modules(archive.paths) | _modules_of(requires)
    if _has_pkg_resources(requires, python):
        provided.add("pkg_resources")
    if not python or satisfies(python, f"<{_PYTHON_OF_SETUPTOOLS_71}") is not True:
        provided |= set() if _excludes_newest(requires, _WITH_VENDORED) else _VENDORED
    missing: dict[str, int] = {}
    for module, line in imports_of_script(tree):
        top = module.partition(".")[0]
        if top and top not in provided:
            missing.setdefault(top, line)
    return tuple(missing.items())


def source_requires(archive: SourceArchive) -> tuple[str, ...]:
    """The requirements without extras that setuptools has written into an archive; empty if it has written none."""
    text = next((text for path, text in archive.texts.items() if path.endswith(REQUIRES)), "")
    found: list[str] = []
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line.strip("[]")
        elif line and (not section or section.startswith(":")):
            found.append(f"{line}; {section[1:]}" if section else line)
    return tuple(found)


def needs_rust(archive: SourceArchive) -> bool:
    """Whether the build of an archive compiles Rust code."""
    requires, _ = build_system(archive.texts.get("pyproject.toml", ""))
    names = {normalize_name(found.name) for text in requires if (found := parse_requirement(text))}
    return bool(names & _RUST)


def needs_compiler(archive: SourceArchive) -> bool:
    """Whether the build of an archive compiles C code; False as well if its extensions are optional."""
    _, backend = build_system(archive.texts.get("pyproject.toml", ""))
    script = archive.texts.get("setup.py", "")
    has_extensions = backend.startswith(_COMPILING_BACKENDS) or bool(_EXTENSIONS.search(script))
    return archive.has_c_code and has_extensions and not _OPTIONAL_EXTENSIONS.search(script)


def build_system(text: str) -> tuple[tuple[str, ...], str]:
    """The build requirements and the backend of a pyproject.toml, with the defaults of PEP 517."""
    try:
        table: Any = tomllib.loads(text).get("build-system")
    except tomllib.TOMLDecodeError:
        table = None
    if not isinstance(table, dict):
        return _DEFAULT_REQUIRES, "setuptools.build_meta:__legacy__"
    requires, backend = table.get("requires"), table.get("build-backend")
    texts = tuple(each for each in requires if isinstance(each, str)) if isinstance(requires, list) else ()
    return texts or _DEFAULT_REQUIRES, backend if isinstance(backend, str) else "setuptools.build_meta:__legacy__"


def _own_modules(paths: Iterable[str]) -> set[str]:
    """The modules of the archive in any of its folders: setup.py may add one of them to sys.path."""
    return {part.removesuffix(".py") for path in paths for part in path.split("/")}


def _modules_of(requires: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for text in requires:
        requirement = parse_requirement(text)
        name = normalize_name(requirement.name if requirement else re.split(r"[^\w.-]", text, maxsplit=1)[0])
        found.update(_MODULES.get(name, ()), (name.replace("-", "_"), name.replace("-", ".").partition(".")[0]))
    return found


def _has_pkg_resources(requires: Iterable[str], python: str) -> bool:
    """Whether the setuptools of the build, the newest in its range, has pkg_resources."""
    if python and satisfies(python, f"<{_PYTHON_OF_SETUPTOOLS_82}"):
        return True
    return _excludes_newest(requires, _WITHOUT_PKG_RESOURCES)


def _excludes_newest(requires: Iterable[str], first: str) -> bool:
    """Whether the build requirements exclude this release of setuptools and the newest ones."""
    bounds = [
        found.specifier for text in requires if (found := parse_requirement(text)) and found.name == "setuptools"
    ]
    return any(all(satisfies(version, bound) is False for version in (first, "9999")) for bound in bounds)


def imports_of_script(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The imports that running the script reaches without a condition, also in the functions that it calls."""
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, Function)}
    yield from _reached(tree.body, functions, _MAX_DEPTH)


def _reached(
    body: Iterable[ast.stmt], functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef], depth: int
) -> Iterator[tuple[str, int]]:
    for node in body:
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from [] if node.level else [(node.module or "", node.lineno)]
        elif isinstance(node, ast.Try):
            yield from _imports_in_all_branches(node, functions, depth)
        elif isinstance(node, ast.With) or (isinstance(node, ast.If) and _is_main(node.test)):
            yield from _reached(node.body, functions, depth)
        elif not isinstance(node, ast.If | ast.ClassDef | Function | ast.For | ast.While) and depth:
            called = {each.func.id for each in ast.walk(node)
                      if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)}  # fmt: skip
            for name in sorted(called & functions.keys()):
                yield from _reached(functions[name].body, functions, depth - 1)


def _imports_in_all_branches(
    node: ast.Try, functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef], depth: int
) -> Iterator[tuple[str, int]]:
    """The imports of `try` whose package each handler imports as well: no branch works without it."""
    handlers = [{module.partition(".")[0] for module, _ in _reached(each.body, functions, depth)}
                for each in node.handlers]  # fmt: skip
    for module, line in _reached(node.body, functions, depth):
        if handlers and all(module.partition(".")[0] in tops for tops in handlers):
            yield module, line


def _is_main(test: ast.expr) -> bool:
    return ast.unparse(test) == "__name__ == '__main__'"
