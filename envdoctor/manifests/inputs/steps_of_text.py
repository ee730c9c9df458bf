"""The steps of a guide without install commands: its text names a command, a manifest next to it, or packages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from envdoctor.core.paths import is_file
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.shell_commands import shell_command
from envdoctor.manifests.actions import Action, Install, SelectEnvironment, UseImage
from envdoctor.manifests.block_actions import BlockReader
from envdoctor.manifests.files import Files
from envdoctor.manifests.guide import Guide
from envdoctor.manifests.inputs.pieces import unread_parts
from envdoctor.manifests.inputs.records import Document
from envdoctor.manifests.inputs.steps_of_locks import LockStep, is_sync, step_of_lock
from envdoctor.manifests.install_texts import UNREAD_COMMANDS
from envdoctor.manifests.markdown import Block
from envdoctor.manifests.mentions import find_mentions
from envdoctor.manifests.stated_packages import is_condition, stated_install

_KINDS = frozenset({"guide", "text"})
_HISTORY_NAME = lazy_pattern(r"change|history|release|news|contribut|migrat|upgrad", re.IGNORECASE)
_INSTALLS = lazy_pattern(
    r"(?:sudo |uv |python3? -m )*pip3? (?:install|sync)\b|(?:uv|pdm|poetry|pixi) (?:sync|install|add)\b"
    r"|python3? setup\.py (?:install|develop)\b|(?:conda|mamba|micromamba) (?:env |install|create|update)"
)
_MANIFEST = lazy_pattern(
    r"(?<![\w/.:-])(?:\./)?((?:[\w-]+/)?(?:[\w-]*requirements?[\w.-]*\.txt|[\w-]*env[\w-]*\.ya?ml|pyproject\.toml|setup\.py))\b"
)
# A text that leaves open which file lists the packages.
_OPEN = lazy_pattern(
    r"\binstall\w*\b[^.`]{0,60}\b(?:dependenc\w+|requirements?|required packages|prerequisites)\b"
    r"|\b(?:dependenc\w+|requirements?|required packages)\b[^.`]{0,40}\b(?:installed|listed|found)\b|安装.{0,10}依赖",
    re.IGNORECASE,
)
_USUAL = ("requirements.txt", "environment.yml", "environment.yaml", "pyproject.toml")
_LISTS = _USUAL[:3]
_OF_OTHER_PROJECT = frozenset({"--project", "--directory", "--package", "--script", "--frozen", "--locked"})
_AS_LOCKED = frozenset({"--frozen", "--locked"})  # which stop without a lock
_READS_FILE = lazy_pattern(
    r"\s(?:-r|--requirement|-f|--file|-e)\b|\s\.(?:\s|\[|$)|\benv (?:create|update)\b|setup\.py"
)
_OTHER_GUIDE = lazy_pattern(r"\.(?:md|rst|html?)\b", re.IGNORECASE)
# Steps that are not read, and that can install all packages.
_UNREAD = lazy_pattern(rf"{UNREAD_COMMANDS}|\bapptainer\b|\bsingularity\b")


class _Step(NamedTuple):
    """A command that a line of the text stands for."""

    line: int
    command: str


def with_steps_of_text(document: Document, files: Files) -> Document:
    """The document of a guide without an install step with those of its text; other documents as they are."""
    guides = (*document.paths, *((document.guide,) if document.guide else ()))
    if document.kind not in _KINDS or not guides or _HISTORY_NAME.search(guides[0].name):
        return document
    if any(map(_installs, guides)):
        locked = tuple(_with_locked_step(each, files) for each in document.paths)
        is_changed = locked != document.paths
        unread = (*document.unread, *unread_parts(locked, files)) if is_changed else document.unread
        return document._replace(
            paths=(*locked, *_synced(guides[0], files)), unread=tuple(dict.fromkeys(unread)),
        )  # fmt: skip
    guide = document.guide or document.paths[0]
    lock = _lock(guide, files)
    code = {number for block in guide.blocks for number, _ in block.lines}
    steps = [] if lock else [*_mentioned(guide)]
    if not lock and not any(_READS_FILE.search(each.command) for each in steps):
        steps += _manifest(guide, files, stated_install(guide.lines, code))
    reader = BlockReader([Block("bash", "", ((each.line, each.command),)) for each in steps], files=files)
    actions = (*((lock.install,) if lock else ()), *reader.actions())
    known = {each.name for action in actions if isinstance(action, Install) for each in action.requirements}
    stated = stated_install(guide.lines, code, known)
    added = (*((stated,) if stated else ()), *actions)
    if not any(isinstance(each, Install) for each in added):
        return document
    completed = tuple(_with_actions(each, added) for each in document.paths)
    if lock:
        completed = tuple(each._replace(permitted_python=lock.python) for each in completed)
    return document._replace(
        paths=completed,
        guide=document.guide and _with_actions(document.guide, added),
        unread=tuple(dict.fromkeys((*document.unread, *unread_parts(completed, files)))),
        origin="; ".join(_origins(steps, stated, lock)),
    )


def _synced(guide: Guide, files: Files) -> Iterator[Guide]:
    """The environment of `uv sync` next to those of other commands, where the project has no uv.lock.

    uv then locks the project with all its extras and groups, also those that the command does not name.
    """
    options = {each: {word.partition("=")[0] for word in each.words} for each in guide.syncs}
    commands = [each for each, words in options.items() if not _OF_OTHER_PROJECT & words]
    if not commands or files.of_project("uv.lock", 0):
        return
    steps = [step for each in commands if (step := step_of_lock(each.words, each.line, files))]
    if steps:
        yield guide._replace(
            actions=tuple(each.install for each in steps), commands=(), python_blocks=(), blocks=(), launches=(),
            permitted_python=steps[0].python, branches=(),
        )  # fmt: skip


def _with_locked_step(guide: Guide, files: Files) -> Guide:
    """The guide with the packages of uv.lock where it runs `uv sync`, for its later steps."""
    sync = next((each for each in guide.syncs if not _OF_OTHER_PROJECT - _AS_LOCKED & {*each.words}), None)
    step = step_of_lock(sync.words, sync.line, files) if sync else None
    if sync is None or step is None or not step.file.endswith(".lock"):
        return guide
    later = {(each.line, str(each)) for each in guide.commands[guide.commands.index(sync) + 1 :]}
    places = (number for number, each in enumerate(guide.actions) if (each.line, each.command) in later)
    place = next(places, len(guide.actions))
    return guide._replace(
        actions=(*guide.actions[:place], step.install, *guide.actions[place:]),
        permitted_python=guide.permitted_python or step.python,
    )


def _installs(guide: Guide) -> bool:
    """Whether a command installs packages, or may do so."""
    is_known = any(isinstance(each, Install | UseImage) for each in guide.actions)
    return is_known or any(_UNREAD.search(text) for block in guide.blocks for _, text in block.lines)


def _mentioned(guide: Guide) -> Iterator[_Step]:
    """The install commands in the sentences of a guide, without those on a condition."""
    for each in find_mentions(guide):
        is_step = each.place == "in the text" and _INSTALLS.match(each.text)
        if is_step and not is_condition(guide.lines[each.line - 1].replace(f"`{each.text}`", "")):
            yield _Step(each.line, each.text)


def _lock(guide: Guide, files: Files) -> LockStep | None:
    """The step of the first `uv sync` or `poetry install` of a guide, in a block of code or in its text."""
    commands = [(command.words, command.line) for command in guide.commands]
    commands += [
        (tuple(each.text.split()), each.line) for each in find_mentions(guide) if each.place == "in the text"
    ]
    words, line = next(((words, line) for words, line in commands if is_sync(words)), ((), 0))
    return step_of_lock(words, line, files) if words else None


def _manifest(guide: Guide, files: Files, stated: Install | None) -> Iterator[_Step]:
    """The manifest next to a guide that its text names, or leaves open.

    Packages that the text states are a part of those in such a file: a text rarely names all of them.
    """
    code = {number for block in guide.blocks for number, _ in block.lines}
    lines = [(number, text) for number, text in enumerate(guide.lines, 1) if number not in code]
    folders = files.folders_at("") if files.folder else ()
    named = (
        (number, match[1]) for number, text in lines for match in _MANIFEST.finditer(text)
        if not is_condition(text)
    )  # fmt: skip
    found = next(((number, name) for number, name in named if any(is_file(each / name) for each in folders)), None)
    if found is None:
        line = next((number for number, text in lines if _leaves_open(text)), 0)
        name = next((name for name in _USUAL if any(is_file(each / name) for each in folders)), "")
        line = line or (stated.line if stated and name in _LISTS else 0)
        found = (line, name) if line and name else None
    if found:
        yield _Step(found[0], _command(found[1]))


def _leaves_open(text: str) -> bool:
    return bool(_OPEN.search(text)) and not _OTHER_GUIDE.search(text) and not is_condition(text)


def _command(name: str) -> str:
    if name.endswith(".txt"):
        return shell_command("pip install -r {}", name)
    is_conda = name.endswith((".yml", ".yaml"))
    return shell_command("conda env create -f {}", name) if is_conda else "pip install ."


def _with_actions(guide: Guide, added: tuple[Action, ...]) -> Guide:
    """The guide with further steps after the creation of its environment, before its programs."""
    start = max((n for n, each in enumerate(guide.actions, 1) if isinstance(each, SelectEnvironment)), default=0)
    return guide._replace(actions=(*guide.actions[:start], *added, *guide.actions[start:]))


def _origins(steps: list[_Step], stated: Install | None, lock: LockStep | None) -> Iterator[str]:
    """What the steps are read from, for the verdict."""
    if lock:
        yield f"those of {lock.file}, which the command of line {lock.install.line} installs"
    for each in steps:
        yield f"line {each.line} read as the step `{each.command}`"
    if stated:
        names = {each.name for each in stated.requirements}
        lines = sorted({each.line for each in stated.requirements})
        place = f"line {lines[0]}" if len(lines) == 1 else f"lines {lines[0]} to {lines[-1]}"
        yield f"{len(names)} of them stated in the text of {place}, no command installs them"
