"""Parsers for files that build an image: Dockerfiles and Apptainer definitions."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.markdown import Block, Line

_INSTRUCTION = lazy_pattern(
    r"\s*(ONBUILD\s+)?(FROM|RUN|ENV|ARG|SHELL|COPY|ADD|CMD|ENTRYPOINT|WORKDIR|USER|LABEL|EXPOSE|VOLUME|HEALTHCHECK"
    r"|STOPSIGNAL|MAINTAINER)\s+(.*)",
    re.IGNORECASE | re.DOTALL,
)
_ARG = lazy_pattern(r"\s*ARG\s+\w+(=\S*)?\s*$", re.IGNORECASE)
_FROM = lazy_pattern(r"\s*FROM\s+(--platform=\S+\s+)?\S+(\s+AS\s+\S+)?\s*$", re.IGNORECASE)
_HEREDOC = lazy_pattern(r"<<-?\s*(['\"]?)(\w+)\1")
_DIRECTIVE = lazy_pattern(r"#\s*(\w+)\s*=\s*(\S+)")  # `# syntax=docker/dockerfile:1`, `# escape=\``
_SECTION = lazy_pattern(r"%(\w+)(.*)")
_TEMPLATE = lazy_pattern(r"\{\{\s*(\w+)\s*\}\}")  # of Apptainer's build arguments
_SCRIPTS = frozenset({"post", "environment", "runscript", "startscript", "test"})


class Instruction(NamedTuple):
    """An instruction of a Dockerfile with its continuation lines."""

    name: str
    lines: tuple[Line, ...]
    is_trigger: bool = False  # ONBUILD


def parse_dockerfile(lines: tuple[Line, ...]) -> list[Instruction]:
    """The instructions of a Dockerfile: `RUN pip install torch && \\` and its continuation lines are one.

    Empty lines and comments between continuation lines are no part of it. The triggers of a stage (ONBUILD) are its
    last instructions: they run in the images that start from it.
    """
    escape = _escape_character(lines)
    instructions: list[tuple[str, list[Line], bool]] = []
    continues = False
    marker = ""  # end of an open heredoc
    for number, text in lines:
        start = None if continues or marker else _INSTRUCTION.fullmatch(text)
        if start:
            instructions.append((start[2].upper(), [(number, start[3])], bool(start[1])))
        stripped = text.strip()
        if not start and instructions and (marker or (stripped and not stripped.startswith("#"))):
            instructions[-1][1].append((number, text))
        if marker:
            marker = "" if stripped == marker else marker
        elif (heredoc := _HEREDOC.search(text)) and instructions and "<<<" not in text:
            marker = heredoc[2]
        is_skipped = not stripped or stripped.startswith("#")
        continues = continues if is_skipped else stripped.endswith(escape)
    return _with_triggers_last([
        Instruction(keyword, tuple(_with_backslash(line, escape) for line in found), is_trigger)
        for keyword, found, is_trigger in instructions
    ])  # fmt: skip


def _with_triggers_last(instructions: list[Instruction]) -> list[Instruction]:
    stage = 0
    stages: list[tuple[int, bool, Instruction]] = []
    for each in instructions:
        stage += each.name == "FROM"
        stages.append((stage, each.is_trigger, each))
    return [each for *_, each in sorted(stages, key=lambda row: row[:2])]


def _escape_character(lines: tuple[Line, ...]) -> str:
    """What continues a line: a backslash, or the character of a directive `# escape=` in the first lines."""
    for _, text in lines:
        directive = _DIRECTIVE.fullmatch(text.strip())
        if directive is None:
            break
        if directive[1].lower() == "escape":
            return directive[2][:1]
    return "\\"


def _with_backslash(line: Line, escape: str) -> Line:
    """A line that continues as a shell expects it."""
    number, text = line
    stripped = text.rstrip()
    return (number, f"{stripped[: -len(escape)]}\\") if stripped.endswith(escape) else line


def script_of(instruction: Instruction) -> tuple[Line, ...]:
    """The shell script of RUN, CMD and ENTRYPOINT: without options, and from the JSON form or a heredoc."""
    lines = tuple((number, text) for number, text in instruction.lines if not text.lstrip().startswith("#"))
    lines = _strip_options(lines)
    if not lines:
        return ()
    number, first = lines[0]
    if first.lstrip().startswith("[") and (words := _json_words(" ".join(text for _, text in lines))):
        import shlex

        return ((number, shlex.join(words)),)
    if (heredoc := _HEREDOC.match(first.strip())) and not first.strip()[heredoc.end() :].strip():
        return tuple((number, text) for number, text in lines[1:] if text.strip() != heredoc[2])
    return lines


def heredoc_file(instruction: Instruction) -> tuple[str, tuple[Line, ...]] | None:
    """The path and the lines of the file that `COPY <<EOF /path` writes."""
    first = instruction.lines[0][1]
    heredoc = _HEREDOC.search(first)
    target = first.split()[-1]
    if not heredoc or heredoc.end() == len(first.rstrip()):
        return None
    path = f"{target}{heredoc[2]}" if target.endswith("/") else target
    return path, tuple(line for line in instruction.lines[1:] if line[1].strip() != heredoc[2])


def copied_file(instruction: Instruction) -> tuple[str, str] | None:
    """The path of the copy and that of its source in `COPY docker/environment.yml /tmp/env.yaml`.

    None for directories, for several sources, and where the copy has the relative path of its source.
    """
    words = [word for word in instruction.lines[0][1].split() if not word.startswith("--")]
    if len(words) != 2 or len(instruction.lines) > 1 or words[0].startswith(("[", "http")):
        return None
    source, target = words
    folder, _, name = target.rpartition("/")
    own_name = source.rpartition("/")[2]
    if name in ("", "."):
        folder, name = folder or ".", own_name
    is_moved = name != own_name or "/" in source.removeprefix("./")
    return (f"{folder}/{name}", source) if "." in name.strip(".") and "*" not in source and is_moved else None


def _json_words(text: str) -> list[str]:
    try:
        words = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return words if isinstance(words, list) and all(isinstance(word, str) for word in words) else []


def _strip_options(lines: tuple[Line, ...]) -> tuple[Line, ...]:
    """`RUN --mount=type=cache,target=/x pip install` without the options of RUN."""
    if not lines or not lines[0][1].lstrip().startswith("--"):
        return lines
    words = lines[0][1].split()
    while words and words[0].startswith("--"):
        words = words[1:]
    return ((lines[0][0], " ".join(words)), *lines[1:])


def is_dockerfile(block: Block) -> bool:
    """Whether a block is a Dockerfile, by its language or its first instructions."""
    if block.language in ("dockerfile", "docker", "containerfile"):
        return True
    texts = (text for _, text in block.lines if text.strip() and not text.lstrip().startswith("#"))
    return bool(_FROM.match(next((text for text in texts if not _ARG.match(text)), "")))


def is_apptainer(block: Block) -> bool:
    """Whether a block is a definition of Apptainer or Singularity."""
    texts = (text for _, text in block.lines if text.strip() and not text.lstrip().startswith("#"))
    return bool(re.match(r"(?i)bootstrap\s*:", next(texts, "")))


def parse_apptainer(lines: tuple[Line, ...]) -> list[Instruction]:
    """A definition as instructions of a Dockerfile: its base image, and the scripts of its sections."""
    instructions: list[Instruction] = []
    arguments: list[Instruction] = []
    section = ""
    for number, raw in lines:
        text = _TEMPLATE.sub(r"$\1", raw)
        if header := _SECTION.match(text):
            section = header[1].lower()
            if section in _SCRIPTS:
                instructions.append(Instruction("RUN", ()))
        elif section in _SCRIPTS:
            instructions[-1] = instructions[-1]._replace(lines=(*instructions[-1].lines, (number, text)))
        elif section == "arguments":
            arguments.append(Instruction("ARG", ((number, text.strip()),)))
        elif base := re.match(r"(?i)from\s*:\s*(\S+)", text):
            instructions.append(Instruction("FROM", ((number, base[1].removeprefix("docker://")),)))
    return [*arguments, *instructions]
