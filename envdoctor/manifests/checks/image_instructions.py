"""Checks on instructions of a Dockerfile that Docker refuses, or whose variables it does not replace."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.checks.evidence import guide_evidence, shown_line
from envdoctor.manifests.container_files import Instruction, is_dockerfile, parse_dockerfile
from envdoctor.manifests.context import GuideContext
from envdoctor.rules.registry import Problem, rule

ENV = "https://docs.docker.com/reference/dockerfile/#env"
EXEC_FORM = "https://docs.docker.com/reference/dockerfile/#shell-and-exec-form"
_NAME = lazy_pattern(r"[A-Za-z_]\w*")
_VARIABLE = lazy_pattern(r"\$(?:\{?[A-Za-z_]\w*\}?|\([A-Za-z_]\w*\))")
_OF_KUBERNETES = lazy_pattern(r"\$\(([A-Z_][A-Z0-9_]*)\)")  # in a command of the shell, the output of a program
_SHELLS = lazy_pattern(r"(?:.*/)?(?:ba|da|z)?sh|(?:.*/)?(?:cmd|powershell|pwsh|envsubst|eval|env|perl|awk)(?:\.exe)?")


@rule("RUN267", kind="guide", severity="error", cause="dependency-pin-violated", url=ENV)
def variable_of_image_has_no_value(context: GuideContext) -> Iterator[Problem]:
    """ENV of a Dockerfile names a variable without a value: the build stops at the instruction."""
    for each in _instructions(context):
        if each.name == "ENV" and (word := _without_value(each)):
            number, text = each.lines[0]
            yield Problem(
                "error",
                f"`ENV {shown_line(text)}`: Docker needs a value for {word}, and the build stops",
                (guide_evidence(context, "ENV", shown_line(text), number),),
                "Move the comment to a line of its own."
                if word.startswith("#")
                else f'Write ENV {word}="" for an empty value, or remove the line.',
                line=number,
            )


@rule("RUN268", kind="guide", severity="warning", cause="dependency-pin-violated", url=EXEC_FORM)
def command_of_image_contains_a_variable(context: GuideContext) -> Iterator[Problem]:
    """CMD or ENTRYPOINT passes the name of a variable: without a shell, `["python", "$PORT"]` stays as it is.

    Also `$(NAME)`, as Kubernetes replaces it: a shell runs a program of this name.
    """
    instructions = list(_instructions(context))
    has_entrypoint = any(each.name == "ENTRYPOINT" for each in instructions)  # which can be a shell
    for each in instructions:
        is_started = each.name == "ENTRYPOINT" or (each.name == "CMD" and not has_entrypoint)
        if is_started and (found := _unreplaced(each)):
            number, text = each.lines[0]
            word, reason = found
            yield Problem(
                "warning",
                f"{each.name} passes {word} {reason}",
                (guide_evidence(context, each.name, shown_line(text), number),),
                f"Write {each.name} without the brackets: a shell then replaces the variable."
                if text.lstrip().startswith("[")
                else f"Write ${{{word[2:-1]}}}.",
                line=number,
            )


def _instructions(context: GuideContext) -> Iterator[Instruction]:
    for block in context.guide.blocks:
        yield from (each for each in parse_dockerfile(block.lines) if each.lines) if is_dockerfile(block) else ()


def _text(instruction: Instruction) -> str:
    return " ".join(text.rstrip().removesuffix("\\") for _, text in instruction.lines)


def _without_value(instruction: Instruction) -> str:
    """The first name without a value: of `ENV NAME`, and of `ENV A=1 NAME`."""
    try:
        words = shlex.split(_text(instruction))
    except ValueError:
        return ""
    if len(words) == 1 and _NAME.fullmatch(words[0]):
        return words[0]
    is_list = bool(words) and "=" in words[0]
    return next((word for word in words if is_list and (_NAME.fullmatch(word) or word.startswith("#"))), "")


def _unreplaced(instruction: Instruction) -> tuple[str, str] | None:
    """A variable that neither Docker nor a shell replaces, and the reason."""
    text = _text(instruction)
    if not text.lstrip().startswith("["):
        match = _OF_KUBERNETES.search(text)
        return (match[0], f"to a shell, which runs a program {match[1]} in its place") if match else None
    try:
        words = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        return None
    if any(map(_SHELLS.fullmatch, words)):
        return None
    found = next(filter(None, map(_VARIABLE.search, words)), None)
    return (found[0], "as it is: no shell replaces variables in this form") if found else None
