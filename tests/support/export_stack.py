"""A stack of two small packages for export tests, and one with an additional source package."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from support.install_place import add_known_interpreters
from support.local_packages import PYTHON, write_profile, write_wheel
from support.pip import make_venv_with_pip
from support.source_packages import SOURCE, write_sdist

from envdoctor.export import export
from envdoctor.locking.lock import Lock, Package
from envdoctor.locking.lock_files import LOCK_SOURCE, lock_folder, read_lock
from envdoctor.profiles import Profile, read_profile, read_profiles

UV = str(Path(sys.executable).with_name("uv"))
BUNDLED = [
    pytest.param(profile, read_lock(path), id=f"{profile.id}-{path.stem}")
    for profile in read_profiles()
    if profile.notebook is None  # it has no environment
    for path in sorted(lock_folder(profile.id).glob("*.txt"))
]
COMPLETE = [case for case in BUNDLED if not case.values[1].without]
WITHOUT_BUILDS = [case for case in COMPLETE if not case.values[1].built]
TORCH = {
    "torch/__init__.py": b"from torch import version\n__version__ = '9.9.0'\n",
    "torch/version.py": b"cuda = None\n",
}


class SmallStack:
    """Two packages in a folder, with their profile and lock."""

    def __init__(
        self, folder: Path, *, torch: str = "9.9.0", files: dict[str, bytes] | None = None, requires: str = ""
    ) -> None:
        self.folder, self.wheels = folder, folder / "wheels"
        add_known_interpreters(folder / "cache")
        wheels = [
            write_wheel(self.wheels, "torch", torch, files=TORCH if files is None else files),
            write_wheel(self.wheels, "trainer", "1.2", requires=["torch", *requires.split()]),
        ]
        self.profile = read_profile(str(write_profile(folder / "mine.toml", "trainer==1.2", f"torch=={torch}")))
        packages = tuple(
            Package(wheel.name.split("-")[0], wheel.name.split("-")[1], "", sha256_of(wheel), LOCK_SOURCE)
            for wheel in wheels
        )
        self.lock = Lock(
            profile="mine",
            platform=f"{platform.machine()}-manylinux_2_17",
            python=PYTHON,
            backend="",
            torch_build="cpu",
            made="2026-11-21",
            packages=packages,
        )

    def write(self, form: str, profile: Profile | None = None, lock: Lock | None = None) -> Path:
        exported = export(profile or self.profile, lock or self.lock, form)
        path = self.folder / exported.file_name
        path.write_text(exported.text)
        return path

    def run(self, *command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the folder, offline."""
        inherited = {name: value for name, value in os.environ.items()
                     if not name.startswith(("PIP_", "UV_", "PYTHON"))}  # fmt: skip
        offline = {"PIP_FIND_LINKS": str(self.wheels), "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull,
                   "UV_FIND_LINKS": str(self.wheels), "UV_OFFLINE": "1", "UV_PYTHON_DOWNLOADS": "never",
                   "UV_CACHE_DIR": str(self.folder / "cache"), "UV_NO_CONFIG": "1"}  # fmt: skip
        return subprocess.run(
            list(map(str, command)), cwd=self.folder, capture_output=True, text=True, timeout=120, check=False,
            env=inherited | offline | {"PATH": f"{Path(UV).parent}:{os.environ['PATH']}"} | variables,
        )  # fmt: skip

    def path_without_uv(self) -> str:
        """PATH with the system's tools, a Python that only creates environments with pip, and no uv.

        It copies an environment: `ensurepip`, which each `-m venv DIR` runs, takes 4 s.
        """
        made, tools = self.folder / "made", self.folder / "tools"
        make_venv_with_pip(made)
        tools.mkdir()
        python = tools / f"python{PYTHON}"
        python.write_text(f'#!/bin/sh\n[ "$#" = 3 ] && [ "$1 $2" = "-m venv" ] && exec cp -a "{made}" "$3"\nexit 3\n')
        python.chmod(0o755)
        return f"{tools}:/usr/bin:/bin"


class SmallStackWithBuild(SmallStack):
    """A stack with `fast`, a C extension that reports how it was compiled. Its wheel reports nothing."""

    def __init__(self, folder: Path, *, build: str = "", source: str = SOURCE) -> None:
        super().__init__(folder, requires="fast")  # installed after the wheels
        self.counter = folder / "it's built; touch pwned"  # needs quoting
        archive = write_sdist(self.wheels, "fast", "1.0", source=source)
        write_wheel(self.wheels, "fast", "1.0")
        build += f'\nenvironment = {{ BUILD_COUNTER = "{self.counter}" }}'
        table = f'[build]\npackages = ["fast"]\nmemory_gb_per_job = 0.1\n{build}\n'
        requirements = ("trainer==1.2", "torch==9.9.0", "fast==1.0")
        self.profile = read_profile(str(write_profile(folder / "mine.toml", *requirements, extra=table)))
        fast = Package("fast", "1.0", "", sha256_of(archive), LOCK_SOURCE, built=True)
        self.lock = msgspec.structs.replace(self.lock, packages=(fast, *self.lock.packages))

    def build_report(self, python: str | Path = ".venv/bin/python") -> str:
        """MAX_JOBS and the torch version of the build according to the extension, and a line per build."""
        done = self.run(self.folder / python, "-c", "import fast, trainer; print(fast.jobs(), fast.against())")
        return f"{done.stdout}{self.counter.read_text() if self.counter.exists() else ''}{done.stderr}"


def sha256_of(path: Path) -> str:
    """The SHA-256 digest of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def with_environment(profile: Profile, **variables: str) -> Profile:
    """The profile with these environment variables."""
    return msgspec.structs.replace(profile, environment=variables)


def docker_words(text: str) -> str:
    """Parse a double-quoted value like a Dockerfile: a backslash escapes \" $ and \\."""
    assert text[0] == text[-1] == '"'
    inner = text[1:-1]
    assert not re.search(r'(?<!\\)(\\\\)*["$]', inner), "an unescaped quote or variable"
    return re.sub(r'\\(["$\\])', r"\1", inner)
