"""Packages of tables: what is accepted, and every other file is refused before anything is written."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from support.knowledge_packages import LATER, OTHER_KEY, TEST_KEY, package, with_entries

from envdoctor.core.errors import BadInput
from envdoctor.knowledge.installed import BUNDLED, FORMAT
from envdoctor.knowledge_update.keys import key_of_file, release_keys
from envdoctor.knowledge_update.package import (
    MANIFEST,
    NAME,
    SIGNATURE,
    TABLES,
    Manifest,
    build_package,
    read_package,
    tables_of,
)

KEYS = release_keys(with_test_keys=True)
PEM = b"-----BEGIN PUBLIC KEY-----\n%s\n-----END PUBLIC KEY-----\n"


def signed(manifest: Manifest, tables: dict[str, bytes]) -> bytes:
    """A package with any manifest, signed with the test key."""
    encoded = msgspec.json.encode(manifest)
    entries = {MANIFEST: encoded, SIGNATURE: TEST_KEY.sign(encoded)} | {TABLES + n: c for n, c in tables.items()}
    return with_entries(build_package({}, LATER, TEST_KEY), entries)


def of_format(number: int) -> bytes:
    return signed(Manifest(name=NAME, version=LATER, format=number, files={}), {})


def foreign() -> bytes:
    return signed(Manifest(name="another-package", version=LATER, format=FORMAT, files={}), {})


def outside() -> bytes:
    name, content = "../profiles/cpu.toml", b"x = 1\n"
    hashes = {name: hashlib.sha256(content).hexdigest()}
    return signed(Manifest(name=NAME, version=LATER, format=FORMAT, files=hashes), {name: content})


def test_a_signed_package_has_all_tables() -> None:
    read = read_package(package(), "p.zip", KEYS)
    assert read.tables == tables_of(BUNDLED)
    assert (read.manifest.version, read.key.id) == (LATER, "test-key")
    assert len(read.tables) > 80


def test_two_builds_give_the_same_bytes() -> None:
    assert package() == package()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: package(key=OTHER_KEY), "signature"),
        (lambda: with_entries(package(), {TABLES + "fleet.toml": b"x = 1\n"}), "fleet.toml differs"),
        (lambda: with_entries(package(), {MANIFEST: b"{}"}), "signature"),
        (lambda: with_entries(package(), {SIGNATURE: b"\0" * 64}), "signature"),
        (lambda: with_entries(package(), {SIGNATURE: b""}), "signature"),
        (lambda: with_entries(package(), {TABLES + "more.toml": b""}), "its files are not those of its list"),
        (lambda: with_entries(package(), {"code.py": b""}), "its files are not those of its list"),
        (lambda: package()[:-200], "no complete ZIP file"),
        (lambda: package()[:1000], "no complete ZIP file"),
        (lambda: b"", "no complete ZIP file"),
        (lambda: b"PK\x03\x04" + b"\0" * 100, "no complete ZIP file"),
        (lambda: of_format(FORMAT + 1), f"format {FORMAT + 1}"),
        (foreign, "another-package"),
        (outside, "no name of a table"),
        (lambda: package(version="latest"), "latest"),
        (lambda: package(version="9999.12.31"), "9999-12-31"),
        (lambda: package(version="2026.13.45"), "2026-13-45 is no date"),
        (lambda: package(fleet=b'[[x]]\ndate = "9998-01-01"\n'), "9998-01-01"),
        (lambda: with_entries(package(), {TABLES + "Fleet.TOML": b"x = 1\n"}), "twice"),
    ],
)
def test_any_other_file_is_refused(make: Callable[[], bytes], message: str) -> None:
    with pytest.raises(BadInput, match=r"p\.zip is not installed") as error:
        read_package(make(), "p.zip", KEYS)
    assert message in error.value.message
    assert "nothing was changed" in error.value.hint


def test_a_flipped_bit_anywhere_changes_nothing_or_is_refused() -> None:
    data = build_package({"fleet.toml": b"x = 1\n"}, LATER, TEST_KEY)
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 1
        try:
            read = read_package(bytes(changed), "p.zip", KEYS)
        except BadInput:
            continue
        assert read.tables == {"fleet.toml": b"x = 1\n"}  # a bit of the archive that is not content


def test_a_package_that_unpacks_to_gigabytes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(40):
            archive.writestr(f"{TABLES}{number}.toml", b"\0" * (1 << 20))
    with pytest.raises(BadInput, match="too large"):
        read_package(path.read_bytes(), "p.zip", KEYS)


def test_the_test_key_is_only_accepted_on_request() -> None:
    assert all(key.test for key in KEYS if key.id == "test-key")
    assert "test-key" not in [key.id for key in release_keys(with_test_keys=False)]


@pytest.mark.parametrize("content", [b"", b"no key\n", PEM % b"AAAA"])
def test_another_file_is_no_key(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"key\.pem"):
        key_of_file(str(path))
