"""Files outside of the environment that `fix --write` changes: shell files and requirements files."""

from __future__ import annotations

import contextlib
import difflib
import errno
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from envdoctor.core.errors import BadInput, EnvdoctorError
from envdoctor.core.paths import exists, expand_home, is_file, resolve_links
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record
from envdoctor.core.remedies import Setting
from envdoctor.core.shell_commands import shell_command
from envdoctor.install.requirement_pins import Pins, VersionChange
from envdoctor.install.shell_block import block_notes, with_block

PROFILES = (
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".envrc",
)
SHELL_SUFFIXES, REQUIREMENT_SUFFIXES = (".sh", ".bash", ".zsh"), (".txt", ".in")
SHEBANG = lazy_pattern(r"#!\s*\S*/(?:env\s+(?:-S\s+)?)?(?:ba|z|da|k)?sh\b")
LARGEST_FILE = 1 << 20  # bytes
EXPECTED = "a profile or a script of sh, bash or zsh, or a requirements file"
# Files that people name, and why they are not changed.
REFUSED = {
    r"pyproject\.toml": ("it belongs to a lock file and its tool", "uv add 'NAME==VERSION' changes both"),
    r".*\.lock": ("its tool writes it", "uv lock --upgrade-package NAME==VERSION"),
    r".*\.fish|.*\.t?csh|\.t?cshrc|\.login": ("its shell has other commands", "--dry-run prints the variables"),
    r".*\.ya?ml": ("conda resolves its packages", "change the versions in it, then: conda env update"),
}


class FileEdit(Record, frozen=True, kw_only=True):
    """A file of `--write`, and what happens to it."""

    path: str  # without symlinks
    kind: Literal["profile", "script", "requirements"]
    lines: tuple[str, ...] = ()  # that differ: "- torch==2.9.0", "+ torch==2.8.0"
    written: bool = False
    backup: str = ""  # the previous content
    notes: tuple[str, ...] = ()
    failure: str = ""


class Edits(NamedTuple):
    """What a fix changes outside of the environment."""

    settings: Sequence[Setting]
    packages: Sequence[VersionChange]
    named: Sequence[str]  # packages that the remedies name
    python_version: str


def resolve_files(names: Iterable[str], environment: Path) -> tuple[Path, ...]:
    """The files without symlinks, each once. Raises BadInput for a file that cannot be changed safely."""
    paths = tuple(dict.fromkeys(resolve_links(expand_home(name).absolute()) for name in names))
    for path in paths:
        kind_of(path)
        if path.is_relative_to(resolve_links(environment)):
            raise _refusal(path, "it is in the environment, which the repaired copy replaces", "name another file")
        if not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
            listed = shell_command("ls -ld {} {}", path.parent, path)
            raise _refusal(path, "the file or its directory is not writable", listed)
        owner = path.stat().st_uid
        if owner != os.geteuid() and os.geteuid():
            raise _refusal(path, "it belongs to another user", shell_command("ls -l {}", path))
    return paths


def kind_of(path: Path) -> Literal["profile", "script", "requirements"]:
    """What a file is, by its name and its first line. Raises BadInput for any other file."""
    for pattern, (reason, hint) in REFUSED.items():
        if re.fullmatch(pattern, path.name):
            raise _refusal(path, reason, hint)
    if not is_file(path):
        raise _refusal(
            path, "it is no regular file" if exists(path) else "it does not exist", shell_command("ls -ld {}", path)
        )
    if path.stat().st_size > LARGEST_FILE:
        raise _refusal(path, "it has more than 1 MiB", "name another file")
    text = _read(path)
    if "\0" in text:
        raise _refusal(path, "it is no text file", "name another file")
    if path.name in PROFILES:
        return "profile"
    if path.suffix in SHELL_SUFFIXES or SHEBANG.match(text):
        return "script" if text.startswith("#!") else "profile"
    if path.suffix in REQUIREMENT_SUFFIXES:
        return "requirements"
    raise _refusal(path, "its name and its first line do not show what it is", "--dry-run prints all changes")


def plan_edit(path: Path, edits: Edits) -> tuple[FileEdit, str]:
    """What changes in a file, and its new text. Raises BadInput if it cannot be changed safely."""
    kind, text = kind_of(path), _read(path)
    if kind == "requirements":
        pins = Pins(path, edits.packages, edits.python_version)
        changed, notes = pins.update(text, edits.named), pins.notes
    else:
        changed = with_block(text, edits.settings, path, is_script=kind == "script")
        notes = list(block_notes(changed, edits.settings)) if edits.settings else []
    return FileEdit(path=str(path), kind=kind, lines=_difference(text, changed), notes=tuple(notes)), changed


def write_edit(planned: FileEdit, edits: Edits) -> FileEdit:
    """Change a file, with a backup next to it. The result has the reason if that failed."""
    path = Path(planned.path)
    try:
        edit, text = plan_edit(path, edits)
        backup = _replace(path, text) if edit.lines else ""
    except (OSError, EnvdoctorError) as error:
        reason = error.message if isinstance(error, EnvdoctorError) else error.strerror
        return msgspec.structs.replace(planned, failure=f"not changed: {reason}")
    return msgspec.structs.replace(edit, written=bool(edit.lines), backup=str(backup))


def _replace(path: Path, text: str) -> Path:
    """Replace a file atomically, with its permissions and its owner. Returns the backup."""
    backup = _new_file(path, f"{path.name}.bak-{datetime.now().astimezone():%Y%m%d-%H%M%S}")
    _copy(path, backup)
    temporary = _new_file(path, f".{path.name}.envdoctor")
    try:
        _copy(path, temporary)
        with temporary.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return backup


def _new_file(path: Path, name: str) -> Path:
    """A new empty file in the directory of `path` that only the user can read."""
    for number in range(1000):
        new = path.with_name(f"{name}-{number}" if number else name)
        with contextlib.suppress(FileExistsError):
            os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            return new
    raise FileExistsError(errno.EEXIST, "a thousand files of this name exist", name)


def _copy(source: Path, target: Path) -> None:
    """Copy the content, the permissions and the owner of a file."""
    shutil.copyfile(source, target)
    before = source.stat()
    if (target.stat().st_uid, target.stat().st_gid) != (before.st_uid, before.st_gid):
        os.chown(target, before.st_uid, before.st_gid)
    shutil.copymode(source, target)


def _read(path: Path) -> str:
    with path.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
        return file.read()


def _difference(before: str, after: str) -> tuple[str, ...]:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    return tuple(f"{line[0]} {line[1:]}" for line in list(lines)[2:] if line[0] in "+-")


def _refusal(path: Path, reason: str, hint: str) -> BadInput:
    return BadInput(f"--write {path}: {reason}", expected=EXPECTED, hint=hint)
