"""Environments that envdoctor manages: their paths, their install record, and the check before one is replaced.

The environment `mine` has a data directory next to it, `.mine.envdoctor`:

    building/      the new environment, until it is swapped in
    previous/      the environment before the current one, for `envdoctor rollback`; removed by `envdoctor clean`
    outgoing/      exists only during a swap, on a file system that cannot exchange two directories atomically
    journal.jsonl  the log of all installs
    adopting       exists while an environment that envdoctor did not create is being replaced
    adopted.txt    the packages of that environment
    kept-1         that environment, after a later install replaced it again; removed by `envdoctor clean --adopted`
    lock           locked by the running install
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

import msgspec

from envdoctor.core.command_line import command_line
from envdoctor.core.errors import BadInput
from envdoctor.core.files import LISTING_BYTES, read_file
from envdoctor.core.paths import is_link
from envdoctor.core.record import Record
from envdoctor.core.shell_commands import CONTROL

MARKER = "envdoctor.json"
LOCK_FILE = "envdoctor-lock.txt"
NAME_BYTES = 255  # the limit of Linux for one path component
VERIFICATION = "envdoctor-verification.json"


class EnvironmentPaths(Record, frozen=True):
    """The paths of an environment and of its data directory."""

    venv: Path

    @property
    def folder(self) -> Path:
        """The data directory. It is on the same file system as the environment, so that a swap only needs renames."""
        return self.venv.with_name(f".{self.venv.name}.envdoctor")

    @property
    def building(self) -> Path:
        """The environment that is being built."""
        return self.folder / "building"

    @property
    def previous(self) -> Path:
        """The environment before the current one."""
        return self.folder / "previous"

    @property
    def outgoing(self) -> Path:
        """The replaced environment, between the two renames of a swap."""
        return self.folder / "outgoing"

    @property
    def journal(self) -> Path:
        """The log of all installs."""
        return self.folder / "journal.jsonl"

    @property
    def adoption_marker(self) -> Path:
        """Marks that `building` may contain an environment that envdoctor did not create."""
        return self.folder / "adopting"

    @property
    def adopted_packages(self) -> Path:
        """The list of packages of the adopted environment."""
        return self.folder / "adopted.txt"

    @property
    def adopted_environments(self) -> list[Path]:
        """Adopted environments, which are kept until the user removes them explicitly."""
        return sorted(self.folder.glob("kept-*"))

    @property
    def next_adopted_environment(self) -> Path:
        """The path for one more adopted environment."""
        used = {path.name for path in self.adopted_environments}
        names = (f"kept-{number}" for number in range(1, len(used) + 2))
        return self.folder / next(name for name in names if name not in used)

    @property
    def lock_file(self) -> Path:
        """Locked while the environment is changed."""
        return self.folder / "lock"

    def make_folder(self) -> None:
        """Create the data directory, with a .gitignore for environments inside a project.

        BadInput for one that another user made or may write: its links would lead writes and removals elsewhere.
        """
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            self.folder.mkdir(mode=0o755)
        self._require_own_folder()
        with contextlib.suppress(FileExistsError), (self.folder / ".gitignore").open("x") as ignore:
            ignore.write("*\n")

    def _require_own_folder(self) -> None:
        status = self.folder.lstat()
        problem = (
            "is a link" if stat.S_ISLNK(status.st_mode)
            else "is not a directory" if not stat.S_ISDIR(status.st_mode)
            else f"belongs to the user with the id {status.st_uid}" if status.st_uid != os.geteuid()
            else "can be written by every user" if status.st_mode & stat.S_IWOTH
            else ""
        )  # fmt: skip
        if problem:
            raise BadInput(
                f"{self.folder} {problem}",
                expected="a data directory that only you can write",
                hint=f"{command_line('ls', '-ld', self.folder)}; or another path: envdoctor install --venv PATH",
            )


def environment_paths(venv: Path) -> EnvironmentPaths:
    """The paths of an environment; BadInput if the path cannot have a data directory next to it."""
    longest = NAME_BYTES - len("..envdoctor")
    if not venv.name or CONTROL.search(str(venv)) or len(os.fsencode(venv.name)) > longest:
        raise BadInput(
            f"{str(venv)[:80]!r} is not a valid path for an environment",
            expected=f"a directory path of one line, whose name has 1 to {longest} bytes",
            hint="envdoctor envs",
        )
    return EnvironmentPaths(venv)


class WheelUsed(Record, frozen=True):
    """A wheel that was installed from its URL and not from an index."""

    name: str
    file: str
    sha256: str


class InstallRecord(Record, frozen=True, kw_only=True):
    """The content of envdoctor.json, which marks an environment as created by envdoctor."""

    schema: int = 1
    profile: str
    lock: str  # digest
    torch_build: str
    torch_source: str
    packages: int
    size: int  # bytes on disk
    created: str  # ISO 8601, UTC
    required: tuple[str, ...]  # probes that must pass before a training run
    environment: dict[str, str]  # variables for programs in the environment
    envdoctor: str
    id: str = ""  # of the install that created it
    replaces: str = ""  # the id of the environment that it replaced, or "foreign"
    request: str = ""  # digest of the requested profile, Python and platform
    python: str = ""  # "3.12"
    wheels: tuple[WheelUsed, ...] = ()
    fallbacks: dict[str, str] = {}  # attention implementation for each distribution that has no compatible wheel


def read_install_record(venv: Path) -> InstallRecord | None:
    """The install record of an environment; None if it is missing or cannot be read."""
    try:
        return msgspec.json.decode(read_file(venv / MARKER), type=InstallRecord)
    except (OSError, ValueError, RecursionError):  # msgspec's errors are ValueErrors
        return None


def write_install_record(venv: Path, record: InstallRecord) -> None:
    """Write the install record atomically, since a directory without a readable record counts as foreign."""
    data = {"schema": record.schema} | msgspec.to_builtins(record)
    temporary = venv / f"{MARKER}.new"
    with temporary.open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(data), indent=1) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(venv / MARKER)


def interpreter_of(venv: Path) -> Path:
    """The interpreter of an environment; BadInput if there is none."""
    python = venv / "bin" / "python"
    try:
        python.stat()
    except (OSError, ValueError) as error:  # ValueError: a null byte
        reason = f"bin/python: {getattr(error, 'strerror', error)}"
        if isinstance(error, FileNotFoundError):
            reason = "no bin/python"
        if is_link(python):
            reason = f"bin/python is a link to {python.readlink()}, which does not exist"
        raise BadInput(
            f"there is no environment at {venv} ({reason})",
            expected="an environment created by `envdoctor install`",
            hint="envdoctor install",
        ) from error
    return python


FOREIGN = "foreign"  # the id of an environment that envdoctor did not create


def is_foreign(venv: Path) -> bool:
    """Whether a non-empty directory was not created by envdoctor."""
    return venv.is_dir() and any(venv.iterdir()) and read_install_record(venv) is None


def check_replaceable(venv: Path, *, adopt: bool = False) -> None:
    """BadInput for a path that is a file or below one, and for a non-empty directory that envdoctor did not create.

    `adopt` permits any virtual environment; the install keeps it for `envdoctor rollback`.
    """
    environment_paths(venv)
    parent = next(folder for folder in venv.parents if folder.exists())
    if not parent.is_dir():
        raise BadInput(
            f"{parent} is a file, and {venv} would lie below it",
            expected="a path below a directory",
            hint="envdoctor install --venv NEW_PATH",
        )
    _reject_nested(venv)
    if venv.is_symlink() or (venv.exists() and not venv.is_dir()):
        kind = "a link" if venv.is_symlink() else "a file"
        raise BadInput(
            f"{venv} is {kind}",
            expected="a new path, or an environment that envdoctor created",
            hint="envdoctor install --venv NEW_PATH",
        )
    if not is_foreign(venv):
        return
    is_venv = (venv / "pyvenv.cfg").exists()
    if adopt and is_venv:
        return
    kind = "a virtual environment" if is_venv else "a directory"
    marker = f"its {MARKER} cannot be read" if (venv / MARKER).exists() else f"no {MARKER} in it"
    adopt_command = command_line("envdoctor", "install", "--venv", venv, "--adopt")
    hint = "envdoctor install --venv NEW_PATH"
    if is_venv:
        hint += f", or replace it and keep it for `rollback`: {adopt_command}"
    raise BadInput(
        f"{venv} is {kind} that envdoctor did not create ({marker})",
        expected="a new path, or an environment that envdoctor created",
        hint=hint,
    )


def _reject_nested(venv: Path) -> None:
    """BadInput for a path inside of another environment, whose next install would replace it."""
    for outer in (*venv.parents, *Path(os.path.realpath(venv)).parents):
        is_data = outer.name.startswith(".") and outer.name.endswith(".envdoctor")
        if is_data or (outer / MARKER).exists() or (outer / "pyvenv.cfg").exists():
            raise BadInput(
                f"{venv} lies inside of the environment {outer}, whose next install would remove it",
                expected="a path outside of other environments",
                hint=command_line("envdoctor", "install", "--venv", outer.parent / f"{venv.name}-2"),
            )


def installed_size(venv: Path) -> int:
    """Bytes of an environment according to its RECORD files, which is faster than one stat for each file."""
    total = size_on_disk(venv / "bin")
    for record in venv.glob("lib/python*/site-packages/*.dist-info/RECORD"):
        sizes = (row.rpartition(b",")[2] for row in read_file(record, LISTING_BYTES).splitlines())
        total += sum(int(size) for size in sizes if size.isdigit())
    return total


def size_on_disk(folder: Path) -> int:
    """Bytes of the files below a directory. Links are not followed; unreadable and vanished files are skipped."""
    total, folders = 0, [str(folder)]
    while folders:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    total += entry.stat(follow_symlinks=False).st_size
    return total
