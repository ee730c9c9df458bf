"""Files that commands name: those in the text of a guide, and those next to a manifest."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from envdoctor.core.files import decode_text, read_file
from envdoctor.core.paths import exists, is_folder
from envdoctor.manifests.markdown import Line

NOT_FOUND = "not found next to the manifest"
READMES = ("README.md", "readme.md", "Readme.md", "README.rst", "INSTALL.md")
MAX_SMALL_FILE = 1 << 20  # bytes


class MissingFile(NamedTuple):
    """A file that was not read, the line that names it, and the reason."""

    path: str
    line: int
    reason: str
    in_repository: bool = False  # the command runs in the checkout, which does not have it
    instead: str = ""  # the only file of the name, in a directory that the guide does not enter: it was read

    @property
    def is_absent(self) -> bool:
        """Whether the manifest names a file next to it that does not exist."""
        return self.reason == NOT_FOUND and bool(self.path) and not self.path.startswith(("/", "~"))

    @property
    def left_out_folder(self) -> str:
        """The directory in which the file that was read instead has the path that the guide names."""
        return self.instead.removesuffix(f"/{posixpath.normpath(self.path)}")


class TextsOfFiles:
    """The files on disk that the audit of a text read, and texts that stand for some of them: corrected ones."""

    def __init__(self, instead: Mapping[Path, str] | None = None) -> None:
        self.instead = dict(instead or {})
        self.read: dict[Path, str] = {}

    def of(self, path: Path, root: Path | None) -> str:
        """The text of a file. Raises OSError and UnicodeError."""
        text = self.instead.get(path.absolute())
        if text is None:
            text = decode_text(read_file(path, inside=root))
        self.read[path.absolute()] = text
        return text


def small_text(path: Path, root: Path | None = None) -> str:
    """The text of a small file of a project, `root` or the file's folder; empty if it cannot be read."""
    try:
        return decode_text(read_file(path, MAX_SMALL_FILE, inside=root or path.parent), "replace")
    except (OSError, ValueError):
        return ""


def project_folder(path: Path) -> Path:
    """The directory in which the commands of a manifest run: of a GitHub workflow that of the repository."""
    parts = path.absolute().parts
    return path.absolute().parents[2] if parts[-3:-1] == (".github", "workflows") else path.parent


class Files:
    """The files that the commands of one input can read.

    Files of the text are found by their name alone, because a guide abbreviates paths. `folder` is the directory of a
    manifest on disk; a Dockerfile in a subdirectory names files of the directory above. `platforms` are the CPU
    architectures on which the commands may run, and `platform` is the one that is read.
    """

    def __init__(self, folder: Path | None = None, *platforms: str, on_disk: TextsOfFiles | None = None) -> None:
        self.folder = folder
        self.on_disk = on_disk or TextsOfFiles()
        self.platforms = platforms
        self.platform = next(iter(platforms), "")
        self.root = folder and folder.absolute().parent  # no file outside of it is read
        self.texts: dict[str, tuple[Line, ...]] = {}
        self.copies: dict[str, str] = {}  # name or path of a copy that COPY makes -> path of its source
        self.missing: dict[str, MissingFile] = {}  # by path
        self.included: list[str] = []  # paths that were read from disk
        self.is_repository = False  # paths are relative to the folder, or to `second_folder`
        # Of a guide in a subdirectory the other one of root and subdirectory, or one that the guide does not enter.
        self.second_folder: Path | None = None
        self.own_names: frozenset[str] = frozenset()  # under which the guide clones its own repository
        self.own_paths: dict[str, Path] = {}  # words of the command that are files of a clone of it -> files on disk

    def add(self, path: str, lines: tuple[Line, ...]) -> None:
        """Add a file of the text."""
        self.texts[_name(path)] = lines

    def add_copy(self, target: str, source: str, workdir: str) -> None:
        """Add a file that an image has under another path than the project, also relative to its directory."""
        path = posixpath.normpath(posixpath.join("/", workdir, target))
        self.copies[path] = source
        if posixpath.dirname(path) == posixpath.join("/", workdir) or _name(path) != _name(source):
            self.copies[_name(path)] = source

    def lines(self, path: str, line: int) -> tuple[Line, ...]:
        """The lines of a file that the command on `line` names; none if it is not available.

        Lines of a file on disk have the number of the command.
        """
        if _name(path) in self.texts:
            return self.texts[_name(path)]
        try:
            text = self._read(self.copies.get(posixpath.normpath(path), self.copies.get(_name(path), path)))
        except (OSError, UnicodeError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not text in UTF-8 or UTF-16"
            self.add_missing(path, line, reason or str(error))
            return ()
        if text is None:
            is_known = "://" not in path and "$" not in path
            self.add_missing(path, line, NOT_FOUND if is_known else "a URL, or a path of unknown value")
            return ()
        self.included.append(path)
        return tuple((line, each) for each in text.splitlines())

    def of_project(self, path: str, line: int) -> tuple[Line, ...]:
        """The lines of a file of a project on disk; none without one, which is no error: another file can replace it.

        The path is exact, because another project's file would be wrong.
        """
        for folder in self._folders(path):
            try:
                text = decode_text(read_file(folder / path, inside=self.root))
            except (OSError, UnicodeError, ValueError):
                continue
            return tuple((line, each) for each in text.splitlines())
        return ()

    def has_folder(self, path: str) -> bool:
        """Whether a directory of the project is on disk."""
        return any(is_folder(folder / path) for folder in self._folders(path))

    def has_file(self, path: str) -> bool:
        """Whether a file of the repository is on disk. Its directory can be a variable: `$ROOT/requirements.txt`."""
        end = path.rpartition(")/")[2] if ")/" in path else path.partition("/")[2]
        relative = end if path.startswith("$") else path
        return self.is_repository and bool(relative) and any(exists(each / relative) for each in self._folders(path))

    def folders_at(self, place: str) -> tuple[Path, ...]:
        """The directories on disk that a place relative to the folder can be."""
        return tuple(each / place for each in self._own_folders if is_folder(each / place))

    def _folders(self, path: str) -> tuple[Path, ...]:
        """The directory of the manifest, and the one above it: `docker/Dockerfile` installs the project there."""
        if self.folder is None or "\0" in path or path.startswith("/"):
            return ()
        return self._own_folders if self.is_repository else (self.folder, self.folder.parent)

    @property
    def _own_folders(self) -> tuple[Path, ...]:
        return tuple(each for each in (self.folder, self.second_folder) if each)

    @property
    def root_place(self) -> str:
        """The root of the repository, relative to the folder."""
        if not (self.is_repository and self.folder and self.root):
            return ""
        relative = os.path.relpath(self.root, self.folder.absolute())
        return "" if relative == "." else relative

    def add_missing(self, path: str, line: int, reason: str) -> None:
        """Add a file that was not read."""
        is_own = self.is_repository and self.folder is not None
        self.missing.setdefault(path, MissingFile(path, line, reason, is_own))

    def within(self, path: str) -> Files:
        """The files that a file on disk names, relative to its own directory. They share what is missing."""
        inner = [(each / PurePosixPath(path)).parent for each in self._own_folders]
        # Of a guide in a subdirectory, the folder that has the directory.
        folder = next((each for each in inner if is_folder(each)), next(iter(inner), None))
        folder = self.own_paths[path].parent if path in self.own_paths else folder
        return self._same_texts(Files(folder, *self.platforms))

    def on(self, platform: str) -> Files:
        """The files for commands on one platform."""
        return self._same_folders(Files(self.folder, platform))

    def fresh(self) -> Files:
        """The same folder without the files of a text, for another text."""
        other = self._same_folders(Files(self.folder, *self.platforms))
        other.texts = {}
        return other

    def of_repository(self, root: Path, own_names: frozenset[str], *, is_readme: bool) -> Files:
        """The files for the commands of a guide in a repository.

        A README in a subdirectory names the files next to it first, another guide those of the root.
        """
        own = self.folder or root
        folders = (own, root) if is_readme else (root, own)
        found = Files(folders[0], *self.platforms, on_disk=self.on_disk)
        found.root, found.is_repository, found.own_names = root.absolute(), True, own_names
        found.second_folder = folders[1] if own.absolute() != root.absolute() else None
        return found

    def with_second_folder(self, place: str) -> Files:
        """The files for a guide in the root that leaves out the step that enters a directory."""
        found = Files(self.folder, *self.platforms, on_disk=self.on_disk)
        found.root, found.is_repository, found.own_names = self.root, True, self.own_names
        found.second_folder = self.folder and self.folder / place
        return found

    def without_folder(self) -> Files:
        """The files for commands that run elsewhere: only those of the text."""
        return self._same_texts(Files(None, *self.platforms))

    def _same_folders(self, other: Files) -> Files:
        other.second_folder = self.second_folder
        return self._same_texts(other)

    def _same_texts(self, other: Files) -> Files:
        other.copies, other.on_disk = self.copies, self.on_disk
        other.texts, other.missing, other.included = self.texts, self.missing, self.included
        other.root, other.is_repository, other.own_names = self.root, self.is_repository, self.own_names
        other.own_paths = self.own_paths
        return other

    def _read(self, path: str) -> str | None:
        if path in self.own_paths:
            return self.on_disk.of(self.own_paths[path], self.root)
        if self.folder is None or not path or "://" in path or "\0" in path:
            return None
        # An absolute path is one of the target machine: only a file of that name next to the manifest can be it.
        relative = _name(path) if path.startswith(("/", "~", "$")) else path
        if self.is_repository:
            candidates = tuple(each / relative for each in self._own_folders)
        else:
            candidates = (self.folder / relative, self.folder.parent / relative, self.folder / _name(path))
        for candidate in candidates:
            try:
                return self.on_disk.of(candidate, self.root)
            except FileNotFoundError:
                continue
        return None


def _name(path: str) -> str:
    return path.rpartition("/")[2]
