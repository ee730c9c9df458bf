"""The cache of parsed TOML files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from envdoctor.core.bundled_toml import read_bundled_toml


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "cache/envdoctor/tables"
    folder.parent.mkdir(parents=True)
    return folder


def test_a_changed_file_is_read_again(cache: Path, tmp_path: Path) -> None:
    table = tmp_path / "t.toml"
    table.write_text("a = 1\n")
    assert read_bundled_toml(table) == {"a": 1}
    entry = next(cache.iterdir())
    entry.write_bytes(entry.read_bytes().replace(b'{"a":1}', b'{"a":7}'))
    assert read_bundled_toml(table) == {"a": 7}  # from the cache
    os.utime(table, (1, 1))
    assert read_bundled_toml(table) == {"a": 1}
    table.write_text("a = 22\n")
    assert read_bundled_toml(table) == {"a": 22}


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff", b"[1]", b'[["0","x",1,1],{}]'])
def test_a_damaged_entry_is_replaced(cache: Path, tmp_path: Path, damage: bytes) -> None:
    table = tmp_path / "t.toml"
    table.write_text("a = 1\n")
    read_bundled_toml(table)
    entry = next(cache.iterdir())
    valid = entry.read_bytes()
    entry.write_bytes(damage)
    assert read_bundled_toml(table) == {"a": 1}
    assert entry.read_bytes() == valid


def test_a_cache_directory_that_cannot_be_written_or_does_not_exist(cache: Path, tmp_path: Path) -> None:
    table = tmp_path / "t.toml"
    table.write_text("a = 1\n")
    cache.write_text("a file instead of the directory")
    assert read_bundled_toml(table) == {"a": 1}
    cache.unlink()
    cache.parent.rmdir()
    assert read_bundled_toml(table) == {"a": 1}
    assert not cache.parent.exists()


def test_an_entry_of_another_user_is_not_read(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "t.toml"
    table.write_text("a = 1\n")
    read_bundled_toml(table)
    entry = next(cache.iterdir())
    entry.write_bytes(entry.read_bytes().replace(b'{"a":1}', b'{"a":7}'))
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
    assert read_bundled_toml(table) == {"a": 1}
