"""Readers of the lock files of uv, Poetry, PDM, Pipenv and of pylock.toml: the packages for each target."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from envdoctor.core.patterns import lazy_pattern
from envdoctor.environment.markers import Markers
from envdoctor.knowledge.releases import normalize_name
from envdoctor.knowledge.versions import satisfies
from envdoctor.manifests.inputs.records import OTHER, LockedPackage, PackageSet
from envdoctor.manifests.pyproject import items, rows, table

PYTHONS = tuple(f"3.{minor}" for minor in range(9, 15))
_MAX_SETS = 6
_PATCHES = 30  # no Python 3 minor has more patch releases
_OF_SYSTEM = lazy_pattern(r"sys_platform|platform_system|os_name")
_EXTRA = lazy_pattern(r"extra\s*(==|!=)\s*['\"]([\w.-]+)['\"]")


def line_numbers(text: str) -> dict[tuple[str, str], int]:
    """The line of each package of a TOML lock, by name and version."""
    numbers: dict[tuple[str, str], int] = {}
    name, start = "", 0
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("[["):
            name = ""
        elif line.startswith("name = ") and not name:
            name, start = normalize_name(line[7:].strip().strip('"')), number
            numbers.setdefault((name, ""), number)
        elif line.startswith("version = ") and name:
            numbers.setdefault((name, line[10:].strip().strip('"')), start)
    return numbers


def distinct_sets(sets: Iterator[PackageSet]) -> tuple[PackageSet, ...]:
    """The sets without those that install the same packages for another Python."""
    unique: dict[tuple[str, str, frozenset[tuple[str, str]]], PackageSet] = {}
    for each in sets:
        key = (each.platform, each.label, frozenset((package.name, package.version) for package in each.packages))
        if each.packages:
            unique.setdefault(key, each)
    return tuple(unique.values())[:_MAX_SETS]


def _pythons(specifier: str) -> list[str]:
    """The Python versions that a lock is for; the usual one if it names none."""
    if not specifier:
        return ["3.12"]
    versions = [python for python in PYTHONS if satisfies(f"{python}.99", specifier) is not False]
    return versions or [python for python in PYTHONS if _permits_patch(specifier, python)]


def _permits_patch(specifier: str, python: str) -> bool:
    """Whether a specifier permits a patch release of a Python: `==3.10.6`."""
    return any(satisfies(f"{python}.{patch}", specifier) is not False for patch in range(_PATCHES))


class UvLock:
    """The packages of a uv.lock that the project installs on a target."""

    def __init__(self, data: dict[str, Any], text: str) -> None:
        self.data = data
        self.lines = line_numbers(text)
        self.packages: dict[str, list[dict[str, Any]]] = {}
        for row in rows(data.get("package")):
            self.packages.setdefault(normalize_name(str(row.get("name", ""))), []).append(row)
        sources = ("virtual", "editable", "directory")
        self.roots = [
            row
            for listed in self.packages.values()
            for row in listed
            if any(key in table(row, "source") for key in sources)
        ]

    def sets(self, platform: str) -> tuple[PackageSet, ...]:
        """One set for each Python with other packages, and for each of the extras that exclude one another."""
        pythons = _pythons(str(self.data.get("requires-python") or ""))
        overrides = rows(table(self.data, "manifest").get("overrides"))
        overridden = frozenset(normalize_name(str(row.get("name", ""))) for row in overrides)
        return distinct_sets(
            PackageSet(platform, python, tuple(self._reach(platform, python, label)), label, overridden)
            for label in self._variants() or [""]
            for python in pythons
        )

    def _variants(self) -> list[str]:
        conflicts = [rows(conflict) for conflict in items(self.data.get("conflicts"))]
        return [str(row.get("extra") or row.get("group") or "") for conflict in conflicts for row in conflict]

    def _reach(self, platform: str, python: str, variant: str) -> Iterator[LockedPackage]:
        """The packages that the roots require, with all extras and groups that do not exclude the variant."""
        excluded = {name for name in self._variants() if name != variant}
        markers = Markers(f"{python}.0", platform)
        queue: list[tuple[dict[str, Any], str]] = [(row, "") for row in self.roots]
        queue += [(row, extra) for row in self.roots for extra in table(row, "optional-dependencies")]
        queue += [(row, f"group:{group}") for row in self.roots for group in table(row, "dev-dependencies")]
        queue = [(row, extra) for row, extra in queue if extra.removeprefix("group:") not in excluded]
        seen = {(id(row), extra) for row, extra in queue}
        while queue:
            row, extra = queue.pop(0)
            if not extra and row.get("version") and row not in self.roots:
                yield self._package(row)
            for edge in self._edges(row, extra):
                if not self._holds(str(edge.get("marker") or ""), markers, variant):
                    continue
                for target in self._targets(edge):
                    for each in ("", *(str(name) for name in items(edge.get("extra")))):
                        if (id(target), each) not in seen:
                            seen.add((id(target), each))
                            queue.append((target, each))

    def _edges(self, row: dict[str, Any], extra: str) -> list[dict[str, Any]]:
        if extra.startswith("group:"):
            return rows(table(row, "dev-dependencies").get(extra.removeprefix("group:")))
        return rows(table(row, "optional-dependencies").get(extra) if extra else row.get("dependencies"))

    def _targets(self, edge: dict[str, Any]) -> list[dict[str, Any]]:
        listed = self.packages.get(normalize_name(str(edge.get("name", ""))), [])
        version, source = edge.get("version"), edge.get("source")
        return [
            row
            for row in listed
            if (not version or row.get("version") == version) and (not source or row.get("source") == source)
        ][:1]

    def _holds(self, marker: str, markers: Markers, variant: str) -> bool:
        if "extra" in marker:
            marker = _EXTRA.sub(lambda match: _extra_marker(match, variant), marker)
        return not marker or markers.holds(marker)

    def _package(self, row: dict[str, Any]) -> LockedPackage:
        name, version = normalize_name(str(row["name"])), str(row["version"])
        index = str(table(row, "source").get("registry") or table(row, "source").get("url") or "")
        origin = "PyPI" if "registry" in table(row, "source") else OTHER
        return LockedPackage(name, version, self.lines.get((name, version), 0), index, origin=origin)


def _extra_marker(match: re.Match[str], variant: str) -> str:
    """A marker without extras that has the value of `extra == 'extra-7-project-cpu'`, uv's form for conflicts."""
    is_active = bool(variant) and match[2].endswith(f"-{normalize_name(variant)}")
    return "os_name == 'posix'" if is_active is (match[1] == "==") else "os_name != 'posix'"


def poetry_sets(data: dict[str, Any], text: str, platform: str) -> tuple[PackageSet, ...]:
    """The packages of a poetry.lock."""
    numbers = line_numbers(text)
    pythons = _pythons(str(table(data, "metadata").get("python-versions") or ""))
    locked = rows(data.get("package"))

    def packages(python: str) -> Iterator[LockedPackage]:
        markers = Markers(f"{python}.0", platform)
        excluded = _excluded(locked, markers)
        for row in locked:
            if normalize_name(str(row.get("name"))) in excluded:
                continue
            stated = row.get("markers") or ""
            texts = list(stated.values()) if isinstance(stated, dict) else [stated]
            supported = satisfies(f"{python}.99", str(row.get("python-versions") or "")) is not False
            if supported and any(not each or markers.holds(_without_extras(str(each))) for each in texts):
                yield _locked(row, numbers, str(table(row, "source").get("url") or ""))

    return distinct_sets(PackageSet(platform, python, _unambiguous(packages(python))) for python in pythons)


def _excluded(locked: Sequence[dict[str, Any]], markers: Markers) -> set[str]:
    """The packages that others require for other systems only: `pywin32` on Linux.

    A lock of Poetry 1 has the markers at the packages that require another one.
    """
    holds: dict[str, list[bool]] = {}
    for row in locked:
        for name, stated in table(row, "dependencies").items():
            parts = stated if isinstance(stated, list) else [stated]
            texts = [str(part.get("markers") or "") if isinstance(part, dict) else "" for part in parts]
            held = any(not _OF_SYSTEM.search(text) or markers.holds(_without_extras(text)) for text in texts)
            holds.setdefault(normalize_name(name), []).append(held)
    return {name for name, found in holds.items() if not any(found)}


def pdm_sets(data: dict[str, Any], text: str, platform: str) -> tuple[PackageSet, ...]:
    """The packages of a pdm.lock."""
    numbers = line_numbers(text)
    targets = rows(table(data, "metadata").get("targets"))
    stated = [str(row.get("requires_python") or "") for row in targets] or [""]
    pythons = [python for specifier in stated for python in _pythons(specifier)]

    def packages(python: str) -> Iterator[LockedPackage]:
        markers = Markers(f"{python}.0", platform)
        for row in rows(data.get("package")):
            marker = _without_extras(str(row.get("marker") or ""))
            if satisfies(f"{python}.99", str(row.get("requires_python") or "")) is not False and (
                not marker or markers.holds(marker)
            ):
                yield _locked(row, numbers, "")

    sets = (PackageSet(platform, python, _unambiguous(packages(python))) for python in dict.fromkeys(pythons))
    return distinct_sets(sets)


def pipenv_sets(data: dict[str, Any], text: str, platform: str) -> tuple[PackageSet, ...]:
    """The packages of a Pipfile.lock."""
    required = table(table(data, "_meta"), "requires")
    python = str(required.get("python_version") or "")
    markers = Markers(f"{python or '3.12'}.0", platform)
    numbers: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if match := re.match(r'\s*"([\w.-]+)":\s*\{', line):
            numbers.setdefault(normalize_name(match[1]), number)
    packages = {}
    for section in ("develop", "default"):
        for key, value in table(data, section).items():
            row = value if isinstance(value, dict) else {}
            version, marker = str(row.get("version") or ""), str(row.get("markers") or "")
            if version.startswith("==") and (not marker or markers.holds(marker)):
                name = normalize_name(key)
                packages[name] = LockedPackage(name, version[2:], numbers.get(name, 0))
    return distinct_sets(iter([PackageSet(platform, python, tuple(packages.values()))]))


def pipenv_unread(data: dict[str, Any]) -> tuple[str, ...]:
    """The rows of a Pipfile.lock without a version, such as those of a repository."""
    return tuple(
        f"{key}: its row has no version"
        for section in ("default", "develop")
        for key, value in table(data, section).items()
        if not (isinstance(value, dict) and str(value.get("version") or "").startswith("=="))
    )


def pylock_sets(data: dict[str, Any], text: str, platform: str) -> tuple[PackageSet, ...]:
    """The packages of a pylock.toml, with all its extras and groups. Raises ValueError if it is not valid."""
    from packaging.pylock import Pylock, PylockUnsupportedVersionError, PylockValidationError

    short = data | {"packages": [_with_one_wheel(row) for row in rows(data.get("packages"))]}
    try:
        lock = Pylock.from_dict(short)
    except (PylockValidationError, PylockUnsupportedVersionError) as error:
        raise ValueError(str(error)) from error
    numbers = line_numbers(text)
    extras, groups = (
        frozenset(str(name) for name in items(data.get(key))) for key in ("extras", "dependency-groups")
    )
    pythons = _pythons(str(data.get("requires-python") or ""))

    def packages(python: str) -> Iterator[LockedPackage]:
        environment = Markers(f"{python}.0", platform).environment
        context: Any = environment | {"extras": extras, "dependency_groups": groups}
        for package in lock.packages:
            applies = package.marker is None or package.marker.evaluate(context, context="lock_file")
            if applies and package.version is not None:
                name, version = str(package.name), str(package.version)
                origin = OTHER if package.vcs or package.directory or package.archive else "PyPI"
                line = numbers.get((name, version), 0)
                yield LockedPackage(name, version, line, package.index or "", origin=origin)

    return distinct_sets(PackageSet(platform, python, _unambiguous(packages(python))) for python in pythons)


def _with_one_wheel(row: dict[str, Any]) -> dict[str, Any]:
    """A package without most of its wheels: to validate 20 for each takes longer than all the rest."""
    return row | {"wheels": items(row.get("wheels"))[:1]} if row.get("wheels") else row


def _without_extras(marker: str) -> str:
    """A marker in which all extras are chosen."""
    return _EXTRA.sub(lambda match: "os_name == 'posix'" if match[1] == "==" else "os_name != 'posix'", marker)


def _locked(row: dict[str, Any], numbers: dict[tuple[str, str], int], index: str) -> LockedPackage:
    name, version = normalize_name(str(row.get("name", ""))), str(row.get("version", ""))
    is_other = {"git", "path", "url"} & row.keys() or str(table(row, "source").get("type") or "legacy") != "legacy"
    return LockedPackage(name, version, numbers.get((name, version), 0), index, origin=OTHER if is_other else "PyPI")


def _unambiguous(packages: Iterator[LockedPackage]) -> tuple[LockedPackage, ...]:
    """The packages without those of which several versions would be installed: which one is unknown."""
    versions: dict[str, set[str]] = {}
    found = {}
    for package in packages:
        versions.setdefault(package.name, set()).add(package.version)
        found[package.name] = package
    return tuple(package for name, package in found.items() if len(versions[name]) == 1)
