"""Checks on exports of conda environments that were made on another system."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, table_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.other_systems import names_other_system
from envdoctor.rules.registry import Problem, rule

EXPORT = (
    "https://docs.conda.io/projects/conda/en/stable/user-guide/tasks/manage-environments.html"
    "#exporting-an-environment-file-across-platforms"
)
# The hash in a build of the channel defaults is that of the build variant, which is one of a platform: builds of
# `py39` with the platform in their address, 2021 to 2025.
_HASHES = {
    "haa95532": "Windows", "h2bbff1b": "Windows", "h827c3e9": "Windows",
    "hecd8cb5": "macOS", "h9ed2024": "macOS", "hca72f7f": "macOS",
    "hca03da5": "macOS on Apple silicon", "h80987f9": "macOS on Apple silicon", "h1a28f6b": "macOS on Apple silicon",
}  # fmt: skip
_BUILD = lazy_pattern(r"[^=]+==?[^=]+=(?:py\d+)?(h[0-9a-f]{7})_\w+")
# Packages that no channel has for Linux.
_ONLY_WINDOWS = lazy_pattern(
    r"vs20\d\d[_-]runtime|vc(?:14[_-]runtime)?|ucrt|pywinpty|winpty|m2w64-.*|msys2-conda-epoch"
)
_OTHER_SYSTEM = lazy_pattern(
    r"(?i)(?<![a-z])(?:win(?:dows)?(?:32|64|1[01])?|mac(?:os)?|osx|darwin|m[1-4]|arm64)(?![a-z])"
)


@rule("RUN275", kind="guide", severity="error", cause="dependency-pin-violated", url=EXPORT)
def environment_is_exported_on_another_system(context: GuideContext) -> Iterator[Problem]:
    """A list of `conda env export` has builds, or packages, of Windows or macOS: conda finds none for Linux.

    Not reported where the name of the file or the section of the guide names the system.
    """
    for install in context.trace.installs:
        action = install.action
        if action.tool != "conda" or _OTHER_SYSTEM.search(action.command):
            continue
        if names_other_system(context.guide.lines, context.guide.blocks, action.line):
            continue
        found = [(each, system) for each in action.requirements if (system := _system(each.name, each.text))]
        if found:
            (first, system), *others = found
            line = line_of(context, first.line, first.text)
            further = f", and {len(others)} further lines are" if others else ""
            yield Problem(
                "error",
                f"`{first.text}` is for {system}{further}: conda finds no such package for Linux",
                (
                    guide_evidence(context, "package", first.text, line),
                    table_evidence(
                        first.text.rpartition("=")[2], system, "builds of the channel defaults", "2026-11-28"
                    ),
                ),
                "Export the environment on Linux, or with conda env export --from-history, which leaves out builds.",
                line=line,
            )


def _system(name: str, text: str) -> str:
    """The system of a package of conda that is not for Linux; empty for others."""
    build = _BUILD.fullmatch(text.strip())
    return "Windows" if _ONLY_WINDOWS.fullmatch(name) else _HASHES.get(build[1], "") if build else ""
