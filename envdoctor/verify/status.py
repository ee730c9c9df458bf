"""Which environment is meant, and whether it is proven: by which probes, on which driver, for which lock."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from envdoctor.core.errors import BadInput, Refused
from envdoctor.core.paths import expanded
from envdoctor.core.records import Record, Verification
from envdoctor.environment.find import resolve_python_argument
from envdoctor.environment.managed import interpreter_of, read_install_record
from envdoctor.machine.driver import read_driver
from envdoctor.machine.gpu import read_nvml
from envdoctor.machine.storage import environments_directory
from envdoctor.verify.stored_results import bench_path, read_bench, read_verification, stale_reason, verification_path

__all__ = [
    "BenchmarkStatus",
    "VerificationStatus",
    "describe_benchmark",
    "describe_verification",
    "read_benchmark_status",
    "read_driver_and_gpus",
    "read_verification_status",
    "require_verified",
    "resolve_interpreter",
    "status_line",
    "verification_path",
    "verification_state",
]  # fmt: skip

FINE = ("passed", "unavailable")  # outcomes of a probe that blame nothing


class VerificationStatus(Record, frozen=True, kw_only=True):
    """The stored verification of an environment, and whether it is still valid."""

    state: Literal["passed", "failed", "stale"]
    when: str  # ISO 8601, UTC
    driver: str
    gpus: tuple[str, ...]
    lock: str
    changed: str = ""  # for a stale result: the difference
    passed: int = 0  # probes
    failed: tuple[str, ...] = ()  # probes with their outcome
    attention: tuple[str, ...] = ()  # attention implementations that passed, the best first, by transformers' names
    attention_with_sinks: tuple[str, ...] = ()


class BenchmarkStatus(Record, frozen=True, kw_only=True):
    """The stored benchmark of an environment, and whether it is still valid."""

    state: Literal["healthy", "slow", "failing", "unknown", "stale"]  # the worst grade
    when: str  # ISO 8601, UTC
    driver: str
    gpus: tuple[str, ...]
    lock: str
    changed: str = ""  # for a stale result: the difference
    low: tuple[str, ...] = ()  # slow, failing or missing measurements


def resolve_interpreter(venv: str, python: str) -> Path:
    """The interpreter that was asked for: a Python, an environment, or the only environment envdoctor made."""
    if python and venv:
        raise BadInput("--python and --venv are both given", expected="one of them", hint="envdoctor verify --help")
    if python:
        named = resolve_python_argument(python, os.environ, hint="envdoctor verify --python PATH")
        return interpreter_of(named) if named.is_dir() else named
    if venv:
        return interpreter_of(expanded(venv).absolute())
    home = environments_directory(os.environ)
    made = [path for path in sorted(home.glob("[!.]*")) if read_install_record(path)]
    if len(made) == 1:
        return interpreter_of(made[0])
    raise BadInput(
        f"{len(made)} environments lie in {home}" + (": " + ", ".join(path.name for path in made) if made else ""),
        expected="--venv PATH or --python PATH to say which",
        hint="envdoctor install" if not made else f"envdoctor verify --venv {made[0]}",
    )


def read_verification_status(interpreter: Path, driver: str, gpus: Sequence[str]) -> VerificationStatus | None:
    """What the probes showed of an environment, held against this driver and these GPUs; None if nothing is kept."""
    try:
        found = read_verification(verification_path(interpreter))
    except BadInput:
        return None
    changed = stale_reason(found, driver, gpus, _lock_of(interpreter))
    return VerificationStatus(
        state="stale" if changed else "passed" if found.passed else "failed",
        when=found.when,
        driver=found.driver,
        gpus=found.gpus,
        lock=found.lock,
        changed=changed,
        passed=sum(result.outcome == "passed" for result in found.results),
        failed=_failed(found),
        attention=found.attention,
        attention_with_sinks=found.attention_with_sinks,
    )


def read_benchmark_status(interpreter: Path, driver: str, gpus: Sequence[str]) -> BenchmarkStatus | None:
    """What `verify --bench` measured in an environment, held against this driver and these GPUs."""
    path = bench_path(interpreter)
    if not path.exists():  # the tables of speeds are not read for nothing
        return None
    try:
        found = read_bench(path)
    except BadInput:
        return None
    changed = stale_reason(found, driver, gpus, _lock_of(interpreter))
    return BenchmarkStatus(
        state="stale" if changed else found.worst_grade,
        when=found.when,
        driver=found.driver,
        gpus=found.gpus,
        lock=found.lock,
        changed=changed,
        low=tuple(result.description for result in found.results if result.grade not in ("healthy", "unknown")),
    )


def _lock_of(interpreter: Path) -> str:
    installed = read_install_record(interpreter.parent.parent)
    return installed.lock if installed else ""


def _failed(found: Verification) -> tuple[str, ...]:
    """Probes that came out wrong, and required ones that could not run: `sdpa failed`."""
    outcomes = {result.probe: result.outcome for result in found.results}
    lacking = {name: outcomes.get(name, "not run") for name in found.required if outcomes.get(name) != "passed"}
    wrong = {name: outcome for name, outcome in outcomes.items() if outcome not in FINE}
    return tuple(f"{name} {outcome}" for name, outcome in (lacking | wrong).items())


def verification_state(proof: VerificationStatus | None) -> Literal["passed", "failed", "stale", "no"]:
    """Whether an environment is proven."""
    return proof.state if proof else "no"


def describe_verification(proof: VerificationStatus | None) -> str:
    """What the probes showed, for one line."""
    if proof is None:
        return "not verified: envdoctor verify"
    if proof.state == "stale":
        return f"verified {proof.when[:10]}, which no longer holds ({proof.changed}): envdoctor verify"
    where = f"{proof.when[:10]} on {_place(proof.driver, proof.gpus)}"
    if proof.state == "failed":
        return f"not verified {where}: {', '.join(proof.failed)}"
    attention = f"; attention by {', '.join(proof.attention)}" if proof.attention else ""
    sinks = f", with sinks by {', '.join(proof.attention_with_sinks)}" if proof.attention_with_sinks else ""
    probes = "1 probe" if proof.passed == 1 else f"{proof.passed} probes"
    return f"verified {where}: {probes} passed{attention}{sinks}"


def describe_benchmark(speed: BenchmarkStatus | None) -> str:
    """What the benchmark showed, for one line; nothing without one."""
    if speed is None:
        return ""
    if speed.state == "stale":
        return f"speed measured {speed.when[:10]}, which no longer holds ({speed.changed}): envdoctor verify --bench"
    low = f": {'; '.join(speed.low)}" if speed.low else ""
    graded = "not graded: no healthy numbers are known" if speed.state == "unknown" else speed.state
    return f"speed {graded}{low}, measured {speed.when[:10]} on {_place(speed.driver, speed.gpus)}"


def _place(driver: str, gpus: Sequence[str]) -> str:
    """`driver 580.159.04, 2 x NVIDIA H200`."""
    if not gpus:
        return f"driver {driver}, no GPU" if driver else "a machine without a GPU"
    counts = Counter(gpus).items()
    names = (f"{number} x {name}" if number > 1 else name for name, number in counts)
    return f"driver {driver or 'unknown'}, {', '.join(names)}"


def status_line(interpreter: Path) -> str:
    """What is known of an environment before something is trained in it: proven on what, with which attention."""
    driver, gpus = read_driver_and_gpus()
    speed = describe_benchmark(read_benchmark_status(interpreter, driver, gpus))
    return "; ".join(
        filter(None, (describe_verification(read_verification_status(interpreter, driver, gpus)), speed))
    )


def read_driver_and_gpus() -> tuple[str, tuple[str, ...]]:
    """The driver's version and the GPUs' names, as they are now."""
    nvml = read_nvml()
    names = tuple(gpu.name.value or "unreadable" for gpu in nvml.gpus.value or ())
    return read_driver(nvml).version.value or "", names


def require_verified(interpreter: Path) -> Verification:
    """The verification of an interpreter; refused where it is missing, failed, or of another driver or lock."""
    hint = f"envdoctor verify --python {interpreter}, or go on without: envdoctor train --unverified"
    path = verification_path(interpreter)
    if not path.exists():
        raise Refused(f"{interpreter} has not been verified (no {path})", expected="passed probes", hint=hint)
    verification = read_verification(path)
    driver, gpus = read_driver_and_gpus()
    if stale := stale_reason(verification, driver, gpus, _lock_of(interpreter)):
        raise Refused(
            f"the verification of {interpreter} no longer holds: {stale}", expected="passed probes", hint=hint
        )
    if not verification.passed:
        raise Refused(f"probes did not pass: {', '.join(_failed(verification))}", expected="passed probes", hint=hint)
    return verification
