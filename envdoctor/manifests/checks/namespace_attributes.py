"""A check on programs that read an option which their own parser does not define."""

from __future__ import annotations

from collections.abc import Iterator

from envdoctor.core.wording import join_words
from envdoctor.manifests.checks.evidence import guide_evidence, table_evidence
from envdoctor.manifests.checks.program_arguments import ARGPARSE, started_programs
from envdoctor.manifests.context import GuideContext
from envdoctor.manifests.namespace_reads import absent_attributes
from envdoctor.rules.registry import Problem, rule


@rule("RUN298", kind="guide", severity="warning", cause="dependency-pin-violated", url=ARGPARSE)
def program_reads_an_option_that_its_parser_lacks(context: GuideContext) -> Iterator[Problem]:
    """A program of the checkout reads `args.name`, and its parser has no option `--name`: AttributeError.

    Programs with one `argparse` parser whose options are all known. What the program, or a file that it loads, sets
    or names as text is left out.

    Fix: define the option in the program, or remove the read.
    """
    checkout, seen = context.guide.checkout, set[str]()
    for launch, programs in started_programs(context) if checkout else ():
        program = programs[0]
        if checkout is None or program.path in seen or len(programs) != 1 or not program.has_one_parser:
            continue
        seen.add(program.path)
        files = [checkout.code(path) for path in checkout.program_files(launch) if path != program.path]
        found = [
            each
            for parser in program.parsers
            for each in absent_attributes(checkout.code(program.path), parser, files)
        ]
        if not found:
            continue
        first = found[0]
        options = list(dict.fromkeys(f"--{each.attribute}" for each in found))
        yield Problem(
            "warning",
            f"{program.path}:{first.line} reads {first.name}.{first.attribute}, and its parser has no "
            f"{join_words(options)}: AttributeError",
            (
                guide_evidence(context, "program", launch.command, launch.line),
                table_evidence("parser", program.parsers[0].place, "the checkout"),
            ),
            f"Define {join_words(options)} in {program.path}, or remove what reads it.",
            line=launch.line,
        )
