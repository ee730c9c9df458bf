"""What public services offer and no longer offer: services.toml."""

from __future__ import annotations

import re
from typing import Literal

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.record import Record
from envdoctor.knowledge.tables import TableRow, load_table
from envdoctor.knowledge.versions import dotted_numbers, major_minor

_CUDA_TAG = lazy_pattern(r"(\d+\.\d+(?:\.\d+)?)-(?:(cudnn\d*)-)?(base|runtime|devel)-([a-z]+[\d.]+)")


class RemovedRunner(TableRow, frozen=True, kw_only=True):
    """Labels of a runner image that GitHub removed, or announced to remove, on a day."""

    labels: tuple[str, ...]
    instead: str
    removed: str = ""
    is_announced: bool = False  # no later source confirms the removal


class DisabledAction(TableRow, frozen=True, kw_only=True):
    """An action of which GitHub fails every run."""

    name: str
    references: tuple[str, ...]  # major releases: v3
    instead: str
    since: str = ""


class ArchivedSystem(TableRow, frozen=True, kw_only=True):
    """Releases of an operating system whose package servers have moved to an archive."""

    repository: str
    versions: tuple[str, ...]
    codenames: tuple[str, ...]
    archive: str


class ManagedPython(TableRow, frozen=True, kw_only=True):
    """An operating system whose own Python refuses installations with pip."""

    system: str


class AptPython(TableRow, frozen=True, kw_only=True):
    """The Pythons that apt has on an operating system."""

    system: str
    pythons: tuple[str, ...]
    deadsnakes: bool  # this PPA has others


class AptAbsent(TableRow, frozen=True, kw_only=True):
    """Packages that apt does not have on some operating systems, and the one to install instead."""

    systems: tuple[str, ...]
    packages: dict[str, str]


class CudaTag(TableRow, frozen=True, kw_only=True):
    """The listed tags of nvidia/cuda for some releases of CUDA."""

    versions: tuple[str, ...]
    cudnn: str = ""  # in the tag: cudnn8, cudnn9, cudnn
    with_cudnn: tuple[str, ...] = ()  # systems
    without_cudnn: tuple[str, ...] = ()

    def tag(self, version: str, *, with_cudnn: bool, variant: str, system: str) -> str:
        """The tag of a variant; empty if it is not listed."""
        if system not in self.with_cudnn and (with_cudnn or system not in self.without_cudnn):
            return ""
        return "-".join([version, *([self.cudnn] if with_cudnn else []), variant, system])


class ServiceTables(Record, frozen=True, kw_only=True):
    """The tables of services.toml."""

    runner: tuple[RemovedRunner, ...]
    action: tuple[DisabledAction, ...]
    archived_system: tuple[ArchivedSystem, ...]
    managed_python: tuple[ManagedPython, ...]
    apt_python: tuple[AptPython, ...]
    apt_absent: tuple[AptAbsent, ...]
    cuda_tag: tuple[CudaTag, ...]


class UnlistedTag(Record, frozen=True):
    """A tag of nvidia/cuda that NVIDIA's lists do not contain."""

    reason: Literal["cudnn", "system", "release"]
    listed: str  # a tag that is listed and fits best
    row: CudaTag


def service_tables() -> ServiceTables:
    """The content of services.toml."""
    return load_table("services.toml", ServiceTables)


def unlisted_cuda_tag(tag: str) -> UnlistedTag | None:
    """Why NVIDIA's lists do not contain a tag; None if they do, or if the tag may be newer than they are."""
    found = _CUDA_TAG.fullmatch(tag)
    rows = {version: row for row in service_tables().cuda_tag for version in row.versions}
    if not found or dotted_numbers(found[1]) > max(map(dotted_numbers, rows)):
        return None
    version, cudnn, variant, system = found.groups()
    same = [each for each in rows if major_minor(each) == major_minor(version)]
    if version not in rows:
        newest = max(same or rows, key=dotted_numbers)
        if same and dotted_numbers(version) > dotted_numbers(newest):
            return None
        listed = _nearest(rows, same, cudnn=bool(cudnn), variant=variant, system=system) if same else ""
        return UnlistedTag("release", listed, rows[newest])
    row = rows[version]
    if row.tag(version, with_cudnn=bool(cudnn), variant=variant, system=system) == tag:
        return None
    listed = _nearest(rows, [*reversed(same), version], cudnn=bool(cudnn), variant=variant, system=system)
    is_known_system = system in (*row.with_cudnn, *row.without_cudnn)
    is_renamed = bool(cudnn) and cudnn != row.cudnn and system in row.with_cudnn
    return UnlistedTag("cudnn" if is_renamed else "release" if is_known_system else "system", listed, row)


def _nearest(rows: dict[str, CudaTag], versions: list[str], *, cudnn: bool, variant: str, system: str) -> str:
    """The tag of the last of these releases that has the variant for the system, else for another one."""
    tags = [rows[each].tag(each, with_cudnn=cudnn, variant=variant, system=system) for each in versions]
    if found := [each for each in tags if each]:
        return found[-1]
    systems = [each for each in rows[versions[-1]].with_cudnn if each.startswith("ubuntu")]
    return (
        rows[versions[-1]].tag(versions[-1], with_cudnn=cudnn, variant=variant, system=systems[-1]) if systems else ""
    )


def removed_runner(label: str) -> RemovedRunner | None:
    """The row of a label of a runner image that was removed."""
    return next((row for row in service_tables().runner if label.lower() in row.labels), None)


def disabled_action(name: str, reference: str) -> DisabledAction | None:
    """The row of an action whose runs fail; None for a commit, whose release the reference does not show."""
    major = re.fullmatch(r"(v\d+)(?:\.\d+)*", reference)
    rows = (row for row in service_tables().action if row.name == name.lower())
    return next((row for row in rows if major and major[1] in row.references), None)


def archived_system(repository: str, tag: str) -> ArchivedSystem | None:
    """The row of an image whose operating system has no package servers any more."""
    for row in service_tables().archived_system:
        own = repository == row.repository and re.split(r"[-_]", tag)[0] in (*row.versions, *row.codenames)
        if own or set(re.split(r"[-_]", tag)) & set(row.codenames):
            return row
    return None
