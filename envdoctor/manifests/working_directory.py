"""The directory in which the commands of a text run: in its own project, or in the clone of another one."""

from __future__ import annotations

import os
import posixpath
import stat
from itertools import islice
from pathlib import Path

from envdoctor.core.paths import is_file, is_folder
from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.files import Files
from envdoctor.manifests.markdown import Line
from envdoctor.manifests.own_names import name_key, own_names, repository_name
from envdoctor.manifests.script_folders import variables_of_root, with_own_folder
from envdoctor.manifests.shell_records import Command, is_known

_SCRIPT = lazy_pattern(r"[\w./-]+\.sh")
_SHELLS = ("bash", "sh", "source", ".")
_OF_SCRIPT = lazy_pattern(r"\$\(dirname \W*(?:\$0|\$\{?BASH_SOURCE)")
_ADDRESS = lazy_pattern(
    r"git\+\w+://(?:[^/@]+@)?[^/]+/([\w.-]+/[\w.-]+?)(?:\.git)?/?(?:@(?:main|master))?(?:#egg=.*)?"
)
_ELSEWHERE = "/$"  # no directory of the project
_PLACEHOLDER = lazy_pattern(
    r"(?i)(?:.*[/_<-])?(?:path[_/-]to|your)[_/-].*|<.*>"
)  # path_to_checkpoints, /path/to/data
_MAX_ANCESTORS = 4
_MAX_NAMES = 2_000  # of a directory
_MAX_FOLDERS = 100
_OF_A_PROJECT = ("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "environment.yml", "LICENSE")
_BUILD_FILES = ("pyproject.toml", "setup.py", "setup.cfg")
_CODE = (".py", ".ipynb")
_SOURCES = frozenset({"src", "lib", "python"})  # folders of packages


def repository_of(path: Path) -> Path:
    """The root of the project that contains a directory; the directory itself if it is in none."""
    ancestors = [path.absolute(), *path.absolute().parents][:_MAX_ANCESTORS]
    clone = next((each for each in ancestors if (each / ".git").exists()), None)
    unpacked = [each for each in ancestors if is_unpacked_project(each)]
    # A part of a project has a README, too; so has a folder with several projects.
    whole = (each for each in reversed(unpacked[1:]) if any((each / name).is_file() for name in _OF_A_PROJECT))
    return clone or next(whole, unpacked[0] if unpacked else path)


def is_unpacked_project(folder: Path) -> bool:
    """Whether a directory is the top of a project without its `.git`: an archive, or what COPY put into an image.

    It has a README and code. A folder with a guide and its manifests alone can be a part of one; a home directory is
    no project, nor is one that all users share for temporary files.
    """
    if _is_shared(folder):
        return False
    entries = _entries(folder)
    if not any(each.name[:6].lower() == "readme" and each.name[6:7] in ("", ".") for each in entries):
        return False
    folders = [each.path for each in entries if each.is_dir() and not each.name.startswith(".")][:_MAX_FOLDERS]
    sources = [each.path for each in entries if each.name in _SOURCES and each.is_dir()]
    folders += [inner.path for path in sources for inner in _entries(path) if inner.is_dir()][:_MAX_FOLDERS]
    names = [each.name for each in entries + [inner for path in folders for inner in _entries(path)]]
    return any(name.endswith(_CODE) for name in names) and folder not in (Path.home(), Path(folder.anchor))


def _is_shared(folder: Path) -> bool:
    """Whether a directory is one such as /tmp: every user can write, and only owners remove their files."""
    try:
        return bool(folder.stat().st_mode & stat.S_ISVTX)
    except OSError:
        return False


def _entries(folder: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(islice(entries, _MAX_NAMES))
    except OSError:
        return []


class WorkingDirectory:
    """Follows `cd`, `git clone` and WORKDIR.

    A text starts in the directory of its own project. Directories are relative to it, or absolute ones of the target
    machine. Files on disk are read only while the commands run in the own project.
    """

    def __init__(self, files: Files) -> None:
        self.own_files = files
        self.elsewhere = files.without_folder()
        self.clones: dict[str, str] = {}  # directory -> name of the repository
        self.start = self.current = self.previous = ""
        self.before_placeholder: str | None = None  # the directory that a reader leaves for one of its own
        self.is_unnamed_clone = False  # a clone whose address a reader is to replace, before a step enters it
        self.is_later_block = False  # after the block that enters a placeholder
        self.has_environment = False  # a step created one
        self.is_of_environment = False  # the last `cd` was after that
        self.root = files.root if files.is_repository else files.folder
        self.own_names = files.own_names or (own_names(self.root) if self.root else frozenset())

    def follow(self, command: Command) -> None:
        """Apply a command."""
        words = [word for word in command.words if not word.startswith("-") or word == "-"]
        if words[:2] == ["git", "clone"] and len(words) > 2:
            index = next((index for index, word in enumerate(words[2:], 2) if "/" in word or ":" in word), 0)
            name = repository_name(words[index]) if index else ""
            self.is_unnamed_clone = not name
            if name:
                self.clones[self._joined(words[index + 1] if len(words) > index + 1 else name)] = name
        elif words[:2] == ["git", "clone"]:  # `git clone <address>`
            self.is_unnamed_clone = True
        elif words[:1] in (["cd"], ["pushd"]) and len(words) > 1:
            if self.is_unnamed_clone and name_key(words[1].rstrip("/")) in self.own_names:
                self.clones[self._joined(words[1].rstrip("/"))] = words[1].rstrip("/")
            self.is_unnamed_clone = False
            target = self.previous if words[1] == "-" else self._in_new_shell(" ".join(words[1:2]))
            is_placeholder = _PLACEHOLDER.fullmatch(words[1]) or self._place_of_value(words[1]) is None
            is_again = self.before_placeholder is not None and self.place is None
            before = self.before_placeholder if is_again else self.current
            is_clone = self._clone(target) not in ("", _ELSEWHERE)  # `git clone URL $COCOAPI`
            self.before_placeholder = before if is_placeholder and not is_clone else None
            self.is_later_block = False
            self.is_of_environment = self.has_environment
            self.previous, self.current = self.current, target
        elif words[:1] == ["popd"]:
            self.previous, self.current = self.current, self.previous
        paths = {path for word in command.words for path in (word, word.partition("=")[2])}
        self.own_files.own_paths.clear()
        self.own_files.own_paths |= {path: file for path in paths if (file := self._file_of_clone(path))}

    def create_environment(self) -> None:
        """Start again where the text starts, if a later block creates another environment."""
        if self.is_later_block and self.is_of_environment:
            self.current = self.start
        self.has_environment = True

    def enter(self, folder: str, path: str) -> str:
        """The directory after WORKDIR in a Dockerfile: outside of all clones it is that of the own project."""
        self.current = folder
        self.current = self._joined(path)
        # A clone before the first WORKDIR is in that of the base image, mostly the root.
        if self.current.startswith("/") and (first := self._clone(self.current[1:])):
            self.clones[f"/{first}"] = self.clones[first]
        if not self._clone(self.current):
            self.start = self.current
        return self.current

    def is_of_other_clone(self, path: str) -> bool:
        """Whether an absolute path is in the clone of another project."""
        clone = self._clone(path)
        return bool(clone) and name_key(self.clones[clone]) not in self.own_names

    @property
    def place(self) -> str | None:
        """The current directory relative to that of the own project; None if it is another one."""
        return self._place(self.current)

    @property
    def files(self) -> Files:
        """The files that a command can name."""
        place = self.place
        if place is None:
            # The commands of a script or a Dockerfile can run in any directory that has its files.
            is_other = self.own_files.is_repository or self._clone(self.current)
            return self.elsewhere if is_other else self.own_files
        return self.own_files.within(f"{place}/file") if place and self.own_files.is_repository else self.own_files

    @property
    def folders(self) -> tuple[Path, ...]:
        """The directories on disk in which a command can run; none if it runs elsewhere."""
        place = self.place
        return () if place is None else self.own_files.folders_at(place)

    def folders_of(self, script: str) -> tuple[Path, ...]:
        """The directories in which a command can run a script."""
        if not self.has_returned:
            return self.folders or self._root_of(script)
        place = self._place(self.before_placeholder or "")
        folders = () if place is None else self.own_files.folders_at(place)
        inner = posixpath.dirname(posixpath.normpath(script))
        is_there = any(is_file(folder / script) or (inner and is_folder(folder / inner)) for folder in folders)
        return folders if script and is_there else ()

    def _root_of(self, script: str) -> tuple[Path, ...]:
        """The root of the project for a script below it, after steps in a directory that a build makes or a clone.

        A reader returns from the clone of another project, which a block before enters, to scripts of this one.
        """
        is_left = bool(self.place) or (self.place is None and self.is_later_block)
        folders = self.own_files.folders_at(self.own_files.root_place) if is_left and "/" in script else ()
        return tuple(each for each in folders if is_file(each / script))

    @property
    def has_returned(self) -> bool:
        """Whether a block before enters a directory that only a reader has.

        After a block with `cd path_to_checkpoints` or `cd $COCOAPI`, a reader returns to scripts of the project.
        """
        return self.place is None and self.before_placeholder is not None and self.is_later_block

    def place_of(self, url: str) -> str | None:
        """The directory of the own project that a requirement names: a folder, or the address of the repository."""
        if address := _ADDRESS.fullmatch(url):
            is_own = name_key(address[1].rpartition("/")[2]) in self.own_names
            return self.own_files.root_place if is_own and self.own_files.folder else None
        place = self._place(self._joined(url))
        if url not in (".", "./") or not self.is_later_block or self._has_project(place) is not False:
            return place
        root = self._clone(self.current) or self.start
        if not self._has_project(self._place(root)):
            return place
        self.current = root  # a reader has returned from the directory of an earlier block
        return self._place(root)

    def _has_project(self, place: str | None) -> bool | None:
        """Whether a directory has a project that pip can install; None if it is not on disk."""
        folders = () if place is None else self.own_files.folders_at(place)
        return any(is_file(folder / name) for folder in folders for name in _BUILD_FILES) if folders else None

    def script(self, command: Command, files: Files) -> tuple[Line, ...]:
        """The lines of a shell script of the project that a command runs, with the line of the command."""
        words = [word for word in command.words if not word.startswith("-")]
        name = words[1] if len(words) > 1 and words[0] in _SHELLS else words[0] if words else ""
        lines = files.of_project(name, command.line) if _SCRIPT.fullmatch(name) else ()
        root = self.root if self.place == self.own_files.root_place else None
        roots = variables_of_root(lines, lambda path: is_file(root / path)) if root else ()
        return with_own_folder(lines, posixpath.dirname(name) or ".", roots)

    def _entered(self, path: str) -> str:
        if _OF_SCRIPT.search(path):  # the directory of the script
            return posixpath.normpath(posixpath.join(self.start, path.rpartition(")")[2].strip("/\"'") or "."))
        return self._joined(path)

    def _in_new_shell(self, path: str) -> str:
        """The directory that `cd` enters. Blocks of a guide can be for new shells."""
        target = self._entered(path)
        if self.place is None or not is_known(path) or path.startswith((".", "/", "~")) or self._is_there(target):
            return target
        again = posixpath.normpath(posixpath.join(self._clone(self.current) or self.start, path))
        is_there = self._is_there(again) or ("/" in path and self._is_there(posixpath.dirname(again)))
        return again if is_there else target

    def _place_of_value(self, path: str) -> str | None:
        """The place of a directory, empty for one without a variable; None for `$COCOAPI`."""
        return "" if is_known(path) else self._place(self._joined(path))

    def _is_there(self, path: str) -> bool:
        """Whether the own project has a directory on disk."""
        place = self._place(path)
        return place is not None and (not place or self.own_files.has_folder(place))

    def _joined(self, path: str) -> str:
        """A directory that is named in the current one."""
        if not is_known(path):
            tail = self._own_tail(path) or path.rpartition("/")[2]  # `$HOME/src/project`
            return f"{_ELSEWHERE}/{tail}" if is_known(tail) else _ELSEWHERE
        if path.startswith("~"):
            return f"{_ELSEWHERE}/{path[1:].strip('/')}".rstrip("/")
        joined = posixpath.normpath(posixpath.join(self.current, path or "."))
        return "" if joined == "." else joined

    def _own_tail(self, path: str) -> str:
        """The part of a path that begins with the name of the own project: `$HOME/project/data`."""
        parts = path.rstrip("/").split("/")
        named = [index for index, part in enumerate(parts) if part and name_key(part) in self.own_names]
        return "/".join(parts[named[-1] :]) if named else ""

    def _file_of_clone(self, text: str) -> Path | None:
        """The file on disk that a path in a clone of the own project names: `/content/project/requirements.txt`."""
        clones = {each for each, name in self.clones.items() if name_key(name) in self.own_names}
        if not clones or self.root is None or "/" not in text or "://" in text:
            return None
        path = self._joined(text)
        clone = self._clone(path)
        # A guide clones in the directory in which it starts, and names it later.
        parts = path.split("/") if text.startswith(("/", "~", "$")) and not clone else []
        inner = [path[len(clone) + 1 :]] if clone in clones else []
        inner += ["/".join(parts[end:]) for end, each in enumerate(parts, 1) if name_key(each) in self.own_names]
        return next((self.root / each for each in inner if each and is_file(self.root / each)), None)

    def _clone(self, path: str) -> str:
        """The directory of the clone that contains a directory; empty if it is in none."""
        return max((each for each in self.clones if path == each or path.startswith(f"{each}/")), key=len, default="")

    def _place(self, path: str) -> str | None:
        if clone := self._clone(path):
            if name_key(self.clones[clone]) not in self.own_names:
                return None
            return _below(self.own_files.root_place, path[len(clone) :].strip("/"))
        if path == self.start:
            return ""
        relative = path.removeprefix(f"{self.start}/") if self.start else path
        if not relative.startswith("/") and self.own_files.has_folder(relative):
            return relative
        parts = path.split("/")
        named = [index for index, part in enumerate(parts) if part and name_key(part) in self.own_names]
        inner = "/".join(parts[named[-1] + 1 :]) if named else ""
        if named and (not inner or self.own_files.has_folder(_below(self.own_files.root_place, inner))):
            return _below(self.own_files.root_place, inner)
        return None


def _below(folder: str, path: str) -> str:
    joined = posixpath.normpath(posixpath.join(folder, path))
    return "" if joined == "." else joined
