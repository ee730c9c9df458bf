"""Requirements of a guide that a solver cannot take from PyPI: builds of further pages, source archives, conda."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.published import published_releases
from envdoctor.knowledge.releases import normalize_name
from envdoctor.manifests.built_repositories import built_repositories
from envdoctor.manifests.cloned_projects import folder_of_clone
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.dropped_packages import BEFORE_WITH_CONDA, OF_INDEX, OF_PAGE
from envdoctor.manifests.environment_state import EnvironmentState
from envdoctor.manifests.interpreter import InstallStep
from envdoctor.manifests.shell_records import is_known
from envdoctor.manifests.step_resolution import CONDA_NAMES, other_indexes, page_of_project
from envdoctor.redact.variables import redact_variable
from envdoctor.resolution.requirement import InstallRequirement
from envdoctor.resolution.torch_sources import TORCH_FAMILY

# What wheels bring along, or what they do not need.
CONDA_ONLY = frozenset({
    "pytorch-cuda", "cudatoolkit", "cuda-toolkit", "cuda-nvcc", "cuda", "cuda-version", "cpuonly", "cudnn", "gcc",
    "gxx", "compilers", "mkl", "pytorch-mutex", "ffmpeg",
})  # fmt: skip
_NOT_PACKAGES = frozenset({"pip", "uv", "python"})
_INSTALL = "uv pip install {} {}"
# An editable package cannot be a constraint. A dependency of the set on the package itself gives way.
_KEEPING = "uv pip install -c <(uv pip freeze --exclude-editable | grep -v '^{}[= ]') {} {}"
# For a setup.py that imports torch: the builds of old releases of torch import pkg_resources.
_WITHOUT_ISOLATION = "uv pip install 'setuptools<82' wheel && uv pip install --no-build-isolation {} {}"
_EDITABLE = lazy_pattern(r"\s(-e|--editable)\b")


def _steps_of(context: GuideContext, state: EnvironmentState) -> Iterator[InstallStep]:
    return (install for install in context.trace.installs if install.after.name == state.name)


def commands_with_pages(context: GuideContext, state: EnvironmentState) -> dict[str, str]:
    """The packages that a step takes from further pages of wheels, with a command.

    The command of a whole requirements file would undo a set.
    """
    found: dict[str, str] = {}
    for install in _steps_of(context, state):
        of_nvidia = (url for url in install.action.extra_indexes if "pypi.nvidia.com" in url)
        for page in [*other_indexes(install.action), *of_nvidia][:1]:
            for each in install.action.requirements:
                own = _install_from(page, install, each.text)
                command = install.action.command  # `pip` alone is the section of an environment file
                found[each.name] = command if " install " in command and " -r " not in command else own
    return found


def _install_from(page: str, install: InstallStep, requirement: str) -> str:
    option = "--find-links" if page in install.action.find_links else "--extra-index-url"
    return shell_command("uv pip install {} {} {}", requirement, option, redact_variable("", page))


def installs_of_addresses(context: GuideContext, state: EnvironmentState) -> dict[str, str]:
    """The packages of addresses and folders, each with the command that installs it into a finished environment."""
    built = {
        each.requirement.name for each in built_repositories(context)
        if each.row.lacks_modules(each.release) and not (each.row.has_pyproject and each.row.requires_torch)
    }  # fmt: skip
    found: dict[str, str] = {}
    for action in (install.action for install in _steps_of(context, state)):
        for each in (each for each in action.requirements if each.url):
            folder = folder_of_clone(context.guide, action, each)
            name = each.name or normalize_name(folder.rpartition("/")[2] or "x")
            if not each.name and not folder:
                continue
            address = _address(each)
            isolation = ("--no-build-isolation",) if name in built else ()
            # The main branch of a repository can require other releases than those of the set.
            keeps_set = each.url.startswith("git+") and not action.no_deps
            source = redact_variable("", address)
            own = shell_command(_INSTALL, isolation, source)
            own = shell_command(_KEEPING, name, isolation, source) if keeps_set else own
            is_own = len(action.requirements) == 1 and "://" not in each.url  # with its `-e`, or `setup.py develop`
            if not action.no_build_isolation and any(build.url == each.url for build in action.own_builds):
                own = shell_command(_WITHOUT_ISOLATION, _EDITABLE.findall(action.command)[:1], each.url)
                is_own = False
            command = action.command if is_own and " " in action.command else own
            entered = (shell_command("cd {}", folder), command) if folder else (command,)
            found[name] = " && ".join(entered)
    return found


def _address(requirement: InstallRequirement) -> str:
    """The requirement of a command; a repository without its name: the project in it can have another one."""
    if requirement.url.startswith("git+") and not requirement.extras:
        return requirement.url
    is_complete = requirement.url in requirement.text
    return requirement.text if is_complete else f"{requirement.name} @ {requirement.url}"


def builds_of_pages(context: GuideContext, state: EnvironmentState) -> dict[str, str]:
    """The pinned builds of pages that are not read, such as `dgl==1.0.2+cu116 -f URL`, with what to do with them.

    The releases of PyPI are other builds. So are packages that only another index of a step has.
    """
    found: dict[str, str] = {}
    for install in _steps_of(context, state):
        pages = other_indexes(install.action)
        for each in install.action.requirements if pages else ():
            if "+" in each.pin and each.name not in TORCH_FAMILY:
                found[each.name] = OF_PAGE.format(_install_from(pages[0], install, each.text))
            elif install.resolution.state == "partial" and _is_of_index(install, each):
                found[each.name] = OF_INDEX.format(_install_from(pages[0], install, each.text))
        for each in install.action.requirements if not pages else ():
            if page := page_of_project(install.action, each.name):
                found[each.name] = OF_INDEX.format(_install_from(page, install, each.text))
    return found


def _is_of_index(install: InstallStep, requirement: InstallRequirement) -> bool:
    """Whether the indexes that were read do not have a package of a step with another index."""
    found = install.resolution.packages.get(requirement.name)
    return not requirement.url and not published_releases(requirement.name) and not (found and found.version)


def releases_without_a_wheel(context: GuideContext, state: EnvironmentState) -> Iterator[str]:
    """The releases of an environment without a wheel: a solver would go back to one that does not need them."""
    for install in _steps_of(context, state):
        built = (install.resolution.packages.get(name) for name in sorted(install.resolution.built))
        yield from (f"{each.name}=={each.version}" for each in built if each and each.version)


def packages_of_unknown_version(context: GuideContext, state: EnvironmentState) -> dict[str, str]:
    """The packages whose version only a shell can determine, with what to do with them: `torch==$VERSION`."""
    unknown = (each for install in _steps_of(context, state) for each in install.action.unknown)
    return {
        each.name: f"its version is not in the file: install `{each.text}` after these requirements"
        for each in unknown
        if each.name and not is_known(each.text)
    }


def packages_of_conda(context: GuideContext, state: EnvironmentState, known: Collection[str]) -> dict[str, str]:
    """The packages that only a step of conda installs, with what to do with them: PyPI can have another project.

    `known` are packages with a release, such as those that have a table.
    """
    others = {"torch", *known, *CONDA_ONLY, *_NOT_PACKAGES}
    installs = (install for install in _steps_of(context, state) if install.action.tool == "conda")
    named = (each for install in installs for each in install.action.requirements)
    left = (each for each in named if CONDA_NAMES.get(each.name, each.name) not in others)
    return {each.name: BEFORE_WITH_CONDA.format(each.text) for each in left}
