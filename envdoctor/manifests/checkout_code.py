"""The Python files of a checkout: which of them a program loads, and what these import. They are parsed, not run."""

from __future__ import annotations

import ast
import os
import posixpath
import re
import sys
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from envdoctor.core.files import decode_text, read_file
from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.published import published_packages
from envdoctor.manifests.files import MAX_SMALL_FILE, Files, TextsOfFiles, small_text
from envdoctor.manifests.import_statements import ImportStatement, import_statements
from envdoctor.manifests.install_texts import install_lines, is_guide, is_manifest
from envdoctor.manifests.notebook_cells import python_code
from envdoctor.manifests.own_modules import CODE, nested_modules, own_modules
from envdoctor.manifests.own_names import name_key, own_names
from envdoctor.manifests.program_calls import called_imports
from envdoctor.manifests.program_launches import NOTEBOOK, OWN_REQUIREMENTS, Launch, Program
from envdoctor.manifests.search_paths import added_directories
from envdoctor.manifests.working_directory import is_unpacked_project, repository_of

MAX_ENTRIES = 30_000  # files and folders of a checkout
MAX_MODULES = 500  # that the programs load
MAX_PROGRAMS = 200  # files that are read to find programs
MAX_TEXTS = 60  # manifests and guides
_FOREIGN = frozenset({"site-packages", "node_modules", "__pycache__", "build", "dist", "venv"})
INSTALLED_FROM = ("", "src", "python", "lib")  # from where an installation of the project takes its modules
_TESTS = lazy_pattern(r"(?:.*/)?(?:tests?|docs?)[/.]|(?:.*/)?test_\w+\.py")
_OTHER = lazy_pattern(
    r"(?:^|/)(?:tests?|testing|docs?|benchmarks?|examples?|notebooks?|vendor|third_party|thirdparty|contrib|legacy)/"
    r"|(?:^|/)(?:papers?|deprecated|archived?)/|(?:^|/)(?:setup|conftest|test_\w+|\w+_test|__main__)\.py$"
)
# Files that state the packages of an environment of their own.
_ENVIRONMENT = lazy_pattern(r"(?:.*[._-])?requirements?\.txt|(?:conda|env)[\w.-]*\.ya?ml|Pipfile")
# The checkouts of each audit, whose guides are those of the ways through a text.
_CHECKOUTS: WeakKeyDictionary[TextsOfFiles, dict[Path, Checkout]] = WeakKeyDictionary()
_Result = TypeVar("_Result")


class SourceFile(NamedTuple):
    """The imports of a file."""

    imports: tuple[ImportStatement, ...] = ()
    changes_path: bool = False  # modules can come from directories that are not known
    added: tuple[str, ...] = ()  # directories of the checkout from which modules can come


class _Loaded(NamedTuple):
    """A file that a program loads, and the files through which it does."""

    path: str
    chain: tuple[str, ...]
    changes_path: bool


class ReachedImport(NamedTuple):
    """An import of a module of another project, and the files through which a program reaches it."""

    statement: ImportStatement
    chain: tuple[str, ...]  # of paths relative to the root, the file with the import last
    launch: Launch
    changes_path: bool

    @property
    def place(self) -> str:
        """The file and the line of the import."""
        return f"{self.chain[-1]}:{self.statement.line}"


class Checkout:
    """The files of a checkout: `root` is the top directory of the repository, `folder` that of the audited file."""

    def __init__(self, root: Path, folder: Path | None = None) -> None:
        self.root = root
        self.folder = folder or root
        self._results: dict[tuple[Hashable, ...], Any] = {}
        self._texts: dict[str, str] = {}

    def once(self, *key: Hashable, find: Callable[[], _Result]) -> _Result:
        """What `find` finds in the files, once for each key: the ways through a guide start the same programs."""
        if key not in self._results:
            self._results[key] = find()
        found: _Result = self._results[key]
        return found

    @cached_property
    def is_clone(self) -> bool:
        """Whether all files of the project are there: it is a clone of git, or an unpacked archive of a project."""
        return (self.root / ".git").exists() or is_unpacked_project(self.root)

    @cached_property
    def paths(self) -> frozenset[str]:
        """The files and folders, relative to the root; empty if they are too many to be read."""
        found: list[str] = []
        for folder, folders, files in os.walk(self.root):
            folders[:] = sorted(each for each in folders if not each.startswith(".") and each not in _FOREIGN)
            relative = os.path.relpath(folder, self.root)
            prefix = "" if relative == "." else f"{relative}/"
            found += [f"{prefix}{name}" for name in (*folders, *files)]
            if len(found) > MAX_ENTRIES:
                return frozenset()
        return frozenset(found)

    def has_name(self, path: str) -> bool:
        """Whether there is a path, also with a suffix: `src/data` for `src/data` and `src/data.py`."""
        return path in self.paths or path in self._without_suffixes

    @cached_property
    def _without_suffixes(self) -> frozenset[str]:
        return frozenset(path[: dot.start()] for path in self.paths for dot in re.finditer(r"\.", path))

    def of_name(self, name: str) -> tuple[str, ...]:
        """The paths of the files and folders of a name."""
        return tuple(self._by_name.get(name, ()))

    @cached_property
    def _by_name(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for path in self.paths:
            found.setdefault(path.rpartition("/")[2], []).append(path)
        return found

    @cached_property
    def own_modules(self) -> frozenset[str]:
        """The names that a module of the checkout can have in any directory, also of a build or a submodule."""
        return own_modules(self.paths, self.text)

    @cached_property
    def _nested_modules(self) -> frozenset[str]:
        return nested_modules(self.paths)

    def only_path(self, name: str) -> str:
        """The only file with a name, whose folder a text leaves out; empty if there are several."""
        paths = self.of_name(name.rpartition("/")[2])
        found = [path for path in paths if path.endswith(f"/{name}") and not _OTHER.search(path)]
        return found[0] if len(found) == 1 else ""

    @cached_property
    def guide_text(self) -> str:
        """The lines of the guides and install scripts that can name what is to be installed."""
        return self._lines(is_guide)

    @cached_property
    def manifest_text(self) -> str:
        """The requirements files and the project files."""
        return self._lines(is_manifest)

    def _lines(self, is_chosen: Callable[[str], bool]) -> str:
        chosen = sorted(filter(is_chosen, self.paths), key=lambda path: (path.count("/"), path))
        return "\n".join(install_lines(path, self.text(path)) for path in chosen[:MAX_TEXTS])

    @cached_property
    def programs(self) -> tuple[Launch, ...]:
        """The Python files that are programs of the audited file, as launches without a command.

        Not tests, examples, and those with an environment of their own: a folder, or a `# /// script` block.
        """
        found = [path for path in sorted(self.paths) if path.endswith(".py") and not _OTHER.search(path)]
        others = tuple(f"{folder}/" for folder in self._other_environments)
        found = [path for path in found if not path.startswith(others)]
        texts = ((path, self.text(path)) for path in found[:MAX_PROGRAMS])
        programs = [path for path, text in texts if "__main__" in text and not OWN_REQUIREMENTS.search(text)]
        return tuple(Launch(0, path, Program(script=path), (self.root,)) for path in programs)

    @cached_property
    def _other_environments(self) -> frozenset[str]:
        """The folders whose files state the packages of another environment than that of the audited file."""
        own = self.relative(self.folder)
        found = {path.rpartition("/")[0] for path in self.paths if _ENVIRONMENT.fullmatch(path.rpartition("/")[2])}
        return frozenset(each for each in found if each and not f"{own}/".startswith(f"{each}/"))

    def reached(self, launches: Sequence[Launch]) -> tuple[ReachedImport, ...]:
        """The imports of other projects' modules that programs reach, each once."""
        return self.once("reached", tuple(launches), find=lambda: self._find_reached(launches))

    def _find_reached(self, launches: Sequence[Launch]) -> tuple[ReachedImport, ...]:
        found: dict[tuple[str, str], ReachedImport] = {}
        seen: dict[str, None] = {}
        for launch in launches if self.paths else ():
            for each in self._reached_by(launch, seen) if launch.program.is_python else ():
                found.setdefault((each.statement.module, each.statement.name), each)
        return tuple(found.values())

    def files(self, launches: Sequence[Launch]) -> Mapping[str, Launch]:
        """The files that programs load, each with its first launch."""
        return self.once("files", tuple(launches), find=lambda: self._find_files(launches))

    def _find_files(self, launches: Sequence[Launch]) -> dict[str, Launch]:
        found: dict[str, Launch] = {}
        seen: dict[str, None] = {}
        for launch in launches if self.paths else ():
            for _ in self._reached_by(launch, seen) if launch.program.is_python else ():
                pass
            found |= {path: launch for path in seen if path not in found}
        return found

    def program_files(self, launch: Launch) -> tuple[str, ...]:
        """The files of the checkout that a program loads, its own first; none without it."""
        return tuple(self.files((launch,)))

    def script(self, launch: Launch) -> str:
        """The file that a launch starts; empty if the checkout does not have it, and for tests."""
        program = launch.program
        if _TESTS.match(program.script or program.module) and not program.script.endswith(NOTEBOOK):
            return ""
        # A guide leaves out steps such as `cd ..`.
        nested = (("", *accumulate(each.split("/"), posixpath.join)) for each in map(self.relative, launch.folders))
        folders = list(dict.fromkeys((*(each for folder in nested for each in reversed(folder)), "")))
        if program.module:
            is_own = program.module.partition(".")[0] in self.own_modules
            modules = (program.module,) if program.function else (f"{program.module}.__main__", program.module)
            found = (self.module_file((*folders, *INSTALLED_FROM), each) for each in modules if is_own)
            return next(filter(None, found), "")
        paths = [posixpath.normpath(posixpath.join(folder, program.script)) for folder in folders]
        return next((path for path in (*paths, *self._below_own_name(program.script)) if path in self.paths), "")

    def _start(self, launch: Launch) -> str:
        """The file that a launch starts, also one whose directory a guide leaves out."""
        name = launch.program.script
        is_bare = bool(name) and "/" not in name and not launch.instruction  # an image can have another project
        return self.script(launch) or (self.only_path(name) if is_bare else "")

    def _below_own_name(self, path: str) -> Iterator[str]:
        """The parts of a path of the target machine below a folder with the name of the project."""
        parts = path.split("/")
        for index, part in enumerate(parts[:-1], 1):
            if part and name_key(part) in self.own_names():
                yield "/".join(parts[index:])

    def own_names(self, text: str = "") -> frozenset[str]:
        """The keys of the names of the project, of its files and of a text about it."""
        return self.once("own names", text, find=lambda: own_names(self.root, text))

    def _reached_by(self, launch: Launch, seen: dict[str, None]) -> Iterator[ReachedImport]:
        """The imports of a program, without those of files that an earlier program loads.

        After the files that it loads at its start follow those that its functions import.
        """
        start = self._start(launch)
        is_entered = launch.program.arguments or launch.program.function
        is_alone = launch.program.launcher == "uv" and OWN_REQUIREMENTS.search(self.text(start))
        if not start or is_alone or (start in seen and not is_entered):
            return
        first = [] if launch.program.module else [posixpath.dirname(start)]
        folders = dict.fromkeys((*first, *map(self.relative, launch.folders), *INSTALLED_FROM))
        if start not in seen:
            yield from self._loaded_by(launch, _Loaded(start, (start,), changes_path=False), folders, seen)
        for path, each in self._called_imports(start, launch.program, tuple(folders)):
            chain = (start, path) if path != start else (start,)
            has_changed = any(self.source(file).changes_path for file in chain)
            own = self._own_files(path, each, tuple(folders))
            if self._is_of_other_project(path, each, own, has_changed=has_changed):
                yield ReachedImport(each, chain, launch, has_changed)
            for file in own or ():
                if file not in seen:
                    yield from self._loaded_by(launch, _Loaded(file, (*chain, file), has_changed), folders, seen)

    def _loaded_by(
        self, launch: Launch, first: _Loaded, folders: dict[str, None], seen: dict[str, None]
    ) -> Iterator[ReachedImport]:
        """The imports that loading a file runs, in it and in the files that it loads; `folders` grows."""
        waiting = [first]
        seen[first.path] = None
        start = "" if launch.program.function else self._start(launch)
        while waiting and len(seen) < MAX_MODULES:
            path, chain, has_changed = waiting.pop(0)
            source = self.source(path)
            has_changed = has_changed or source.changes_path
            folders |= dict.fromkeys(source.added)
            for each in source.imports:
                if each.is_of_script and path != start:
                    continue
                own = self._own_files(path, each, tuple(folders))
                if self._is_of_other_project(path, each, own, has_changed=has_changed):
                    yield ReachedImport(each, chain, launch, has_changed)
                for file in own or ():
                    if file not in seen:
                        seen[file] = None
                        waiting.append(_Loaded(file, (*chain, file), has_changed))

    def _called_imports(
        self, start: str, program: Program, folders: tuple[str, ...]
    ) -> tuple[tuple[str, ImportStatement], ...]:
        """The imports in the functions that a program certainly calls, each with its file."""

        def find(path: str, module: Sequence[str], level: int) -> str:
            top, *_ = module or ("",)
            above = ("/".join(path.split("/")[:-level]),) if level else folders
            is_own = level or top in self.own_modules
            return self.module_file(above, ".".join(module)) if is_own else ""

        key = "called", start, program.function, program.arguments, folders
        return self.once(*key, find=lambda: tuple(called_imports(self, start, program, find)))

    def _is_of_other_project(
        self, path: str, each: ImportStatement, own: list[str] | None, *, has_changed: bool
    ) -> bool:
        is_not_found = own == [] and not has_changed
        is_other = own is None or (is_not_found and (self._is_nested(path, each) or self._lacks(each)))
        return is_other and each.top not in sys.stdlib_module_names

    def _own_files(self, path: str, each: ImportStatement, folders: Sequence[str]) -> list[str] | None:
        """The files of the checkout that an import loads; None if it is a module of another project."""
        if each.level:
            parents = path.split("/")[: -each.level]
            return self._loaded(["/".join(parents)], each.module, each.name)
        return self._loaded(folders, each.module, each.name) if each.top in self.own_modules else None

    def _is_nested(self, path: str, each: ImportStatement) -> bool:
        """Whether only parts of packages have this name, and not the directory of the file that imports it."""
        here = posixpath.join(posixpath.dirname(path), each.top)
        is_here = here in self.paths or any(f"{here}{suffix}" in self.paths for suffix in CODE)
        return not each.level and each.top in self._nested_modules and not is_here

    def _lacks(self, each: ImportStatement) -> bool:
        """Whether the modules of the checkout with the name of a package of the index lack what an import takes."""
        if each.level or not each.name or "." in each.module or each.top not in published_packages():
            return False
        folders = self.of_name(each.top)
        paths = (*self.of_name(f"{each.top}.py"), *(f"{folder}/__init__.py" for folder in folders))
        texts = [self.text(path) for path in paths if path in self.paths]
        is_module = any(self.has_name(f"{folder}/{each.name}") for folder in folders)
        return bool(texts) and not is_module and not any(each.name in text or "import *" in text for text in texts)

    def _loaded(self, folders: Sequence[str], module: str, name: str) -> list[str]:
        """The packages above a module, the module, and the name if it is a module."""
        parts = [part for part in module.split(".") if part]
        dotted = [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
        dotted += [".".join((*parts, name))] if name else []
        found = (self.module_file(folders, each) for each in dotted)
        return [each for each in found if each]

    def module_file(self, folders: Iterable[str], module: str) -> str:
        """The file of a module in one of the folders; empty without one."""
        for folder in folders:
            path = posixpath.join(folder, module.replace(".", "/"))
            if path in self.paths and f"{path}/__init__.py" in self.paths:
                return f"{path}/__init__.py"
            if f"{path}.py" in self.paths:
                return f"{path}.py"
        return ""

    def relative(self, path: Path) -> str:
        """A path relative to the root; empty for the root."""
        relative = os.path.relpath(path, self.root)
        return "" if relative == "." else relative

    def source(self, path: str) -> SourceFile:
        """The imports of a file; none if it cannot be read."""
        try:
            status = (self.root / path).stat()
        except OSError:
            return SourceFile()
        return _source(self.root / path, self.root, status.st_mtime_ns, status.st_size)

    def text(self, path: str) -> str:
        """The text of a file, by its path relative to the root; empty if it cannot be read."""
        if path not in self._texts:
            self._texts[path] = small_text(self.root / path, self.root)
        return self._texts[path]

    def code(self, path: str) -> str:
        """The Python code of a file, also of a notebook."""
        return python_code(self.text(path)) if path.endswith(NOTEBOOK) else self.text(path)


@lru_cache(maxsize=4096)
def _source(path: Path, root: Path, changed: int, size: int) -> SourceFile:  # noqa: ARG001  a changed file is read again
    try:
        text = decode_text(read_file(path, MAX_SMALL_FILE, inside=root), "replace")
        text = python_code(text) if path.suffix == NOTEBOOK else text
        with warnings.catch_warnings(action="ignore"):  # of invalid escape sequences
            tree = ast.parse(text)
        statements = import_statements(tree)
        relative = path.relative_to(root).as_posix()
        return SourceFile(statements, *added_directories(tree, text, relative, root))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return SourceFile()


def checkout_of(files: Files) -> Checkout | None:
    """The checkout that contains the folder of an input, the same for all its guides; None on standard input."""
    if files.folder is None:
        return None
    checkouts = _CHECKOUTS.setdefault(files.on_disk, {})
    folder = files.folder.absolute()
    if folder not in checkouts:
        checkouts[folder] = Checkout(repository_of(folder).absolute(), folder)
    return checkouts[folder]
