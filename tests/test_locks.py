"""Locks: read and written the same, refused with the line, held against profiles, and the matrix from them alone."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from command import envdoctor, envelope
from hypothesis import given
from hypothesis import strategies as st

from envdoctor import locks
from envdoctor.errors import BadInput
from envdoctor.keeping import audit_lock
from envdoctor.locks import LOCKED, LockFile
from envdoctor.profiles import read_profile, read_profiles
from envdoctor.resolve import Package, Target

HASH = "ab" * 32


def lock_of(**versions: str) -> LockFile:
    packages = tuple(Package(name.replace("_", "-"), v, "", HASH, LOCKED) for name, v in sorted(versions.items()))
    return LockFile(
        profile="mine",
        platform="x86_64-manylinux_2_31",
        python="3.12",
        torch="12.8",
        made="2026-11-21",
        packages=packages,
    )


def test_a_lock_reads_back_from_its_text() -> None:
    made = lock_of(torch="2.8.0", huggingface_hub="0.36.0")
    assert locks.parse_lock(locks.lock_text(made), where="x") == made
    partial = msgspec.structs.replace(made, without=("torchvision",), backend="cu129")
    assert locks.parse_lock(locks.lock_text(partial), where="x") == partial


def test_a_lock_holds_no_address() -> None:
    for path in sorted(locks.lock_folder("cpu").parent.rglob("*.txt")):
        assert "://" not in path.read_text()


@pytest.mark.parametrize(
    "line", ["torch>=2", "torch @ https://x/y.whl", "--index-url https://x", "torch==2.8.0", "-e ."]
)
def test_any_other_line_is_refused_with_its_number(line: str) -> None:
    with pytest.raises(BadInput, match=r"line 8"):
        locks.parse_lock(locks.lock_text(lock_of(torch="2.8.0", trl="0.23.1")) + line + "\n", where="lock.txt")


@given(st.text(max_size=300))
def test_strange_texts_are_refused(text: str) -> None:
    with pytest.raises(BadInput):
        locks.parse_lock(text, where="lock.txt")


def test_the_difference_reads_like_a_changelog() -> None:
    old, new = (
        lock_of(torch="2.8.0", xformers="0.0.32", trl="0.23.1"),
        lock_of(torch="2.9.0", ray="2.54.0", trl="0.23.1"),
    )
    assert locks.difference(old, new) == ["+ ray 2.54.0", "torch 2.8.0 -> 2.9.0", "- xformers 0.0.32"]
    assert locks.difference(None, lock_of(trl="1.0")) == ["+ trl 1.0"]


def test_a_glibc_too_old_gets_no_lock() -> None:
    profile = read_profile("x86-cu128-vllm")
    assert locks.bundled_lock(profile.id, Target("x86_64", "2.35", ("3.12",)), "3.12")
    assert locks.bundled_lock(profile.id, Target("x86_64", "2.28", ("3.12",)), "3.12") is None
    assert locks.bundled_lock(profile.id, Target("aarch64", "2.35", ("3.12",)), "3.12") is None


def test_a_lock_holds_its_profile_to_its_versions() -> None:
    held = locks.held(read_profile("x86-cu128-vllm"), lock_of(numpy="2.2.6", ray="2.54.0"))
    assert {"numpy==2.2.6", "ray==2.54.0"} <= {pin.spec for pin in held.constraints}


def test_a_rotten_lock_is_named() -> None:
    causes = {
        finding.cause
        for finding in audit_lock(lock_of(torch="2.9.0", vllm="0.10.2", transformers="5.23.0", trl="0.23.1"))
    }
    assert {"vllm-torch-mismatch", "transformers-too-new"} <= causes


def test_bundled_locks_are_coherent_with_profiles_and_rules(tmp_path: Path) -> None:
    done = envdoctor("lock", "--check", "--format", "json", home=tmp_path)
    data = envelope(done)
    assert done.returncode == 0, [result["problems"] for result in data["data"]["results"]]
    outcomes = {result["profile"]: result["outcome"] for result in data["data"]["results"]}
    assert outcomes.keys() == {profile.id for profile in read_profiles()}
    assert {name for name, outcome in outcomes.items() if outcome == "partial"} == {"gh200"}


def test_the_matrix_needs_no_network(tmp_path: Path) -> None:
    done = envdoctor(
        "resolve", "--all", "--machine", "all", "--format", "json", home=tmp_path, HTTPS_PROXY="http://127.0.0.1:9"
    )
    cells = envelope(done)["data"]["cells"]
    assert done.returncode == 0
    chosen = {cell["machine"]: cell["profile"] for cell in cells if cell["chosen"]}
    assert chosen["h200"] == "x86-cu130"
    assert chosen["cpu-2core"] == chosen["t4"] == "cpu"
    assert all(cell["locked"] != "not locked" for cell in cells if cell["fits"])
    assert all(cell["why"] for cell in cells if not cell["fits"])


@pytest.mark.network
def test_a_lock_is_made_anew_and_stays_the_same(tmp_path: Path) -> None:
    data = envelope(envdoctor("lock", "--profile", "x86-cu124-hf", "--format", "json", home=tmp_path))
    assert {result["outcome"] for result in data["data"]["results"]} == {"unchanged"}
