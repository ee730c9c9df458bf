"""`envdoctor update` in processes of its own: each reads the tables that it finds."""

from __future__ import annotations

import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from support.command import COMMAND, environment, snapshot
from support.knowledge_packages import DAY, LATER, OTHER_KEY, TEST_KEY, package, with_entries
from support.paths import ROOT

from envdoctor.knowledge.age import can_update
from envdoctor.knowledge.installed import BUNDLED
from envdoctor.knowledge_update.package import TABLES

NAME = f"envdoctor-knowledge-{LATER}.zip"
DATE = DAY.replace(".", "-")
REQUIREMENTS = "trl>=0.20\ntransformers>=4.57.1\nvllm==0.10.2\n"


class Home:
    """A user's home directory with a folder of packages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.packages = folder / "packages"
        self.packages.mkdir()
        self.knowledge = folder / ".local/share/envdoctor/knowledge"

    def run(self, *arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        command = [*COMMAND, *map(str, arguments)]
        env = environment(self.folder, **variables)
        return subprocess.run(command, capture_output=True, text=True, env=env, cwd=self.folder, check=False)

    def update(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return self.run("update", "--accept-test-key", *arguments)

    def version(self) -> str:
        return self.run("--version").stdout.rpartition(" ")[2].strip(")\n")

    def add(self, data: bytes, name: str = NAME) -> Path:
        path = self.packages / name
        path.write_bytes(data)
        return path


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def server(home: Home) -> Iterator[str]:
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(home.packages))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_address[1]}"
        listening.shutdown()


def test_update_and_rollback(home: Home) -> None:
    before = home.version()
    newer = (BUNDLED / "phrases.toml").read_bytes() + b"# newer\n"
    assert home.update("--from", home.add(package(phrases=newer))).returncode == 0
    assert home.version() == DATE
    assert (home.knowledge / LATER / "phrases.toml").read_bytes().endswith(b"# newer\n")
    assert json.loads(home.run("rules", "--format", "json").stdout)["tables"] == DATE
    again = home.update("--from", home.packages)
    assert (again.returncode, "are the newest" in again.stdout) == (0, True)
    assert home.run("update", "--rollback").returncode == 0
    assert home.version() == before
    refused = home.run("update", "--rollback")
    assert (refused.returncode, "no update is installed" in refused.stderr) == (1, True)


def test_the_newest_package_of_a_folder_is_taken(home: Home) -> None:
    home.add(package(DAY), f"envdoctor-knowledge-{DAY}.zip")
    home.add(package())
    home.add(b"other", "readme.zip")
    assert home.update("--from", home.packages).returncode == 0
    assert home.version() == DATE


def test_a_package_from_a_url(home: Home, server: str) -> None:
    home.add(package())
    assert home.update("--from", f"{server}/{NAME}").returncode == 0
    assert home.version() == DATE
    assert home.update("--from", f"{server}/missing.zip").returncode == 3


def test_a_refused_package_changes_nothing(home: Home) -> None:
    home.update("--from", home.add(package(f"{DAY}.2")))
    before = snapshot(home.knowledge)
    bad = {
        "older": package(DAY),
        "foreign key": package(key=OTHER_KEY),
        "tampered": with_entries(package(), {TABLES + "fleet.toml": b"x = 1\n"}),
        "truncated": package()[:5000],
        "same version, other tables": package(f"{DAY}.2", fleet=(BUNDLED / "fleet.toml").read_bytes() + b"#\n"),
    }
    for name, data in bad.items():
        done = home.update("--from", home.add(data, "bad.zip"))
        assert done.returncode in (1, 2), name
        assert "error: " in done.stderr, name
        assert snapshot(home.knowledge) == before, name
    assert home.version() == DATE


def test_tables_that_this_envdoctor_cannot_read_are_not_selected(home: Home) -> None:
    temporary = home.folder / "tmp"
    temporary.mkdir()
    bad = home.add(package(causes=b"[[cause]]\nslug = 1\n"))
    done = home.run("update", "--accept-test-key", "--from", bad, TMPDIR=str(temporary))
    assert done.returncode == 3
    assert list(temporary.iterdir()) == []  # no log of the trial's error
    assert "cannot read the tables" in done.stderr
    assert home.version() != DATE
    assert [path.name for path in home.knowledge.iterdir()] == []


def test_a_package_from_the_index_is_built_by_the_release_job(home: Home) -> None:
    key = home.folder / "private.pem"
    key.write_bytes(TEST_KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    command = [sys.executable, ROOT / ".ci/knowledge", key, home.packages, LATER]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(home.folder), check=False)
    assert done.returncode == 0, done.stderr
    assert {path.suffix for path in home.packages.iterdir()} == {".zip", ".whl"}
    variables = {"PIP_FIND_LINKS": str(home.packages), "PIP_NO_INDEX": "1"}
    done = home.run("update", "--accept-test-key", **variables)
    assert done.returncode == 0, done.stderr
    assert home.version() == DATE
    key.write_bytes(OTHER_KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    done = subprocess.run(command, capture_output=True, text=True, env=environment(home.folder), check=False)
    assert (done.returncode, "no envdoctor would accept" in done.stderr) == (1, True)


def test_a_key_of_a_company(home: Home) -> None:
    public = OTHER_KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    key = home.folder / "company.pem"
    key.write_bytes(public)
    ours = home.add(package(key=OTHER_KEY))
    assert home.run("update", "--from", ours, "--key", key).returncode == 0
    assert home.run("update", "--from", home.add(package(), "test.zip"), "--key", key).returncode == 2


def test_without_a_release_key_no_package_is_accepted(home: Home) -> None:
    done = home.run("update", "--from", home.add(package()))
    assert (done.returncode, home.version() == DATE) == (1, False)


def test_an_installation_with_newer_tables_ignores_older_ones(home: Home) -> None:
    home.update("--from", home.add(package()))
    (home.knowledge / "current.json").write_text('{"current":{"version":"2001.01.01","format":1,"key":"x"}}')
    assert home.version() != "2001-01-01"


@pytest.mark.parametrize("content", ["", "{", '{"current":{"version":"../..","format":1,"key":"x"}}', "[]"])
def test_a_damaged_list_of_installed_tables_is_ignored(content: str, home: Home) -> None:
    before = home.version()
    home.knowledge.mkdir(parents=True)
    (home.knowledge / "current.json").write_text(content)
    assert home.version() == before


def test_tables_that_others_can_write_are_ignored(home: Home) -> None:
    before = home.version()
    home.update("--from", home.add(package()))
    (home.knowledge / LATER).chmod(0o777)
    assert home.version() == before


def test_old_tables_are_named_with_the_command_and_open_ranges_are_unknown(home: Home) -> None:
    for days_old, is_unknown in ((60, False), (400, True)):
        day = datetime.now(UTC).date() - timedelta(days=days_old)
        folder = home.folder / f"{day:%Y.%m.%d}"
        folder.mkdir()
        for path in BUNDLED.rglob("*.toml"):
            target = folder / path.relative_to(BUNDLED)
            target.parent.mkdir(exist_ok=True)
            target.symlink_to(path)
        (home.folder / "requirements.txt").write_text(REQUIREMENTS)
        done = home.run("audit", "requirements.txt", ENVDOCTOR_KNOWLEDGE=str(folder))
        assert "days old: " in done.stderr, days_old
        assert ("envdoctor update" if can_update() else "install a newer envdoctor") in done.stderr
        assert ("envdoctor update" in done.stderr + done.stdout) is can_update()
        assert ("? RUN008" in done.stdout) is is_unknown
        assert ("? RUN003" in done.stdout) is is_unknown
    assert "days old" not in home.run("explain", "CUDA out of memory", ENVDOCTOR_KNOWLEDGE=str(folder)).stderr
