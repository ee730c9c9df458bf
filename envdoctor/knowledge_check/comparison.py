"""Compares rows of the tables with wheels and index pages, which are passed as parameters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from envdoctor.core.patterns import lazy_pattern
from envdoctor.environment.markers import Markers
from envdoctor.knowledge.guides import PypiTorch, cuda_row
from envdoctor.knowledge.published import PublishedRelease
from envdoctor.knowledge.pythons import PythonRange
from envdoctor.knowledge.releases import Release, parse_requirement
from envdoctor.knowledge.torch_builds import TorchRelease
from envdoctor.knowledge.versions import is_prerelease, minor_of, numbers_in, satisfies, version_key
from envdoctor.knowledge_check.records import Drift, NewRelease
from envdoctor.package_index.simple_index import File, Project
from envdoctor.package_index.wheel_metadata import Metadata
from envdoctor.package_index.wheel_names import glibc_of, pythons_of, summarize_wheels

PYTHONS = ("3.10", "3.11", "3.12")  # of the requires tables
_EXTRA = lazy_pattern(r"""extra\s*==\s*['"]([^'"]+)['"]""")
_RUNTIME = lazy_pattern(r"(?:nvidia-cuda-runtime(?:-cu\d+)?|cuda-toolkit)")
# Extras without which a package is a client only. The tables count their requirements as required.
RUNTIME_EXTRAS = {"sglang": ("srt",)}
YES_NO = {True: "yes", False: "no"}

NO_BOUND: frozenset[str] = frozenset()  # a package without bounds, which the tables omit
Specifiers = dict[str, set[frozenset[str]]]  # package -> its alternative specifiers


def select_wheel(files: Iterable[File], platform: str = "x86_64") -> File | None:
    """Return the wheel whose METADATA represents a release: for this platform and Python 3.12 where it exists."""
    wheels = [
        file for file in files if file.wheel and pythons_of(file.wheel)
    ]  # typing-extensions 3 has one of Python 2

    def rank(file: File) -> tuple[bool, bool, bool, str]:
        assert file.wheel
        fits = platform in glibc_of(file.wheel.platform)
        return (not fits, file.wheel.platform != "any", "3.12" not in pythons_of(file.wheel), file.name)

    return min(wheels, key=rank, default=None)


def files_of_release(project: Project, version: str) -> list[File]:
    """Return the files of a release under all spellings: `2.8` and `2.8.0`, `1.0rc1` and `1.0-rc-1`."""
    key = version_key(version)
    if key is None or "+" in version:
        return project.releases.get(version, [])
    return [file for name, files in project.releases.items() if version_key(name) == key for file in files]


# --- requires/*.toml


def compare_requirements(
    package: str, version: str, row: Release, table: Iterable[Release], metadata: Metadata
) -> Iterator[Drift]:
    """Compare a release's requirements with its wheel's, for the packages that the table covers."""
    table = list(table)
    required_packages = parse_specifiers(line for release in table for line in release.requires)
    optional_packages = parse_specifiers(line for release in table for line in release.optional)
    for field, table_specifiers, wheel_specifiers, covered in (
        ("requires", parse_specifiers(row.requires), required_specifiers(metadata, package), required_packages),
        ("optional", parse_specifiers(row.optional), [optional_specifiers(metadata)], optional_packages),
    ):
        for name in sorted(covered):
            expected = table_specifiers.get(name, set()) or {NO_BOUND}
            observed = [specifiers.get(name, set()) or {NO_BOUND} for specifiers in wheel_specifiers]
            if not any(expected & alternatives for alternatives in observed):
                both = _format_specifiers(expected), _format_specifiers(set().union(*observed))
                yield Drift(f"{package} {version}", f"{field} {name}", *both, metadata.file)


def parse_specifiers(lines: Iterable[str]) -> Specifiers:
    """Parse requirements such as `torch==2.8.0` by name, without markers and extras."""
    specifiers: Specifiers = {}
    for line in lines:
        if parsed := parse_requirement(line.partition(";")[0]):
            specifiers.setdefault(parsed.name, set()).add(clauses(parsed.specifier))
    return specifiers


def clauses(specifier: str) -> frozenset[str]:
    """Return the clauses of a specifier such as `>=2.0, <3`, in any order."""
    return frozenset("".join(part.split()) for part in specifier.split(",") if part.strip())


def required_specifiers(metadata: Metadata, package: str) -> list[Specifiers]:
    """Return the requirements, with those of the runtime's extra, on Linux x86_64, for each Python."""
    by_python: list[Specifiers] = []
    for python in PYTHONS:
        combined: dict[str, frozenset[str]] = {}
        for line in applicable_lines(metadata.requires, python, package):
            if parsed := parse_requirement(line):
                combined[parsed.name] = combined.get(parsed.name, NO_BOUND) | clauses(parsed.specifier)
        by_python.append({name: {specifier} for name, specifier in combined.items()})
    return by_python


def applicable_lines(lines: Sequence[str], python: str, package: str) -> list[str]:
    """The requirements that apply. An extra of the runtime may name others: `sglang[common]; extra == "srt"`."""
    applicable: dict[str, None] = {}
    extras = ["", *RUNTIME_EXTRAS.get(package, ())]
    for extra in extras:
        for line in Markers(python, "x86_64", extra).applicable(lines):
            named = re.match(rf"{package}\[(.+?)\]", line)
            extras += [
                name for each in (named[1].split(",") if named else ()) if (name := each.strip()) not in extras
            ]
            applicable[line] = None
    return list(applicable)


def optional_specifiers(metadata: Metadata) -> Specifiers:
    """Return the requirements of extras, separately."""
    return parse_specifiers(line for line in metadata.requires if _EXTRA.search(line.partition(";")[2]))


# --- published.toml


def compare_published(package: str, row: PublishedRelease, files: Sequence[File], page: str) -> Iterator[Drift]:
    """Compare kind of wheels, Pythons, glibc, yanking and upload day of one release."""
    name = f"{package} {row.version}"
    if not files:
        yield Drift(name, "release", "published", "not on the index", page)
        return
    observed = summarize_wheels(file.wheel for file in files)
    glibc = tuple(sorted(row.glibc.items(), reverse=True))
    for field, table_value, index_value in (
        ("wheels", row.kind, observed.kind),
        ("Pythons", " ".join(sorted(row.pythons, key=numbers_in)), " ".join(observed.pythons)),
        ("glibc", _format_glibc(glibc), _format_glibc(observed.glibc)),
        ("yanked", YES_NO[row.yanked], YES_NO[all(file.yanked for file in files)]),
    ):
        if table_value != index_value:
            yield Drift(name, field, table_value, index_value, page)
    days = [file.uploaded for file in files if file.uploaded]
    if days and min(days) != row.date:
        yield Drift(name, "day of upload", row.date, min(days), page)


def new_releases(project: Project, known: Iterable[str], since: str) -> list[NewRelease]:
    """Return releases that a table does not have: newer than its newest, or uploaded since a day.

    Pre-releases, development releases and yanked ones are not reported.
    """
    keys = {key for key in map(version_key, known) if key}
    new = []
    for version, files in project.releases.items():
        key = version_key(version)
        uploaded = min((file.uploaded for file in files if file.uploaded), default="")
        if key is None or key in keys or all(file.yanked for file in files) or is_prerelease(version):
            continue
        if (keys and key > max(keys)) or uploaded >= since:
            new.append((key, NewRelease(project.name, version, uploaded)))
    return [release for _, release in sorted(new, reverse=True)]


# --- pythons.toml, torch_builds.toml, guides.toml


def compare_pythons(row: PythonRange, project: Project) -> Iterator[Drift]:
    """Compare Requires-Python of a row's releases, or the wheels' Pythons where the row was derived from those."""
    by_wheels = row.source.startswith("wheels")
    for version, files in project.releases.items():
        if is_prerelease(version) or not satisfies(version, row.versions) or all(file.yanked for file in files):
            continue
        name = f"{row.package} {version}"
        if by_wheels:
            pythons = summarize_wheels(file.wheel for file in files).pythons
            observed = f">={pythons[0]},<3.{numbers_in(pythons[-1])[1] + 1}" if pythons else "no wheels for Linux"
        else:
            wheel = select_wheel(files)
            observed = wheel.requires_python if wheel else "no wheels"
        if _without_zeros(observed) != _without_zeros(row.python):
            yield Drift(name, "Pythons", row.python, observed, project.page)


def compare_torch_release(row: TorchRelease, project: Project) -> Iterator[Drift]:
    """Compare the newest release of a minor version of torch, and the Pythons of its wheels."""
    name = f"torch {row.torch}"
    releases = {
        version: files
        for version, files in project.releases.items()
        if minor_of(version) == row.torch and not is_prerelease(version) and not all(file.yanked for file in files)
    }
    if not releases:
        yield Drift(name, "latest", row.latest, "no such release", project.page)
        return
    latest = max(releases, key=lambda version: version_key(version) or ((0,), (0, 0), 0, 0))
    if version_key(latest) != version_key(row.latest):
        yield Drift(name, "latest", row.latest, latest, project.page)
    pythons = [python.rstrip("+") for python in summarize_wheels(file.wheel for file in releases[latest]).pythons]
    if row.python and pythons and (pythons[0], pythons[-1]) != row.python:
        yield Drift(name, "Pythons", " to ".join(row.python), f"{pythons[0]} to {pythons[-1]}", project.page)


def compare_torch_cuda(rows: Sequence[PypiTorch], version: str, platform: str, metadata: Metadata) -> Iterator[Drift]:
    """Compare CUDA of the index's torch for a platform with the newest row at or below the release."""
    row = cuda_row(rows, version)
    if row is None:
        return
    expected, observed = getattr(row, platform), cuda_of(metadata, platform)
    if expected != observed:
        field = f"CUDA of torch {version} on {platform}"
        yield Drift(f"pypi_torch {row.first}", field, expected, observed, metadata.file)


def cuda_of(metadata: Metadata, platform: str) -> str:
    """Return the CUDA version of torch's requirements: "12.8" for `nvidia-cuda-runtime-cu12==12.8.90`; or "cpu"."""
    for line in Markers("3.12", platform).applicable(metadata.requires):
        parsed = parse_requirement(line)
        if parsed and _RUNTIME.fullmatch(parsed.name) and (found := re.search(r"(\d+\.\d+)", parsed.specifier)):
            return found[1]
    return "cpu"


def _format_specifiers(specifiers: set[frozenset[str]]) -> str:
    return " or ".join(sorted(",".join(sorted(specifier)) or "no bound" for specifier in specifiers))


def _format_glibc(glibc: Iterable[tuple[str, str]]) -> str:
    return " ".join(f"{platform}:{version or 'not stated'}" for platform, version in glibc)


def _without_zeros(specifier: str) -> frozenset[str]:
    """Return the clauses without a trailing zero: `>=3.11.0` equals `>=3.11`; `!=3.9.7` stays unchanged."""
    return frozenset(re.sub(r"^(>=|<)(\d+\.\d+)\.0$", r"\1\2", part) for part in clauses(specifier))
