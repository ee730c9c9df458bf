"""Fault injection for installs: a home for each fault, the state that all faults share, and the checks."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.command import environment, interpreter
from support.install_place import FIRST, SECOND, Place, offer_newer_version
from support.local_packages import PYTHON, Index, serve, write_cpu_torch, write_profile, write_wheel

from envdoctor.environment.managed import EnvironmentPaths, read_install_record
from envdoctor.install.lock_check import drift
from envdoctor.install.lock_choice import read_environment_lock
from envdoctor.locking.lock_files import lock_path, write_lock

MAIN = "from envdoctor.cli import main\nmain()"
# The default delays before a retry are for remote servers; a loopback server recovers at once or not at all.
SHORT_RETRIES = "import envdoctor.install.install as i\ni.RETRY_DELAYS = (0.1, 0.1)"
# Kills an install after a given number of records in its journal.
KILL_AFTER_RECORD = """
import os, envdoctor.install.journal as j
write, count = j.Journal.write, [0]
def write_and_kill(self, *a, **k):
    write(self, *a, **k)
    count[0] += 1
    count[0] == {number} and os.kill(os.getpid(), 9)
j.Journal.write = write_and_kill
"""


@dataclass
class CommandResult:
    """Exit code and output (stdout and stderr) of a command."""

    exit_code: int
    output: str

    @property
    def data(self) -> dict[str, Any]:
        """The data of the JSON envelope in the output."""
        data = json.loads(self.output[self.output.index("{") :])["data"]
        assert isinstance(data, dict), self.output
        return data


@dataclass
class FaultResult:
    """The result of each check after a fault: empty, or the reason for the failure."""

    fault: str
    environment: str = ""  # the current environment works
    integrity: str = ""  # the current environment is complete and matches its lock
    next_install: str = ""  # the next install completes
    message: str = ""  # the message names the cause

    @property
    def passed(self) -> bool:
        return not (self.environment or self.integrity or self.next_install or self.message)


class FaultHome(Place):
    """A home in which one fault is injected. All homes share the folder of wheels."""

    def __init__(self, home: Path, wheels: Path, cache: Path) -> None:
        super().__init__(home)
        self.shared_wheels, self.cache = wheels, cache
        self.extra_variables: dict[str, str] = {}
        self.had_environment = False  # whether there was an environment before the fault

    @property
    def wheels(self) -> Path:
        return self.shared_wheels

    @property
    def paths(self) -> EnvironmentPaths:
        return EnvironmentPaths(self.venv)

    def variables(self) -> dict[str, str]:
        return environment(self.home, **(self.settings | {"UV_CACHE_DIR": str(self.cache)} | self.extra_variables))

    def start_install(
        self, code: str = "", *, output_format: str = "human", python: str = sys.executable
    ) -> subprocess.Popen[str]:
        """Start an install in its own process, which first executes `code`."""
        arguments = ["install", "--profile", self.profile, "--venv", self.venv, "--format", output_format]
        return subprocess.Popen(
            [python, "-c", f"{SHORT_RETRIES}\n{code}\n{MAIN}", *arguments], text=True, cwd=self.home,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=self.variables(), start_new_session=True,
        )  # fmt: skip

    def run_install(self, code: str = "", output_format: str = "json") -> CommandResult:
        return wait_for_exit(self.start_install(code, output_format=output_format, python=interpreter()))

    def check(self, failed: CommandResult | None, fault: str, expected: str) -> FaultResult:
        """Check the environment after a fault, install again, and check it once more.

        `expected` is a pattern of the message. Without `failed`, the next install must print the message.
        """
        result = FaultResult(fault, environment=self.environment_error(), integrity=self.integrity_error())
        next_install = self.run_install()
        result.next_install = self.next_install_error(next_install)
        output = failed.output if failed else next_install.output
        if not re.search(expected, output, re.DOTALL):
            result.message = f"no /{expected}/ in: {output[-700:]}"
        if "Traceback" in output + next_install.output:
            result.message = f"a traceback: {(output + next_install.output)[-700:]}"
        return result

    def environment_error(self) -> str:
        """Why the current environment does not work, according to its own interpreter."""
        if not self.venv.exists():
            return "there is no environment" if self.had_environment else ""
        versions = self.imported_versions()
        return "" if versions in (FIRST, SECOND) else f"it contains {versions}"

    def imported_versions(self) -> dict[str, str]:
        """The `__version__` of each package, imported by the interpreter of the environment."""
        code = "import alpha, beta, torch; print(alpha.__version__, beta.__version__, torch.__version__)"
        completed = subprocess.run(
            [self.venv / "bin/python", "-I", "-c", code], capture_output=True, text=True, check=False
        )
        if completed.returncode:
            return {"": completed.stderr[-300:]}
        return dict(zip(FIRST, completed.stdout.split(), strict=False))

    def integrity_error(self) -> str:
        """Why the current environment is incomplete or differs from its lock; empty if there is none."""
        if not self.venv.exists():
            return ""
        lock, record = read_environment_lock(self.venv), read_install_record(self.venv)
        if lock is None or record is None:
            return "it has no lock or no install record"
        if differences := drift(self.venv, lock):
            return "; ".join(differences)
        return "" if record.lock == lock.digest else "the install record and the lock differ"

    def next_install_error(self, result: CommandResult) -> str:
        """Why the install after the fault did not succeed."""
        if result.exit_code:
            return f"exit code {result.exit_code}: {result.output[-700:]}"
        if error := self.integrity_error():
            return error
        if (versions := self.imported_versions()) != SECOND:
            return f"it contains {versions}"
        remaining = [
            name for name in self.remaining_files() if name not in ("mine", "+previous") and "damaged" not in name
        ]
        return f"remaining files: {remaining}" if remaining else ""


@dataclass
class Campaign:
    """The state that all faults share: wheels, two profiles with locks, a warm cache, an environment to copy."""

    root: Path
    homes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def prepare(self) -> None:
        """Create wheels and locks, and install both versions of the environment, which fills the cache."""
        wheels = self.root / "wheels"
        write_wheel(wheels, "alpha", "1.0", requires=["beta"])
        write_wheel(wheels, "beta", "1.0")
        write_cpu_torch(wheels)
        base = self._home("base")
        base.home.mkdir(parents=True)
        write_profile(base.profile, "alpha", "torch==9.9.0+cpu")
        self._lock_and_install(base)
        shutil.copytree(base.home / "envs", self.root / "first", symlinks=True)
        offer_newer_version(base)
        self._lock_and_install(base)

    def _home(self, name: str) -> FaultHome:
        return FaultHome(self.root / name / "home", self.root / "wheels", self.root / "cache")

    def _lock_and_install(self, home: FaultHome) -> None:
        """Write the lock next to the profile, so that installs need not resolve, and install it."""
        lock = home.plan().lock
        write_lock(lock_path(str(home.profile), lock.platform, PYTHON), lock)
        result = home.run_install()
        assert result.exit_code == 0, result.output

    def create_home(self, *, with_environment: bool = True, empty_cache: bool = False) -> FaultHome:
        """Create a home, with a copy of the first environment and the shared cache unless specified otherwise."""
        with self._lock:
            self.homes += 1
            home = self._home(f"{self.homes:03}")
        home.home.mkdir(parents=True)
        if with_environment:
            subprocess.run(["cp", "-a", self.root / "first", home.home / "envs"], check=True)
        home.had_environment = with_environment
        if empty_cache:
            home.cache = home.home / "cache"
        base = self._home("base").home
        shutil.copy(base / "mine.toml", home.profile)
        shutil.copytree(base / "mine.locks", home.home / "mine.locks")
        return home


def wait_for_exit(process: subprocess.Popen[str], seconds: float = 90) -> CommandResult:
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        output += f"\nkilled after {seconds} s"
    return CommandResult(process.returncode, output)


def wait_for_line(process: subprocess.Popen[str], text: str) -> None:
    """Read the output of a process up to the first line with this text, or to its end."""
    assert process.stdout
    for line in process.stdout:
        if text in line:
            return


def wait_until(condition: Callable[[], object], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the condition was not met within {seconds} s")
        time.sleep(0.005)


def descendants(process: int) -> list[int]:
    """The ids of the children of a process, of their children, and so on."""
    ids = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == process:
                ids += [int(stat.parent.name), *descendants(int(stat.parent.name))]
    return ids


@contextlib.contextmanager
def mount_tmpfs(folder: Path, mib: int) -> Iterator[Path]:
    """Mount a tmpfs of this size at the folder; PermissionError where mounting is not permitted."""
    folder.mkdir(parents=True, exist_ok=True)
    completed = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", folder], capture_output=True, text=True, check=False
    )
    if completed.returncode:
        raise PermissionError(completed.stderr.strip())
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill_disk(folder: Path) -> Path:
    """Write a file until no byte is free on its file system. Returns the file."""
    ballast = folder / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(bytes(1 << 20)):
            pass
    with contextlib.suppress(OSError), ballast.open("ab", buffering=0) as file:
        while file.write(bytes(512)):
            pass
    assert os.statvfs(folder).f_bavail == 0
    return ballast


@contextlib.contextmanager
def install_during_download(home: FaultHome) -> Iterator[tuple[subprocess.Popen[str], Index]]:
    """An install that waits for a wheel, and its index; the install continues after `index.stalled = False`."""
    with serve(Index({"main": home.wheels}, stalled=home.paths.building)) as index:
        home.extra_variables |= {
            "PIP_FIND_LINKS": "", "PIP_NO_INDEX": "", "PIP_INDEX_URL": index.url(), "PIP_TIMEOUT": "10",
        }  # fmt: skip
        process = home.start_install()
        if not index.waiting.wait(60):
            raise TimeoutError("uv requested no wheel")
        try:
            yield process, index
        finally:
            index.stalled = False
            process.kill()
            process.wait()
            home.extra_variables.clear()


def set_locked_hash(home: FaultHome, name: str, wheel: Path) -> None:
    """Replace the hash of a package in the lock with that of the wheel."""
    (lock,) = (home.home / "mine.locks").glob("*.txt")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    text, replacements = re.subn(rf"({name}==\S+ --hash=sha256:)[0-9a-f]+", rf"\g<1>{digest}", lock.read_text())
    assert replacements == 1
    lock.write_text(text)
