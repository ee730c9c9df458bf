"""Checks of an installed environment: packages and torch build match the lock, and the rules report no error."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from envdoctor.core.errors import Refused
from envdoctor.core.records import Finding, Machine, Stack
from envdoctor.core.shell_commands import shell_command
from envdoctor.environment.managed import WheelUsed
from envdoctor.locking.audit import IGNORED_RULES
from envdoctor.locking.lock import Lock
from envdoctor.rules import RULES, evaluate

UNCHANGED = "the current environment was not changed"


def check_versions(venv: Path, lock: Lock, wheels: Iterable[WheelUsed] = ()) -> None:
    """Refuse an environment whose packages differ from the lock."""
    if differences := drift(venv, lock, wheels):
        raise Refused(
            f"the environment in {venv} does not match the lock: {'; '.join(differences[:5])}",
            expected="every package at its locked version, and no other",
            hint=f"envdoctor install again; {UNCHANGED}",
        )


def drift(venv: Path, lock: Lock, wheels: Iterable[WheelUsed] = ()) -> list[str]:
    """The differences between the packages of an environment and those of the lock and the added wheels."""
    found = {}
    for info in venv.glob("lib/python*/site-packages/*.dist-info"):
        name, _, version = info.name.removesuffix(".dist-info").partition("-")
        found[canonicalize_name(name)] = version
    expected = {canonicalize_name(package.name): package.version for package in lock.packages}
    expected |= {canonicalize_name(wheel.name): str(parse_wheel_filename(wheel.file)[1]) for wheel in wheels}
    differences = [
        f"{name}: {found.get(name, 'missing')}, locked {version}"
        for name, version in expected.items()
        if name not in found or not _is_same_version(found[name], version)
    ]
    return sorted(differences + [f"{name} {found[name]}: not in the lock" for name in found.keys() - expected.keys()])


def _is_same_version(one: str, other: str) -> bool:
    """Whether two spellings are the same version. False for an invalid version, as in `foo.dist-info`."""
    try:
        return Version(one) == Version(other)
    except InvalidVersion:
        return False


def check_torch_build(stack: Stack, lock: Lock) -> None:
    """Refuse a torch of another build than the locked one, such as a CPU build instead of a CUDA build."""
    torch = stack.torch.value
    if torch is None:
        return  # the lock has no torch
    build = torch.cuda.value or "cpu"
    if torch.cuda.state != "unreadable" and build != lock.torch_build:
        raise Refused(
            f"torch {torch.version.value} is the {_describe_build(build)} (read from {torch.cuda.source})",
            expected=f"the {_describe_build(lock.torch_build)}, as locked",
            hint=f"envdoctor install again; {UNCHANGED}",
        )


def check_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Refuse a stack for which the rules report an error. Returns the warnings."""
    relevant = tuple(f for f in findings if f.status in ("error", "warning") and f.id not in IGNORED_RULES)
    if errors := [finding for finding in relevant if finding.status == "error"]:
        raise Refused(
            "the packages are incompatible: " + "; ".join(f"{f.id} {f.message}" for f in errors[:3]),
            expected="packages for which the rules report no error on this machine",
            hint=shell_command("envdoctor explain {}", errors[0].id) + f"; {UNCHANGED}",
        )
    return relevant


def check_stack(stack: Stack, machine: Machine) -> tuple[Finding, ...]:
    """Check an installed environment with the rules that depend on the packages. Returns the warnings."""
    return check_findings(f for f in evaluate(machine, stack) if f.id in RULES and RULES[f.id].needs_environment)


def _describe_build(build: str) -> str:
    return "CPU build" if build == "cpu" else f"CUDA {build} build"
