"""The Python files of the releases of packages on an index, each stored once: import_breaks.py reads them."""

from __future__ import annotations

import json
import re
import sqlite3
import sys
import time
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from envdoctor.download.http_client import HttpClient, RequestFailed
from envdoctor.download.sources import read_sources
from envdoctor.knowledge.versions import is_prerelease, version_key
from envdoctor.knowledge_check.release_members import file_of
from envdoctor.package_index.address import index_address
from envdoctor.package_index.releases import Release, read_releases
from envdoctor.package_index.remote_wheel import RemoteWheel
from envdoctor.package_index.simple_index import File
from envdoctor.package_index.source_archive import ARCHIVE_BYTES, python_files
from envdoctor.package_index.wheel_sources import MEMBER_BYTES, WHEEL_BYTES, WheelSources

LIST = Path(__file__).with_name("import_packages.txt")
FIRST_DAY = "2021-01-01"
MAX_RELEASES = 70  # of one package; of more, first the first and last ones of each minor series
SECONDS = 4 * 3600.0
CONNECTIONS = 8
DATA_FOLDER = re.compile(r"[^/]+\.data/(?:purelib|platlib)/")
TEST_FILE = re.compile(r"(?:^|/)(?:tests?|testing|benchmarks?|examples?)/")  # not stored
COMPILED = re.compile(r"\.(?:so|pyd)$")


class Package(NamedTuple):
    """A package of the list."""

    name: str
    tops: tuple[str, ...]
    entries: tuple[str, ...]  # modules that a user imports, the package itself first


def listed_packages(path: Path = LIST) -> dict[str, Package]:
    """The packages of a list by name."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("#") or not line.strip():
            continue
        names, _, entries = line.partition("+")
        name, _, modules = (part.strip() for part in names.partition("="))
        tops = tuple(modules.split()) or (name.replace("-", "_"),)
        found[name] = Package(name, tops, (*tops, *entries.split()))
    return found


class Store:
    """The Python files of the releases of one package; a file that several releases have is stored once."""

    def __init__(self, folder: Path, package: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.database = sqlite3.connect(folder / f"{package}.sqlite", check_same_thread=False)
        self.database.execute("CREATE TABLE IF NOT EXISTS files (key TEXT PRIMARY KEY, data BLOB)")
        self.database.execute("CREATE TABLE IF NOT EXISTS releases (version TEXT PRIMARY KEY, content TEXT)")

    def keys(self) -> set[str]:
        """The keys of the stored files."""
        return {key for (key,) in self.database.execute("SELECT key FROM files")}

    def add(self, version: str, content: dict[str, Any], files: Iterable[tuple[str, bytes]]) -> None:
        """Add a release and its new files."""
        rows = ((key, zlib.compress(data, 1)) for key, data in files)
        self.database.executemany("INSERT OR IGNORE INTO files VALUES (?, ?)", rows)
        self.database.execute("INSERT OR REPLACE INTO releases VALUES (?, ?)", (version, json.dumps(content)))
        self.database.commit()

    def read(self, key: str) -> str:
        """The text of a file."""
        (data,) = self.database.execute("SELECT data FROM files WHERE key = ?", (key,)).fetchone()
        return zlib.decompress(data).decode("utf-8", "replace")

    def versions(self) -> set[str]:
        """The stored releases."""
        return {version for (version,) in self.database.execute("SELECT version FROM releases")}

    def releases(self) -> list[tuple[str, dict[str, Any]]]:
        """The releases in order of version, with their content."""
        rows = ((version, json.loads(text)) for version, text in self.database.execute("SELECT * FROM releases"))
        return sorted(rows, key=lambda row: version_key(row[0]) or ((0,), (0, 0), 0, 0))


class StoredSources(WheelSources):
    """The Python files of a stored release."""

    def __init__(self, store: Store, version: str, content: dict[str, Any]) -> None:
        self.name, self.store = version, store
        self.keys: dict[str, str] = content["paths"]
        self.paths = tuple(self.keys)
        self.compiled = tuple(content["compiled"])
        self._texts: dict[str, str] = {}

    def read(self, path: str) -> str:
        """The text of a file."""
        if path not in self._texts:
            self._texts[path] = self.store.read(self.keys[path])
        return self._texts[path]

    def forget(self) -> None:
        """Release the memory of the texts that were read."""
        self._texts.clear()


def select_releases(releases: Iterable[Release]) -> list[Release]:
    """The releases that are read, oldest first."""
    wanted = [
        each for each in releases
        if each.day >= FIRST_DAY and not is_prerelease(each.version) and not each.is_yanked
    ]  # fmt: skip
    if len(wanted) <= MAX_RELEASES:
        return wanted
    minor = {each.version: re.sub(r"^(\d+\.\d+).*", r"\1", each.version) for each in wanted}
    ends = [
        each for n, each in enumerate(wanted)
        if n in (0, len(wanted) - 1) or len({minor[wanted[k].version] for k in (n - 1, n, n + 1)}) > 1
    ]  # fmt: skip
    if len(ends) < MAX_RELEASES:  # hundreds of releases of few minor series, such as those of sglang
        others = [each for each in wanted if each not in ends]
        step = -(-len(others) // (MAX_RELEASES - len(ends)))
        return [each for each in wanted if each in ends or each in others[::step]]
    step = -(-len(ends) // MAX_RELEASES)
    return [each for n, each in enumerate(ends) if n % step == 0 or n == len(ends) - 1]


def read_package(client: HttpClient, index: str, folder: Path, name: str) -> str:
    """Store the releases of a package; returns what was read."""
    try:
        releases = select_releases(read_releases(client, index, name))
    except RequestFailed as failure:
        return f"{name}: {failure.reason}"
    store = Store(folder, name)
    known, stored, failed = store.keys(), store.versions(), []
    for release in releases:
        if release.version in stored:
            continue
        try:
            file = file_of(release)
            content, files = (read_wheel if file.wheel else read_archive)(client, file, known)
        except RequestFailed as failure:
            failed.append(f"{release.version} ({failure.reason})")
            continue
        store.add(release.version, content | {"day": release.day}, files)
        known |= {key for key, _ in files}
    store.database.close()
    return f"{name}: {len(releases)} releases" + (f", not read: {'; '.join(failed)}" if failed else "")


def read_wheel(client: HttpClient, file: File, known: set[str]) -> tuple[dict[str, Any], list[tuple[str, bytes]]]:
    """The content of a wheel, and its Python files that are not known."""
    wheel = RemoteWheel(client, file, limit=WHEEL_BYTES)
    members = {
        DATA_FOLDER.sub("", name): (name, f"{member.CRC:08x}-{member.file_size}")
        for name, member in wheel.members.items()
        if name.endswith(".py") and member.file_size <= MEMBER_BYTES and not TEST_FILE.search(name)
    }
    metadata = next((name for name in wheel.members if re.fullmatch(r"[^/]+\.dist-info/METADATA", name)), "")
    new = {key: name for name, key in members.values() if key not in known}
    wheel.request([*new.values(), *([metadata] if metadata else [])])
    text = wheel.read(metadata, limit=MEMBER_BYTES).decode("utf-8", "replace") if metadata else ""
    content = {
        "paths": {path: key for path, (_, key) in members.items()},
        "compiled": [DATA_FOLDER.sub("", name) for name in wheel.members if COMPILED.search(name)],
        "requires": re.findall(r"^Requires-Dist: (.+)$", text.partition("\n\n")[0], re.MULTILINE),
    }
    return content, [(key, wheel.read(name, limit=MEMBER_BYTES)) for key, name in new.items()]


def read_archive(client: HttpClient, file: File, known: set[str]) -> tuple[dict[str, Any], list[tuple[str, bytes]]]:
    """The Python files of a source archive; its requirements are unknown."""
    paths, new = {}, []
    for path, text in python_files(file.name, client.get(file.url, limit=4 * ARCHIVE_BYTES).body):
        data = text.encode("utf-8", "replace")
        key = f"{zlib.crc32(data):08x}-{len(data)}"
        if not TEST_FILE.search(path):
            paths[re.sub(r"^(?:src|lib|python)/", "", path)] = key
            new += [] if key in known else [(key, data)]
    return {"paths": paths, "compiled": [], "requires": None}, new


def read_all(folder: Path, names: list[str]) -> None:
    """Store the releases of the packages."""
    sources = read_sources()
    client = HttpClient(sources, end=time.monotonic() + SECONDS)
    index = client.store_credentials(index_address(sources))
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        for line in pool.map(partial(read_package, client, index, folder), names):
            print(line, file=sys.stderr, flush=True)
