"""Write envdoctor/knowledge/dataclass_fields.toml: the fields that HfArgumentParser makes options of.

    python tests/campaigns/dataclass_fields.py

The last release of each minor series of transformers and trl is read, from its wheel on the index. The source is
parsed only.
"""

from __future__ import annotations

import ast
import datetime
import re
import sys
import time
from collections.abc import Iterator, Sequence

from envdoctor.download.http_client import HttpClient, RequestFailed
from envdoctor.download.sources import read_sources
from envdoctor.knowledge.tables import FOLDER
from envdoctor.knowledge.versions import dotted_numbers, is_prerelease
from envdoctor.knowledge_check.release_members import file_of
from envdoctor.package_index.address import index_address
from envdoctor.package_index.releases import Release, read_releases
from envdoctor.package_index.remote_wheel import RemoteWheel
from tests.campaigns.config_fields import read_class_fields

TARGET = FOLDER / "dataclass_fields.toml"
FILES = {
    "transformers": re.compile(r"transformers/(?:training_args(?:_seq2seq)?|data/datasets/(?:glue|squad))\.py"),
    "trl": re.compile(
        r"trl/(?:trainer|experimental|scripts)/(?:.+/)?(?:\w*config|utils|training_args|base_\w+|callbacks)\.py"
    ),
}
NAMES = re.compile(r"[A-Z]\w*(?:Arguments|Config)")
WRITTEN = frozenset({  # classes of TRL that its examples parse
    "SFTConfig", "DPOConfig", "GRPOConfig", "RewardConfig", "PPOConfig", "KTOConfig", "ORPOConfig", "CPOConfig",
    "RLOOConfig", "OnlineDPOConfig", "GKDConfig", "ModelConfig", "ScriptArguments",
})  # fmt: skip
FIRST = {"transformers": (3,), "trl": (0, 4)}
SECONDS = 3600.0
MEMBER_BYTES = 4 << 20


def chosen(releases: Sequence[Release], first: tuple[int, ...]) -> Iterator[Release]:
    """The last release of each minor series."""
    series: dict[tuple[int, ...], Release] = {}
    for each in releases:
        numbers = dotted_numbers(each.version)
        if numbers >= first and not is_prerelease(each.version) and not each.is_yanked and file_of(each).wheel:
            series[numbers[:2]] = each
    yield from series.values()


def classes_of(client: HttpClient, release: Release) -> dict[str, tuple[set[str], list[str]]]:
    """The fields and the bases of the classes of a release."""
    wheel = RemoteWheel(client, file_of(release))
    paths = [each for each in wheel.members if FILES[release.package].fullmatch(each)]
    wheel.request(paths)
    found: dict[str, tuple[set[str], list[str]]] = {}
    for path in paths:
        for node in ast.parse(wheel.read(path, limit=MEMBER_BYTES)).body:
            if isinstance(node, ast.ClassDef) and (NAMES.fullmatch(node.name) or node.name == "_BaseConfig"):
                fields, bases = found.setdefault(node.name, (set(), []))
                fields |= {name for name, _ in read_class_fields(node)}
                bases += [ast.unparse(base).rpartition(".")[2] for base in node.bases]
    return found


def all_fields(classes: dict[str, tuple[set[str], list[str]]], name: str) -> tuple[set[str], set[str]]:
    """The fields of a class with those of its bases, and the bases of other packages."""
    fields, others = set(classes[name][0]), set()
    for base in classes[name][1]:
        if base in classes and base != name:
            inner, outer = all_fields(classes, base)
            fields |= inner
            others |= outer
        else:
            others.add(base)
    return fields, others


def periods(present: Sequence[bool], versions: Sequence[str]) -> str:
    """The periods in which a field exists: FIRST..LAST, empty at the ends of the comparison."""
    found, start = [], None
    for index, is_there in enumerate([*present, False]):
        if is_there and start is None:
            start = index
        elif not is_there and start is not None:
            first = versions[start] if start else ""
            found.append(f"{first}..{versions[index - 1] if index < len(versions) else ''}")
            start = None
    return "" if found == [".."] else " ".join(found)


def main() -> None:
    sources = read_sources()
    client = HttpClient(sources, end=time.monotonic() + SECONDS)
    index = client.store_credentials(index_address(sources))
    lines = [
        "# Written by tests/campaigns/dataclass_fields.py: the fields of dataclasses, as `NAME FIRST..LAST` where",
        "# they differ between the compared releases. `bases` are classes of other packages.",
        "",
        "[table]",
        'source = "the wheels of transformers and trl on PyPI"',
        f'date = "{datetime.date.today()}"',
    ]
    for package, first in FIRST.items():
        compared: list[tuple[str, dict[str, tuple[set[str], list[str]]]]] = []
        for release in chosen(read_releases(client, index, package), first):
            try:
                compared.append((release.version, classes_of(client, release)))
            except (RequestFailed, SyntaxError) as failure:
                print(f"{package} {release.version}: {failure}", file=sys.stderr)
        versions = [version for version, _ in compared]
        lines += ["", "[[compared]]", f'package = "{package}"', f'releases = "{" ".join(versions)}"']
        names = sorted({name for _, classes in compared for name in classes})
        for name in names if package == "transformers" else sorted(WRITTEN):
            found = [all_fields(classes, name) if name in classes else (set(), set()) for _, classes in compared]
            bases = sorted({base for _, others in found for base in others if NAMES.fullmatch(base)})
            fields = sorted({field for each, _ in found for field in each})
            if not fields and not bases:
                continue
            rows = [f"{field} {periods([field in each for each, _ in found], versions)}".strip() for field in fields]
            lines += ["", "[[dataclass]]", f'package = "{package}"', f'name = "{name}"']
            lines += [f'bases = "{" ".join(bases)}"', 'fields = """', *rows, '"""']
    TARGET.write_text("\n".join((*lines, "")), encoding="utf-8")


if __name__ == "__main__":
    main()
