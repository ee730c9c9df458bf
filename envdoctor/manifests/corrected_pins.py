"""Exact requirements that correct a guide, and a profile in TOML that contains them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache

from msgspec.structs import replace
from packaging.requirements import InvalidRequirement, Requirement

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.guides import cuda_on_pypi
from envdoctor.knowledge.published import find_release, is_older_than_table, published_releases, usable_release
from envdoctor.knowledge.releases import leading_name
from envdoctor.knowledge.versions import is_prerelease, public_part, satisfies
from envdoctor.manifests.build_needs import needs_of_builds
from envdoctor.manifests.context import GuideContext, main_environment
from envdoctor.manifests.corrections import CorrectedEnvironment, estimate_period_end
from envdoctor.manifests.dropped_packages import (
    BEFORE_WITH_CONDA,
    NOT_FROM_INDEX,
    OF_ANOTHER_MACHINE,
    WITHOUT_NEED,
    WITHOUT_WHEEL,
    DroppedPackage,
)
from envdoctor.manifests.environment_state import IMAGE_ORIGIN, EnvironmentState
from envdoctor.manifests.local_wheels import LOCAL_FOLDER
from envdoctor.manifests.main_branches import unfit_branches
from envdoctor.manifests.page_builds import (
    CONDA_ONLY,
    builds_of_pages,
    commands_with_pages,
    installs_of_addresses,
    packages_of_conda,
    packages_of_unknown_version,
    releases_without_a_wheel,
)
from envdoctor.manifests.path_findings import distinguishing_names
from envdoctor.manifests.places import Place, first_place_of_torch, places_of
from envdoctor.manifests.set_cuda import cuda_build, unfit_torch
from envdoctor.manifests.set_profile import PinnedRequirement, newest_glibc, profile_toml
from envdoctor.manifests.shell_records import is_known
from envdoctor.manifests.source_projects import SourceProject, mark_uncompared, source_projects
from envdoctor.manifests.stated_cuda import StatedCuda, stated_cuda
from envdoctor.manifests.stated_python import python_origin
from envdoctor.manifests.step_resolution import URL_ORIGIN
from envdoctor.manifests.tested_versions import with_tested_versions
from envdoctor.resolution.requirement import InstallRequirement
from envdoctor.resolution.resolver import ResolvedPackage
from envdoctor.resolution.torch_sources import TORCH_FAMILY

# Packages that do not belong in a working environment -> their replacements, and the reason.
_REPLACEMENTS = {
    "pynvml": ("nvidia-ml-py", "deprecated in favour of nvidia-ml-py"),
    "flash-attn-3": ("", "empty on PyPI: install a wheel of FlashAttention 3 for this torch by its URL"),
    "triton-kernels": ("", "an unrelated package on PyPI"),
    "apex": ("", "an unrelated package on PyPI: install NVIDIA's from its repository, without build isolation"),
    "flash-attn": ("", WITHOUT_WHEEL),
}
_INSTALLERS = frozenset({"pip", "uv"})  # a set is independent of their release
_FOLDER_OF_A_FREEZE = lazy_pattern(r"@ file:/")  # of a pip freeze
_UBUNTU_GLIBC = "2.35"  # of Ubuntu 22.04


class CorrectedSet(Record, frozen=True, kw_only=True):
    """Requirements that correct one environment of a guide, and the environment that they are for."""

    branch: str = ""  # the alternatives that lead to this environment; empty without alternatives
    architecture: str
    glibc: str
    python: str = ""  # empty: not in the guide
    python_origin: str = ""  # the place that states it, if no command of the guide does
    permitted_python: str = ""  # a specifier
    cuda: str = ""  # CUDA version of torch's build; empty without torch, and for a CPU build
    stated_cuda: StatedCuda = StatedCuda()  # preferred for an open torch
    is_partial: bool = False  # the guide does not show all requirements
    unfit: str = ""  # the reason, if no build of torch runs on the machine of the guide
    exclude_newer: str = ""  # the last day of releases contemporary with the guide; empty without a limit
    image: str = ""  # a container image, whose packages remain
    contained: dict[str, str] = {}  # versions of packages in the image, such as NVIDIA's torch
    requirements: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()  # the same requirements, with the ranges of the guide
    own: tuple[str, ...] = ()  # the requirements of the guide itself, where nothing is wrong with them
    installed: tuple[str, ...] = ()  # the releases that the steps install today
    extras: dict[str, str] = {}  # of the requirements: "train,dev"
    oldest_day: str = ""  # of the pinned releases
    is_python_assumed: bool = False  # the guide names none
    built_later: tuple[str, ...] = ()  # solved pins of the guide's packages that have only a source archive
    source_only: tuple[str, ...] = ()  # pins of releases that have no wheel, as the audit found
    build_needs: dict[str, tuple[str, ...]] = {}  # of those, besides setuptools and wheel
    failing_builds: dict[str, str] = {}  # packages without a wheel whose build fails, with what to do
    from_pages: dict[str, str] = {}  # packages that a command takes from further pages of wheels, with the command
    built_with_torch: tuple[str, ...] = ()  # packages to whose isolated build tool.uv of the project adds torch
    preferences: tuple[str, ...] = ()  # pins of a lock, which uv keeps where it can
    dropped: tuple[DroppedPackage, ...] = ()
    sources: tuple[SourceProject, ...] = ()  # projects from repositories, with what they require of the set
    places: tuple[Place, ...] = ()  # the requirements of the environment in the text
    torch_place: Place | None = None  # the requirement of the first step that brings torch
    required_by: dict[str, str] = {}  # packages that the text does not name, and those that require them
    profile_toml: str = ""

    def with_lists(self, change: Callable[[tuple[str, ...]], tuple[str, ...]]) -> CorrectedSet:
        """The set with the same change of each of its lists of requirements."""
        return replace(
            self,
            requirements=change(self.requirements), wanted=change(self.wanted), own=change(self.own),
            installed=change(self.installed),
        )  # fmt: skip

    def with_requirement(self, name: str, text: str) -> CorrectedSet:
        """The set with another requirement in place of those of a name."""
        return self.with_lists(lambda listed: tuple(text if leading_name(each) == name else each for each in listed))


def corrected_sets(contexts: Sequence[GuideContext]) -> tuple[CorrectedSet, ...]:
    """The corrected set of each path through a guide. Equal sets are joined."""
    sets: dict[tuple[object, ...], CorrectedSet] = {}
    found: set[tuple[object, ...]] = set()  # also those without requirements
    guides = [each.guide for each in contexts]
    for context in contexts:
        main = main_environment(context)
        branches = distinguishing_names([context.guide], guides) if len(contexts) > 1 else []
        for environment in [main, *_other_environments(context, main)]:
            corrected = _corrected_set(context, environment)
            named = [] if environment is main or not environment else [f"environment {environment.state.name}"]
            key = (corrected.architecture, corrected.cuda, corrected.image, corrected.requirements)
            found.add(key)
            if corrected.requirements or not sets:
                sets.setdefault(key, replace(corrected, branch=" + ".join([*branches, *named])))
    filled = [corrected for corrected in sets.values() if corrected.requirements]
    if len(found) == 1 and filled:  # all paths lead to it
        filled = [replace(filled[0], branch="")]
    return tuple(filled) or tuple(sets.values())


def _other_environments(context: GuideContext, main: CorrectedEnvironment | None) -> Iterator[CorrectedEnvironment]:
    """The further environments of a guide, with the packages that its steps name."""
    for environment in context.environments:
        state = environment.state
        is_other = main is not None and state.name not in ("", main.state.name) and not state.is_superseded
        if is_other and any(package.origin != IMAGE_ORIGIN for package in state.requested.values()):
            yield environment


def _corrected_set(context: GuideContext, environment: CorrectedEnvironment | None) -> CorrectedSet:
    if environment is None:
        return CorrectedSet(architecture=context.platform, glibc="2.28")
    environment = with_tested_versions(context, environment)
    cuda = cuda_build(context, _image_torch(environment) or _own_torch(environment))
    commands = installs_of_addresses(context, environment.state)
    pins, dropped = _corrected_pins(environment, context.platform, cuda, commands)
    pins += _unresolved_pins(environment, context, {*environment.state.requested, *(each.name for each in dropped)})
    of_pages = builds_of_pages(context, environment.state)
    pins = [pin for pin in pins if _name_of(pin) not in of_pages]
    unfit = unfit_branches(context, environment.state)
    dropped = [replace(each, reason=unfit.get(each.name, each.reason)) for each in dropped]
    named = {each.name for each in dropped}
    left = of_pages | packages_of_conda(context, environment.state, {*environment.packages, *map(_name_of, pins)})
    known = {*environment.state.requested, *environment.packages, *map(_name_of, pins)}
    left |= {name: NOT_FROM_INDEX.format(command) for name, command in commands.items() if name not in known}
    unknown = packages_of_unknown_version(context, environment.state)
    left |= {name: reason for name, reason in unknown.items() if name not in set(map(_name_of, pins))}
    dropped += [DroppedPackage(name, reason) for name, reason in left.items() if name not in named]
    period_end = estimate_period_end(environment.state)
    sources = source_projects(context, environment.state, period_end)
    return CorrectedSet(
        architecture=context.platform,
        glibc=_glibc_of_target(environment, context.platform),
        python=_python_of(context, environment.state),
        python_origin="" if environment.state.python_line > 0 else python_origin(context.guide, environment.state),
        permitted_python=context.guide.permitted_python,
        is_python_assumed=not (environment.state.python or context.guide.stated_machine.python),
        cuda=cuda,
        stated_cuda=stated_cuda(context.guide, environment.state, cuda),
        is_partial=environment.state.resolution == "partial",
        unfit=unfit_torch(context, environment),
        exclude_newer=period_end if period_end < context.trace.today else "",
        image=environment.state.image,
        contained=_image_packages(environment),
        requirements=tuple(pin.spec for pin in pins),
        wanted=tuple(pin.wanted or pin.spec for pin in pins),
        own=tuple(_own_requirement(pin, environment) for pin in pins),
        installed=tuple(_installed_release(pin, environment) for pin in pins),
        extras=_extras(environment),
        oldest_day=_oldest_day(environment.state),
        source_only=tuple(releases_without_a_wheel(context, environment.state)),
        build_needs=needs_of_builds(context, environment.state),
        from_pages=commands_with_pages(context, environment.state),
        built_with_torch=tuple(sorted(frozenset().union(*_built_with_torch(context, environment.state)))),
        dropped=tuple(mark_uncompared(dropped, sources)),
        sources=sources,
        places=tuple(places_of(environment, context)),
        torch_place=first_place_of_torch(environment, context),
        required_by={
            name: package.reason.removeprefix("required by ").partition(" ")[0]
            for name, package in environment.packages.items()
            if package.is_dependency
        },
        profile_toml=profile_toml(context, environment, pins, cuda),
    )


def _built_with_torch(context: GuideContext, state: EnvironmentState) -> Iterator[frozenset[str]]:
    """The packages that the installations of an environment build with torch."""
    yield from (each.action.built_with_torch for each in context.trace.installs if each.after.name == state.name)


def _own_requirement(pin: PinnedRequirement, environment: CorrectedEnvironment) -> str:
    """The requirement as the guide has it, also where a later step replaced what it installs."""
    name = _name_of(pin)
    requested = environment.state.requested.get(name)
    if requested is None or not requested.pinned or not published_releases(name):
        return pin.wanted or pin.spec
    return _normalized(f"{name}=={_usable_version(name, requested.version)}") or pin.wanted or pin.spec


def _usable_version(name: str, version: str) -> str:
    """The version, or the next one where it was yanked or never released. The tables do not have the oldest ones."""
    version = public_part(version)
    release = None if is_older_than_table(name, version) else usable_release(name, version)
    return release.version if release else version


def _installed_release(pin: PinnedRequirement, environment: CorrectedEnvironment) -> str:
    """The release that the steps install today; the requirement where it is not known."""
    name = _name_of(pin)
    package = environment.state.packages.get(name)
    version = public_part(package.version) if package and "nightly" not in package.origin else ""
    return _normalized(f"{name}=={version}") if version else pin.wanted or pin.spec


@cache
def _name_of(pin: PinnedRequirement) -> str:
    return Requirement(pin.spec).name


def _extras(environment: CorrectedEnvironment) -> dict[str, str]:
    """The extras with which the guide requires packages."""
    found = {
        name: re.match(r"[\w.-]+\s*\[([\w.,\s-]+)\]", package.reason)
        for name, package in environment.state.requested.items()
        if package.origin == "PyPI"
    }
    return {name: "".join(match[1].split()) for name, match in found.items() if match}


def _oldest_day(state: EnvironmentState) -> str:
    """The day of the oldest pinned release; empty if no pin is known."""
    pinned = (package for package in state.requested.values() if package.pinned)
    days = (release.date for each in pinned if (release := find_release(each.name, public_part(each.version))))
    return min(days, default="")


def _python_of(context: GuideContext, state: EnvironmentState) -> str:
    """The Python of an environment: its own, else that for which its steps were solved, else that of the text."""
    if re.fullmatch(r"3\.\d+", state.python):
        return state.python
    return context.trace.python if context.trace.targets else context.guide.stated_machine.python


def _unresolved_pins(
    environment: CorrectedEnvironment, context: GuideContext, known: Collection[str]
) -> list[PinnedRequirement]:
    """The requirements of the guide of which no release was determined, as they are."""
    installs = [each for each in context.trace.installs if each.after.name == environment.state.name]
    specs: dict[str, str] = {}
    for action in (each.action for each in installs if each.action.tool != "conda"):
        invalid = [each for each in action.unknown if not each.has_valid_specifier and is_known(each.text)]
        for each in (*action.requirements, *invalid):
            if each.name and each.name not in {*known, *_REPLACEMENTS, *_INSTALLERS} and not each.url:
                specifier = each.specifier if each.has_valid_specifier else ""  # any release, where pip refuses it
                specs[each.name] = _normalized(f"{each.name}{_possible_specifier(each.name, specifier)}")
    return [PinnedRequirement(spec, wanted=spec) for spec in specs.values() if spec]


def _possible_specifier(name: str, specifier: str) -> str:
    """The versions of a requirement; for a release that does not exist, the nearest one that does."""
    pin = InstallRequirement(name, specifier).pin
    return f"=={_usable_version(name, pin)}" if pin and published_releases(name) else specifier


def _image_packages(environment: CorrectedEnvironment) -> dict[str, str]:
    """The versions of the packages that the name of the image states."""
    return {
        name: package.version
        for name, package in environment.state.requested.items()
        if package.origin == IMAGE_ORIGIN and not package.is_dependency
    }


def _image_torch(environment: CorrectedEnvironment) -> ResolvedPackage | None:
    torch = environment.state.requested.get("torch")
    return torch if torch and torch.origin == IMAGE_ORIGIN else None


def _own_torch(environment: CorrectedEnvironment) -> ResolvedPackage | None:
    """The torch that the guide pins, unless a rule changes its pin; else that of the corrected environment."""
    own, torch = environment.state.requested.get("torch"), environment.packages.get("torch")
    is_changed = any(each.package.name == "torch" and each.pinned and each.version for each in environment.all_pins)
    return own if own and own.pinned and torch and not is_changed else torch


def _corrected_pins(
    environment: CorrectedEnvironment, platform: str, cuda: str, commands: Mapping[str, str]
) -> tuple[list[PinnedRequirement], list[DroppedPackage]]:
    """Exact requirements, and the packages of the guide that are not among them; `commands` install those."""
    changes = {change.package.name: change for change in environment.all_pins if change.version}
    image = {name for name, package in environment.state.requested.items() if package.origin == IMAGE_ORIGIN}
    kept = set(TORCH_FAMILY) | image if image else image
    pins: list[PinnedRequirement] = []
    dropped: list[DroppedPackage] = []
    named = {*environment.state.requested, *changes}
    torch = environment.packages.get("torch")
    if torch and cuda and cuda != cuda_on_pypi(public_part(torch.version), platform):
        named.add("torch")  # the default index has another build
    for name in dict.fromkeys([*environment.state.requested, *environment.packages]):
        package = environment.packages.get(name)
        if name in kept or name not in named or name in _INSTALLERS:
            continue
        requested = environment.state.requested.get(name)
        spec, reason = _requirement_text(name, package, commands.get(name, ""))
        if package is None and not reason and requested and not requested.wheel:
            spec = _normalized(f"{name}{_possible_specifier(name, requested.specifier)}")  # the solver decides
        if reason:
            dropped.append(DroppedPackage(name, reason))
        if spec:
            violation = changes[name].violation if name in changes else None
            why, url = (violation.problem.message, violation.rule.url) if violation else ("", "")
            # Where the guide's own requirements exclude each other, the solver decides which of them gives way.
            is_open = not requested or not requested.pinned or environment.state.resolution == "conflict"
            wanted = (
                f"{name}{requested.specifier if requested else ''}"
                if is_open and not violation and not reason
                else spec
            )
            pins.append(PinnedRequirement(spec, why, url, _normalized(wanted)))
    return pins + _setuptools_pin(environment), dropped


def _requirement_text(name: str, package: ResolvedPackage | None, command: str) -> tuple[str, str]:
    """The requirement for a package (empty to omit it), and the reason for which the package itself is omitted."""
    replacement, reason = _REPLACEMENTS.get(name, (name, ""))
    if reason and not (name == "apex" and package and package.origin != "PyPI"):
        return replacement, reason
    if package and (name in CONDA_ONLY or (package.origin == "conda" and not published_releases(name))):
        return "", WITHOUT_NEED if name in CONDA_ONLY else BEFORE_WITH_CONDA.format(package.reason)
    is_valid = bool(re.fullmatch(r"[a-z0-9][a-z0-9-]*", name))
    if package and (package.origin in (URL_ORIGIN, LOCAL_FOLDER) or (is_valid and not package.version)):
        return _of_an_address(name, package.reason, command)
    if package is None or not is_valid:
        return "", "" if is_valid else "its name is not valid"
    version = public_part(package.version)
    if is_prerelease(version) or not published_releases(name):
        return _normalized(f"{name}{package.specifier}") if package.specifier else name, ""
    return _normalized(f"{name}=={_usable_version(name, version)}"), ""


def _of_an_address(name: str, requirement: str, command: str) -> tuple[str, str]:
    """No requirement but a command; for a folder of another machine, any release of a package of the tables."""
    if _FOLDER_OF_A_FREEZE.search(requirement):
        return (name, "") if published_releases(name) else ("", OF_ANOTHER_MACHINE)
    return "", NOT_FROM_INDEX.format(command or shell_command("uv pip install {}", requirement))


@cache
def _normalized(text: str) -> str:
    try:
        return str(Requirement(text))
    except InvalidRequirement:
        return ""


def _setuptools_pin(environment: CorrectedEnvironment) -> list[PinnedRequirement]:
    """triton 3.1 imports setuptools, but torch 2.5 requires setuptools on Python 3.12 and newer only."""
    triton = environment.packages.get("triton")
    in_image = any(package.origin == IMAGE_ORIGIN for package in environment.state.requested.values())
    if triton and not in_image and satisfies(triton.version, "<3.2") and "setuptools" not in environment.packages:
        why = f"triton {triton.version} imports it; torch requires it from Python 3.12 on only"
        return [PinnedRequirement("setuptools<80", why)]
    return []


def _glibc_of_target(environment: CorrectedEnvironment, platform: str) -> str:
    """The glibc of the image or the machine; without one that of Ubuntu 22.04, or what wheels need."""
    stated = environment.state.glibc
    if re.fullmatch(r"2\.\d+", stated):
        return stated
    return max(newest_glibc(environment, platform), _UBUNTU_GLIBC, key=lambda version: int(version.partition(".")[2]))
