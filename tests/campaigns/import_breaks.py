"""Write envdoctor/knowledge/imports/: imports of one package that releases of another one do not support.

    PYTHONPATH=tests python tests/campaigns/import_breaks.py STORE [PACKAGE ...]

The packages, by default all of import_packages.txt, are compared with one another. STORE is a folder for the Python
files of their releases, of which only the changed ones are requested. The steps are `read` the wheels, list the
`uses` of what loading a package imports from others without a condition, list the `states` of these names in each
release of the others, and write the `table`; `--step` runs one of them.

Not compared: pre-releases, releases that were withdrawn, names that a module creates when it is imported, and pairs
of releases that the metadata of the importing one excludes.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache, cached_property, lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from campaigns.release_store import Store, StoredSources, listed_packages, read_all

from envdoctor.knowledge.bounds import has_bounds
from envdoctor.knowledge.installed import BUNDLED
from envdoctor.knowledge.names import compared_releases, find_name
from envdoctor.knowledge.releases import parse_requirement, releases_of
from envdoctor.knowledge.versions import satisfies
from envdoctor.package_index.python_library import UNKNOWN, Found, Library, module_name
from envdoctor.package_index.python_modules import Module, absolute_module

WORKERS = 2
REDIRECTED = ("sentence-transformers",)  # setfit 1.1.3 works with 5.4.0, which provides its old modules
BY_NAMES = ("transformers",)  # its 2800 files of a release are in a table of names
EXTRA = re.compile(r"\bextra\s*==")
GRACE_DAYS = 30  # a release is made for a dependency of the same month
SAMPLE = 10  # releases in which all names are searched; between two that differ the others are
NOT_STORED = re.compile(r"(?:^|[.:])(?:tests?|testing|benchmarks?|examples?)(?:[.:]|$)")  # modules
ALL_NAMES = re.compile(r"^(?:class|def|async def)[ \t]+(\w+)|^(\w+)[ \t]*(?::[^=\n]+)?=[^=]", re.MULTILINE)
DEFINES = (
    r"(?m)^[ \t]*(?:class|def|async def)[ \t]+{name}\b|^[ \t]*{name}[ \t]*(?:[,:=]|$)|['\"]{name}['\"]"
    r"|import[ \t][^\n]*\b{name}\b"
)
COMMENT = re.compile(r"#[^\n]*")
LONG_TEXT = re.compile(r'''""".*?"""|\'\'\'.*?\'\'\'''', re.DOTALL)
IMPORT = re.compile(
    r"^(?:import[ \t]+([^\n]+)|from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]*(\([^)]*\)|(?:[^\n\\]|\\\n)*))", re.MULTILINE
)
GENERATED = re.compile(r"_pb2(?:_grpc)?$")  # modules whose names protobuf adds when they are imported
LAZY = re.compile(r"_LazyModule|lazy_loader|_import_structure")


def own_parents(module: str) -> list[str]:
    """The packages that contain a module, and the module."""
    parts = module.split(".")
    return [".".join(parts[: end + 1]) for end in range(len(parts))]


def imports_of_text(text: str, package: str) -> Iterator[tuple[str, str]]:
    """The imports of a file that no condition, handler or function contains: those without indentation."""
    text = COMMENT.sub("", LONG_TEXT.sub("", text))
    for plain, dots, module, listed in IMPORT.findall(text):
        if plain:
            yield from ((each.split()[0], "") for each in plain.split(",") if each.split())
            continue
        full = absolute_module(package, len(dots), module)
        names = (each.split()[0] for each in re.sub(r"[()\\\n]", " ", listed).split(",") if each.split())
        yield from ((full, "" if name == "*" else name) for name in names)


class ReleaseImports:
    """The modules that an import of a stored release loads, and what they import; `known` has other releases."""

    def __init__(self, sources: StoredSources, known: dict[tuple[str, str], tuple[tuple[str, str], ...]]) -> None:
        self.sources, self.known = sources, known
        self.paths = {module_name(path): path for path in reversed(sources.paths)}

    def imports_of(self, module: str) -> tuple[tuple[str, str], ...]:
        """The imports of a module."""
        path = self.paths[module]
        key = module, self.sources.keys[path]
        if key not in self.known:
            package = module if path.endswith("__init__.py") else module.rpartition(".")[0]
            self.known[key] = tuple(dict.fromkeys(imports_of_text(self.sources.read(path), package)))
        return self.known[key]

    def loaded(self, entry: str) -> dict[str, None]:
        """The modules that importing one of them loads."""
        found: dict[str, None] = {}
        waiting = own_parents(entry)
        for module in waiting:  # which grows
            if module in found or module not in self.paths:
                continue
            found[module] = None
            for imported, name in self.imports_of(module):
                waiting += own_parents(f"{imported}.{name}" if f"{imported}.{name}" in self.paths else imported)
        return found


def list_uses(folder: Path, name: str) -> None:
    """Write `MODULE:NAME` for each use of each release of a package, with the imported module and the file."""
    packages = listed_packages()
    package, store = packages[name], Store(folder, name)
    tops = frozenset(top for each in packages.values() for top in each.tops) - set(package.tops)
    known: dict[tuple[str, str], tuple[tuple[str, str], ...]] = {}
    result = {}
    for version, content in store.releases():
        imports = ReleaseImports(StoredSources(store, version, content), known)
        found: dict[str, tuple[str, str]] = {}
        for entry in package.entries:
            for module in imports.loaded(entry):
                for imported, used in imports.imports_of(module):
                    if imported.partition(".")[0] in tops:
                        found.setdefault(f"{imported}:{used}", (entry, imports.paths[module]))
        result[version] = {"day": content["day"], "requires": content["requires"], "uses": found}
    write_json(folder / "uses" / f"{name}.json", result)


def write_json(path: Path, content: object) -> None:
    """Write a result of a step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


@cache
def read_step(folder: Path) -> dict[str, dict[str, Any]]:
    """The results of a step by package."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}


class ReleaseLibrary(Library):
    """The names of a stored release; `parsed` and `defined` have the files of other releases."""

    def __init__(
        self, sources: StoredSources, parsed: dict[tuple[str, str], Module | None], defined: dict[str, frozenset[str]]
    ) -> None:
        super().__init__(sources)
        self.stored, self.parsed, self.defined = sources, parsed, defined

    def module(self, name: str) -> Module | None:
        """The names of a module."""
        key = name, self.stored.keys.get(self._paths.get(name, ""), "")
        if key not in self.parsed:
            self.parsed[key] = super().module(name)
        return self.parsed[key]

    @cached_property
    def text(self) -> str:
        """All files: one search in them is faster than one in each."""
        return "\n".join(self.stored.read(path) for path in self.stored.paths)

    def mentions(self, name: str) -> bool:
        """Whether a file has a word."""
        return name in self.text and re.search(rf"\b{re.escape(name)}\b", self.text) is not None

    def _find_name(self, module: str, name: str, seen: tuple[str, ...]) -> Found:
        """A module that loads its names when they are used lists them, or has those that its modules define."""
        found = super()._find_name(module, name, seen)
        if GENERATED.search(module):
            return UNKNOWN
        if found.state != "unknown" or module not in self._paths or not LAZY.search(self._text(module)):
            return found
        if re.search(rf"""['"]{name}['"]""", self._text(module)):
            return Found("present", owner=(module, name))
        own = (self._names_of(path) for path in self.stored.paths)
        return UNKNOWN if any(name in names for names in own) else Found("absent", f"{module}.{name}")

    def state_of(self, use: str, *, is_sample: bool = False) -> str:
        """`present`, `unknown`, or what the release lacks. In a sample a module that seems to define it does."""
        module, _, name = use.partition(":")
        if is_sample and name and module in self._paths and re.search(DEFINES.format(name=name), self._text(module)):
            return "present"
        top = module.partition(".")[0]
        if top not in self.tops and self._paths:  # pkg_resources, which setuptools 82 removed
            return top
        found = self.find(module, name)
        return found.missing if found.state == "absent" else found.state

    def _names_of(self, path: str) -> frozenset[str]:
        key = self.stored.keys[path]
        if key not in self.defined:
            pairs = ALL_NAMES.findall(self.stored.read(path))
            self.defined[key] = frozenset(sys.intern(one or other) for one, other in pairs)
        return self.defined[key]


def list_states(folder: Path, name: str) -> None:
    """Write the state of each name that a package of the list uses of this one, in each release of it."""
    tops = listed_packages()[name].tops
    uses = read_step(folder / "uses")
    wanted = sorted({
        use for other, releases in uses.items() if other != name for each in releases.values() for use in each["uses"]
        if re.split(r"[.:]", use)[0] in tops and not NOT_STORED.search(use)
    })  # fmt: skip
    store = Store(folder, name)
    releases = store.releases()
    days = {version: content["day"] for version, content in releases}
    if name in BY_NAMES:
        tabled = {use: states_of_names(name, use, days) for use in wanted if find_name(name, use.partition(":")[2])}
        write_json(folder / "states" / f"{name}.json", {"days": days, "states": tabled})
        return
    last = len(releases) - 1
    parsed: dict[tuple[str, str], Module | None] = {}
    defined: dict[str, frozenset[str]] = {}

    @lru_cache(maxsize=12)  # whose files are kept in memory
    def library(number: int) -> ReleaseLibrary:
        version, content = releases[number]
        return ReleaseLibrary(StoredSources(store, version, content), parsed, defined)

    states: dict[str, dict[int, str]] = {use: {} for use in wanted}
    for number in sorted({round(n * last / (SAMPLE - 1)) for n in range(SAMPLE)}) if releases else ():
        for use in wanted:
            states[use][number] = library(number).state_of(use, is_sample=True)
    differing = {use: found for use, found in states.items() if len(set(found.values()) - {"unknown"}) > 1}
    while middles := [
        ((first + second) // 2, use)
        for use, found in differing.items()
        for first, second in pairwise(sorted(found))
        if second - first > 1 and found[first] != found[second]
    ]:
        for number, use in sorted(middles):
            differing[use][number] = library(number).state_of(use)
    write_json(
        folder / "states" / f"{name}.json",
        {"days": days, "states": {use: complete(found, last + 1) for use, found in differing.items()}},
    )


def states_of_names(package: str, use: str, versions: Iterable[str]) -> list[str]:
    """The states of a name by the table of the names of all modules of a package: a name in no module is missing."""
    spans, compared = find_name(package, use.partition(":")[2]), compared_releases(package)
    found = {True: "present", False: "unknown"}
    return [
        found[version in compared] if any(span.can_be_in(version) for span in spans) else use.replace(":", ".")
        for version in versions
    ]


def complete(found: dict[int, str], count: int) -> list[str]:
    """The states of all releases: between two with the same one it is the same."""
    numbers = sorted(found)
    return [found[max(each for each in numbers if each <= number)] for number in range(count)]


@cache
def allowed_releases(requires: tuple[str, ...], name: str, versions: tuple[str, ...]) -> frozenset[int]:
    """The numbers of the releases of a package that requirements permit; of those with a marker one is enough."""
    parsed = [(line, found) for line in requires if not EXTRA.search(line) and (found := parse_requirement(line))]
    lines = [(";" in line, found.specifier) for line, found in parsed if found.name == name and found.specifier]
    always = [specifier for has_marker, specifier in lines if not has_marker]
    sometimes = [specifier for has_marker, specifier in lines if has_marker]
    return frozenset(
        n for n, version in enumerate(versions)
        if all(satisfies(version, each) is not False for each in always)
        and (not sometimes or any(satisfies(version, each) is not False for each in sometimes))
    )  # fmt: skip


def format_periods(numbers: list[int], others: list[int], versions: list[str], *, is_open: bool) -> list[str]:
    """The periods of consecutive releases between the nearest of the others: `1.2<1.3..1.5>1.6`.

    With `is_open` the oldest and the newest release are left out: what is older or newer belongs to the period.
    """
    periods: list[list[int]] = []
    for number in numbers:
        if not periods or number != periods[-1][-1] + 1:
            periods.append([])
        periods[-1].append(number)
    found = []
    for period in periods:
        before = max((n for n in others if n < period[0]), default=None)
        after = min((n for n in others if n > period[-1]), default=None)
        start = "" if before is None else f"{versions[before]}<"
        end = "" if after is None else f">{versions[after]}"
        first = "" if is_open and period[0] == 0 else versions[period[0]]
        last = "" if is_open and period[-1] == len(versions) - 1 else versions[period[-1]]
        found.append(f"{start}{first}..{last}{end}")
    return found


def is_then(day: str, release_day: str) -> bool:
    """Whether a release was there when another one was published, or some days later."""
    days = datetime.date.fromisoformat(day) - datetime.date.fromisoformat(release_day)
    return days.days <= GRACE_DAYS


def rows_of(name: str, states: dict[str, Any], uses: dict[str, dict[str, Any]]) -> list[str]:
    """The rows of a package: names, the periods without them, and the releases of others that import them."""
    days: dict[str, str] = states["days"]
    broken: dict[tuple[str, str, str], set[int]] = {}  # releases by name, periods and user
    used: dict[tuple[str, str], dict[int, str]] = {}  # the imported module by name, user and release
    for use, state in states["states"].items():
        missing = {each for each in state if each not in ("present", "unknown")}
        if not missing or "present" not in state:
            continue
        module = use.partition(":")[0]
        # The module itself is what all of them lack.
        names = {each for each in missing if module == each or module.startswith(f"{each}.")}
        shown = max(names) if names == missing else use.rstrip(":")
        for user in sorted(uses.keys() - {name}):
            releases = list(uses[user].values())
            found = {n: each["uses"][use][0] for n, each in enumerate(releases) if use in each["uses"]}
            used[shown, user] = found | used.get((shown, user), {})
            # Where a table has the requirements of the user, a rule on them reports the releases that they exclude.
            has_requirements = has_bounds(user) or bool(releases_of(user))
            if numbers := set(_broken(use, uses[user], name, days, state, has_requirements=has_requirements)):
                absences = " ".join(_absences(state, days, releases[max(numbers)]["day"]))
                broken.setdefault((shown, absences, user), set()).update(numbers)
    importers: dict[tuple[str, str], list[str]] = {}
    for (shown, absences, user), numbers in broken.items():
        modules = used[shown, user]
        without = [n for n in range(len(uses[user])) if n not in modules]
        entry = max(modules.values(), key=len)
        periods = format_periods(sorted(numbers), without, list(uses[user]), is_open=False)
        importers.setdefault((shown, absences), []).extend(f"{user}@{entry}:{each}" for each in periods)
    rows: dict[str, list[str]] = {}
    for (shown, absences), each in importers.items():
        rows.setdefault(f"{absences} | {' '.join(sorted(each))}", []).append(shown)
    return [f"{' '.join(sorted(names))} | {row}" for row, names in sorted(rows.items())]


def _absences(state: list[str], days: dict[str, str], day: str) -> Iterator[str]:
    """The periods without a name, next to the releases with it that were there on a day or before."""
    present = [n for n, each in enumerate(state) if each == "present"]
    lacking = [n for n, each in enumerate(state) if each not in ("present", "unknown")]
    for period in format_periods(lacking, present, list(days), is_open=True):
        start, _, after = period.partition(">")
        if not after or "<" not in start:
            yield period
        elif days[after] <= day:  # a user that is younger than the releases with the name again needs these
            yield f"{start.partition('<')[2]}>{after}"
        else:
            yield period


def _broken(
    use: str, releases: dict[str, Any], name: str, days: dict[str, str], state: list[str], *, has_requirements: bool
) -> Iterator[int]:
    """The releases that import a name which another release lacks, and one of their time has."""
    known = list(days.values())
    for number, release in enumerate(releases.values()):
        if use in release["uses"]:
            allowed = allowed_releases(tuple(release["requires"] or ()), name, tuple(days))
            of_its_time = [n for n in allowed if is_then(known[n], release["day"])] or sorted(allowed)[:1]
            works = any(state[n] == "present" for n in of_its_time)
            compared = allowed if has_requirements else range(len(state))
            if works and any(state[n] not in ("present", "unknown") for n in compared):
                yield number


def write_tables(folder: Path) -> None:
    """Write the tables of all packages that have rows."""
    uses = read_step(folder / "uses")
    (BUNDLED / "imports").mkdir(exist_ok=True)
    for name, states in read_step(folder / "states").items():
        if name not in REDIRECTED and (rows := rows_of(name, states, uses)):
            text = "\n".join((
                f"# Imports from {name} that some releases of it do not support; written by import_breaks.py.", "",
                f'releases = "{" ".join(states["days"])}"',
                'source = "the wheels of the releases on PyPI"',
                f'date = "{datetime.date.today()}"',
                'rows = """', *rows, '"""', "",
            ))  # fmt: skip
            (BUNDLED / f"imports/{name}.toml").write_text(text, encoding="utf-8")


STEPS = {"uses": list_uses, "states": list_states}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--step", choices=("read", *STEPS, "table"))
    parser.add_argument("store", type=Path)
    parser.add_argument("packages", nargs="*")
    options = parser.parse_args()
    names = options.packages or list(listed_packages())
    if options.step in (None, "read"):
        read_all(options.store, names)
    for step, run in STEPS.items():
        if options.step in (None, step):
            with ProcessPoolExecutor(WORKERS) as pool:
                list(pool.map(partial(run, options.store), names))
    if options.step in (None, "table"):
        write_tables(options.store)


if __name__ == "__main__":
    main()
