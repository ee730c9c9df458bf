"""The changed versions of packages in the lines of a requirements file."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from envdoctor.core.errors import BadInput
from envdoctor.environment.markers import Markers
from envdoctor.knowledge.releases import normalize_name
from envdoctor.knowledge.versions import local_part, public_part, satisfies
from envdoctor.resolution.requirement import InstallRequirement, parse_install_requirement

# The parts of a line: name and extras, versions, and what follows them: a marker, options, a comment.
LINE = re.compile(
    r"(\s*[\w.-]+\s*(?:\[[^\]]*\]\s*)?)(\(?[=<>~!][^;#\s]*(?:\s*,?\s*[=<>~!\d][^;#\s]*)*\)?)?(.*)", re.DOTALL
)
TORCH_INDEX = re.compile(r"(https://download\.pytorch\.org/whl/)(\w[\w.]*)")
OTHER_FILE = re.compile(r"\s*(?:-r|-c|--requirement|--constraint)[\s=]*(\S+)")


class VersionChange(NamedTuple):
    """A package before and after a fix; an empty version means that it is not installed."""

    name: str
    before: str
    after: str


def version_changes(texts: Iterable[str]) -> tuple[VersionChange, ...]:
    """`einops new -> 1.0` as a record; packages that are installed again keep their version."""
    rows = (text.split() for text in texts)
    return tuple(
        VersionChange(row[0], "" if row[1] == "new" else row[1], "" if row[3] == "removed" else row[3])
        for row in rows if len(row) == 4
    )  # fmt: skip


class Pins:
    """Updates the lines of one file. `notes` are what the file does not contain."""

    def __init__(self, path: Path, changes: Iterable[VersionChange], python_version: str) -> None:
        self.path = path
        self.changes = {each.name: each for each in changes}
        self.markers = Markers(python_version)
        self.notes: list[str] = []

    def update(self, text: str, named: Iterable[str]) -> str:
        """The text with the changed versions, and lines for packages that a remedy names and the file does not.

        A line stays if it excludes the previous version and permits the new one. Raises BadInput, with the line, for
        a file whose lines cannot be changed safely.
        """
        if not self.changes:
            return text
        lines = text.splitlines(keepends=True)
        found: set[str] = set()
        result = []
        for number, line in enumerate(lines, 1):
            self._reject(line, number)
            requirement = self._requirement(line, number)
            change = self.changes.get(requirement.name) if requirement else None
            if requirement and change:
                found.add(change.name)
                line = self._line(line, number, requirement, change)  # noqa: PLW2901
            result.append(line)
        missing = [each for each in named if each in self.changes and each not in found and self.changes[each].after]
        ending = "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
        if missing and result and result[-1] and not result[-1].endswith("\n"):
            result[-1] += ending
        result += [f"{name}=={public_part(self.changes[name].after)}{ending}" for name in missing]
        others = sorted(name for name, each in self.changes.items() if name not in {*found, *missing} and each.after)
        if others:
            versions = ", ".join(f"{name} {self.changes[name].after}" for name in others)
            self.notes.append(f"not in the file, and changed as requirements of other packages: {versions}")
        return "".join(self._index_lines(result, lines))

    def _reject(self, line: str, number: int) -> None:
        """Refuse a file with hashes, other files or continued lines."""
        code = line.partition(" #")[0].strip()
        if code.startswith("#"):
            return
        if other := OTHER_FILE.match(line):
            file = shlex.quote(str(self.path.parent / other[1]))
            raise self._refusal(line, number, "a file without -r and -c", f"--write {file}, without this file")
        if "--hash" in line:
            raise self._refusal(
                line, number, "lines without hashes, which are those of the previous versions",
                "compile the file again: uv pip compile --generate-hashes",
            )  # fmt: skip
        if code.endswith("\\"):
            raise self._refusal(line, number, "a requirement on one line", "join the lines")

    def _requirement(self, line: str, number: int) -> InstallRequirement | None:
        code, _, marker = re.split(r" (?:#|--)", line, maxsplit=1)[0].partition(";")
        requirement = parse_install_requirement(code, number)
        name = re.match(r"\s*([\w.-]+)", line)
        is_valid = requirement and "$" not in requirement.specifier
        if not is_valid and name and normalize_name(name[1]) in self.changes:
            raise self._refusal(line, number, "a valid requirement", "correct this line")
        return requirement._replace(marker=marker.strip()) if requirement else None

    def _refusal(self, line: str, number: int, expected: str, hint: str) -> BadInput:
        return BadInput(f"{self.path}, line {number}: {line.strip()}", expected=expected, hint=hint)

    def _line(self, line: str, number: int, requirement: InstallRequirement, change: VersionChange) -> str:
        if requirement.marker and not self.markers.applicable([f"x; {requirement.marker}"]):
            return line
        if requirement.url:
            raise self._refusal(
                line, number, f"a version of {change.name}, which changes to {change.after or 'none'}",
                "change this line by hand",
            )  # fmt: skip
        if not change.after:
            return ""
        specifier = requirement.specifier
        permits_old = not specifier or not change.before or satisfies(change.before, specifier) is not False
        if not permits_old and satisfies(change.after, specifier):
            return line
        parts = LINE.fullmatch(line)
        assert parts, "the line has a name"
        version = change.after if local_part(specifier) else public_part(change.after)
        name = parts[1] if parts[2] else parts[1].rstrip()
        space = parts[1][len(name) :]
        if specifier == f"=={version}":
            return line
        return f"{name}=={version}{space}{parts[3]}"

    def _index_lines(self, result: list[str], lines: list[str]) -> list[str]:
        """The lines with the PyTorch index of the new build of torch. Raises BadInput if it cannot be known."""
        torch = self.changes.get("torch")
        if not torch or not torch.after or local_part(torch.before) == local_part(torch.after):
            return result
        old, new = local_part(torch.before), local_part(torch.after)
        indexes = [(n, found[2]) for n, line in enumerate(lines, 1) if (found := TORCH_INDEX.search(line))]
        for number, label in indexes:
            if label != new and (label != old or not new):
                raise self._refusal(
                    lines[number - 1], number, f"the index of the new build, torch {torch.after}",
                    "change this line by hand",
                )  # fmt: skip
        if new and not indexes:
            self.notes.append(f"torch {torch.after} is not on PyPI: install the file with --torch-backend={new}")
        return [TORCH_INDEX.sub(lambda found: f"{found[1]}{new}", line) for line in result]
