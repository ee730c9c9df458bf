"""The drift guard: an environment is what its lock says, with the torch that was chosen, and it holds together."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from packaging.version import InvalidVersion, Version

from envdoctor.core.errors import Refused
from envdoctor.core.records import Finding, Machine, Stack
from envdoctor.environment.managed import WheelUsed
from envdoctor.locking.audit import ASKED_FOR
from envdoctor.locking.resolve import Lock
from envdoctor.rules import RULES, evaluate


def guard_versions(venv: Path, lock: Lock, wheels: Iterable[WheelUsed] = ()) -> None:
    """Refuse an environment whose packages are not exactly the lock's."""
    if wrong := drift(venv, lock, wheels):
        raise Refused(
            f"the environment in {venv} is not what the lock says: {'; '.join(wrong[:5])}",
            expected="every package at its locked version, and no other",
            hint="envdoctor install again; the current environment was not touched",
        )


def drift(venv: Path, lock: Lock, wheels: Iterable[WheelUsed] = ()) -> list[str]:
    """How the packages of an environment differ from the lock's and from the wheels that were added."""
    found = {}
    for info in venv.glob("lib/python*/site-packages/*.dist-info"):
        name, _, version = info.name.removesuffix(".dist-info").partition("-")
        found[normalised(name)] = version
    wanted = {normalised(package.name): package.version for package in lock.packages}
    wanted |= {normalised(wheel.name): wheel.file.split("-")[1] for wheel in wheels}
    wrong = [
        f"{name}: {found.get(name, 'missing')}, locked {version}"
        for name, version in wanted.items()
        if name not in found or not _is_same(found[name], version)
    ]
    return sorted(wrong + [f"{name} {found[name]}: not in the lock" for name in found.keys() - wanted.keys()])


def _is_same(one: str, other: str) -> bool:
    """Whether two spellings are of one version; what is none, as `foo.dist-info` has, is the same as nothing."""
    try:
        return Version(one) == Version(other)
    except InvalidVersion:
        return False


def normalised(name: str) -> str:
    """A distribution's name as package indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def guard_build(stack: Stack, lock: Lock) -> None:
    """Refuse a torch that is not the build that the lock was made for: a CPU build in the place of a CUDA one."""
    torch = stack.torch.value
    if torch is None:
        return  # a stack without torch: its lock has none
    build = torch.cuda.value or "cpu"
    if torch.cuda.state != "unreadable" and build != lock.torch_build:
        raise Refused(
            f"torch {torch.version.value} is the {_named(build)} (read from {torch.cuda.source})",
            expected=f"the {_named(lock.torch_build)}, as locked",
            hint="envdoctor install again; the current environment was not touched",
        )


def guard_coherence(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """Refuse a stack that the rules say will fail here; what is left are their warnings.

    Only rules on stacks count: what is wrong with the machine is wrong without this stack, too.
    """
    told = tuple(each for each in found if each.status in ("error", "warning") and each.id not in ASKED_FOR)
    if errors := [each for each in told if each.status == "error"]:
        raise Refused(
            "the packages do not hold together: " + "; ".join(f"{e.id} {e.message}" for e in errors[:3]),
            expected="a stack that the rules have nothing against on this machine",
            hint=f"envdoctor explain {errors[0].id}; the current environment was not touched",
        )
    return told


def guard_stack(stack: Stack, machine: Machine) -> tuple[Finding, ...]:
    """The same for an environment that was looked into."""
    about_stacks = (
        each for each in evaluate(machine, stack) if each.id in RULES and RULES[each.id].needs_environment
    )
    return guard_coherence(about_stacks)


def _named(build: str) -> str:
    return "CPU build" if build == "cpu" else f"CUDA {build} build"
