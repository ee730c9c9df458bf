"""Releases without a wheel, as uv names them where it may not build: an installer builds them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.published import find_release
from envdoctor.knowledge.releases import leading_name, normalize_name, parse_requirement
from envdoctor.knowledge.versions import newest_patch, public_part, satisfies
from envdoctor.resolution.index_facts import IndexFacts
from envdoctor.resolution.step import StepSolution

Release = tuple[str, str]  # name and version

_NO_WHEEL = lazy_pattern(
    r"\b([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?((?:[=<>!~]=?[\w.*+!-]+,?)*) ha(?:s|ve) no usable wheels"
)
_EXACT = lazy_pattern(r"==([\w.+!-]+)")
_OLDER = lazy_pattern(r">=\S*,<=([\w.+!-]+)")
_DEPENDS = r"depends on {}(?:\[[^\]]*\])?(?:\{{[^}}]*\}})?([=<>!~][^\s]*[\w*])"


def newer_source(index: IndexFacts | None, pin: str, solution: StepSolution, python: str) -> set[Release]:
    """The newest release with only a source archive, newer than that of a solution; empty if there is none.

    The newest release can have a wheel, and not fit the other requirements: moviepy 2 requires NumPy 1.25, and 1.0.3
    has no wheel.
    """
    name = leading_name(pin)
    for each in reversed(index.usable_releases(name) if index else ()):
        if satisfies(each.version, f">{public_part(solution.versions[name])}") is not True:
            break
        if not each.has_wheel and satisfies(newest_patch(python), each.requires_python) is not False:
            return {(name, each.version)}
    return set()


def releases_to_build(
    output: str, requirements: Iterable[str], find_newest: Callable[[Mapping[str, str]], set[Release]]
) -> set[Release]:
    """The releases that uv rejected because they have no wheel.

    Where uv names only a package, `find_newest` finds the newest release in the range of the requirements. A range of
    older releases counts only if uv names nothing else: newer ones require what has no wheel, and are preferred.
    """
    found: set[Release] = set()
    older: set[Release] = set()
    ranges: dict[str, str] = {}
    plain = " ".join(output.split())
    stated = {name: specifier for text in requirements for name, specifier in [name_and_specifier(text)]}
    for match in _NO_WHEEL.finditer(plain):
        name = normalize_name(match[1])
        if exact := _EXACT.fullmatch(match[2]):
            found.add((name, exact[1]))
            continue
        if range_of_older := _OLDER.fullmatch(match[2]):
            older.add((name, range_of_older[1]))
            continue
        bounds = re.search(_DEPENDS.format(re.escape(name)), plain)
        ranges[name] = match[2] or stated.get(name, "") or (bounds[1] if bounds else "")
    return found | (find_newest(ranges) if ranges else set()) or older


def needs_newer_python(name: str, version: str, python: str) -> bool:
    """Whether a release has wheels for newer Pythons only, one of which it requires: its source is of no use."""
    release = find_release(name, version)
    tags = [tag.rstrip("+") for tag in release.pythons] if release and release.kind == "wheels" else []
    return bool(tags) and all(satisfies(tag, f">{python}") for tag in tags)


def builds_that_exclude(
    installed: Mapping[str, str], solution: StepSolution, requires: Callable[[str, str], Iterable[str]]
) -> dict[str, str]:
    """The releases of a solution that an installer builds, and because of which an installed release is replaced."""
    replaced = {
        name: version for name, version in installed.items()
        if solution.versions.get(name, version) != version
    }  # fmt: skip
    return {
        name: solution.versions[name]
        for name in sorted(solution.built) if replaced
        for each in map(parse_requirement, requires(name, solution.versions[name]))
        if each and each.name in replaced and satisfies(public_part(replaced[each.name]), each.specifier) is False
    }  # fmt: skip


def name_and_specifier(text: str) -> tuple[str, str]:
    """The name and the specifier of a requirement."""
    match = re.match(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?([^;]*)", text)
    return (normalize_name(match[1]), match[2].strip()) if match else ("", "")
