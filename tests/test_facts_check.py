"""Our tables against an index on loopback: one that serves ranges, and many that do not do what they should."""

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
from local_packages import write_wheel
from loopback import Server, answering

from envdoctor.core.errors import BadInput, EnvdoctorError
from envdoctor.download.sources import Sources
from envdoctor.knowledge.releases import releases_of
from envdoctor.knowledge_check import FactsChecked, check_facts
from envdoctor.knowledge_check.address import index_address

TODAY = date(2026, 11, 21)
PACKAGE = "llamafactory"  # the shortest table: each of its rows becomes a wheel
TABLE = f"requires/{PACKAGE}"
Reply = tuple[int, dict[str, str], bytes]


@dataclass
class Web:
    """A simple index over a folder; each switch makes it another index."""

    folder: Path
    json: bool = True
    metadata: bool = False  # PEP 658
    metadata_hash: str = ""  # instead of the right one
    metadata_there: bool = True
    ranges: bool = True
    suffixes: bool = True  # ranges counted from the end
    spoil: Callable[[str, Reply], Reply] = lambda _, reply: reply
    asleep: str = ""  # paths that hold this are never answered
    cut: str = ""  # paths whose body ends in the middle
    asked: list[tuple[str, str, str]] = field(default_factory=list)  # path, Range, Authorization
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
        if name.endswith(".metadata") and self.metadata_there:
            return 200, {}, metadata_of(self.folder / name.removesuffix(".metadata"))
        if not path.startswith("/files/") or not (self.folder / name).is_file():
            return 404, {}, b"no such thing"
        return self._ranged((self.folder / name).read_bytes(), span)

    def _ranged(self, data: bytes, span: str) -> Reply:
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", span)
        if not asked or not self.ranges:
            return 200, {}, data
        if not asked[1] and not self.suffixes:
            return 501, {}, b""
        start = int(asked[1]) if asked[1] else max(0, len(data) - int(asked[2]))
        end = min(int(asked[2]), len(data) - 1) if asked[1] else len(data) - 1
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
    web: Web

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        span = self.headers.get("Range", "")
        self.web.asked.append((self.path, span, self.headers.get("Authorization", "")))
        while self.web.asleep and self.web.asleep in self.path:
            time.sleep(0.02)
        reply = self.web.reply(self.path, span, self.headers.get("Accept", ""))
        status, headers, body = self.web.spoil(self.path, reply)
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if self.web.cut and self.web.cut in self.path else body)


@contextmanager
def serving(web: Web) -> Iterator[Web]:
    server = Server(Handler, web=web)
    web.port = server.port
    with answering(server):
        try:
            yield web
        finally:
            web.asleep = ""


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """The table as wheels: an index that it agrees with."""
    for version, row in releases_of(PACKAGE).items():
        extras = [f'{line}; extra == "all"' for line in row.optional]
        write_wheel(tmp_path / "wheels", PACKAGE, version, requires=[*row.requires, *extras])
    return tmp_path / "wheels"


def check(web: Web, *, seconds: float = 20.0, timeout: str = "5", names: tuple[str, ...] = (TABLE,)) -> FactsChecked:
    sources = Sources(index=web.url, timeout=timeout)
    return check_facts(names, sources, lambda _: None, today=TODAY, seconds=seconds)


ROWS = len(releases_of(PACKAGE))
GOOD = {
    "JSON, METADATA beside the wheel": {"metadata": True},
    "HTML, METADATA beside the wheel": {"json": False, "metadata": True},
    "JSON, ranges": {},
    "HTML, ranges": {"json": False},
    "no ranges from the end": {"suffixes": False},
    "no ranges, small wheels": {"ranges": False},
    "METADATA promised and not there": {"metadata": True, "metadata_there": False},
}


@pytest.mark.parametrize("kind", GOOD)
def test_the_same_table_on_every_kind_of_index(kind: str, wheels: Path) -> None:
    with serving(Web(wheels, **GOOD[kind])) as web:
        found = check(web)
    (table,) = found.tables
    assert (table.checked, table.drifted, table.new, table.unanswered) == (ROWS, (), (), ())
    assert not found.has_drifted
    assert not found.is_incomplete
    read_beside = [path for path, _, _ in web.asked if path.endswith(".metadata")]
    assert bool(read_beside) == ("METADATA" in kind)
    assert found.requests == len(web.asked)


def test_a_row_that_drifted_is_named_with_both_sides_and_the_file(wheels: Path) -> None:
    version, row = next(iter(releases_of(PACKAGE).items()))
    name = next(line for line in row.requires if line.startswith("transformers"))
    changed = [line for line in row.requires if line != name] + ["transformers<99,>=1"]
    wheel = write_wheel(wheels, PACKAGE, version, requires=changed)
    with serving(Web(wheels)) as web:
        found = check(web)
    (drift,) = found.tables[0].drifted
    assert found.has_drifted
    assert (drift.row, drift.field) == (f"{PACKAGE} {version}", "requires transformers")
    assert drift.index == "<99,>=1"
    assert drift.where == wheel.name
    assert set(drift.ours.split(",")) == set(name.removeprefix("transformers").split(","))


def test_new_releases_are_told_and_are_no_drift(wheels: Path) -> None:
    write_wheel(wheels, PACKAGE, "99.0")
    write_wheel(wheels, PACKAGE, "99.1rc1")
    with serving(Web(wheels)) as web:
        found = check(web)
    assert [release.version for release in found.tables[0].new] == ["99.0"]
    assert not found.has_drifted


def test_a_release_that_is_gone_has_drifted(wheels: Path) -> None:
    version = next(iter(releases_of(PACKAGE)))
    next(wheels.glob(f"*-{version}-*")).unlink()
    with serving(Web(wheels)) as web:
        (drift,) = check(web).tables[0].drifted
    assert (drift.row, drift.index) == (f"{PACKAGE} {version}", "not there")


def lie(change: Callable[[Reply], Reply], where: str = "/files/") -> Callable[[str, Reply], Reply]:
    return lambda path, reply: change(reply) if where in path else reply


def always(status: int, headers: dict[str, str], body: bytes) -> Callable[[Reply], Reply]:
    return lambda _: (status, headers, body)


LIES: dict[str, tuple[dict[str, object], str]] = {
    "a range of another place": (
        {"spoil": lie(lambda r: (r[0], {"Content-Range": f"bytes 5-{4 + len(r[2])}/{6 + len(r[2])}"}, r[2]))},
        "does not serve the range that it was asked for"),
    "a range without its place": ({"spoil": lie(lambda r: (r[0], {}, r[2]))}, "answers a range with"),
    "bytes that are no zip": ({"spoil": lie(lambda r: (r[0], r[1], b"x" * len(r[2])))}, "no wheel that can be read"),
    "half of what it promises": ({"cut": "/files/"}, "bytes"),
    "more than is sane": ({"spoil": lie(always(200, {"Content-Length": str(1 << 40)}, b""))}, "would send"),
    "a hash that does not fit": ({"metadata": True, "metadata_hash": "0" * 64}, "sha256"),
    "METADATA of something else": (
        {"metadata": True, "metadata_hash": hashlib.sha256(b"Name: other\nVersion: 1\n").hexdigest(),
         "spoil": lie(always(200, {}, b"Name: other\nVersion: 1\n"), ".metadata")}, "is that of 'other' '1'"),
    "wheels that are gone": ({"spoil": lie(always(404, {}, b""))}, "answers 404 Not Found"),
    "a server in trouble": ({"spoil": lie(always(503, {}, b""))}, "answers 503"),
    "a circle of redirects": ({"spoil": lie(always(302, {"Location": "/files/again"}, b""))}, "redirects"),
    "a redirect to a file": ({"spoil": lie(always(302, {"Location": "file:///etc/passwd"}, b""))}, "no address"),
    "a gzip bomb": (
        {"metadata": True, "spoil": lie(
            always(200, {"Content-Encoding": "gzip"}, gzip.compress(bytes(8 << 20))), ".metadata")}, "unpacks to"),
}  # fmt: skip


@pytest.mark.parametrize("kind", LIES)
def test_an_index_that_lies_leaves_rows_open_and_is_never_believed(kind: str, wheels: Path) -> None:
    switches, said = LIES[kind]
    with serving(Web(wheels, **switches)) as web:
        found = check(web)
    (table,) = found.tables
    assert (table.checked, table.drifted) == (0, ())
    assert len(table.unanswered) == ROWS
    assert all(said in each.reason for each in table.unanswered), table.unanswered[0].reason
    assert found.is_incomplete


PAGES: dict[str, tuple[Callable[[str, Reply], Reply], str]] = {
    "404": (lie(always(404, {}, b""), "/simple/"), "answers 404"),
    "401": (lie(always(401, {}, b""), "/simple/"), "answers 401"),
    "500": (lie(always(500, {}, b""), "/simple/"), "answers 500"),
    "a login page": (lie(always(200, {"Content-Type": "text/html"}, b"<a href='/login'>Log in</a>"), "/simple/"),
        "no file"),
    "no JSON": (lie(always(200, {"Content-Type": "application/json"}, b"{"), "/simple/"),
        "no page of a simple index"),
    "JSON of another kind": (lie(always(200, {"Content-Type": "application/json"}, b'{"files": 3}'), "/simple/"),
        "no page"),
    "an image": (lie(always(200, {"Content-Type": "image/png"}, b"\x89PNG"), "/simple/"),
        "content type is image/png"),
    "a page without end": (lie(always(200, {"Content-Length": str(1 << 40)}, b""), "/simple/"), "would send"),
}  # fmt: skip


@pytest.mark.parametrize("kind", PAGES)
def test_an_index_that_tells_nothing_is_exit_3_with_what_was_seen(kind: str, wheels: Path) -> None:
    spoil, said = PAGES[kind]
    with serving(Web(wheels, spoil=spoil)) as web, pytest.raises(EnvdoctorError, match=said) as caught:
        check(web)
    assert caught.value.exit_code == 3
    assert "PIP_INDEX_URL" in caught.value.hint


def test_nobody_listens() -> None:
    with pytest.raises(EnvdoctorError, match="Connection refused"):
        check(Web(Path(), port=1))


def test_a_server_that_hangs_costs_its_timeout_only(wheels: Path) -> None:
    with serving(Web(wheels, asleep="/simple/")) as web:
        begin = time.monotonic()
        with pytest.raises(EnvdoctorError, match="nothing within 1 s"):
            check(web, timeout="1", seconds=30)
        took = time.monotonic() - begin
    assert len(web.asked) == 3  # once, and twice more
    assert took < 6


def test_the_run_ends_when_its_time_is_over(wheels: Path) -> None:
    with serving(Web(wheels, asleep="/files/")) as web:
        begin = time.monotonic()
        found = check(web, timeout="60", seconds=1.5)
        took = time.monotonic() - begin
    assert took < 4
    assert len(found.tables[0].unanswered) == ROWS


def test_a_server_that_recovers_is_asked_again(wheels: Path) -> None:
    failures = iter([503, 429])

    def stumble(path: str, reply: Reply) -> Reply:
        status = next(failures, 0) if path.startswith("/simple/") else 0
        return (status, {}, b"") if status else reply

    with serving(Web(wheels, spoil=stumble)) as web:
        assert check(web).tables[0].checked == ROWS


def test_redirects_are_followed_and_credentials_stay_with_their_host(wheels: Path) -> None:
    with serving(Web(wheels)) as other:
        place = f"http://localhost:{other.port}/simple/{PACKAGE}/"
        moved = lie(always(302, {"Location": place}, b""), "/simple/")
        with serving(Web(wheels, spoil=moved)) as web:
            secret = web.url.replace("http://", "http://user:s%40cret@")
            found = check_facts([TABLE], Sources(index=secret), lambda _: None, today=TODAY)
    assert found.tables[0].checked == ROWS
    assert web.asked[0][2] == "Basic dXNlcjpzQGNyZXQ="
    assert {login for _, _, login in other.asked} == {""}
    assert "cret" not in repr(found)


def test_rows_that_no_wheel_confirms_show_source_and_age() -> None:
    found = check_facts(["cuda"], Sources(), lambda _: None, today=date(2027, 11, 21))
    (table,) = found.tables
    assert (found.requests, table.checked) == (0, 0)
    assert sum(each.rows for each in table.underivable) == 14
    assert {(each.age_days, each.old) for each in table.underivable} == {(365, True)}
    assert all("CUDA" in each.source for each in table.underivable)


def test_a_wrong_name_says_the_right_one() -> None:
    with pytest.raises(BadInput, match="did you mean 'published'"):
        check_facts(["publishd"], Sources(), lambda _: None, today=TODAY)


def test_the_default_index_is_the_one_that_uv_carries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UV_DEFAULT_INDEX", raising=False)
    from pip._internal.models.index import PyPI  # what pip carries: two tools, one address

    assert index_address(Sources()).rstrip("/") == PyPI.simple_url


@pytest.mark.parametrize(
    ("sources", "said"),
    [
        (Sources(no_index=True, origins={"no-index": "PIP_NO_INDEX"}), "no-index is set"),
        (Sources(index="file:///mirror/simple", origins={"index-url": "PIP_INDEX_URL"}), "not on the web"),
        (Sources(index="http://h/simple", proxy="socks5://p:1080", origins={"proxy": "PIP_PROXY"}), "proxy socks5"),
        (Sources(index="http://h/simple", cert="/nowhere.pem"), "nowhere.pem cannot be read"),
    ],
)
def test_settings_that_cannot_work_are_named(sources: Sources, said: str) -> None:
    with pytest.raises(EnvdoctorError, match=said):
        check_facts([TABLE], sources, lambda _: None, today=TODAY)


def test_a_proxy_is_asked_instead_of_the_host(wheels: Path) -> None:
    with serving(Web(wheels)) as proxy:
        sources = Sources(index="http://index.invalid/simple", proxy=f"http://127.0.0.1:{proxy.port}", timeout="2")
        with pytest.raises(EnvdoctorError, match="404"):  # the proxy of this test knows no such host
            check_facts([TABLE], sources, lambda _: None, today=TODAY)
    assert proxy.asked[0][0] == f"http://index.invalid/simple/{PACKAGE}/"
