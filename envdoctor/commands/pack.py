"""A run as one zip to hand on: what it left, a manifest with checksums, no optimizer state, no secrets."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from envdoctor import __version__
from envdoctor.core.errors import EXIT_NO, EXIT_OK, BadInput, EnvdoctorError, Refused, write_error
from envdoctor.core.paths import exists, is_file, is_folder, is_link
from envdoctor.core.records import Record
from envdoctor.core.results import CommandResult
from envdoctor.redact.run_files import RunFileRedactor
from envdoctor.training.runs.directory import find_run, read_run_json
from envdoctor.training.runs.events import EVENTS_FILE, EventReader
from envdoctor.training.runs.lock import LOCK_FILE, is_local, read_trainer_status
from envdoctor.training.runs.state import RunReducer

MANIFEST = "manifest.json"
CHUNK = 1 << 20
ZIP64_FROM = 1 << 30  # a scrubbed file may differ a little from its size on disk, so not at the limit of 4 GiB itself
EPOCH = (1980, 1, 1, 0, 0, 0)  # the same run gives the same zip
MOST_MANIFEST = 64 << 20  # bytes
# Compressing weights takes minutes and saves a tenth at best.
STORED = (".safetensors", ".bin", ".pt", ".pth", ".png", ".gz", ".zip", ".parquet")
CHECKPOINTS = "checkpoints"
LEFT_OUT = (LOCK_FILE, MANIFEST)
# What the Trainer, FSDP and DeepSpeed call what only a resumed run needs.
OPTIMIZER = ("optimizer", "scheduler", "rng_state", "scaler", "zero_pp_rank", "bf16_zero", "global_step", "mp_rank")
HINT = "envdoctor pack RUN --output FILE.zip"


class PackedFile(Record, frozen=True):
    """A file of the zip."""

    path: str
    size: int
    sha256: str
    secrets_removed: int = 0


class Manifest(Record, frozen=True, kw_only=True):
    """What the zip says of itself: the run, and each file."""

    schema: int = 1
    envdoctor: str
    run: str
    recipe: str
    created: str
    ending: str  # done, failed, interrupted, or empty: it was still going on
    step: int
    steps: int
    versions: dict[str, str]
    before: dict[str, float]
    after: dict[str, float]
    settings: dict[str, Any]
    left_out: dict[str, int]  # reason: files
    files: tuple[PackedFile, ...]


class Packed(Record, frozen=True):
    """The zip that was made."""

    path: str
    size: int
    manifest: Manifest


class PackChecked(Record, frozen=True):
    """A zip held against its manifest."""

    path: str
    files: int
    size: int
    faults: tuple[str, ...]
    manifest: Manifest | None = None


class PackRequest(Record, frozen=True):
    """What `pack` was asked for."""

    run: str = ""
    output: str = ""
    with_optimizer: bool = False
    with_checkpoints: bool = False
    force: bool = False


def run(request: PackRequest) -> CommandResult:
    """Write the zip, whole or not at all."""
    folder = find_run(request.run)
    _refuse_a_trained_run(folder, force=request.force)
    target = _target(request.output, folder)
    checkpoints = request.with_checkpoints or request.with_optimizer
    chosen, left_out = choose_files(folder, checkpoints=checkpoints, optimizer=request.with_optimizer)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        part.touch(exist_ok=False)
    except OSError as error:
        raise write_error(target, error, expected="a file in a folder of yours", hint=HINT) from error
    try:
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
            secrets = RunFileRedactor()
            files = tuple(_add(archive, folder / name, name, secrets) for name in chosen)
            manifest = _manifest(folder, files, left_out, secrets)
            _add_bytes(archive, MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")
        part.replace(target)
    except OSError as error:
        file = f" ({error.filename})" if error.filename else ""
        raise EnvdoctorError(
            f"cannot pack {folder} into {target}: {error.strerror or error}{file}",
            expected="files to read, and room to write",
            hint=HINT,
        ) from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink()
    return CommandResult(Packed(str(target), target.stat().st_size, manifest))


def _target(output: str, run: Path) -> Path:
    """Where the zip goes: it takes the place of an earlier zip of a run, and of nothing else."""
    target = Path(output).absolute() if output else run.with_name(f"{run.name}.zip")
    problem = ""
    if is_folder(target):
        problem = "is a folder"
    elif target.is_relative_to(run):
        problem = "lies in the run"
    elif not is_folder(target.parent):
        problem = f"cannot be made: {target.parent} is no folder"
    elif (exists(target) or is_link(target)) and not _is_pack(target):
        problem = "is there, and no zip of a run"
    if problem:
        expected = "a new file outside of the run's folder, or an earlier zip of a run"
        raise BadInput(f"--output {target} {problem}", expected=expected, hint=HINT)
    return target


def _is_pack(path: Path) -> bool:
    """Whether a file is the zip of a run."""
    with contextlib.suppress(OSError, zipfile.BadZipFile):
        if is_file(path):
            with zipfile.ZipFile(path) as archive:
                return MANIFEST in archive.namelist()
    return False


def _refuse_a_trained_run(folder: Path, *, force: bool) -> None:
    """A model that is being saved, or a table in the middle of a row, is not what anyone wants to hand on."""
    trainer, process = read_trainer_status(folder, local=is_local(folder))
    if trainer == "running" and not force:
        raise Refused(
            f"{folder} is being trained by process {process or 'unknown'}",
            expected="a run that has ended: files may be half written",
            hint=f"envdoctor watch {folder}, or pack what is there: envdoctor pack {folder} --force",
        )


def choose_files(folder: Path, *, checkpoints: bool, optimizer: bool) -> tuple[list[str], dict[str, int]]:
    """The files to pack, as paths below the run, and how many are left out for which reason."""
    chosen, left_out = [], dict.fromkeys(("checkpoints", "optimizer state", "unfinished or temporary"), 0)
    for name in sorted(_walk(folder)):
        parts = PurePosixPath(name).parts
        if parts[-1].endswith(".part") or name in LEFT_OUT:
            left_out["unfinished or temporary"] += name not in LEFT_OUT
        elif parts[0] == CHECKPOINTS and not checkpoints:
            left_out["checkpoints"] += 1
        elif not optimizer and any(part.startswith(OPTIMIZER) for part in parts):
            left_out["optimizer state"] += 1
        else:
            chosen.append(name)
    return chosen, {reason: count for reason, count in left_out.items() if count}


def _walk(folder: Path) -> Iterator[str]:
    """Regular files below a folder. A link to a file in the run counts as one; one that leaves it is refused."""
    inside = folder.resolve()
    for root, folders, files in os.walk(folder):
        for name in [*files, *(name for name in folders if (Path(root) / name).is_symlink())]:
            path = Path(root) / name
            if path.is_symlink() and not path.resolve().is_relative_to(inside):
                raise Refused(
                    f"{path} is a link to {path.readlink()}, outside of the run",
                    expected="files of the run alone",
                    hint=f"replace the link by the file, or remove it: rm {path}",
                )
            if not name.isprintable():  # nor what is no UTF-8: no zip can name it
                raise Refused(
                    f"the name {str(path)!a} has letters that no zip can hold",
                    expected="printable names in UTF-8",
                    hint="rename the file",
                )
            if path.is_file():
                yield path.relative_to(folder).as_posix()


def _add(archive: zipfile.ZipFile, path: Path, name: str, secrets: RunFileRedactor) -> PackedFile:
    """One file, in pieces: a model need not fit into memory."""
    size = path.stat().st_size
    digest, written, before = hashlib.sha256(), 0, secrets.removed
    with path.open("rb") as source, archive.open(_info(name), "w", force_zip64=size > ZIP64_FROM) as target:
        for piece in secrets.redact_file(name, source):
            digest.update(piece)
            target.write(piece)
            written += len(piece)
    return PackedFile(name, written, digest.hexdigest(), secrets.removed - before)


def _add_bytes(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    with archive.open(_info(name), "w") as target:
        target.write(data)


def _info(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, EPOCH)
    info.compress_type = zipfile.ZIP_STORED if name.endswith(STORED) else zipfile.ZIP_DEFLATED
    info.create_system = 3  # Unix, wherever it is made
    info.external_attr = (stat.S_IFREG | 0o644) << 16
    return info


def _manifest(
    folder: Path, files: tuple[PackedFile, ...], left_out: dict[str, int], secrets: RunFileRedactor
) -> Manifest:
    configuration = secrets.data(read_run_json(folder))
    reducer = RunReducer()
    reducer.apply_all(EventReader(folder / EVENTS_FILE).read_new())
    state = reducer.state()
    result = secrets.data(_read_object(folder / "result.json") or state.result)
    return Manifest(
        envdoctor=__version__,
        run=folder.name,
        recipe=str(configuration.get("recipe", "")),
        created=str(configuration.get("created", "")),
        ending=state.ending,
        step=state.step,
        steps=state.steps,
        versions={str(name): str(version) for name, version in _object(result.get("versions")).items()},
        before=_numbers(result.get("before")),
        after=_numbers(result.get("after")),
        settings=_object(configuration.get("settings")),
        left_out=left_out,
        files=files,
    )


def check_pack(file: str) -> CommandResult:
    """Hold every file of a zip against the manifest in it."""
    path = Path(file).absolute()
    expected = "a zip made by envdoctor pack"
    try:
        if path.exists() and not path.is_file():  # a pipe or a device may have no end
            raise BadInput(f"{path} is no regular file", expected=expected, hint="envdoctor pack RUN")
        with zipfile.ZipFile(path) as archive:
            manifest = _read_manifest(archive)
            faults = tuple(_faults(archive, manifest))
    except (OSError, zipfile.BadZipFile, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadInput(f"cannot read {path}: {reason}", expected=expected, hint="envdoctor pack RUN") from error
    except (KeyError, ValueError, msgspec.ValidationError) as error:
        raise BadInput(f"{path}: {MANIFEST}: {error}", expected=expected, hint="envdoctor pack RUN") from error
    checked = PackChecked(str(path), len(manifest.files), sum(each.size for each in manifest.files), faults, manifest)
    return CommandResult(checked, EXIT_NO if faults else EXIT_OK)


def _read_manifest(archive: zipfile.ZipFile) -> Manifest:
    info = archive.getinfo(MANIFEST)
    if info.file_size > MOST_MANIFEST:
        raise ValueError(f"it has {info.file_size} bytes")
    return msgspec.json.decode(archive.read(info), type=Manifest)


def _faults(archive: zipfile.ZipFile, manifest: Manifest) -> Iterator[str]:
    """What is missing, too much, or not as it was."""
    held = [info.filename for info in archive.infolist()]
    listed = {each.path: each for each in manifest.files}
    for name in sorted({name for name in held if held.count(name) > 1}):
        yield f"{name}: it is there more than once"
    for name in held:
        if name != MANIFEST and name not in listed:
            yield f"{name}: the manifest does not list it"
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            yield f"{name}: it would be unpacked outside of its folder"
    for name, each in listed.items():
        if name not in held:
            yield f"{name}: it is missing"
        elif fault := _fault(archive, each):
            yield f"{name}: {fault}"


def _fault(archive: zipfile.ZipFile, each: PackedFile) -> str:
    digest, size = hashlib.sha256(), 0
    try:
        with archive.open(each.path) as file:
            while size <= each.size and (piece := file.read(CHUNK)):
                digest.update(piece)
                size += len(piece)
    except (zipfile.BadZipFile, OSError, EOFError, ValueError, RuntimeError) as error:
        return f"it cannot be read: {error}"
    except Exception as error:  # zlib.error, lzma's: whatever a damaged stream raises
        return f"it cannot be read: {type(error).__name__}: {error}"
    if size > each.size:
        return f"it has more than {each.size} bytes"
    if size < each.size:
        return f"it has {size} bytes, not {each.size}"
    return "" if digest.hexdigest() == each.sha256 else "its checksum is not the one of the manifest"


def _read_object(path: Path) -> dict[str, Any]:
    try:
        return _object(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError):
        return {}


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _numbers(value: object) -> dict[str, float]:
    return {str(name): float(each) for name, each in _object(value).items() if isinstance(each, int | float)}
