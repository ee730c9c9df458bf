"""A compiled file that cannot be loaded is a finding, and `check` reports the environment not as free of problems."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.command import envdoctor
from support.report_stack import make_machine
from support.sample_environments import add_distribution, add_torch, compile_library, make_venv

from envdoctor.core.records import Finding
from envdoctor.environment.inspect import read_stack
from envdoctor.rules import evaluate

TRUNCATED, EMPTY = 4096, 0


def cut(length: int) -> Callable[[Path], None]:
    """Shorten the file to a length."""
    return lambda path: os.truncate(path, length)


def replace_with_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


DAMAGE: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "truncated": (cut(TRUNCATED), "error", "truncated"),
    "empty": (cut(EMPTY), "error", "cannot mmap an empty file"),
    "a pointer of git LFS": (lambda path: path.write_text("version https://git-lfs.github.com\n"), "error", "not an"),
    "zeros": (lambda path: path.write_bytes(bytes(path.stat().st_size)), "error", "not an ELF file"),
    "a header": (lambda path: path.write_bytes(b"\x7fELF\x02\x01" + bytes(200)), "error", "no program headers"),
    "a FIFO": (replace_with_fifo, "error", "not a regular file"),
    "deleted": (Path.unlink, "warning", "does not exist"),
    "a linker script": (lambda path: path.write_text("/* GNU ld script */\nINPUT ( -lm )\n"), "", ""),
    "a file of macOS": (lambda path: path.write_bytes(b"\xcf\xfa\xed\xfe" + bytes(200)), "", ""),
    "a 32-bit file": (lambda path: path.write_bytes(b"\x7fELF\x01\x01" + bytes(90)), "", ""),
    "intact": (Path.stat, "", ""),
}  # fmt: skip


def environment_with(site: Path, name: str, file: str, damage: Callable[[Path], object]) -> None:
    """Add a distribution with one library, and damage it."""
    compile_library(site / file, "void f(void) {}")
    add_distribution(site, name, "1.0", files=(file,))
    damage(site / file)


def findings_of(prefix: Path) -> list[Finding]:
    """The findings on damaged files of an environment."""
    stack = read_stack(prefix, None)
    return [finding for finding in evaluate(make_machine([]), stack) if finding.id == "EXT006"]


@pytest.mark.parametrize("name", DAMAGE)
def test_a_file_that_cannot_be_loaded_is_reported(name: str, tmp_path: Path) -> None:
    damage, status, message = DAMAGE[name]
    environment_with(make_venv(tmp_path / "venv"), "alpha", "alpha/_C.so", damage)
    found = findings_of(tmp_path / "venv")
    assert [finding.status for finding in found] == ([status] if status else [])
    for finding in found:
        assert "alpha/_C.so of alpha 1.0" in finding.message
        assert message in finding.message
        assert finding.remedies[0].commands == ("uv pip install alpha==1.0 --reinstall-package alpha --no-deps",)


def test_libraries_of_cuda_are_checked_as_well(tmp_path: Path) -> None:
    site = make_venv(tmp_path / "venv")
    environment_with(site, "nvidia-cudnn-cu12", "nvidia/cudnn/lib/libcudnn.so.9", cut(TRUNCATED))
    environment_with(site, "nvidia-cublas-cu12", "nvidia/cublas/lib/libcublas.so.12", cut(1 << 20))
    assert [finding.status for finding in findings_of(tmp_path / "venv")] == ["error"]


def test_check_is_no_all_clear(tmp_path: Path) -> None:
    site = make_venv(tmp_path / "venv")
    add_torch(site)
    os.truncate(site / "torch/lib/libc10.so", TRUNCATED)
    done = envdoctor("check", tmp_path / "venv", home=tmp_path)
    assert done.returncode == 1
    assert "no problems" not in done.stdout
    assert "torch/lib/libc10.so of torch 2.8.0+cu128 could not be read: truncated" in done.stdout
