"""What changed between two releases: removed names and arguments, and the link to the changelog."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from envdoctor.bisect.records import NamesRemoved, has_version
from envdoctor.bisect.solver import Solver
from envdoctor.core.files import read_file
from envdoctor.core.patterns import lazy_pattern
from envdoctor.download.sources import uv_arguments, uv_environment
from envdoctor.environment.metadata import parse_head
from envdoctor.locking.uv import run_uv
from envdoctor.package_index.public_names import MAX_SOURCE_BYTES, NameChange, read_names, removed_names

INSTALL_SECONDS = 600.0
SHOWN_NAMES = 12
MAX_URL = 300
# Labels of project URLs, without spaces and in lower case, best first (the well-known labels of PyPI and older ones).
LINK_LABELS = (
    "changelog", "changes", "changelogs", "releasenotes", "release", "releases", "whatsnew", "history", "news",
    "repository", "source", "sourcecode", "code", "github", "homepage", "home", "documentation",
)  # fmt: skip
SAFE_URL = lazy_pattern(r"https://[A-Za-z0-9.-]+(?::\d+)?(?:/[!-~]*)?")  # printable ASCII without spaces


class Evidence:
    """Two releases of a package, unpacked from uv's cache into a temporary directory."""

    def __init__(self, solver: Solver, name: str, good: str, bad: str) -> None:
        self._solver = solver
        with tempfile.TemporaryDirectory(prefix="envdoctor-bisect-", ignore_cleanup_errors=True) as folder:
            old, new = (self._unpack(Path(folder, part), name, each) for part, each in (("good", good), ("bad", bad)))
            self._old, self._new = (_read_sources(each) if each else {} for each in (old, new))
            self.link, self.label = link_of(_read_metadata(new)) if new else ("", "")

    def removed(self, output: str) -> NamesRemoved | None:
        """The names that the bad release lacks: those in the output, else the first ones. None: nothing was read."""
        if not self._old or not self._new:
            return None
        new = read_names(self._new)
        changes = list(removed_names(read_names(self._old), new))
        named = [change for change in changes if is_named(change, output)]
        shown = named or sorted(changes, key=lambda change: (change.name.count("."), change.name))
        names = tuple(dict.fromkeys(map(str, shown)))[:SHOWN_NAMES]
        return NamesRemoved(len(changes), names, in_output=bool(named), unread=len(new.unread))

    def _unpack(self, folder: Path, name: str, version: str) -> Path | None:
        if not has_version(version):
            return None
        solver = self._solver
        done = run_uv(
            ["pip", "install", "--quiet", "--no-deps", "--target", folder, "--python", solver.requirements.python,
             *solver.options, *uv_arguments(solver.sources), f"{name}=={version}"],
            environment=uv_environment(solver.sources), timeout=INSTALL_SECONDS,
        )  # fmt: skip
        return folder if done.ok else None


def is_named(change: NameChange, output: str) -> bool:
    """Whether the output of a failure has a name, or for removed arguments the function and an argument."""
    words = set(re.findall(r"\w+", output))
    last = change.name.rpartition(".")[2]
    if change.removed:
        return bool(words & set(change.removed)) and (last in words or change.name.split(".")[-2] in words)
    return last in words and (len(last) > 3 or change.name in output)


def link_of(fields: Mapping[str, list[str]]) -> tuple[str, str]:
    """The best project URL of METADATA for changes, and its label: `Changelog, https://example.com/changes`."""
    found: dict[str, tuple[str, str]] = {}
    for line in (*fields.get("project-url", ()), *(f"Home, {url}" for url in fields.get("home-page", ()))):
        label, _, url = (part.strip() for part in line.partition(","))
        if len(url) <= MAX_URL and SAFE_URL.fullmatch(url) and label.isprintable():
            found.setdefault("".join(filter(str.isalnum, label)).lower(), (url, label[:40]))
    return next((found[label] for label in LINK_LABELS if label in found), ("", ""))


def _read_sources(folder: Path) -> dict[str, str]:
    """The Python files and stubs of a release."""
    sources = {}
    for path in sorted((*folder.rglob("*.py"), *folder.rglob("*.pyi"))):
        try:
            sources[path.relative_to(folder).as_posix()] = read_file(path, MAX_SOURCE_BYTES).decode(
                "utf-8", "replace"
            )
        except OSError:
            sources[path.relative_to(folder).as_posix()] = "("  # counts as unread
    return sources


def _read_metadata(folder: Path) -> dict[str, list[str]]:
    for path in folder.glob("*.dist-info/METADATA"):
        return parse_head(read_file(path))
    return {}
