"""Compares the tables with the configured index: reads its pages, then METADATA of the wheels."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from functools import partial

from envdoctor.core.errors import EnvdoctorError
from envdoctor.download.http_client import HttpClient, RequestFailed
from envdoctor.download.parallel import run_parallel
from envdoctor.download.sources import Sources
from envdoctor.knowledge.bounds import bounded_releases
from envdoctor.knowledge.guides import cuda_row, guide_tables
from envdoctor.knowledge.names import compared_releases, project_of
from envdoctor.knowledge.published import date_read, published_releases
from envdoctor.knowledge.pythons import python_ranges
from envdoctor.knowledge.releases import Release, bitsandbytes_libraries, releases_of
from envdoctor.knowledge.torch_builds import torch_libraries, torch_releases
from envdoctor.knowledge.versions import is_prerelease, minor_of
from envdoctor.knowledge_check import comparison as compare
from envdoctor.knowledge_check import library_files as libraries
from envdoctor.knowledge_check import names_check as names
from envdoctor.knowledge_check.records import (
    Drift,
    FactsCheckResult,
    FailedRead,
    NewRelease,
    TableChecked,
    Underivable,
)
from envdoctor.knowledge_check.tables import RequestedTables, published_packages, requested_tables, underivable
from envdoctor.package_index.address import index_address
from envdoctor.package_index.simple_index import File, Project, read_project
from envdoctor.package_index.wheel_metadata import Metadata, read_metadata
from envdoctor.package_index.wheel_names import PLATFORMS, glibc_of
from envdoctor.redact.variables import redact_variable

RUN_SECONDS = 60.0  # for pages and metadata
NAMES_SECONDS = 120.0  # for one release of each table of names
EVERY_SECONDS = 4 * 3600.0  # for every release of them
OF_RELEASES = ("requires/", "bounds/")  # tables of requirements
FIRST_DAY = "2021-01-01"  # published.toml contains no older releases

Pages = dict[str, Project | RequestFailed]
MetadataByUrl = dict[str, Metadata | RequestFailed]  # by URL of the wheel


def check_facts(
    tables: Sequence[str],
    sources: Sources,
    report: Callable[[str], None],
    *,
    today: date,
    every: bool = False,
    seconds: float = RUN_SECONDS,
) -> FactsCheckResult:
    """Compare the named tables, by default all, with the index. Raises EnvdoctorError where no page is readable.

    Of a table of names one release is compared, or `every` one. This has its own time after `seconds`.
    """
    start = time.monotonic()
    requested = requested_tables(tables)
    packages = list(dict.fromkeys(_packages(requested)))
    client = HttpClient(sources, end=start + seconds)
    index = client.store_credentials(index_address(sources)) if packages else ""
    pages = _read_pages(client, index, packages, report) if packages else {}
    wheels = _wheels(requested, pages)
    if wheels:
        report(f"reading METADATA of {len(wheels)} wheels")
    metadata = run_parallel(
        {url: partial(read_metadata, client, file) for url, file in wheels.items()}, end=client.end
    )
    client.end += EVERY_SECONDS if every else NAMES_SECONDS
    return FactsCheckResult(
        index=redact_variable("", index),
        day=today.isoformat(),
        seconds=round(time.monotonic() - start, 2),
        requests=client.requests,
        bytes=client.bytes,
        tables=tuple(
            _check_names_table(client, table, pages, report, today, every=every)
            if table.startswith("names/")
            else _check_companions(client, pages, today)
            if table == "companions"
            else _check_table(table, rows, pages, metadata, today)
            for table, rows in requested.items()
        ),
    )


def _packages(requested: RequestedTables) -> Iterable[str]:
    """Yield the packages whose pages are needed."""
    for table, packages in requested.items():
        if table.startswith(OF_RELEASES):
            yield table.partition("/")[2]
        elif table.startswith("names/"):
            yield project_of(table.removeprefix("names/"))
        elif table == "published":
            yield from (name for name in published_packages() if packages is None or name in packages)
        elif table == "pythons":
            yield from (row.package for row in python_ranges() if packages is None or row.package in packages)
        elif table in ("torch_builds", "guides", "torch_libraries"):
            yield "torch"
        elif table == "companions":
            yield "bitsandbytes"


def _read_pages(client: HttpClient, index: str, packages: list[str], report: Callable[[str], None]) -> Pages:
    report(f"reading {len(packages)} pages of {redact_variable('', index)}")
    first = run_parallel({packages[0]: partial(read_project, client, index, packages[0])}, end=client.end)
    failure = first[packages[0]]
    pages = first
    if not isinstance(failure, RequestFailed) or failure.status == 404:
        pages = first | run_parallel(
            {name: partial(read_project, client, index, name) for name in packages[1:]}, end=client.end
        )
    failures = [page for page in pages.values() if isinstance(page, RequestFailed)]
    if len(failures) == len(pages):
        raise EnvdoctorError(
            failures[0].reason,
            expected=f"a simple index with a page of {packages[0]}",
            hint="PIP_INDEX_URL=https://mirror.example/simple envdoctor facts check",
        )
    return pages


def _wheels(requested: RequestedTables, pages: Pages) -> dict[str, File]:
    """Return the wheels whose METADATA is needed, by URL, in the order of the tables."""
    wheels: dict[str, File] = {}
    for table in requested:
        page = pages.get(table.partition("/")[2])
        if table.startswith(OF_RELEASES) and isinstance(page, Project):
            for version in _releases(table):
                if file := compare.select_wheel(compare.files_of_release(page, version)):
                    wheels[file.url] = file
    torch = pages.get("torch")
    if "torch_libraries" in requested and isinstance(torch, Project):
        files = (compare.select_wheel(compare.files_of_release(torch, version)) for version, _ in _torch_rows())
        wheels |= {file.url: file for file in files if file}
    if "guides" in requested and isinstance(torch, Project):
        wheels |= {file.url: file for _, _, file in _cuda_wheels(torch)}
    return wheels


def _releases(table: str) -> dict[str, Release]:
    """Return the releases of `requires/vllm` or `bounds/spacy`."""
    folder, _, package = table.partition("/")
    return bounded_releases(package) if folder == "bounds" else releases_of(package)


def _torch_rows() -> Iterable[tuple[str, tuple[str, ...]]]:
    """Yield the releases of the table of torch's libraries, each with its libraries."""
    for row in torch_libraries():
        yield from ((version, row.libraries) for version in row.versions)


def _cuda_wheels(torch: Project) -> Iterable[tuple[str, str, File]]:
    """Yield release, platform and wheel for the releases of torch that the table pypi_torch covers."""
    for version, files in torch.releases.items():
        for platform in PLATFORMS:
            file = compare.select_wheel(files, platform)
            fits = file is not None and file.wheel is not None and platform in glibc_of(file.wheel.platform)
            if file and fits and not is_prerelease(version) and cuda_row(guide_tables().pypi_torch, version):
                yield version, platform, file


def _check_table(
    table: str, packages: set[str] | None, pages: Pages, metadata: MetadataByUrl, today: date
) -> TableChecked:
    comparison = _TableComparison()
    if table.startswith(OF_RELEASES):
        _check_requires(comparison, table, pages, metadata, today)
    elif table == "published":
        for package in published_packages():
            if packages is None or package in packages:
                _check_published(comparison, package, pages)
    elif table == "pythons":
        _check_pythons(comparison, packages, pages)
    elif table == "torch_builds":
        _check_torch_builds(comparison, pages)
    elif table == "guides":
        _check_guides(comparison, pages, metadata)
    elif table == "torch_libraries":
        _check_torch_libraries(comparison, pages, metadata)
    return comparison.result(table, underivable(table, today))


class _TableComparison:
    """Collects the results of one table."""

    def __init__(self) -> None:
        self.checked = 0
        self.drifted: list[Drift] = []
        self.new: list[NewRelease] = []
        self.underivable: list[Underivable] = []
        self.failed_reads: list[FailedRead] = []

    def add_row(self, drifts: Iterable[Drift]) -> None:
        self.checked += 1
        self.drifted += drifts

    def find_page(self, pages: Pages, package: str, rows: int) -> Project | None:
        page = pages[package]
        if isinstance(page, RequestFailed):
            self.failed_reads.append(FailedRead(package, page.reason, rows))
            return None
        return page

    def result(self, name: str, underivable_rows: Iterable[Underivable]) -> TableChecked:
        return TableChecked(
            table=name,
            checked=self.checked,
            drifted=tuple(self.drifted),
            new=tuple(self.new),
            underivable=(*self.underivable, *underivable_rows),
            failed_reads=tuple(self.failed_reads),
        )


def _check_names_table(
    client: HttpClient, table: str, pages: Pages, report: Callable[[str], None], today: date, *, every: bool
) -> TableChecked:
    comparison = _TableComparison()
    package = table.removeprefix("names/")
    page = comparison.find_page(pages, project_of(package), names.number_of_rows(package))
    if page is None:
        return comparison.result(table, ())
    versions = names.chosen_releases(package, today, every=every)
    report(f"reading the Python files of {package} {versions[0]}{f' and {len(versions) - 1} more' if every else ''}")
    read = names.read_chosen(client, page, package, versions)
    complete = {version: members for version, members in read.items() if not isinstance(members, RequestFailed)}
    comparison.failed_reads += [
        FailedRead(f"{package} {version}", members.reason, names.number_of_rows(package))
        for version, members in read.items()
        if isinstance(members, RequestFailed)
    ]
    if every and len(complete) == len(versions):
        comparison.drifted += names.compare_every_release(package, complete, f"the {len(versions)} releases")
    else:
        for version, members in complete.items():
            comparison.drifted += names.compare_release(package, version, members, names.source_of(page, version))
    comparison.checked = names.number_of_rows(package) if complete else 0
    comparison.new += compare.new_releases(page, compared_releases(package), "9")
    return comparison.result(table, ())


def _check_companions(client: HttpClient, pages: Pages, today: date) -> TableChecked:
    comparison = _TableComparison()
    rows = {version: row.x86_64 for row in bitsandbytes_libraries() for version in row.versions}
    page = comparison.find_page(pages, "bitsandbytes", len(rows))
    found = (
        {version: compare.select_wheel(compare.files_of_release(page, version)) for version in rows} if page else {}
    )
    wheels = {version: file for version, file in found.items() if file}
    calls = {version: partial(libraries.read_cuda_versions, client, file) for version, file in wheels.items()}
    for version, read in run_parallel(calls, end=client.end).items():
        if isinstance(read, RequestFailed):
            comparison.failed_reads.append(FailedRead(f"bitsandbytes {version}", read.reason, 1))
        else:
            drifts = libraries.compare_cuda_versions(version, rows[version], read, wheels[version])
            comparison.add_row(drifts)
    for version in found.keys() - wheels.keys():
        comparison.add_row([Drift(f"bitsandbytes {version}", "release", "published", "no wheel", "")])
    return comparison.result("companions", underivable("companions", today))


def _check_torch_libraries(comparison: _TableComparison, pages: Pages, metadata: MetadataByUrl) -> None:
    rows = dict(_torch_rows())
    page = comparison.find_page(pages, "torch", len(rows))
    for version, expected in rows.items() if page else ():
        file = compare.select_wheel(compare.files_of_release(page, version)) if page else None
        read = metadata[file.url] if file else RequestFailed("the release has no wheel")
        if isinstance(read, RequestFailed):
            comparison.failed_reads.append(FailedRead(f"torch {version}", read.reason, 1))
        else:
            comparison.add_row(libraries.compare_torch_libraries(version, expected, read))


def _check_requires(
    comparison: _TableComparison, table: str, pages: Pages, metadata: MetadataByUrl, today: date
) -> None:
    package, rows = table.partition("/")[2], _releases(table)
    page = comparison.find_page(pages, package, len(rows))
    if page is None:
        return
    for version, row in rows.items():
        files = compare.files_of_release(page, version)
        file = compare.select_wheel(files)
        if not files:
            comparison.add_row([Drift(f"{package} {version}", "release", "published", "not on the index", page.page)])
        elif file is None:
            age = (today - date.fromisoformat(row.date)).days
            comparison.underivable.append(Underivable(1, f"{version} has no wheel", row.source, age))
        elif isinstance(read := metadata[file.url], RequestFailed):
            comparison.failed_reads.append(FailedRead(f"{package} {version}", read.reason, 1))
        else:
            comparison.add_row(compare.compare_requirements(package, version, row, rows.values(), read))
    new = compare.new_releases(page, rows, max(row.date for row in rows.values()))
    # Rows are derived from wheels: a release without one is not reported.
    comparison.new += [row for row in new if compare.select_wheel(compare.files_of_release(page, row.version))]


def _check_published(comparison: _TableComparison, package: str, pages: Pages) -> None:
    rows = published_releases(package)
    if page := comparison.find_page(pages, package, len(rows)):
        for row in rows:
            comparison.add_row(
                compare.compare_published(package, row, compare.files_of_release(page, row.version), page.page)
            )
        since = FIRST_DAY if rows else date_read(package)
        comparison.new += compare.new_releases(page, [row.version for row in rows], since)


def _check_pythons(comparison: _TableComparison, packages: set[str] | None, pages: Pages) -> None:
    rows = [row for row in python_ranges() if packages is None or row.package in packages]
    for row in rows:
        if page := comparison.find_page(pages, row.package, 1):
            comparison.add_row(compare.compare_pythons(row, page))


def _check_torch_builds(comparison: _TableComparison, pages: Pages) -> None:
    rows = torch_releases()
    if page := comparison.find_page(pages, "torch", len(rows)):
        for row in rows.values():
            comparison.add_row(compare.compare_torch_release(row, page))
        lines = {minor_of(release.version): release for release in
                 reversed(compare.new_releases(page, [row.latest for row in rows.values()], "9"))}  # fmt: skip
        comparison.new += [release for line, release in lines.items() if line not in rows]


def _check_guides(comparison: _TableComparison, pages: Pages, metadata: MetadataByUrl) -> None:
    rows = guide_tables().pypi_torch
    page = comparison.find_page(pages, "torch", len(rows))
    for version, platform, file in _cuda_wheels(page) if page else ():
        read = metadata[file.url]
        if isinstance(read, RequestFailed):
            comparison.failed_reads.append(FailedRead(f"torch {version} on {platform}", read.reason, 1))
        else:
            comparison.add_row(compare.compare_torch_cuda(rows, version, platform, read))
