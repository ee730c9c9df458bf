"""Checks on scripts that commands start by their path, and that the checkout keeps without permission to execute."""

from __future__ import annotations

import posixpath
import stat
from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.shell_commands import shell_command
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.checks.evidence import guide_command, guide_evidence, line_of, table_evidence
from envdoctor.manifests.command_wrappers import unwrap
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.program_launches import Launch, started_program
from envdoctor.rules.registry import Problem, rule

SEARCH = "https://www.gnu.org/software/bash/manual/bash.html#Command-Search-and-Execution"
_STARTED = lazy_pattern(r"(?:\./|\w[\w.-]*/)[\w./-]+\.(?:sh|bash|py)")
_CHANGES_MODES = lazy_pattern(r"\bchmod\b|\binstall\s+-m|\bgit\s+update-index\s+--chmod")
_SCRIPTS = (".sh", ".bash", ".py")
_MAX_FILES = 400  # whose modes are read


@rule("RUN255", kind="guide", severity="error", cause="program-not-executable", url=SEARCH)
def started_script_is_not_executable(context: GuideContext) -> Iterator[Problem]:
    """A command starts a script by its path, and its mode does not permit that: `Permission denied`.

    Only in a clone of git that keeps modes, as another of its files is executable, and where no step changes modes.
    """
    checkout, guide = context.guide.checkout, context.guide
    if checkout is None or not checkout.is_clone or not checkout.paths:
        return
    if any(map(_CHANGES_MODES.search, (*guide.lines, checkout.text("README.md")))):
        return
    found = {checkout.script(each): each for each in reversed([*_started_by_path(context)])}
    absent = {path: each for path, each in found.items() if path and _is_executable(checkout, path) is False}
    if not absent or not _keeps_modes(checkout):
        return
    for path, launch in absent.items():
        line = line_of(context, launch.line, launch.program.script)
        yield Problem(
            "error",
            f"{launch.program.script} is not executable in the checkout: bash stops with `Permission denied`",
            (
                guide_evidence(context, "command", launch.command, line),
                table_evidence("mode", f"{path}: no permission to execute", "the checkout"),
            ),
            f"Start it with {'python' if path.endswith('.py') else 'bash'}, or make it executable first.",
            guide_command(shell_command("chmod +x {}", launch.program.script)),
            line=line,
        )


def _started_by_path(context: GuideContext) -> Iterator[Launch]:
    """The starts of scripts whose path is the program of the command: not `bash run.sh`, and not in an image."""
    launches = {(each.line, each.program): each for each in context.guide.launches if each.line}
    for command in context.guide.commands:
        program = started_program(command)
        launch = launches.get((command.line, program)) if program else None
        is_script = launch is not None and not launch.instruction and _STARTED.fullmatch(launch.program.script)
        if launch and is_script and unwrap(command).name == posixpath.basename(launch.program.script):
            yield launch


def _is_executable(checkout: Checkout, path: str) -> bool | None:
    try:
        status = (checkout.root / path).stat()
    except OSError:
        return None
    return bool(status.st_mode & stat.S_IXUSR) if stat.S_ISREG(status.st_mode) else None


def _keeps_modes(checkout: Checkout) -> bool:
    """Whether one file has the permission, and another one not: some file systems give it to all or to none."""
    hooks = (checkout.root / ".git" / "hooks").glob("*.sample")  # which git makes executable
    scripts = [each for each in sorted(checkout.paths) if each.endswith(_SCRIPTS)][:_MAX_FILES]
    return any(_is_executable(checkout, str(each)) for each in (*hooks, *scripts))
