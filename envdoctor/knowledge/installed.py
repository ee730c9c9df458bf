"""The folder of the tables: those of this installation, or newer ones that `envdoctor update` installed.

    $XDG_DATA_HOME/envdoctor/knowledge/
        current.json      which tables are used, and which ones before
        2026.12.01/       the tables of that date, as bundled ones, and manifest.json

Installed tables are used only if this user owns them, nobody else can write them, their format is that of this
envdoctor, and they are newer than the bundled ones. ENVDOCTOR_KNOWLEDGE=bundled selects the bundled ones.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import msgspec

from envdoctor.core.directories import data_directory
from envdoctor.core.files import read_file
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record

BUNDLED = Path(__file__).parent
FORMAT = 1  # of the tables; raise it when a table gets a field that older envdoctor versions would misread
VERSION = lazy_pattern(r"\d{4}\.\d\d\.\d\d(?:\.\d{1,3})?")
ROW_DATE = re.compile(rb'^date = "(\d{4}-\d\d-\d\d)"', re.MULTILINE)
VARIABLE = "ENVDOCTOR_KNOWLEDGE"  # `bundled`, or a folder of tables


class Installed(Record, frozen=True, kw_only=True):
    """Tables that `envdoctor update` installed."""

    version: str  # 2026.12.01
    format: int
    key: str  # the id of the key of the signature


class Pointer(Record, frozen=True):
    """current.json; without `current` the bundled tables are used."""

    current: Installed | None = None
    previous: Installed | None = None


def knowledge_directory() -> Path:
    """The directory of all installed tables."""
    return data_directory() / "knowledge"


def read_pointer() -> Pointer:
    """Which tables are installed; none if the file is missing, damaged or another user's."""
    try:
        path = knowledge_directory() / "current.json"
        return msgspec.json.decode(read_file(path), type=Pointer) if _is_private(path) else Pointer()
    except (OSError, RuntimeError, msgspec.DecodeError):  # RuntimeError: a user without a home directory
        return Pointer()


def tables_folder() -> Path:
    """The folder that all tables are read from."""
    chosen = os.environ.get(VARIABLE, "")
    if chosen:
        return BUNDLED if chosen == "bundled" else Path(chosen)
    current = read_pointer().current
    if not current or current.format != FORMAT or not VERSION.fullmatch(current.version):
        return BUNDLED
    folder = knowledge_directory() / current.version
    is_usable = _is_private(folder) and current.version > version_of(bundled_date())
    return folder if is_usable else BUNDLED


def version_of(date: str) -> str:
    """The version of tables of a date: 2026-12-01 gives 2026.12.01."""
    return date.replace("-", ".")


def date_of(version: str) -> str:
    """The date of a version; empty for another text."""
    return version[:10].replace(".", "-") if VERSION.fullmatch(version) else ""


def bundled_date() -> str:
    """The date of the bundled tables."""
    return newest_date(BUNDLED)


def newest_date(folder: Path) -> str:
    """The newest date of a row of the tables of a folder."""
    dates = [date for path in folder.glob("*.toml") for date in ROW_DATE.findall(path.read_bytes())]
    return max(dates, default=b"").decode()


def _is_private(path: Path) -> bool:
    """Whether this user owns a file or folder that is no link, and nobody else can write it."""
    try:
        status = path.lstat()
    except OSError:
        return False
    writable = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return status.st_uid == os.geteuid() and not stat.S_ISLNK(status.st_mode) and not writable
