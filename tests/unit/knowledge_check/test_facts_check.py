"""`facts check` against an index on loopback: with and without range requests, and with many kinds of errors."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import json
import re
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

import pytest
from support.local_packages import write_wheel
from support.loopback import Server, running_server

from envdoctor.core.errors import BadInput, EnvdoctorError
from envdoctor.download.sources import Sources
from envdoctor.knowledge.bounds import bounded_releases
from envdoctor.knowledge.releases import releases_of
from envdoctor.knowledge_check import FactsCheckResult, check_facts
from envdoctor.knowledge_check.comparison import select_wheel
from envdoctor.package_index.address import index_address
from envdoctor.package_index.simple_index import File
from envdoctor.package_index.wheel_names import parse_wheel_name

TODAY = date(2026, 11, 21)
PACKAGE = "llamafactory"  # the shortest table; each of its rows becomes a wheel
TABLE = f"requires/{PACKAGE}"
Reply = tuple[int, dict[str, str], bytes]


@dataclass
class FakeIndex:
    """A simple index of the wheels in a folder; the other fields vary its behaviour."""

    folder: Path
    json: bool = True
    metadata: bool = False  # PEP 658
    metadata_hash: str = ""  # replaces the correct hash
    metadata_exists: bool = True
    ranges: bool = True
    suffixes: bool = True  # ranges from the end
    spoil: Callable[[str, Reply], Reply] = lambda _, reply: reply  # changes a reply by its path
    hangs: str = ""  # paths with this text never get a response
    cut: str = ""  # paths with this text get half of the body
    requests: list[tuple[str, str, str]] = field(default_factory=list)  # path, Range, Authorization
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/simple"

    def reply(self, path: str, span: str, accept: str) -> Reply:
        if path == f"/simple/{PACKAGE}/":
            wheels = sorted(self.folder.glob("*.whl"))
            if self.json and "json" in accept:
                page = {"meta": {"api-version": "1.1"}, "files": [self._entry(wheel) for wheel in wheels]}
                return 200, {"Content-Type": "application/vnd.pypi.simple.v1+json"}, json.dumps(page).encode()
            links = "".join(f'<a href="../../files/{w.name}#sha256=0"{self._attribute(w)}>x</a>\n' for w in wheels)
            return 200, {"Content-Type": "text/html; charset=utf-8"}, links.encode()
        name = path.rpartition("/")[2]
        if name.endswith(".metadata") and self.metadata_exists:
            return 200, {}, metadata_of(self.folder / name.removesuffix(".metadata"))
        if not path.startswith("/files/") or not (self.folder / name).is_file():
            return 404, {}, b"not found"
        return self._ranged((self.folder / name).read_bytes(), span)

    def _ranged(self, data: bytes, span: str) -> Reply:
        requested = re.fullmatch(r"bytes=(\d*)-(\d*)", span)
        if not requested or not self.ranges:
            return 200, {}, data
        if not requested[1] and not self.suffixes:
            return 501, {}, b""
        start = int(requested[1]) if requested[1] else max(0, len(data) - int(requested[2]))
        end = min(int(requested[2]), len(data) - 1) if requested[1] else len(data) - 1
        return 206, {"Content-Range": f"bytes {start}-{end}/{len(data)}"}, data[start : end + 1]

    def _entry(self, wheel: Path) -> dict[str, object]:
        entry: dict[str, object] = {"filename": wheel.name, "url": f"../../files/{wheel.name}", "hashes": {}}
        return entry | ({"core-metadata": {"sha256": self._digest(wheel)}} if self.metadata else {})

    def _attribute(self, wheel: Path) -> str:
        return f' data-core-metadata="sha256={self._digest(wheel)}"' if self.metadata else ""

    def _digest(self, wheel: Path) -> str:
        return self.metadata_hash or hashlib.sha256(metadata_of(wheel)).hexdigest()


def metadata_of(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(next(name for name in archive.namelist() if name.endswith("/METADATA")))


class Handler(http.server.BaseHTTPRequestHandler):
    index: FakeIndex

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        span = self.headers.get("Range", "")
        self.index.requests.append((self.path, span, self.headers.get("Authorization", "")))
        while self.index.hangs and self.index.hangs in self.path:
            time.sleep(0.02)
        reply = self.index.reply(self.path, span, self.headers.get("Accept", ""))
        status, headers, body = self.index.spoil(self.path, reply)
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if self.index.cut and self.index.cut in self.path else body)


@contextmanager
def serving(index: FakeIndex) -> Iterator[FakeIndex]:
    server = Server(Handler, index=index)
    index.port = server.port
    with running_server(server):
        try:
            yield index
        finally:
            index.hangs = ""


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """Wheels that agree with the table."""
    for version, row in releases_of(PACKAGE).items():
        extras = [f'{line}; extra == "all"' for line in row.optional]
        write_wheel(tmp_path / "wheels", PACKAGE, version, requires=[*row.requires, *extras])
    return tmp_path / "wheels"


def check(
    index: FakeIndex, *, seconds: float = 20.0, timeout: str = "5", names: tuple[str, ...] = (TABLE,)
) -> FactsCheckResult:
    sources = Sources(index=index.url, timeout=timeout)
    return check_facts(names, sources, lambda _: None, today=TODAY, seconds=seconds)


ROWS = len(releases_of(PACKAGE))
VALID_INDEXES = {
    "JSON, METADATA file": {"metadata": True},
    "HTML, METADATA file": {"json": False, "metadata": True},
    "JSON, ranges": {},
    "HTML, ranges": {"json": False},
    "no ranges from the end": {"suffixes": False},
    "no ranges, small wheels": {"ranges": False},
    "METADATA listed and missing": {"metadata": True, "metadata_exists": False},
}


@pytest.mark.parametrize("kind", VALID_INDEXES)
def test_agreeing_table_on_each_kind_of_index(kind: str, wheels: Path) -> None:
    with serving(FakeIndex(wheels, **VALID_INDEXES[kind])) as index:
        found = check(index)
    (table,) = found.tables
    assert (table.checked, table.drifted, table.new, table.failed_reads) == (ROWS, (), (), ())
    assert not found.has_drifted
    assert not found.is_incomplete
    metadata_files = [path for path, _, _ in index.requests if path.endswith(".metadata")]
    assert bool(metadata_files) == ("METADATA" in kind)
    assert found.requests == len(index.requests)


def test_a_table_of_bounds_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their markers name Pythons: `numpy>=1.23.2,<2;python_version=='3.11'`."""
    monkeypatch.setitem(globals(), "PACKAGE", "pandas")
    rows = bounded_releases("pandas")
    for version, row in rows.items():
        requires = ["numpy<1"] if version == "2.1.4" else row.requires
        write_wheel(tmp_path / "wheels", "pandas", version, requires=requires)
    with serving(FakeIndex(tmp_path / "wheels", metadata=True)) as index:
        (table,) = check(index, names=("bounds/pandas",)).tables
    assert (table.checked, table.failed_reads, table.new) == (len(rows), (), ())
    (drift,) = table.drifted
    assert (drift.row, drift.field, drift.index_value) == ("pandas 2.1.4", "requires numpy", "<1")


def test_drifted_row_is_reported_with_both_values_and_the_file(wheels: Path) -> None:
    version, row = next(iter(releases_of(PACKAGE).items()))
    name = next(line for line in row.requires if line.startswith("transformers"))
    changed = [line for line in row.requires if line != name] + ["transformers<99,>=1"]
    wheel = write_wheel(wheels, PACKAGE, version, requires=changed)
    with serving(FakeIndex(wheels)) as index:
        found = check(index)
    (drift,) = found.tables[0].drifted
    assert found.has_drifted
    assert (drift.row, drift.field) == (f"{PACKAGE} {version}", "requires transformers")
    assert drift.index_value == "<99,>=1"
    assert drift.source == wheel.name
    assert set(drift.table_value.split(",")) == set(name.removeprefix("transformers").split(","))


def test_new_releases_are_not_drift(wheels: Path) -> None:
    write_wheel(wheels, PACKAGE, "99.0")
    write_wheel(wheels, PACKAGE, "99.1rc1")
    with serving(FakeIndex(wheels)) as index:
        found = check(index)
    assert [release.version for release in found.tables[0].new] == ["99.0"]
    assert not found.has_drifted


def test_removed_release_is_drift(wheels: Path) -> None:
    version = next(iter(releases_of(PACKAGE)))
    next(wheels.glob(f"*-{version}-*")).unlink()
    with serving(FakeIndex(wheels)) as index:
        (drift,) = check(index).tables[0].drifted
    assert (drift.row, drift.index_value) == (f"{PACKAGE} {version}", "not on the index")


Spoil = Callable[[str, Reply], Reply]


def alter_files(change: Callable[[Reply], Reply]) -> Spoil:
    """Change the replies for files."""
    return lambda path, reply: change(reply) if "/files/" in path else reply


def reply_with(path_part: str, status: int, headers: dict[str, str], body: bytes) -> Spoil:
    """Reply to the paths that contain `path_part` in the same way."""
    return lambda path, reply: (status, headers, body) if path_part in path else reply


OTHER_METADATA = b"Name: other\nVersion: 1\n"
FAULTY_INDEXES: dict[str, tuple[dict[str, object], str]] = {
    "range of another offset": (
        {"spoil": alter_files(lambda r: (r[0], {"Content-Range": f"bytes 5-{4 + len(r[2])}/{6 + len(r[2])}"}, r[2]))},
        "did not return the requested range",
    ),
    "range without Content-Range": ({"spoil": alter_files(lambda r: (r[0], {}, r[2]))}, "returned the range"),
    "not a zip": ({"spoil": alter_files(lambda r: (r[0], r[1], b"x" * len(r[2])))}, "not a readable wheel"),
    "incomplete body": ({"cut": "/files/"}, "bytes"),
    "excessive length": ({"spoil": reply_with("/files/", 200, {"Content-Length": str(1 << 40)}, b"")}, "would send"),
    "wrong hash": ({"metadata": True, "metadata_hash": "0" * 64}, "sha256"),
    "METADATA of another package": (
        {
            "metadata": True,
            "metadata_hash": hashlib.sha256(OTHER_METADATA).hexdigest(),
            "spoil": reply_with(".metadata", 200, {}, OTHER_METADATA),
        },
        "is for 'other' '1'",
    ),
    "missing wheels": ({"spoil": reply_with("/files/", 404, {}, b"")}, "returned 404 Not Found"),
    "server error": ({"spoil": reply_with("/files/", 503, {}, b"")}, "returned 503"),
    "redirect loop": ({"spoil": reply_with("/files/", 302, {"Location": "/files/again"}, b"")}, "redirects"),
    "redirect to a file": (
        {"spoil": reply_with("/files/", 302, {"Location": "file:///etc/passwd"}, b"")},
        "is not an http or https URL",
    ),
    "gzip bomb": (
        {
            "metadata": True,
            "spoil": reply_with(".metadata", 200, {"Content-Encoding": "gzip"}, gzip.compress(bytes(8 << 20))),
        },
        "decompresses to",
    ),
}


@pytest.mark.parametrize("kind", FAULTY_INDEXES)
def test_faulty_index_leaves_rows_uncompared(kind: str, wheels: Path) -> None:
    switches, message = FAULTY_INDEXES[kind]
    with serving(FakeIndex(wheels, **switches)) as index:
        found = check(index)
    (table,) = found.tables
    assert (table.checked, table.drifted) == (0, ())
    assert len(table.failed_reads) == ROWS
    assert all(message in failed.reason for failed in table.failed_reads), table.failed_reads[0].reason
    assert found.is_incomplete


def page(status: int, content_type: str = "", body: bytes = b"") -> Spoil:
    return reply_with("/simple/", status, {"Content-Type": content_type} if content_type else {}, body)


FAULTY_PAGES: dict[str, tuple[Spoil, str]] = {
    "404": (page(404), "returned 404"),
    "401": (page(401), "returned 401"),
    "500": (page(500), "returned 500"),
    "login page": (page(200, "text/html", b"<a href='/login'>Log in</a>"), "no file"),
    "invalid JSON": (page(200, "application/json", b"{"), "is not a page of a simple index"),
    "JSON of another structure": (page(200, "application/json", b'{"files": 3}'), "is not a page"),
    "image": (page(200, "image/png", b"\x89PNG"), "content type is image/png"),
    "excessive length": (reply_with("/simple/", 200, {"Content-Length": str(1 << 40)}, b""), "would send"),
}


@pytest.mark.parametrize("kind", FAULTY_PAGES)
def test_unreadable_index_page_is_exit_3(kind: str, wheels: Path) -> None:
    spoil, message = FAULTY_PAGES[kind]
    with serving(FakeIndex(wheels, spoil=spoil)) as index, pytest.raises(EnvdoctorError, match=message) as caught:
        check(index)
    assert caught.value.exit_code == 3
    assert "PIP_INDEX_URL" in caught.value.hint


def test_connection_refused() -> None:
    with pytest.raises(EnvdoctorError, match="Connection refused"):
        check(FakeIndex(Path(), port=1))


def test_hanging_server_is_limited_by_the_timeout(wheels: Path) -> None:
    stalled = serving(FakeIndex(wheels, hangs="/simple/"))
    with stalled as index, pytest.raises(EnvdoctorError, match="no response within 1 s"):
        check(index, timeout="1", seconds=300)
    assert len(index.requests) == 3  # three attempts


def test_run_ends_at_its_deadline(wheels: Path) -> None:
    with serving(FakeIndex(wheels, hangs="/files/")) as index:
        start = time.monotonic()
        found = check(index, timeout="600", seconds=1.5)
        took = time.monotonic() - start
    assert took < 60
    assert len(found.tables[0].failed_reads) == ROWS


def test_recovering_server_is_retried(wheels: Path) -> None:
    failures = iter([503, 429])

    def fail_twice(path: str, reply: Reply) -> Reply:
        status = next(failures, 0) if path.startswith("/simple/") else 0
        return (status, {}, b"") if status else reply

    with serving(FakeIndex(wheels, spoil=fail_twice)) as index:
        assert check(index).tables[0].checked == ROWS


def test_redirects_do_not_forward_credentials(wheels: Path) -> None:
    with serving(FakeIndex(wheels)) as other:
        target = f"http://localhost:{other.port}/simple/{PACKAGE}/"
        moved = reply_with("/simple/", 302, {"Location": target}, b"")
        with serving(FakeIndex(wheels, spoil=moved)) as index:
            secret = index.url.replace("http://", "http://user:s%40cret@")
            found = check_facts([TABLE], Sources(index=secret), lambda _: None, today=TODAY)
    assert found.tables[0].checked == ROWS
    assert index.requests[0][2] == "Basic dXNlcjpzQGNyZXQ="
    assert {login for _, _, login in other.requests} == {""}
    assert "cret" not in repr(found)


def test_underivable_rows_have_source_and_age() -> None:
    found = check_facts(["cuda"], Sources(), lambda _: None, today=date(2027, 11, 21))
    (table,) = found.tables
    assert (found.requests, table.checked) == (0, 0)
    assert sum(group.rows for group in table.underivable) == 14
    assert {(group.age_days, group.old) for group in table.underivable} == {(365, True)}
    assert all("CUDA" in group.source for group in table.underivable)


def test_unknown_name_suggests_a_table() -> None:
    with pytest.raises(BadInput, match="did you mean 'published'"):
        check_facts(["publishd"], Sources(), lambda _: None, today=TODAY)


def test_default_index_is_that_of_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UV_DEFAULT_INDEX", raising=False)
    from pip._internal.models.index import PyPI  # pip has the same default

    assert index_address(Sources()).rstrip("/") == PyPI.simple_url


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        (Sources(no_index=True, origins={"no-index": "PIP_NO_INDEX"}), "no-index is set"),
        (Sources(index="file:///mirror/simple", origins={"index-url": "PIP_INDEX_URL"}), "not an http or https URL"),
        (Sources(index="http://h/simple", proxy="socks5://p:1080", origins={"proxy": "PIP_PROXY"}), "proxy socks5"),
        (Sources(index="https://h/simple", cert="/nowhere.pem"), "cannot read certificates /nowhere.pem"),
    ],
)
def test_invalid_settings_are_reported(sources: Sources, message: str) -> None:
    with pytest.raises(EnvdoctorError, match=message):
        check_facts([TABLE], sources, lambda _: None, today=TODAY)


def test_proxy_is_used(wheels: Path) -> None:
    with serving(FakeIndex(wheels)) as proxy:
        sources = Sources(index="http://index.invalid/simple", proxy=f"http://127.0.0.1:{proxy.port}", timeout="2")
        with pytest.raises(EnvdoctorError, match="404"):  # the proxy of this test has no such host
            check_facts([TABLE], sources, lambda _: None, today=TODAY)
    assert proxy.requests[0][0] == f"http://index.invalid/simple/{PACKAGE}/"


def test_a_wheel_of_python_2_represents_no_release() -> None:
    names = ("demo-1.0-py2-none-any.whl", "demo-1.0-py3-none-any.whl")
    files = [File(name, "", "1.0", parse_wheel_name(name)) for name in names]
    assert select_wheel(files) == files[1]
    assert select_wheel(files[:1]) is None
