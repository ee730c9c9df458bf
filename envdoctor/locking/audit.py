"""Audit of a lock: the rules are evaluated on the environment that the lock describes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from envdoctor.core.records import Distribution, Fact, Finding, Machine, Stack, TorchBuild, absent, known, unreadable
from envdoctor.knowledge.releases import parse_requirement, requirements_of_release
from envdoctor.locking.lock import Lock

# TORCH003 reports a CPU build of torch on a machine with a GPU. A lock always has the build that its profile names,
# so a CPU build in a lock is intended.
IGNORED_RULES = {"TORCH003"}


def audit_lock(lock: Lock, machine: Machine | None = None, *, stack_rules_only: bool = False) -> tuple[Finding, ...]:
    """The errors and warnings of the rules for a lock, and with a machine also for its driver and GPUs.

    `stack_rules_only` omits rules that do not depend on the packages: `envdoctor check` reports those.
    """
    from envdoctor.reports import parse_report
    from envdoctor.rules import RULES, evaluate

    findings = evaluate(machine or parse_report("").machine, stack_of_lock(lock))
    found = (finding for finding in findings if finding.status in ("error", "warning", "crashed"))
    if not stack_rules_only:
        return tuple(found)
    return tuple(
        f for f in found if f.id not in IGNORED_RULES and (f.id not in RULES or RULES[f.id].needs_environment)
    )


def audit_messages(lock: Lock) -> tuple[str, ...]:
    """The errors and warnings of the rules for a lock, without a machine, as text."""
    return tuple(f"{finding.id} {finding.message}" for finding in audit_lock(lock))


def stack_of_lock(lock: Lock) -> Stack:
    """The environment that a lock describes."""
    source = "lock"
    unknown: Callable[[], Fact[Any]] = lambda: unreadable(source, "not part of a lock")  # noqa: E731
    listed = {
        name: Distribution(name=name, version=version, requires=_requires(name, version, lock))
        for name, version in lock.versions.items()
    }
    torch = listed.get("torch")
    build = TorchBuild(
        version=known(torch.version, source) if torch else unknown(),
        cuda=absent(source) if lock.torch_build == "cpu" else known(lock.torch_build, source),
        hip=absent(source),
        cxx11_abi=unknown(),
        architectures=unknown(),
    )
    return Stack(
        origin=source,
        kind=unknown(),
        python=unknown(),
        python_version=known(lock.python, source),
        headers=unknown(),
        # A partial lock, like a report, does not list all packages.
        distributions=known(listed, "report" if lock.without else source),
        shadowed=unknown(),
        torch=known(build, source) if torch else unknown(),
        extensions=unknown(),
        cuda_available=absent(source),
        uses=known((), source),
    )


def _requires(name: str, version: str, lock: Lock) -> tuple[str, ...]:
    """The requirements of a package, if the built-in tables do not apply to the lock's architecture.

    The tables list the requirements on x86_64, and some hold only there, such as vLLM 0.10.2's on xformers. On other
    architectures only requirements on packages of the lock are returned. uv has already checked that none is missing.
    """
    if lock.architecture == "x86_64":
        return ()  # the rules use the tables
    names = lock.versions
    parsed = ((line, parse_requirement(line)) for line in requirements_of_release(name, version))
    return tuple(line for line, requirement in parsed if requirement and requirement.name in names)
