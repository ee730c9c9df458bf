"""Checks on the Pythons that steps install with apt."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.images import is_bare_image, system_of_image
from envdoctor.knowledge.services import AptPython, service_tables
from envdoctor.knowledge.versions import satisfies
from envdoctor.manifests.actions import InstallSystemPackages, UseImage
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, table_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.rules.registry import Problem, rule

DEADSNAKES = "https://github.com/deadsnakes/issues"
DISTUTILS = "https://peps.python.org/pep-0632/"
_PYTHON = lazy_pattern(r"(?:lib)?python(3\.\d{1,2})(?:-(?:dev|venv|distutils|full|minimal|tk|lib2to3))?")
OTHER_SOURCES = lazy_pattern(r"add-apt-repository|sources\.list|ppa:|\.sources\b|ppa\.launchpad")
_WITHOUT_DISTUTILS = ">=3.12"


@rule("RUN110", kind="guide", severity="error", cause="python-unsupported", url=DEADSNAKES)
def python_is_not_among_the_packages_of_the_system(context: GuideContext) -> Iterator[Problem]:
    """apt has no package of this Python on the operating system of the image: `Unable to locate package python3.10`.

    Ubuntu 24.04 has Python 3.12 alone, 22.04 has 3.10 and 3.11. The PPA deadsnakes has others, but none for
    Ubuntu 20.04 any more, and none for Debian. No source has python3.12-distutils: Python 3.12 removed the module.
    """
    for action in context.actions(InstallSystemPackages):
        image = image_of_step(context, action.line)
        system = system_of_image(f"{image.name}:{image.tag}") if image else None
        row = next((row for row in service_tables().apt_python if system and row.system == system.name), None)
        if image and row:
            found = ((name, _reason(context, name, row, image, action.line)) for name in action.names)
            name, reason = next(((name, reason) for name, reason in found if reason), ("", ""))
            if name:
                yield _problem(context, (name, reason), row, image, action.line)


def image_of_step(context: GuideContext, line: int) -> UseImage | None:
    """The image with nothing but an operating system in which a step of a Dockerfile runs."""
    images = [each for each in context.actions(UseImage) if each.in_dockerfile and each.line < line]
    stages = {each.stage: each for each in images if each.stage}
    image = images[-1] if images else None
    for _ in images:
        image = stages.get(image.name, image) if image and not image.tag else image
    return image if image and is_bare_image(f"{image.name}:{image.tag}") else None


def _reason(context: GuideContext, name: str, row: AptPython, image: UseImage, line: int) -> str:
    """Why apt does not find a package; empty if it may find it."""
    found = _PYTHON.fullmatch(name)
    if not found:
        return ""
    if name.endswith("-distutils") and satisfies(found[1], _WITHOUT_DISTUTILS):
        return f"Python {found[1]} has no distutils"
    if found[1] in row.pythons:
        return ""
    earlier = "\n".join(context.guide.lines[image.line - 1 : line + 1])
    own = f"{row.system} has {' and '.join(row.pythons)}"
    if "deadsnakes" in earlier:
        return "" if row.deadsnakes else f"{own}, and the PPA deadsnakes has no packages for it"
    return "" if OTHER_SOURCES.search(earlier) else own


def _problem(context: GuideContext, found: tuple[str, str], row: AptPython, image: UseImage, start: int) -> Problem:
    name, reason = found
    line = line_of(context, start, name)
    is_distutils = "distutils" in reason
    ppa = ", or add the PPA deadsnakes before" if row.deadsnakes else ""
    return Problem(
        "error",
        f"apt has no package {name} in {image.name}:{image.tag}: {reason}",
        (
            guide_evidence(context, "package", name, line),
            table_evidence(row.system, f"Python {', '.join(row.pythons)}", row.source, row.date),
        ),
        "Remove it. What needs distutils finds it in setuptools."
        if is_distutils
        else f"Use python{row.pythons[-1]} or another image{ppa}; `uv python install` works in each.",
        line=line,
        url=DISTUTILS if is_distutils else "",
    )
