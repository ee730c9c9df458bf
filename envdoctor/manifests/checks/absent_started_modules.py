"""Modules that `python -m` and servers start, and that the directory of the command does not have."""

from __future__ import annotations

import difflib
import posixpath
from collections.abc import Iterator

from envdoctor.core.shell_commands import shell_command
from envdoctor.manifests.checkout_code import INSTALLED_FROM, Checkout
from envdoctor.manifests.checks.absent_dockerfiles import is_named
from envdoctor.manifests.checks.evidence import guide_evidence, table_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.made_files import can_come_from_elsewhere, is_ignored
from envdoctor.manifests.program_launches import Launch
from envdoctor.rules.registry import Problem

_PROJECT = ("pyproject.toml", "setup.py", "setup.cfg")
_LIKENESS = 0.75


def absent_started_modules(context: GuideContext, checkout: Checkout) -> Iterator[Problem]:
    """A module of a package of the checkout that does not exist, and an application in a directory not entered."""
    seen: set[str] = set()
    for launch in context.guide.launches:
        program = launch.program
        path = program.module.replace(".", "/")
        is_judged = launch.line and path and launch.folders and not (program.function or launch.has_returned)
        if not is_judged or launch.instruction or path in seen:
            continue
        seen.add(path)
        found = checkout.script(launch)
        folders = [checkout.relative(each) for each in launch.folders]
        if program.launcher and found.rpartition(path)[0].rstrip("/") in {*INSTALLED_FROM} - {*folders, ""}:
            found = ""  # where an installation would take the module from
        if found.endswith("/__init__.py") and not program.launcher:
            yield from _package(context, checkout, launch, found)
        if found or can_come_from_elsewhere(context.guide, checkout, f"{path}.py", {launch.line}):
            continue
        homes = [posixpath.join(folder, posixpath.dirname(path)) for folder in folders]
        home = next((each for each in homes if f"{each}/__init__.py" in checkout.paths), "")
        if home and "/" in path:
            yield from _absent(context, checkout, launch, f"{home}/{posixpath.basename(path)}")
        elif not home:
            yield from _not_entered(context, checkout, launch, f"{path}.py")


def _package(context: GuideContext, checkout: Checkout, launch: Launch, found: str) -> Iterator[Problem]:
    """`python -m` of a package without `__main__`."""
    main = f"{posixpath.dirname(found)}/__main__.py"
    if main not in checkout.paths and not is_ignored(checkout, main):
        module = launch.program.module
        yield _problem(
            context, launch, f"{module} is a package without __main__.py: python -m does not run it", main,
            "Name the module of the package that is the program.",
        )  # fmt: skip


def _absent(context: GuideContext, checkout: Checkout, launch: Launch, path: str) -> Iterator[Problem]:
    if any(each.startswith((f"{path}.", f"{path}/")) or each == path for each in checkout.paths):
        return
    folder, name = posixpath.split(path)
    files = [each for each in checkout.paths if posixpath.dirname(each) == folder and each.endswith(".py")]
    names = [posixpath.basename(each)[: -len(".py")] for each in files]
    nearest = next(iter(difflib.get_close_matches(name, names, n=1, cutoff=_LIKENESS)), "")
    module = launch.program.module
    other = ".".join((*module.split(".")[:-1], nearest))
    yield _problem(
        context, launch, f"{module} is not in the checkout" + (f"; {other} is" if nearest else ""), f"{path}.py",
        f"Name {other}, if it is the module that is meant." if nearest
        else "Name a module of the checkout, or use the version of the project that has it.",
    )  # fmt: skip


def _not_entered(context: GuideContext, checkout: Checkout, launch: Launch, path: str) -> Iterator[Problem]:
    """The only file of a module, in a directory that the guide neither enters nor names."""
    files = [each for each in checkout.paths if each.endswith(f"/{path}")]
    folder = files[0][: -len(path) - 1] if len(files) == 1 else ""
    entered = {
        posixpath.basename(posixpath.normpath(word))
        for command in context.guide.commands
        if command.name in ("cd", "pushd")
        for word in command.words[1:]
    }
    is_installed = any(each in checkout.paths for each in _PROJECT)
    text = "\n".join(context.guide.lines)
    if not folder or is_installed or posixpath.basename(folder) in entered or is_named(text, folder):
        return
    module = launch.program.module
    yield _problem(
        context, launch, f"the directory of the command has no module {module}; {files[0]} is in the checkout", path,
        f"Run {shell_command('cd {}', folder)} first.", status="warning",
    )  # fmt: skip


def _problem(
    context: GuideContext, launch: Launch, message: str, path: str, fix: str, *, status: str = "error"
) -> Problem:
    return Problem(
        "warning" if status == "warning" else "error",
        message,
        (
            guide_evidence(context, "command", launch.command, launch.line),
            table_evidence("files", f"no {path}", "the checkout"),
        ),
        fix,
        line=launch.line,
    )
