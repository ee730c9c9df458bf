"""Stored verification and benchmark results of an environment: their location, and whether they are out of date."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from envdoctor.core.directories import state_directory
from envdoctor.core.errors import BadInput, EnvdoctorError
from envdoctor.core.files import LISTING_BYTES, read_file
from envdoctor.core.record import Record
from envdoctor.core.records import Verification
from envdoctor.core.shell_commands import shell_command
from envdoctor.environment.managed import VERIFICATION, read_install_record

if TYPE_CHECKING:
    from envdoctor.verify.bench_records import BenchmarkReport

VERIFICATION_SCHEMA = 1
BENCH_SCHEMA = 1

StoredRecord = TypeVar("StoredRecord", bound=Record)


def verification_path(interpreter: Path) -> Path:
    """The file of an interpreter's verification: inside a managed environment, otherwise in the state directory."""
    venv = interpreter.parent.parent
    if read_install_record(venv):
        return venv / VERIFICATION
    import hashlib  # loads OpenSSL

    if (venv / "pyvenv.cfg").exists():
        interpreter = venv / "bin/python"  # bin/python3 is the same interpreter
    name = hashlib.sha256(str(interpreter).encode()).hexdigest()[:16]
    return state_directory() / "verifications" / f"{name}.json"


def bench_path(interpreter: Path) -> Path:
    """The file of an interpreter's benchmark, next to its verification."""
    return verification_path(interpreter).with_suffix(".bench.json")


def write_record(path: Path, record: Record) -> None:
    """Write a record as JSON, atomically."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")
        temporary.replace(path)
    except OSError as error:
        raise EnvdoctorError(
            f"cannot write {path}: {error.strerror}",
            expected="a writable directory",
            hint=shell_command("ls -ld {}", path.parent),
        ) from error


def read_verification(path: Path) -> Verification:
    """Read a stored verification."""
    return _read(path, Verification, VERIFICATION_SCHEMA, "verification", "envdoctor verify")


def read_bench(path: Path) -> BenchmarkReport:
    """Read a stored benchmark."""
    from envdoctor.verify.bench_records import BenchmarkReport

    return _read(path, BenchmarkReport, BENCH_SCHEMA, "benchmark", "envdoctor bench")


def _read(path: Path, record_type: type[StoredRecord], newest_schema: int, name: str, command: str) -> StoredRecord:
    try:
        data = read_file(path, LISTING_BYTES)
        schema = msgspec.json.decode(data).get("schema")
        if schema != newest_schema:
            raise BadInput(f"{path} has schema {schema}", expected=f"schema {newest_schema}", hint=command)
        return msgspec.json.decode(data, type=record_type)
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}", expected=f"a {name}", hint=command) from error
    except (msgspec.MsgspecError, AttributeError, UnicodeDecodeError) as error:
        raise BadInput(
            f"{path} is not a {name}: {error}", expected=f"a file written by {command}", hint=command
        ) from error


def stale_reason(result: Verification | BenchmarkReport, driver: str, gpus: Sequence[str], lock: str) -> str:
    """How this machine or environment differs from that of a stored result; empty if it does not."""
    pairs = (
        ("driver", result.driver, driver),
        ("GPUs", ", ".join(result.gpus), ", ".join(gpus)),
        ("lock", result.lock, lock),
    )
    changes = (f"{name}: was {old or 'none'}, is {new or 'none'}" for name, old, new in pairs if old != new)
    return "; ".join(changes)
