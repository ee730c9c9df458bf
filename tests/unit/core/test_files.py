"""Files that a stranger wrote: links, FIFOs, devices and sparse files cost an error, no time and no memory."""

from __future__ import annotations

import os
import subprocess
from itertools import cycle
from pathlib import Path

import pytest
from support.command import environment, interpreter
from support.local_packages import PYTHON, write_profile
from support.sample_environments import add_distribution, add_torch, make_venv

from envdoctor.core.files import UnsuitableFile, open_file, read_file, read_file_head

SECONDS = 20


def envdoctor(*arguments: str | Path, home: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run one command with a short time limit."""
    return subprocess.run(
        [interpreter(), "-m", "envdoctor", *map(str, arguments)],
        capture_output=True, text=True, env=environment(home, **extra), cwd=home, timeout=SECONDS, check=False,
    )  # fmt: skip


SECRET = "Pa55word-of-the-machine"
SPARSE = 20 << 30


def make_sparse(path: Path) -> None:
    """A file of 20 GB without blocks."""
    with path.open("wb") as file:
        file.truncate(SPARSE)


UNSUITABLE = {
    "fifo": os.mkfifo,
    "directory": Path.mkdir,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "sparse": make_sparse,
}


@pytest.mark.parametrize("kind", UNSUITABLE)
def test_only_regular_files_of_limited_size_are_read(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    UNSUITABLE[kind](path)  # type: ignore[operator]
    with pytest.raises(OSError):  # noqa: PT011  any subclass: a directory is an IsADirectoryError
        read_file(path)
    if kind != "sparse":
        for read in (lambda: open_file(path), lambda: read_file_head(path, 10)):
            with pytest.raises(OSError):  # noqa: PT011
                read()


def test_a_file_inside_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "folder/other").write_text("x")
    (tmp_path / "folder/outside").symlink_to("../secret")
    (tmp_path / "folder/inside").symlink_to("other")
    assert read_file(tmp_path / "folder/inside", inside=tmp_path / "folder") == b"x"
    with pytest.raises(UnsuitableFile):
        read_file(tmp_path / "folder/outside", inside=tmp_path / "folder")


def test_a_lock_that_is_a_link_to_a_secret_is_not_printed(tmp_path: Path) -> None:
    profile = write_profile(tmp_path / "mine.toml", "six==1.17.0")
    (tmp_path / "secret").write_text(f"{SECRET}\n# profile: {SECRET}\n")
    locks = tmp_path / "mine.locks"
    locks.mkdir()
    for make in (lambda path: path.symlink_to("../secret"), lambda path: path.write_text(SECRET), os.mkfifo):
        for architecture in ("x86_64", "aarch64"):
            path = locks / f"{architecture}-{PYTHON}.txt"
            path.unlink(missing_ok=True)
            make(path)
        for command in (("lock", "--check", profile), ("install", profile, "--dry-run"), ("export", profile)):
            for form in ("human", "github" if command[0] != "export" else "json"):
                done = envdoctor(*command, "--format", form, home=tmp_path, GITHUB_ACTIONS="1", PIP_NO_INDEX="1")
                assert done.returncode in (1, 2), (command, done.stdout, done.stderr)
                assert SECRET not in done.stdout + done.stderr, command


@pytest.mark.parametrize("kind", UNSUITABLE)
def test_commands_end_at_once_with_unsuitable_files(kind: str, tmp_path: Path) -> None:
    files = {
        "machine.json": ("check", "--machine", "./machine.json"),
        "mine.toml": ("profiles", "show", "./mine.toml"),
        "requirements.txt": ("audit", "requirements.txt"),
        "recipe.toml": ("train", "./recipe.toml", "--dry-run"),
        "wheels/envdoctor-wheelhouse.json": ("install", "cpu", "--from", "wheels", "--dry-run"),
        "pyproject.toml": ("check", "--machine", "cpu-2core"),
        "run/train.log": ("explain", "run"),
    }
    (tmp_path / "wheels").mkdir()
    (tmp_path / "run").mkdir()
    for name, command in files.items():
        if (kind, name) == ("sparse", "run/train.log"):
            continue  # a log of any length is read to its end
        UNSUITABLE[kind](tmp_path / name)  # type: ignore[operator]
        done = envdoctor(*command, home=tmp_path)
        assert done.returncode in (0, 1, 2), (name, done.stderr)
        assert "itself failed" not in done.stderr, (name, done.stderr)
        (tmp_path / name).rmdir() if kind == "directory" else (tmp_path / name).unlink()


@pytest.mark.parametrize("kinds", [("fifo",), tuple(kind for kind in UNSUITABLE if kind != "fifo")])
def test_each_file_of_an_environment_can_be_unsuitable(kinds: tuple[str, ...], tmp_path: Path) -> None:
    """A FIFO in place of each file, and then one of the other kinds, in turn: all files have the same reader."""
    site = make_venv(tmp_path / "venv")
    add_torch(site)
    info = add_distribution(site, "alpha", "1.0", files=("alpha/x.so",))
    venv = tmp_path / "venv"
    names = ("METADATA", "RECORD", "INSTALLER", "direct_url.json", "top_level.txt")
    extra = (site / "torch/version.py", site / "alpha/x.so", venv / "envdoctor.json", venv / "conda-meta/x.json",
             venv / "envdoctor-verification.json", venv / "pyvenv.cfg", venv / "envdoctor-lock.txt")  # fmt: skip
    for path, kind in zip((*(info / name for name in names), *extra), cycle(kinds), strict=False):
        path.parent.mkdir(exist_ok=True)
        content = path.read_bytes() if path.exists() else None
        path.unlink(missing_ok=True)
        UNSUITABLE[kind](path)  # type: ignore[operator]
        for command in ("check", "abi", "archs", "profiles new"):
            done = envdoctor(*command.split(), venv, home=tmp_path)
            assert done.returncode in (0, 1, 2, 3), (path, command, done.stderr)
            assert "itself failed" not in done.stderr, (path, command, done.stderr)
        path.rmdir() if kind == "directory" else path.unlink()
        if content is not None:
            path.write_bytes(content)
