"""Write envdoctor/knowledge/bounds/PACKAGE.toml: which versions of other packages the releases of a package require.

    python tests/campaigns/package_bounds.py [--index] [--uv-cache DIRECTORY] [--reports DIRECTORY]
        [--repository PACKAGE=DIRECTORY] [PACKAGE ...]

The packages, by default all of bounded_packages.txt, and the ones that they require, are of that list. METADATA is
read of all wheels on the index, from the package cache of uv, `uv cache dir`, and from reports:

    pip install --dry-run --ignore-installed --no-deps --report DIRECTORY/NAME.json 'PACKAGE==1.0'

`--repository` reads requirements.txt at the tags of a package that has no wheels on the index. The releases of the
existing tables are kept. Pre-releases are left out if a newer release exists. Markers are evaluated for Linux on
x86_64 and Python 3.9 to 3.13.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby
from pathlib import Path

from envdoctor.download.http_client import HttpClient, RequestFailed
from envdoctor.download.parallel import run_parallel
from envdoctor.download.sources import read_sources
from envdoctor.knowledge.bounds import NOTHING, has_bounds, parse_bounds
from envdoctor.knowledge.installed import BUNDLED
from envdoctor.knowledge.releases import normalize_name, parse_requirement
from envdoctor.knowledge.tables import read_table
from envdoctor.knowledge.versions import Key, is_prerelease, version_key
from envdoctor.knowledge_check.comparison import applicable_lines, select_wheel
from envdoctor.package_index.address import index_address
from envdoctor.package_index.releases import read_releases
from envdoctor.package_index.wheel_metadata import Metadata, read_metadata

PYTHONS = ("3.9", "3.10", "3.11", "3.12", "3.13")
NAMES = Path(__file__).with_name("bounded_packages.txt")
# A violation of these seldom matters, and most packages set bounds on them.
LEFT_OUT = frozenset({"setuptools", "packaging", "typing-extensions"})
# setup.py of axolotl replaces these lines of requirements.txt, or moves them to an extra.
SET_BY_SETUP = frozenset(
    {"autoawq", "deepspeed", "flash-attn", "mamba-ssm", "torch", "torchao", "triton", "xformers"}
)
BUILDS = frozenset({"torch"})  # its requirements depend on the CUDA version of the build
SECONDS = 3600.0  # of reading the index

Releases = dict[str, tuple[str, ...]]  # requirements by version
Found = dict[str, Releases]


def decode_start(data: bytes, start: int = 0) -> tuple[object, int]:
    """The first MessagePack value of nested lists and strings, and the position after it."""
    kind = data[start]
    if kind == 0xC0:
        return None, start + 1
    if 0xA0 <= kind <= 0xBF or kind in (0xD9, 0xDA):
        width = 0 if kind <= 0xBF else kind - 0xD8
        size = int.from_bytes(data[start + 1 : start + 1 + width]) if width else kind & 31
        begin = start + 1 + width
        return data[begin : begin + size].decode(), begin + size
    if 0x90 <= kind <= 0x9F or kind == 0xDC:
        width = 2 if kind == 0xDC else 0
        size = int.from_bytes(data[start + 1 : start + 1 + width]) if width else kind & 15
        values, position = [], start + 1 + width
        for _ in range(size):
            value, position = decode_start(data, position)
            values.append(value)
        return values, position
    raise ValueError(f"unexpected type {kind:#x} at byte {start}")


def read_uv_cache(folder: Path, names: set[str]) -> Iterator[tuple[str, str, list[str]]]:
    """Name, version and Requires-Dist of each cached release; a file starts with these three and contains more."""
    for path in folder.glob("wheels-v*/pypi/*/*.msgpack"):
        if path.parent.name not in names:
            continue
        data = path.read_bytes()
        name, position = decode_start(data, 1)
        version, position = decode_start(data, position)
        requires, _ = decode_start(data, position)
        if isinstance(name, str) and isinstance(version, str) and isinstance(requires, list):
            yield normalize_name(name), version, requires


def read_reports(folder: Path) -> Iterator[tuple[str, str, list[str]]]:
    """Name, version and Requires-Dist of each release in pip's reports."""
    for path in folder.glob("*.json"):
        for item in json.loads(path.read_text(encoding="utf-8"))["install"]:
            metadata = item["metadata"]
            yield normalize_name(metadata["name"]), metadata["version"], metadata.get("requires_dist", [])


def read_index(names: Iterable[str]) -> Iterator[tuple[str, str, list[str]]]:
    """Name, version and Requires-Dist of each release on the index that has a wheel."""
    sources = read_sources()
    client = HttpClient(sources, end=time.monotonic() + SECONDS)
    index = client.store_credentials(index_address(sources))
    pages = run_parallel({name: partial(read_releases, client, index, name) for name in names}, end=client.end)
    wheels = {
        (name, release.version): wheel
        for name, releases in pages.items()
        if not isinstance(releases, RequestFailed)
        for release in releases
        if (wheel := select_wheel(release.files))
    }
    calls = {key: partial(read_metadata, client, wheel) for key, wheel in wheels.items()}
    for (name, version), found in run_parallel(calls, end=client.end).items():
        if isinstance(found, Metadata):
            yield name, version, list(found.requires)
        else:
            print(f"{name} {version}: {found.reason}", file=sys.stderr)


def read_repository(package: str, folder: Path) -> Iterator[tuple[str, str, list[str]]]:
    """Name, version and the lines of requirements.txt at each tag that is a version."""
    git = ["git", "-C", str(folder)]
    for tag in subprocess.run([*git, "tag"], capture_output=True, text=True, check=True).stdout.split():
        shown = subprocess.run([*git, "show", f"{tag}:requirements.txt"], capture_output=True, text=True, check=False)
        if version_key(tag.lstrip("v")) and shown.returncode == 0:
            lines = (line.partition(" #")[0].strip() for line in shown.stdout.splitlines())
            requirements = [
                line for line in lines if (found := parse_requirement(line)) and found.name not in SET_BY_SETUP
            ]
            yield package, tag.lstrip("v"), requirements


def bounds_of(package: str, lines: Iterable[str], names: set[str]) -> tuple[str, ...]:
    """The lines on packages of the list that have a version, with the Pythons that they apply to."""
    by_python = {python: set(applicable_lines(list(lines), python, package)) for python in PYTHONS}
    found = []
    for line in sorted(set().union(*by_python.values())):
        requirement = parse_requirement(line)
        if not requirement or not requirement.specifier or requirement.name not in names - {package} - LEFT_OUT:
            continue
        pythons = [python for python in PYTHONS if line in by_python[python]]
        if pythons == list(PYTHONS):
            markers = [""]
        elif pythons[-1] == PYTHONS[-1]:
            markers = [f";python_version>='{pythons[0]}'"]
        elif pythons[0] == PYTHONS[0]:
            markers = [f";python_version<='{pythons[-1]}'"]
        else:
            markers = [f";python_version=='{python}'" for python in pythons]
        found += [f"{requirement.name}{_in_order(requirement.specifier)}{marker}" for marker in markers]
    return tuple(sorted(found))


def _in_order(specifier: str) -> str:
    """The clauses from the lowest version to the highest."""
    key = lambda clause: version_key(clause.strip("<>=!~").replace(".*", "")) or ((0,), (0, 0), 0, 0)  # noqa: E731
    return ",".join(sorted(specifier.split(","), key=key))


def known_releases(package: str) -> Releases:
    """The releases of the existing table."""
    if not has_bounds(package):
        return {}
    return dict(parse_bounds(read_table(f"bounds/{package}.toml")["releases"]))


def format_table(package: str, releases: Releases, source: str, day: str) -> str:
    """The text of a table, newest releases first; releases with the same requirements in a row are one block."""
    ordered = sorted(releases, key=lambda version: version_key(version) or ((0,), (0, 0), 0, 0), reverse=True)
    blocks = []
    for requirements, versions in groupby(ordered, key=releases.__getitem__):
        for words in (versions, requirements or (NOTHING,)):
            blocks += textwrap.wrap(" ".join(words), 118, break_long_words=False, break_on_hyphens=False)
    lines = "\n".join(blocks)
    return (
        f"# Versions of other packages that releases of {package} require; see envdoctor/knowledge/bounds.py.\n"
        f'source = "{source}"\ndate = "{day}"\nreleases = """\n{lines}\n"""\n'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", action="store_true")
    parser.add_argument("--uv-cache", type=Path, action="append", default=[])
    parser.add_argument("--reports", type=Path, action="append", default=[])
    parser.add_argument("--repository", action="append", default=[], metavar="PACKAGE=DIRECTORY")
    parser.add_argument("packages", nargs="*")
    options = parser.parse_args()
    names = {re.sub(r"[-_.]+", "-", name) for name in NAMES.read_text(encoding="utf-8").split()}
    wanted = (set(options.packages) or names) - BUILDS
    found: Found = {}
    sources: dict[str, str] = {}
    of_repositories = [each.split("=", 1) for each in options.repository]
    read = [
        *(read_index(sorted(wanted)) if options.index else ()),
        *(row for folder in options.uv_cache for row in read_uv_cache(folder, wanted)),
        *(row for folder in options.reports for row in read_reports(folder)),
        *(row for name, folder in of_repositories for row in read_repository(name, Path(folder))),
    ]
    newest: dict[str, Key] = {}
    for name, version, _ in read:
        if (key := version_key(version)) and not is_prerelease(version):
            newest[name] = max(key, newest.get(name, key))
    for name, version, lines in read:
        key = version_key(version)
        is_superseded = is_prerelease(version) and name in newest and key is not None and key < newest[name]
        if name in wanted and "+" not in version and not is_superseded:
            found.setdefault(name, {})[version] = bounds_of(name, lines, names)
            in_repository = any(name == repository for repository, _ in of_repositories)
            sources[name] = "requirements.txt at the tags" if in_repository else "METADATA of the wheels on PyPI"
    for name, releases in sorted(found.items()):
        complete = known_releases(name) | releases
        if any(complete.values()):
            text = format_table(name, complete, sources[name], str(datetime.date.today()))
            (BUNDLED / f"bounds/{name}.toml").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
