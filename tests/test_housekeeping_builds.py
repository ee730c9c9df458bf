"""`clean` and what was compiled: real builds; those that an environment has stay, and those that are being made."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command import envelope, environment
from install_place import Place
from local_packages import write_wheel
from test_housekeeping import told, tree
from test_source_builds import ask_for, seen

from envdoctor.environment.managed import EnvironmentPaths


def builds(place: Place) -> list[Path]:
    return sorted((place.home / ".cache/envdoctor/builds").glob("*"))


def install(place: Place, **extra: str) -> None:
    done = place.install(MAX_JOBS="1", **extra)
    assert done.returncode == 0, done.stdout


@pytest.fixture
def compiled(place: Place) -> Place:
    """An environment with a compiled package."""
    ask_for(place)
    install(place, BUILD_COUNTER=str(place.home / "counter"))
    return place


def test_what_no_environment_has_goes_and_what_one_has_stays(compiled: Place) -> None:
    place = compiled
    (first,) = builds(place)
    write_wheel(place.wheels, "torch", "9.9.1+cpu")
    place.profile.write_text(place.profile.read_text().replace("torch==9.9.0+cpu", "torch==9.9.1+cpu"))
    install(place)
    (second,) = set(builds(place)) - {first}
    before = tree(place.home)
    data = told(place, "clean", "--dry-run")
    assert data["paths"] == [str(EnvironmentPaths(place.venv).previous), str(first)]
    assert tree(place.home) == before
    assert data["size"] > sum(path.stat().st_size for path in first.rglob("*.so"))
    assert told(place, "clean")["paths"] == data["paths"]
    assert builds(place) == [second]
    shutil.rmtree(place.venv)
    install(place, BUILD_COUNTER=str(place.home / "second"))
    assert seen(place) == (1, "torch 9.9.1+cpu")
    assert not (place.home / "second").exists(), "it was compiled once more"


def test_of_one_environment_alone_nothing_compiled_goes(compiled: Place) -> None:
    shutil.rmtree(compiled.venv)
    assert told(compiled, "clean", "--venv", compiled.venv)["paths"] == []
    (build,) = builds(compiled)
    assert told(compiled, "clean")["paths"] == [str(build)]
    assert builds(compiled) == []


def test_the_older_of_two_alike_goes_and_what_is_no_build_stays(compiled: Place) -> None:
    (build,) = builds(compiled)
    older = build.with_name("fast-0123456789abcdef")
    shutil.copytree(build, older, symlinks=True)
    os.utime(older, (1, 1))
    half_removed = build.with_name(f"removing-1-{older.name}")
    half_removed.mkdir()
    build.with_name("notes").mkdir()
    assert told(compiled, "clean")["paths"] == [str(older), str(half_removed)]
    assert builds(compiled) == [build, build.with_name("notes")]


def test_what_is_being_compiled_stays(place: Place) -> None:
    """The compiler of a first install, whose environment nobody knows of yet, waits until `clean` has been."""
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
            data = told(place, *arguments)
            assert (data["paths"], data["kept"]) == ([], [f"{build}: a build is running in it"])
    finally:
        go_on.touch()
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert seen(place) == (1, "torch 9.9.0+cpu")
    assert told(place, "clean")["paths"] == []


def test_a_build_that_cannot_be_removed_is_told(compiled: Place) -> None:
    shutil.rmtree(compiled.venv)
    (build,) = builds(compiled)
    # Root may write everywhere, so the file system's refusal is put in by hand.
    code = (
        "import envdoctor.install.removal as h, os\n"
        "def refuse(path): raise OSError(30, os.strerror(30))\n"
        "h.remove_environment = refuse\nfrom envdoctor.cli import main\nmain()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "clean", "--format", "json"],
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
    assert told(compiled, "clean")["paths"] == []
    assert elsewhere.is_dir()
    assert link.is_symlink()
