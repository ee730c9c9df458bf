"""A temporary home for install tests, with generated wheels, a profile and an environment."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest
from support.command import envdoctor, environment, interpreter
from support.local_packages import PYTHON, write_cpu_torch, write_profile, write_wheel

from envdoctor.core.reporter import InstallProgress
from envdoctor.download.sources import read_sources
from envdoctor.environment.managed import EnvironmentPaths
from envdoctor.install.install import InstallResult, install
from envdoctor.install.plan import Plan, plan_install
from envdoctor.locking.lock import Target
from envdoctor.locking.resolve import resolve
from envdoctor.locking.uv import find_uv
from envdoctor.machine.recorded import read_recorded
from envdoctor.profiles import read_profile

OFFLINE = {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", "NO_PROXY": "127.0.0.1"}


@dataclass
class Place:
    """A home with a folder of wheels, a profile, and the path of the environment."""

    home: Path

    @property
    def wheels(self) -> Path:
        return self.home / "wheels"

    @property
    def venv(self) -> Path:
        return self.home / "envs/mine"

    @property
    def profile(self) -> Path:
        return self.home / "mine.toml"

    @property
    def settings(self) -> dict[str, str]:
        # Killed processes leave temporary files: these are removed with the home.
        return OFFLINE | {"PIP_FIND_LINKS": str(self.wheels), "TMPDIR": str(self.home)}

    def install(self, *options: str, **extra: str) -> subprocess.CompletedProcess[str]:
        """Run `envdoctor install` for the profile."""
        arguments = ["install", "--profile", self.profile, "--venv", self.venv, "--format", "json", *options]
        return envdoctor(*arguments, home=self.home, **(self.settings | extra))

    def copy_installed(self) -> None:
        """Get the same files as with a first `install` of the fixture's profile, which takes ten times as long."""
        self.copy_files(installed_place())

    def copy_files(self, other: Place) -> None:
        """Copy the home of another place, with adapted paths in envdoctor's files."""
        shutil.copytree(other.home, self.home, symlinks=True, dirs_exist_ok=True)
        state = self.home / ".local/state/envdoctor"
        data = EnvironmentPaths(self.venv).journal, self.venv / "envdoctor.json", self.profile
        for file in (*data, state / "environments", *state.glob("logs/*")):
            file.write_text(file.read_text().replace(str(other.home), str(self.home)))

    def start(self, python: str | None = None, **extra: str) -> subprocess.Popen[str]:
        """Start `envdoctor install` without waiting for it. `python` is sys.executable for a real start."""
        return subprocess.Popen(
            [python or interpreter(), "-m", "envdoctor", "install", "--profile", self.profile, "--venv", self.venv],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.home,
            env=environment(self.home, **(self.settings | extra)),
        )  # fmt: skip

    def install_after(self, code: str, *options: str) -> int:
        """Run `envdoctor install` in a process that first executes `code`. Returns its exit status."""
        command = [interpreter(), "-c", f"{code}\nfrom envdoctor.cli import main\nmain()", "install"]
        return subprocess.run(
            [*command, "--profile", self.profile, "--venv", self.venv, *options],
            capture_output=True, env=environment(self.home, **self.settings), cwd=self.home, check=False,
        ).returncode  # fmt: skip

    def kill(self, process: subprocess.Popen[str]) -> None:
        """Kill the install that `start` has started, and wait for its end."""
        os.kill(int(EnvironmentPaths(self.venv).lock_file.read_text()), signal.SIGKILL)  # `process` may stand for it
        assert process.wait(60) == -signal.SIGKILL

    def plan(self, **pip: str) -> Plan:
        """The install plan of the current profile."""
        profile = read_profile(str(self.profile))
        sources = read_sources({"HOME": str(self.home)} | (pip or self.settings))
        resolution = resolve(profile, Target("x86_64", "2.35", (PYTHON,)), sources)
        assert resolution.lock, resolution.attempts
        return plan_install(profile, resolution.lock, self.venv, sources)

    def packages(self) -> dict[str, str]:
        """The versions of the packages that the interpreter of the environment finds."""
        # Without importlib.metadata, whose import takes three times as long as the start of the interpreter.
        command = [self.venv / "bin/python", "-c", "import sys; print(*sys.path, sep='\\n')"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/")
        folders = [folder for path in done.stdout.splitlines() if path for folder in Path(path).glob("*.dist-info")]
        found = [PathDistribution(folder) for folder in folders]
        assert len({each.name for each in found}) == len(found), folders
        return {each.name: each.version for each in found}

    def remaining_files(self) -> list[str]:
        """The files next to the environment, and those of its data folder (+NAME) except journal and lock."""
        paths = EnvironmentPaths(self.venv)
        kept = (".gitignore", "journal.jsonl", "lock")
        others = (path.name for path in self.venv.parent.iterdir() if path != paths.folder)
        return sorted([*others, *(f"+{path.name}" for path in paths.folder.glob("*") if path.name not in kept)])

    def install_plan(self, plan: Plan, on_progress: Callable[[InstallProgress], None] | None = None) -> InstallResult:
        """Execute the plan in this process, on a machine without a GPU."""
        machine = read_recorded("cpu-2core")
        return install(plan, machine, self.home / "log", self.home / "files", on_progress or quiet)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """alpha 1.0 with its requirement beta 1.0, and torch's CPU build."""
    return make_place(tmp_path, monkeypatch)


def make_place(home: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A home in any folder, while the variables are patched."""
    for name in list(os.environ):
        if name.startswith(("PIP_", "UV_", "XDG_")) and name != "UV_HTTP_RETRIES":
            monkeypatch.delenv(name)
    monkeypatch.setenv("UV_CACHE_DIR", str(home / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    place = Place(home)
    for folder in ("cache", ".cache/uv"):
        add_known_interpreters(home / folder)
    write_wheel(place.wheels, "alpha", "1.0", requires=["beta"])
    write_wheel(place.wheels, "beta", "1.0")
    write_cpu_torch(place.wheels)
    write_profile(place.profile, "alpha", "torch==9.9.0+cpu")
    return place


def add_known_interpreters(cache_folder: Path) -> None:
    """Make a cache folder of uv with the facts about this Python, so that uv does not run the interpreter."""
    shutil.copytree(known_interpreters(), cache_folder, dirs_exist_ok=True)


@cache
def known_interpreters() -> Path:
    """A cache folder of uv with the facts about this Python, made once in this process."""
    folder = Path(tempfile.mkdtemp(prefix="uv"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    variables = os.environ | {"UV_CACHE_DIR": str(folder), "UV_PYTHON_DOWNLOADS": "never"}
    for version in ([PYTHON], []):  # by two names: python3.X and python
        command = [find_uv(), "python", "find", *version]
        subprocess.run(command, cwd="/", env=variables, check=True, capture_output=True)
    return folder


@cache
def installed_place() -> Place:
    """A place after its first install, made once in this process."""
    home = Path(tempfile.mkdtemp(prefix="installed"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    with pytest.MonkeyPatch.context() as patch:
        place = make_place(home, patch)
        done = place.install()
    assert done.returncode == 0, done.stdout
    return place


FIRST = {"alpha": "1.0", "beta": "1.0", "torch": "9.9.0+cpu"}
SECOND = FIRST | {"beta": "2.0"}


def offer_newer_version(place: Place) -> None:
    """Change the profile to require beta 2.0, and provide its wheel."""
    write_wheel(place.wheels, "beta", "2.0")
    write_profile(place.profile, "alpha", "beta==2.0", "torch==9.9.0+cpu")


def quiet(_: InstallProgress) -> None:
    """Ignore the progress of an install."""
