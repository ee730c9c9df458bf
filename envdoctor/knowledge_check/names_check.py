"""Compares the tables of names with the sources of releases: one release of each table a day, or every release."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from functools import partial

from envdoctor.download.http_client import HttpClient, RequestFailed
from envdoctor.download.parallel import run_parallel
from envdoctor.knowledge.names import Kind, Span, compared_releases, spans_of
from envdoctor.knowledge.tables import read_table
from envdoctor.knowledge_check.library_members import Members
from envdoctor.knowledge_check.names_table import SECTIONS, derive_table, owner_of
from envdoctor.knowledge_check.records import Drift
from envdoctor.knowledge_check.release_members import file_of, read_release_members
from envdoctor.package_index.releases import find_release, list_releases
from envdoctor.package_index.simple_index import Project

PRESENCE = {True: "present", False: "absent"}
MEMBER_SECTIONS: tuple[Kind, ...] = ("names", "arguments", "values", "attributes")


def chosen_releases(package: str, today: date, *, every: bool) -> tuple[str, ...]:
    """The releases of a table that are compared: all, or the one of this day, so that each has its turn."""
    releases = compared_releases(package)
    return releases if every else (releases[today.toordinal() % len(releases)],)


def read_chosen(
    client: HttpClient, page: Project, package: str, versions: tuple[str, ...]
) -> dict[str, Members | RequestFailed]:
    """The members of releases, by version."""
    listed = list_releases(page)
    found = {version: find_release(listed, version) for version in versions}
    calls = {
        version: partial(read_release_members, client, release, package)
        for version, release in found.items()
        if release
    }
    missing = RequestFailed(f"{page.page} does not list this release")
    read = run_parallel(calls, end=client.end)
    return {version: read.get(version, missing) for version in versions}


def source_of(page: Project, version: str) -> str:
    """The name of the file that a release is read from."""
    release = find_release(list_releases(page), version)
    return file_of(release).name if release else page.page


def compare_release(package: str, version: str, members: Members, source: str) -> Iterator[Drift]:
    """The rows whose periods contradict one release. A file that does not parse can have what is missing."""
    releases = compared_releases(package)
    position = {release: number for number, release in enumerate(releases)}
    observed = {
        "names": members.names | members.model_names,
        "arguments": members.arguments,
        "values": members.values,
        "attributes": members.attributes,
    }

    def covers(span: Span) -> bool:
        first = position[span.first] if span.first else 0
        last = position[span.last] if span.last else len(releases)
        return first <= position[version] <= last

    for section in MEMBER_SECTIONS:
        for member, spans in spans_of(package, section).items():
            if section != "names" and owner_of(member) not in members.names:
                continue
            stated, found = any(map(covers, spans)), member in observed[section]
            if stated != found and (found or not members.unparsed):
                yield Drift(f"{package} {version}", f"{section} {member}", PRESENCE[stated], PRESENCE[found], source)


def compare_every_release(package: str, read: Mapping[str, Members], source: str) -> Iterator[Drift]:
    """The rows that differ from those that the releases give together."""
    table = read_table(f"names/{package}.toml")
    derived = derive_table(package, list(read), list(read.values()))
    for section in SECTIONS:
        expected = dict(row.split(" ", 1) for row in table.get(section, "").splitlines())
        observed = dict(row.split(" ", 1) for row in derived[section])
        for member in sorted(expected.keys() | observed.keys()):
            stated, found = expected.get(member, "no row"), observed.get(member, "no row")
            if stated != found:
                yield Drift(package, f"{section} {member}", stated, found, source)


def number_of_rows(package: str) -> int:
    """The rows of a table."""
    table = read_table(f"names/{package}.toml")
    return sum(len(table.get(section, "").splitlines()) for section in SECTIONS)
