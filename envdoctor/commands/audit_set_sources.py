"""Sets with the projects that a guide installs from repositories: what these require is solved with the set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace
from packaging.requirements import Requirement

from envdoctor.knowledge.releases import normalize_name
from envdoctor.locking.solve_set import GAVE_WAY
from envdoctor.locking.solved_set import SolvedSet
from envdoctor.manifests import CorrectedSet, DroppedPackage
from envdoctor.manifests.dropped_packages import SOURCE_UNFIT
from envdoctor.manifests.source_projects import SourceProject

Solve = Callable[[CorrectedSet], SolvedSet]


def solve_with_sources(corrected: CorrectedSet, solve: Solve) -> SolvedSet:
    """The set with what its projects from repositories require, and without the projects that it excludes.

    No requirement of the file gives way to a project. In place of a project that does not fit, the set has a release
    of the index that fits.
    """
    pins = [text for text in corrected.own or corrected.wanted if "==" in text]
    pins += [f"{name}=={version}" for name, version in corrected.contained.items()]
    unfit = {each: reason for each in corrected.sources if (reason := each.excluded_by(pins))}
    fitting = [each for each in corrected.sources if each not in unfit]
    solved = solve(_with_lines(corrected, _lines_of(fitting)))
    if fitting and _changes(solved):
        own = solve(corrected)
        solved, fitting, misfits = _one_by_one(corrected, fitting, (own, solved), solve)
        unfit |= misfits
    replaced: set[str] = set()
    for each in unfit if solved.state == "solved" else ():
        lines = [*_lines_of(fitting), *replaced, each.open_requirement]
        tried = solve(_with_lines(corrected, lines))
        if not _changes(tried).keys() - _changes(solved).keys():
            solved = tried
            replaced.add(each.open_requirement)
    dropped = tuple(_described(solved.corrected.dropped, fitting, unfit, replaced))
    return replace(solved, corrected=replace(solved.corrected, dropped=dropped))


def _one_by_one(
    corrected: CorrectedSet, sources: Sequence[SourceProject], known: tuple[SolvedSet, SolvedSet], solve: Solve
) -> tuple[SolvedSet, list[SourceProject], dict[SourceProject, str]]:
    """The set with each project that leaves it unchanged; these projects, and the reasons against the others.

    `known` are the sets without projects and with all of them.
    """
    own, together = known
    solved, fitting = own, list[SourceProject]()
    misfits: dict[SourceProject, str] = {}
    for each in sources if own.state == "solved" else ():
        tried = together if len(sources) == 1 else solve(_with_lines(corrected, _lines_of([*fitting, each])))
        reasons = [reason for name, reason in _changes(tried).items() if name not in _changes(own)]
        if reasons:
            misfits[each] = f"{each.release} does not fit: {reasons[0].removeprefix(GAVE_WAY)}"
        else:
            solved, fitting = tried, [*fitting, each]
    return solved, fitting, misfits


def _changes(solved: SolvedSet) -> dict[str, str]:
    """The requirements that give way in a set, with the reasons; the conflict of one that is not solved."""
    if solved.state != "solved":
        return {"": solved.note}
    return {each.name: each.reason for each in solved.corrected.dropped if each.reason.startswith(GAVE_WAY)}


def _lines_of(sources: Iterable[SourceProject]) -> list[str]:
    return list(dict.fromkeys(text for each in sources for text in each.requires))


def _with_lines(corrected: CorrectedSet, lines: Iterable[str]) -> CorrectedSet:
    """The set with further requirements, as far as neither exact versions nor an image determine the package."""
    left = {each.name for each in corrected.dropped} | corrected.contained.keys()
    left -= {each.release.name for each in corrected.sources}
    open_lines = [text for text in lines if _name(text) not in left]

    def add(listed: tuple[str, ...]) -> tuple[str, ...]:
        pinned = {_name(text) for text in listed if "==" in text}
        return tuple(dict.fromkeys((*listed, *(text for text in open_lines if _name(text) not in pinned))))

    return replace(corrected.with_lists(add), own=add(corrected.own) if corrected.own else ())


def _name(text: str) -> str:
    return normalize_name(Requirement(text).name)


def _described(
    dropped: Iterable[DroppedPackage], fitting: Iterable[SourceProject], unfit: Mapping[SourceProject, str],
    replaced: Iterable[str],
) -> Iterable[DroppedPackage]:  # fmt: skip
    """The dropped packages: of a project that fits, the release that was compared; of another one, the reason."""
    compared = {each.release.name: str(each.release) for each in fitting}
    reasons = {each.release.name: (each, reason) for each, reason in unfit.items()}
    for each in dropped:
        if each.name in compared:
            yield replace(each, reason=f"{each.reason} (compared with the requirements of {compared[each.name]})")
        elif each.name in reasons:
            source, reason = reasons[each.name]
            instead = "; the set has a release of the index" if source.open_requirement in set(replaced) else ""
            name = f"{each.name} of its repository" if instead else each.name
            yield DroppedPackage(name, f"{SOURCE_UNFIT.format(reason)}{instead}")
        else:
            yield each
