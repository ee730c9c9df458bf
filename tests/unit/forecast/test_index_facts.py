"""Imports that a newer dependency lacks, and facts of releases, read from an index on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from support.cases import each_case
from support.dated_index import release, serve
from support.release_index import Release

from envdoctor.download.http_client import HttpClient, RequestFailed
from envdoctor.download.sources import Sources
from envdoctor.forecast.index_facts import IndexReader
from envdoctor.knowledge.module_names import DISTRIBUTIONS
from envdoctor.package_index import source_archive
from envdoctor.package_index.simple_index import File
from envdoctor.package_index.wheel_sources import WheelSources, read_wheel_sources
from envdoctor.resolution.index_facts import CodeImport, InstalledSet

pytestmark = pytest.mark.usefixtures("isolated_cache")

OLD, NEW = "2023-10-01", "2026-03-01"
SETUP = "import pkg_resources\nfrom setuptools import setup\nsetup()\n"


@contextmanager
def reading(*releases: Release) -> Iterator[IndexReader]:
    with serve(*releases) as index:
        yield IndexReader(Sources(index=index.settings()["UV_DEFAULT_INDEX"]))


def package(name: str, version: str, day: str, *files: tuple[str, str], requires: tuple[str, ...] = ()) -> Release:
    return Release(name, version, day, requires=requires, files=files)


HAS = "removed = LIST = []\nclass old: ...\ndef call(past=0): ...\n"
LACKS = """LIST = []
def call(new=0): ...
GONE = {n: n for n, _ in [("removed", 1)]}
def __getattr__(name):
    if name in GONE:
        raise AttributeError(GONE[name])
    raise AttributeError(name)
"""
BASE = (
    release("base", "1.0", "2023-09-01", HAS),
    release("base", "1.5", "2024-06-01", HAS),
    release("base", "2.0", NEW, LACKS),
)
# A use of `base.old` or `base.call(new=...)`: the expected place, and when it runs.
USES: dict[str, tuple[tuple[tuple[str, str], ...], str, str]] = {
    "in the package itself": ((("user/__init__.py", "from base import old"),), "user/__init__.py:1", "import"),
    "in a module that it imports": (
        (("user/__init__.py", "from . import part"), ("user/part.py", "x = 1\nfrom base import old")),
        "user/part.py:2", "import",
    ),
    "in another module": (
        (("user/__init__.py", ""), ("user/part.py", "from base import old")), "user/part.py:1", "module",
    ),
    "an attribute at the import": (
        (("user/__init__.py", "import base as b\nclass A(b.old): ..."),), "user/__init__.py:2", "import",
    ),
    "an attribute in a function": (
        (("user/__init__.py", "import base as b\ndef f():\n    return b.old"),), "user/__init__.py:3", "call",
    ),
    "an argument": (
        (("user/__init__.py", "from base import call\ndef f():\n    call(past=1)"),), "user/__init__.py:3", "call",
    ),
    "a module that a call returns": (
        (("user/__init__.py", "import x\nb = x.get_module('base')\nif b:\n    b.old"),),
        "user/__init__.py:4", "import",
    ),
    "under another condition": (
        (("user/__init__.py", "import base\nif 1 in base.LIST:\n    base.old"),), "user/__init__.py:3", "module",
    ),
    "guarded": (
        (("user/__init__.py", "try:\n    from base import old\nexcept ImportError:\n    old = None"),), "", "",
    ),
    "under a condition on the version": (
        (("user/__init__.py", "import base\nif base.__version__ < '2':\n    base.old"),), "", "",
    ),
    "a removed name that __getattr__ names": (
        (("user/__init__.py", "import base\nbase.removed"),), "user/__init__.py:2", "import",
    ),
    "in a test": ((("user/__init__.py", ""), ("user/tests/test_a.py", "from base import old")), "", ""),
    "a name that exists": ((("user/__init__.py", "from base import call"),), "", ""),
    "a name that never existed": ((("user/__init__.py", "from base import other"),), "", ""),
}  # fmt: skip


@each_case("name", [*USES])
def test_a_name_that_a_newer_dependency_lacks(name: str) -> None:
    files, place, kind = USES[name]
    versions = {"user": "1.0", "base": "2.0"}
    with reading(*BASE, package("user", "1.0", OLD, *files, requires=("base",))) as reader:
        found = reader.missing_names(InstalledSet(versions, ["user"], "3.12", "x86_64")).missing
        dependency = reader.missing_names(InstalledSet(versions, [], "3.12", "x86_64")).missing
        older = reader.missing_names(InstalledSet({"user": "1.0", "base": "1.0"}, ["user"], "3.12", "x86_64")).missing
    assert [(each.place, each.kind, each.last) for each in found] == ([(place, kind, "1.5")] if place else [])
    assert [each.kind for each in dependency] == (["import"] if kind == "import" else [])
    assert list(older) == []


@each_case("day", [OLD, ""])
def test_a_post_release_has_the_code_of_its_release(day: str) -> None:
    files = (("user/__init__.py", "from base import old"),)
    releases = [package("user", "1.0.post0", NEW, *files, requires=("base",))]
    releases += [package("user", "1.0", day, *files, requires=("base",))] if day else []
    installed = InstalledSet({"user": "1.0.post0", "base": "2.0"}, ["user"], "3.12", "x86_64")
    with reading(*BASE, *releases) as reader:
        found = reader.missing_names(installed).missing
    assert [each.name for each in found] == (["base.old"] if day else [])


def test_a_table_has_the_last_release_with_a_removed_name() -> None:
    use = ("user/__init__.py", "import numpy as np\ndef f():\n    return np.Inf")
    numpy = [
        release("numpy", version, day, f"{text}\ndef call(): ...") for version, day, text in
        (("1.22.0", "2023-09-01", "Inf = 1"), ("1.26.4", "2024-06-01", "Inf = 1"), ("2.5.5", NEW, "inf = 1"))
    ]  # fmt: skip
    installed = InstalledSet({"user": "1.0", "numpy": "2.5.5"}, ["user"], "3.12", "x86_64")
    with reading(*numpy, package("user", "1.0", OLD, use, requires=("numpy",))) as reader:
        assert [each.last for each in reader.missing_names(installed).missing] == ["1.26.4"]


def test_the_last_of_the_later_releases_that_have_a_name_again() -> None:
    resources = ("pkg_resources/__init__.py", "import packaging.markers")
    had = [
        package("setuptools", version, day, resources, ("setuptools/__init__.py", ""))
        for version, day in (("69.5.1", "2023-09-01"), ("71.0.0", "2024-06-01"), ("81.0.0", "2024-09-01"))
    ]
    lacks = package("setuptools", "84.2.1", NEW, ("setuptools/__init__.py", ""))
    use = ("user/__init__.py", "from pkg_resources import packaging")
    user = package("user", "1.0", OLD, use, requires=("setuptools",))
    with reading(*had, lacks, user) as reader:
        found = reader.missing_names(
            InstalledSet({"user": "1.0", "setuptools": "84.2.1"}, ["user"], "3.12", "x86_64")
        )
    assert [(each.name, each.last) for each in found.missing] == [("pkg_resources", "81.0.0")]


def test_the_last_release_with_a_name_has_no_wheel_for_the_python() -> None:
    had = replace(release("base", "1.0", "2023-09-01", "removed = 1"), tag="cp38-cp38-manylinux2014_x86_64")
    user = package("user", "1.0", OLD, ("user/__init__.py", "from base import removed"), requires=("base",))
    with reading(had, release("base", "2.0", NEW, "other = 1"), user) as reader:
        found = reader.missing_names(InstalledSet({"user": "1.0", "base": "2.0"}, ["user"], "3.12", "x86_64"))
    assert [(each.name, each.last) for each in found.missing] == [("base.removed", "")]


COMPILED_NAMES = "from ._native import *\nglobals()"
NUMPY = (release("numpy", "1.25.0", "2023-06-01", COMPILED_NAMES), release("numpy", "2.4.6", NEW, COMPILED_NAMES))


def test_a_name_of_the_table_of_removed_names() -> None:
    """A module that receives its names at its import does not show which it lacks."""
    user = package("user", "1.0", OLD, ("user/__init__.py", "import numpy as np\nx = np.bool8, np.ndarray"))
    with reading(*NUMPY, user) as reader:
        found = reader.missing_names(InstalledSet({"user": "1.0", "numpy": "2.4.6"}, ["user"], "3.12", "x86_64"))
        older = reader.missing_names(InstalledSet({"user": "1.0", "numpy": "1.25.0"}, ["user"], "3.12", "x86_64"))
    assert [(each.name, each.kind, each.last) for each in found.missing] == [("numpy.bool8", "import", "1.26.4")]
    assert list(older.missing) == []


def test_of_a_release_with_many_files_only_those_of_its_import_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envdoctor.forecast.set_names.MAX_FILES", 2)
    files = (("user/__init__.py", "from base import old"), ("user/a.py", ""), ("user/b.py", ""))
    with reading(*BASE, package("user", "1.0", OLD, *files, requires=("base",))) as reader:
        found = reader.missing_names(InstalledSet({"user": "1.0", "base": "2.0"}, ["user"], "3.12", "x86_64"))
    assert [(each.place, each.kind) for each in found.missing] == [("user/__init__.py:1", "import")]
    assert list(found.skipped) == []


@each_case("used, kind", [("part", "code"), ("Late", "code"), ("other", "module"), ("", "module")])
def test_a_module_that_the_code_imports(used: str, kind: str) -> None:
    files = (
        ("user/__init__.py", "from .lazy import load"),
        ("user/part.py", "from base import old\nclass Late: ..."),
        ("user/other.py", ""),
    )
    imports = [CodeImport(1, "user", used)]
    with reading(*BASE, package("user", "1.0", OLD, *files, requires=("base",))) as reader:
        found = reader.missing_names(
            InstalledSet({"user": "1.0", "base": "2.0"}, ["user"], "3.12", "x86_64", imports=imports)
        )
    assert [each.kind for each in found.missing] == [kind]


def test_a_dependency_without_a_top_level_module() -> None:
    had = package("tools", "1.0", "2023-09-01", ("tools/__init__.py", ""), ("resources/__init__.py", ""))
    lacks = package("tools", "2.0", NEW, ("tools/__init__.py", ""))
    user = package("user", "1.0", OLD, ("user/__init__.py", "import resources"))
    with pytest.MonkeyPatch.context() as patch, reading(had, lacks, user) as reader:
        patch.setitem(DISTRIBUTIONS, "resources", "tools")
        found = reader.missing_names(InstalledSet({"user": "1.0", "tools": "2.0"}, ["user"], "3.12", "x86_64"))
    assert [(each.name, each.kind, each.last) for each in found.missing] == [("resources", "import", "1.0")]


def test_the_comparison_of_a_set_is_limited_by_its_number_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    users = [package(f"user-{n}", "1.0", OLD, (f"user_{n}/__init__.py", "from base import old")) for n in range(3)]
    names = [f"user-{number}" for number in range(3)]
    installed = InstalledSet(dict.fromkeys(names, "1.0") | {"base": "2.0"}, names, "3.12", "x86_64")
    with reading(*BASE, *users) as reader:
        monkeypatch.setattr("envdoctor.forecast.set_names.MAX_USERS", 2)
        found = reader.missing_names(installed)
        assert [each.user.name for each in found.missing] == names[:2]
        assert list(found.skipped) == ["user-2 1.0"]
        again = IndexReader(reader.sources).missing_names(installed)
        assert again == found
        monkeypatch.setattr("envdoctor.forecast.set_names.read_uses", None)  # the cache has the result
        assert IndexReader(reader.sources).missing_names(installed) == found


def test_a_dependency_that_could_not_be_read_is_compared_by_the_next_command(monkeypatch: pytest.MonkeyPatch) -> None:
    user = package("user", "1.0", OLD, ("user/__init__.py", "from base import old"))
    installed = InstalledSet({"user": "1.0", "base": "2.0"}, ["user"], "3.12", "x86_64")

    def read(client: HttpClient, file: File) -> WheelSources:
        if file.name.startswith("base-2.0"):
            raise RequestFailed("the deadline has passed")
        return read_wheel_sources(client, file)

    with reading(*BASE, user) as reader:
        with monkeypatch.context() as patched:
            patched.setattr("envdoctor.forecast.wheels.read_wheel_sources", read)
            found = reader.missing_names(installed)
        assert (found.missing, list(found.skipped)) == ([], ["user 1.0"])
        assert [each.name for each in IndexReader(reader.sources).missing_names(installed).missing] == ["base.old"]


def test_a_wheel_is_read_once_for_all_pythons_and_parsed_once_for_all_commands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    user = package("user", "1.0", OLD, ("user/__init__.py", "from base import old"))
    read: list[str] = []

    def count(client: HttpClient, file: File) -> WheelSources:
        read.append(file.name)
        return read_wheel_sources(client, file)

    monkeypatch.setattr("envdoctor.forecast.wheels.read_wheel_sources", count)
    versions = {"user": "1.0", "base": "2.0"}
    with reading(*BASE, user) as reader:
        found = [
            reader.missing_names(InstalledSet(versions, ["user"], python, "x86_64")) for python in ("3.12", "3.10")
        ]
        assert found[0] == found[1]
        assert len(read) == len(set(read))
        monkeypatch.setattr("envdoctor.forecast.module_imports.parse_source", None)
        again = IndexReader(reader.sources).missing_names(InstalledSet(versions, ["user"], "3.12", "x86_64"))
    assert again == found[0]


def test_a_later_fix_of_an_older_series_is_no_newer_dependency() -> None:
    series = (release("base", "2.0", "2023-09-01", HAS), release("base", "1.9", NEW, LACKS))
    user = package("user", "1.0", OLD, ("user/__init__.py", "from base import old"))
    with reading(*series, user) as reader:
        found = reader.missing_names(InstalledSet({"user": "1.0", "base": "1.9"}, ["user"], "3.12", "x86_64"))
    assert list(found.missing) == []


@each_case("code, kinds", [("from base import old", ["module"]), ("import base\ndef f():\n    base.old", [])])
def test_a_package_that_is_not_required(code: str, kinds: list[str]) -> None:
    user = package("user", "1.0", OLD, ("user/__init__.py", ""), ("user/part.py", code))
    versions = {"user": "1.0", "base": "2.0"}
    with reading(*BASE, user) as reader:
        for named, expected in ((frozenset({"base"}), kinds), (frozenset[str](), [])):
            found = reader.missing_names(InstalledSet(versions, ["user"], "3.12", "x86_64", "", named))
            assert [each.kind for each in found.missing] == expected


def test_a_release_that_another_one_rejects() -> None:
    code = "import base\nassert base.__version__ < '2.0'\n"
    users = [
        package("user", "1.0", OLD, ("user/__init__.py", "from . import check"), ("user/check.py", code)),
        package("other", "1.0", OLD, ("other/__init__.py", ""), ("other/check.py", code)),
    ]
    with reading(*BASE, *users) as reader:
        for version, expected in (("2.0", [("user", "<2.0", "user/check.py:2")]), ("1.5", [])):
            versions = {"user": "1.0", "other": "1.0", "base": version}
            named = frozenset(versions)
            found = reader.rejected_releases(InstalledSet(versions, [*versions], "3.12", "x86_64", "", named))
            assert [(each.user.name, each.accepted, each.place) for each in found] == expected


def test_the_uses_of_a_source_archive() -> None:
    files = (("setup.py", SETUP), ("src/user/__init__.py", "from base import old"))
    with reading(*BASE, Release("user", "1.0", OLD, is_source=True, files=files)) as reader:
        found = reader.missing_names(InstalledSet({"user": "1.0", "base": "2.0"}, ["user"], "3.12", "x86_64"))
    assert [(each.place, each.wheel) for each in found.missing] == [("user/__init__.py:1", "user-1.0.tar.gz")]


def test_a_build_file_is_no_module_of_its_package() -> None:
    """openai-whisper has the module whisper; `import whisper` does not run the setup.py of its archive."""
    files = ("setup.py", "from base import old\n"), ("other_name/__init__.py", "import base\n")
    with reading(*BASE, Release("user", "1.0", OLD, is_source=True, files=files)) as reader:
        found = reader.missing_names(InstalledSet({"user": "1.0", "base": "2.0"}, ["user"], "3.12", "x86_64"))
    assert found.missing == []


def test_a_release_that_only_requires_the_packages_with_its_modules() -> None:
    """griffe 2 has no file of Python, and requires griffelib, which has the module griffe."""
    had = package("tools", "1.0", "2023-09-01", ("tools/__init__.py", ""))
    empty = package("tools", "2.0", NEW, ("tools-2.0.dist-info/NOTES", ""))
    user = package("user", "1.0", OLD, ("user/__init__.py", "import tools"), requires=("tools",))
    with reading(had, empty, user) as reader:
        found = reader.missing_names(InstalledSet({"user": "1.0", "tools": "2.0"}, ["user"], "3.12", "x86_64"))
    assert found.missing == []


def test_a_replaced_package_without_the_module() -> None:
    """A name on the index that another project took over after the release: it has only a source archive."""
    code = ("user/__init__.py", "from places.airports import LIST")
    taken = Release("places", "0.0.1", NEW, is_source=True, files=(("setup.py", ""), ("src/sample.py", "")))
    for requires, expected in ((("places",), ["places.airports"]), ((), [])):
        with reading(taken, package("user", "1.0", OLD, code, requires=requires)) as reader:
            found = reader.missing_names(InstalledSet({"user": "1.0", "places": "0.0.1"}, ["user"], "3.12", "x86_64"))
        assert [each.name for each in found.missing] == expected


def test_facts_of_releases() -> None:
    home = "https://github.com/example/user"
    releases = (
        Release("user", "1.0", OLD, files=(("user.py", ""),)),
        Release("user", "2.0", NEW, files=(("user.py", ""),), python=">=3.11", home_page=home, requires=("base>=1",)),
        Release("user", "3.0", NEW, yanked=True),
        Release("moved", "1.0", OLD, files=(("moved.py", ""),), home_page="https://github.com/old/moved"),
        Release("moved", "2.0", NEW, files=(("moved.py", ""),), home_page="https://new.github.io/moved/"),
        Release("built", "1.0", OLD, is_source=True, files=(("setup.py", SETUP),)),
    )
    with reading(*releases) as reader:
        newest = reader.newest_release("user")
        assert newest
        assert (newest.version, newest.requires_python, str(newest)) == ("2.0", ">=3.11", f"user 2.0 of {NEW}")
        assert reader.release("user", "1.0")
        assert reader.release("user", "9.0") is None
        assert reader.newest_release("absent") is None
        assert reader.is_published_from("user", "git+https://github.com/Example/user.git@main")
        assert reader.is_published_from("user", "git+https://github.com/fork/user.git") is False
        assert reader.is_published_from("built", "https://github.com/example/built") is None
        assert reader.is_published_from("moved", "https://github.com/old/moved")
        assert reader.is_published_from("moved", "https://github.com/new/moved.git")
        assert list(reader.requires("user", "2.0")) == ["base>=1"]
        assert list(reader.requires("absent", "2.0")) == []
        (build,) = reader.build_imports("built", "1.0", "3.12")
        assert (build.module, build.line, build.archive) == ("pkg_resources", 1, "built-1.0.tar.gz")
        assert list(reader.build_imports("user", "1.0", "3.12")) == []


def test_imports_of_code_are_compared_with_the_wheels() -> None:
    with reading(*BASE) as reader:
        used = [
            CodeImport(1, "base", "old"),
            CodeImport(2, "base", "call"),
            CodeImport(3, "base.part"),
            CodeImport(4, "os"),
        ]
        absent = reader.absent_imports(InstalledSet({"base": "2.0"}, (), "3.12", "x86_64"), used)
    assert [(each.used.line, each.name, str(each.release)) for each in absent] == [
        (1, "base.old", f"base 2.0 of {NEW}"), (3, "base.part", f"base 2.0 of {NEW}"),
    ]  # fmt: skip


def test_the_last_release_with_an_imported_name_of_a_program() -> None:
    used = [CodeImport(1, "base", "old", file) for file in ("train.py:1", "")]
    with reading(*BASE) as reader:
        found = reader.absent_imports(InstalledSet({"base": "2.0"}, (), "3.12", "x86_64"), used)
    assert [each.last for each in found] == ["1.5", ""]


COMPILED = "import sys\nfor each in sys.modules:\n    setattr(sys.modules[__name__], each, 1)\n"
ATTRIBUTES = {  # of a release: the last one with the attribute, or none if it is not known to be gone
    "old": "1.5",
    "LIST": None,
    "never": None,
    "removed": "1.5",
}


@each_case("name", [*ATTRIBUTES])
def test_an_attribute_is_absent_only_if_an_older_release_has_it(name: str) -> None:
    used = [CodeImport(1, "base", name, "train.py:1", is_attribute=True)]
    with reading(*BASE) as reader:
        found = reader.absent_imports(InstalledSet({"base": "2.0"}, (), "3.12", "x86_64"), used)
    assert [each.last for each in found] == [each for each in (ATTRIBUTES[name],) if each is not None]


def test_a_module_that_receives_its_names_when_it_is_loaded() -> None:
    releases = [release("base", version, day, COMPILED) for version, day in (("1.0", OLD), ("2.0", NEW))]
    used = [CodeImport(1, "base", "read", "train.py:1", is_attribute=True)]
    with reading(*releases) as reader:
        assert not reader.absent_imports(InstalledSet({"base": "2.0"}, (), "3.12", "x86_64"), used)


def test_the_packages_with_a_module() -> None:
    files = ("other_name/__init__.py", ""), ("compiled.cpython-312-x86_64-linux-gnu.so", "")
    wheel = package("images", "1.0", OLD, *files)
    built = "setup(ext_modules=[Extension(name='speech_cuda', sources=['a.cu'])])"
    sources = ("src/voices/__init__.py", ""), ("src/voices/choir.py", ""), ("setup.py", built)
    archive = Release("speech", "1.0", OLD, is_source=True, files=sources)
    installed = InstalledSet({"images": "1.0", "speech": "1.0"}, (), "3.12", "x86_64")
    tops = ["other_name", "compiled", "voices", "speech", "speech_cuda", "choir", "absent"]
    with reading(*BASE, wheel, archive) as reader:
        assert reader.absent_modules(installed, tops) == {"choir", "absent"}
        unknown = InstalledSet({"images": "1.0", "withdrawn": "1.0"}, (), "3.12", "x86_64")
        assert reader.absent_modules(unknown, tops) == set()
        assert [reader.module_package(top) for top in ("base", "images", "nowhere")] == ["base", "", ""]


def test_an_archive_that_is_not_read_can_have_modules_with_a_part_of_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(source_archive, "ARCHIVE_BYTES", 10)
    archive = Release("scores2x", "1.0", OLD, is_source=True, files=(("scores2/__init__.py", ""),))
    installed = InstalledSet({"scores2x": "1.0"}, (), "3.12", "x86_64")
    with reading(archive) as reader:
        assert reader.absent_modules(installed, ["scores2", "scores2x", "images"]) == {"images"}


def test_whether_a_package_imports_what_it_requires() -> None:
    model = package("attr-of", "1.0", OLD, ("attr_of/__init__.py", ""))
    files = ("swift/__init__.py", "def load():\n    import base"), ("swift/tests/test_a.py", "import attr_of")
    installed = InstalledSet({"swift": "1.0", "attr-of": "1.0", "base": "2.0"}, [], "3.12", "x86_64")
    with reading(*BASE, model, package("swift", "1.0", NEW, *files)) as reader:
        found = [reader.imports_package(installed, "swift", name) for name in ("base", "attr-of", "absent")]
    assert found == [True, False, None]


@each_case(
    ("statement", "is_imported"),
    [
        ("from base.models.bert import load", False),
        ("import based.exporters", False),
        ("import base.exporters.tasks.tests", True),
        ("from base.exporters import tasks", True),
        ("from base import load", True),  # it can be of any module
    ],
)
def test_whether_a_package_imports_a_module_of_another_one(statement: str, is_imported: bool) -> None:
    files = ("swift/__init__.py", f"def load():\n    {statement}"), ("swift/tests/test_a.py", "import base")
    installed = InstalledSet({"swift": "1.0", "base": "2.0"}, [], "3.12", "x86_64")
    with reading(*BASE, package("swift", "1.0", NEW, *files)) as reader:
        assert reader.imports_module(installed, "swift", "base.exporters.tasks") is is_imported
        assert reader.imports_module(installed, "absent", "base.exporters.tasks") is None


def test_the_packages_that_others_bring() -> None:
    requires = ('plots>=1 ; python_version < "3.11"', 'skipped ; extra == "tests"', "nowhere")
    releases = (
        package("tables", "1.0", OLD, requires=("skipped",)),
        package("tables", "2.0", NEW, requires=requires),
        package("plots", "1.0", OLD, requires=("base", "tables")),
    )
    with reading(*BASE, *releases) as reader:
        found = reader.required_packages({"tables": ""})
        assert found == {"tables": "2.0", "plots": "1.0", "base": "2.0", "nowhere": ""}
        assert "skipped" in (reader.required_packages({"tables": "1.0"}) or ())


def test_an_unreachable_index_is_unknown() -> None:
    reader = IndexReader(Sources(index="http://127.0.0.1:9/simple"))
    assert reader.newest_release("user") is None
    assert list(reader.missing_names(InstalledSet({"user": "1"}, ["user"], "3.12", "x86_64")).missing) == []
    assert list(reader.build_imports("user", "1", "3.12")) == []
    no_time = IndexReader(Sources(index="http://127.0.0.1:9/simple"), seconds=0)
    assert no_time.release("user", "1") is None


def test_a_program_that_only_another_release_has() -> None:
    def points(version: str, *names: str) -> tuple[str, str]:
        lines = "".join(f"{name} = seg:main\n" for name in names)
        return f"seg-{version}.dist-info/entry_points.txt", f"[console_scripts]\n{lines}"

    releases = [
        package("seg", version, day, ("seg/__init__.py", ""), points(version, *names))
        for version, day, names in (("1.0", OLD, ("seg_train",)), ("2.0", NEW, ("seg_run",)))
    ]
    programs = {"seg_train": ["seg"], "seg_run": ["seg"], "seg_other": ["seg"]}
    with reading(*releases) as reader:
        for version, expected in (("2.0", ("seg_train", "1.0")), ("1.0", ("seg_run", "2.0"))):
            found = reader.absent_programs(InstalledSet({"seg": version}, (), "3.12", "x86_64"), programs)
            assert [(each.program, each.having) for each in found] == [expected]
