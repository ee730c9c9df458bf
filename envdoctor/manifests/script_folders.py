"""The directory of a shell script in the variables that it sets: `HERE=$(cd "$(dirname "$0")" && pwd)`."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.markdown import Line

_SELF = r"(?:\$0|\$\{0\}|\$BASH_SOURCE|\$\{BASH_SOURCE(?:\[0\])?(?::-\$0)?\})"
_QUOTE = r"[\"']?"
_RESOLVED = rf"\$\(\s*(?:readlink\s+-f|realpath)\s+(?:--\s+)?{_QUOTE}{_SELF}{_QUOTE}\s*\)"
_FOLDER = lazy_pattern(
    rf"\$\(\s*dirname\s+(?:--\s+)?{_QUOTE}(?:{_SELF}|{_RESOLVED}){_QUOTE}\s*\)|\$\{{(?:0|BASH_SOURCE(?:\[0\])?)%/\*\}}"
)
_PATH = r"[\w.-]+(?:/[\w.-]+)*"
_PRINTED = r"(?:&&|;)\s*pwd(?:\s+-P)?\s*"
_SILENT = r"(?:&?>\s*/dev/null\s*(?:2>&1\s*)?)?"
_ENTERED = lazy_pattern(
    rf"\$\(\s*(?:cd|realpath|readlink\s+-f)\s+(?:-P\s+|--\s+)?{_QUOTE}({_PATH}){_QUOTE}\s*{_SILENT}(?:{_PRINTED})?\)"
)
_ABOVE = lazy_pattern(rf"\$\(\s*dirname\s+(?:--\s+)?{_QUOTE}({_PATH}){_QUOTE}\s*\)")
_CURRENT = lazy_pattern(r"`pwd`|\$\(\s*pwd(?:\s+-P)?\s*\)|\$\{?PWD\}?(?!\w)")
_ASSIGNMENT = lazy_pattern(r"(\s*(?:(?:export|readonly|local|declare\s+-r)\s+)?)([A-Za-z_]\w*)=(\S.*?)\s*")
# A value that each reader replaces: an argument, an absolute path, a placeholder.
_OF_READER = lazy_pattern(r"[\"']?(?:\$\{?[1-9]|~?/[\w{<]|\$\{?(?:HOME|USER)\b|(?i:path[_/-]to|your)[_/-]|<)")
_ENTERS = lazy_pattern(r"\s*(?:cd|pushd|popd)\b")
_ENTERED_PATH = lazy_pattern(rf"\s*cd\s+(?:--\s+)?{_QUOTE}((?!-){_PATH}){_QUOTE}\s*(?:(?:;|&&|\|\|).*)?")


def variables_of_root(lines: tuple[Line, ...], is_there: Callable[[str], bool]) -> frozenset[str]:
    """The variables to which a reader gives the directory of the project: `BASE_PATH=${1-"/home/me/project"}`.

    Most programs that the script names below such a variable are in the project.
    """
    text = "\n".join(text for _, text in lines)
    assigned = [match for _, line in lines if (match := _ASSIGNMENT.fullmatch(line))]
    found = set()
    for name in {match[2] for match in assigned if _OF_READER.match(match[3])}:
        programs = set(re.findall(rf"\$(?:{name}|\{{{name}\}})/([\w./-]+\.(?:py|sh))\b", text))
        if 2 * sum(map(is_there, programs)) > len(programs):
            found.add(name)
    return frozenset(found)


def with_own_folder(lines: tuple[Line, ...], folder: str, roots: Collection[str] = ()) -> tuple[Line, ...]:
    """The lines of a script with its directory, relative to the current one, in place of the commands that print it.

    A `cd` to a known directory changes the paths after it; after another one, the lines stay as they are. The
    variables of `roots` have the current directory.
    """
    if not any("$" in text or "`" in text for _, text in lines):
        return lines
    known: dict[str, str] = {}
    current = "."  # relative to the directory where the script starts
    found: list[Line] = []
    for index, (number, text) in enumerate(lines):
        assignment = _ASSIGNMENT.fullmatch(text)
        path = _path_of(assignment[3], folder, known) if assignment and current == "." else ""
        if assignment and assignment[2] in roots and _OF_READER.match(assignment[3]):
            path = "."
        if assignment and path:
            known[assignment[2]] = path
            found.append((number, f"{assignment[1]}{assignment[2]}={path}"))
            continue
        is_entered = _ENTERS.match(text) is not None
        replaced = _with_values(text, known, current) if is_entered or current != "." else text
        replaced = _FOLDER.sub(posixpath.relpath(folder, current), replaced)
        found.append((number, replaced))
        if is_entered:
            entered = _ENTERED_PATH.fullmatch(replaced)
            if entered is None:
                return (*found, *lines[index + 1 :])
            current = posixpath.normpath(posixpath.join(current, entered[1]))
    return tuple(found)


def _with_values(text: str, known: dict[str, str], current: str) -> str:
    """A line with the directories of variables, relative to the current one."""
    for name, path in known.items():
        text = re.sub(rf"\$\{{{name}\}}|\${name}(?!\w)", posixpath.relpath(path, current), text)
    return text


def _path_of(value: str, folder: str, known: dict[str, str]) -> str:
    """The path that a value is; empty for one that is no path below the directories of the script."""
    text = _with_values(_CURRENT.sub(".", _FOLDER.sub(folder, value)), known, ".")
    if text == value:
        return ""
    for _ in range(2):  # `$(dirname "$(cd .. && pwd)")`
        text = _ENTERED.sub(lambda match: match[1], text)
        text = _ABOVE.sub(lambda match: _above(match[1]), text)
    text = text.strip("\"'")
    return posixpath.normpath(text) if re.fullmatch(_PATH, text) else ""


def _above(path: str) -> str:
    return posixpath.normpath(posixpath.join(path, ".."))
