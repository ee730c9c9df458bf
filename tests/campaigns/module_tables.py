"""Write envdoctor/knowledge/modules/: the modules, and their names, that only some releases of a library have.

    PYTHONPATH=tests python tests/campaigns/module_tables.py STORE [MODULE ...]

The libraries, by default all of module_packages.txt, are those that training and serving code imports. STORE is a
folder for the Python files of their releases, of which only the changed ones are requested. `--step read` or
`--step table` runs one of the steps.

A module is present if a file or folder of the wheel has its path. A name is absent only if its module is there and
cannot provide it. Unknown are the names of a module that creates names when it is loaded, and of one with
`from X import *` of a compiled module. Private names, tests and compiled modules are left out: a broken build and a
folder with sources lack compiled modules of every release.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import re
from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Literal, NamedTuple

from campaigns.names_set_elsewhere import MODULE_SINCE, SET_BEFORE, SET_SINCE, with_later
from campaigns.release_store import Store, StoredSources, listed_packages, read_all

from envdoctor.knowledge.installed import BUNDLED
from envdoctor.package_index.module_getattr import ModuleGetattr
from envdoctor.package_index.python_library import module_name
from envdoctor.package_index.python_modules import parse_module, parse_source

NONE: frozenset[str] = frozenset()
LIST = Path(__file__).with_name("module_packages.txt")
SKIPPED = re.compile(
    r"(?:^|\.)(?:_?tests?|testing|conftest|benchmarks?|examples?|setup|docs?|_vendor\w*|distutils|dummy_\w+|_version|library)(?:\.|$)"
)
QUOTED = re.compile(r"""["'](\w+)["']""")
EXTENSION = re.compile(r"(\.[\w-]+)?\.(?:so|pyd)$")
OPENNESS = ("closed", "python", "open")
IGNORED = {"TYPE_CHECKING", "logger", "annotations"}
MAKES_NAMES = re.compile(r"^(?!def )(?:.*\W)?(?:globals\(\)|vars\(|exec\(|setattr\(|\w+\.__dict__\[)", re.MULTILINE)
MODULE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
LAZY = re.compile(r"_LazyModule|lazy_loader|_import_structure|lazy\.attach")
ASSIGNED = re.compile(r"^(\w+)[ \t]*(?::[^=\n]+)?=[^=]", re.MULTILINE)
NOT_RUN = re.compile(
    r"^if (?:(?:typing|t)\.)?(?:TYPE_CHECKING|__name__ == ['\"]__main__['\"]):[^\n]*\n(?:[ \t]+[^\n]*\n|[ \t]*\n)*",
    re.MULTILINE,
)
MAX_DEPTH = 5  # parts of a module whose names have rows
NO_NAMES = {  # modules that the library itself uses, with thousands of names
    "vllm": re.compile(r"vllm\.(?:model_executor\.models|third_party|benchmarks|entrypoints\.cli)\."),
    "sglang": re.compile(r"sglang\.(?:srt\.models|multimodal_gen)\.|sglang\.bench"),
    "transformers": re.compile(
        r"transformers\.models\.\w+\.(?:convert|modeling_(?:tf|flax))|transformers\.utils\.dummy"
    ),
}  # fmt: skip

State = Literal["present", "absent", "unknown"]


class FileNames(NamedTuple):
    """What one file provides."""

    own: frozenset[str]  # classes, functions and values that it defines
    imported: frozenset[str]  # names of its package
    others: frozenset[str]  # private names, those of other packages, and variables of loops
    stars: tuple[str, ...]
    exported: frozenset[str] | None  # __all__; None: it is not a list of literals
    has_all: bool
    openness: Literal["closed", "python", "open"]
    is_lazy: bool
    quoted: frozenset[str]  # of a module that makes or lists its names


class Provided(NamedTuple):
    """The names of a module: certain ones, others that it may have, and which further ones it may have."""

    sure: frozenset[str]
    maybe: frozenset[str]
    openness: Literal["closed", "python", "open"]  # further names: none, those of its Python files, any


class ReleaseModules:
    """The modules and names of a stored release; `parsed` has the files of other releases."""

    def __init__(self, sources: StoredSources, top: str, parsed: dict[tuple[str, str], FileNames | None]) -> None:
        self.sources, self.top, self.parsed = sources, top, parsed
        self.paths = {module_name(path): path for path in reversed(sources.paths) if is_part_of(path, top)}
        compiled = (EXTENSION.sub("", path) for path in sources.compiled if is_part_of(path, top))
        self.compiled = {path.replace("/", ".") for path in compiled}
        every = [*self.paths, *self.compiled]
        self.modules = frozenset(parent for module in every for parent in parents(module))
        self._provided: dict[str, Provided] = {}

    def file_names(self, module: str) -> FileNames | None:
        """What the file of a module provides; None if it does not parse."""
        path = self.paths[module]
        key = module, self.sources.keys[path]
        if key not in self.parsed:
            self.parsed[key] = read_names(self.sources.read(path), module, is_package=path.endswith("__init__.py"))
        return self.parsed[key]

    @cached_property
    def defined(self) -> frozenset[str]:
        """The names that some file of the release defines."""
        files = (self.file_names(module) for module in self.paths)
        return frozenset().union(*(found.own for found in files if found))

    def provided(self, module: str, seen: tuple[str, ...] = ()) -> Provided:
        """The names of a module."""
        if module in self._provided:
            return self._provided[module]
        if module not in self.paths:  # a compiled module, a folder, or one of another package
            is_folder = module in self.modules and module not in self.compiled
            return Provided(NONE, NONE, "closed" if is_folder else "open")
        found = self.file_names(module)
        if found is None or module in seen:
            return Provided(NONE, NONE, "closed" if found else "open")
        sure, maybe = found.own | found.imported | found.others, found.quoted
        sure |= found.quoted & self.defined if found.is_lazy else NONE
        openness = found.openness
        for star in found.stars:
            more = self.provided(star, (*seen, module))
            exported = self.exported(star)
            if exported is None:
                maybe |= more.sure | more.maybe
            else:
                sure |= exported
            if not self.has_list(star):
                openness = max(openness, more.openness, key=OPENNESS.index)
        if not seen:
            self._provided[module] = Provided(sure, maybe, openness)
        return Provided(sure, maybe, openness)

    def has_list(self, module: str) -> bool:
        """Whether `from MODULE import *` imports the names of a literal list."""
        found = self.file_names(module) if module in self.paths else None
        return found is not None and found.exported is not None

    def exported(self, module: str) -> frozenset[str] | None:
        """The names that `from MODULE import *` imports; None if they are unknown."""
        found = self.file_names(module) if module in self.paths else None
        if found is None or (found.has_all and found.exported is None):
            return None
        if found.exported is not None:
            return found.exported
        return frozenset(name for name in self.provided(module, ("",)).sure if not name.startswith("_"))

    def public_names(self, module: str) -> frozenset[str]:
        """The names of a module that other projects may import from it."""
        found = self.file_names(module)
        if found is None:
            return NONE
        is_package = self.paths[module].endswith("__init__.py")
        is_used = is_package or (module.count(".") < 3 and "._" not in module)
        names = found.own | (found.imported & self.defined if is_used else NONE)
        names |= found.quoted & self.defined if found.is_lazy else NONE
        for star in found.stars:
            more = self.file_names(star) if star in self.paths else None
            exported = self.exported(star)
            names |= (more.own | (more.imported & self.defined)) & exported if more and exported is not None else NONE
        return frozenset(name for name in names if not name.startswith("_") and name not in IGNORED)


def is_part_of(path: str, top: str) -> bool:
    """Whether a file is the top-level module or in its folder."""
    module = module_name(EXTENSION.sub("", path))
    is_own = module == top or module.startswith(f"{top}.")
    return is_own and MODULE.fullmatch(module) is not None and not SKIPPED.search(module)


def parents(module: str) -> Iterator[str]:
    """The packages that contain a module, and the module."""
    parts = module.split(".")
    return (".".join(parts[: end + 1]) for end in range(len(parts)))


def read_names(text: str, module: str, *, is_package: bool) -> FileNames | None:
    """The names of one file; None if this Python cannot parse it."""
    is_lazy = LAZY.search(text) is not None
    # The names of these blocks do not exist when the module is imported.
    run = text if is_lazy else NOT_RUN.sub("if 0:\n    pass\n", text)
    found = parse_module(run, module, is_package=is_package) or parse_module(text, module, is_package=is_package)
    if found is None:
        return None
    top = module.partition(".")[0]
    own, imported, others = set(), set(), set()
    assigned = set(ASSIGNED.findall(text))
    for name, each in found.names.items():
        if each.kind == "import":
            is_own = each.module.partition(".")[0] == top and each.name
            (imported if is_own else others).add(name)
        else:
            is_name = each.kind != "value" or (name in assigned and len(name) > 2)
            (own if is_name and not name.startswith("_") else others).add(name)
    has_all = re.search(r"\b__all__\b", text) is not None
    listed = listed_names(text) if has_all else None
    makes_names = is_lazy or "__getattr__" in text
    quoted = frozenset(QUOTED.findall(text)) if makes_names else NONE
    if makes_names and not is_lazy:
        getattr_of_module = ModuleGetattr(text, module, is_package=is_package, read=lambda _: None)
        outcomes = {name: getattr_of_module.outcome(name) for name in quoted - found.names.keys()}
        own |= {name for name, outcome in outcomes.items() if outcome == "returns"}
        quoted -= {name for name, outcome in outcomes.items() if outcome == "raises"}
    openness: Literal["closed", "python", "open"] = "closed"
    if found.is_dynamic:
        openness = "open" if "__getattr__" not in found.names or MAKES_NAMES.search(text) else "python"
    return FileNames(
        frozenset(own), frozenset(imported), frozenset(others), found.stars, listed, has_all,
        "python" if is_lazy else openness, is_lazy, quoted,
    )  # fmt: skip


def listed_names(text: str) -> frozenset[str] | None:
    """The names of __all__; None if it is not a literal."""
    tree = parse_source(text)
    listed: set[str] = set()
    for node in tree.body if tree else ():
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(each, ast.Name) and each.id == "__all__" for each in targets):
            try:
                listed |= set(ast.literal_eval(node.value))  # type: ignore[attr-defined]
            except (ValueError, TypeError):
                return None
        elif isinstance(node, ast.Expr) and "__all__" in ast.unparse(node):  # __all__.extend(...)
            return None
    return frozenset(listed) or None


def states_of_modules(releases: Sequence[ReleaseModules]) -> dict[str, list[State]]:
    """The presence of each module in each release. One that moves with its package has no row of its own."""
    found: dict[str, list[State]] = {}
    for module in sorted(frozenset().union(*(each.modules for each in releases))):
        parent = module.rpartition(".")[0]
        states: list[State] = [
            "present" if module in each.modules
            else "unknown" if parent and (parent not in each.modules or is_made_by(each, parent, module))
            else "absent"
            for each in releases
        ]  # fmt: skip
        found[module] = with_later(states) if MODULE_SINCE.fullmatch(module) else states
    return found


def is_made_by(release: ReleaseModules, parent: str, module: str) -> bool:
    """Whether a package may put a module of this name into sys.modules."""
    if parent not in release.paths:
        return False
    text = release.sources.read(release.paths[parent])
    return re.search(rf"""['"]{re.escape(module)}['"]|['"]{module.rpartition(".")[2]}['"]""", text) is not None


def states_of_names(releases: Sequence[ReleaseModules], module: str) -> dict[str, list[State]]:
    """The presence of each public name of a module, in the releases that have the module."""
    public = [each.public_names(module) if module in each.paths else NONE for each in releases]
    submodules = frozenset().union(*(each.modules for each in releases))
    found = {
        name: [state_of_name(each, module, name) for each in releases]
        for name in sorted(frozenset().union(*public))
        if f"{module}.{name}" not in submodules
    }
    for name in SET_BEFORE.get(module, ()):
        first = found[name].index("present") if "present" in found.get(name, ()) else 0
        found[name][:first] = ["present"] * first
    return {
        name: with_later(states) if SET_SINCE.fullmatch(f"{module}:{name}") else states
        for name, states in found.items()
    }


def own_names(releases: Sequence[ReleaseModules], module: str) -> frozenset[str]:
    """The names that a module defines, or a package exports, in some release."""
    files = [each.file_names(module) for each in releases if module in each.paths]
    is_package = any(each.paths.get(module, "").endswith("__init__.py") for each in releases)
    own = frozenset().union(*(found.own for found in files if found))
    return own | frozenset().union(*(found.imported | found.quoted for found in files if found and is_package))


def state_of_name(release: ReleaseModules, module: str, name: str) -> State:
    """Whether the module of a release has a name."""
    if module not in release.paths:
        return "unknown"
    provided = release.provided(module)
    if name in provided.sure:
        return "present"
    is_python = provided.openness == "python" and name in release.defined
    return "unknown" if name in provided.maybe or is_python or provided.openness == "open" else "absent"


def format_periods(states: Sequence[State], versions: Sequence[str]) -> str:
    """The periods of a member between the nearest releases without it: `1.2<1.3..1.5>1.6`; empty if all have it."""
    known = [(state, version) for state, version in zip(states, versions, strict=True) if state != "unknown"]
    periods: list[list[int]] = []
    for number, (state, _) in enumerate(known):
        if state == "present":
            if not periods or periods[-1][-1] != number - 1:
                periods.append([])
            periods[-1].append(number)
    if not periods or len(periods[0]) == len(known):
        return ""
    return " ".join(
        (f"{known[each[0] - 1][1]}<{known[each[0]][1]}" if each[0] else "")
        + ".."
        + (f"{known[each[-1]][1]}>{known[each[-1] + 1][1]}" if each[-1] + 1 < len(known) else "")
        for each in periods
    )


def derive(store: Store, top: str) -> tuple[list[str], list[str], list[str]]:
    """The releases of a package, and the rows of its modules and of their names."""
    parsed: dict[tuple[str, str], FileNames | None] = {}
    versions: list[str] = []
    releases: list[ReleaseModules] = []
    for version, content in store.releases():
        release = ReleaseModules(StoredSources(store, version, content), top, parsed)
        if release.paths:
            versions.append(version)
            releases.append(release)
            len(release.defined)
            release.sources.forget()
    modules: dict[str, list[str]] = {}
    compiled = frozenset().union(*(each.compiled for each in releases))
    for module, states in states_of_modules(releases).items():
        if module not in compiled and (periods := format_periods(states, versions)):
            modules.setdefault(periods, []).append(module.partition(".")[2])
    names: dict[str, dict[str, list[str]]] = {}
    skipped = NO_NAMES.get(top)
    for module in sorted(frozenset().union(*(each.paths for each in releases))):
        if module.count(".") >= MAX_DEPTH or (skipped and skipped.match(module)):
            continue
        is_private = "._" in module
        own = own_names(releases, module)
        for name, states in states_of_names(releases, module).items():
            periods = format_periods(states, versions)
            is_used = not is_private and name in own  # by code that is newer than a release
            if periods and (is_used or not periods.endswith("..")):
                names.setdefault(periods, {}).setdefault(module.partition(".")[2], []).append(name)
    return (
        versions,
        [f"{periods} | {' '.join(found)}" for periods, found in sorted(modules.items())],
        [
            f"{periods} | " + " ".join(f"{module}:{','.join(each)}" for module, each in sorted(found.items()))
            for periods, found in sorted(names.items())
        ],
    )


def write_table(folder: Path, package: str, top: str) -> None:
    """Write the table of one top-level module."""
    versions, modules, names = derive(Store(folder, package), top)
    if not modules and not names:
        return
    (BUNDLED / "modules").mkdir(exist_ok=True)
    text = "\n".join((
        f"# Modules and names that some releases of {package} do not have; written by module_tables.py.", "",
        f'package = "{package}"',
        f'releases = "{" ".join(versions)}"',
        'source = "the wheels of the releases on PyPI"',
        f'date = "{datetime.date.today()}"',
        'modules = """', *modules, '"""',
        'names = """', *names, '"""', "",
    ))  # fmt: skip
    (BUNDLED / f"modules/{top}.toml").write_text(text, encoding="utf-8")


@cache
def tables() -> dict[str, str]:
    """The package of each top-level module with a table."""
    return {top: package.name for package in listed_packages(LIST).values() for top in package.tops}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--step", choices=("read", "table"))
    parser.add_argument("store", type=Path)
    parser.add_argument("modules", nargs="*")
    options = parser.parse_args()
    modules = options.modules or list(tables())
    if options.step in (None, "read"):
        read_all(options.store, list(dict.fromkeys(tables()[module] for module in modules)))
    if options.step in (None, "table"):
        for module in modules:
            write_table(options.store, tables()[module], module)


if __name__ == "__main__":
    main()
