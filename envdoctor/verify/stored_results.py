"""What is kept of an environment's probes and benchmark: where it lies, and what of it no longer holds."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from envdoctor.core.directories import state_directory
from envdoctor.core.errors import BadInput, EnvdoctorError
from envdoctor.core.records import Record, Verification
from envdoctor.environment.managed import VERIFICATION, read_install_record

if TYPE_CHECKING:
    from envdoctor.verify.bench_records import BenchmarkReport

VERIFICATION_SCHEMA = 1
BENCH_SCHEMA = 1

Kept = TypeVar("Kept", bound=Record)


def verification_path(interpreter: Path) -> Path:
    """Where an interpreter's verification is kept: inside an environment of ours, else in our state folder."""
    venv = interpreter.parent.parent
    if read_install_record(venv):
        return venv / VERIFICATION
    if (venv / "pyvenv.cfg").exists():
        interpreter = venv / "bin/python"  # its bin/python3 is the same
    name = hashlib.sha256(str(interpreter).encode()).hexdigest()[:16]
    return state_directory() / "verifications" / f"{name}.json"


def bench_path(interpreter: Path) -> Path:
    """Where an interpreter's benchmark is kept: beside its verification."""
    return verification_path(interpreter).with_suffix(".bench.json")


def write_record(path: Path, record: Record) -> None:
    """Keep a record as JSON, whole or not at all."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")
        draft.replace(path)
    except OSError as error:
        raise EnvdoctorError(f"cannot write {path}: {error.strerror}", expected="a writable folder") from error


def read_verification(path: Path) -> Verification:
    """Read a verification that was kept."""
    return _read(path, Verification, VERIFICATION_SCHEMA, "verification", "envdoctor verify")


def read_bench(path: Path) -> BenchmarkReport:
    """Read a benchmark that was kept."""
    from envdoctor.verify.bench_records import BenchmarkReport

    return _read(path, BenchmarkReport, BENCH_SCHEMA, "benchmark", "envdoctor verify --bench")


def _read(path: Path, kind: type[Kept], newest: int, what: str, command: str) -> Kept:
    try:
        data = path.read_bytes()
        schema = msgspec.json.decode(data).get("schema")
        if schema != newest:
            raise BadInput(f"{path} has schema {schema}", expected=f"schema {newest}", hint=command)
        return msgspec.json.decode(data, type=kind)
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}", expected=f"a {what}", hint=command) from error
    except (msgspec.MsgspecError, AttributeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is no {what}: {error}", expected=f"what {command} wrote", hint=command) from error


def stale_reason(kept: Verification | BenchmarkReport, driver: str, gpus: Sequence[str], lock: str) -> str:
    """Why a result says nothing of this machine and environment any more, empty if it still holds."""
    pairs = (
        ("driver", kept.driver, driver),
        ("GPUs", ", ".join(kept.gpus), ", ".join(gpus)),
        ("lock", kept.lock, lock),
    )
    changed = (f"{what}: {then or 'none'} then, {now or 'none'} now" for what, then, now in pairs if then != now)
    return "; ".join(changed)
