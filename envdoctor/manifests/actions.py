"""The actions of a guide's commands, as plain values."""

from __future__ import annotations

import re
from typing import NamedTuple

from envdoctor.knowledge.cxx_standards import NamedStandard
from envdoctor.knowledge.releases import normalize_name
from envdoctor.manifests.gpu_code import GpuCode
from envdoctor.resolution.requirement import InstallRequirement
from envdoctor.resolution.torch_sources import TORCH_FAMILY, TorchSource, torch_index


class OwnBuild(NamedTuple):
    """A project on disk whose setup.py imports modules that an isolated build lacks, or compiles for torch."""

    url: str
    imports: tuple[tuple[str, int], ...]  # module, line of setup.py
    has_pyproject: bool  # without one, an old pip builds without isolation
    standard: NamedStandard | None = None  # of C++, in the flags of setup.py
    torch: str | None = None  # specifier of torch in build-system.requires
    gpu_code: GpuCode | None = None  # in the flags of setup.py


PACKAGE_LIST = "a list of packages without a command"
STATED_IN_TEXT = "packages that the text states without a command"
WITHOUT_COMMAND = frozenset({PACKAGE_LIST, STATED_IN_TEXT})


class Install(NamedTuple):
    """Installs packages into the current environment."""

    line: int
    command: str
    tool: str  # uv, pip, conda
    requirements: tuple[InstallRequirement, ...]
    constraints: tuple[InstallRequirement, ...] = ()
    overrides: tuple[InstallRequirement, ...] = ()  # of uv: replace the requirements of all packages
    index_url: str = ""  # replaces PyPI
    extra_indexes: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    torch_backend: str = ""  # --torch-backend of uv
    channels: tuple[str, ...] = ()  # conda
    upgrade: bool = False
    reinstall: bool = False
    no_deps: bool = False
    no_build_isolation: bool = False
    only_binary: bool = False
    no_index: bool = False  # takes all packages from the folders of find_links
    pre: bool = False
    exclude_newer: str = ""
    target: str = ""  # --python of uv, -n of conda
    variables: tuple[tuple[str, str], ...] = ()  # set for this command only
    config_settings: tuple[str, ...] = ()
    built_with_torch: frozenset[str] = frozenset()  # packages to whose isolated build tool.uv adds torch
    unquoted_bounds: tuple[str, ...] = ()  # requirements whose `<` or `>` the shell reads as a redirection
    read: tuple[str, ...] = ()  # folders of `requirements` whose own requirements are among them
    own_builds: tuple[OwnBuild, ...] = ()
    invalid: tuple[InstallRequirement, ...] = ()  # texts that no installer accepts, without a name
    unknown: tuple[InstallRequirement, ...] = ()  # with a version or, if `name` is empty, a name that is not known


class Uninstall(NamedTuple):
    """Removes packages."""

    line: int
    command: str
    names: tuple[str, ...]


class SelectEnvironment(NamedTuple):
    """Creates an environment and activates it, or activates an existing one if `new` is False."""

    line: int
    command: str
    tool: str  # uv, venv, conda; "leave" at the end of a Dockerfile
    name: str
    python: str = ""
    new: bool = True
    seeded: bool = False  # contains pip and setuptools
    clone: str = ""  # the environment that it copies
    pip: str = ""  # the release that it names


class UseImage(NamedTuple):
    """A container image. The following steps run in it unless it is only pulled."""

    line: int
    command: str
    name: str
    tag: str
    in_dockerfile: bool = False
    is_entered: bool = True
    stage: str = ""  # the name of this stage of the Dockerfile; a later stage may start from it


class Download(NamedTuple):
    """Downloads a file."""

    line: int
    command: str
    url: str
    file: str


class AddWheel(NamedTuple):
    """Puts a wheel in a folder: ADD or COPY in a Dockerfile."""

    line: int
    command: str
    file: str
    folder: str


class LoadModules(NamedTuple):
    """Loads environment modules of a cluster."""

    line: int
    command: str
    names: tuple[str, ...]


class InstallSystemPackages(NamedTuple):
    """Installs packages of the operating system."""

    line: int
    command: str
    names: tuple[str, ...]


class SetVariables(NamedTuple):
    """Sets environment variables for all following steps."""

    line: int
    command: str
    values: tuple[tuple[str, str], ...]


class Clone(NamedTuple):
    """Clones a repository, or checks out a reference of it; `reference` is empty for the main branch."""

    line: int
    command: str
    url: str
    reference: str = ""

    @property
    def project(self) -> str:
        """The name of the repository as that of a package."""
        return normalize_name(directory_of_clone(self.url))


def directory_of_clone(url: str) -> str:
    """The directory that `git clone` makes for a URL."""
    return url.rstrip("/").rpartition("/")[2].removesuffix(".git")


class Run(NamedTuple):
    """Runs a program: `module` of -m, `code` of -c, or `words`."""

    line: int
    command: str
    words: tuple[str, ...]
    module: str = ""
    code: str = ""


class UseRunner(NamedTuple):
    """The label of the machine that runs a job of a workflow."""

    line: int
    command: str
    label: str

    @property
    def has_no_gpu(self) -> bool:
        """Whether this is a standard runner of GitHub; those with a GPU have names that their owner chooses."""
        return (
            re.fullmatch(r"(?:ubuntu|windows|macos)-(?:latest|slim|[\d.]+)(?:-arm|-intel|-large)?", self.label)
            is not None
        )


class UseWorkflowAction(NamedTuple):
    """An action of a repository in a step of a workflow: `actions/checkout@v4`."""

    line: int
    command: str
    name: str
    reference: str


Action = (
    Install
    | Uninstall
    | SelectEnvironment
    | UseImage
    | Download
    | AddWheel
    | LoadModules
    | InstallSystemPackages
    | SetVariables
    | Clone
    | Run
    | UseRunner
    | UseWorkflowAction
)


def without_python(action: Action) -> Action:
    """An action that names no Python for its environment."""
    return action._replace(python="") if isinstance(action, SelectEnvironment) else action


def torch_source(action: Install) -> TorchSource:
    """The index that an install action takes torch from."""
    if action.torch_backend:
        return TorchSource(action.torch_backend, has_priority=True)
    for url in (action.index_url, *action.extra_indexes, *action.find_links):
        index = torch_index(url)
        is_exclusive = url == action.index_url
        has_priority = is_exclusive or action.tool == "uv"
        if index and (has_priority or not index.is_nightly or _accepts_nightly(action)):
            return TorchSource(index.backend, index.is_nightly, has_priority, is_exclusive)
    return TorchSource()


def has_unlisted_torch(action: Install) -> bool:
    """Whether a step can take a torch that PyPI does not list: a pre-release, or 1.8.2 with long-term support."""
    urls = (action.index_url, *action.extra_indexes, *action.find_links)
    return action.pre or torch_source(action).nightly or any("/whl/lts/" in url for url in urls)


def _accepts_nightly(action: Install) -> bool:
    """Whether pip takes a nightly build in place of the release on PyPI."""
    return action.pre or any("dev" in each.specifier for each in action.requirements if each.name in TORCH_FAMILY)
