"""The distributions in the environment of a trial: their files, modules, and files that two of them install."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.environment.metadata import parse_head
from envdoctor.knowledge.releases import normalize_name, parse_requirement

MAX_MODULES = 3  # of one distribution
# Distributions that are installers or have no module of their own, and folders that are no module of a package.
_NOT_IMPORTED = lazy_pattern(
    r"pip|setuptools|wheel|uv|ninja|cmake|nvidia-.*|cuda-.*|types-.*|pre-commit|ruff|black|isort|flake8.*|pytest.*|mypy"
    r"|yapf|huggingface-cli|jupyter.*|notebook|twine|build"
)
_OTHER_FOLDERS = frozenset({
    "test", "tests", "testing", "doc", "docs", "example", "examples", "benchmark", "benchmarks", "script", "scripts",
    "tool", "tools", "setup", "conftest", "build", "dist", "config", "configs", "assets", "data", "bin", "share",
})  # fmt: skip
_PART = lazy_pattern(r"[A-Za-z][A-Za-z0-9_]*")
_EXTENSION = lazy_pattern(r"\.(?:abi3|cpython-[\w-]+|cp\w+)?\.?so$|\.py$")
_SHARED_FILES = lazy_pattern(
    r"(?:^|/)(?:__pycache__/|[^/]*\.dist-info/|README|LICENSE|py\.typed$)|^\.\.|^(?:tests?|docs?)/"
)


class Installed(NamedTuple):
    """An installed distribution. `files` maps its paths below site-packages to their hash."""

    name: str
    version: str
    requires: tuple[str, ...]
    files: Mapping[str, str]

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    @property
    def modules(self) -> list[str]:
        """The modules to import: that with the name of the distribution, else its first ones."""
        if _NOT_IMPORTED.fullmatch(self.name):
            return []
        found = list(dict.fromkeys(_modules(self.files)))
        named = [each for each in found if normalize_name(each) in (self.name, self.name.replace("-", ""))]
        return named or found[:MAX_MODULES]

    def requires_package(self, name: str) -> bool:
        """Whether it requires a package, also without an extra."""
        found = (parse_requirement(text) for text in self.requires if "extra ==" not in text)
        return any(each is not None and each.name == name for each in found)

    @property
    def tops(self) -> frozenset[str]:
        """The top-level modules and namespaces of its files."""
        return frozenset(_EXTENSION.sub("", path.partition("/")[0]) for path in self.files)


class Contents:
    """The distributions of an environment."""

    def __init__(self, venv: Path) -> None:
        self.folder = next(iter(sorted(venv.glob("lib/python3*/site-packages"))), venv)
        self.distributions = {each.name: each for each in _read(self.folder)}

    @property
    def versions(self) -> dict[str, str]:
        """The versions by name."""
        return {each.name: each.version for each in self.distributions.values()}

    def owner(self, path: str) -> Installed | None:
        """The distribution of a file; None for others."""
        full = Path(path)
        if not full.is_relative_to(self.folder):
            return None
        own = str(full.relative_to(self.folder))
        return next((each for each in self.distributions.values() if own in each.files), None)

    def relative(self, path: str) -> str:
        """A path below site-packages without this folder; that of another file by its name."""
        full = Path(path)
        return str(full.relative_to(self.folder)) if full.is_relative_to(self.folder) else full.name

    def provider(self, module: str) -> Installed | None:
        """The distribution of a top-level module."""
        top = module.partition(".")[0]
        return next((each for each in self.distributions.values() if top in each.tops), None)

    def roots(self) -> list[Installed]:
        """The distributions that no other one requires."""
        required = {
            found.name
            for each in self.distributions.values()
            for text in each.requires
            if "extra ==" not in text and (found := parse_requirement(text))
        }
        return [each for each in self.distributions.values() if each.name not in required]

    def overlaps(self) -> Iterator[tuple[Installed, Installed, list[str]]]:
        """Pairs of distributions that install different modules under the same paths."""
        owners: dict[str, list[Installed]] = {}
        for each in self.distributions.values():
            for path in each.files:
                if path.endswith((".py", ".so")) and not _SHARED_FILES.search(path):
                    owners.setdefault(path, []).append(each)
        pairs: dict[tuple[str, str], list[str]] = {}
        for path, (first, *others) in owners.items():
            for other in others:
                if first.files[path] != other.files[path]:
                    pairs.setdefault((first.name, other.name), []).append(path)
        for (one, two), paths in pairs.items():
            yield self.distributions[one], self.distributions[two], paths


def _modules(paths: Iterable[str]) -> Iterator[str]:
    """The modules at the top, and those directly below a namespace."""
    tops: dict[str, bool] = {}
    nested: dict[str, str] = {}
    for path in paths:
        parts = path.split("/")
        top = _EXTENSION.sub("", parts[0]) if len(parts) == 1 else parts[0]
        if not _PART.fullmatch(top) or top in _OTHER_FOLDERS:
            continue
        if len(parts) == 1:
            if _EXTENSION.search(path):
                tops[top] = True
        elif len(parts) == 2 and re.fullmatch(r"__init__(?:\.py|\..*so)", parts[1]):
            tops[top] = True
        elif len(parts) == 3 and parts[2] == "__init__.py" and _PART.fullmatch(parts[1]):
            nested.setdefault(top, f"{top}.{parts[1]}")
            tops.setdefault(top, False)
    yield from (top if is_module else nested[top] for top, is_module in tops.items())


def _read(folder: Path) -> Iterator[Installed]:
    for info in sorted(folder.glob("*.dist-info")):
        try:
            metadata = parse_head((info / "METADATA").read_bytes())
            rows = list(csv.reader((info / "RECORD").read_text(encoding="utf-8", errors="replace").splitlines()))
        except (OSError, csv.Error):
            continue
        files = {row[0]: row[1] if len(row) > 1 else "" for row in rows if row and not row[0].startswith(info.name)}
        name = normalize_name(next(iter(metadata.get("name", ())), info.name.partition("-")[0]))
        version = next(iter(metadata.get("version", ())), "")
        yield Installed(name, version, tuple(metadata.get("requires-dist", ())), files)
