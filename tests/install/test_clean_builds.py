"""`clean` removes unused builds, and keeps builds that an environment uses or that are running."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from support.command import envelope, environment, interpreter
from support.environment_commands import command_data, file_tree
from support.install_place import Place
from support.local_packages import write_wheel
from support.source_builds import ask_for, compiled_place, seen

from envdoctor.environment.managed import EnvironmentPaths


def builds(place: Place) -> list[Path]:
    return sorted((place.home / ".cache/envdoctor/builds").glob("*"))


def install(place: Place, **extra: str) -> None:
    done = place.install(MAX_JOBS="1", **extra)
    assert done.returncode == 0, done.stdout


@pytest.fixture
def compiled(place: Place) -> Place:
    """An environment with a compiled package."""
    place.copy_files(compiled_place())
    return place


def test_only_unused_builds_are_removed(compiled: Place) -> None:
    place = compiled
    (first,) = builds(place)
    write_wheel(place.wheels, "torch", "9.9.1+cpu")
    place.profile.write_text(place.profile.read_text().replace("torch==9.9.0+cpu", "torch==9.9.1+cpu"))
    install(place)
    (second,) = set(builds(place)) - {first}
    before = file_tree(place.home)
    data = command_data(place, "clean", "--dry-run")
    assert data["paths"] == [str(EnvironmentPaths(place.venv).previous), str(first)]
    assert file_tree(place.home) == before
    assert data["size"] > sum(path.stat().st_size for path in first.rglob("*.so"))
    assert command_data(place, "clean")["paths"] == data["paths"]
    assert builds(place) == [second]
    shutil.rmtree(place.venv)
    install(place, BUILD_COUNTER=str(place.home / "second"))
    assert seen(place) == (1, "torch 9.9.1+cpu")
    assert not (place.home / "second").exists(), "it was compiled again"


def test_cleaning_one_environment_keeps_all_builds(compiled: Place) -> None:
    shutil.rmtree(compiled.venv)
    assert command_data(compiled, "clean", "--venv", compiled.venv)["paths"] == []
    (build,) = builds(compiled)
    assert command_data(compiled, "clean")["paths"] == [str(build)]
    assert builds(compiled) == []


def test_the_older_of_two_equal_builds_is_removed(compiled: Place) -> None:
    (build,) = builds(compiled)
    older = build.with_name("fast-0123456789abcdef")
    shutil.copytree(build, older, symlinks=True)
    os.utime(older, (1, 1))
    half_removed = build.with_name(f"removing-1-{older.name}")
    half_removed.mkdir()
    build.with_name("notes").mkdir()
    assert command_data(compiled, "clean")["paths"] == [str(older), str(half_removed)]
    assert builds(compiled) == [build, build.with_name("notes")]


def test_a_running_build_is_kept(place: Place) -> None:
    """The compiler of a first install waits until `clean` has ended."""
    ask_for(place)
    tools, began, go_on = place.home / "tools", place.home / "began", place.home / "go-on"
    tools.mkdir()
    (tools / "gcc").write_text(
        f'#!/bin/sh\ntouch {began}\nwhile [ ! -e {go_on} ]; do sleep 0.05; done\nexec /usr/bin/gcc "$@"\n'
    )
    (tools / "gcc").chmod(0o755)
    process = place.start(PATH=f"{tools}:{os.environ['PATH']}", MAX_JOBS="1")
    try:
        end = time.monotonic() + 60
        while not began.exists() and process.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        (build,) = builds(place)
        for arguments in (("clean", "--dry-run"), ("clean",)):
            data = command_data(place, *arguments)
            assert (data["paths"], data["kept"]) == ([], [f"{build}: a build is running in it"])
    finally:
        go_on.touch()
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert seen(place) == (1, "torch 9.9.0+cpu")
    assert command_data(place, "clean")["paths"] == []


def test_a_build_that_cannot_be_removed_is_reported(compiled: Place) -> None:
    shutil.rmtree(compiled.venv)
    (build,) = builds(compiled)
    # Root may write everywhere, so the error of the file system is simulated.
    code = (
        "import envdoctor.install.removal as h, os\n"
        "def refuse(path): raise OSError(30, os.strerror(30))\n"
        "h.remove_environment = refuse\nfrom envdoctor.cli import main\nmain()"
    )
    done = subprocess.run(
        [interpreter(), "-c", code, "clean", "--yes", "--format", "json"],
        env=environment(compiled.home), capture_output=True, text=True, check=False,
    )  # fmt: skip
    data = envelope(done)["data"]
    assert data["kept"] == [f"{build}: cannot be removed: Read-only file system"]
    assert build.exists()


def test_links_are_not_followed(compiled: Place) -> None:
    (build,) = builds(compiled)
    elsewhere = compiled.home / "elsewhere"
    elsewhere.mkdir()
    link = build.with_name("fast-ffffffffffffffff")
    link.symlink_to(elsewhere)
    assert command_data(compiled, "clean")["paths"] == []
    assert elsewhere.is_dir()
    assert link.is_symlink()
