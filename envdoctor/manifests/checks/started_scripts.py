"""Checks on scripts and the shell that starts them: syntax of bash for sh, and `conda activate` in a child shell."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.checkout_code import Checkout
from envdoctor.manifests.checks.evidence import command_evidence, guide_evidence, table_evidence
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.inputs.batch_jobs import is_batch_job
from envdoctor.manifests.program_launches import Launch
from envdoctor.manifests.shell import parse_commands
from envdoctor.manifests.shell_records import Command, ShellState
from envdoctor.manifests.shell_syntax import bash_syntax
from envdoctor.rules.registry import Problem, rule

INTERPRETER = "https://www.gnu.org/software/bash/manual/html_node/Shell-Scripts.html"
ACTIVATION = "https://docs.conda.io/projects/conda/en/stable/dev-guide/deep-dives/activation.html"
_SH = lazy_pattern(r"#!\s*(?:/usr)?/bin/(?:env\s+)?(?:sh|dash)\s*$")
_SHELL = lazy_pattern(r"#!\s*\S*/(?:env\s+)?(?:ba|z|k)?sh\b(.*)")
_LOGIN = lazy_pattern(r"(?:^|\s)-\w*[li]")
_READS_HOOK = lazy_pattern(
    r"(?:^|[;&|]|\b(?:then|do|else))\s*(?:source|\.)\s+\S|\beval\b|shell\.\w+ hook|conda init|module\s+load",
    re.MULTILINE,
)
_ACTIVATES = {("conda", "activate"), ("mamba", "activate"), ("micromamba", "activate")}
_STOPS = lazy_pattern(r"^\s*set\s+(?:-\w+\s+)*-\w*e|^#!.*\s-\w*e", re.MULTILINE)
_OPENS = lazy_pattern(r"^\s*(?:if|case|for|while|until)\b|[({]\s*$|^\s*(?:function\s+)?[\w-]+\s*\(\)")
_CLOSES = lazy_pattern(r"(?:^|;)\s*(?:fi|esac|done|\}|\))(?=\s|;|$)")
_MAX_GUIDES = 60
HOOK = 'eval "$(conda shell.bash hook)"'


class Start(NamedTuple):
    """A line of a guide that starts a script, and the guide before it."""

    guide: str
    line: int
    text: str
    shell: str  # sh, bash, zsh; empty: the one of its first line
    before: str  # with the line itself

    @property
    def place(self) -> str:
        """The file and the line."""
        return f"{self.guide}, line {self.line}"


@rule("RUN157", kind="guide", severity="warning", cause="program-not-executable", url=INTERPRETER)
def script_for_sh_needs_bash(context: GuideContext) -> Iterator[Problem]:
    """A script for sh has syntax of bash. /bin/sh of Debian and Ubuntu is dash, which stops.

    Its first line is `#!/bin/sh`, or a guide of the checkout starts it with `sh`.
    """
    lines = context.guide.lines
    is_for_sh = bool(lines) and bool(_SH.match(lines[0]))
    found = bash_syntax(enumerate(lines, 1)) if is_for_sh or _is_script(context) else None
    if not found:
        return
    starts = [] if is_for_sh else [each for each in _starts(context) if each.shell == "sh"]
    if is_for_sh or starts:
        line, what = found
        first = (
            guide_evidence(context, "first line", lines[0].strip(), 1)
            if is_for_sh
            else table_evidence("start", starts[0].text, starts[0].place)
        )
        yield Problem(
            "warning",
            f"{what} is syntax of bash, and {'the first line' if is_for_sh else starts[0].place} names sh, "
            "which is dash on Debian and Ubuntu",
            (first, guide_evidence(context, "command", lines[line - 1].strip()[:120], line)),
            "Write `#!/bin/bash` as the first line." if is_for_sh else f"Use bash in {starts[0].place}.",
            line=line,
        )


@rule("RUN159", kind="guide", severity=("error", "warning", "info"), cause="wrong-python-env", url=ACTIVATION)
def script_activates_without_hook(context: GuideContext) -> Iterator[Problem]:
    """`conda activate` in a script needs conda's function, which a shell that is not interactive has not read.

    Not reported where the script reads another file before, loads a module, or starts with a login shell. An error
    where a guide of the checkout starts the script with a shell of its own, so that the next commands run in the
    environment of the caller. Otherwise a note outside of batch jobs, as `source` can run the script.
    """
    lines = context.guide.lines
    first = _SHELL.match(lines[0]) if lines else None
    if not _is_script(context) or (first and _LOGIN.search(first[1])):
        return
    command = _activation(lines)
    if command is None:
        return
    starts = [
        each
        for each in (_starts(context) if _is_always_run(command, lines) else ())
        if not _is_active(command, lines, each.before)
    ]
    start = starts[0] if starts else None
    if not start and not first:
        return
    origin = (table_evidence("start", start.text, start.place),) if start else ()
    yield Problem(
        "error" if start else "warning" if is_batch_job(context.guide) else "info",
        f"`{command}` stops: a script has no conda function unless it reads conda.sh",
        (*command_evidence(context, command), *origin),
        f"Add `{HOOK}` above.",
        line=command.line,
    )


@rule("RUN215", kind="guide", severity="warning", cause="program-not-executable", url=INTERPRETER)
def guide_starts_a_script_of_bash_with_sh(context: GuideContext) -> Iterator[Problem]:
    """A command starts a script of the checkout with `sh`, and the script has syntax of bash, which dash refuses.

    /bin/sh of Debian and Ubuntu is dash. The first line of a script has no effect on `sh SCRIPT`.
    """
    for launch, path, lines in started_scripts(context):
        is_for_sh = launch.program.launcher == "sh" or (
            not launch.program.launcher and bool(_SH.match(lines[0] if lines else ""))
        )
        found = bash_syntax(enumerate(lines, 1)) if is_for_sh else None
        if found:
            line, what = found
            yield Problem(
                "warning",
                f"`{launch.command}` runs {path} with sh, which is dash on Debian and Ubuntu: {what} of its line "
                f"{line} is syntax of bash",
                (guide_evidence(context, "command", launch.command, launch.line),
                 table_evidence("line", lines[line - 1].strip()[:120], f"{path}, line {line}")),
                f"Use bash {launch.program.script}.",
                line=launch.line,
            )  # fmt: skip


@rule("RUN216", kind="guide", severity=("error", "warning"), cause="wrong-python-env", url=ACTIVATION)
def guide_starts_a_script_that_cannot_activate(context: GuideContext) -> Iterator[Problem]:
    """A command starts a script of the checkout whose `conda activate` fails: its shell has no conda function.

    Without `set -e`, the script continues, and its next commands install into the environment of the caller.
    """
    for launch, path, lines in started_scripts(context):
        if _LOGIN.search(launch.command.partition(launch.program.script)[0]) or any(map(_LOGIN.search, lines[:1])):
            continue
        command = _activation(lines)
        before = "\n".join(context.guide.lines[: launch.line])
        if command is None or not _is_always_run(command, lines) or _is_active(command, lines, before):
            continue
        after = [text for text in lines[command.line :] if text.strip() and not text.lstrip().startswith("#")]
        goes_on = bool(after) and not _STOPS.search("\n".join(lines[: command.line]))
        effect = ", and the next lines run in the environment that is active" if goes_on else ""
        yield Problem(
            "error" if after else "warning",
            f"`{command}` in line {command.line} of {path} fails: its shell has no conda function{effect}",
            (guide_evidence(context, "command", launch.command, launch.line),
             table_evidence("line", str(command), f"{path}, line {command.line}")),
            f"Add `{HOOK}` above line {command.line} of {path}, or use bash -i {launch.program.script}.",
            line=launch.line,
        )  # fmt: skip


def _activation(lines: Sequence[str]) -> Command | None:
    """The first command that needs conda's function, unless the script can have read it."""
    commands = parse_commands(tuple(enumerate(lines, 1)), ShellState())
    command = next((each for each in commands if each.words[:2] in _ACTIVATES), None)
    if command is None or _READS_HOOK.search("\n".join(lines[: command.line])):
        return None
    return None if "||" in lines[command.line - 1] else command


def _is_always_run(command: Command, lines: Sequence[str]) -> bool:
    """Whether a command is in no condition, loop or function."""
    above = lines[: command.line - 1]
    opened = sum(1 for text in above if _OPENS.search(text) and not text.lstrip().startswith("#"))
    return opened <= sum(1 for text in above if _CLOSES.search(text))


def _is_active(command: Command, lines: Sequence[str], before: str) -> bool:
    """Whether the caller has the environment, so that a failed activation of it changes nothing."""
    name = command.words[2] if len(command.words) > 2 else "base"
    is_active = re.search(rf"\bactivate\s+{re.escape(name)}(?![\w-])", before)
    return bool(is_active) and not _STOPS.search("\n".join(lines[: command.line]))


def started_scripts(context: GuideContext) -> Iterator[tuple[Launch, str, list[str]]]:
    """The shell scripts of the checkout that a guide starts in a shell of their own, with their lines."""
    checkout = context.guide.checkout
    if checkout is None or _is_script(context):
        return
    seen: set[tuple[str, str]] = set()
    for launch in context.guide.launches:
        key = launch.program.script, launch.program.launcher
        if not launch.line or launch.program.is_python or launch.program.launcher == "sbatch" or key in seen:
            continue
        seen.add(key)
        if path := checkout.script(launch):
            yield launch, path, checkout.text(path).split("\n")


def _is_script(context: GuideContext) -> bool:
    """Whether the text as a whole is a shell script."""
    blocks = context.guide.blocks
    return len(blocks) == 1 and blocks[0].language == "bash" and blocks[0].lines[:1] == ((1, context.guide.lines[0]),)


def _starts(context: GuideContext) -> list[Start]:
    """The lines of guides that start the audited script in a shell of its own; none if one of them sources it."""
    checkout = context.guide.checkout
    if checkout is None or not checkout.is_clone:
        return []
    name = posixpath.basename(context.guide.name)
    of_that_name = [each for each in checkout.paths if posixpath.basename(each) == name]
    if len(of_that_name) != 1:
        return []  # a guide can name another one
    return _of_guides(checkout, name)


def _of_guides(checkout: Checkout, name: str) -> list[Start]:
    started = re.compile(
        rf"(?<![\w/.-])(sh|bash|zsh|source|\.)((?:\s+-\w+)*)\s+[\"']?(?:[\w.$~{{}}-]*/)*{re.escape(name)}(?![\w.-])"
        rf"|(?:^|[\s`;&|(])(?:\.|[\w.-]+)/(?:[\w.-]+/)*{re.escape(name)}(?![\w.-])"
    )
    guides = sorted(each for each in checkout.paths if each.endswith((".md", ".rst")) and each.count("/") < 3)
    found = []
    for guide in guides[:_MAX_GUIDES]:
        lines = checkout.text(guide).split("\n")
        for number, text in enumerate(lines, 1):
            match = started.search(text) if name in text else None
            if match and match[1] in ("source", "."):
                return []
            # A path alone is a start in code only: prose names files as well.
            if match and match[1] and not _LOGIN.search(match[2]):
                found.append(Start(guide, number, text.strip()[:120], match[1], "\n".join(lines[:number])))
    return found
