"""Checks on options and variables that do nothing, or something else than meant."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.knowledge.guides import guide_tables
from envdoctor.manifests.actions import SetVariables
from envdoctor.manifests.checks.evidence import guide_evidence, line_of, table_evidence
from envdoctor.manifests.checks.replacements import requirement_arguments
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.torch_sources import torch_source
from envdoctor.rules.registry import Problem, rule

UV_TORCH = "https://docs.astral.sh/uv/guides/integration/pytorch/"
_LOGIN = re.compile(
    r"login[- ]?(?:node|host|knoten)|anmeldeknoten|front-?end node|登录节点|登錄節點|ログインノード"
    r"|n(?:œ|oe)ud de (?:connexion|login)|nodo de (?:login|acceso)|(?:ohne|without|no|sin|sans) GPU",
    re.IGNORECASE,
)
_NEAR = 12  # lines above a command that speak of it


@rule("RUN020", kind="guide", severity="warning", cause="torch-cpu-build", url=UV_TORCH)
def config_setting_does_nothing(context: GuideContext) -> Iterator[Problem]:
    """`--config-settings vllm:torch-backend=auto` is accepted and does nothing: torch comes from PyPI all the
    same.
    """
    for install in context.trace.installs:
        for value in install.action.config_settings:
            if "torch-backend" in value or "torch_backend" in value:
                line = line_of(context, install.action.line, value)
                backend = value.rpartition("=")[2] or "auto"
                yield Problem(
                    "warning",
                    f"--config-settings {value} is accepted and does nothing: no build reads it",
                    (
                        guide_evidence(context, "--config-settings", value, line),
                        table_evidence(
                            "--config-settings torch-backend",
                            "no effect",
                            "measured with uv and vLLM 0.10.2",
                            "2026-11-21",
                        ),
                    ),
                    f"Use uv's own option: --torch-backend={backend}.",
                    (f"uv pip install {requirement_arguments(install)} --torch-backend={backend}",),
                    line=line,
                )


@rule("RUN021", kind="guide", severity=("error", "warning"), cause="torch-cpu-build", url=UV_TORCH)
def backend_is_detected_where_there_is_no_gpu(context: GuideContext) -> Iterator[Problem]:
    """`--torch-backend=auto` looks for a driver, and takes the CPU index location it sees none: login node, docker
    build.
    """
    for install in context.trace.installs:
        if torch_source(install.action).backend != "auto":
            continue
        line = line_of(context, install.action.line, "torch-backend")
        location = (
            "a docker build"
            if install.before.in_dockerfile
            else "a login node"
            if _on_login_node(context, line)
            else ""
        )
        if location:
            yield Problem(
                "error" if install.before.in_dockerfile else "warning",
                f"--torch-backend=auto in {location} sees no driver and takes the CPU build of torch",
                (
                    guide_evidence(context, "--torch-backend", "auto", line),
                    table_evidence("auto without a driver", "cpu", "measured with uv", "2026-11-21"),
                ),
                "Name the build: --torch-backend=cu128, or what fits the driver of the machine that runs it.",
                (install.action.command.replace("=auto", "=cu128").replace(" auto", " cu128"),),
                line=line,
            )


def _on_login_node(context: GuideContext, line: int) -> bool:
    above = context.guide.lines[max(0, line - _NEAR - 1) : line]
    return any(_LOGIN.search(text) for text in above)


@rule(
    "RUN022",
    kind="guide",
    severity="warning",
    cause="silent-slow-path",
    url="https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html",
)
def variable_is_read_by_nothing(context: GuideContext) -> Iterator[Problem]:
    """A variable is set that no release of the library reads: what it is meant to switch stays as it is."""
    known = {row.name: row for row in guide_tables().switch}
    for line, name, value in _assigned(context):
        row = known.get(name)
        if row:
            yield Problem(
                "warning",
                f"{name}={value}: nothing reads this variable",
                (guide_evidence(context, name, value, line), table_evidence(name, "not read", row.source, row.date)),
                f"Use {row.instead}.",
                line=line,
            )


def _assigned(context: GuideContext) -> Iterator[tuple[int, str, str]]:
    """SetVariables that commands and Python code of the guide set."""
    for action in context.guide.actions:
        if isinstance(action, SetVariables):
            yield from ((line_of(context, action.line, name), name, value) for name, value in action.values)
    for command in context.guide.commands:
        if command.words != ("export",):
            yield from ((command.line, name, value) for name, value in command.assignments)
    for block in context.guide.python_blocks:
        for number, text in block:
            found = re.search(
                r"environ(?:\[|\.setdefault\()\s*['\"](\w+)['\"]\s*(?:\]\s*=|,)\s*['\"]?([^'\")]{0,80})", text
            )
            if found:
                yield number, found[1], found[2]


@rule(
    "RUN023",
    kind="guide",
    severity=("error", "warning"),
    cause="dependency-pin-violated",
    url="https://www.gnu.org/software/bash/manual/html_node/Redirections.html",
)
def shell_takes_the_bound_as_a_redirection(context: GuideContext) -> Iterator[Problem]:
    """`pip install trl>=0.23` without quotes: the shell writes to a file named `=0.23` and installs without the
    bound.

    With `<` it looks for a file to read from and stops.
    """
    for install in context.trace.installs:
        for word in install.action.unquoted_bounds:
            line = line_of(context, install.action.line, word)
            reads = "<" in word
            what = (
                "reads from a file of that name and stops"
                if reads
                else "writes to a file of that name and drops the bound"
            )
            yield Problem(
                "error" if reads else "warning",
                f"{word} is not quoted: the shell {what}",
                (guide_evidence(context, "argument", word, line),),
                f"Quote it: '{word}'.",
                (f"uv pip install '{word}'",),
                line=line,
            )
