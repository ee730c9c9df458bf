"""Where faults are tried: homes with an environment each, what all of them share, and what is looked at."""

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

from command import environment
from install_place import FIRST, SECOND, Place, offer_a_newer_one
from local_packages import PYTHON, Index, serve, write_cpu_torch, write_profile, write_wheel

from envdoctor.environment.managed import EnvironmentPaths, read_install_record
from envdoctor.install.lock_check import drift
from envdoctor.install.lock_choice import read_environment_lock
from envdoctor.locking.lock_files import lock_path, write_lock

MAIN = "from envdoctor.cli import main\nmain()"
# The pauses before a source is asked again are for networks; a server on loopback is back at once or never.
HASTE = "import envdoctor.install.install as i\ni.RETRY_DELAYS = (0.1, 0.1)"


# Kills an install after a record of its journal.
KILL = """
import os, envdoctor.install.journal as j
write, count = j.Journal.write, [0]
def written(self, *a, **k):
    write(self, *a, **k)
    count[0] += 1
    count[0] == {number} and os.kill(os.getpid(), 9)
j.Journal.write = written
"""


@dataclass
class Ended:
    """How a command ended, with all that it said."""

    code: int
    said: str

    @property
    def data(self) -> dict[str, Any]:
        """Of its envelope."""
        found = json.loads(self.said[self.said.index("{") :])["data"]
        assert isinstance(found, dict), self.said
        return found


@dataclass
class Row:
    """What was found after a fault; each a yes or a reason why not."""

    fault: str
    current: str = ""
    whole: str = ""
    next: str = ""
    message: str = ""

    @property
    def good(self) -> bool:
        """Whether nothing was lost."""
        return not (self.current or self.whole or self.next or self.message)


class Ground(Place):
    """One home, in which one fault is tried. The wheels are everybody's."""

    def __init__(self, home: Path, wheels: Path, cache: Path) -> None:
        super().__init__(home)
        self.shared, self.cache = wheels, cache
        self.extra: dict[str, str] = {}

    @property
    def wheels(self) -> Path:
        return self.shared

    @property
    def paths(self) -> EnvironmentPaths:
        return EnvironmentPaths(self.venv)

    def variables(self) -> dict[str, str]:
        """A user's variables for it."""
        return environment(self.home, **(self.settings | {"UV_CACHE_DIR": str(self.cache)} | self.extra))

    def begin(self, code: str = "", *, form: str = "human", options: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        """An install in a process of its own, which does `code` first."""
        arguments = ["install", "--profile", self.profile, "--venv", self.venv, "--format", form, *options]
        return subprocess.Popen(
            [sys.executable, "-c", f"{HASTE}\n{code}\n{MAIN}", *arguments], text=True, cwd=self.home,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=self.variables(), start_new_session=True,
        )  # fmt: skip

    def complete(self, code: str = "", form: str = "json") -> Ended:
        """The same, to its end."""
        return end(self.begin(code, form=form))

    def fault(self, said: Ended | None, name: str, expected: str) -> Row:
        """Look at what a fault left, then let an install complete, and look again.

        `expected` is what the message must hold; without `said` it is looked for in what the next install tells.
        """
        row = Row(name, current=self.broken(), whole=self.half_made())
        after = self.complete()
        row.next = self.incomplete(after)
        text = said.said if said else after.said
        if not re.search(expected, text, re.DOTALL):
            row.message = f"no /{expected}/ in: {text[-700:]}"
        if "Traceback" in text + after.said:
            row.message = f"a traceback: {(text + after.said)[-700:]}"
        return row

    def broken(self) -> str:
        """Why the environment that is there does not work, as its own interpreter finds it."""
        if not self.venv.exists():
            return "the environment is gone" if self.had else ""
        found = self.imports()
        return "" if found in (FIRST, SECOND) else f"it holds {found}"

    had = False  # whether there was an environment before the fault

    def imports(self) -> dict[str, str]:
        """Packages that the environment's interpreter imports, with the versions that they say they have."""
        code = "import alpha, beta, torch; print(alpha.__version__, beta.__version__, torch.__version__)"
        done = subprocess.run(
            [self.venv / "bin/python", "-I", "-c", code], capture_output=True, text=True, check=False
        )
        return (
            dict(zip(FIRST, done.stdout.split(), strict=False)) if done.returncode == 0 else {"": done.stderr[-300:]}
        )

    def half_made(self) -> str:
        """What is half-made of the current environment: true to its own lock it must be, or not there."""
        if not self.venv.exists():
            return ""
        lock, marker = read_environment_lock(self.venv), read_install_record(self.venv)
        if lock is None or marker is None:
            return "no lock or no marker in it"
        wrong = drift(self.venv, lock)
        return "; ".join(wrong) if wrong else "" if marker.lock == lock.digest else "marker and lock differ"

    def incomplete(self, after: Ended) -> str:
        """What is wrong after the next install."""
        if after.code:
            return f"exit code {after.code}: {after.said[-700:]}"
        wrong = self.half_made()
        if wrong or self.imports() != SECOND:
            return wrong or f"it holds {self.imports()}"
        left = [name for name in self.left() if name not in ("mine", "+previous") and "damaged" not in name]
        return f"left over: {left}" if left else ""


@dataclass
class Field:
    """What all faults share: wheels, two profiles with their locks, a warm cache, and an environment to copy."""

    root: Path
    grounds: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def prepare(self) -> None:
        """Make wheels and locks, and install the first environment."""
        wheels = self.root / "wheels"
        write_wheel(wheels, "alpha", "1.0", requires=["beta"])
        write_wheel(wheels, "beta", "1.0")
        write_cpu_torch(wheels)
        base = self._ground("base")
        base.home.mkdir(parents=True)
        write_profile(base.profile, "alpha", "torch==9.9.0+cpu")
        self._lock_profile(base)
        done = base.complete()
        assert done.code == 0, done.said
        shutil.copytree(base.home / "envs", self.root / "first", symlinks=True)
        offer_a_newer_one(base)
        self._lock_profile(base)
        done = base.complete()  # its wheels are in the cache now
        assert done.code == 0, done.said

    def _ground(self, name: str) -> Ground:
        return Ground(self.root / name / "home", self.root / "wheels", self.root / "cache")

    def _lock_profile(self, ground: Ground) -> None:
        """A lock beside the profile, so that no fault has to wait for a resolver."""
        lock = ground.plan().lock
        write_lock(lock_path(str(ground.profile), lock.platform, PYTHON), lock)

    def ground(self, *, over: bool = True, cold: bool = False) -> Ground:
        """A new home; `over`: with the first environment in it; `cold`: with a cache of its own, which is empty."""
        with self._lock:
            self.grounds += 1
            ground = self._ground(f"{self.grounds:03}")
        ground.home.mkdir(parents=True)
        if over:
            subprocess.run(["cp", "-a", self.root / "first", ground.home / "envs"], check=True)
        ground.had = over
        if cold:
            ground.cache = ground.home / "cache"
        base = self._ground("base").home
        shutil.copy(base / "mine.toml", ground.profile)
        shutil.copytree(base / "mine.locks", ground.home / "mine.locks")
        return ground


def end(process: subprocess.Popen[str], seconds: float = 90) -> Ended:
    """Wait for a process and take what it said."""
    try:
        said, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        said, _ = process.communicate()
        said += f"\nstill ran after {seconds} s"
    return Ended(process.returncode, said)


def wait_for_line(process: subprocess.Popen[str], text: str) -> str:
    """Read what a process says up to a line with this text."""
    assert process.stdout
    read = ""
    for line in process.stdout:
        read += line
        if text in line:
            return read
    return read


def wait_until(true: Callable[[], object], seconds: float = 20) -> None:
    """Wait until something holds."""
    until = time.monotonic() + seconds
    while not true():
        if time.monotonic() > until:
            raise TimeoutError(f"it did not come about in {seconds} s")
        time.sleep(0.005)


def children(process: int) -> list[int]:
    """Processes that a process started, and what those started."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == process:
                found += [int(stat.parent.name), *children(int(stat.parent.name))]
    return found


@contextlib.contextmanager
def small_disk(folder: Path, mib: int) -> Iterator[Path]:
    """A file system of its own in memory; PermissionError where mounting is not permitted."""
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", folder], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise PermissionError(done.stderr.strip())
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(folder: Path) -> Path:
    """Fill a disk to its last byte."""
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
def at_sync(ground: Ground, code: str = "") -> Iterator[tuple[subprocess.Popen[str], Index]]:
    """An install that waits in the download of a wheel, from an index that can be let go."""
    with serve(Index({"main": ground.wheels})) as web:
        ground.extra |= {"PIP_FIND_LINKS": "", "PIP_NO_INDEX": "", "PIP_INDEX_URL": web.url(), "PIP_TIMEOUT": "10"}
        process = ground.begin(code)
        wait_for_line(process, "[1/3]")
        web.stalled, asked = True, len(web.requests)
        wait_for_line(process, "[2/3]")
        wait_until(lambda: len(web.requests) > asked)
        try:
            yield process, web
        finally:
            web.stalled = False
            process.kill()
            process.wait()
            ground.extra.clear()


def lock_this(ground: Ground, name: str, wheel: Path) -> None:
    """Let the lock name this wheel."""
    (lock,) = (ground.home / "mine.locks").glob("*.txt")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    text, times = re.subn(rf"({name}==\S+ --hash=sha256:)[0-9a-f]+", rf"\g<1>{digest}", lock.read_text())
    assert times == 1
    lock.write_text(text)
