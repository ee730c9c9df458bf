"""Solutions other than the first one of uv: what pip selects first, and the installed releases that stay."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.published import releases_in_range
from envdoctor.knowledge.releases import leading_name
from envdoctor.knowledge.versions import public_part
from envdoctor.locking.step_conflicts import (
    BOUND_TO_TORCH,
    accepted_by,
    without_excluded,
    without_parts_of_torch,
)
from envdoctor.locking.step_question import StepQuestion
from envdoctor.locking.step_series import is_older, pins_of, series, takes_prerelease
from envdoctor.resolution.index_facts import IndexFacts, InstalledSet
from envdoctor.resolution.step import StepSolution

Solve = Callable[[StepQuestion], tuple[StepSolution, str]]  # empty without a solution; uv's output

_MAX_DEPENDENCIES = 4
_MAX_RELEASED = 10  # runs with fewer installed releases each
_UPPER_BOUND = lazy_pattern(r"<|==|~=")


def dependencies_first(
    solve: Solve, index: IndexFacts | None, question: StepQuestion, solution: StepSolution
) -> StepSolution:
    """The solution with newer releases of dependencies of the named packages that pip selects before what they limit.

    lm-eval 0.3.0 requires datasets: for an fsspec of torch without a bound, pip 26.3 takes datasets 5 and an older
    fsspec, and `uv pip` takes the newest fsspec and datasets 2.14.4, which has no limit (tried on 2026-11-29).
    """
    named = {leading_name(text) for text in question.requirements}
    for name in _held_back(question, solution)[:_MAX_DEPENDENCIES] if index else ():
        newer, _ = solve(question._replace(constraints=(*question.constraints, f"{name}>{solution.versions[name]}")))
        older = {
            each for each, version in solution.versions.items() if is_older(newer.versions.get(each, ""), version)
        }
        if newer.versions and index and not older & named and not takes_prerelease(newer, solution):
            rank = _rank_of_pip(index, question, solution, name)
            if all(rank < _rank_of_pip(index, question, solution, each) for each in older):
                solution = newer
    return solution


def _held_back(question: StepQuestion, solution: StepSolution) -> list[str]:
    """The dependencies of the named packages of which the tables have a release of a later series."""
    named = {leading_name(text) for text in question.requirements}
    found: list[str] = []
    for name, requiring in sorted(solution.required_by.items()):
        current = solution.versions[name]
        if (
            name in named
            or BOUND_TO_TORCH.match(name)
            or not named & {*requiring}
            or f"{name}=={current}" in question.preferences
        ):
            continue
        later = releases_in_range(name, f">{public_part(current)}", question.day or "9")
        if any(series(each.version) > series(current) and each.has_wheel("", question.python) for each in later):
            found.append(name)
    return found


def _rank_of_pip(
    index: IndexFacts, question: StepQuestion, solution: StepSolution, name: str
) -> tuple[bool, bool, str]:
    """The place of a dependency in the order of pip: those with an upper bound, those with a bound, and by name."""
    requiring = {each: solution.versions[each] for each in solution.required_by.get(name, ()) if each != name}
    platform = question.platform.partition("-")[0]
    specifiers = index.specifiers_of(InstalledSet(requiring, (), question.python, platform), name).values()
    return not any(map(_UPPER_BOUND.search, specifiers)), not any(specifiers), name


def companion_first(solve: Solve, question: StepQuestion, solution: StepSolution) -> StepSolution:
    """The solution with the newest torchvision, for which pip replaces an installed torch.

    sentence-transformers 2.2.2 requires it: pip 26.3 replaces torch 2.7.1+cu118 (tried 2026-11-29), uv keeps it.
    """
    installed = {leading_name(pin) for pin in question.preferences}
    current = public_part(solution.versions.get("torchvision", ""))
    if not current or "torch" not in installed or "torchvision" in installed:
        return solution
    newest, _ = solve(question._replace(constraints=(*question.constraints, f"torchvision>{current}")))
    return newest if newest.versions else solution


def keep_installed(
    solve: Solve, index: IndexFacts | None, question: StepQuestion, solution: StepSolution
) -> StepSolution:
    """The solution with the installed releases that its new packages accept.

    Of several indexes, uv takes a preference from the first one that has the release; for a constraint, it reads
    all. The installed releases of the solution stay: else uv would exchange torch to keep an old setuptools.
    A new dependency that pip selects after the installed ones is an older release, if they need it: pandas 3.0
    for an installed numpy 1.26 (pip 23.2, tried on 2026-11-29).
    """
    installed, solved = {*question.preferences}, {*pins_of(solution)}
    changed = {pin for pin in installed - solved if leading_name(pin) in solution.versions}
    accepted = accepted_by(question.requirements, changed)
    replaced = {leading_name(pin) for pin in changed - accepted}  # by the requirements, such as torch<2.14
    kept = without_parts_of_torch(accepted, replaced)
    named = {leading_name(text) for text in question.requirements}
    named |= set() if question.is_of_uv else {"torchvision"}  # the newest one, see companion_first
    known = {leading_name(pin) for pin in installed} - replaced
    held = sorted(without_parts_of_torch(installed & solved, replaced))
    chosen = [
        pin for pin in pins_of(solution)
        if leading_name(pin) not in known and (leading_name(pin) in named or not BOUND_TO_TORCH.match(pin))
    ]  # fmt: skip
    runs = iter(range(_MAX_RELEASED))
    while kept and next(runs, None) is not None:
        preferences = tuple(pin for pin in question.preferences if pin not in kept)
        rank = partial(_rank_of_pip, index, question, solution) if index else None
        earlier = _selected_before(kept, chosen, named, rank) if rank else chosen
        output = ""
        for new in (chosen, earlier) if len(earlier) < len(chosen) else (chosen,):
            constraints = (*question.constraints, *new, *held, *sorted(kept))
            found, text = solve(question._replace(preferences=preferences, constraints=constraints))
            if found.versions:
                return found
            output = output or text
        kept = without_excluded(kept, output)
    return solution


def _selected_before(
    kept: Collection[str], new: Iterable[str], named: Collection[str], rank: Callable[[str], tuple[bool, bool, str]]
) -> list[str]:
    """The new packages that are named, or that pip selects before all of the installed ones."""
    first = min(rank(leading_name(pin)) for pin in kept)
    return [pin for pin in new if leading_name(pin) in named or rank(leading_name(pin)) < first]
