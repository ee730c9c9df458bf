"""Checks on options and variables without effect, or with an unintended effect."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.knowledge.guides import guide_tables
from envdoctor.knowledge.versions import satisfies
from envdoctor.manifests.actions import Install, SetVariables, torch_source
from envdoctor.manifests.checks.evidence import (
    guide_command,
    guide_evidence,
    install_step,
    install_with,
    line_of,
    table_evidence,
)
from envdoctor.manifests.context import GuideContext
from envdoctor.rules.registry import Problem, rule

UV_TORCH = "https://docs.astral.sh/uv/guides/integration/pytorch/"
CMAKE = "https://llama-cpp-python.readthedocs.io/en/latest/#supported-backends"
_OF_WHEELS = ("--extra-index-url", "--index-url", "--find-links", "--only-binary", ".whl")
_LOGIN_NODE = lazy_pattern(
    r"login[- ]?(?:node|host|knoten)|anmeldeknoten|front-?end node|登录节点|登錄節點|ログインノード"
    r"|n(?:œ|oe)ud de (?:connexion|login)|nodo de (?:login|acceso)|(?:ohne|without|no|sin|sans) GPU",
    re.IGNORECASE,
)
_CONTEXT_LINES = 12  # lines above a command that may describe it
_OFF = ("", "0", "false", "off", "no")


@rule("RUN020", kind="guide", severity="warning", cause="torch-cpu-build", url=UV_TORCH)
def config_setting_has_no_effect(context: GuideContext) -> Iterator[Problem]:
    """`--config-settings vllm:torch-backend=auto` is accepted but has no effect: torch still comes from PyPI."""
    for install in context.trace.installs:
        for value in install.action.config_settings:
            if "torch-backend" in value or "torch_backend" in value:
                line = line_of(context, install.action.line, value)
                backend = value.rpartition("=")[2] or "auto"
                yield Problem(
                    "warning",
                    f"--config-settings {value} has no effect: no build backend reads it",
                    (
                        guide_evidence(context, "--config-settings", value, line),
                        table_evidence(
                            "--config-settings torch-backend",
                            "no effect",
                            "measured with uv and vLLM 0.10.2",
                            "2026-11-21",
                        ),
                    ),
                    f"Use the uv option --torch-backend={backend}.",
                    install_with(install, backend=backend),
                    line=line,
                )


@rule("RUN021", kind="guide", severity=("error", "warning"), cause="torch-cpu-build", url=UV_TORCH)
def torch_backend_is_detected_without_a_gpu(context: GuideContext) -> Iterator[Problem]:
    """`--torch-backend=auto` selects the CPU index if it detects no driver: on a login node, in a Docker build."""
    for install in context.trace.installs:
        if torch_source(install.action).backend != "auto":
            continue
        line = line_of(context, install.action.line, "torch-backend")
        in_dockerfile = install.before.in_dockerfile
        text_above = context.guide.lines[max(0, line - _CONTEXT_LINES - 1) : line]
        if in_dockerfile or any(_LOGIN_NODE.search(text) for text in text_above):
            location = "in a Docker build" if in_dockerfile else "on a login node"
            yield Problem(
                "error" if in_dockerfile else "warning",
                f"--torch-backend=auto {location} detects no driver and selects the CPU build of torch",
                (
                    guide_evidence(context, "--torch-backend", "auto", line),
                    table_evidence("auto without a driver", "cpu", "measured with uv", "2026-11-21"),
                ),
                "Select the build for the driver of the target machine, such as --torch-backend=cu128.",
                guide_command(install.action.command.replace("=auto", "=cu128").replace(" auto", " cu128")),
                line=line,
            )


@rule(
    "RUN022",
    kind="guide",
    severity="warning",
    cause="silent-slow-path",
    url="https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html",
)
def environment_variable_has_no_effect(context: GuideContext) -> Iterator[Problem]:
    """The guide sets an environment variable that no release of the library reads."""
    unread = {row.name: row for row in guide_tables().switch}
    for line, name, value in assignments(context):
        row = unread.get(name)
        version = context.version(row.package) if row else ""
        is_off = "ENABLE" in name and value.strip("'\"").lower() in _OFF  # as if the variable was not set
        if row and not is_off and (not row.package or (version and satisfies(version, row.releases))):
            yield Problem(
                "warning",
                f"{name}={value}: {f'{row.package} {version} does not read' if version else 'no library reads'} "
                f"this variable",
                (guide_evidence(context, name, value, line), table_evidence(name, "not read", row.source, row.date)),
                f"Use {row.instead}.",
                line=line,
            )


def assignments(context: GuideContext) -> Iterator[tuple[int, str, str]]:
    """Lines, names and values of the variables that commands and Python code of the guide set."""
    for action in context.actions(SetVariables):
        yield from ((line_of(context, action.line, name), name, value) for name, value in action.values)
    for command in context.guide.commands:
        if command.words != ("export",):
            yield from ((command.line, name, value) for name, value in command.assignments)
    for block in context.guide.python_blocks:
        for number, text in block:
            match = re.search(
                r"environ(?:\[|\.setdefault\()\s*['\"](\w+)['\"]\s*(?:\]\s*=|,)\s*['\"]?([^'\")]{0,80})", text
            )
            if match:
                yield number, match[1], match[2]


@rule(
    "RUN023",
    kind="guide",
    severity=("error", "warning"),
    cause="dependency-pin-violated",
    url="https://www.gnu.org/software/bash/manual/html_node/Redirections.html",
)
def shell_interprets_a_version_bound_as_redirection(context: GuideContext) -> Iterator[Problem]:
    """`pip install trl>=0.23` is not quoted: the shell writes to a file named `=0.23`, and the bound is lost.

    With `<` the shell reads from a file that does not exist, and fails.
    """
    for install in context.trace.installs:
        for word in install.action.unquoted_bounds:
            line = line_of(context, install.action.line, word)
            reads = "<" in word
            effect = "fails to read a file of that name" if reads else "writes to a file and drops the bound"
            yield Problem(
                "error" if reads else "warning",
                f"{word} is not quoted: the shell {effect}",
                (guide_evidence(context, "argument", word, line),),
                f"Quote it: '{word}'.",
                install_step(word),
                line=line,
            )


@rule("RUN249", kind="guide", severity=("error", "warning"), cause="dependency-pin-violated", url=CMAKE)
def build_stops_at_an_option_of_cmake(context: GuideContext) -> Iterator[Problem]:
    """`CMAKE_ARGS="-DLLAMA_CUBLAS=on" pip install llama-cpp-python`: CMake stops, as the option has another name.

    A warning if the release is not known. Not reported where the steps name an index with wheels of the package.
    """
    if any(option in str(command) for command in context.guide.commands for option in _OF_WHEELS):
        return
    values = [each for action in context.actions(SetVariables) for each in action.values]
    values += [each for command in context.guide.commands for each in command.assignments]
    set_options = " ".join(value for name, value in values if name == "CMAKE_ARGS")
    for row in guide_tables().build_option:
        if not re.search(rf"-D\s*{row.option}(?::BOOL)?=(?:on|1|true|yes)\b", set_options, re.IGNORECASE):
            continue
        steps = (step for step in context.trace.installs if _installs(step.action, row.package))
        install = next(steps, None)
        version = context.version(row.package)
        if install is None or (version and not satisfies(version, f">={row.first}")):
            continue
        line = install.action.line
        release = f"{row.package} {version}" if version else f"the newest {row.package}"
        yield Problem(
            "error" if version else "warning",
            f"the build of {release} stops: CMake rejects {row.option}, whose name is {row.instead} from "
            f"{row.package} {row.first} on",
            (
                guide_evidence(context, "CMAKE_ARGS", set_options[:120], line),
                table_evidence(row.option, f"an error from {row.package} {row.first} on", row.source, row.date),
            ),
            f"Use -D{row.instead}=on.",
            line=line,
        )


def _installs(action: Install, package: str) -> bool:
    return any(each.name == package for each in action.requirements)
