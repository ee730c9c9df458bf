"""Reading records from files that people write: TOML and JSON into frozen structs, with errors that help."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec

from envdoctor.core.errors import BadInput, cannot_write, nearest
from envdoctor.core.paths import exists, is_file

R = TypeVar("R", bound=msgspec.Struct)

FILE_BYTES = 4 << 20  # no profile, recipe or machine file comes near this; a larger one is not one
LINE_LENGTH, LINE_DOTS = 8000, 100  # tomllib's time grows with the square of a dotted key: 60,000 parts took 59 s


def read_text(path: Path, *, what: str, hint: str) -> str:
    """The text of a small file that the user named."""
    try:
        if path.stat().st_size > FILE_BYTES:
            raise BadInput(f"{path} has {path.stat().st_size} bytes", expected=f"{what} below 4 MiB", hint=hint)
        return path.read_text(encoding="utf-8-sig")  # Windows' editors put a mark of three bytes in front
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}", expected=what, hint=hint) from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not UTF-8 text (byte {error.start})", expected=what, hint=hint) from error


def open_input(path: Path, *, expected: str, hint: str) -> BinaryIO:
    """Open a file that the user named; raises BadInput if it cannot be opened."""
    try:
        return path.open("rb")
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}", expected=expected, hint=hint) from error


def write_file(path: Path, text: str, *, hint: str) -> None:
    """A file that the user named."""
    try:
        path.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise cannot_write(path, error, expected="a file in a folder of yours", hint=hint) from error


def decode_toml(path: Path, *, what: str, hint: str) -> dict[str, Any]:
    """A TOML file as plain values."""
    return parse_toml(read_toml_text(path, what=what, hint=hint), where=str(path), what=what, hint=hint)


def read_toml_text(path: Path, *, what: str, hint: str) -> str:
    """The text of a TOML file; a pipe or device is refused, since it may have no end."""
    if exists(path) and not is_file(path):
        raise BadInput(f"{path} is no regular file", expected=what, hint=hint)
    return read_text(path, what=what, hint=hint)


def parse_toml(text: str, *, where: str, what: str, hint: str) -> dict[str, Any]:
    """A TOML text as plain values; what would take tomllib for ever is refused with its line."""
    import tomllib

    for number, line in enumerate(text.split("\n"), start=1):
        if len(line) > LINE_LENGTH or line.count(".") > LINE_DOTS:
            raise BadInput(
                f"{where}, line {number}: a line of {len(line)} characters and {line.count('.')} dots",
                expected=f"at most {LINE_LENGTH} characters and {LINE_DOTS} dots",
                hint=hint,
            )
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: TOMLDecodeError is one, and an int of 5,000 digits
        raise BadInput(f"{where} is not TOML: {ascii(str(error))[1:-1]}", expected=what, hint=hint) from error


def convert(data: object, kind: type[R], *, where: str, what: str, hint: str) -> R:
    """Plain values as a record; a wrong field is named with its place and the nearest known name."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        message = str(error)
        raise BadInput(f"{where}: {message}", expected=_expected(message, kind) or what, hint=hint) from error


def _expected(message: str, kind: type[msgspec.Struct]) -> str:
    """For an unknown field, the known names at that place and the nearest of them."""
    found = re.search(r"unknown field `([^`]+)`", message)
    if not found:
        return ""
    place = re.search(r"at `\$\.?([^`]*)`", message)
    names = _field_names(kind, re.sub(r"\[[^\]]*\]", "", place[1]) if place else "")
    close = nearest(found[1], names)
    return (f"'{close}', or " if close else "") + "one of: " + ", ".join(names)


def _field_names(kind: type[msgspec.Struct], place: str) -> list[str]:
    """The TOML names of the fields of the record at a dotted place below `kind`."""
    info = msgspec.inspect.type_info(kind)
    for part in filter(None, place.split(".")):
        info = _record_type(next(f.type for f in info.fields if f.encode_name == part))  # type: ignore[attr-defined]
    return [field.encode_name for field in info.fields]  # type: ignore[attr-defined]


def _record_type(info: msgspec.inspect.Type) -> msgspec.inspect.Type:
    """The record inside an optional, a tuple or a list."""
    if isinstance(info, msgspec.inspect.UnionType):
        return _record_type(next(t for t in info.types if not isinstance(t, msgspec.inspect.NoneType)))
    if isinstance(info, msgspec.inspect.VarTupleType | msgspec.inspect.ListType):
        return _record_type(info.item_type)
    if isinstance(info, msgspec.inspect.DictType):
        return _record_type(info.value_type)
    return info
