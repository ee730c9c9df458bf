"""The repository that a guide belongs to: the files that its commands name there, and its own requirements."""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterator
from pathlib import Path

from envdoctor.core.files import read_file, read_file_text
from envdoctor.knowledge.releases import normalize_name
from envdoctor.manifests.files import Files
from envdoctor.manifests.markdown import Line
from envdoctor.manifests.pyproject import parse_pyproject
from envdoctor.manifests.shell_records import Command

_SCRIPT = re.compile(r"[\w./-]+\.sh")
_SHELLS = ("bash", "sh", "source", ".")
_UNKNOWN = "/"  # no name of a repository
_MAX_ANCESTORS = 4
_REPOSITORY = re.compile(r"[/:]([\w.-]+?)(?:\.git)?/?$")


def repository_of(path: Path) -> Path:
    """The root of the clone that contains a directory; the directory itself if it is in none."""
    ancestors = [path.absolute(), *path.absolute().parents][:_MAX_ANCESTORS]
    return next((each for each in ancestors if (each / ".git").exists()), path)


class Repository:
    """Follows `cd` and `git clone`: files on disk are read only while commands run in the guide's own repository."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.elsewhere = files.without_folder()
        self.clones: dict[str, str] = {}  # directory -> name of the repository
        self.current = ""  # the cloned repository that the commands run in; empty: the guide's own
        self.own_names = set(_own_names(files.folder)) if files.folder else set()

    def follow(self, command: Command) -> Files:
        """Apply a command; returns the files that it can name."""
        words = [word for word in command.words if not word.startswith("-")]
        if words[:2] == ["git", "clone"] and len(words) > 2:
            url = next((word for word in words[2:] if "/" in word), "")
            name = _repository_name(url)
            self.clones[words[-1].rstrip("/") if words[-1] != url else name] = name
        elif words[:1] == ["cd"] and len(words) > 1:
            directory = words[1].rstrip("/").removeprefix("./").partition("/")[0]
            if directory in self.clones:
                self.current = self.clones[directory]
            elif directory == "..":
                self.current = ""
            elif self.files.is_repository and not self.files.has_folder(directory):
                self.current = _UNKNOWN
        is_own = not self.current or normalize_name(self.current.strip("/") or "x") in self.own_names
        return self.files if is_own else self.elsewhere

    def script(self, command: Command, files: Files) -> tuple[Line, ...]:
        """The lines of a shell script of the repository that a command runs, with the line of the command."""
        words = [word for word in command.words if not word.startswith("-")]
        name = words[1] if len(words) > 1 and words[0] in _SHELLS else words[0] if words else ""
        return files.of_project(name, command.line) if _SCRIPT.fullmatch(name) else ()

    def is_own_clone(self, command: Command) -> bool:
        """Whether a `cd` enters a clone of the guide's own repository."""
        directory = command.words[1].rstrip("/").removeprefix("./") if len(command.words) > 1 else ""
        return normalize_name(self.clones.get(directory, "") or "x") in self.own_names


def _own_names(folder: Path) -> Iterator[str]:
    yield normalize_name(folder.absolute().name or "x")
    if project := parse_pyproject(_lines(folder / "pyproject.toml")):
        yield project.name
    config = configparser.RawConfigParser(strict=False)
    try:
        config.read_string(read_file_text(folder / ".git/config"))
        yield normalize_name(_repository_name(config.get('remote "origin"', "url", fallback="")) or "x")
    except (OSError, configparser.Error):
        return


def _repository_name(url: str) -> str:
    match = _REPOSITORY.search(url)
    return match[1] if match else ""


def _lines(path: Path) -> tuple[Line, ...]:
    try:
        return tuple(enumerate(read_file(path, inside=path.parent).decode("utf-8", "replace").splitlines(), 1))
    except OSError:
        return ()
