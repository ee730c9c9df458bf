"""Checks on the directories that the steps of a guide enter: where a reader is, and what exists there."""

from __future__ import annotations

import difflib
import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from envdoctor.core.paths import is_folder
from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.shell_commands import shell_command
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.checks.evidence import guide_evidence
from envdoctor.manifests.container_files import is_dockerfile
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.guide import Guide
from envdoctor.manifests.own_names import name_key, repository_name
from envdoctor.manifests.program_launches import started_program
from envdoctor.manifests.shell import without_prompt
from envdoctor.manifests.shell_records import Command, is_known
from envdoctor.rules.registry import Problem, rule

CD = "https://www.gnu.org/software/bash/manual/html_node/Bourne-Shell-Builtins.html#index-cd"
TILDE = "https://www.gnu.org/software/bash/manual/html_node/Tilde-Expansion.html"
_SUBSHELL = lazy_pattern(r"\(\s*(?:cd|pushd)\s|\|\||\bif\b|\bfor\b|\bthen\b|`|\$\(")
_RETURNS = lazy_pattern(r"(?:^|[;&]\s*)\s*(?:cd\s+(?:\.\.|-)|popd)", re.MULTILINE)
_HEADING = lazy_pattern(r"\s{0,3}#{1,6}\s+(?!(?:\W*step\s*)?\W*\d+\b)", re.IGNORECASE)
_PLACEHOLDER = lazy_pattern(r"(?i:path|your|folder|some)|[<>\[*]|\.\.\.|(?:^|[/_-])[A-Z]{3,}(?:[/_-]|$)")
_LIKENESS = 0.75
_UNKNOWN = "?"
# Directories of a home that a usual system or its programs make.
_USUAL = frozenset({".cache", ".config", ".local", ".ssh", ".conda", ".jupyter", ".ipython", ".vim"})
_HIDDEN_HOME = lazy_pattern(r"(?:~|\$\{?HOME\}?)/(\.[A-Za-z][\w-]*)/?")
_FILLS = frozenset({"wget", "curl", "git", "tar", "unzip", "cp", "mv"})
_MAKES = lazy_pattern(
    r"mkdir|creat|make|new\b|extract|unzip|unpack|decompress|put|plac|mov|copy|-C\b|clone|install -d", re.IGNORECASE
)
_DOWNLOADS = frozenset({"wget", "curl", "gdown", "huggingface-cli", "hf", "aria2c"})
_IS_MADE = lazy_pattern(r"mkdir|creat|make|new\b|extract|unzip|unpack|decompress|clone|submodule|-C\b", re.IGNORECASE)
_OTHER_HOME = lazy_pattern(
    r"\s*export\s+(?:LD_LIBRARY_PATH|LIBRARY_PATH|PYTHONPATH|PATH|CPATH|CUDA_HOME)=[^\s;&]*?"
    r"(/(?:home|Users)/(\w[\w.-]*))(?=/)"
)
# Users of images and of examples.
_GENERIC_USER = lazy_pattern(
    r"(?i)users?|user_?name|\w*[-_]user|ubuntu|me|name|admin|root|vscode|jovyan|coder|docker|dev|developer|foo|bar|x{2,}"
    r"|your?\w*|my\w*|some\w*|test|student|path|linuxbrew|nvidia|jetson|pi|app|worker|runner|shared|share|public"
)
_DOUBLED_HOME = lazy_pattern(r"(?:^|(?<=[=:]))(?:~|\$\{?HOME\}?)/(?:~|\$\{?HOME\}?)(?=/|$)")


class Entry(NamedTuple):
    """A `cd` of a guide, the directory in which it runs, and the line that led there."""

    command: Command
    path: str
    current: str  # relative to the root; _UNKNOWN if it is not known
    led_by: int
    is_made: bool  # an earlier step can have made the directory
    is_of_clone: bool = False  # its name is like one of the repository


@rule("RUN217", kind="guide", severity=("error", "warning"), cause="dependency-pin-violated", url=CD)
def steps_lead_to_another_directory(context: GuideContext) -> Iterator[Problem]:
    """A step enters a directory that is not below the one in which the steps before it leave the reader.

    Reported where the guide counts on one shell: both commands are in one block, or the step returns with `cd ..` and
    no heading other than that of a numbered step is between them. Also reported: a directory with another letter, and
    one that no step makes, where the next commands of the block download into it.
    """
    guide = context.guide
    checkout = guide.checkout
    if checkout is None or not checkout.is_clone or not checkout.paths:
        return
    for entry in _entries(guide, checkout):
        there = _joined(entry.current, entry.path)
        is_unknown = entry.current == _UNKNOWN or not is_folder(checkout.root / entry.current)
        if is_unknown or entry.is_made or ".." in entry.path.split("/") or is_folder(checkout.root / there):
            continue
        if entry.led_by and is_folder(checkout.root / entry.path) and _is_one_shell(guide, entry):
            target = posixpath.relpath(posixpath.normpath(entry.path), entry.current)
            yield Problem(
                "warning",
                f"`{entry.command}` fails: the steps leave the reader in {entry.current} (line {entry.led_by}), and "
                f"{posixpath.normpath(entry.path)} is below the root of the repository",
                (
                    guide_evidence(context, "directory", guide.lines[entry.led_by - 1].strip()[:120], entry.led_by),
                    guide_evidence(context, "command", str(entry.command), entry.command.line),
                ),
                f"Use {shell_command('cd {}', target)}.",
                line=entry.command.line,
            )
        elif not (entry.is_of_clone or is_folder(checkout.root / entry.path)) and (
            other := _other_spelling(checkout, entry)
        ):
            yield Problem(
                "error",
                f"`{entry.command}` fails: the directory is {other}",
                (guide_evidence(context, "command", str(entry.command), entry.command.line),),
                f"Use {shell_command('cd {}', other)}.",
                line=entry.command.line,
            )
        elif not entry.is_of_clone and (download := _download_after(guide, checkout, entry)):
            yield Problem(
                "warning",
                f"`{entry.command}` fails: the checkout has no {posixpath.normpath(there)}, and no step makes it",
                (guide_evidence(context, "command", str(entry.command), entry.command.line),
                 guide_evidence(context, "next command", str(download)[:120], download.line)),
                f"Run {shell_command('mkdir -p {}', posixpath.normpath(entry.path))} first.",
                line=entry.command.line,
            )  # fmt: skip


def _download_after(guide: Guide, checkout: Checkout, entry: Entry) -> Command | None:
    """The command of the same block that downloads into a directory that is not there; None without one."""
    path = posixpath.normpath(entry.path)
    name, first = posixpath.basename(path), path.partition("/")[0]
    block = next((each for each in guide.blocks if entry.command.line in [number for number, _ in each.lines]), None)
    names = {name} if first in checkout.paths else {name, first}
    is_elsewhere = any(each.rpartition("/")[2] in names for each in checkout.paths)
    if block is None or is_elsewhere or first in checkout.text(".gitmodules") or _PLACEHOLDER.search(path):
        return None
    if any(name in text and _IS_MADE.search(text) for text in guide.lines[: entry.command.line - 1]):
        return None
    last = block.lines[-1][0]
    for command in guide.commands[guide.commands.index(entry.command) + 1 :]:
        if command.line > last or command.name in ("cd", "pushd", "popd"):
            return None
        if command.name in _DOWNLOADS or (command.name == "git" and "clone" in command.words):
            return command
    return None


@rule("RUN219", kind="guide", severity="warning", cause="dependency-pin-violated", url=TILDE)
def directory_of_home_is_not_made(context: GuideContext) -> Iterator[Problem]:
    """A step enters a hidden directory of the home to download into it, and no step makes it: `cd ~/.mujoco`.

    The download then stays in the directory before. Also reported: `~/$HOME`, which is a directory below the home,
    and a search path in the home of another person, such as `LD_LIBRARY_PATH=/home/alice/.mujoco/bin`.
    """
    yield from _homes_of_others(context)
    seen: set[str] = set()
    commands = context.guide.commands
    for position, command in enumerate(commands):
        doubled = next((word for word in command.words[1:] if _DOUBLED_HOME.search(word)), "")
        if doubled and doubled not in seen:
            seen.add(doubled)
            yield Problem(
                "warning",
                f"{doubled} is a directory below the home directory, with the name of the home directory",
                (guide_evidence(context, "command", str(command), command.line),),
                f"Use {_DOUBLED_HOME.sub('~', doubled)}.",
                line=command.line,
            )
        found = _HIDDEN_HOME.fullmatch(command.words[1]) if command.name == "cd" and command.words[1:] else None
        following = commands[position + 1] if position + 1 < len(commands) else None
        if not found or found[1] in _USUAL or found[1] in seen or not following or following.name not in _FILLS:
            continue
        seen.add(found[1])
        if not _is_named_as_made(context.guide.lines[: command.line], found[1], commands[:position]):
            yield Problem(
                "warning",
                f"`{command}` fails on a new system: no step makes {found[0]}, and `{following.name}` then runs in "
                "the directory before",
                (guide_evidence(context, "command", str(command), command.line),
                 guide_evidence(context, "next command", str(following), following.line)),
                f"Run mkdir -p {found[0]} first.",
                line=command.line,
            )  # fmt: skip


def _homes_of_others(context: GuideContext) -> Iterator[Problem]:
    """The search paths in the home of a person that the guide does not name elsewhere, once for each home."""
    seen: set[str] = set()
    lines = context.guide.lines
    for command in () if any(map(is_dockerfile, context.guide.blocks)) else context.guide.commands:
        text = lines[command.line - 1] if 0 < command.line <= len(lines) else ""
        found = _OTHER_HOME.match(without_prompt(text))
        home, name = (found[1], found[2]) if found else ("", "")
        rest = "\n".join(lines).replace(home, "") if home else ""
        if not home or home in seen or _GENERIC_USER.fullmatch(name) or re.search(rf"\b{re.escape(name)}\b", rest):
            continue
        seen.add(home)
        yield Problem(
            "warning",
            f"{home} is the home of another person: the variable gets a directory that does not exist",
            (guide_evidence(context, "command", text.strip()[:120], command.line),),
            f"Write $HOME in place of {home}.",
            line=command.line,
        )


def _is_named_as_made(lines: Sequence[str], name: str, before: Sequence[Command]) -> bool:
    """Whether a line up to the command, or a command before it, can make a directory."""
    in_text = any(name in text and _MAKES.search(text) for text in lines)
    return in_text or any(name in command.text and command.name != "cd" for command in before)


def _entries(guide: Guide, checkout: Checkout) -> Iterator[Entry]:
    """Each `cd` of the commands of a guide, also of those that a reader may run in a new shell."""
    names = checkout.own_names("\n".join(guide.lines))
    current, led_by, script_line = "", 0, 0
    is_cloned = False  # the project, by a step after which no other enters a directory
    named: list[str] = []  # what earlier commands name: a step can make a directory
    for command in guide.commands:
        words = [word for word in command.words if not word.startswith("-") or word == "-"]
        if command.line == script_line or not words:
            continue  # in a script, which has a shell of its own
        text = guide.lines[command.line - 1] if command.line <= len(guide.lines) else ""
        program = started_program(command)
        if program and not program.is_python and program.launcher != "sbatch":
            script_line = command.line
        if words[0] in ("cd", "pushd", "popd"):
            path = words[1].rstrip("/") if len(words) == 2 and words[0] == "cd" else _UNKNOWN
            if not is_known(path) or _SUBSHELL.search(text) or path.startswith(("/", "~", "-", _UNKNOWN)):
                current, led_by = _UNKNOWN, command.line
                continue
            first, _, rest = path.strip("/").removeprefix("./").partition("/")
            is_root = name_key(first) in names and (
                is_cloned or not is_folder(checkout.root / _joined(current, first))
            )
            is_cloned = False
            if is_root or (current == _UNKNOWN and is_folder(checkout.root / path) and not path.startswith(".")):
                current, path = "", (rest if is_root else path)
            last = posixpath.basename(posixpath.normpath(path))
            is_made = any(first in each or last in each for each in named)
            is_of_clone = bool(difflib.get_close_matches(name_key(first), names, n=1, cutoff=_LIKENESS))
            yield Entry(command, path, current, led_by, is_made, is_of_clone)
            there = _joined(current, path)
            is_of_root = is_folder(checkout.root / path) and not is_folder(checkout.root / there)
            current = posixpath.normpath(path) if current != _UNKNOWN and is_of_root else there
            led_by = command.line
        else:
            address = repository_name(words[2]) if len(words) > len(("git", "clone")) else ""
            is_cloned |= words[:2] == ["git", "clone"] and (not address or name_key(address) in names)
            named.append(" ".join((*words, repository_name(words[-1]))))


def _joined(current: str, path: str) -> str:
    if current == _UNKNOWN:
        return _UNKNOWN
    joined = posixpath.normpath(posixpath.join(current, path or "."))
    return "" if joined == "." else joined


def _is_one_shell(guide: Guide, entry: Entry) -> bool:
    """Whether the guide runs a `cd`, and the step that led to its directory, in the same shell."""
    first, last = entry.led_by, entry.command.line
    blocks = [[number for number, _ in block.lines] for block in guide.blocks]
    if any(first in numbers and last in numbers for numbers in blocks):
        return True
    own = next((block for block in guide.blocks if last in [number for number, _ in block.lines]), None)
    returns = own is not None and bool(_RETURNS.search(own.text))
    code = {number for numbers in blocks for number in numbers}
    between = [guide.lines[number - 1] for number in range(first + 1, last) if number not in code]
    return returns and not any(map(_HEADING.match, between))


def _other_spelling(checkout: Checkout, entry: Entry) -> str:
    """A directory whose path differs in one part, and there in few letters."""
    parts = posixpath.normpath(entry.path).split("/")
    if ".." in parts or _PLACEHOLDER.search(entry.path):
        return ""
    for current in dict.fromkeys((entry.current, "")):
        for index, part in enumerate(parts):
            above = posixpath.join(current, *parts[:index])
            prefix = f"{above}/" if above else ""
            folders = [
                each.removeprefix(prefix)
                for each in checkout.paths
                if each.startswith(prefix) and "/" not in each.removeprefix(prefix) and "." not in each
            ]
            for name in difflib.get_close_matches(part, folders, n=3, cutoff=_LIKENESS):
                other = "/".join((*parts[:index], name, *parts[index + 1 :]))
                if name != part and is_folder(checkout.root / posixpath.join(current, other)):
                    return other
    return ""
