"""Checks on the packages that steps of an image build install with apt."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.images import public_repository, system_of_image
from envdoctor.knowledge.services import service_tables
from envdoctor.manifests.actions import InstallSystemPackages, UseImage
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, table_evidence
from envdoctor.manifests.checks.system_pythons import OTHER_SOURCES, image_of_step
from envdoctor.manifests.context import GuideContext
from envdoctor.rules.registry import Problem, rule

APT = "https://wiki.debian.org/Apt"
_CODENAMES = {"bookworm": "debian12", "trixie": "debian13", "jammy": "ubuntu22.04", "noble": "ubuntu24.04"}
# Without a codename and without a patch release, an image of Python that is still built is one of Debian 13.
_NEWEST_PYTHON = lazy_pattern(r"python:3(?:\.1\d)?(?:-slim)?")
_OLDER = lazy_pattern(r"bullseye|buster|stretch|alpine|focal|bionic")


@rule("RUN291", kind="guide", severity="error", cause="system-library-missing", url=APT)
def package_is_not_among_those_of_the_system(context: GuideContext) -> Iterator[Problem]:
    """apt has no package of this name on the operating system of the image, so that the build stops.

    Debian 13 and Ubuntu 24.04 have no libgl1-mesa-glx; images such as python:3.11-slim are those of Debian 13. Not
    reported where a step adds another source of packages, and where the command has an alternative.

    Fix: install the package with the new name, or start from an image of the older system.
    """
    for action in context.actions(InstallSystemPackages):
        image = image_of_step(context, action.line)
        system = _system(image) if image else ""
        rows = [row for row in service_tables().apt_absent if system in row.systems]
        if not image or not rows or _has_alternative(context, image, action):
            continue
        names = dict.fromkeys(each.partition(":")[0].partition("=")[0] for each in action.names)
        for name, row in ((name, row) for name in names for row in rows if name in row.packages):
            line = line_of(context, action.line, name)
            instead = row.packages[name]
            yield Problem(
                "error",
                f"apt has no package {name} in {image.name}:{image.tag}, an image of {system}: the build stops",
                (
                    guide_evidence(context, "package", name, line),
                    table_evidence(system, f"no {name}", row.source, row.date),
                ),
                f"Install {instead} instead." if instead else "Remove it, or start from an image of an older system.",
                line=line,
            )


def _system(image: UseImage) -> str:
    """The operating system of an image, as the tables name it; empty if it is unknown."""
    name = f"{public_repository(image.name).removeprefix('library/')}:{image.tag}"
    if row := system_of_image(name):
        return row.name
    if _NEWEST_PYTHON.fullmatch(name):
        return "debian13"
    is_named = name.startswith(("python:", "debian:", "ubuntu:", "buildpack-deps:")) and not _OLDER.search(name)
    return next((system for code, system in _CODENAMES.items() if is_named and code in image.tag), "")


def _has_alternative(context: GuideContext, image: UseImage, action: InstallSystemPackages) -> bool:
    lines = context.guide.lines[image.line - 1 : action.line + len(action.names) + 1]
    earlier = "\n".join(lines)
    own = "\n".join(lines[action.line - image.line :])
    return OTHER_SOURCES.search(earlier) is not None or "||" in own
