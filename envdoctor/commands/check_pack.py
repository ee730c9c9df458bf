"""`envdoctor check-pack`: compare a zip of `envdoctor pack` with its manifest."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Annotated

import msgspec

from envdoctor.commands.pack import CHUNK, MANIFEST, Manifest, PackedFile
from envdoctor.core.errors import EXIT_NO, EXIT_OK, BadInput
from envdoctor.core.options import Argument
from envdoctor.core.record import Record
from envdoctor.core.results import CommandResult

MAX_MANIFEST = 64 << 20  # bytes


class PackCheckResult(Record, frozen=True):
    """The comparison of a zip with its manifest."""

    path: str
    files: int
    size: int
    faults: tuple[str, ...]
    manifest: Manifest | None = None


class CheckPackRequest(Record, frozen=True):
    """Reads every file of the zip and compares its checksum with the manifest. Nothing is unpacked.

    Example: envdoctor check-pack sort.zip
    """

    file: Annotated[str, Argument("A zip file that `envdoctor pack` wrote.", "FILE")]


def run(request: CheckPackRequest) -> CommandResult:
    """Compare every file of a zip with its manifest."""
    path = Path(request.file).absolute()
    expected = "a zip made by envdoctor pack"
    try:
        if path.exists() and not path.is_file():  # a pipe or a device may have no end
            raise BadInput(f"{path} is not a regular file", expected=expected, hint="envdoctor pack RUN")
        with zipfile.ZipFile(path) as archive:
            manifest = _read_manifest(archive)
            faults = tuple(_faults(archive, manifest))
    except (OSError, zipfile.BadZipFile, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInput(f"cannot read {path}: {reason}", expected=expected, hint="envdoctor pack RUN") from error
    except (KeyError, ValueError, msgspec.ValidationError) as error:
        raise BadInput(f"{path}: {MANIFEST}: {error}", expected=expected, hint="envdoctor pack RUN") from error
    checked = PackCheckResult(
        str(path), len(manifest.files), sum(file.size for file in manifest.files), faults, manifest
    )
    return CommandResult(checked, EXIT_NO if faults else EXIT_OK)


def _read_manifest(archive: zipfile.ZipFile) -> Manifest:
    info = archive.getinfo(MANIFEST)
    if info.file_size > MAX_MANIFEST:
        raise ValueError(f"it has {info.file_size} bytes")
    return msgspec.json.decode(archive.read(info), type=Manifest)


def _faults(archive: zipfile.ZipFile, manifest: Manifest) -> Iterator[str]:
    """Yield files that are missing, unexpected or changed."""
    members = [info.filename for info in archive.infolist()]
    listed = {file.path: file for file in manifest.files}
    for name in sorted({name for name in members if members.count(name) > 1}):
        yield f"{name}: it occurs more than once"
    for name in members:
        if name != MANIFEST and name not in listed:
            yield f"{name}: the manifest does not list it"
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            yield f"{name}: it would be unpacked outside of its directory"
    for name, file in listed.items():
        if name not in members:
            yield f"{name}: it is missing"
        elif fault := _file_fault(archive, file):
            yield f"{name}: {fault}"


def _file_fault(archive: zipfile.ZipFile, packed: PackedFile) -> str:
    digest, size = hashlib.sha256(), 0
    try:
        with archive.open(packed.path) as file:
            while size <= packed.size and (chunk := file.read(CHUNK)):
                digest.update(chunk)
                size += len(chunk)
    except (zipfile.BadZipFile, OSError, EOFError, ValueError, RuntimeError) as error:
        return f"it cannot be read: {error}"
    except Exception as error:  # zlib.error, lzma.LZMAError and others for damaged data
        return f"it cannot be read: {type(error).__name__}: {error}"
    if size > packed.size:
        return f"it has more than {packed.size} bytes"
    if size < packed.size:
        return f"it has {size} bytes, not {packed.size}"
    return "" if digest.hexdigest() == packed.sha256 else "its checksum differs from the manifest"
