"""The sets of `envdoctor audit --fix`: what uv solves for each environment of a guide."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from envdoctor.commands.audit_draft import problems_of
from envdoctor.commands.audit_set_sources import solve_with_sources
from envdoctor.download.sources import Sources, read_sources
from envdoctor.locking.set_solver import TOTAL_SECONDS
from envdoctor.locking.solve_set import GAVE_WAY, solve_set
from envdoctor.locking.solved_set import Check, SetProblems, SolvedSet
from envdoctor.manifests import CorrectedSet, DroppedPackage, GuideAudit
from envdoctor.manifests.added_packages import missing_packages, possible_packages, with_packages
from envdoctor.manifests.stated_cuda import StatedCuda
from envdoctor.resolution.index_facts import IndexFacts


def solve_audit(audit: GuideAudit, check: Check, index: IndexFacts | None = None) -> tuple[SolvedSet, ...]:
    """Solve the set of each environment of a guide: without problems, what its steps install today, if it holds."""
    sources, end, spent = read_sources(), time.monotonic() + TOTAL_SECONDS, 0.0

    def timed(solved: SolvedSet) -> SetProblems:
        """A check whose time does not count: that of a trial is minutes."""
        nonlocal spent
        started = time.monotonic()
        problems = check(solved)
        spent += time.monotonic() - started
        return problems

    missing = [*missing_packages(audit.findings), *possible_packages(audit.findings)]
    sets = [corrected for corrected in audit.sets if corrected.requirements]
    if problems_of(audit.findings) or audit.unresolved:
        return tuple(
            solve_with_sources(
                own,
                lambda it: solve_with(
                    missing, it, lambda each: solve_set(each, sources, timed, end + spent, index=index)
                ),
            )
            for own in sets
        )
    sets = [with_packages(corrected, missing) for corrected in sets]
    solved = (
        solve_with_sources(each, lambda it: solve_installed(it, sources, timed, end + spent, index))
        for each in sets if not each.is_partial
    )  # fmt: skip
    return tuple(each for each in solved if each.state == "solved")


def solve_with(
    missing: Sequence[str], corrected: CorrectedSet, solve: Callable[[CorrectedSet], SolvedSet]
) -> SolvedSet:
    """A set with the packages that its programs import and no step installs, or without them if it excludes them.

    The versions that the file states come first: none of them gives way to another package.
    """
    extended = with_packages(corrected, missing)
    solved = solve(extended)
    reasons = {each.name: each.reason for each in solved.corrected.dropped if each.reason.startswith(GAVE_WAY)}
    conflict = next(iter(reasons.values()), solved.note if solved.state == "conflict" else "")
    if not conflict or extended.requirements == corrected.requirements:
        return solved
    own = solve(corrected)
    if own.state != "solved" or not reasons.keys().isdisjoint(each.name for each in own.corrected.dropped):
        return solved
    reason = f"it does not fit the other requirements: {conflict.removeprefix(GAVE_WAY)}"
    left = [DroppedPackage(name, reason) for name in missing]
    return replace(own, corrected=replace(own.corrected, dropped=(*own.corrected.dropped, *left)))


def solve_installed(
    corrected: CorrectedSet, sources: Sources, check: Check, end: float, index: IndexFacts | None = None
) -> SolvedSet:
    """The set of the releases that the steps install today; the one of their requirements if that one has a problem.

    What the audit cannot judge for certain, because something was not read, is an error in a set.
    """
    today = replace(
        corrected, own=corrected.installed, wanted=corrected.installed, requirements=corrected.installed,
        oldest_day="", exclude_newer="", is_python_assumed=False, stated_cuda=StatedCuda(),
    )  # fmt: skip
    solved = solve_set(today, sources, check, end, gives_way=False, index=index)
    return solved if solved.state == "solved" else solve_set(corrected, sources, check, end, index=index)
