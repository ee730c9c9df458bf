"""Checks on what packages load or start at run time: libraries and programs of an image, and other packages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from envdoctor.core.remedies import steps
from envdoctor.core.shell_commands import shell_command
from envdoctor.knowledge.runtime_needs import RuntimeLibrary, runtime_needs
from envdoctor.knowledge.versions import satisfies
from envdoctor.manifests.actions import UseImage
from envdoctor.manifests.checks.evidence import (
    guide_command,
    guide_evidence,
    install_step,
    line_of,
    table_evidence,
)
from envdoctor.manifests.checks.image_programs import runs_unknown_script, text_of
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.image_stages import Stage, image_stages
from envdoctor.manifests.interpreter import InstallStep
from envdoctor.rules.registry import Problem, rule

LIBRARIES = "https://packaging.python.org/en/latest/specifications/platform-compatibility-tags/#manylinux"
EXTRAS = "https://packaging.python.org/en/latest/specifications/dependency-specifiers/#extras"


@rule("RUN117", kind="guide", severity=("error", "warning", "unknown"), cause="system-library-missing", url=LIBRARIES)
def image_lacks_what_a_package_loads(context: GuideContext) -> Iterator[Problem]:
    """A package loads a library or starts a program of the system that the image lacks and no step installs.

    opencv-python needs libGL, openai-whisper the program ffmpeg. An error if the package is named and its import
    fails, else a warning: the code may not use it. Unknown for a machine, where only what a usual one lacks is
    reported, such as OpenSlide.
    """
    yield from _of_machines(context)
    stages = list(image_stages(context.guide.blocks))
    text = "\n".join(text_of(part) for each in stages for part in each.instructions)
    if "--no-install-recommends" in text:
        text = text.replace("python3-pip", "")  # which recommends build-essential
    if not stages or runs_unknown_script(text):
        return
    kinds = {stage.image: stage for stage in stages}
    final = stages[-1]
    for row in runtime_needs().system:
        found = next(_packages_of(context, row), None)
        stage = kinds.get(found.install.before.image) if found else None
        images = {stage, final} if stage else {final}
        if not found or re.search(row.provided, _without_requirements(text, row)):
            continue
        if all(each and _lacks(each, row) for each in images):
            yield _missing(context, row, found)


def _of_machines(context: GuideContext) -> Iterator[Problem]:
    """The packages whose import needs a library that a usual machine lacks, and that no line of the guide names."""
    text = "\n".join(context.guide.lines)
    for row in runtime_needs().system if not context.actions(UseImage) else ():
        for install in context.trace.installs if row.module and not re.search(row.provided, text) else ():
            named = [each for each in install.action.requirements if each.name in row.packages and not each.url]
            if not named or install.action.tool == "conda" or row.unless & install.after.packages.keys():
                continue
            line = line_of(context, named[0].line, named[0].text)
            yield Problem(
                "unknown",
                f"{named[0].name}: its import loads {row.needs}, which no step installs (not certain: the machine "
                "can have it)",
                (
                    guide_evidence(context, named[0].name, named[0].text, line),
                    table_evidence(named[0].name, row.needs, row.source, row.date),
                ),
                f"Run this in the finished environment. If it fails, install {' '.join(row.apt)} with apt-get.",
                guide_command(shell_command("python -c {}", f"import {row.module}")),
                line=line,
            )
            break


class _User(NamedTuple):
    """A package that needs a library: the step that installs it, and why it does."""

    install: InstallStep
    name: str
    reason: str
    line: int
    is_dependency: bool


def _packages_of(context: GuideContext, row: RuntimeLibrary) -> Iterator[_User]:
    """The packages of a row that steps in an image install with pip."""
    for install in context.trace.installs:
        if not install.before.in_dockerfile or install.action.tool == "conda":
            continue
        requested = {each.name for each in install.action.requirements}
        if row.unless & (install.after.packages.keys() | requested):
            continue
        for each in install.action.requirements:
            if each.name in row.packages:
                yield _User(install, each.name, each.text, each.line, is_dependency=False)
        for name in row.packages if row.is_loaded_by_others else ():
            package = install.resolution.packages.get(name)
            if package and package.is_dependency and name not in requested:
                yield _User(install, name, package.reason, package.line or install.action.line, is_dependency=True)


def _lacks(stage: Stage, row: RuntimeLibrary) -> bool:
    return stage.kind in row.images and not (row.has_compiler and stage.has_toolkit)


def _without_requirements(text: str, row: RuntimeLibrary) -> str:
    """The text without the names of the packages themselves, which contain those of libraries: `ffmpeg-python`."""
    return re.sub(rf"\b(?:{'|'.join(map(re.escape, row.packages))})\b(?!-headless)", "", text)


def _missing(context: GuideContext, row: RuntimeLibrary, user: _User) -> Problem:
    line, image = line_of(context, user.line, user.reason), user.install.before.image
    of = f" ({user.reason})" if user.is_dependency else ""
    verb = "its import loads" if row.when == "import" else "it needs"
    return Problem(
        "error" if row.when == "import" and not user.is_dependency else "warning",
        f"{user.name}{of}: {verb} {row.needs}, which {image} lacks and no step installs",
        (
            guide_evidence(context, user.name, user.reason, line),
            guide_evidence(context, "image", image, user.install.before.image_line),
            table_evidence(user.name, row.needs, row.source, row.date),
        ),
        f"Install {' '.join(row.apt)} with apt-get"
        + (", or use opencv-python-headless." if "opencv-python" in row.packages else "."),
        steps(shell_command("apt-get install -y {}", list(row.apt))),
        line=line,
    )


@rule("RUN118", kind="guide", severity="error", cause="dependency-pin-violated", url=EXTRAS)
def package_needs_another_that_nothing_installs(context: GuideContext) -> Iterator[Problem]:
    """A package needs one of several others at its import, requires none of them, and no step installs one.

    rembg from 2.0.61 on has onnxruntime only in its extras cpu and gpu.
    """
    final = {name for state in context.trace.final_states for name in state.packages}
    final |= {each.name for each in context.guide.left_out}
    for row in runtime_needs().module:
        for install in context.trace.installs:
            package = install.resolution.packages.get(row.package)
            named = [each for each in install.action.requirements if each.name == row.package and not each.extras]
            if not package or not named or final & row.modules or install.resolution.state != "solved":
                continue
            if package.version and satisfies(package.version, f">={row.first}") is not True:
                continue
            if len(install.action.requirements) > 1 and context.index_facts is None:
                continue  # another package can require it
            line = line_of(context, named[0].line, named[0].text)
            yield Problem(
                "error",
                f"{row.package} {package.version}".rstrip()
                + f" needs {' or '.join(sorted(row.modules)[:2])} at its import, and no step installs it",
                (
                    guide_evidence(context, row.package, named[0].text, line),
                    table_evidence(row.package, "requires it only in extras", row.source, row.date),
                ),
                f"Install {row.instead}.",
                install_step(row.instead),
                line=line,
            )
