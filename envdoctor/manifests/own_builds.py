"""What the setup.py of a project on disk imports, and an isolated build of it lacks."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.releases import normalize_name
from envdoctor.knowledge.versions import satisfies
from envdoctor.manifests.markdown import Line
from envdoctor.resolution.requirement import parse_install_requirement

_MODULES = frozenset({"torch", "pkg_resources", "numpy", "Cython"})
_WITHOUT_PKG_RESOURCES = "82"  # of setuptools
_INSTALLS = lazy_pattern(r"\bpip3?\b|easy_install|ensurepip|os\.system|setup_requires|sys\.path")


def missing_imports(setup: tuple[Line, ...], pyproject: tuple[Line, ...]) -> tuple[tuple[str, int], ...]:
    """The modules that setup.py imports in any case and its build requirements do not bring, with their lines.

    Not after a line of code that installs something. What follows an import cannot help it: pip reads setup_requires
    by running the script.
    """
    text, requires = text_of(setup), _build_requirements(text_of(pyproject))
    if not text or requires is None:
        return ()
    parsed = [each for item in requires if (each := parse_install_requirement(item, 0))]
    brought = {normalize_name(each.name) for each in parsed}
    setuptools = next((each.specifier for each in parsed if each.name == "setuptools"), "")
    if setuptools and satisfies(_WITHOUT_PKG_RESOURCES, setuptools) is False:
        brought.add("pkg-resources")
    try:
        found = dict(_top_level_imports(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    code = [line.partition("#")[0] for line in text.split("\n")]
    installs = next((number for number, line in enumerate(code, 1) if _INSTALLS.search(line)), len(code) + 1)
    missing = ((each, line) for each, line in found.items() if normalize_name(each) not in brought)
    return tuple((each, line) for each, line in missing if line < installs)


def text_of(lines: tuple[Line, ...]) -> str:
    """The lines of a file as one text."""
    return "\n".join(text for _, text in lines)


def torch_of_build(pyproject: str) -> str | None:
    """The specifier of torch in the build requirements; None if they do not name it."""
    parsed = (parse_install_requirement(item, 0) for item in _build_requirements(pyproject) or ())
    return next((each.specifier for each in parsed if each and each.name == "torch"), None)


def _top_level_imports(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for each in reversed(tree.body):
        names = [alias.name for alias in each.names] if isinstance(each, ast.Import) else []
        names += [each.module or ""] if isinstance(each, ast.ImportFrom) and not each.level else []
        yield from ((root, each.lineno) for name in names if (root := name.partition(".")[0]) in _MODULES)


def _build_requirements(text: str) -> list[str] | None:
    """The build requirements of a pyproject.toml; None if its backend does not run setup.py, or it is not valid."""
    import tomllib

    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError):
        return None
    system = data.get("build-system")
    if not isinstance(system, dict):
        return []
    if "setuptools" not in str(system.get("build-backend", "setuptools")):
        return None
    requires = system.get("requires")
    return [str(each) for each in requires] if isinstance(requires, list) else []
