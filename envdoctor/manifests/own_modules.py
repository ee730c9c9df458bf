"""The names that modules of a checkout can have."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.published import published_packages

CODE = (".py", ".pyx", ".so", ".pyi", ".pyd")
_WORD = lazy_pattern(r"[\"']([A-Za-z_][\w.-]*)[\"']")
_SUBMODULE = lazy_pattern(r"(?m)^\s*(?:path|url)\s*=\s*(\S+)")
# Packages with names that projects also give to modules of their own.
_USUAL = frozenset({"datasets", "evaluate", "kernels", "ray"})


def own_modules(paths: Collection[str], text: Callable[[str], str]) -> frozenset[str]:
    """The names that a module of the checkout can have in any directory, also of a build or a submodule."""
    found = {name.partition(".")[0] for name in _names(paths)}
    for build in (path for path in paths if path.endswith(("setup.py", "pyproject.toml", "setup.cfg"))):
        words = _WORD.findall(content) if "ext_modules" in (content := text(build)) else ()
        found |= {part.replace("-", "_") for word in words for part in word.split(".")}  # that a build compiles
    found |= {re.sub(r"\.git$", "", each).rpartition("/")[2] for each in _SUBMODULE.findall(text(".gitmodules"))}
    return frozenset(each.lower() for each in found) | frozenset(found)


def _names(paths: Collection[str]) -> Iterator[str]:
    """The names of code files, and of folders with code or without any file, which a submodule can fill."""
    folders = {path[: slash.start()] for path in paths for slash in re.finditer("/", path)}
    with_code = {path[: slash.start()] for path in paths if path.endswith(CODE) for slash in re.finditer("/", path)}
    for path in paths:
        name = path.rpartition("/")[2]
        is_possible = path in with_code or path not in folders
        if name.endswith(CODE) or ("." not in name and is_possible):
            yield name


def nested_modules(paths: Collection[str]) -> frozenset[str]:
    """The names of modules that only directories below the top have, as parts of packages.

    Also files with the name of a package of the index, without `__init__.py`: an import of `transformers` does not
    mean `models/transformers.py`. A directory of this name can be a copy of the package.
    """
    nested, others = set[str](), set[str]()
    for path in paths:
        folder, _, name = path.rpartition("/")
        if "." in name and not name.endswith(CODE):
            continue
        top = name.partition(".")[0]
        is_part = folder and (f"{folder}/__init__.py" in paths or (name != top and _is_of_index(top)))
        (nested if is_part else others).add(top)
    return frozenset(nested - others)


def _is_of_index(top: str) -> bool:
    return top in published_packages() and top not in _USUAL
