"""A lock held against what no metadata says: the rules over the environment that it would make."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from envdoctor.core.records import Distribution, Fact, Finding, Machine, Stack, TorchBuild, absent, known, unreadable
from envdoctor.knowledge.releases import parse_requirement, requirements_of_release
from envdoctor.locking.lock_files import LockFile, file_of
from envdoctor.locking.resolve import Lock, Package

# That torch is a CPU build on a machine with a GPU: a resolution counts only if torch is the build that its profile
# names, so a CPU build in a lock was asked for.
ASKED_FOR = {"TORCH003"}


def audit_of(lock: Lock, machine: Machine | None) -> tuple[Finding, ...]:
    """What the rules on stacks have against a lock, with a machine also against its driver and GPUs."""
    from envdoctor.rules import RULES

    found = audit_lock(file_of(lock), machine)
    # A rule on the machine alone says nothing of the lock: `envdoctor check` tells those.
    return tuple(f for f in found if f.id not in ASKED_FOR and (f.id not in RULES or RULES[f.id].needs_environment))


def audit_words(file: LockFile) -> Iterator[str]:
    """What the rules have against the packages of a lock, without a machine: errors and warnings in words."""
    for finding in audit_lock(file):
        yield f"{finding.id} {finding.message}"


def audit_lock(file: LockFile, machine: Machine | None = None) -> list[Finding]:
    """The rules over the stack that a lock describes, on no particular machine unless one is given."""
    from envdoctor.reports import parse_report
    from envdoctor.rules import evaluate

    findings = evaluate(machine or parse_report("").machine, stack_of_lock(file))
    return [finding for finding in findings if finding.status in ("error", "warning", "crashed")]


def stack_of_lock(file: LockFile) -> Stack:
    """A lock as the environment that it would make."""
    source = "lock"
    unread: Callable[[], Fact[Any]] = lambda: unreadable(source, "a lock does not say")  # noqa: E731
    listed = {p.name: Distribution(name=p.name, version=p.version, requires=_judged(p, file)) for p in file.packages}
    torch = listed.get("torch")
    build = TorchBuild(
        version=known(torch.version, source) if torch else unread(),
        cuda=absent(source) if file.torch == "cpu" else known(file.torch, source),
        hip=absent(source),
        cxx11_abi=unread(),
        architectures=unread(),
    )
    return Stack(
        origin=source,
        kind=unread(),
        python=unread(),
        python_version=known(file.python, source),
        headers=unread(),
        distributions=known(listed, "report" if file.without else source),  # a partial lock is a part, like a report
        shadowed=unread(),
        torch=known(build, source) if torch else unread(),
        extensions=unread(),
        cuda_available=absent(source),
        uses=known((), source),
    )


def _judged(package: Package, file: LockFile) -> tuple[str, ...]:
    """What a package requires, where the tables' word on it, which is of x86_64, would be wrong for the lock.

    Some requirements hold on x86_64 alone (vLLM 0.10.2's on xformers), so elsewhere only what is there is judged. uv
    has seen to it that nothing is missing.
    """
    if file.platform.startswith("x86_64-"):
        return ()  # the tables are asked
    held = {each.name for each in file.packages}
    parsed = ((line, parse_requirement(line)) for line in requirements_of_release(package.name, package.version))
    return tuple(line for line, asked in parsed if asked and asked.name in held)
