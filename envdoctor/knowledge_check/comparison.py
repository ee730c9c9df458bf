"""Our rows against what wheels and pages say. Pure: everything that was read comes in as a parameter."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from envdoctor.environment.markers import Markers
from envdoctor.knowledge.guides import PypiTorch
from envdoctor.knowledge.published import PublishedRelease
from envdoctor.knowledge.pythons import PythonRange
from envdoctor.knowledge.releases import Release, parse_requirement
from envdoctor.knowledge.torch_builds import TorchRelease
from envdoctor.knowledge.versions import is_prerelease, minor_of, satisfies, version_key
from envdoctor.knowledge_check.records import Drift, NewRelease
from envdoctor.knowledge_check.simple_index import File, Project
from envdoctor.knowledge_check.wheel_metadata import Metadata
from envdoctor.knowledge_check.wheels import built, glibc_of, numbers, pythons_of

PYTHONS = ("3.10", "3.11", "3.12")  # that the requires tables speak of
_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")
_RUNTIME = re.compile(r"(?:nvidia-cuda-runtime(?:-cu\d+)?|cuda-toolkit)")

ANY: frozenset[str] = frozenset()  # a package without bounds: the tables leave it out, as if it were not named
Stated = dict[str, set[frozenset[str]]]  # package -> the specifiers that are named for it


def wheel_to_read(files: Iterable[File], platform: str = "x86_64") -> File | None:
    """The wheel whose METADATA stands for a release: for Linux on this platform, Python 3.12, else for any."""
    wheels = [file for file in files if file.wheel]

    def rank(file: File) -> tuple[bool, bool, bool, str]:
        assert file.wheel
        fits = platform in glibc_of(file.wheel.platform)
        return (not fits, file.wheel.platform != "any", "3.12" not in pythons_of(file.wheel), file.name)

    return min(wheels, key=rank, default=None)


def files_of(project: Project, version: str) -> list[File]:
    """The files of a release under each of its spellings: `2.8` and `2.8.0`, `1.0rc1` and `1.0-rc-1`."""
    key = version_key(version)
    if key is None or "+" in version:
        return project.releases.get(version, [])
    return [f for name, files in project.releases.items() if version_key(name) == key for f in files]


# --- requires/*.toml


def compare_requirements(
    package: str, version: str, row: Release, table: Iterable[Release], metadata: Metadata
) -> Iterator[Drift]:
    """A release's requirements against those of its wheel, for the packages that the table speaks of."""
    table = list(table)
    for field, ours, theirs, known in (
        ("requires", stated(row.requires), required_by(metadata), stated(_all(each.requires for each in table))),
        ("optional", stated(row.optional), [optional_of(metadata)], stated(_all(each.optional for each in table))),
    ):
        for name in sorted(known):
            mine = ours.get(name, set()) or {ANY}
            its = [each.get(name, set()) or {ANY} for each in theirs]
            if not any(mine & each for each in its):
                every = set().union(*its)
                yield Drift(f"{package} {version}", f"{field} {name}", _words(mine), _words(every), metadata.where)


def stated(lines: Iterable[str]) -> Stated:
    """`torch==2.8.0` and the like by name, without markers and extras."""
    found: Stated = {}
    for line in lines:
        if parsed := parse_requirement(line.partition(";")[0]):
            found.setdefault(parsed.name, set()).add(clauses(parsed.specifier))
    return found


def clauses(specifier: str) -> frozenset[str]:
    """`>=2.0, <3` in any order."""
    return frozenset("".join(part.split()) for part in specifier.split(",") if part.strip())


def required_by(metadata: Metadata) -> list[Stated]:
    """Requirements that hold without an extra on Linux x86_64, for each Python."""
    found: list[Stated] = []
    for python in PYTHONS:
        together: dict[str, frozenset[str]] = {}
        for line in Markers(python, "x86_64").applicable(metadata.requires):
            if parsed := parse_requirement(line):
                together[parsed.name] = together.get(parsed.name, ANY) | clauses(parsed.specifier)
        found.append({name: {specifier} for name, specifier in together.items()})
    return found


def optional_of(metadata: Metadata) -> Stated:
    """Requirements that stand in extras, each by itself."""
    return stated(line for line in metadata.requires if _EXTRA.search(line.partition(";")[2]))


# --- published.toml


def compare_published(package: str, row: PublishedRelease, files: Sequence[File], page: str) -> Iterator[Drift]:
    """Kind of wheels, Pythons, glibc, yanking and day of one release."""
    name = f"{package} {row.version}"
    if not files:
        yield Drift(name, "release", "published", "not there", page)
        return
    now = built(file.wheel for file in files)
    glibc = tuple(sorted(row.glibc.items(), reverse=True))
    for field, ours, theirs in (
        ("wheels", row.kind, now.kind),
        ("Pythons", " ".join(sorted(row.pythons, key=numbers)), " ".join(now.pythons)),
        ("glibc", _pairs(glibc), _pairs(now.glibc)),
        ("yanked", _yes(yes=row.yanked), _yes(yes=all(file.yanked for file in files))),
    ):
        if ours != theirs:
            yield Drift(name, field, ours, theirs, page)
    days = [file.uploaded for file in files if file.uploaded]
    if days and min(days) != row.date:
        yield Drift(name, "day of upload", row.date, min(days), page)


def new_releases(project: Project, known: Iterable[str], since: str) -> list[NewRelease]:
    """Releases that a table lacks: newer than its newest, or uploaded since its day.

    Candidates, development releases and yanked ones are no news.
    """
    keys = {key for key in map(version_key, known) if key}
    found = []
    for version, files in project.releases.items():
        key = version_key(version)
        uploaded = min((file.uploaded for file in files if file.uploaded), default="")
        if key is None or key in keys or all(file.yanked for file in files) or is_prerelease(version):
            continue
        if (keys and key > max(keys)) or uploaded >= since:
            found.append((key, NewRelease(project.name, version, uploaded)))
    return [release for _, release in sorted(found, reverse=True)]


# --- pythons.toml, torch_builds.toml, guides.toml


def compare_pythons(row: PythonRange, project: Project) -> Iterator[Drift]:
    """Requires-Python of a row's releases; where the row was read from the wheels themselves, their Pythons."""
    by_wheels = row.source.startswith("wheels")
    for version, files in project.releases.items():
        if is_prerelease(version) or not satisfies(version, row.versions) or all(file.yanked for file in files):
            continue
        name = f"{row.package} {version}"
        if by_wheels:
            pythons = built(file.wheel for file in files).pythons
            theirs = f">={pythons[0]},<3.{numbers(pythons[-1])[1] + 1}" if pythons else "no wheels for Linux"
        else:
            wheel = wheel_to_read(files)
            theirs = wheel.requires_python if wheel else "no wheels"
        if _without_zeros(theirs) != _without_zeros(row.python):
            yield Drift(name, "Pythons", row.python, theirs, project.page)


def compare_torch_release(row: TorchRelease, project: Project) -> Iterator[Drift]:
    """The newest release of a line of torch, and the Pythons of its wheels."""
    name = f"torch {row.torch}"
    of_line = {
        version: files
        for version, files in project.releases.items()
        if minor_of(version) == row.torch and not is_prerelease(version) and not all(file.yanked for file in files)
    }
    if not of_line:
        yield Drift(name, "latest", row.latest, "no such line", project.page)
        return
    latest = max(of_line, key=lambda version: version_key(version) or ((0,), (0, 0), 0, 0))
    if version_key(latest) != version_key(row.latest):
        yield Drift(name, "latest", row.latest, latest, project.page)
    pythons = [each.rstrip("+") for each in built(file.wheel for file in of_line[latest]).pythons]
    if row.python and pythons and (pythons[0], pythons[-1]) != row.python:
        yield Drift(name, "Pythons", " to ".join(row.python), f"{pythons[0]} to {pythons[-1]}", project.page)


def compare_torch_cuda(rows: Sequence[PypiTorch], version: str, platform: str, metadata: Metadata) -> Iterator[Drift]:
    """CUDA of the index's torch for a platform: of the newest row that begins at or below the release."""
    row = cuda_row(rows, version)
    if row is None:
        return
    ours, theirs = getattr(row, platform), cuda_of(metadata, platform)
    if ours != theirs:
        yield Drift(f"pypi_torch {row.first}", f"CUDA of torch {version} on {platform}", ours, theirs, metadata.where)


def cuda_row(rows: Sequence[PypiTorch], version: str) -> PypiTorch | None:
    """The row that holds for a release of torch; None before the table begins."""
    return next((each for each in reversed(rows) if satisfies(version, f">={each.first}")), None)


def cuda_of(metadata: Metadata, platform: str) -> str:
    """CUDA that torch's wheel requires the runtime of: "12.8" of `nvidia-cuda-runtime-cu12==12.8.90`; "cpu"."""
    for line in Markers("3.12", platform).applicable(metadata.requires):
        parsed = parse_requirement(line)
        if parsed and _RUNTIME.fullmatch(parsed.name) and (found := re.search(r"(\d+\.\d+)", parsed.specifier)):
            return found[1]
    return "cpu"


def _all(groups: Iterable[Iterable[str]]) -> list[str]:
    return [line for group in groups for line in group]


def _words(specifiers: set[frozenset[str]]) -> str:
    return " or ".join(sorted(",".join(sorted(each)) or "no bound" for each in specifiers))


def _pairs(glibc: Iterable[tuple[str, str]]) -> str:
    return " ".join(f"{platform}:{least or 'not named'}" for platform, least in glibc)


def _yes(*, yes: bool) -> str:
    return "yes" if yes else "no"


def _without_zeros(specifier: str) -> frozenset[str]:
    """`>=3.11.0` and `>=3.11` are one; `!=3.9.7` is not."""
    return frozenset(re.sub(r"^(>=|<)(\d+\.\d+)\.0$", r"\1\2", part) for part in clauses(specifier))
