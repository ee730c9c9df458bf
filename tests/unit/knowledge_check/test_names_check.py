"""The tables of names are derived from the sources of releases, and compared with them on an index."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from pathlib import Path

import pytest
from support.dated_index import DatedIndex, release, serve

from envdoctor.download.http_client import RequestFailed
from envdoctor.download.sources import Sources
from envdoctor.knowledge import names, tables
from envdoctor.knowledge_check import check_facts
from envdoctor.knowledge_check import tables as checked_tables
from envdoctor.knowledge_check.library_members import read_members
from envdoctor.knowledge_check.names_table import derive_table, format_table
from envdoctor.knowledge_check.records import TableChecked
from envdoctor.package_index.source_archive import python_files

TODAY = date(2026, 11, 26)
CODE = {
    "1.0": "class Tuner:\n    def __init__(self, rate): self.rate = rate\nclass Old: ...\n",
    "1.1": "class Tuner:\n    def __init__(self, rate, steps): self.rate = rate\n",
    "2.0": "class Tuner:\n    def __init__(self, steps):\n        if steps: self.steps = steps\nclass New: ...\n",
}
ROWS = {
    "names": ["New 2.0..", "Old ..1.0"],
    "arguments": ["Tuner.rate ..1.1", "Tuner.steps 1.1.."],
    "values": [],
    "attributes": ["Tuner.rate ..1.1", "Tuner.steps 2.0..?"],
    "bases": [],
}
Write = Callable[[dict[str, list[str]]], None]


@pytest.fixture
def write_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Replace the built-in tables by one of names of the package demo."""
    caches = (tables.read_table, names.spans_of, names._bases, checked_tables.table_names)
    for module in (tables, names):
        monkeypatch.setattr(module, "FOLDER", tmp_path)
    (tmp_path / "names").mkdir()

    def write(rows: dict[str, list[str]]) -> None:
        for cached in caches:
            cached.cache_clear()
        text = format_table("the wheels of a test", "2026-11-26", list(CODE), rows)
        (tmp_path / "names/demo.toml").write_text(text)

    yield write
    for cached in caches:
        cached.cache_clear()


@pytest.fixture
def index() -> Iterator[DatedIndex]:
    with serve(*(release("demo", version, "2026-01-01", code) for version, code in CODE.items())) as served:
        yield served


def check(index: DatedIndex, *, day: date = TODAY, every: bool = False) -> TableChecked:
    sources = Sources(index=f"http://127.0.0.1:{index.port}/main/simple/")
    (table,) = check_facts(["names/demo"], sources, lambda _: None, today=day, every=every).tables
    return table


def test_rows_are_derived_from_the_sources() -> None:
    read = [read_members("demo", [("__init__.py", code)]) for code in CODE.values()]
    assert derive_table("demo", list(CODE), read) == ROWS


def test_periods_of_a_member() -> None:
    """A member that a release between two others lacks has a range for each period."""
    versions = ["1.0", "1.1", "1.2", "1.3"]
    code = [
        "class A:\n    def __init__(self, x, y): ...\ndef f(): ...\n",
        "class A:\n    def __init__(self, x): ...\ndef f(): ...\n",
        "class A:\n    def __init__(self, y): ...\n",
        "class A:\n    def __init__(self, x, y): ...\ndef f(): ...\ndef g(): ...\n",
    ]
    rows = derive_table("demo", versions, [read_members("demo", [("__init__.py", text)]) for text in code])
    assert rows["arguments"] == ["A.x ..1.1 1.3..", "A.y ..1.0 1.2.."]
    assert rows["names"] == ["f ..1.1 1.3..", "g 1.3.."]


def test_members_of_owners_with_one_word_are_left_out() -> None:
    lines = ("def main({}): ...", "def init_group({}): ...", "class Result:\n    def __init__(self, {}): ...",
             "class DataContext:\n    def __init__(self, {}): ...")  # fmt: skip
    code = ["\n".join(line.format(arguments) for line in lines) + "\n" for arguments in ("a", "a, b")]
    read = [read_members("torch", [("__init__.py", text)]) for text in code]
    two_words = ["DataContext.b 2.9..", "init_group.b 2.9.."]
    assert derive_table("torch", ["2.8", "2.9"], read)["arguments"] == two_words
    assert derive_table("trl", ["2.8", "2.9"], read)["arguments"] == sorted(
        ["Result.b 2.9..", "main.b 2.9..", *two_words]
    )


def test_members_of_a_class_in_several_modules_are_left_out() -> None:
    code = [
        "class RunConfig:\n    name: str\nclass DataContext:\n    size: int\n",
        "class RunConfig: ...\nclass DataContext: ...\n",
    ]
    rows = derive_table("ray", ["2.40", "2.41"], [read_members("ray", [("__init__.py", text)]) for text in code])
    assert rows["arguments"] == ["DataContext.size ..2.40"]


def test_attributes_that_some_instances_lack() -> None:
    """An attribute that one path through `__init__` does not set is missing from some instances."""
    source = """
class A:
    annotated: int
    assigned = 1

    def __init__(self, config):
        self.always = config.other = 1
        if config:
            self.both, self.one = 1, 2
        elif not config:
            self.both = 3
        else:
            raise ValueError
        try:
            self.attempted = 1
        except ImportError:
            self.attempted = None
        for each in config:
            self.in_loop = each
        with config:
            self.inside = 2

    def later(self):
        self.of_a_method = 1
"""
    read = read_members("demo", [("__init__.py", source)])
    always = {f"A.{name}" for name in ("__init__", "later", "assigned", "always", "both", "attempted", "inside")}
    assert read.attributes - read.partial == always
    assert read.partial == {f"A.{name}" for name in ("annotated", "one", "in_loop", "of_a_method")}


def test_agreeing_table(index: DatedIndex, write_table: Write) -> None:
    write_table(ROWS)
    table = check(index, every=True)
    assert (table.checked, table.drifted, table.new, table.failed_reads) == (6, (), (), ())
    index.requests.clear()
    for day in range(3):
        assert check(index, day=TODAY + timedelta(days=day)).drifted == ()
    assert not [path for path in index.requests if path.endswith(".whl")]  # the members are in the cache


def test_one_release_is_read_each_day(index: DatedIndex, write_table: Write) -> None:
    write_table(ROWS)
    wheels = []
    for day in range(3):
        index.requests.clear()
        check(index, day=TODAY + timedelta(days=day))
        wheels += {path.rpartition("/")[2] for path in index.requests if path.endswith(".whl")}
    assert sorted(wheels) == [f"demo-{version}-py3-none-any.whl" for version in CODE]


@pytest.mark.parametrize(
    ("wrong", "drift", "in_one"),
    [
        ({"arguments": ["Tuner.rate ..1.1", "Tuner.steps 2.0.."]},
         ("arguments Tuner.steps", "2.0..", "1.1.."), ("demo 1.1", "absent", "present")),
        ({"names": ["New 2.0..", "Old ..1.1"]},
         ("names Old", "..1.1", "..1.0"), ("demo 1.1", "present", "absent")),
        ({"names": ["New 2.0.."]}, ("names Old", "no row", "..1.0"), None),
        ({"attributes": ["Tuner.rate ..1.1", "Tuner.steps 2.0.."]},
         ("attributes Tuner.steps", "2.0..", "2.0..?"), None),
        ({"values": ["Tuner.loss=x 2.0.."]},
         ("values Tuner.loss=x", "2.0..", "no row"), ("demo 2.0", "present", "absent")),
    ],
)  # fmt: skip
def test_wrong_row_is_drift(
    index: DatedIndex, write_table: Write, wrong: dict[str, list[str]], drift: tuple[str, ...],
    in_one: tuple[str, ...] | None,
) -> None:  # fmt: skip
    write_table(ROWS | wrong)
    assert [(each.field, each.table_value, each.index_value) for each in check(index, every=True).drifted] == [drift]
    found = [each for day in range(3) for each in check(index, day=TODAY + timedelta(days=day)).drifted]
    assert [(each.row, each.table_value, each.index_value) for each in found] == ([in_one] if in_one else [])
    assert all(each.source == f"demo-{each.row.split()[1]}-py3-none-any.whl" for each in found)


def test_new_and_missing_releases(write_table: Write) -> None:
    write_table(ROWS)
    added = release("demo", "3.0", "2026-11-01", CODE["2.0"])
    with serve(
        *(release("demo", version, "2026-01-01", CODE[version]) for version in ("1.0", "1.1")), added
    ) as index:
        table = check(index, every=True)
    assert [each.version for each in table.new] == ["3.0"]
    assert [(each.item, each.rows) for each in table.failed_reads] == [("demo 2.0", 6)]
    assert table.drifted == ()


def test_file_that_does_not_parse_is_no_drift(write_table: Write) -> None:
    write_table(ROWS)
    broken = (release("demo", version, "2026-01-01", CODE[version] + "def (:\n") for version in CODE)
    with serve(*broken) as index:
        assert [check(index, day=TODAY + timedelta(days=day)).drifted for day in range(3)] == [(), (), ()]


def test_python_files_of_a_source_archive() -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for path, text in (("demo-1.0/demo/__init__.py", "x = 1\n"), ("demo-1.0/demo/data.json", "{}")):
            member = tarfile.TarInfo(path)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    assert list(python_files("demo-1.0.tar.gz", stream.getvalue())) == [("demo/__init__.py", "x = 1\n")]
    with pytest.raises(RequestFailed, match=r"demo-1\.0\.tar\.gz is not a readable archive"):
        list(python_files("demo-1.0.tar.gz", stream.getvalue()[:40]))
