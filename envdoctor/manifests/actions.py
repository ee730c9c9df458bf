"""What the commands of a guide do, as plain values."""

from __future__ import annotations

from typing import NamedTuple

from envdoctor.manifests.requirement import Wanted


class Install(NamedTuple):
    """An installation into the current environment."""

    line: int
    command: str
    tool: str  # uv, pip, conda
    wanted: tuple[Wanted, ...]
    constraints: tuple[Wanted, ...] = ()
    index_url: str = ""  # replaces PyPI
    extra_indexes: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    backend: str = ""  # uv's --torch-backend
    channels: tuple[str, ...] = ()  # conda
    upgrade: bool = False
    reinstall: bool = False
    no_deps: bool = False
    no_isolation: bool = False
    only_binary: bool = False
    pre: bool = False
    until: str = ""  # --exclude-newer
    target: str = ""  # --python of uv, -n of conda
    variables: tuple[tuple[str, str], ...] = ()  # given to this one command
    options: tuple[str, ...] = ()
    bare_bounds: tuple[str, ...] = ()


class Uninstall(NamedTuple):
    """Packages are removed."""

    line: int
    command: str
    names: tuple[str, ...]


class Environment(NamedTuple):
    """A new environment (`python` may be empty), or with `new` False an existing one that is entered."""

    line: int
    command: str
    tool: str  # uv, venv, conda
    name: str
    python: str = ""
    new: bool = True
    seeded: bool = False  # holds pip and setuptools


class Image(NamedTuple):
    """A container image that the following steps run in (`pull` alone enters none)."""

    line: int
    command: str
    name: str
    tag: str
    building: bool = False  # FROM of a Dockerfile
    entered: bool = True


class Download(NamedTuple):
    """A file is fetched."""

    line: int
    command: str
    address: str
    file: str


class Modules(NamedTuple):
    """Environment modules of a cluster."""

    line: int
    command: str
    names: tuple[str, ...]


class System(NamedTuple):
    """Packages of the operating system."""

    line: int
    command: str
    names: tuple[str, ...]


class Variables(NamedTuple):
    """Variables for all that follows."""

    line: int
    command: str
    values: tuple[tuple[str, str], ...]


class Clone(NamedTuple):
    """A repository is fetched; `reference` is empty for its main branch."""

    line: int
    command: str
    address: str
    reference: str = ""


class Run(NamedTuple):
    """A program is started: `module` of -m, `code` of -c, or `words`."""

    line: int
    command: str
    words: tuple[str, ...]
    module: str = ""
    code: str = ""


Action = Install | Uninstall | Environment | Image | Download | Modules | System | Variables | Clone | Run
