"""Installs tables and goes back to those before. Each step leaves either the old tables or the new ones."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import msgspec

from envdoctor.core.errors import EnvdoctorError, Refused
from envdoctor.core.processes import run
from envdoctor.knowledge.installed import VARIABLE, Installed, Pointer, knowledge_directory, read_pointer
from envdoctor.knowledge_update.package import MANIFEST, KnowledgePackage

TRIAL_SECONDS = 120
TRIALS = (("rules", "--format", "json"), ("explain", "--format", "json", "CUDA out of memory"))


def install(package: KnowledgePackage) -> Pointer:
    """Write the tables, try them, and select them. Raises EnvdoctorError if this envdoctor cannot use them."""
    directory = knowledge_directory()
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    version = package.manifest.version
    staging = Path(tempfile.mkdtemp(prefix=f".{version}-", dir=directory))
    try:
        for name, content in package.tables.items():
            (staging / name).parent.mkdir(exist_ok=True)
            (staging / name).write_bytes(content)
        (staging / MANIFEST).write_bytes(package.manifest_json)
        _try(staging, version)
        _replace_folder(staging, directory / version)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    installed = Installed(version=version, format=package.manifest.format, key=package.key.id)
    before = read_pointer()
    previous = before.current if before.current and before.current.version != version else before.previous
    return _select(Pointer(installed, previous))


def roll_back() -> Pointer:
    """Select the tables before the current ones; without any, the bundled ones."""
    pointer = read_pointer()
    if not pointer.current:
        raise Refused(
            "no update is installed: the tables of this installation are used",
            expected="tables that `envdoctor update` installed",
            hint="envdoctor update --help",
        )
    return _select(Pointer(pointer.previous, None))


def _select(pointer: Pointer) -> Pointer:
    """Write current.json in one step, then remove tables that it does not name."""
    directory = knowledge_directory()
    descriptor, name = tempfile.mkstemp(prefix=".current-", dir=directory)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(pointer))
        file.flush()
        os.fsync(file.fileno())
    Path(name).replace(directory / "current.json")
    kept = {installed.version for installed in (pointer.current, pointer.previous) if installed}
    for folder in directory.iterdir():
        if folder.is_dir() and not folder.is_symlink() and folder.name not in kept:
            shutil.rmtree(folder, ignore_errors=True)
    return pointer


def _replace_folder(staging: Path, target: Path) -> None:
    """The same version again: a parallel update, or a damaged folder."""
    if target.exists():
        target.rename(staging.with_name(f"{staging.name}.old"))
    staging.rename(target)


def _try(folder: Path, version: str) -> None:
    """Whether this envdoctor can read the tables: its commands run with them in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="envdoctor-") as temporary:  # a failed trial writes a log into TMPDIR
        for arguments in TRIALS:
            tried = run(
                [sys.executable, "-m", "envdoctor", *arguments],
                env={VARIABLE: str(folder), "TMPDIR": temporary},
                timeout=TRIAL_SECONDS,
            )
            if tried.timed_out or tried.returncode not in (0, 1):
                raise EnvdoctorError(
                    f"envdoctor cannot read the tables {version}: `{arguments[0]}` {tried.ending}",
                    expected="tables for this version of envdoctor",
                    hint="install the newest envdoctor, then run the command again; nothing was changed",
                )
