"""A check on the names of conda environments that steps create and activate."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.core.shell_commands import shell_command
from envdoctor.manifests.actions import SelectEnvironment
from envdoctor.manifests.checks.evidence import guide_command, guide_evidence, line_of
from envdoctor.manifests.context import GuideContext
from envdoctor.rules.registry import Problem, rule

ACTIVATE = "https://docs.conda.io/projects/conda/en/stable/user-guide/tasks/manage-environments.html"
_NAME = lazy_pattern(r"[a-z][\w.-]*", re.IGNORECASE)
_PLACEHOLDER = lazy_pattern(r"(?i:path|your|name|env_?dir|<|>|^my|^(?:conda_?)?env$)|[A-Z]{4}")
_NAMES, _USES = lazy_pattern(r"(?:-n|--name)[= ]|\bname:\s"), lazy_pattern(r"\bactivate\b|\bconda run\b")
_TEXTS = (".md", ".rst", ".txt", ".sh", ".yml", ".yaml")


@rule("RUN279", kind="guide", severity="warning", cause="wrong-python-env", url=ACTIVATE)
def activated_environment_has_another_name(context: GuideContext) -> Iterator[Problem]:
    """A step activates an environment of conda that no step creates: the only one before has another name.

    The name of `conda env create` is that in its file. Left out if another text of the checkout has the name.
    """
    made: list[SelectEnvironment] = []
    for each in context.actions(SelectEnvironment):
        if each.tool != "conda":
            return
        if each.new:
            made.append(each)
            continue
        names = {other.name for other in made}
        other = next(iter(names), "")
        is_absent = len(names) == 1 and bool(other) and each.name not in (other, "base")
        if is_absent and _is_name(each.name) and _is_name(other) and not _is_named(context, each.name):
            yield Problem(
                "warning",
                f"`{each.command}` activates {each.name}, and the environment of line {made[-1].line} is {other}",
                (
                    guide_evidence(context, "created", made[-1].command, made[-1].line),
                    guide_evidence(context, "activated", each.command, each.line),
                ),
                f"Activate {other}.",
                guide_command(shell_command("conda activate {}", other)),
                line=line_of(context, each.line, each.name),
            )
            return


def _is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None and not _PLACEHOLDER.search(name)


def _is_named(context: GuideContext, name: str) -> bool:
    """Whether something else than an activation has the name: another text, or another line of the guide."""
    used = re.compile(rf"(?<![\w./-]){re.escape(name)}(?![\w/-])")
    checkout = context.guide.checkout
    files = sorted(each for each in checkout.paths if each.endswith(_TEXTS)) if checkout else []
    lines = [*context.guide.lines, *(line for each in files if checkout for line in checkout.text(each).splitlines())]
    return any(used.search(line) and _NAMES.search(line) and not _USES.search(line) for line in lines)
