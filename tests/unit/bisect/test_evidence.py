"""The link of a project, the names of a failure, and uv's output."""

from __future__ import annotations

from support.cases import each_case

from envdoctor.bisect.evidence import is_named, link_of
from envdoctor.bisect.solver import lines_of, parse_packages
from envdoctor.package_index.public_names import NameChange


@each_case(
    ("urls", "expected"),
    [
        (
            ["Source, https://x.org/code", "Release notes, https://x.org/news"],
            ("https://x.org/news", "Release notes"),
        ),
        (["Homepage, https://x.org", "Change Log, https://x.org/c"], ("https://x.org/c", "Change Log")),
        (["Changelog, http://x.org/c"], ("", "")),
        (["Changelog, javascript:alert(1)", "Source, https://x.org:8443/a"], ("https://x.org:8443/a", "Source")),
        (["Changelog, https://x.org/a b", "Changes, https://x.org/\x1b[2J"], ("", "")),
        (["Changelog, https://user:secret@x.org/"], ("", "")),
        (["Change\x1blog, https://x.org/c"], ("", "")),
        (["Funding, https://x.org/pay", "no comma"], ("", "")),
        ([f"Changelog, https://x.org/{'c' * 300}"], ("", "")),
    ],
)
def test_only_printable_https_links_are_shown(urls: list[str], expected: tuple[str, str]) -> None:
    assert link_of({"project-url": urls}) == expected


@each_case(
    ("change", "output", "expected"),
    [
        (NameChange("urllib3.contrib.appengine"), "cannot import name 'appengine' from 'urllib3.contrib'", True),
        (NameChange("numpy.float_"), "module 'numpy' has no attribute 'floating'", False),
        (NameChange("httpx.Client", ("proxies",)), "Client.__init__() got an unexpected argument 'proxies'", True),
        (NameChange("httpx.Client", ("proxies",)), "TypeError: proxies", False),
        (NameChange("numpy.int"), "line 3: int", False),  # too short to be a sign by itself
        (NameChange("numpy.int"), "AttributeError: numpy.int", True),
    ],
)
def test_a_name_is_in_the_output_of_a_failure(change: NameChange, output: str, expected: bool) -> None:
    assert is_named(change, output) is expected


def test_packages_are_the_lines_that_uv_reads_and_prints() -> None:
    lines = ["-e file:///project", "alpha==1.0+cu128", "tool @ https://x.org/tool-1.0-py3-none-any.whl"]
    packages = parse_packages("# header\nAlpha[extra]==1.0+cu128 ; python_version > '3'\n" + "\n".join(lines[::2]))
    assert lines_of(packages) == lines
