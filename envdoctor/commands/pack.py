"""`envdoctor pack`: pack a run into a zip with a manifest of checksums, without secrets and optimizer state."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import msgspec

from envdoctor import __version__
from envdoctor.core.command_line import command_line
from envdoctor.core.errors import BadInput, EnvdoctorError, Refused, write_error
from envdoctor.core.options import Option, RunArgument
from envdoctor.core.paths import exists, is_file, is_folder, is_link, resolve_links
from envdoctor.core.printable import single_lines
from envdoctor.core.record import Record
from envdoctor.core.results import CommandResult
from envdoctor.redact.run_files import BINARY, RunFileRedactor
from envdoctor.training.runs.directory import find_run, read_run_json, require_readable_run
from envdoctor.training.runs.events import EVENTS_FILE, EventReader
from envdoctor.training.runs.lock import LOCK_FILE, is_local, read_trainer_status
from envdoctor.training.runs.state import RunReducer
from envdoctor.training.start import read_result

MANIFEST = "manifest.json"
CHUNK = 1 << 20
ZIP64_FROM = 1 << 30  # well below the limit of 4 GiB: redaction may change a file's size
EPOCH = (1980, 1, 1, 0, 0, 0)  # fixed, so that packing a run is reproducible
CHECKPOINTS = "checkpoints"
EXCLUDED = (LOCK_FILE, MANIFEST)
# Prefixes of files of the Trainer, FSDP and DeepSpeed that only a resumed run needs.
OPTIMIZER = ("optimizer", "scheduler", "rng_state", "scaler", "zero_pp_rank", "bf16_zero", "global_step", "mp_rank")
HINT = "envdoctor pack RUN --output FILE.zip"


class PackedFile(Record, frozen=True):
    """A file of the zip."""

    path: str
    size: int
    sha256: str
    secrets_removed: int = 0


class Manifest(Record, frozen=True, kw_only=True):
    """The manifest of the zip: the run and each file."""

    schema: int = 1
    envdoctor: str
    run: str
    recipe: str
    created: str
    ending: str  # done, failed, interrupted, or empty: still running
    step: int
    steps: int
    versions: dict[str, str]
    before: dict[str, float]
    after: dict[str, float]
    settings: dict[str, Any]
    left_out: dict[str, int]  # number of files by reason
    files: tuple[PackedFile, ...]


class PackResult(Record, frozen=True):
    """The created zip."""

    path: str
    size: int
    manifest: Manifest


class PackRequest(Record, frozen=True, kw_only=True):
    """The zip contains model, metrics, log and settings, with checksums and without secrets.

    Example: envdoctor pack runs/sort-20261121-153013 --output sort.zip
    """

    run: RunArgument = ""
    output: Annotated[str, Option("--output", "The zip file; default: RUN.zip next to the run.", "FILE", "-o")] = ""
    with_optimizer: Annotated[
        bool, Option("--with-optimizer", "Include checkpoints with everything needed to resume.")
    ] = False
    with_checkpoints: Annotated[bool, Option("--with-checkpoints", "Include the weights of the checkpoints.")] = False
    force: Annotated[bool, Option("--force", "Pack the run even while it is being trained.")] = False


def run(request: PackRequest) -> CommandResult:
    """Write the zip. An error leaves no file."""
    folder = find_run(request.run)
    require_readable_run(folder)
    _require_no_trainer(folder, force=request.force)
    target = _target(request.output, folder)
    checkpoints = request.with_checkpoints or request.with_optimizer
    chosen, left_out = choose_files(folder, checkpoints=checkpoints, optimizer=request.with_optimizer)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        part.touch(exist_ok=False)
    except OSError as error:
        raise write_error(target, error, expected="a file in a writable directory", hint=HINT) from error
    try:
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
            redactor = RunFileRedactor()
            files = tuple(_add(archive, folder / name, name, redactor) for name in chosen)
            manifest = _manifest(folder, files, left_out, redactor)
            _add_bytes(archive, MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")
        part.replace(target)
    except OSError as error:
        file = f" ({error.filename})" if error.filename else ""
        raise EnvdoctorError(
            f"cannot pack {folder} into {target}: {error.strerror or error}{file}",
            expected="readable files and free space",
            hint=HINT,
        ) from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink()
    return CommandResult(PackResult(str(target), target.stat().st_size, manifest))


def _target(output: str, run: Path) -> Path:
    """Return the path of the zip. It may replace an earlier zip of a run, but no other file."""
    target = Path(output).absolute() if output else run.with_name(f"{run.name}.zip")
    problem = ""
    if is_folder(target):
        problem = "is a directory"
    elif target.is_relative_to(run):
        problem = "is inside the run"
    elif not is_folder(target.parent):
        problem = f"cannot be created: {target.parent} is not a directory"
    elif (exists(target) or is_link(target)) and not _is_pack(target):
        problem = "exists and is not a zip of a run"
    if problem:
        expected = "a new file outside of the run directory, or an earlier zip of a run"
        raise BadInput(f"--output {target} {problem}", expected=expected, hint=HINT)
    return target


def _is_pack(path: Path) -> bool:
    """Whether a file is a zip of a run."""
    with contextlib.suppress(OSError, zipfile.BadZipFile):
        if is_file(path):
            with zipfile.ZipFile(path) as archive:
                return MANIFEST in archive.namelist()
    return False


def _require_no_trainer(folder: Path, *, force: bool) -> None:
    """Raise Refused while the run is trained, since its files may be incomplete."""
    trainer, process = read_trainer_status(folder, local=is_local(folder))
    if trainer == "running" and not force:
        raise Refused(
            f"{folder} is being trained by process {process or 'unknown'}",
            expected="a run that has ended, since files may be incomplete",
            hint=f"{command_line('envdoctor', 'watch', folder)}, or pack the present files: "
            + command_line("envdoctor", "pack", folder, "--force"),
        )


def choose_files(folder: Path, *, checkpoints: bool, optimizer: bool) -> tuple[list[str], dict[str, int]]:
    """Return the files to pack, relative to the run, and the number of excluded files by reason."""
    chosen, left_out = (
        [],
        dict.fromkeys(("checkpoints", "optimizer state", "unfinished or temporary", "not regular files"), 0),
    )
    for name in sorted(_walk(folder)):
        parts = PurePosixPath(name).parts
        if not is_file(folder / name):
            left_out["not regular files"] += 1
        elif parts[-1].endswith(".part") or name in EXCLUDED:
            left_out["unfinished or temporary"] += name not in EXCLUDED
        elif parts[0] == CHECKPOINTS and not checkpoints:
            left_out["checkpoints"] += 1
        elif not optimizer and any(part.startswith(OPTIMIZER) for part in parts):
            left_out["optimizer state"] += 1
        else:
            chosen.append(name)
    return chosen, {reason: count for reason, count in left_out.items() if count}


def _walk(folder: Path) -> Iterator[str]:
    """Yield the files below a directory, including symlinks inside it. A symlink out of it is an error."""
    inside = folder.resolve()
    for root, folders, files in os.walk(folder):
        for name in [*files, *(name for name in folders if (Path(root) / name).is_symlink())]:
            path = Path(root) / name
            if path.is_symlink() and not resolve_links(path).is_relative_to(inside):
                raise Refused(
                    f"{path} is a symlink to {path.readlink()}, outside of the run",
                    expected="only files of the run",
                    hint=f"replace the symlink with the file, or remove it: rm {path}",
                )
            if not name.isprintable():  # includes names that are not UTF-8
                raise Refused(
                    f"the name {str(path)!a} has characters that a zip cannot store",
                    expected="printable names in UTF-8",
                    hint="rename the file",
                )
            if not is_folder(path):
                yield path.relative_to(folder).as_posix()


def _add(archive: zipfile.ZipFile, path: Path, name: str, redactor: RunFileRedactor) -> PackedFile:
    """Add one file in chunks, since a model may not fit into memory."""
    size = path.stat().st_size
    digest, written, before = hashlib.sha256(), 0, redactor.removed
    with path.open("rb") as source, archive.open(_zip_info(name), "w", force_zip64=size > ZIP64_FROM) as target:
        for chunk in redactor.redact_file(name, source):
            digest.update(chunk)
            target.write(chunk)
            written += len(chunk)
    return PackedFile(name, written, digest.hexdigest(), redactor.removed - before)


def _add_bytes(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    with archive.open(_zip_info(name), "w") as target:
        target.write(data)


def _zip_info(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, EPOCH)
    # Compression of weights takes minutes and saves at most a tenth.
    info.compress_type = zipfile.ZIP_STORED if name.endswith(BINARY) else zipfile.ZIP_DEFLATED
    info.create_system = 3  # Unix, on every system
    info.external_attr = (stat.S_IFREG | 0o644) << 16
    return info


def _manifest(
    folder: Path, files: tuple[PackedFile, ...], left_out: dict[str, int], redactor: RunFileRedactor
) -> Manifest:
    configuration = redactor.data(read_run_json(folder))
    reducer = RunReducer()
    reducer.apply_all(EventReader(folder / EVENTS_FILE).read_new())
    state = reducer.state()
    result = redactor.data(read_result(folder) or state.result)
    return Manifest(
        envdoctor=__version__,
        run=folder.name,
        recipe=single_lines(str(configuration.get("recipe", ""))),
        created=single_lines(str(configuration.get("created", ""))),
        ending=state.ending,
        step=state.step,
        steps=state.steps,
        versions={str(name): str(text) for name, text in single_lines(_object(result.get("versions"))).items()},
        before=_numbers(result.get("before")),
        after=_numbers(result.get("after")),
        settings=_object(configuration.get("settings")),
        left_out=left_out,
        files=files,
    )


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _numbers(value: object) -> dict[str, float]:
    return {str(name): float(item) for name, item in _object(value).items() if isinstance(item, int | float)}
