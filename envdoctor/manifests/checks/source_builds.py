"""Checks on releases without a wheel whose build needs libraries or programs of the system."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.remedies import steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.images import is_bare_image, public_repository
from envdoctor.knowledge.source_needs import SourceNeed, source_need
from envdoctor.knowledge.versions import newest_patch, satisfies
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, table_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.interpreter import InstallStep
from envdoctor.resolution.resolver import ResolvedPackage
from envdoctor.rules.registry import Problem, rule

_COMPILER = lazy_pattern(
    r"\bg?cc\b|\bg\+\+|build-essential|\bclang\b|Development Tools|conda|\bcompilers?\b|pixi|base-devel"
)
SDISTS = "https://packaging.python.org/en/latest/discussions/package-formats/#what-about-source-distributions"


@rule("RUN109", kind="guide", severity=("error", "warning"), cause="system-library-missing", url=SDISTS,
      needs=("wheels", "python"))  # fmt: skip
def build_needs_a_system_library(context: GuideContext) -> Iterator[Problem]:
    """A release has no wheel for the Python, and its build needs headers or programs that no step installs.

    av needs the headers of FFmpeg, mpi4py an MPI library, PyAudio those of PortAudio. An error in an image that has
    only an operating system; elsewhere a warning, because the machine can have them.
    """
    text = "\n".join(context.guide.lines)
    for install in context.trace.installs:
        if install.action.only_binary or install.action.tool == "conda":
            continue
        for name in sorted(install.resolution.built):
            package, row = install.resolution.packages.get(name), source_need(name)
            is_missing = package and row and not _is_provided(install, row, text)
            if package and row and is_missing and not _is_for_another_python(context, install, package):
                yield _missing(context, install, package, row)


@rule("RUN112", kind="guide", severity="error", cause="compiler-missing", url=SDISTS, needs=("wheels", "python"))
def image_has_no_compiler_for_a_build(context: GuideContext) -> Iterator[Problem]:
    """A release has no wheel for the Python, its build compiles C code, and the image has no compiler.

    The slim images of Python, those of an operating system, and `base` and `runtime` of nvidia/cuda have none.
    """
    if context.index_facts is None:
        return
    text = "\n".join(context.guide.lines)
    has_recommended = "python3-pip" in text and "--no-install-recommends" not in text  # build-essential among them
    for install in context.trace.installs:
        before = install.before
        is_bare = before.in_dockerfile and before.tool != "conda" and _lacks_compiler(before.image)
        if not is_bare or has_recommended or install.action.only_binary or _COMPILER.search(text):
            continue
        for name in sorted(install.resolution.built):
            package = install.resolution.packages.get(name)
            archive = context.index_facts.compiled_archive(name, package.version) if package else ""
            if package and archive:
                yield _uncompiled(context, install, package, archive)


def _lacks_compiler(image: str) -> bool:
    """Whether an image of nothing but Python, an operating system or CUDA has no compiler."""
    repository, _, tag = image.rpartition(":")
    name = public_repository(repository).removeprefix("library/")
    is_small = {"python": "slim" in tag, "nvidia/cuda": "-devel" not in tag}.get(name, name in ("ubuntu", "debian"))
    return is_bare_image(image) and is_small


def _uncompiled(context: GuideContext, install: InstallStep, package: ResolvedPackage, archive: str) -> Problem:
    line = line_of(context, package.line or install.action.line, package.reason)
    return Problem(
        "error",
        f"{package.name} {package.version} has no wheel, its build compiles C code, and {install.before.image} has "
        "no compiler",
        (
            guide_evidence(context, package.name, package.reason, line),
            guide_evidence(context, "image", install.before.image, install.before.image_line),
            table_evidence(package.name, "C code and extensions in setup.py", archive),
        ),
        "Install a compiler first (build-essential and python3-dev), or use a release with a wheel.",
        steps("apt-get install -y build-essential python3-dev"),
        line=line,
    )


def _is_provided(install: InstallStep, row: SourceNeed, text: str) -> bool:
    """Whether the text names what brings the libraries, or the conda environment has them."""
    in_conda = {name for name, each in install.before.packages.items() if each.origin == "conda"}
    return bool(re.search(row.provided, text)) or bool(in_conda & set(row.conda))


def _is_for_another_python(context: GuideContext, install: InstallStep, package: ResolvedPackage) -> bool:
    """Whether a release does not permit the Python: an installer takes an older one, which can have a wheel."""
    newest = context.index_facts.newest_release(package.name) if context.index_facts else None
    permitted = newest.requires_python if newest and newest.version == package.version else ""
    python = newest_patch(install.before.python or context.trace.python)
    return bool(permitted) and satisfies(python, permitted) is False


def _missing(context: GuideContext, install: InstallStep, package: ResolvedPackage, row: SourceNeed) -> Problem:
    line = line_of(context, package.line or install.action.line, package.reason)
    index = context.index_facts
    newest = index.newest_release(package.name) if index else None
    is_better = newest is not None and newest.has_wheel and newest.version != package.version
    python = newest_patch(install.before.python or context.trace.python)
    is_better &= newest is not None and satisfies(python, newest.requires_python or ">=3") is not False
    other = f", or use a release with a wheel, such as {newest.name} {newest.version}" if newest and is_better else ""
    is_bare = bool(install.before.image) and is_bare_image(install.before.image)
    return Problem(
        "error" if is_bare and install.before.tool == "image" else "warning",
        f"{package.name} {package.version} has no wheel, and its build needs {row.needs}, which no step installs",
        (
            guide_evidence(context, package.name, package.reason, line),
            table_evidence(f"build of {package.name}", row.needs, row.source, row.date),
        ),
        f"Install them first (Debian, Ubuntu: {' '.join(row.apt)}){other}.",
        steps(shell_command("sudo apt-get install -y {}", list(row.apt))),
        line=line,
    )
