"""Checks on `python setup.py` in a directory of the checkout that has no setup.py."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.checks.evidence import guide_evidence, table_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.made_files import can_come_from_elsewhere, is_ignored
from envdoctor.manifests.program_launches import Launch
from envdoctor.rules.registry import Problem

EXTENSIONS = "https://setuptools.pypa.io/en/latest/userguide/ext_modules.html"
_NAME = "setup.py"
_TASKS = frozenset({"build", "build_ext", "build_py", "install", "develop", "bdist_wheel", "sdist"})
_ENTERS = ("cd", "pushd")
_FILLS = frozenset({
    "git", "svn", "wget", "curl", "gdown", "tar", "unzip", "cp", "mv", "ln", "rsync", "cython", "cmake", "bash", "sh",
})  # fmt: skip
_COMPILED = (".pyx", ".c", ".cc", ".cpp", ".cu")
_CODE = (".py", *_COMPILED)


def absent_setups(context: GuideContext, checkout: Checkout) -> Iterator[Problem]:
    """`python setup.py build_ext` directly after `cd FOLDER`, where the folder has code and no setup.py.

    Not reported where the root, a directory above or below, or another one of the same name has a setup.py: a guide
    can leave out a step that enters or leaves a directory.
    """
    seen: set[str] = set()
    for launch in context.guide.launches:
        folder = _entered_folder(context, checkout, launch)
        if not folder or folder in seen or _has_setup(checkout, folder):
            continue
        seen.add(folder)
        path = posixpath.join(folder, _NAME)
        if is_ignored(checkout, path) or can_come_from_elsewhere(context.guide, checkout, path, {launch.line}):
            continue
        has_sources = any(each.startswith(f"{folder}/") and each.endswith(_COMPILED) for each in checkout.paths)
        yield Problem(
            "error",
            f"{path} is not in the checkout: `{launch.command}` stops",
            (
                guide_evidence(context, "command", launch.command, launch.line),
                table_evidence("files", f"no {path}", "the checkout"),
            ),
            "Use the version of the project that has the file."
            if has_sources
            else f"Leave out the step, as {folder} has no .pyx, C or CUDA file to compile, or use the version of the "
            "project that has setup.py.",
            line=launch.line,
            url=EXTENSIONS,
        )


def _entered_folder(context: GuideContext, checkout: Checkout, launch: Launch) -> str:
    """The folder of the checkout that the `cd` before a start of setup.py enters; empty if it can be another one."""
    program = launch.program
    is_build = bool(_TASKS.intersection(program.arguments[:1])) and not launch.instruction and not launch.has_returned
    if posixpath.normpath(program.script or ".") != _NAME or not is_build or not launch.line or not launch.folders:
        return ""
    folder = checkout.relative(launch.folders[0])
    has_code = any(posixpath.dirname(each) == folder and each.endswith(_CODE) for each in checkout.paths)
    if not folder or folder.startswith("..") or not has_code:
        return ""
    before = [each for each in context.guide.commands if each.line < launch.line]
    last = next((index for index in reversed(range(len(before))) if before[index].name in _ENTERS), None)
    if last is None or len(before[last].words) == 1:
        return ""
    is_entered = f"/{folder}".endswith(f"/{posixpath.normpath(before[last].words[1]).lstrip('./')}")
    is_filled = any(each.name in _FILLS for each in before[last + 1 :])
    return folder if is_entered and not is_filled else ""


def _has_setup(checkout: Checkout, folder: str) -> bool:
    """Whether a directory that can be meant has a setup.py."""
    folders = {posixpath.dirname(each) for each in checkout.paths if posixpath.basename(each) == _NAME}
    name = posixpath.basename(folder)
    return any(
        f"{folder}/".startswith(f"{each}/" if each else "")
        or f"{each}/".startswith(f"{folder}/")
        or posixpath.basename(each) == name
        for each in folders
    )
