"""Profiles with packages that are compiled."""

from __future__ import annotations

import atexit
import json
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest
from support.install_place import Place, make_place
from support.local_packages import write_profile
from support.source_packages import write_sdist


def ask_for(place: Place, *requirements: str, build: str = "", more: str = "") -> None:
    """The profile with `fast`, which has no wheel."""
    write_sdist(place.wheels, "fast", "1.0") if not list(place.wheels.glob("fast-*")) else None
    table = f'[build]\npackages = ["fast"]\nmemory_gb_per_job = 0.1\n{build}\n{more}'
    write_profile(place.profile, "alpha", "torch==9.9.0+cpu", *(requirements or ("fast==1.0",)), extra=table)


@cache
def compiled_place() -> Place:
    """A place with the profile of `ask_for` after its first install with one job, made once in this process."""
    home = Path(tempfile.mkdtemp(prefix="compiled"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    with pytest.MonkeyPatch.context() as patch:
        place = make_place(home, patch)
        ask_for(place)
        done = place.install(MAX_JOBS="1", BUILD_COUNTER=str(place.home / "counter"))
    assert done.returncode == 0, done.stdout
    return place


def seen(place: Place) -> tuple[int, str]:
    """MAX_JOBS and the torch with which the extension was compiled, as the extension reports them."""
    code = "import fast, json; print(json.dumps([fast.jobs(), fast.against()]))"
    done = subprocess.run([place.venv / "bin/python", "-c", code], capture_output=True, text=True, check=True)
    jobs, against = json.loads(done.stdout)
    return jobs, against
