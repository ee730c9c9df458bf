"""Write envdoctor/knowledge/names/MODULE.toml: which names, arguments and attributes each release of a library has.

    python tests/campaigns/library_names.py MODULE [FIRST_DAY]

Without FIRST_DAY the releases of the existing table and the newer ones are read, else those that were uploaded since
that day. Only the Python files of a wheel are requested. A release without a wheel is read from its source archive,
which is not built. Pre-releases and releases that were withdrawn are left out.
"""

from __future__ import annotations

import datetime
import sys
import time
from collections.abc import Iterator

from envdoctor.download.http_client import HttpClient, RequestFailed
from envdoctor.download.sources import read_sources
from envdoctor.knowledge.installed import BUNDLED
from envdoctor.knowledge.names import compared_releases, packages, project_of
from envdoctor.knowledge.versions import is_prerelease, version_key
from envdoctor.knowledge_check.library_members import Members
from envdoctor.knowledge_check.names_table import derive_table, format_table
from envdoctor.knowledge_check.release_members import file_of, read_release_members
from envdoctor.package_index.address import index_address
from envdoctor.package_index.releases import Release, read_releases

SECONDS = 4 * 3600.0


def is_wanted(release: Release, first_day: str, known: set[object]) -> bool:
    """Whether the table has the release, or should have it."""
    if release.key in known:
        return True
    newest = max(known, default=None)  # type: ignore[type-var]
    is_new = release.day >= first_day if first_day else newest is not None and release.key > newest
    return is_new and not is_prerelease(release.version) and not release.is_yanked


def read_all(client: HttpClient, module: str, wanted: list[Release]) -> Iterator[tuple[Release, Members]]:
    """The members of each release that can be read."""
    for release in wanted:
        try:
            members = read_release_members(client, release, module)
        except RequestFailed as failure:
            print(f"{release.package} {release.version}: {failure.reason}", file=sys.stderr)
            continue
        if members.unparsed:
            print(f"{release.package} {release.version}: not parsed: {' '.join(members.unparsed)}", file=sys.stderr)
        yield release, members


def main() -> None:
    module, first_day = sys.argv[1], "".join(sys.argv[2:])
    known = {version_key(each) for each in compared_releases(module)} if module in packages() else set()
    sources = read_sources()
    client = HttpClient(sources, end=time.monotonic() + SECONDS)
    index = client.store_credentials(index_address(sources))
    wanted = [each for each in read_releases(client, index, project_of(module)) if is_wanted(each, first_day, known)]
    found = list(read_all(client, module, wanted))
    versions = [release.version for release, _ in found]
    archives = [release.version for release, _ in found if not file_of(release).wheel]
    source = "the wheels of the releases on PyPI"
    if len(archives) == len(found):
        source = "the source archives of the releases on PyPI"
    elif archives:
        source += f", and the source archives of {', '.join(archives)}"
    sections = derive_table(module, versions, [members for _, members in found])
    text = format_table(source, str(datetime.date.today()), versions, sections)
    (BUNDLED / f"names/{module}.toml").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
