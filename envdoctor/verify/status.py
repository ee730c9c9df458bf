"""Resolve the interpreter to verify, and report whether its stored results still apply to this machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from envdoctor.core.command_line import command_line
from envdoctor.core.errors import BadInput, Refused
from envdoctor.core.paths import exists
from envdoctor.core.record import Record
from envdoctor.core.records import Verification
from envdoctor.environment.managed import read_install_record
from envdoctor.machine.driver import read_driver
from envdoctor.machine.gpu import read_nvml
from envdoctor.verify.stored_results import bench_path, read_bench, read_verification, stale_reason, verification_path

ACCEPTED_OUTCOMES = ("passed", "unavailable")

StoredState = Literal["passed", "failed", "stale"]  # stale: for another driver, GPU or lock
VerificationState = Literal[StoredState, "no"]


class VerificationStatus(Record, frozen=True, kw_only=True):
    """The stored verification of an environment, and whether it is still valid."""

    state: StoredState
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


def read_verification_status(interpreter: Path, driver: str, gpus: Sequence[str]) -> VerificationStatus | None:
    """The stored verification, compared with this driver and these GPUs; None if there is none."""
    try:
        verification = read_verification(verification_path(interpreter))
    except BadInput:
        return None
    changed = stale_reason(verification, driver, gpus, _lock_of(interpreter))
    return VerificationStatus(
        state="stale" if changed else "passed" if verification.passed else "failed",
        when=verification.when,
        driver=verification.driver,
        gpus=verification.gpus,
        lock=verification.lock,
        changed=changed,
        passed=sum(result.outcome == "passed" for result in verification.results),
        failed=_failed_probes(verification),
        attention=verification.attention,
        attention_with_sinks=verification.attention_with_sinks,
    )


def read_benchmark_status(interpreter: Path, driver: str, gpus: Sequence[str]) -> BenchmarkStatus | None:
    """The stored benchmark, compared with this driver and these GPUs; None if there is none."""
    path = bench_path(interpreter)
    if not exists(path):  # avoids importing the table of GPU speeds
        return None
    try:
        bench = read_bench(path)
    except BadInput:
        return None
    changed = stale_reason(bench, driver, gpus, _lock_of(interpreter))
    return BenchmarkStatus(
        state="stale" if changed else bench.worst_grade,
        when=bench.when,
        driver=bench.driver,
        gpus=bench.gpus,
        lock=bench.lock,
        changed=changed,
        low=tuple(result.description for result in bench.results if result.grade not in ("healthy", "unknown")),
    )


def _lock_of(interpreter: Path) -> str:
    record = read_install_record(interpreter.parent.parent)
    return record.lock if record else ""


def _failed_probes(verification: Verification) -> tuple[str, ...]:
    """Failed probes and required probes that did not pass, each with its outcome: `sdpa failed`."""
    outcomes = {result.probe: result.outcome for result in verification.results}
    required = {
        name: outcomes.get(name, "not run") for name in verification.required if outcomes.get(name) != "passed"
    }
    failed = {name: outcome for name, outcome in outcomes.items() if outcome not in ACCEPTED_OUTCOMES}
    return tuple(f"{name} {outcome}" for name, outcome in (required | failed).items())


def verification_state(status: VerificationStatus | None) -> VerificationState:
    """The state of a verification; "no" without one."""
    return status.state if status else "no"


def describe_verification(status: VerificationStatus | None) -> str:
    """The status of a verification in one line."""
    if status is None:
        return "not verified"
    if status.state == "stale":
        verb = "verification failed" if status.failed else "verified"
        return f"{verb} {status.when[:10]}, out of date ({status.changed})"
    when = f"{status.when[:10]} on {_describe_machine(status.driver, status.gpus)}"
    if status.state == "failed":
        return f"verification failed {when}: {', '.join(status.failed)}"
    attention = f"; attention implementations: {', '.join(status.attention)}" if status.attention else ""
    sinks = f"; with sinks: {', '.join(status.attention_with_sinks)}" if status.attention_with_sinks else ""
    probes = "1 probe" if status.passed == 1 else f"{status.passed} probes"
    return f"verified {when}: {probes} passed{attention}{sinks}"


def describe_benchmark(status: BenchmarkStatus | None) -> str:
    """The status of a benchmark in one line; empty without one."""
    if status is None:
        return ""
    if status.state == "stale":
        return f"benchmark of {status.when[:10]} out of date ({status.changed})"
    low = f": {'; '.join(status.low)}" if status.low else ""
    grade = "not graded (no expected speeds for these GPUs)" if status.state == "unknown" else status.state
    return f"speed {grade}{low}, measured {status.when[:10]} on {_describe_machine(status.driver, status.gpus)}"


def _describe_machine(driver: str, gpus: Sequence[str]) -> str:
    """`driver 580.159.04, 2 x NVIDIA H200`."""
    if not gpus:
        return f"driver {driver}, no GPU" if driver else "a machine without a GPU"
    names = (f"{number} x {name}" if number > 1 else name for name, number in Counter(gpus).items())
    return f"driver {driver or 'unknown'}, {', '.join(names)}"


def status_line(interpreter: Path) -> str:
    """The verification and benchmark status of an environment in one line, printed before training."""
    driver, gpus = read_driver_and_gpus()
    benchmark = describe_benchmark(read_benchmark_status(interpreter, driver, gpus))
    verification = describe_verification(read_verification_status(interpreter, driver, gpus))
    return "; ".join(filter(None, (verification, benchmark)))


def read_driver_and_gpus() -> tuple[str, tuple[str, ...]]:
    """The driver version and the GPU names of this machine."""
    nvml = read_nvml()
    names = tuple(gpu.name.value or "unreadable" for gpu in nvml.gpus.value or ())
    return read_driver(nvml).version.value or "", names


def require_verified(interpreter: Path) -> Verification:
    """The stored verification; Refused if it is missing, failed, or was made with another driver, GPU or lock."""
    verify = command_line("envdoctor", "verify", "--python", interpreter)
    hint = f"{verify}; to skip this check: envdoctor train --unverified"
    path = verification_path(interpreter)
    if not exists(path):
        raise Refused(f"{interpreter} has not been verified (no {path})", expected="passed probes", hint=hint)
    verification = read_verification(path)
    driver, gpus = read_driver_and_gpus()
    if changed := stale_reason(verification, driver, gpus, _lock_of(interpreter)):
        raise Refused(
            f"the verification of {interpreter} is out of date: {changed}", expected="passed probes", hint=hint
        )
    if not verification.passed:
        failed = ", ".join(_failed_probes(verification))
        raise Refused(f"probes did not pass: {failed}", expected="passed probes", hint=hint)
    return verification
