"""What a reader returns: paths through commands, or sets of locked packages."""

from __future__ import annotations

from typing import NamedTuple

from envdoctor.core.errors import BadInput
from envdoctor.core.records import Stack
from envdoctor.core.shell_commands import shell_command
from envdoctor.manifests.actions import Install
from envdoctor.manifests.guide import Guide

STANDARD_INPUT = "standard input"  # name of a text that is not a file


class NothingToAudit(BadInput):
    """An input without content that decides anything, for which "no problems found" would be misleading."""


class OtherCommandsInput(BadInput):
    """A text that another command reads. `command` has `{}` for the file, and the hint is the command."""

    def __init__(self, message: str, command: str, file: str, *, expected: str) -> None:
        super().__init__(
            message, expected=expected, hint=shell_command(command, "-" if file == STANDARD_INPUT else file)
        )
        self.command = command

    def with_file(self, file: str) -> OtherCommandsInput:
        """The error with the path of the file, of which the readers have the name."""
        return OtherCommandsInput(self.message, self.command, file, expected=self.expected)


OTHER = "other"  # origin: a repository, a URL or a directory, whose releases no index has


class LockedPackage(NamedTuple):
    """A package of a lock file. `source` is its URL or its index and `cuda` the version of its build, if stated.

    `origin` is PyPI for every index, conda for a channel, or OTHER.
    """

    name: str
    version: str
    line: int
    source: str = ""
    cuda: str = ""
    origin: str = "PyPI"


class PackageSet(NamedTuple):
    """The packages that a lock file installs on one target. `python` is empty if the lock names none."""

    platform: str
    python: str
    packages: tuple[LockedPackage, ...]
    label: str = ""  # group, extra or environment
    overridden: frozenset[str] = frozenset()  # packages whose version an override of uv determines

    @property
    def target(self) -> str:
        """The target in words."""
        python = f"Python {self.python}" if self.python else ""
        return ", ".join(part for part in (self.label, f"linux {self.platform}", python) if part)


class Document(NamedTuple):
    """A recognised input. Either `paths`, `sets` or `stack` is given."""

    kind: str
    paths: tuple[Guide, ...] = ()  # the alternatives, each an environment; the main one first
    guide: Guide | None = None  # a text with all its alternatives, if it differs from the first path
    sets: tuple[PackageSet, ...] = ()
    stack: Stack | None = None  # of a package list
    unread: tuple[str, ...] = ()  # what could not be read, with the reason
    origin: str = ""  # of the packages of a guide without install commands

    @property
    def pins(self) -> frozenset[str]:
        """The versions that its steps request: `torch==2.8.0`, also for `setuptools==63.4.1.*` of conda."""
        installs = (step for path in self.paths for step in path.actions if isinstance(step, Install))
        listed = (each for step in installs for each in step.requirements)
        return frozenset(f"{each.name}{each.specifier.removesuffix('.*')}" for each in listed)
