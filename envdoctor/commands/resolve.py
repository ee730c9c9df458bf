"""`envdoctor resolve`: each profile solved for a machine, judged against it, and its lock audited."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from envdoctor.commands.provisioning import describe_violations, target_for
from envdoctor.core.errors import EXIT_FAILED, EXIT_NO, EXIT_OK
from envdoctor.core.records import Machine
from envdoctor.core.results import Answer, Resolved, ResolvedAll
from envdoctor.download.sources import Sources, read_sources
from envdoctor.locking.audit import audit_of
from envdoctor.locking.resolve import Lock, failure, own_target
from envdoctor.locking.resolve import resolve as run_resolve
from envdoctor.machine.select import select_machine
from envdoctor.profiles import Profile, choose, read_candidates, read_profile

if TYPE_CHECKING:
    from envdoctor.commands.keeping import Reporter

NOTHING = Lock("", "", "", "", "cpu", ())


def resolve(names: Sequence[str], recorded: str, facts: Sequence[str], python: str, reporter: Reporter) -> Answer:
    """Resolve profiles (all that can be chosen if none is named) for a machine.

    Named ones, and all on a recorded machine, for that machine; else each for the machine that it was made for.
    """
    machine = select_machine(recorded, facts)
    profiles = [read_profile(name) for name in names] if names else read_candidates()
    sources, as_asked = read_sources(), bool(names or recorded)
    results = tuple(_resolved(p, machine, python, sources, reporter, as_asked=as_asked) for p in profiles)
    unreachable = any(_out_of_reach(result) for result in results if result.error)
    bad = any(result.error or _is_faulty(result) for result in results)
    return Answer(ResolvedAll(results), EXIT_FAILED if unreachable else EXIT_NO if bad else EXIT_OK)


def _resolved(
    profile: Profile, machine: Machine, python: str, sources: Sources, reporter: Reporter, *, as_asked: bool
) -> Resolved:
    """One profile: for this machine, which then is part of the answer and of the audit, or for its own platform."""
    target = target_for(machine, profile, python) if as_asked else own_target(machine, profile)
    reporter.phase(f"Resolving {profile.id} for {target.platform}")
    reading = _start_reading_rules()
    resolution = run_resolve(profile, target, sources, reporter.attempt)
    reading.join()
    lock = resolution.lock
    candidate = choose(machine, [profile]).candidates[0]
    error = None if lock else failure(resolution, sources)
    return Resolved(
        profile=profile.id,
        machine=machine.name or "this machine",
        fits=candidate.accepted if as_asked else None,
        violated=describe_violations(candidate) if as_asked else (),
        resolution=resolution,
        digest=lock.digest if lock else "",
        error=error.message if error else "",
        hint=error.hint if error else "",
        findings=audit_of(lock, machine if as_asked else None) if lock else (),
    )


@cache
def _start_reading_rules() -> threading.Thread:
    """Read the rules and their tables, which takes 0.15 s, while uv waits for the index."""
    reading = threading.Thread(target=audit_of, args=(NOTHING, None), daemon=True)
    reading.start()
    return reading


def _is_faulty(result: Resolved) -> bool:
    return any(finding.status in ("error", "crashed") for finding in result.findings)


def _out_of_reach(resolved: Resolved) -> bool:
    attempts = resolved.resolution.attempts if resolved.resolution else ()
    return any(attempt.outcome == "unreachable" for attempt in attempts)
