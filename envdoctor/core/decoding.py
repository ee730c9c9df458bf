"""Read text and TOML files of users and convert their values to records, with errors that name file and field."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec

from envdoctor.core.errors import BadInput, closest_match, write_error
from envdoctor.core.files import (
    SMALL_FILE_BYTES,
    UnsuitableFile,
    decode_text,
    is_stream,
    open_file,
    open_pipe,
    read_file,
    write_stream,
    write_whole,
)
from envdoctor.core.patterns import lazy_pattern

R = TypeVar("R", bound=msgspec.Struct)

MAX_FILE_BYTES = SMALL_FILE_BYTES
MAX_LINE_LENGTH, MAX_LINE_DOTS = 8000, 100  # tomllib takes quadratic time for a dotted key
QUOTED = lazy_pattern(r"\"[^\"]*\"|'[^']*'")


def read_text(
    path: Path, *, expected: str, hint: str, inside: Path | None = None, max_bytes: int = MAX_FILE_BYTES
) -> str:
    """The text of a regular file that the user named. `inside`: the folder in which it must lie."""
    try:
        return decode_text(read_file(path, max_bytes, inside=inside))
    except UnsuitableFile as error:
        limit = f"below {max_bytes >> 20} MiB"
        raise BadInput(f"{path} is {error.strerror}", expected=f"{expected}, {limit}", hint=hint) from error
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}", expected=expected, hint=hint) from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not UTF-8 text (byte {error.start})", expected=expected, hint=hint) from error


def open_input(path: Path, *, expected: str, hint: str, pipes: bool = True) -> BinaryIO:
    """Open a file, or a pipe that the user named. Raises BadInput for others: reading /dev/zero never ends."""
    try:
        mode = path.stat().st_mode
        if pipes and stat.S_ISFIFO(mode):
            return open_pipe(path)
        if pipes and stat.S_ISCHR(mode) and path.samefile("/dev/tty"):
            return path.open("rb")
        return open_file(path)
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}", expected=expected, hint=hint) from error


def write_file(path: Path, text: str, *, hint: str, replace: bool = False, mode: int | None = None) -> None:
    """Write a file that the user named: a new one, or with `replace` in place of another; never through a link.

    `mode`: its permissions; by default those of the umask.
    """
    data = text.encode("utf-8", "replace")
    try:
        if is_stream(path):
            write_stream(path, data)
        else:
            write_whole(path, data, replace=replace, mode=mode)
    except FileExistsError as error:
        kind = "is a link" if path.is_symlink() else "exists"
        raise BadInput(
            f"{path} {kind}", expected="the name of a new file, or --force to replace this one", hint=hint
        ) from error
    except OSError as error:
        raise write_error(path, error, expected="a file in a writable directory", hint=hint) from error


def require_new(paths: Iterable[Path], *, hint: str) -> None:
    """Raise BadInput if one of several files exists, before the first of them is written."""
    for path in paths:
        if os.path.lexists(path):
            raise BadInput(
                f"{path} exists", expected="a directory without this file, or --force to replace it", hint=hint
            )


def decode_toml(path: Path, *, expected: str, hint: str) -> dict[str, Any]:
    """Read a TOML file as plain values."""
    return parse_toml(read_text(path, expected=expected, hint=hint), source=str(path), expected=expected, hint=hint)


def parse_toml(text: str, *, source: str, expected: str, hint: str) -> dict[str, Any]:
    """Parse TOML. Lines that would take tomllib very long are rejected."""
    import tomllib

    for number, line in enumerate(text.split("\n"), start=1):
        dots = line.count(".")
        if dots > MAX_LINE_DOTS and len(line) <= MAX_LINE_LENGTH:  # those of strings do not count
            dots = QUOTED.sub("", line).count(".")
        if len(line) > MAX_LINE_LENGTH or dots > MAX_LINE_DOTS:
            raise BadInput(
                f"{source}, line {number}: a line of {len(line)} characters and {dots} dots",
                expected=f"at most {MAX_LINE_LENGTH} characters and {MAX_LINE_DOTS} dots",
                hint=hint,
            )
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: TOMLDecodeError, or an int of 5,000 digits
        raise BadInput(f"{source} is not TOML: {ascii(str(error))[1:-1]}", expected=expected, hint=hint) from error


def convert(data: object, kind: type[R], *, source: str, expected: str, hint: str) -> R:
    """Convert plain values to a record. The error names the invalid field and the closest known field."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        message = str(error)
        raise BadInput(f"{source}: {message}", expected=_expected(message, kind) or expected, hint=hint) from error


def _expected(message: str, kind: type[msgspec.Struct]) -> str:
    """For an unknown field: the known fields of that record, the closest first."""
    found = re.search(r"unknown field `([^`]+)`", message)
    if not found:
        return ""
    place = re.search(r"at `\$\.?([^`]*)`", message)
    names = _field_names(kind, re.sub(r"\[[^\]]*\]", "", place[1]) if place else "")
    close = closest_match(found[1], names)
    return (f"'{close}', or " if close else "") + "one of: " + ", ".join(names)


def _field_names(kind: type[msgspec.Struct], place: str) -> list[str]:
    """The field names of the record at a dotted path below `kind`."""
    info = msgspec.inspect.type_info(kind)
    for part in filter(None, place.split(".")):
        info = _record_type(next(f.type for f in info.fields if f.encode_name == part))  # type: ignore[attr-defined]
    return [field.encode_name for field in info.fields]  # type: ignore[attr-defined]


def _record_type(info: msgspec.inspect.Type) -> msgspec.inspect.Type:
    """The record type inside an optional, a tuple, a list or a dict."""
    if isinstance(info, msgspec.inspect.UnionType):
        return _record_type(next(t for t in info.types if not isinstance(t, msgspec.inspect.NoneType)))
    if isinstance(info, msgspec.inspect.VarTupleType | msgspec.inspect.ListType):
        return _record_type(info.item_type)
    if isinstance(info, msgspec.inspect.DictType):
        return _record_type(info.value_type)
    return info
