"""The imports that loading a module of a wheel runs: those at its top level that nothing guards."""

from __future__ import annotations

import ast
import hashlib
import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping

from envdoctor.core.import_guards import permits_absence
from envdoctor.core.patterns import lazy_pattern
from envdoctor.forecast.kept_imports import KeptImports, ParsedModule
from envdoctor.forecast.uses import catches_missing, imported_tops
from envdoctor.package_index.python_library import module_name
from envdoctor.package_index.python_modules import absolute_module, parse_source
from envdoctor.package_index.version_assertions import AcceptedReleases, accepted_releases
from envdoctor.package_index.wheel_sources import WheelSources
from envdoctor.resolution.index_facts import CodeImport

MAX_MODULES = 400  # that are parsed of one wheel
_MAX_BYTES = 12 << 20
_OTHER = lazy_pattern(
    r"(?:^|/)(?:tests?|testing|test_utils|benchmarks?|examples?|demos?|_?vendor(?:ed)?|third_party|scripts?|docs?"
    r"|contrib|integrations?|plugins?|backends?|community|deprecated|experimental|conftest\.py|test_\w+\.py"
    r"|\w+_test\.py)(?:/|$)"
)
_SCRIPT = lazy_pattern(r"^if __name__ ==", re.MULTILINE)  # which users of the package do not import


class ModuleImports:
    """The imports of the modules of one wheel. `kept` has what is known of them, and takes what is read."""

    def __init__(self, sources: WheelSources, kept: KeptImports) -> None:
        self.sources = sources
        self.kept = kept
        self.is_changed = False
        paths = (path for path in reversed(sources.paths) if path != "setup.py")  # of a source archive
        self.paths = {module_name(path): path for path in paths}
        self.tops = frozenset(module.partition(".")[0] for module in self.paths)
        self._parsed: dict[str, tuple[CodeImport, ...]] = {}
        self._matching: dict[str, frozenset[str]] = {}
        self._loaded: dict[tuple[str, bool], dict[str, None]] = {}
        self._first: dict[tuple[str, ...], dict[str, CodeImport]] = {}
        self._bytes = 0

    def loaded(self, module: str, *, is_certain: bool = False) -> dict[str, None]:
        """The modules of the wheel that importing one of them loads, in this order.

        With `is_certain` without those that it loads only where an optional package is there.
        """
        if (module, is_certain) not in self._loaded:
            self._loaded[module, is_certain] = self._load(module, is_certain=is_certain)
        return self._loaded[module, is_certain]

    def _load(self, module: str, *, is_certain: bool) -> dict[str, None]:
        found: dict[str, None] = {}
        waiting = deque([module])
        queued, named = {module}, set[str]()
        while waiting and len(found) < MAX_MODULES:
            current = waiting.popleft()
            if current not in self.paths:
                continue
            found[current] = None
            for each in self.imports_of(current):
                if each.top in self.tops and not (is_certain and each.is_optional):
                    full = f"{each.module}.{each.name}" if each.name else each.module
                    above = () if each.module in named else (*_parents(each.module), each.module)
                    named.add(each.module)
                    for one in (*above, full):
                        if one not in queued:
                            queued.add(one)
                            waiting.append(one)
        return found

    def first_imports(self, starts: Iterable[str]) -> Mapping[str, CodeImport]:
        """The first import of each top-level module that loading these modules certainly runs."""
        key = tuple(starts)
        if key not in self._first:
            found: dict[str, CodeImport] = {}
            for module in dict.fromkeys(each for start in key for each in self.loaded(start, is_certain=True)):
                for each in self.imports_of(module):
                    if not each.is_optional:
                        found.setdefault(each.top, each)
            self._first[key] = found
        return self._first[key]

    def loaded_files(self, package: str) -> dict[str, int]:
        """The files that `import` of the package runs, with their order."""
        starts = self.starts(package)
        loaded = dict.fromkeys(self.paths[module] for start in starts for module in self.loaded(start))
        return {path: number for number, path in enumerate(loaded)}

    def starts(self, package: str) -> list[str]:
        """The modules that `import` of the package loads first."""
        own = package.replace("-", "_")
        if own in self.paths:
            return [own]
        tops = [top for top in sorted(self.tops) if top in self.paths]
        packages = [top for top in tops if self.paths[top].endswith("/__init__.py")]
        return packages if self.sources.is_archive and packages else tops  # next to packages, it has scripts

    def modules_of(self, imports: Iterable[CodeImport]) -> tuple[str, ...]:
        """The modules that imports of code name, also with a name that a package loads when it is used."""
        found: set[str] = set()
        lazy: dict[str, set[str]] = {}
        for each in imports:
            full = f"{each.module}.{each.name}" if each.name else each.module
            found |= {module for module in (each.module, full) if module in self.paths}
            if each.name and full not in self.paths and not self._provides(each.module, each.name):
                lazy.setdefault(each.module, set()).add(each.name)
        return tuple(sorted(found.union(*(self._defining(package, names) for package, names in lazy.items()))))

    def _provides(self, module: str, name: str) -> bool:
        """Whether loading a module imports a name into it."""
        return module in self.paths and any(each.name == name for each in self.imports_of(module))

    def _defining(self, package: str, names: Collection[str]) -> Iterator[str]:
        """The modules of a package that define names at their top level, each by one module of the wheel alone.

        Another one can be a substitute, which the package loads without an optional package.
        """
        defined = re.compile(rf"^(?:class|def|async def)[ \t]+({'|'.join(sorted(names))})\b", re.MULTILINE)
        matching = self.matching(defined)
        modules: dict[str, list[str]] = {}
        for module, path in self.paths.items():
            if path in matching:
                for name in set(defined.findall(self.sources.read(path))):
                    modules.setdefault(name, []).append(module)
        return (each[0] for each in modules.values() if len(each) == 1 and each[0].startswith(f"{package}."))

    def other_files(self) -> Iterator[str]:
        """The files of the modules, without tests, scripts and optional parts."""
        scripts = self.matching(_SCRIPT)
        for path in self.paths.values():
            if not _OTHER.search(path) and path not in scripts:
                yield path

    def matching(self, pattern: re.Pattern[str]) -> frozenset[str]:
        """The files with a text that a pattern matches."""
        key = hashlib.sha256(f"{pattern.flags} {pattern.pattern}".encode()).hexdigest()[:16]
        if key not in self.kept.matching:
            found = (path for path in self.paths.values() if pattern.search(self.sources.read(path)))
            self.kept.matching[key] = tuple(found)
            self.is_changed = True
        if key not in self._matching:
            self._matching[key] = frozenset(self.kept.matching[key])
        return self._matching[key]

    def names_module(self, module: str) -> bool:
        """Whether its modules, without tests and optional parts, import a module of another wheel or one above it.

        What a package provides can be loaded from any of its modules: `from a import B` can be of `a.b`.
        """
        parts = module.split(".")
        above = "|".join(re.escape(".".join(parts[:count])) for count in range(1, len(parts)))
        statement = rf"^[ \t]*(?:from|import)[ \t]+(?:{re.escape(module)}\b|(?:{above})(?![\w.]))"
        return not all(map(_OTHER.search, self.matching(re.compile(statement, re.MULTILINE))))

    def accepted_releases(self, path: str) -> tuple[AcceptedReleases, ...]:
        """The assertions on versions that importing a file always evaluates."""
        if path not in self.kept.accepted:
            self.kept.accepted[path] = tuple(accepted_releases(self.sources.read(path)))
            self.is_changed = True
        return self.kept.accepted[path]

    def external_tops(self) -> tuple[str, ...]:
        """The top-level modules of other packages that its modules, without tests and optional parts, import."""
        if self.kept.external is None:
            texts = (self.sources.read(path) for path in self.paths.values() if not _OTHER.search(path))
            self.kept.external = tuple(sorted({top for text in texts for top in imported_tops(text)} - self.tops))
            self.is_changed = True
        return self.kept.external

    def imports_of(self, module: str) -> tuple[CodeImport, ...]:
        """The imports that loading one module runs."""
        if module not in self._parsed:
            self._parsed[module] = self._parse(module)
        return self._parsed[module]

    def _parse(self, module: str) -> tuple[CodeImport, ...]:
        path = self.paths[module]
        kept = self.kept.modules.get(module)
        text = "" if kept else self.sources.read(path)
        self._bytes += kept.size if kept else len(text)
        if len(self._parsed) > MAX_MODULES or self._bytes > _MAX_BYTES:
            return ()
        if kept is None:
            tree = parse_source(text)
            package = module if path.endswith("__init__.py") else module.rpartition(".")[0]
            imports = tuple(_imports(tree.body, path, package)) if tree else ()
            if module in self.sources.compiled_modules:  # the module is loaded in place of its source
                imports = tuple(each for each in imports if each.top != "cython")
            kept = ParsedModule(len(text), imports)
            self.kept.modules[module] = kept
            self.is_changed = True
        return kept.imports


def _imports(body: Iterable[ast.stmt], path: str, package: str) -> Iterator[CodeImport]:
    for node in body:
        if isinstance(node, ast.Import):
            yield from (CodeImport(node.lineno, alias.name, file=path) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = absolute_module(package, node.level, node.module or "")
            names = ("" if alias.name == "*" else alias.name for alias in node.names)
            yield from (CodeImport(node.lineno, module, name, path) for name in names)
        elif isinstance(node, ast.Try) and not any(catches_missing(handler) for handler in node.handlers):
            # With `if not is_flax_available(): raise`, the else part runs only where an optional package is there.
            is_optional = any(isinstance(each, ast.Raise) for part in node.body for each in ast.walk(part))
            yield from _imports(node.body, path, package)
            for each in _imports(node.orelse, path, package):
                yield each._replace(is_optional=each.is_optional or is_optional)
            yield from _imports(node.finalbody, path, package)
        elif isinstance(node, ast.With) and not permits_absence(node):
            yield from _imports(node.body, path, package)


def _parents(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]
