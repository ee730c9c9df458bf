"""`export --as pylock`, and an install of the file with uv."""

from __future__ import annotations

import subprocess
import sys
import tomllib

import pytest
from support.command import envdoctor, environment
from support.install_place import FIRST, Place
from support.local_packages import PYTHON, Index, serve

from envdoctor.core.errors import BadInput
from envdoctor.export import export
from envdoctor.locking.lock_files import read_lock
from envdoctor.locking.uv import find_uv
from envdoctor.profiles import read_profile


def write_lock(place: Place) -> None:
    done = envdoctor("lock", "--profile", place.profile, home=place.home, **place.settings)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("source", ["folder", "index"])
def test_uv_installs_the_locked_packages(source: str, place: Place) -> None:
    write_lock(place)
    file = place.home / "pylock.toml"
    with serve(Index({"main": place.wheels}, user="user:secret")) as index:
        index_settings = {"PIP_FIND_LINKS": "", "PIP_NO_INDEX": "", "PIP_INDEX_URL": index.url(user="user:secret")}
        settings = place.settings | (index_settings if source == "index" else {})
        arguments = ("export", "--profile", place.profile, "--as", "pylock", "--output", file)
        done = envdoctor(*arguments, home=place.home, **settings)
        assert done.returncode == 0, done.stderr
        assert "secret" not in file.read_text()
        data = tomllib.loads(file.read_text())
        assert data["lock-version"] == "1.0"
        assert {p["name"]: p["version"] for p in data["packages"]} == FIRST
        if source == "index":
            index.user = ""  # the file contains no credentials
        uv, venv = find_uv(), place.home / "synced"
        env = environment(place.home, **place.settings)
        subprocess.run([uv, "venv", "-q", "--python", sys.executable, venv], check=True, env=env)
        subprocess.run(
            [uv, "pip", "sync", "-q", "--python", venv / "bin/python", file], check=True, env=env, cwd=place.home
        )
    installed = sorted(path.name for path in venv.glob("lib/python*/site-packages/*.dist-info"))
    assert installed == [f"{name}-{version}.dist-info" for name, version in sorted(FIRST.items())]


def test_missing_urls_are_an_error(place: Place) -> None:
    write_lock(place)
    profile = read_profile(str(place.profile))
    path = next(p for p in (place.home / "mine.locks").glob("*.txt") if PYTHON in p.name)
    file = read_lock(path)
    assert file
    with pytest.raises(BadInput, match="is unknown"):
        export(profile, file, "pylock")
