"""The conflicts of a step in uv's words, the requirement that each of them is about, and extras that do not exist."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.releases import leading_name, normalize_name
from envdoctor.knowledge.versions import is_prerelease, satisfies
from envdoctor.locking.source_releases import name_and_specifier
from envdoctor.locking.uv import parse_messages
from envdoctor.resolution.requirement import InstallRequirement
from envdoctor.resolution.step import StepSolution
from envdoctor.resolution.torch_sources import TORCH_FAMILY

BOUND_TO_TORCH = lazy_pattern(r"torch|triton$|(?:nvidia|cuda)-")  # torch requires exact releases of these
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_WORD = lazy_pattern(_NAME)
_ABSENT_EXTRA = lazy_pattern(rf"({_NAME})==\S+?`? does not have an extra named `([\w.-]+)`")
_ABSENT = lazy_pattern(
    rf"no version of ({_NAME})(?:\[[^\]]*\])?([<>=!~][^\s;]*)?|({_NAME}) was not found in the package registry"
)
_DEPENDS = lazy_pattern(rf"(?:all versions of )?({_NAME})(?:\[[^\]]*\])?(?:[=<>!~]=?\S*)? depends? on ")
_ABSENT_PIN = lazy_pattern(rf"no version of ({_NAME})(?:\[[^\]]*\])?==([^\s;]+)")
_NO_WHEEL = lazy_pattern(rf"({_NAME})(?:==\S+)? ha(?:s|ve) no wheels with a matching")
_BOUND = lazy_pattern(
    rf"({_NAME})(?:\[[^\]]*\])?(?:[=<>!~]=?\S*)? depends? on (?:one of: )?({_NAME})(?:\[[^\]]*\])?([<>=!~][^\s;]*)"
)
_UPPER = lazy_pattern(r"(?:<=?|==)\s*(\d[\w.]*)")
_LOWEST = lazy_pattern(r"(?:>=?|==|~=)\s*(\d[\w.]*)")
_EXACT = lazy_pattern(r"==[^*]+$")
_STATED = lazy_pattern(rf"({_NAME})(?:\[[^\]]*\])?([<>=!~].*)?")


def describe_conflict(output: str) -> str:
    """uv's explanation: the requirements that exclude each other, without its conclusions."""
    messages = parse_messages(output)
    text = " ".join([*messages["cause"], *(each for each in messages["error"] if not each.startswith("No solution"))])
    text = re.sub(r"\{[^}]*\}", "", text)  # markers
    text = re.sub(r"(?<=3\.)(\d+)\.99\b", r"\1", text)  # of newest_patch
    text = re.sub(r", we can conclude that .*?(?=And because|$)", ". ", text)
    facts = re.split(
        r"\bBecause\b|\bAnd because\b|\. | and (?=\S+ depends|you require|only|there|all versions)", text
    )
    kept = dict.fromkeys(fact.strip(" .,").replace("you require", "the step requires") for fact in facts)
    return "; ".join(fact for fact in kept if fact and not fact.startswith("only ")) or text[:500]


def absent_requirement(conflict: str, requirements: Sequence[str]) -> str:
    """The requirement that no release on the index satisfies, with any Python; empty without one."""
    if "Python" in conflict:
        return ""
    absent = [(normalize_name(one or other), _clauses(range_)) for one, range_, other in _ABSENT.findall(conflict)]
    for text in requirements:
        stated = _STATED.match(text)
        for name, clauses in absent if stated else ():
            # A range that another package requires does not concern the requirement of the step.
            if stated and normalize_name(stated[1]) == name and clauses in (_clauses(stated[2] or ""), frozenset()):
                return text
    return ""


def without_wheels(conflict: str) -> frozenset[str]:
    """The packages without any wheel for this Python and platform: another index can have other releases."""
    return frozenset(map(normalize_name, _NO_WHEEL.findall(conflict)))


def absent_builds(solution: StepSolution) -> frozenset[tuple[str, str]]:
    """The exact builds that the index lacks, and that a page of wheels can have: `jaxlib==0.4.20+cuda11.cudnn86`."""
    pins = [pin for each in (solution.conflict, *solution.further_conflicts) for pin in _ABSENT_PIN.findall(each)]
    return frozenset(
        (normalize_name(name), version) for name, version in pins
        if ("+" in version or is_prerelease(version)) and normalize_name(name) not in TORCH_FAMILY
    )  # fmt: skip


def is_of_upper_limit(conflict: str, requirements: Sequence[InstallRequirement]) -> bool:
    """Whether a conflict is one with the upper limit of a package from a repository: its main branch can be newer."""
    from_repositories = {each.name for each in requirements if each.url}
    lowest = {each.name: found[1] for each in requirements if (found := _LOWEST.search(each.specifier))}
    return any(
        normalize_name(user) in from_repositories
        and (upper := _UPPER.search(specifier))
        and satisfies(lowest.get(normalize_name(name), "0"), specifier) is False
        and satisfies(lowest.get(normalize_name(name), "0"), f">={upper[1]}") is True
        for user, name, specifier in _BOUND.findall(conflict)
    )


def _clauses(specifier: str) -> frozenset[str]:
    return frozenset(part.strip(" .") for part in specifier.split(",") if part.strip(" ."))


def absent_extras(output: str) -> frozenset[tuple[str, str]]:
    """The packages that lack a requested extra, with the extra. uv warns, and installs nothing for it."""
    found = (_ABSENT_EXTRA.search(warning) for warning in parse_messages(output)["warning"])
    return frozenset((normalize_name(each[1]), each[2]) for each in found if each)


def conflicting_requirements(conflict: str, requirements: Sequence[str]) -> list[str]:
    """The requirements that a conflict names. What uv finds without them is a conflict of its own."""
    named = {normalize_name(name) for name in _WORD.findall(conflict)}
    return [text for text in requirements if _name(text) in named]


def requiring_requirements(conflict: str, requirements: Sequence[str]) -> list[str]:
    """The requirements to leave out for the next conflict: those whose dependencies are excluded.

    What they depend on stays: another requirement can exclude it as well. All that the conflict names without one.
    """
    named = conflicting_requirements(conflict, requirements)
    requiring = {normalize_name(name) for name in _DEPENDS.findall(conflict)}
    return [text for text in named if _name(text) in requiring] or named


def _name(text: str) -> str:
    match = re.match(_NAME, text)
    return normalize_name(match[0]) if match else ""


def accepted_by(requirements: Sequence[str], pins: Iterable[str]) -> frozenset[str]:
    """The installed releases that the requirements of a step itself accept."""
    stated = [name_and_specifier(text) for text in requirements]
    return frozenset(
        pin for pin in pins
        if not any(
            name == leading_name(pin) and specifier and satisfies(pin.partition("==")[2], specifier) is False
            for name, specifier in stated
        )
    )  # fmt: skip


def without_excluded(kept: frozenset[str], output: str) -> frozenset[str]:
    """The installed releases without those of the conflict; none if the conflict names none of them."""
    named = {normalize_name(word) for word in _WORD.findall(output)}
    excluded = {pin for pin in kept if leading_name(pin) in named}
    if any(leading_name(pin) == "torch" for pin in excluded):
        excluded |= {pin for pin in kept if BOUND_TO_TORCH.match(pin)}
    return kept - excluded if excluded else frozenset()


def without_parts_of_torch(pins: AbstractSet[str], replaced: Collection[str]) -> frozenset[str]:
    """The installed releases, without those of a torch that is replaced: an old one accepts any of its libraries."""
    is_kept = "torch" not in replaced
    return frozenset(pin for pin in pins if is_kept or not BOUND_TO_TORCH.match(pin))


def among_pins(solution: StepSolution, requirements: Sequence[str]) -> StepSolution | None:
    """The conflicts that another index cannot solve: those of releases that the step names exactly."""
    conflicts = [
        each for each in (solution.conflict, *solution.further_conflicts)
        if not absent_requirement(each, requirements)
        and all(_EXACT.search(text) for text in conflicting_requirements(each, requirements))
    ]  # fmt: skip
    return StepSolution(conflict=conflicts[0], further_conflicts=tuple(conflicts[1:])) if conflicts else None
