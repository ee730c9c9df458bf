"""Checks on the options of programs that the text of a guide names outside of its commands."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from envdoctor.core.patterns import lazy_pattern
from envdoctor.manifests.checks.evidence import guide_evidence, table_evidence
from envdoctor.manifests.checks.misspelled_scripts import OF_THE_PAST
from envdoctor.manifests.checks.program_arguments import (
    ARGPARSE,
    StartedProgram,
    nearest_option,
    started_programs,
)
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.parser_options import Parser, refusals
from envdoctor.rules.registry import Problem, rule

_OPTION = lazy_pattern(r"`(--[A-Za-z][\w-]*)(?:[ =][^`]*)?`")
# Paragraphs that name the options of a tool as well.
_TOOL = lazy_pattern(
    r"\b(?:pip|uv|conda|docker|podman|git|torchrun|accelerate|deepspeed|srun|sbatch|slurm|vllm)\b", re.IGNORECASE
)
_SAME_NAME = 0.85  # likeness of an option with another word or letter
_MIN_ACCEPTED = 2  # options of a paragraph that show to which program it belongs


@rule("RUN201", kind="guide", severity="warning", cause="dependency-pin-violated", url=ARGPARSE)
def text_names_an_option_that_the_program_does_not_have(context: GuideContext) -> Iterator[Problem]:
    """A paragraph of a guide names options of a program of the checkout, and the program does not have one of them.

    Most options of the paragraph are those of the program, and no other file of the checkout has the one in question.
    An option with almost the name of one of the program needs no others. A line on what was removed names no option
    to use.
    """
    checkout = context.guide.checkout
    if checkout is None:
        return
    programs = {each[0].path: each[0] for _, each in started_programs(context)}
    paragraphs = list(_paragraphs(context)) if programs else ()
    for paragraph in paragraphs:
        for program, parser in _parsers(programs):
            absent = {option: line for option, line in paragraph.items() if _is_absent(parser, option)}
            accepted = len(paragraph) - len(absent)
            if not absent or accepted < _MIN_ACCEPTED or accepted <= len(absent):
                continue
            for option, line in absent.items():
                if not _is_in_code(context, option):
                    yield _problem(context, program, parser, (option, line), has_others=True)
            break
        else:
            yield from _misspelled(context, programs, paragraph)


def _misspelled(
    context: GuideContext, programs: dict[str, StartedProgram], paragraph: dict[str, int]
) -> Iterator[Problem]:
    """The options of a paragraph that one program lacks, and has with almost the same name."""
    for option, line in paragraph.items():
        lacking = [each for each in _parsers(programs) if _is_absent(each[1], option)]
        if not lacking or len(lacking) < len([*_parsers(programs)]) or _is_in_code(context, option):
            continue
        found = ((program, parser, nearest_option(option, parser)) for program, parser in lacking)
        alike = (each for each in found if each[2] and _likeness(option, each[2]) >= _SAME_NAME)
        if near := next(alike, None):
            yield _problem(context, near[0], near[1], (option, line), has_others=False)


def _likeness(option: str, other: str) -> float:
    return difflib.SequenceMatcher(None, option.lstrip("-"), other.lstrip("-")).ratio()


def _paragraphs(context: GuideContext) -> Iterator[dict[str, int]]:
    """The options to use that each paragraph and list of the text names, with their lines."""
    code = {number for block in context.guide.blocks for number, _ in block.lines}
    paragraph: list[tuple[int, str]] = []
    for number, line in enumerate((*context.guide.lines, ""), 1):
        if line.strip() and number not in code:
            paragraph.append((number, line))
            continue
        options: dict[str, int] = {}
        for at, text in ((at, text) for at, text in paragraph if not OF_THE_PAST.search(text)):
            options |= {option: at for option in _OPTION.findall(text) if option not in options}
        if options and not any(_TOOL.search(text) for _, text in paragraph):
            yield options
        paragraph = []


def _parsers(programs: dict[str, StartedProgram]) -> Iterator[tuple[StartedProgram, Parser]]:
    for program in programs.values():
        yield from ((program, parser) for parser in program.parsers)


def _is_absent(parser: Parser, option: str) -> bool:
    return any(each.kind == "unknown" for each in refusals(parser, (option,)))


def _is_in_code(context: GuideContext, option: str) -> bool:
    """Whether a file of the checkout can define or pass on an option: it is that of another program."""
    checkout = context.guide.checkout
    name = re.sub(r"[-_]", "[-_]", option[2:])
    defined = re.compile(rf"--{name}\b|^\s*{name}\s*:|[\"']{name}[\"']", re.MULTILINE)
    paths = (
        [each for each in sorted(checkout.paths) if each.endswith((".py", ".sh", ".yaml", ".yml"))]
        if checkout
        else []
    )
    return any(checkout is not None and defined.search(checkout.text(path)) for path in paths)


def _problem(
    context: GuideContext, program: StartedProgram, parser: Parser, named: tuple[str, int], *, has_others: bool
) -> Problem:
    option, line = named
    shown = " with others of its options" if has_others else ""
    nearest = nearest_option(option, parser)
    return Problem(
        "warning",
        f"{program.path} has no option {option}, which the text names{shown}",
        (
            guide_evidence(context, "option", option, line),
            table_evidence("parser", parser.place, "the checkout"),
        ),
        f"Write {nearest}, if it is meant."
        if nearest
        else f"Use an option of the program, or a commit that has {option}.",
        line=line,
    )
