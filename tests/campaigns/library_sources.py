"""Write the Python sources of each release of a library into a folder of its own, for `library_names.py`.

    python tests/campaigns/library_sources.py PROJECT MODULE DIRECTORY [FIRST_DAY]

Only the `.py` files of a wheel are requested, with range requests. A release without a wheel is read from its source
archive, which is not built.
"""

from __future__ import annotations

import io
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

from envdoctor.download.http_client import HttpClient, RequestFailed
from envdoctor.download.sources import read_sources
from envdoctor.knowledge.versions import is_prerelease
from envdoctor.knowledge_check.comparison import select_wheel
from envdoctor.package_index.address import index_address
from envdoctor.package_index.releases import Release, read_releases
from envdoctor.package_index.wheel_sources import read_wheel_sources

SECONDS = 3600
ARCHIVE_BYTES = 64 << 20


def read_files(client: HttpClient, release: Release, module: str, cache: Path) -> Iterator[tuple[str, str]]:
    """The Python files of the module by their path in it."""
    wheel = select_wheel(release.files)
    if wheel:
        sources = read_wheel_sources(client, wheel, cache)
        yield from ((path, sources.read(path)) for path in sources.paths if path.startswith(f"{module}/"))
        return
    archive = next(file for file in release.files if file.name.endswith(".tar.gz"))
    data = client.get(archive.url, limit=ARCHIVE_BYTES).body
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for member in tar:
            _, _, path = member.name.partition("/")
            file = tar.extractfile(member) if path.startswith(f"{module}/") and path.endswith(".py") else None
            if file:
                yield path, file.read().decode("utf-8", "replace")


def main() -> None:
    project, module, directory, first_day = sys.argv[1], sys.argv[2], Path(sys.argv[3]), [*sys.argv[4:], "2024"][0]
    sources = read_sources()
    client = HttpClient(sources, end=time.monotonic() + SECONDS)
    index = client.store_credentials(index_address(sources))
    for release in read_releases(client, index, project):
        if release.day < first_day or is_prerelease(release.version) or release.is_yanked:
            continue
        try:
            for path, text in read_files(client, release, module, directory / ".cache"):
                target = directory / release.version / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text, encoding="utf-8")
        except (RequestFailed, StopIteration) as error:
            print(f"{project} {release.version}: {error!r}", file=sys.stderr)


if __name__ == "__main__":
    main()
