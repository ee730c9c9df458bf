"""Modules that old releases of a set import when they are loaded, and that no package of the set has."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence

from envdoctor.core.patterns import lazy_pattern
from envdoctor.forecast.module_imports import ModuleImports
from envdoctor.forecast.module_packages import absent_modules, modules_of_releases
from envdoctor.forecast.set_names import SetNames, distributions_of
from envdoctor.forecast.wheels import Pin
from envdoctor.knowledge.module_names import packages_of_module
from envdoctor.knowledge.releases import normalize_name, parse_requirement
from envdoctor.knowledge.standard_library import removed_names
from envdoctor.knowledge.versions import satisfies
from envdoctor.resolution.index_facts import CodeImport, InstalledSet, UndeclaredImport, UseKind

_ALL_PYTHONS = "3.99"  # whose removed modules are those of each version
# Modules of these are there with Python, with torch, or are divided among several projects.
_SHARED = frozenset({
    "torch", "torchgen", "functorch", "caffe2", "torchvision", "torchaudio", "triton", "pip", "setuptools", "wheel",
    "pkg_resources", "distutils", "_distutils_hack", "google", "azure", "nvidia", "opentelemetry", "ruamel", "zope",
    "sphinxcontrib", "backports", "jaraco", "paste", "intel", "mpl_toolkits", "IPython", "__main__",
})  # fmt: skip
_WITHOUT_SETUPTOOLS = ">=3.12"  # Pythons whose new environments have no setuptools, and so no pkg_resources
_BUILD_FILES = lazy_pattern(r"(?:^|/)setup\.py$")

_Import = tuple[UseKind, CodeImport]


def undeclared_imports(names: SetNames, installed: InstalledSet) -> Iterator[UndeclaredImport]:
    """The imports of old releases, which a dependency provided that no longer does; each module of a release once.

    A release works with the newest dependencies of its own day: those of new releases are not read.
    """
    users, _ = names.old_releases(installed)
    names.wheels.read_sources(user for user in users if names.has_wheel(user))
    found = {user: _unknown_imports(names, user, installed) for user in _loaded_users(names, users, installed)}
    found = {user: each for user, each in found.items() if each}
    required = {user: _required(names, user) for user in found}
    for user, each in found.items():
        found[user] = {top: used for top, used in each.items() if required[user].isdisjoint(_packages_of(top))}
    pins = {
        Pin(name, installed.versions[name]) for name in installed.versions.keys() & set().union(*required.values())
    }
    modules = modules_of_releases(names.wheels, sorted(pins)) if any(found.values()) else {}
    for user, each in found.items():
        given = frozenset[str]().union(*(tops or () for pin, tops in modules.items() if pin.name in required[user]))
        found[user] = {top: used for top, used in each.items() if top not in given}
    tops = {top for each in found.values() for top in each}
    everything = [Pin(name, version) for name, version in installed.versions.items()]
    absent = absent_modules(names.wheels, everything, tops) if tops else frozenset[str]()
    parts = _parts(names, users, installed) if absent else frozenset[str]()
    for user, each in found.items():
        for top, (kind, used) in each.items():
            if top in absent and (kind == "code" or user.name not in parts):
                place = f"{used.file}:{used.line}"
                yield UndeclaredImport(names.indexed(user), top, place, names.file_name(user), kind)


def _loaded_users(names: SetNames, users: list[Pin], installed: InstalledSet) -> Iterator[Pin]:
    """The named packages, and the dependencies that these or the code load: others can be parts that nothing uses."""
    tops = _loaded_tops(names, [user for user in users if user.name in installed.named], installed)
    for user in users:
        imports = names.module_imports(user)
        if user.name in installed.named or (imports and not imports.tops.isdisjoint(tops)):
            yield user


def _loaded_tops(names: SetNames, users: list[Pin], installed: InstalledSet) -> set[str]:
    """The modules that the code and the import of some packages load."""
    tops = {each.top for each in installed.imports}
    for user in users:
        if imports := names.module_imports(user):
            tops |= {each.top for _, each in _loaded_imports(imports, user, installed)}
    return tops


def _parts(names: SetNames, users: list[Pin], installed: InstalledSet) -> frozenset[str]:
    """The named packages that others require and nothing loads: a list of all packages names them too."""
    pins = [Pin(name, version) for name, version in installed.versions.items()]
    names.wheels.read_metadata(pins)
    required = frozenset[str]().union(*(_required(names, pin) - {pin.name} for pin in pins))
    named = [user for user in users if user.name in installed.named]
    found = set()
    for user in named:
        imports = names.module_imports(user)
        others = [other for other in named if other != user]
        if user.name in required and imports and imports.tops.isdisjoint(_loaded_tops(names, others, installed)):
            found.add(user.name)
    return frozenset(found)


def _unknown_imports(names: SetNames, user: Pin, installed: InstalledSet) -> dict[str, _Import]:
    """The imports of a release whose modules neither it, nor the standard library, nor a known package has."""
    imports = names.module_imports(user)
    if imports is None:
        return {}
    known = {*distributions_of(installed), *sys.stdlib_module_names, *removed_names(_ALL_PYTHONS), *_SHARED}
    if satisfies(installed.python, _WITHOUT_SETUPTOOLS) is True:
        known.discard("pkg_resources")
    own = _own_words(imports)
    found: dict[str, _Import] = {}
    for kind, used in _loaded_imports(imports, user, installed):
        is_known = used.top in known or used.top in own or used.top in found
        if not is_known and _packages_of(used.top).isdisjoint(installed.versions):
            found[used.top] = kind, used
    return found


def _packages_of(top: str) -> frozenset[str]:
    """The packages that can have a module, by its name."""
    known = packages_of_module(top)
    return frozenset((normalize_name(top), *(known.packages if known else ())))


def _own_words(imports: ModuleImports) -> frozenset[str]:
    """The names of the files and folders of a wheel, and those in its setup.py: code can change the search path."""
    paths = (*imports.sources.paths, *imports.sources.compiled)
    words = {part.partition(".")[0] for path in paths for part in path.split("/")}
    builds = (imports.sources.read(path) for path in imports.sources.paths if _BUILD_FILES.search(path))
    return frozenset(words | {word for text in builds for word in re.findall(r"[A-Za-z_]\w*", text)})


def _loaded_imports(imports: ModuleImports, user: Pin, installed: InstalledSet) -> Iterator[_Import]:
    """The first import of each module that `import` of a package runs, and that the modules that code imports run."""
    of_code = imports.modules_of(each for each in installed.imports if each.top in imports.tops)
    starts: dict[UseKind, Sequence[str]] = {"import": imports.starts(user.name), "code": of_code}
    for kind, modules in starts.items():
        yield from ((kind, each) for each in imports.first_imports(modules).values())


def _required(names: SetNames, user: Pin) -> frozenset[str]:
    """The packages that a release requires without an extra; those are missing only after --no-deps."""
    metadata = names.wheels.metadata(user) if names.has_wheel(user) else None
    texts = metadata.requires if metadata else ()
    parsed = (parse_requirement(text) for text in texts if "extra ==" not in text.replace("'", '"'))
    return frozenset(each.name for each in parsed if each)
