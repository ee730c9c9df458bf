"""Which environment is meant, and whether it is proven: by which probes, on which driver, for which lock."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Literal

from envdoctor.environments import VERIFICATION, Installed, interpreter_of, read_installed
from envdoctor.errors import BadInput, Refused
from envdoctor.facts.driver import read_driver
from envdoctor.facts.gpu import read_nvml
from envdoctor.facts.storage import environments_home
from envdoctor.model import Verification
from envdoctor.proving import verify as verifying


def interpreter_for(venv: str, python: str) -> Path:
    """The interpreter that was asked for: a Python, an environment, or the only environment envdoctor made."""
    if python and venv:
        raise BadInput("--python and --venv are both given", expected="one of them", hint="envdoctor verify --help")
    if python:
        return Path(python).absolute()
    if venv:
        return interpreter_of(Path(venv).absolute())
    home = environments_home(os.environ)
    made = [path for path in sorted(home.glob("[!.]*")) if read_installed(path)]
    if len(made) == 1:
        return interpreter_of(made[0])
    raise BadInput(
        f"{len(made)} environments lie in {home}" + (": " + ", ".join(path.name for path in made) if made else ""),
        expected="--venv PATH or --python PATH to say which",
        hint="envdoctor install" if not made else f"envdoctor verify --venv {made[0]}",
    )


def verification_path(interpreter: Path) -> Path:
    """Where an interpreter's verification is kept: inside an environment of ours, else in our state folder."""
    venv = interpreter.parent.parent
    if read_installed(venv):
        return venv / VERIFICATION
    home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state")
    return home / "envdoctor" / "verifications" / f"{hashlib.sha256(str(interpreter).encode()).hexdigest()[:16]}.json"


def verified_state(
    venv: Path, installed: Installed, driver: str, gpus: tuple[str, ...]
) -> Literal["passed", "failed", "stale", "no"]:
    """Whether an environment is proven, on this driver and these GPUs."""
    path = venv / VERIFICATION
    if not path.exists():
        return "no"
    try:
        found = verifying.read_verification(path)
    except BadInput:
        return "no"
    if verifying.stale_reason(found, driver, gpus, installed.lock):
        return "stale"
    return "passed" if found.passed else "failed"


def driver_and_gpus() -> tuple[str, tuple[str, ...]]:
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
    verification = verifying.read_verification(path)
    installed = read_installed(interpreter.parent.parent)
    driver, gpus = driver_and_gpus()
    if stale := verifying.stale_reason(verification, driver, gpus, installed.lock if installed else ""):
        raise Refused(
            f"the verification of {interpreter} no longer holds: {stale}", expected="passed probes", hint=hint
        )
    if not verification.passed:
        failed = ", ".join(
            f"{r.probe} {r.outcome}" for r in verification.results if r.outcome not in ("passed", "unavailable")
        )
        raise Refused(
            f"probes did not pass: {failed or 'required ones are missing'}",
            expected="passed probes",
            hint=hint,
        )
    return verification
