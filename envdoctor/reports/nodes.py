"""Versions that a text states for each node: `head: ray 2.40.0`, `node1: torch 2.3.1, driver 535.104`."""

from __future__ import annotations

import re

from envdoctor.core.patterns import lazy_pattern
from envdoctor.reports.package_lists import KNOWN_PACKAGES
from envdoctor.reports.section import distribution_name

NODE = (
    r"(?:ray )?(?:head|worker|master|node|host|rank|server)(?: (?:node|container|pod|image))?(?:[ _-]?[\dAB]{1,2})?\b"
)
# The part of a text for one node begins with its name, at the start of a line or of an item.
START = lazy_pattern(rf"(?im)(?:^[\s*\u2022-]{{0,6}}|[;,(] {{0,2}}|\bvs\.? |\band )({NODE})(?=[ :=(])")
END = lazy_pattern(r"[;\n]")
VERSION = lazy_pattern(r"(?i)\b([a-z][\w-]{1,24})(?: version)?\s?(?:==?|:|\s)\s?v?(\d{1,3}\.\d{1,3}[\w.+]{0,24})")
OTHERS = frozenset({"python", "driver", "nccl", "cuda"})  # components that are no packages


def differing_versions(text: str) -> dict[str, dict[str, str]]:
    """The components of which nodes have different versions: `{"ray": {"head": "2.40.0", "worker": "2.43.0"}}`."""
    found: dict[str, dict[str, str]] = {}
    starts = list(START.finditer(text))
    for start, following in zip(starts, [*starts[1:], None], strict=False):
        until = END.search(text, start.end())
        ends = [each.start() for each in (until, following) if each]
        part = text[start.end() : min(ends, default=len(text))]
        node = start[1].lower().removeprefix("ray ")
        if node != start[1].lower() and (alone := re.match(r"\W{1,3}(\d+\.\d+[\w.]*)", part)):  # `ray head: 2.44.1`
            found.setdefault("ray", {}).setdefault(node, alone[1])
        for match in VERSION.finditer(part):
            name = distribution_name(match[1])
            if name in KNOWN_PACKAGES or name in OTHERS:
                found.setdefault(name, {}).setdefault(node, match[2].rstrip("."))
    return {name: nodes for name, nodes in found.items() if len(set(nodes.values())) > 1}
