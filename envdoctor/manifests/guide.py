"""Parses a Markdown guide into actions, commands, Python code, and the machine that it names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.actions import Action
from envdoctor.manifests.alternatives import MAX_PATHS, Branch, GuidePath, find_paths
from envdoctor.manifests.block_actions import BlockReader
from envdoctor.manifests.checkout_code import Checkout, checkout_of
from envdoctor.manifests.files import Files, MissingFile
from envdoctor.manifests.markdown import Block, Line, parse_blocks
from envdoctor.manifests.other_systems import blocks_for_other_systems
from envdoctor.manifests.program_launches import Launch
from envdoctor.manifests.shell_records import Command
from envdoctor.manifests.stated_machine import StatedMachine, parse_machine
from envdoctor.resolution.requirement import InstallRequirement

PLATFORMS = ("x86_64", "aarch64")
_MAX_ACTIONS = 3000
_MAX_BRANCHES = 6
_ASKS_FOR_PLATFORM = lazy_pattern(r"\buname -[mpi]\b|\$\(arch\)")


class Guide(NamedTuple):
    """A parsed guide."""

    name: str
    actions: tuple[Action, ...]
    commands: tuple[Command, ...]
    python_blocks: tuple[tuple[Line, ...], ...]
    stated_machine: StatedMachine
    lines: tuple[str, ...]
    branches: tuple[Branch, ...] = ()  # the alternatives that this path through the guide follows
    blocks: tuple[Block, ...] = ()
    unread: tuple[str, ...] = ()  # blocks that could not be read, with the reason
    absent_files: tuple[MissingFile, ...] = ()  # of a manifest: what it includes and does not exist
    syntax_errors: tuple[tuple[int, str], ...] = ()  # lines of a manifest that its tool cannot read, with the reason
    python: str = ""  # for environments for which no command names one, as the user or the project states it
    python_origin: str = ""  # the file and line of `python`, or --python
    permitted_python: str = ""  # `requires-python`, a specifier
    pip: str = ""  # the release in the environment file that states `python`
    launches: tuple[Launch, ...] = ()  # of programs of the checkout
    syncs: tuple[Command, ...] = ()  # `uv sync` in the directory of the project
    checkout: Checkout | None = None  # that contains the guide
    cuda: str = ""  # of the build of torch that the README of the project installs
    cuda_origin: str = ""
    left_out: tuple[InstallRequirement, ...] = ()  # of the steps, which fail with them: what is wrong otherwise
    of_project: frozenset[str] = frozenset()  # the packages of the project of a notebook: its kernel can have them
    earlier: Guide | None = None  # another file up to the step that installs this one, in whose environment it is

    def place(self, line: int) -> str:
        """The file and the line of a step; lines of earlier steps are negative."""
        name, number = (self.earlier.name, -line) if self.earlier and line < 0 else (self.name, line)
        return f"{name}, line {number}"

    def line_name(self, line: int) -> str:
        """A line in a sentence, with its file if that is another one: "line 12", "line 7 of README.md"."""
        return f"line {-line} of {self.earlier.name}" if self.earlier and line < 0 else f"line {line}"


def parse_guide(text: str, name: str) -> Guide:
    """Parse a guide. Actions, commands and Python code are in the order of the text."""
    return guide_of_blocks(parse_blocks(text), text, name)


def parse_paths(guide: Guide, text: str, name: str, files: Files | None = None) -> list[Guide]:
    """The paths through a guide with alternatives, each as a guide of its own; without alternatives, the guide.

    The branches of its shell code are alternatives as well. A path has the line numbers of the text. The lines of
    other branches are empty, and so are those of blocks for other operating systems.
    """
    lines, blocks = text.split("\n"), parse_blocks(text)
    files = files or Files(None, *PLATFORMS)
    others = blocks_for_other_systems(lines, blocks)
    unread = tuple(f"line {block.lines[0][0]}: a block for another system: {title}" for block, title in others)
    skipped = [block for block, _ in others]
    excluded = {number for block in skipped for number, _ in block.lines}
    lines = ["" if number in excluded else line for number, line in enumerate(lines, 1)]
    blocks = [block for block in blocks if block not in skipped]
    paths = [
        found._replace(unread=(*found.unread, *unread))
        for path in find_paths(lines, blocks)
        for found in _guides_of_path(path, lines, blocks, name, files.fresh())
    ]
    return paths[:MAX_PATHS] if len(paths) > 1 or files.folder or others else [guide]


def _guides_of_path(
    path: GuidePath, lines: list[str], blocks: list[Block], name: str, files: Files
) -> Iterator[Guide]:
    own_lines = ["" if number in path.excluded else line for number, line in enumerate(lines, 1)]
    own_blocks = [
        block._replace(lines=tuple(line for line in block.lines if line[0] not in path.excluded)) for block in blocks
    ]
    pieces = [block for block in own_blocks if block.lines]
    for guide in guides_of_pieces(pieces, "\n".join(own_lines), name, files):
        yield guide._replace(branches=(*path.branches, *guide.branches))


def guides_of_pieces(pieces: Sequence[Block | Action], text: str, name: str, files: Files) -> list[Guide]:
    """The guides of the code of a text: one for each branch of its `if`, `case` and `||`.

    Branches that test the CPU architecture are read on each platform that `files` names.
    """
    first, *others = files.platforms or ("",)
    guides = _guides_on(first, pieces, text, name, files)
    if not _ASKS_FOR_PLATFORM.search(text):
        return guides
    texts = _command_texts(guides, first)
    differing = [
        (platform, found)
        for platform in others
        if _command_texts(found := _guides_on(platform, pieces, text, name, files), platform) != texts
    ]
    if not differing:
        return guides
    return [
        guide._replace(branches=(Branch(f"on {platform}", 0, 0), *guide.branches))
        for platform, found in ((first, guides), *differing)
        for guide in found
    ]


def _guides_on(platform: str, pieces: Sequence[Block | Action], text: str, name: str, files: Files) -> list[Guide]:
    """The guides of the code on one platform."""
    blocks = [piece for piece in pieces if isinstance(piece, Block)]
    guides: list[Guide] = []
    choices = 1
    while len(guides) < min(choices, _MAX_BRANCHES):
        reader = BlockReader(pieces, len(guides), files.on(platform))
        guide = guide_of_blocks(blocks, text, name, reader)
        if platform and _ASKS_FOR_PLATFORM.search(text):  # the text names several machines
            guide = guide._replace(stated_machine=guide.stated_machine._replace(architecture=platform))
        guides.append(guide._replace(branches=tuple(reader.shell.followed)))
        choices = reader.shell.choices
    return guides if len(guides) > 1 else [guides[0]._replace(branches=())]


def _command_texts(guides: Sequence[Guide], platform: str) -> list[list[str]]:
    """The commands of guides, without the name of the platform in a file such as `Miniforge3-Linux-x86_64.sh`."""
    return [[command.text.replace(platform, "") for command in guide.commands] for guide in guides]


def guide_of_blocks(blocks: list[Block], text: str, name: str, reader: BlockReader | None = None) -> Guide:
    """The guide in the blocks of code of a text."""
    reader = reader or BlockReader(blocks)
    actions = tuple(islice(reader.actions(), _MAX_ACTIONS))
    lines = tuple(text.split("\n"))
    machine = parse_machine(lines, blocks)
    unread = tuple(f"line {line}: {what}" for line, what in reader.shell.unread.items())
    return Guide(
        name, actions, tuple(reader.commands), tuple(reader.python_blocks), machine, lines, (), tuple(blocks), unread,
        launches=tuple(reader.launches), syncs=tuple(reader.syncs), checkout=checkout_of(reader.files),
    )  # fmt: skip
