"""What the files of a package index show about releases, for the rules on guides."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from envdoctor.knowledge.published import PublishedRelease


class IndexedRelease(NamedTuple):
    """A release of the index."""

    name: str
    version: str
    day: str  # of the upload; empty if the index does not state it
    requires_python: str = ""
    has_wheel: bool = True

    def __str__(self) -> str:
        return f"{self.name} {self.version}" + (f" of {self.day}" if self.day else "")


class CodeImport(NamedTuple):
    """An import in code: of a name of a module, or of the module itself if `name` is empty."""

    line: int
    module: str
    name: str = ""
    file: str = ""  # of a wheel, or of a checkout with the line; empty for the code of a guide
    is_optional: bool = False  # runs only where a check of an optional package succeeds
    is_attribute: bool = False  # read from an imported module or class
    is_certain: bool = True  # else it runs in a function that can be called, or under a condition

    @property
    def top(self) -> str:
        """The top-level module."""
        return self.module.partition(".")[0]


class InstalledSet(NamedTuple):
    """The packages of an environment that come from the index, and those of which the imports are compared."""

    versions: Mapping[str, str]
    users: Sequence[str]  # packages whose imports are compared, the most important ones first
    python: str
    platform: str  # x86_64, aarch64
    glibc: str = ""
    named: frozenset[str] = frozenset()  # packages that a step names
    imports: Sequence[CodeImport] = ()  # of the code of the guide
    torch_family: Mapping[str, str] = {}  # the versions of torch, torchvision and torchaudio
    lowest: Mapping[str, str] = {}  # the lowest releases that the steps permit


# When a use runs: with `import` of the package, with a module that the code of the guide imports, with another of its
# modules, or when a function is called.
UseKind = Literal["import", "code", "module", "call"]


class MissingName(NamedTuple):
    """A name that a release uses, and that an installed release of another package does not have."""

    user: IndexedRelease
    dependency: IndexedRelease
    name: str  # "starlette.templating.Jinja2Templates"
    place: str  # "gradio/routes.py:31"
    wheel: str
    kind: UseKind
    last: str = ""  # a release of the dependency that has the name; empty if none is known
    argument: str = ""  # of the function `name`: "Format(verify=)"


class ComparedNames(NamedTuple):
    """The missing names of a set, and the releases that were not compared because a limit was reached."""

    missing: Sequence[MissingName] = ()
    skipped: Sequence[str] = ()  # "scipy 1.10.1"


class RejectedRelease(NamedTuple):
    """A release that stops another one at its import, by an assertion on its version."""

    user: IndexedRelease
    dependency: IndexedRelease
    accepted: str  # specifier
    place: str  # "mmdet/__init__.py:16"
    wheel: str


class InheritedMember(NamedTuple):
    """What a class of code expects of the class that it derives from: a method, or arguments for its override."""

    line: int  # of the command that starts the program
    module: str
    base: str
    member: str
    place: str  # "bigvgan.py:408"
    cls: str
    required: tuple[str, ...] = ()  # arguments of the override by name; empty: the class calls `super().member`


class AbsentMember(NamedTuple):
    """A member that the class of an installed release lacks, or the arguments that it does not pass."""

    member: InheritedMember
    release: IndexedRelease
    missing: str
    last: str = ""  # a release that passes them; empty if none is known


class AbsentImport(NamedTuple):
    """An import of the code, and the release that does not have the name."""

    used: CodeImport
    name: str  # "peft.prepare_model_for_int8_training"
    release: IndexedRelease
    last: str = ""  # a release with it that the Python can install; empty if none is known


class AbsentProgram(NamedTuple):
    """A program that no package of a set has, and a release of one of them that has it."""

    program: str
    release: IndexedRelease
    having: str


class BuildImport(NamedTuple):
    """A module that setup.py of a release imports, and that an isolated build does not have."""

    release: IndexedRelease
    module: str
    line: int
    archive: str
    is_legacy: bool = True  # the archive has no pyproject.toml


class BuildFailure(NamedTuple):
    """A reason in setup.py for which the build of a release fails with today's build tools."""

    release: IndexedRelease
    archive: str
    reason: str  # "has use_2to3, which setuptools 58 removed"
    line: int
    cured_by: Sequence[str] = ()  # what must be installed before a build without isolation; empty: nothing cures it


class BuildFiles(NamedTuple):
    """What the source archive of a release states about its build."""

    archive: str
    setup: str  # setup.py
    requires: Sequence[str]  # build-system.requires


class Numpy1Build(NamedTuple):
    """A release with a compiled module that is built for NumPy 1."""

    release: IndexedRelease
    module: str  # path in the wheel
    wheel: str
    is_loaded: bool  # by `import` of the package


class RefusedRelease(NamedTuple):
    """A release whose metadata have a requirement that pip refuses."""

    release: IndexedRelease
    requirement: str
    wheel: str


class RemovedImport(NamedTuple):
    """A name that a release imports, and that its Python or its torch, torchvision or torchaudio no longer has."""

    user: IndexedRelease
    name: str  # "collections.Mapping"
    since: str  # "Python 3.10", "torchvision 0.17"
    place: str  # "attrdict/mapping.py:4"
    wheel: str
    is_loaded: bool = True  # by `import` of the package


class UndeclaredImport(NamedTuple):
    """A module that a release imports, and that no package of the set has."""

    user: IndexedRelease
    module: str  # "rich"
    place: str  # "trl/trainer/utils.py:35"
    wheel: str
    kind: UseKind


class SharedFile(NamedTuple):
    """A file that two releases install."""

    first: IndexedRelease
    second: IndexedRelease
    path: str


class RustBuild(NamedTuple):
    """A release whose source archive compiles Rust code, and the Pythons for which it has a wheel, newest first."""

    archive: str
    pythons: Sequence[str]


class IndexFacts(Protocol):
    """Reads releases from the package index. What cannot be read is unknown: None, or empty."""

    def newest_release(self, name: str) -> IndexedRelease | None:
        """The newest release that is not withdrawn; None if it is unknown."""
        ...

    def usable_releases(self, name: str) -> Sequence[IndexedRelease]:
        """The releases that are neither withdrawn nor pre-releases; none if they are unknown."""
        ...

    def release(self, name: str, version: str) -> IndexedRelease | None:
        """A release; None if it is unknown."""
        ...

    def published(self, name: str, version: str) -> PublishedRelease | None:
        """A release with the Pythons and platforms of its wheels, as in the built-in table; None if it is unknown."""
        ...

    def is_published_from(self, name: str, url: str) -> bool | None:
        """Whether releases of a package name this repository as their own; None if they name none."""
        ...

    def missing_names(self, installed: InstalledSet) -> ComparedNames:
        """The names that packages use of newer releases of others, which no longer have them."""
        ...

    def rejected_releases(self, installed: InstalledSet) -> Sequence[RejectedRelease]:
        """The releases that another release of the set rejects when it is imported."""
        ...

    def numpy_1_builds(self, installed: InstalledSet) -> Sequence[Numpy1Build]:
        """The packages of the set with compiled modules that NumPy 2 rejects."""
        ...

    def refused_releases(self, installed: InstalledSet) -> Sequence[RefusedRelease]:
        """The named packages of the set whose metadata pip refuses."""
        ...

    def refused_versions(self, versions: Mapping[str, str]) -> Mapping[str, Mapping[str, str]]:
        """Of the packages whose metadata pip refuses: this release and older ones, each with such a requirement."""
        ...

    def shared_files(self, installed: InstalledSet) -> Sequence[SharedFile]:
        """The packages of the set that install the same module."""
        ...

    def removed_imports(self, installed: InstalledSet) -> Sequence[RemovedImport]:
        """The old packages of the set that import what the standard library of its Python no longer has."""
        ...

    def removed_torch_imports(self, installed: InstalledSet) -> Sequence[RemovedImport]:
        """The old packages of the set that import a module that its torch, torchvision or torchaudio removed."""
        ...

    def undeclared_imports(self, installed: InstalledSet) -> Sequence[UndeclaredImport]:
        """The modules that old packages of the set import, and that no package of the set has."""
        ...

    def absent_members(self, installed: InstalledSet, members: Sequence[InheritedMember]) -> Sequence[AbsentMember]:
        """What classes of code expect of their base classes, and the installed releases do not have."""
        ...

    def absent_programs(
        self, installed: InstalledSet, programs: Mapping[str, Sequence[str]]
    ) -> Sequence[AbsentProgram]:
        """The programs that no package of the set has, by the packages that can have each."""
        ...

    def absent_imports(self, installed: InstalledSet, used: Sequence[CodeImport]) -> Sequence[AbsentImport]:
        """The imports of code that the installed releases do not have."""
        ...

    def absent_modules(self, installed: InstalledSet, tops: Collection[str]) -> frozenset[str]:
        """The top-level modules that certainly no package of the set has."""
        ...

    def module_package(self, top: str) -> str:
        """The package with the name of a module, if its newest release has it; empty for others."""
        ...

    def required_packages(self, named: Mapping[str, str]) -> Mapping[str, str] | None:
        """The newest releases that packages can bring, with their own; None if they could not be read."""
        ...

    def specifiers_of(self, installed: InstalledSet, package: str) -> Mapping[str, str]:
        """The releases of the set that require a package, each with its specifier for the Python of the set."""
        ...

    def imports_package(self, installed: InstalledSet, requiring: str, name: str) -> bool | None:
        """Whether the modules of one package of the set import another one; None if they could not be read."""
        ...

    def imports_module(self, installed: InstalledSet, requiring: str, module: str) -> bool | None:
        """Whether a package of the set imports a module or one above it; None if it could not be read."""
        ...

    def build_imports(self, name: str, version: str, python: str) -> Sequence[BuildImport]:
        """The modules that an isolated build of a release lacks."""
        ...

    def build_failures(self, name: str, version: str, python: str) -> Sequence[BuildFailure]:
        """The reasons for which the build of a release fails with today's build tools."""
        ...

    def build_files(self, name: str, version: str) -> BuildFiles | None:
        """The build files of a release; None if its source archive is not read, or is too large."""
        ...

    def buildable_release(self, name: str, python: str, platform: str) -> IndexedRelease | None:
        """The newest release with a wheel for this Python, or with a build that does not fail; None without one."""
        ...

    def requires(self, name: str, version: str) -> Sequence[str]:
        """The requirements of a release, with markers: of its wheel, else as its source archive lists them."""
        ...

    def compiled_archive(self, name: str, version: str) -> str:
        """The source archive of a release whose build compiles C code; empty for others."""
        ...

    def rust_build(self, name: str, version: str, platform: str) -> RustBuild | None:
        """The build of a release that compiles Rust code; None for others."""
        ...
