"""Metadata that is not understood gives no verdict: it could hide any problem."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.cases import each_case
from support.command import envdoctor, envelope
from support.sample_environments import add_distribution, add_torch, make_venv

from envdoctor.core.records import Stack
from envdoctor.environment.inspect import read_stack
from envdoctor.knowledge.releases import is_requirement


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The packages of an environment with torch 2.8."""
    site = make_venv(tmp_path / "venv")
    add_torch(site)
    return site


def read(site: Path) -> Stack:
    """The environment of a package directory."""
    return read_stack(site.parents[2], None, {})


def rewrite(text: str) -> Callable[[Path], None]:
    return lambda metadata: metadata.write_text(text)  # type: ignore[return-value]


def head(**fields: str) -> str:
    return "".join(f"{name.replace('_', '-')}: {value}\n" for name, value in fields.items())


def as_fifo(metadata: Path) -> None:
    metadata.unlink()
    os.mkfifo(metadata)


def as_sparse(metadata: Path) -> None:
    metadata.write_text("Name: vllm\nVersion: 0.11.0\n")
    os.truncate(metadata, 20 << 30)


UNREAD: tuple[tuple[str, Callable[[Path], object], str], ...] = (
    ("a requirement", rewrite(head(Name="vllm", Version="0.11.0", Requires_Dist="torch(((")), "torch((("),
    ("no requirement", rewrite(head(Name="vllm", Version="0.11.0", Requires_Dist="")), "the requirement ''"),
    ("no comma", rewrite(head(Name="vllm", Version="0.11.0", Requires_Dist="torch>=2.9 <3")), "torch>=2.9 <3"),
    ("a version", rewrite(head(Name="vllm", Version="not a version")), "the version 'not a version' is invalid"),
    ("a long version", rewrite(head(Name="vllm", Version="1" * 5000)), "its version has 5000"),
    ("no fields", lambda metadata: metadata.write_bytes(bytes(range(256)) * 50), "it has no name and no version"),
    ("a FIFO", as_fifo, "not a regular file"),
    ("20 GB", as_sparse, "its fields are longer than"),
    ("nothing", Path.unlink, "No such file"),
)  # fmt: skip


@each_case(("name", "change", "reason"), UNREAD)
def test_unread_metadata_is_recorded(
    tmp_path: Path, name: str, change: Callable[[Path], object], reason: str
) -> None:
    site = make_venv(tmp_path / name / "venv")
    change(add_distribution(site, "vllm", "0.11.0") / "METADATA")
    (unread,) = read(site).unread_metadata
    assert reason in unread


@each_case(
    ("headers", "expected"),
    [
        ("", ()),
        ("Requires-Dist: torch (>=1.9.*)\nRequires-Dist: trl[vllm] @ https://x.example/trl.whl\n", ()),
        ("Requires-Dist: numpy; extra == 'all'\nRequires-Dist: torch(((; extra == 'all'\n", ()),
        ("Requires-Dist: acme-tool (>=1.0 <2)\n", ()),
    ],
)
def test_valid_and_unimportant_metadata_is_accepted(tmp_path: Path, headers: str, expected: tuple[str, ...]) -> None:
    """A requirement that no table and no rule is about decides nothing."""
    site = make_venv(tmp_path / str(abs(hash(headers))) / "venv")
    add_distribution(site, "acme-library", "1!1.0", headers=headers)
    assert read(site).unread_metadata == expected


def test_a_version_of_debian_decides_nothing_unless_it_is_required(site: Path) -> None:
    add_distribution(site, "distro-info", "1.1build1")
    stack = read(site)
    assert not stack.unread_metadata
    assert "1.1build1" in stack.distributions.note
    add_distribution(site, "acme-tool", "1.0", headers="Requires-Dist: distro-info>=1\n")
    (unread,) = read(site).unread_metadata
    assert "1.1build1" in unread


@each_case("field", ["Name", "Version"])
def test_no_word_of_metadata_is_added_to_a_command(tmp_path: Path, field: str) -> None:
    site = make_venv(tmp_path / field / "venv")
    values = {"Name": "vllm", "Version": "0.11.0"} | {field: "torch evil-package"}
    rewrite(head(**values))(add_distribution(site, "vllm", "0.11.0") / "METADATA")
    stack = read(site)
    assert "is invalid" in stack.unread_metadata[0]
    assert stack.distributions.value
    assert "evil" not in str(stack.distributions.value["vllm"])


def test_what_pip_left_is_a_note(site: Path) -> None:
    (site / "~orch-2.0.dist-info").mkdir()
    stack = read(site)
    assert not stack.unread_metadata
    assert "interrupted pip run" in stack.distributions.note


def test_an_unreadable_record_is_recorded(site: Path) -> None:
    record = add_distribution(site, "vllm", "0.11.0") / "RECORD"
    record.unlink()
    os.mkfifo(record)
    assert f"{record}: not a regular file" in read(site).unread_metadata


def test_no_command_gives_an_all_clear(tmp_path: Path, site: Path) -> None:
    """vLLM 0.11.0 requires torch 2.8.0 and says so in a way that cannot be read."""
    add_distribution(site, "vllm", "0.11.0", headers="Requires-Dist: torch(((\nRequires-Dist: torch>=2\n")
    venv = tmp_path / "venv"
    for words in (("check", venv, "--machine", "h200"), ("audit", venv, "--machine", "h200")):
        done = envdoctor(*words, home=tmp_path)
        assert done.returncode == 3, (words, done.stdout, done.stderr)
        assert "\u2713 packages" not in done.stdout
        assert "\u2713 no problems" not in done.stdout
        assert "torch(((" in done.stdout
    assert envdoctor("check", venv, "--machine", "h200", "--select", "DRV001", home=tmp_path).returncode == 0
    done = envdoctor("check", venv, "--machine", "h200", home=tmp_path)
    assert done.stdout.startswith("? no verdict: not all packages were read; no problems in ")
    assert "? packages" in done.stdout
    done = envdoctor("audit", venv, "--machine", "h200", "--format", "github", home=tmp_path)
    assert done.stdout.startswith("::error title=not all packages were read")
    done = envdoctor("fix", venv, "--machine", "h200", "--dry-run", home=tmp_path)
    assert (done.returncode, done.stdout[:21]) == (3, "? not all packages of")
    done = envdoctor("report", venv, home=tmp_path)
    assert "not read: " in done.stdout
    assert "No problems found." not in done.stdout
    data = envelope(envdoctor("check", venv, "--machine", "h200", "--format", "json", home=tmp_path))
    assert "torch(((" in json.dumps(data)


@each_case(("line",), [("a" + " " * 1500 + "@",), ("a" * 1900 + "@",), ("a[" * 900,), ("a (" * 600,)])
def test_no_requirement_takes_long(line: str) -> None:
    """Their number is bounded by the size of METADATA only."""
    started = time.process_time()
    for number in range(100):
        assert not is_requirement(f"{line}{number}")
    assert time.process_time() - started < 5


def named(head: str) -> Callable[[Path], object]:
    """Write METADATA with these lines."""
    return lambda site: (add_distribution(site, "transformers", "5.0.0") / "METADATA").write_text(f"{head}\n\n")


def add_egg(site: Path) -> None:
    (site / "transformers-5.0.0-py3.11.egg").write_bytes(b"PK\x05\x06" + bytes(18))


def add_link(site: Path) -> None:
    (site / "transformers.egg-link").write_text("/nowhere/at/all\n.")


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (named("Name: transformers\nVersion: 4.57.6\nVersion: 5.0.0"), "several fields version"),
        (named("Name: tokenizers\nVersion: 1.0"), "not that of its folder"),
        (named("Name: transformers\nVersion: 4.57.6"), "not that of its folder"),
        (add_egg, "an egg"),
        (add_link, "No such file"),
    ],
)
def test_metadata_of_another_release_gives_no_verdict(
    make: Callable[[Path], object], problem: str, site: Path
) -> None:
    make(site)
    assert problem in " ".join(read(site).unread_metadata)


def test_packages_of_linked_folders_are_read(site: Path, tmp_path: Path) -> None:
    add_distribution(tmp_path / "more", "transformers", "5.0.0")
    (site / "x.pth").write_text(f"# comment\nimport sys\n{tmp_path}/more\nnowhere\n")
    (tmp_path / "project/trl.egg-info").mkdir(parents=True)
    (tmp_path / "project/trl.egg-info/PKG-INFO").write_text("Metadata-Version: 2.1\nName: trl\nVersion: 0.23.1\n\n")
    (site / "trl.egg-link").write_text(f"{tmp_path}/project\n.")
    stack = read(site)
    assert {name: each.version for name, each in (stack.distributions.value or {}).items()} == {
        "torch": "2.8.0", "transformers": "5.0.0", "trl": "0.23.1"
    }  # fmt: skip
    assert not stack.unread_metadata
