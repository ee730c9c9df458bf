"""The packages that an install step brings into an environment."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import get_args

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.published import published_releases, releases_in_range
from envdoctor.knowledge.python_limits import supports_python
from envdoctor.knowledge.releases import releases_that_pin, required_specifier
from envdoctor.knowledge.torch_builds import known_builds, torch_releases
from envdoctor.knowledge.versions import cuda_of_local, dotted_numbers, public_part, satisfies
from envdoctor.manifests.actions import Install, torch_source
from envdoctor.manifests.environment_state import EnvironmentState
from envdoctor.manifests.local_wheels import LOCAL_FOLDER
from envdoctor.manifests.numpy_limits import WITHOUT_LIMIT
from envdoctor.resolution.requirement import InstallRequirement, parse_wheel_name
from envdoctor.resolution.resolver import Resolution, ResolutionState, ResolvedPackage, Resolver, ResolverTarget
from envdoctor.resolution.step import StepProblem, StepSolution, StepSolver
from envdoctor.resolution.torch_sources import TORCH_FAMILY, cuda_name

# A feed of Azure Artifacts, /_packaging/NAME/pypi/simple, has packages of its own.
_HOST = lazy_pattern(r"https?://[^$/{]*\.[a-z]{2,}(?:[:/]|$)")
_PUBLIC = lazy_pattern(
    r"//mirrors?\.|//(?:[\w-]+\.)*(?:pypi\.org|pypi\.python\.org|tuna\.tsinghua\.edu\.cn|ustc\.edu\.cn|aliyun(?:cs)?\.com|douban(?:io)?\.com"
    r"|tencent(?:yun)?\.com|baidu\.com|huaweicloud\.com|volces\.com|bfsu\.edu\.cn|sjtug?\.edu\.cn|nju\.edu\.cn|zju\.edu\.cn"
    r"|hust\.edu\.cn|sustech\.edu\.cn|pku\.edu\.cn|lzu\.edu\.cn|163\.com|kakao\.com|yandex\.ru)[:/]"
)
_MIRROR = lazy_pattern(_PUBLIC.pattern + r"|^(?!.*/_packaging/).*//[^/]+/.*pypi")

# Indexes of one project, with its packages: all others come from PyPI. Read on 2026-11-26.
_OF_PROJECTS = {
    "flashinfer.ai/whl": frozenset({"flashinfer", "flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache"}),
}

LAST_CONDA_TORCH = "2.5.1"  # in the channel pytorch, which ended: pytorch.org, 2026-11-26
URL_ORIGIN = "a direct URL"  # origin of packages from a wheel or a repository
COMPANIONS = ("torchvision", "torchaudio")
_CONDA_TORCH = frozenset({"pytorch", "pytorch-gpu", "pytorch-cpu"})
CONDA_NAMES = dict.fromkeys(_CONDA_TORCH, "torch")
_OF_UV = lazy_pattern(r"(?:[A-Za-z_]\w{0,60}=\S{0,200} +)*uv ")  # `GIT_LFS_SKIP_SMUDGE=1 uv pip install -e .`


def resolve_step(
    action: Install, before: EnvironmentState, target: ResolverTarget, solver: StepSolver | None
) -> Resolution:
    """Resolve a step: with the solver if there is one, else from the built-in tables.

    After a step without a solution there is no environment that later steps could change: only their own
    requirements are compared.
    """
    if action.tool == "conda":
        return Resolution(_resolve_conda(action, target.exclude_newer, before), ())
    resolver = Resolver(
        target._replace(python=before.python),
        before.packages,
        upgrade=action.upgrade or action.reinstall,
        with_dependencies=not action.no_deps,
        keeps_installed=True,
    )
    known = resolver.resolve(action.requirements, (*action.constraints, *action.overrides))
    if solver is None or action.no_index:
        return known
    if before.resolution == "conflict":
        # What is installed is not known, but requirements that exclude each other do so in any environment.
        alone = solver(_problem(action, before._replace(packages={}), target, known))
        conflicts = (alone.conflict, *alone.further_conflicts) if alone else ("",)
        return known._replace(state="conflict", conflict=conflicts[0], further_conflicts=conflicts[1:])
    apart = _triton_of_conda_torch(action, before)
    solved_action = action._replace(requirements=tuple(each for each in action.requirements if each not in apart))
    solution = solver(_problem(solved_action, before, target, known))
    if solution is None:
        return known if _are_limits_known(action, before) else known._replace(state="unresolved")
    if solution.conflict:
        return known._replace(
            state="conflict", conflict=solution.conflict, further_conflicts=solution.further_conflicts
        )
    from_page = [each for each in solved_action.requirements if has_other_index(action) and _lacks(solution, each)]
    is_open = has_other_index(action) and not all(each.pin or each.url for each in action.requirements)
    is_partial = from_page or is_open or _has_unknown_requirements(action)
    state: ResolutionState = "partial" if is_partial else "solved"
    packages = dict(_packages(action, before.packages, solution))
    kept = (*apart, *from_page)
    packages |= {each.name: known.packages[each.name] for each in kept if each.name in known.packages}
    return Resolution(packages, (), state, built=solution.built,
                      absent_extras=solution.absent_extras, refused=solution.refused)  # fmt: skip


def _lacks(solution: StepSolution, requirement: InstallRequirement) -> bool:
    """Whether the indexes that uv reads do not have a package: another index of the step brings it."""
    return not requirement.url and requirement.name not in solution.versions


def _triton_of_conda_torch(action: Install, before: EnvironmentState) -> tuple[InstallRequirement, ...]:
    """The triton that pip installs next to the torch of conda, whose metadata names no triton.

    The wheel of the same release on PyPI pins triton: a solver that reads it would replace torch.
    """
    torch = before.packages.get("torch")
    if torch is None or torch.origin != "conda" or any(each.name == "torch" for each in action.requirements):
        return ()
    return tuple(each for each in action.requirements if each.name == "triton" and each.pin)


def _problem(action: Install, before: EnvironmentState, target: ResolverTarget, known: Resolution) -> StepProblem:
    """The step as a problem for the solver. Nightly builds of torch have the release that the tables name."""
    indexes = (action.index_url, *action.extra_indexes, *action.find_links)
    of_projects = {
        name for part, names in _OF_PROJECTS.items() for name in names if any(part in url for url in indexes)
    }
    requirements = [
        requirement._replace(specifier=f"=={known.packages[requirement.name].version}.dev0")
        if target.source.nightly and not requirement.url and not requirement.pin
        and requirement.name in TORCH_FAMILY and requirement.name in known.packages
        else requirement
        for requirement in action.requirements
        if requirement.name not in of_projects or requirement.url
    ]  # fmt: skip
    named = frozenset(requirement.name for requirement in action.requirements)
    upgraded: frozenset[str] = frozenset()
    if action.upgrade or action.reinstall:
        upgraded = frozenset(before.packages) if action.tool == "uv" and action.upgrade else named
    # An index without upload dates would have no releases before a day: only the limit of the guide itself counts.
    target = target._replace(exclude_newer=action.exclude_newer or "9")
    return StepProblem(
        tuple(requirements), action.constraints, action.overrides, before.packages, target, upgraded,
        not action.no_deps, has_other_index(action), _is_of_uv(action),
    )  # fmt: skip


def _is_of_uv(action: Install) -> bool:
    """Whether uv alone installs a step: a file of requirements and a project can be installed with pip as well."""
    return action.tool == "uv" and bool(_OF_UV.match(action.command)) and " -r " not in action.command


def _has_unknown_requirements(action: Install) -> bool:
    """Whether a step installs the project of the guide, or a file of requirements, that is not available."""
    is_file = not action.requirements and re.search(r" -r\b| --requirement", action.command)
    unread = (each.url for each in action.requirements if each.url not in action.read)
    is_project = any(re.match(r"\.{1,2}/?(?:\[|$)", url) for url in unread)
    return bool(action.unknown or is_file or is_project)


def _are_limits_known(action: Install, before: EnvironmentState) -> bool:
    """Whether the tables contain the requirements of all packages, so that nothing else limits an open version."""
    named = [*action.requirements, *action.unknown]
    packages = [*before.packages.values(), *before.requested.values()]
    names = {each.name for each in named} | {package.name for package in packages}
    is_complete = all(name in WITHOUT_LIMIT or published_releases(name) for name in names)
    return is_complete and not any(each.url for each in named) and all(package.version for package in packages)


def less_certain(first: ResolutionState, second: ResolutionState) -> ResolutionState:
    """The less certain of two states."""
    order = get_args(ResolutionState)
    return max(first, second, key=order.index)


def has_other_index(action: Install) -> bool:
    """Whether a step takes packages from an index that is neither PyPI, a mirror of it, nor that of PyTorch."""
    return bool(other_indexes(action))


def other_indexes(action: Install) -> list[str]:
    """The indexes and pages of a step that are neither PyPI, a mirror of it, nor those of PyTorch."""
    urls = (action.index_url, *action.extra_indexes, *action.find_links)
    return [
        url
        for url in urls
        if url
        and not _is_pypi(url)
        and not url.startswith("https://pypi.nvidia.com")  # packages that PyPI does not have
        and not any(part in url for part in _OF_PROJECTS)
        and torch_source(action._replace(index_url=url, extra_indexes=(), find_links=(), torch_backend="")).backend
        == ""
    ]


def page_of_project(action: Install, name: str) -> str:
    """The page of a step from which a project gives a package that PyPI does not have: `flashinfer -i URL`."""
    urls = (action.index_url, *action.extra_indexes, *action.find_links)
    pages = (url for part, names in _OF_PROJECTS.items() if name in names for url in urls if part in url)
    return "" if published_releases(name) else next(pages, "")


def has_unknown_mirror(action: Install) -> bool:
    """Whether a step names an index whose path names PyPI, and which can have packages of its own as well."""
    urls = (action.index_url, *action.extra_indexes)
    return any(url and _HOST.match(url) and _is_pypi(url) and not _PUBLIC.search(url) for url in urls)


def _is_pypi(url: str) -> bool:
    """Whether an index is PyPI or a mirror: a known host, or a repository manager whose path names PyPI.

    The packages of a project of its own, such as pypi.taichi.graphics, are not those of PyPI.
    """
    path = url.partition("?")[0].partition("#")[0].rstrip("/")
    return path.endswith("/simple") and (not _HOST.match(path) or bool(_MIRROR.search(path)))


def _packages(
    action: Install, installed: Mapping[str, ResolvedPackage], solution: StepSolution
) -> Iterator[tuple[str, ResolvedPackage]]:
    """The packages of a solution, each with the requirement of the guide that it comes from."""
    requirements = _by_name(action.requirements)
    for name, full in solution.versions.items():
        version = public_part(full) if name in TORCH_FAMILY or full.endswith("+installed") else full
        before, requirement = installed.get(name), requirements.get(name)
        if (
            before
            and public_part(before.version) == public_part(version)
            and not _is_other_build(before, requirement)
        ):
            yield name, _required_today(before, solution)
        elif requirement:
            yield name, ResolvedPackage(
                name, version, requirement.line, requirement.text, bool(requirement.pin),
                specifier=requirement.specifier,
            )  # fmt: skip
        else:
            requiring = _requiring(name, solution, requirements)
            line = requirements[requiring[-1]].line if requiring[-1] in requirements else action.line
            preferred = [each for each in solution.required_by.get(name, ()) if each in requirements]
            first = _excluding(name, before.version if before else "", solution)
            first = first or _limiting(name, full, solution, [*preferred, requiring[0]]) or requiring[0]
            reason = f"required by {first} {public_part(solution.versions.get(first, ''))}".rstrip()
            yield name, ResolvedPackage(name, version, line, reason)


def _is_other_build(installed: ResolvedPackage, requirement: InstallRequirement | None) -> bool:
    """Whether a pin names the build for another CUDA version than the installed one: `torch==1.12.1+cu116`."""
    cuda = cuda_of_local(requirement.pin) if requirement else ""
    return bool(cuda and installed.cuda) and cuda != installed.cuda


def _by_name(requirements: Sequence[InstallRequirement]) -> dict[str, InstallRequirement]:
    """The requirement of each package: of several entries the one that states an exact version, with all ranges."""
    entries: dict[str, list[InstallRequirement]] = {}
    for each in requirements:
        entries.setdefault(each.name, []).append(each)
    return {name: _joined(each) for name, each in entries.items()}


def _joined(entries: Sequence[InstallRequirement]) -> InstallRequirement:
    stated = [each for each in entries if each.specifier]
    first = next((each for each in stated if each.pin), next(iter(stated), entries[0]))
    ranges = dict.fromkeys(each.specifier for each in stated)
    return first if first.pin else first._replace(specifier=",".join(ranges))


def _required_today(before: ResolvedPackage, solution: StepSolution) -> ResolvedPackage:
    """An installed dependency, with the release that requires it after the step in its reason."""
    name, _, version = before.reason.removeprefix("required by ").partition(" ")
    new = public_part(solution.versions.get(name, ""))
    if not before.is_dependency or not version or new in ("", version):
        return before
    return before._replace(reason=f"required by {name} {new}")


def _excluding(name: str, installed: str, solution: StepSolution) -> str:
    """The package whose range excludes the installed release of a dependency; empty if the tables name none."""
    requiring = [each for each in solution.required_by.get(name, ()) if each not in TORCH_FAMILY]
    for each in requiring if installed else ():
        specifier = required_specifier(each, solution.versions.get(each, ""), name)
        if specifier and satisfies(public_part(installed), specifier) is False:
            return each
    return ""


def _limiting(name: str, version: str, solution: StepSolution, preferred: Sequence[str]) -> str:
    """The package because of whose range a dependency is not the newest release; empty if the tables name none."""
    newest = next((row.version for row in releases_in_range(name, "")), "")
    if not newest or public_part(version) == newest:
        return ""
    for each in (*preferred, *solution.required_by.get(name, ())):
        specifier = required_specifier(each, solution.versions.get(each, ""), name)
        if specifier and satisfies(newest, specifier) is False:
            return each
    return ""


def _requiring(name: str, solution: StepSolution, requirements: Mapping[str, InstallRequirement]) -> list[str]:
    """The packages that lead from a dependency to a requirement of the step, the shortest way."""
    ways, seen = [[name]], {name}
    while ways:
        way = ways.pop(0)
        if way[-1] in requirements and len(way) > 1:
            return way[1:]
        for each in solution.required_by.get(way[-1], ()):
            if each not in seen:
                seen.add(each)
                ways.append([*way, each])
    return [next(iter(solution.required_by.get(name, ())), name)]


def _resolve_conda(action: Install, exclude_newer: str, before: EnvironmentState) -> dict[str, ResolvedPackage]:
    """The packages of a step with conda, which keeps an installed release that satisfies the step."""
    packages: dict[str, ResolvedPackage] = {}
    names = {requirement.name for requirement in action.requirements}
    # Releases from 1.13 on select CUDA with pytorch-cuda: the newest one ignores cudatoolkit.
    is_old = any(requirement.name in _CONDA_TORCH and requirement.specifier for requirement in action.requirements)
    selects = "cudatoolkit" if is_old and "pytorch-cuda" not in names else "pytorch-cuda"
    toolkits = (
        requirement.specifier
        for requirement in {requirement.name: requirement for requirement in action.requirements}.values()
        if requirement.name == selects and not re.search(r"[<>]", requirement.specifier)
    )
    toolkit = next((re.sub(r"\D", "", specifier.partition(".*")[0])[:3] for specifier in toolkits), "")
    torch_build = "cpu" if names & {"cpuonly", "pytorch-cpu"} else cuda_name("cu" + toolkit)
    companions: list[InstallRequirement] = []
    for requirement in action.requirements:
        name = CONDA_NAMES.get(requirement.name, requirement.name)
        if name in COMPANIONS and not requirement.pin and not names.isdisjoint(_CONDA_TORCH):
            companions.append(requirement)
            continue
        kept = before.packages.get(name)
        if kept and kept.origin == "conda" and not requirement.specifier:
            packages[name] = kept._replace(cuda=torch_build or kept.cuda) if kept.cuda else kept
            continue
        limit = _last_conda_torch(torch_build) if name == "torch" and "pytorch" in action.channels else ""
        specifier = ",".join(part for part in (requirement.specifier, limit) if part)
        released = releases_in_range(name, specifier, exclude_newer)
        releases = [each for each in released if supports_python(name, each, before.python)] or released
        version = releases[0].version if releases else requirement.specifier.strip("=<>*.")
        if version:
            packages[name] = ResolvedPackage(
                name,
                version,
                requirement.line,
                requirement.text,
                pinned=bool(requirement.specifier),
                cuda=torch_build if name in (*COMPANIONS, "torch") else "",
                origin="conda",
                specifier=requirement.specifier,
            )
    return packages | dict(_conda_companions(companions, packages.get("torch")))


def _conda_companions(
    requirements: Sequence[InstallRequirement], torch: ResolvedPackage | None
) -> Iterator[tuple[str, ResolvedPackage]]:
    """The releases of torchvision and torchaudio that conda selects for its torch."""
    for requirement in requirements if torch else ():
        releases = releases_that_pin(requirement.name, "torch", torch.version if torch else "")
        version = next((each for each in releases if satisfies(each, requirement.specifier) is not False), "")
        if version:
            yield requirement.name, ResolvedPackage(
                requirement.name, version, requirement.line, requirement.text, cuda=torch.cuda if torch else "",
                origin="conda", specifier=requirement.specifier,
            )  # fmt: skip


def _last_conda_torch(cuda: str) -> str:
    """The last torch in the channel pytorch, for the CUDA version that pytorch-cuda selects."""
    built = [row.torch for row in known_builds() if row.cuda == cuda]
    newest = f",<={torch_releases()[max(built, key=dotted_numbers)].latest}" if built else ""
    return f"<={LAST_CONDA_TORCH}{newest}"


def package_at_url(requirement: InstallRequirement) -> ResolvedPackage:
    """A package from a URL or a folder, with the version in the name of its wheel."""
    wheel = parse_wheel_name(requirement.wheel) if requirement.wheel else None
    version = wheel.version if wheel else ""
    build = re.search(r"\+(cu\d{2,3}|cpu)", version)
    return ResolvedPackage(
        wheel.name if wheel else requirement.name,
        version,
        requirement.line,
        requirement.text,
        pinned=bool(wheel),
        cuda=cuda_name(build[1]) if build and public_part(version) else "",
        origin=URL_ORIGIN if "://" in requirement.url else LOCAL_FOLDER,
        wheel=requirement.wheel,
    )
