"""The list of releases with upload dates."""

from __future__ import annotations

from support.cases import each_case

from envdoctor.package_index.releases import Release, find_release, list_releases, releases_after
from envdoctor.package_index.simple_index import Project, parse_html

PAGE = """
<a href="x-1.0-py3-none-any.whl" data-upload-time="2026-01-01T10:00:00Z">x</a>
<a href="x-1.0.0.tar.gz" data-upload-time="2026-01-01T09:00:00Z">x</a>
<a href="x-1.10-py3-none-any.whl" data-upload-time="2026-03-01T23:30:00Z">x</a>
<a href="x-1.2-py3-none-any.whl">x</a>
<a href="x-1.3rc1-py3-none-any.whl" data-upload-time="2026-02-01T10:00:00Z">x</a>
<a href="x-1.4-py3-none-any.whl" data-upload-time="2026-02-02T10:00:00Z" data-yanked="">x</a>
<a href="x-2.0-py3-none-any.whl" data-upload-time="2026-04-01T10:00:00Z">x</a>
<a href="x-2.1-py3-none-any.whl">x</a>
"""


def releases() -> tuple[Release, ...]:
    files: dict[str, list] = {}
    for file in parse_html(PAGE, "https://index.example/x/"):
        files.setdefault(file.version, []).append(file)
    return list_releases(Project("x", "page", files))


def test_releases_are_in_order_of_version_with_the_first_upload() -> None:
    assert [release.version for release in releases()] == ["1.0", "1.2", "1.3rc1", "1.4", "1.10", "2.0", "2.1"]
    first = find_release(releases(), "1.0.0")
    assert first is not None
    assert (first.uploaded, first.day, len(first.files)) == ("2026-01-01T09:00:00Z", "2026-01-01", 2)
    assert find_release(releases(), "9") is None


@each_case(
    ("version", "options", "expected"),
    [
        ("1.0", {}, ["1.2", "1.10", "2.0", "2.1"]),
        ("1.0", {"prereleases": True}, ["1.2", "1.3rc1", "1.10", "2.0", "2.1"]),
        ("1.0", {"until": "2026-03-01"}, ["1.2", "1.10"]),
        ("1.0", {"until": "2026-03-01T23:00:00Z"}, ["1.2"]),
        ("1.0", {"until": "2025-12-31"}, []),
        ("2.0", {"until": "2026-12-31"}, []),
        ("2.1", {}, []),
    ],
)
def test_newer_releases(version: str, options: dict, expected: list[str]) -> None:
    assert [release.version for release in releases_after(releases(), version, **options)] == expected
