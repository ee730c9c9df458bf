"""Checks on pages of wheels that are compiled for another torch than the one of the environment."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.records import Status
from envdoctor.core.wording import join_words
from envdoctor.knowledge.versions import dotted_numbers, public_part
from envdoctor.manifests.actions import Install
from envdoctor.manifests.checks.evidence import guide_evidence, line_of
from envdoctor.manifests.context import GuideContext
from envdoctor.rules.registry import Problem, rule
from envdoctor.rules.wheel_builds import COMPATIBLE

BUILDS = "https://pytorch-geometric.readthedocs.io/en/latest/install/installation.html"
# `whl/torch-2.5.0+cu124.html`, `mmcv/dist/cu111/torch1.10.0/index.html`, `wheels/py38_cu113_pyt1100/download.html`.
_TORCH = lazy_pattern(r"[/_](?:torch-?(\d\.\d{1,2})(?![\d])|pyt(\d)(\d{1,2})\d(?=/))")
# Their wheels are compiled with a torch. Those of other packages of the pages, such as torch-geometric, are not.
_COMPILED = frozenset({
    "torch-scatter", "torch-sparse", "torch-cluster", "torch-spline-conv", "pyg-lib", "detectron2", "mmcv",
    "mmcv-full", "dgl", "flashinfer", "pytorch3d", "natten", "kaolin",
})  # fmt: skip
_NOT_ON_PYPI = frozenset({"detectron2"})
# Text near a command that leaves the address to its reader.
_OF_READER = lazy_pattern(
    r"\breplac|\baccording|\bdepend|\bsubstitut|\badjust|\bchange\b"
    r"|\b(?:your|own) (?:\w+ ){0,2}(?:cuda|torch|pytorch)\b|\u6839\u636e|\u66ff\u6362",
    re.IGNORECASE,
)
_NEAR = 4  # lines


@rule("RUN251", kind="guide", severity=("error", "warning"), cause="torch-abi-mismatch", url=BUILDS)
def page_of_wheels_is_for_another_torch(context: GuideContext) -> Iterator[Problem]:
    """A step takes a compiled package from a page of wheels for another torch than the one of the environment.

    `-f .../detectron2/wheels/cu101/torch1.7/index.html` with torch 1.8.1: the libraries of the wheel do not load. The
    minor versions are compared. Left out where the text leaves the address to its reader.
    """
    seen: set[str] = set()
    for install in context.trace.installs:
        action = install.action
        page, version = _page(action)
        if not page:
            continue
        # With --no-index, a package of a page is none that is known.
        compiled = [each for each in (*action.requirements, *action.unknown) if each.name in _COMPILED]
        names = [each.name for each in compiled]
        state = next((each.state for each in context.environments if each.state.name == install.after.name), None)
        torch = state.packages.get("torch") if state else None
        if not names or not torch or not torch.version or page in seen or _is_of_reader(context, action.line):
            continue
        installed = ".".join(map(str, dotted_numbers(torch.version)[:2]))
        if installed == version or all((each, version, installed) in COMPATIBLE for each in names):
            continue
        seen.add(page)
        is_pinned = any(each.pin for each in compiled)
        status: Status = "error" if is_pinned or action.no_index or not _NOT_ON_PYPI.isdisjoint(names) else "warning"
        yield Problem(
            status,
            f"{join_words(names[:3])} from a page of wheels for torch {version}, and the environment has torch "
            f"{public_part(torch.version)}: a wheel of the page does not load",
            (
                guide_evidence(context, "page", page, line_of(context, action.line, page)),
                guide_evidence(context, "torch", torch.reason, torch.line),
            ),
            f"Use the page for torch {installed}, if it has wheels, or install torch {version}.",
            line=line_of(context, action.line, page),
        )


def _page(action: Install) -> tuple[str, str]:
    """The first page for one torch that a step reads, and the minor version of this torch; empty without one."""
    for page in (*action.find_links, *action.extra_indexes, action.index_url):
        if found := _TORCH.search(page):
            return page, found[1] or f"{found[2]}.{found[3]}"
    return "", ""


def _is_of_reader(context: GuideContext, line: int) -> bool:
    lines = context.guide.lines[max(0, line - 1 - _NEAR) : line + _NEAR]
    return any(map(_OF_READER.search, lines))
