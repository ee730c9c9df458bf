"""Imports of a set's old packages that its Python or its torch, torchvision or torchaudio no longer has."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator

from envdoctor.forecast.module_imports import ModuleImports
from envdoctor.forecast.set_names import SetNames
from envdoctor.forecast.wheels import Pin
from envdoctor.knowledge.standard_library import LibraryChange, find_name, removed_names
from envdoctor.knowledge.torch_removals import find_module, removed_modules
from envdoctor.resolution.index_facts import InstalledSet, RemovedImport

MAX_PACKAGES = 40  # of a set, of which the files are read; the oldest ones first
MAX_START = 2  # files that `import` of a package runs, of one whose modules are imported one by one
_OF_SETUPTOOLS = "distutils"  # setuptools has a copy


def removed_imports(names: SetNames, installed: InstalledSet) -> Iterator[RemovedImport]:
    """The first removed name that `import` of each package runs into, of packages older than its removal."""
    removed = removed_names(installed.python)
    if "setuptools" in installed.versions:
        removed = {name: row for name, row in removed.items() if name != _OF_SETUPTOOLS}
    if not removed:
        return
    last = max(row.released for row in removed.values())
    pins = (Pin(name, version) for name, version in installed.versions.items())
    old = sorted((day, pin) for pin in pins if (day := names.wheels.day(pin)) and day < last)
    for day, user in old[:MAX_PACKAGES]:
        imports = names.module_imports(user)
        gone = {name: row for name, row in removed.items() if day < row.released}
        if imports and (found := _first(imports, user.name, gone)):
            path, line, name, row = found
            since = f"Python {row.version}"
            yield RemovedImport(names.indexed(user), name, since, f"{path}:{line}", names.file_name(user))


def _first(
    imports: ModuleImports, package: str, removed: dict[str, LibraryChange]
) -> tuple[str, int, str, LibraryChange] | None:
    mentioning = imports.matching(_pattern(removed))
    if not mentioning:
        return None
    modules = {path: module for module, path in imports.paths.items()}
    # Python finds its own module before one of the same name in site-packages, such as that of pathlib 1.0.1.
    shadowed = sys.stdlib_module_names - removed.keys()
    for path in imports.loaded_files(package):
        if modules[path].partition(".")[0] in shadowed:
            continue
        for each in imports.imports_of(modules[path]) if path in mentioning else ():
            found = find_name(removed, each.module, each.name) if each.top not in imports.tops else None
            if found:
                return path, each.line, *found
    return None


def removed_torch_imports(names: SetNames, installed: InstalledSet) -> Iterator[RemovedImport]:
    """The first removed module of torch, torchvision or torchaudio that each package imports.

    Packages that are older than the removal are read, without their tests and optional parts.
    """
    removed = removed_modules(installed.torch_family)
    last = max((row.released for row in removed.values()), default="")
    pins = (Pin(name, version) for name, version in installed.versions.items())
    old = sorted((day, pin) for pin in pins if (day := names.wheels.day(pin)) and day < last)
    mentions = _pattern(removed)
    for _, user in old[:MAX_PACKAGES]:
        imports = names.module_imports(user)
        loaded = imports.loaded_files(user.name) if imports else {}
        modules = {path: module for module, path in imports.paths.items()} if imports else {}
        # Of a package that loads its modules itself, the others are optional.
        others = imports.other_files() if imports and len(loaded) <= MAX_START else ()
        mentioning = imports.matching(mentions) if imports else frozenset[str]()
        for path in dict.fromkeys((*loaded, *others)):
            if not imports or path not in mentioning:
                continue
            found = (
                (each, find_module(removed, each.module, each.name)) for each in imports.imports_of(modules[path])
            )
            used, name = next(((each, name) for each, name in found if name), (None, ""))
            if used:
                row = removed[name]
                version, place = f"{row.package} {row.version}", f"{path}:{used.line}"
                yield RemovedImport(
                    names.indexed(user), name, version, place, names.file_name(user), is_loaded=path in loaded
                )
                break


def _pattern(names: Collection[str]) -> re.Pattern[str]:
    """Import statements of one of these modules, or of these names of a module."""
    by_module: dict[str, list[str]] = {}
    for name in names:
        by_module.setdefault(name.rpartition(".")[0], []).append(name.rpartition(".")[2])
    parts = [rf"(?:from|import)[ \t]+(?:{'|'.join(map(re.escape, names)) or '(?!)'})\b"]
    for module, members in by_module.items():
        listed = "|".join(members)
        parts.append(rf"from[ \t]+{re.escape(module)}[ \t]+import[ \t]*(?:\([^)]*|[^\n]*)\b(?:{listed})\b")
    return re.compile(rf"^[ \t]*(?:{'|'.join(parts)})", re.MULTILINE)
