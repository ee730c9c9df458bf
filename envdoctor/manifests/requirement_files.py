"""Reads the lines of requirements files."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.files import Files
from envdoctor.manifests.markdown import Line
from envdoctor.resolution.requirement import InstallRequirement, parse_install_requirement

_COMMENT = lazy_pattern(r"(?:^|\s)#.*")
_EDITABLE = lazy_pattern(r"(?:-e|--editable)[ =]?\s*(\S+)")
_MAX_DEPTH, _MAX_FILES = 8, 100  # of files that include files


def logical_lines(lines: Iterable[Line]) -> Iterator[Line]:
    """The lines without comments, each joined with its continuation lines as pip does, with the number of the first.

    Unlike pip, a backslash before blanks continues a line as well.
    """
    parts: list[str] = []
    first = 0
    for number, raw in lines:
        text = raw.rstrip()
        first = first if parts else number
        is_comment = text.lstrip().startswith("#")
        if text.endswith("\\") and not is_comment:
            parts.append(text.rstrip("\\"))
            continue
        # A comment ends a continued line, also if it starts in the first column.
        yield first, _COMMENT.sub("", "".join([*parts, " " * is_comment, text])).strip()
        parts = []
    if parts:
        yield first, _COMMENT.sub("", "".join(parts)).strip()


def requirement_text(text: str) -> str:
    """The requirement in a line, without the options for it such as `--hash`."""
    return re.split(r"\s-", text, maxsplit=1)[0].strip()


def parse_requirement_lines(
    lines: tuple[Line, ...], files: Files, depth: int = 0, folder: str = ""
) -> tuple[list[InstallRequirement], list[str]]:
    """The requirements and options (`--index-url X`) of a requirements file and of the files that it includes.

    A line that is no requirement has an empty name.
    The paths of constraints are relative to the file that names them, which is in `folder`.
    """
    requirements: list[InstallRequirement] = []
    options: list[str] = []
    for number, line in logical_lines(lines):
        text = re.sub(r"^(-[rc])(?=[\w./~$\"'])|^(--requirement|--constraint)=", r"\1\2 ", line)
        if text.startswith(("-r ", "--requirement ")):
            path = _words(text)[1]
            if depth == _MAX_DEPTH or len(files.included) == _MAX_FILES:
                files.add_missing(path, number, "too many files that include others")
                continue
            inside = posixpath.join(folder, posixpath.dirname(path))
            included = parse_requirement_lines(files.lines(path, number), files.within(path), depth + 1, inside)
            requirements, options = requirements + included[0], options + included[1]
        elif editable := _EDITABLE.match(text):
            if project := parse_install_requirement(editable_path(editable[1]), number):
                requirements.append(project)
        elif text.startswith(("-c ", "--constraint ")):
            path = _words(text)[1]
            options += ["-c", path if "://" in path else posixpath.join(folder, path)]
        elif text.startswith("-"):
            options += _words(text)
        elif shown := requirement_text(text):
            requirement = parse_install_requirement(shown, number)
            requirements.append(requirement or InstallRequirement("", text=shown, line=number))
    return requirements, options


def editable_path(text: str) -> str:
    """The argument of `-e` as a path: pip reads `-e package` as a folder."""
    return text if re.search(r"[/:\\.]", text) else f"./{text}"


def requirements_of_file(path: str, line: int, files: Files) -> list[InstallRequirement]:
    """The requirements of a file that the manifest names on a line."""
    found = parse_requirement_lines(files.lines(path, line), files.within(path))[0]
    return [each for each in found if each.name or each.url]


def _words(text: str) -> list[str]:
    """The words of an option with a value, which may be quoted: `-r "my file.txt"`."""
    try:
        return shlex.split(text)
    except ValueError:  # an open quotation mark
        return text.split()
