"""Builds the guides of an input from blocks of code and actions, with one guide for each branch of its scripts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.actions import Action, Install
from envdoctor.manifests.alternatives import Branch
from envdoctor.manifests.files import Files, MissingFile
from envdoctor.manifests.guide import Guide, guides_of_pieces
from envdoctor.manifests.inputs.records import STANDARD_INPUT
from envdoctor.manifests.markdown import Block, Line
from envdoctor.manifests.stated_machine import StatedMachine
from envdoctor.resolution.requirement import InstallRequirement

Piece = Block | Action
_MAX_ACTIONS = 3000
_MAX_INVALID = 3  # requirements named one by one; a file with more is in another format
_VERSION_TAG = lazy_pattern(r"@v?\d+(?:\.\d+)+(?:#|$)")


def numbered(text: str, first: int = 1) -> tuple[Line, ...]:
    """The lines of a text with their numbers."""
    return tuple(enumerate(text.split("\n"), first))


def guides_of_code(pieces: Sequence[Piece], text: str, name: str, files: Files, branch: str = "") -> list[Guide]:
    """The guide of scripts, and one for each further branch of their `if`, `case` and `||`."""
    guides = guides_of_pieces(pieces, text, name, files)
    own = (Branch(branch, 0, 0),) if branch else ()
    return [guide._replace(branches=(*own, *guide.branches)) for guide in guides]


def guide_of_actions(
    actions: Sequence[Action], text: str, name: str, *, branch: str = "", platform: str = "x86_64"
) -> Guide:
    """The guide of a manifest without commands. Its text does not determine the machine: it names all platforms."""
    branches = (Branch(branch, 0, 0),) if branch else ()
    machine = StatedMachine(platform, "", 0)
    return Guide(name, tuple(islice(actions, _MAX_ACTIONS)), (), (), machine, tuple(text.split("\n")), branches)


def _has_unknown_release(requirement: InstallRequirement, install: Install) -> bool:
    """Whether a requirement is a repository, a URL or a folder, without a version in its name or its tag."""
    is_reference = bool(requirement.url) and not requirement.specifier
    return is_reference and not _VERSION_TAG.search(requirement.url) and requirement.url not in install.read


def _unknown_release(requirement: InstallRequirement) -> str:
    """The entry for such a requirement, without its URL, which may contain a token."""
    stated, at, _ = requirement.text.partition(" @")
    name = (stated.strip() if at else requirement.name) or "the project"
    return f"{name} (line {requirement.line}): a repository, URL or folder, whose release is not in the file"


def with_absent_files(guides: Sequence[Guide], files: Files) -> tuple[Guide, ...]:
    """The guides of a manifest with the files that it includes and that do not exist.

    The folder of standard input is not known: it may have them.
    """
    absent = [each for each in files.missing.values() if each.is_absent]
    return tuple(
        guide if guide.name == STANDARD_INPUT else guide._replace(absent_files=tuple(_at_their_lines(absent, guide)))
        for guide in guides
    )


def _at_their_lines(absent: Sequence[MissingFile], guide: Guide) -> Iterator[MissingFile]:
    """The files with the lines that name them: options such as `-c limits.txt` have that of the command."""
    for each in absent:
        lines = (number for number, text in enumerate(guide.lines, 1) if each.path in text)
        yield each._replace(line=next(lines, each.line))


def unread_parts(guides: Sequence[Guide], files: Files) -> tuple[str, ...]:
    """The files that commands name and that are not available, and arguments of unknown value, version or release."""
    missing = [f"{each.path} (line {each.line}): {each.reason}" for each in files.missing.values()]
    unknown = [
        f"`{requirement.text}` (line {requirement.line}): "
        + ("its release is on no index" if requirement.text == requirement.name else "its value is not in the file")
        for guide in guides
        for action in guide.actions
        if isinstance(action, Install)
        for requirement in action.unknown
    ]
    invalid = [
        (action.tool, f"`{requirement.text}` (line {requirement.line})")
        for guide in guides
        for action in guide.actions
        if isinstance(action, Install)
        for requirement in action.requirements
        if not requirement.has_valid_specifier
    ]
    of_conda = list(dict.fromkeys(text for tool, text in invalid if tool == "conda"))
    others = list(dict.fromkeys(text for tool, text in invalid if tool != "conda"))
    versions = [f"{text}: its version is not valid" for text in others]
    if len(others) > _MAX_INVALID:  # a list in another format
        versions = [f"{others[0]} and {len(others) - 1} more packages: their versions are not valid"]
    if of_conda:  # an export has hundreds of libraries with versions such as 9b and 1.1.1k
        further = f" and {len(of_conda) - 1} more packages of conda" if len(of_conda) > 1 else ""
        versions.append(f"{of_conda[0]}{further}: a version that pip cannot compare")
    references = [
        _unknown_release(requirement)
        for guide in guides
        for action in guide.actions
        if isinstance(action, Install)
        for requirement in action.requirements
        if _has_unknown_release(requirement, action)
    ]
    blocks = [each for guide in guides for each in guide.unread]
    return tuple(dict.fromkeys([*missing, *unknown, *versions, *references, *blocks]))
