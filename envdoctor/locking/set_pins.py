"""The texts of a solved set: its pins, limits for another solution, and what installs the rest of its packages."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence

from packaging.requirements import Requirement

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.guides import cuda_on_pypi
from envdoctor.knowledge.releases import leading_name, normalize_name
from envdoctor.knowledge.source_needs import needs_of_build
from envdoctor.knowledge.versions import satisfies
from envdoctor.manifests import CorrectedSet
from envdoctor.manifests.dropped_packages import BUILT_FROM_SOURCE, BUILT_WITHOUT_TORCH, FAILING_BUILD, NO_WHEEL
from envdoctor.resolution.torch_sources import TORCH_FAMILY

_CUDA_PAGE = lazy_pattern(r"(?:-f|--find-links)[ =]\S*\bcu\d{2,3}")
_TORCH = frozenset({"torch", "pytorch", "pytorch-gpu"})  # also of conda
_UNKNOWN = lazy_pattern(r"([A-Za-z0-9][\w.-]*) was not found in the package registry")


def limit_of_pin(pin: str, versions: Mapping[str, str]) -> str:
    """A bound in the direction of a pin, which other requirements may not permit exactly; empty if it is solved.

    The range of a remedy is a bound itself, of a package that the set has. A name alone is that of a missing package.
    """
    name, _, version = pin.partition("==")
    if not version:
        wanted = Requirement(pin)
        solved = versions.get(normalize_name(wanted.name), "").partition("+")[0]
        if not solved:
            return "" if wanted.specifier else wanted.name
        return f"{wanted.name}{wanted.specifier}" if solved not in wanted.specifier else ""
    solved = versions.get(name, "").partition("+")[0]
    if not solved:
        return pin
    is_lower = satisfies(version, f"<{solved}")
    return "" if version == solved else f"{name}{'<=' if is_lower else '>='}{version}"


def limits_of_pins(pins: Iterable[str], versions: Mapping[str, str], fixed: Collection[str]) -> list[str]:
    """The limits in the direction of pins, without those of packages whose version the guide states."""
    open_pins = (pin for pin in pins if Requirement(pin).name not in fixed)
    return list(dict.fromkeys(limit for pin in open_pins if (limit := limit_of_pin(pin, versions))))


def without_lower_bounds(limits: Sequence[str]) -> list[str]:
    """The other limits, if some of the limits are lower bounds; none otherwise."""
    upper = [limit for limit in limits if ">=" not in limit]
    return upper if len(upper) < len(limits) else []


def way_to_build(pin: str, corrected: CorrectedSet, versions: Mapping[str, str]) -> str:
    """What installs a package that has only a source archive on the index: in isolation where a set has no torch."""
    name = pin.partition("==")[0]
    if command := corrected.from_pages.get(name, ""):
        return NO_WHEEL.format(command)
    if fix := corrected.failing_builds.get(name, ""):
        return FAILING_BUILD.format(f"{fix[:1].lower()}{fix[1:]}".rstrip("."))
    needs = needs_of_build(name)
    installed = {*versions, *corrected.contained, *(each.name for each in corrected.dropped)}
    if installed.isdisjoint(_TORCH):
        way = BUILT_WITHOUT_TORCH
    else:
        further = [each for each in corrected.build_needs.get(name, ()) if leading_name(each) not in installed]
        way = BUILT_FROM_SOURCE.replace(" wheel`", f" {shlex.join(['wheel', *further])}`")
    return way.format(shlex.quote(pin)) + (f"; {needs}" if needs else "")


def note_on_pages(pins: Sequence[str], corrected: CorrectedSet) -> str:
    """The packages that the file takes from pages with builds for CUDA, which were not read; empty without any."""
    names = (pin.partition("==")[0] for pin in pins)
    commands = {name: corrected.from_pages.get(name, "") for name in names if name not in TORCH_FAMILY}
    return "; ".join(
        f"{name} is the build of PyPI, which can lack CUDA: `{command}` of the file installs another build"
        for name, command in commands.items()
        if _CUDA_PAGE.search(command)
    )


def backend_of(corrected: CorrectedSet) -> str:
    """The backend of the PyTorch index that has torch's build; empty if PyPI has it, or an image contains torch."""
    pins = {Requirement(text).name: text.partition("==")[2] for text in corrected.requirements}
    if not corrected.cuda or not pins.get("torch"):
        return ""
    on_pypi = cuda_on_pypi(pins["torch"], corrected.architecture)
    return "" if on_pypi == corrected.cuda else f"cu{corrected.cuda.replace('.', '')}"


def pinned(requirements: Sequence[str], versions: Mapping[str, str]) -> tuple[str, ...]:
    """The requirements with the solved versions; local versions of a build are left to the backend."""
    names = dict.fromkeys(Requirement(text).name for text in requirements)
    return tuple(
        f"{name}=={versions[normalize_name(name)].partition('+')[0]}"
        for name in names
        if normalize_name(name) in versions
    )


def unknown_requirement(conflict: str, requirements: Sequence[str]) -> str:
    """The requirement for a package that the index does not have; empty if the conflict is another one."""
    found = _UNKNOWN.search(conflict)
    name = normalize_name(found[1]) if found else ""
    return next((text for text in requirements if name and normalize_name(Requirement(text).name) == name), "")
